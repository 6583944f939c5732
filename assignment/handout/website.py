"""What mkdocs gets: a folder of Markdown, and its configuration."""

import html
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assignment.commands.handout import anchor_of
from assignment.course import course
from assignment.handout import in_course, mathematics, notebook

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "handout"
PATH = "## The order of the work"
OWN = ("iframe-worker.js", "style.css")  # files beside this one
FENCE = re.compile(r"^```(\w+) (?:script|compile) (\S+)$", re.MULTILINE)  # a script that the handout's tests run
OTHER_FENCE = re.compile(r"^```(?!python|sh|math|diff)\w+.*$", re.MULTILINE)  # what something prints
LINK = re.compile(rf"\]\((?:{FOLDER}/)?(\w+\.md)")
HEADING = re.compile(r"# (.+)")


def pages(root: Path = ROOT) -> list[Path]:
    """Return the handout's pages: the first, then those that its path names, then what others name."""
    found = [root / "handout.md"]
    for page in found:
        found += [path for path in dict.fromkeys(_linked(page, root)) if path not in found]
    return [*found, *sorted({*(root / FOLDER).glob("*.md")} - {*found})]


def _linked(page: Path, root: Path) -> Iterator[Path]:
    before, _, after = page.read_text(encoding="utf-8").partition(PATH)
    for name in LINK.findall(after + before):
        if (path := root / FOLDER / name).is_file():
            yield path


def written(root: Path = ROOT) -> dict[str, str]:
    """Return the pages as the course has them, by path below the root."""
    paths = [page.relative_to(root).as_posix() for page in pages(root)]
    return in_course.pages({path: (root / path).read_text(encoding="utf-8") for path in paths})


def title(text: str) -> str:
    """Return the words of a page's first heading."""
    found = HEADING.match(text)
    return re.sub(r"\\(.)", r"\1", found[1].replace("`", "")) if found else ""


def copy(to: Path, root: Path = ROOT) -> None:
    """Write the pages and their figures below a folder; handout.md becomes its index.md."""
    shutil.copytree(root / FOLDER, to / FOLDER, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.md"))
    for page, text in written(root).items():
        (to / place(root / page, root)).write_text(for_mkdocs(text), encoding="utf-8")
    (to / notebook.NOTEBOOK).write_bytes(notebook.of_page((root / notebook.PAGE).read_text(encoding="utf-8")))
    for name in OWN:
        shutil.copyfile(Path(__file__).with_name(name), to / name)
    if logo := course().logo:
        shutil.copyfile(root / logo, to / Path(logo).name)


def for_mkdocs(text: str) -> str:
    """Return a page's text with mkdocs' links to the first page and the notebook, and with languages that it knows."""
    text = text.replace("](../handout.md", "](../index.md")
    text = text.replace(f"`{notebook.NOTEBOOK}`", f"[`{notebook.NOTEBOOK}`](../{notebook.NOTEBOOK})")
    return OTHER_FENCE.sub("```text", FENCE.sub(r'```\1 title="\2"', text))


def place(page: Path, root: Path = ROOT) -> Path:
    """Return where a page lies below the folder."""
    return Path("index.md") if page.name == "handout.md" else page.relative_to(root)


def configuration(docs: Path, to: Path, root: Path = ROOT) -> dict[str, Any]:
    """Return mkdocs' settings: nothing is fetched, and the pages work from a disk, too."""
    texts = written(root)
    schemes = {"default": ("light", "weather-night"), "slate": ("dark", "weather-sunny")}
    palette = [
        {
            "media": f"(prefers-color-scheme: {name})",
            "scheme": scheme,
            "toggle": {"icon": f"material/{icon}", "name": "Change between light and dark"},
        }
        for scheme, (name, icon) in schemes.items()
    ]
    return {
        "site_name": html.escape(course().heading),
        "repo_url": course().repository or None,
        "docs_dir": str(docs),
        "site_dir": str(to),
        "use_directory_urls": False,
        "nav": [{html.escape(title(text)): str(place(root / page, root))} for page, text in texts.items()],
        "theme": {
            "name": "material",
            "font": False,  # the reader's own: no other host is asked for one
            "palette": palette,
            **({"logo": Path(course().logo).name} if course().logo else {}),
            "features": ["content.code.copy", "navigation.footer", "navigation.top", "search.highlight", "toc.follow"],
        },
        "plugins": ["search", "offline"],
        "extra": {"polyfills": ["iframe-worker.js"], "generator": False},
        "extra_css": ["style.css"],
        "markdown_extensions": [
            "tables",
            {"toc": {"permalink": True, "slugify": lambda heading, _: anchor_of(heading)}},
            {"pymdownx.highlight": {"anchor_linenums": False}},
            {
                "pymdownx.superfences": {
                    "custom_fences": [{"name": "math", "class": "formula", "format": mathematics.fence}]
                }
            },
            "assignment.handout.mathematics",
        ],
    }
