"""The pages of a class in a real browser: Chromium without a window."""

import pytest

from assignment.classroom import __main__ as classroom
from assignment.classroom.handed_in import Person
from assignment.tests import chromium, class_made
from assignment.tests.chromium import CONTRAST, complaints, opened
from assignment.tests.class_made import MARKUP, SPEED, TIMING
from assignment.verdict import score
from assignment.verdict.case import Case

PAGES = ("report.html", "leaderboard.html", "similar.html", "students/ada.html", "students/bo.html", "students/di.html")
pytestmark = chromium.needed
PLANTED = "<!DOCTYPE html><title>x</title><img src='http://127.0.0.1:9/x'><script>lost()</script>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pages of a class in which names, messages and errors are markup, and one submission was timed."""
    made = class_made.made(tmp_path_factory.mktemp("class") / "results")
    fast = Case("large", score.OK, measured="m", timing=TIMING)
    told = class_made.report(class_made.submission(), {SPEED: fast}, f"cuda: GPU {MARKUP}")
    class_made.keep(made, "ada", told, class_made.submission(), (Person(MARKUP),))
    assert classroom.main(["report", str(made), "--title", MARKUP]) == 0
    assert classroom.main(["leaderboard", str(made), "--title", MARKUP]) == 0
    long = class_made.submission(
        "".join(f"def f_{i}(x):\n    return x.f_{i}({MARKUP!r}, x + {i})\n" for i in range(99))
    )
    for name in ("eve", "flo"):
        class_made.keep(made, name, class_made.report(long), long)
    assert classroom.main(["similar", str(made)]) == 0
    return made


@pytest.mark.parametrize("width", [360, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_opens_without_a_complaint(browser, folder, page, scheme, width):
    opened(browser, folder / page, scheme, width)
    assert complaints(browser) == []
    assert browser.title != "taken"
    assert browser.execute_script("return document.images.length") == 0
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script(CONTRAST) >= 4.5


def test_the_pass_rate_of_a_check_is_on_a_narrow_screen(browser, folder):
    opened(browser, folder / "report.html", width=360)
    cell = "document.querySelector('#checks ~ .scroll tbody td[data-sort]').getBoundingClientRect()"
    assert 0 < browser.execute_script(f"return {cell}.right") <= 360
    assert "%" in browser.execute_script("return document.querySelector('#checks ~ .scroll tbody td').textContent")


def test_evidence_stands_on_the_line_of_its_row(browser, folder):
    opened(browser, folder / "report.html")
    row = "[...document.querySelectorAll('#review + .scroll tbody tr')].map((r) => "
    tops = browser.execute_script(
        f"return {row} r.querySelector('summary').getBoundingClientRect().top - "
        "r.cells[0].querySelector('a').getBoundingClientRect().top)"
    )
    assert tops
    assert all(abs(top) < 3 for top in tops)


def test_a_complaint_would_be_seen(browser, tmp_path):
    """An image from elsewhere, and a script that fails"""
    (tmp_path / "planted.html").write_text(PLANTED)
    opened(browser, tmp_path / "planted.html")
    seen = complaints(browser, until="lost")
    assert any("127.0.0.1:9" in one for one in seen)
    assert any("lost is not defined" in one for one in seen)


def test_nothing_that_is_injected_would_run(browser, folder, tmp_path):
    """Even where markup got into a page, its policy forbids it"""
    page = (folder / "report.html").read_text().replace("<main>", f"<main>{PLANTED}{MARKUP}", 1)
    (tmp_path / "injected.html").write_text(page)
    opened(browser, tmp_path / "injected.html")
    seen = complaints(browser, until="Content Security Policy")
    assert browser.title != "taken"
    assert any("Content Security Policy" in one for one in seen)
    assert not any("lost is not defined" in one for one in seen)


def test_tables_are_sorted_by_the_keyboard(browser, folder):
    from selenium.webdriver.support.wait import WebDriverWait

    opened(browser, folder / "report.html")
    first = "return document.querySelector('#students ~ .scroll tbody tr').cells[0].textContent.trim()"
    find = "return document.querySelectorAll('#students ~ .scroll th button')[1]"
    button = WebDriverWait(browser, 60).until(lambda page: page.execute_script(find))  # a script makes it
    assert browser.execute_script(first).startswith("ada")
    button.send_keys("\n")
    assert browser.execute_script(first).startswith("di")  # has no score
    button.send_keys("\n")
    assert browser.execute_script(first).startswith("ada")
    head = "return document.querySelectorAll('#students ~ .scroll th')[1].getAttribute('aria-sort')"
    assert browser.execute_script(head) == "descending"
