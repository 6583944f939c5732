"""The handout's pages: whole, linked, and without a request to any other host."""

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from assignment import course, release
from assignment.commands import handout, html_page, report
from assignment.handout import in_course, mathematics, notebook, website
from assignment.handout.__main__ import main
from assignment.tests import chromium
from assignment.tests.pages import HANDOUT, ROOT
from tests import operators

WORDS = {"mask": "triton", "rstd": "rmsnorm", "causal": "flash_attention", "TF32": "numerics", "stride": "memory"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages") / "site"
    assert main(["--to", str(folder)]) == 0
    return folder


class Page(HTMLParser):
    """The anchors of a page, what it links to and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        own = dict(attrs)
        self.anchors |= {own[key] for key in ("id", "name") if own.get(key)}
        if tag == "a" and own.get("href"):
            self.links.append(own["href"])
        elif tag != "a" and tag != "link":
            self.loaded += [own["src"]] if own.get("src") else []
        elif tag == "link" and own.get("rel") in ("stylesheet", "icon"):
            self.loaded.append(own["href"])


def test_pages_have_the_course_s_name_logo_and_repository(tmp_path, monkeypatch):
    of = course.Course(title="Kernels", term="Autumn", logo="a.svg", repository="https://a.example/kernels")
    monkeypatch.setattr(website, "course", lambda: of)
    monkeypatch.setattr(in_course, "course", lambda: of)
    monkeypatch.setattr(website, "pages", lambda root: [root / "handout.md", root / "handout" / "triton.md"])
    for name, text in {"handout.md": "# A<!-- title -->\n", "handout/triton.md": "# B\n", "a.svg": "<svg/>"}.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(text)
    website.copy(tmp_path / "docs", tmp_path / "root")
    assert (tmp_path / "docs" / "a.svg").read_text() == "<svg/>"
    assert (tmp_path / "docs" / "index.md").read_text() == "# Kernels, Autumn\n"
    settings = website.configuration(tmp_path / "docs", tmp_path / "site", tmp_path / "root")
    assert (settings["site_name"], settings["theme"]["logo"]) == ("Kernels, Autumn", "a.svg")
    assert settings["repo_url"] == of.repository


def test_links_lead_somewhere(site):
    read = {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
    assert len(read) == len(website.pages())
    for path, one in read.items():
        for link in one.links:
            address, _, anchor = link.partition("#")
            if "://" in address:
                continue
            to = (path.parent / address).resolve() if address else path
            to = to / "index.html" if to.is_dir() else to
            assert to in read or to == site / notebook.NOTEBOOK, f"{path.name}: {link}"
            assert to.is_file(), link
            assert not anchor or anchor in read[to].anchors, f"{path.name}: {link}"


def test_nothing_is_fetched(site):
    for path in site.rglob("*.html"):
        for source in Page(path).loaded:
            assert "//" not in source, f"{path.name}: {source}"
            assert path.name == "404.html" or (path.parent / source.partition("?")[0]).is_file(), source


def test_every_section_has_its_github_anchor(site):
    """A citation leads to the same section on GitHub, in a terminal and on the pages"""
    for document in HANDOUT:
        one = Page(site / handout.page(str(document.relative_to(ROOT))))
        lines = document.read_text(encoding="utf-8").splitlines()
        assert {anchor for _, _, anchor in handout.headings(lines)} <= one.anchors, document.name


def formulas(document: Path) -> list[str]:
    """Return the LaTeX of a document: of blocks ```math, and what is between dollars in a text."""
    parts = re.split(r"(^```.*?^```$|`[^`\n]+`)", document.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    blocks = [part[7:-3] for part in parts[1::2] if part.startswith("```math")]
    return blocks + [found for part in parts[::2] for found in re.findall(mathematics.INLINE, part)]


FORMULAS = [(document.name, formula) for document in HANDOUT for formula in formulas(document)]


def test_every_formula_is_understood(site):
    """No command of LaTeX, no & and no brace is left as text"""
    assert len(FORMULAS) > 100
    for name, formula in FORMULAS:
        drawn = ET.fromstring(mathematics.mathml(formula, "block"))
        letters = [one.text or "" for one in drawn.iter() if not one.tag.endswith("mtext")]
        assert not [text for text in letters if re.search(r"[\\&{}$]", text)], f"{name}: {formula}"
    shown = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.html"))
    assert shown.count("<math ") == len(FORMULAS)


def test_every_file_of_the_handout_is_a_page():
    assert sorted(website.pages()) == sorted([ROOT / "handout.md", *(ROOT / "handout").glob("*.md")])
    own = [website.place(path).name for path in website.pages()]
    assert own[:2] == ["index.md", "vector_add.md"]


def test_a_folder_that_is_not_empty_is_refused(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(SystemExit):
        main(["--to", str(tmp_path)])
    assert "expected an empty folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.fixture
def published(monkeypatch):
    shown = course.Course(pages="https://course.example/kernels")
    for module in (course, html_page):
        monkeypatch.setattr(module, "course", lambda: shown)
    return shown.pages


def test_hints_reports_and_stubs_link_to_published_pages(published):
    cited = "handout/rmsnorm.md#backward-mathematics"
    assert handout.address("handout.md#set-up") == f"{published}/index.html#set-up"
    assert html_page.address(cited) == f"{published}/handout/rmsnorm.html#backward-mathematics"
    assert f"{published}/handout/rmsnorm.html" in report.wrapped(f"A word or two, before it. ({cited})", [cited])
    source = "def f():\n    # BEGIN SOLUTION handout/rmsnorm.md\n    return 1\n    # END SOLUTION\n"
    assert f"f, {published}/handout/rmsnorm.html" in release.stub(source, "cs336_kernels/f.py")


def test_where_nothing_is_published_files_are_cited():
    assert handout.address("handout/rmsnorm.md") == "handout/rmsnorm.md"


@pytest.mark.slow
@chromium.needed
def test_pages_are_searched_in_a_browser_without_a_server(browser, site):
    """Five words lead to their chapters; no console error, from a disk and in the dark"""
    browser.implicitly_wait(10)
    chromium.opened(browser, site / "index.html")
    box = browser.find_element("css selector", "input.md-search__input")
    box.click()
    for word, chapter in WORDS.items():
        box.clear()
        box.send_keys(word)
        assert browser.find_element("css selector", f'a.md-search-result__link[href*="/{chapter}.html"]'), word
    for name in (one.name for one in operators.operators() if one.is_apart):
        browser.get((site / "handout" / f"{name}.html").as_uri())
        browser.execute_script("document.body.setAttribute('data-md-color-scheme', 'slate')")
        assert browser.find_element("css selector", "h1")
    assert chromium.complaints(browser) == []
