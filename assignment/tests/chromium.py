"""A real browser for tests of pages: Chromium without a window, and what it complains of."""

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needed = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs Chromium: apt-get install chromium chromium-driver"
)
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


@contextlib.contextmanager
def started() -> Iterator[Any]:
    """Run Chromium, with its console and all that it asks for logged."""
    webdriver: Any = pytest.importorskip("selenium.webdriver", reason="needs selenium: uv sync")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for option in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def opened(browser: Any, path: Path, scheme: str = "light", width: int = 1400) -> None:
    """Open a page, and forget what was logged before."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(path.as_uri())


def complaints(browser: Any, until: str = "") -> list[str]:
    """Return what the console says, and every address that was asked for beside the page's own.

    The console may come after the page: 10 seconds are waited for these words.
    """
    seen, end = _complaints(browser), time.monotonic() + 10
    while not any(until in one for one in seen) and until and time.monotonic() < end:
        seen += _complaints(browser)
    return seen


def _complaints(browser: Any) -> list[str]:
    console = [entry["message"] for entry in browser.get_log("browser")]
    asked = [entry["message"] for entry in browser.get_log("performance")]
    sent = [one for one in asked if "Network.requestWillBeSent" in one]
    return console + [one for one in sent if '"url":"http' in one]
