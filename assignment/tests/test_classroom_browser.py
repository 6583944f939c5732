"""The pages of a class in a real browser: Chromium without a window."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from assignment.classroom import __main__ as classroom
from assignment.classroom.handed_in import Person
from assignment.judge import score
from assignment.judge.case import Case
from assignment.tests import class_made
from assignment.tests.class_made import MARKUP, SPEED, TIMING

webdriver: Any = pytest.importorskip("selenium.webdriver", reason="needs selenium: uv sync")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
PAGES = ("report.html", "leaderboard.html", "similar.html", "students/ada.html", "students/bo.html", "students/di.html")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs Chromium: apt-get install chromium chromium-driver"
)
PLANTED = "<!DOCTYPE html><title>x</title><img src='http://127.0.0.1:9/x'><script>lost()</script>"
# The least contrast of text and what it stands on, as WCAG defines it.
CONTRAST = """
const luminance = (c) => {
  const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map((v) => {
    v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const ground = (e) => { const c = getComputedStyle(e).backgroundColor;
  return e.parentElement && c.endsWith(', 0)') ? ground(e.parentElement) : c; };
return Math.min(...[...document.querySelectorAll('p, a, dt, dd, td, th, pre, code, mark')].map((e) => {
  const [a, b] = [getComputedStyle(e).color, ground(e)].map(luminance).sort((x, y) => x - y);
  return (b + 0.05) / (a + 0.05); }));
"""


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for option in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


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


def opened(browser: Any, path: Path, scheme: str = "light", width: int = 1400) -> None:
    """Open a page, and forget what was logged before."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(path.as_uri())


def complaints(browser: Any) -> list[str]:
    """Return what the console says, and every address that was asked for beside the page's own."""
    console = [entry["message"] for entry in browser.get_log("browser")]
    asked = [entry["message"] for entry in browser.get_log("performance")]
    sent = [one for one in asked if "Network.requestWillBeSent" in one]
    return console + [one for one in sent if '"url":"http' in one]


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
    seen = complaints(browser)
    assert any("127.0.0.1:9" in one for one in seen)
    assert any("lost is not defined" in one for one in seen)


def test_nothing_that_is_injected_would_run(browser, folder, tmp_path):
    """Even where markup got into a page, its policy forbids it"""
    page = (folder / "report.html").read_text().replace("<main>", f"<main>{PLANTED}{MARKUP}", 1)
    (tmp_path / "injected.html").write_text(page)
    opened(browser, tmp_path / "injected.html")
    seen = complaints(browser)
    assert browser.title != "taken"
    assert any("Content Security Policy" in one for one in seen)
    assert not any("lost is not defined" in one for one in seen)


def test_tables_are_sorted_by_the_keyboard(browser, folder):
    opened(browser, folder / "report.html")
    first = "return document.querySelector('#students ~ .scroll tbody tr').cells[0].textContent.trim()"
    button = browser.execute_script("return document.querySelectorAll('#students ~ .scroll th button')[1]")
    assert browser.execute_script(first).startswith("ada")
    button.send_keys("\n")
    assert browser.execute_script(first).startswith("di")  # has no score
    button.send_keys("\n")
    assert browser.execute_script(first).startswith("ada")
    head = "return document.querySelectorAll('#students ~ .scroll th')[1].getAttribute('aria-sort')"
    assert browser.execute_script(head) == "descending"
