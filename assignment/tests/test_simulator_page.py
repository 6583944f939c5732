"""`python -m assignment.simulator --html`: the data of a page, and the page in a real browser."""

import base64
import json
import os
import re
import resource
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from assignment.simulator import model
from assignment.tests import chromium
from assignment.tests.forked import python
from assignment.tests.pages import ROOT, SCRIPTS

pytestmark = pytest.mark.long_file

HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n"
ADD = """
@triton.jit
def add_kernel(x_ptr, out_ptr, n, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(out_ptr + at, x + 1, mask=at < n)

x = torch.arange(200.0, device="cuda")
out = torch.empty_like(x)
"""
RIGHT = ADD + "add_kernel[(4,)](x, out, 200, TILE=64)\n"
SHORT = ADD + "add_kernel[(3,)](x, out, 200, TILE=64)\nprint(out.sum())\n"
ROWS = """
@triton.jit
def rows_kernel(x_ptr, y_ptr, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows, cols = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLS)
    at = rows[:, None] * n_cols + cols[None, :]
    x = tl.load(x_ptr + at, mask=(cols < n_cols)[None, :], other=0.0)
    tl.store(y_ptr + at, x, mask=(rows < n_rows)[:, None] & (cols < n_cols)[None, :])

rows_kernel[(2,)](torch.ones(12, 20), torch.empty(12, 20), 12, 20, ROWS=8, COLS=32)
"""
RACE = """
@triton.jit
def race_kernel(x_ptr, y_ptr):
    x = tl.load(x_ptr + tl.program_id(0))
    tl.store(y_ptr + tl.arange(0, 4), x + tl.arange(0, 4))

race_kernel[(3,)](torch.arange(3.0), torch.empty(4))
"""
BIRTH = """
@triton.jit
def exp_kernel(x_ptr):
    x = tl.load(x_ptr + tl.arange(0, 4))
    tl.store(x_ptr + tl.arange(0, 4), tl.exp(x - tl.max(x, axis=0)))

exp_kernel[(1,)](torch.full((4,), float("-inf")))
"""
DOT = """
@triton.jit
def dot_kernel(x_ptr, y_ptr):
    at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, tl.dot(x, x))

dot_kernel[(1,)](torch.eye(16) * 3, torch.empty(16, 16))
"""
MARKUP = "</script><img src=http://127.0.0.1:9/x onerror=document.title='taken'>"
HOSTILE = f"""
@triton.jit
def odd_kernel(x_ptr):  # {MARKUP}
    tl.store(x_ptr + tl.arange(0, 4), 1.0)

odd_kernel.fn.__name__ = odd_kernel.fn.__qualname__ = {MARKUP!r}
odd_kernel[(1,)](torch.empty(2))
"""


def made(folder: Path, source: str, name: str = "script.py") -> Path:
    """Return the page of a script."""
    (folder / name).write_text(HEAD + source)
    done = python("-W", "error", "-m", "assignment.simulator", "--html", "page.html", name, cwd=folder, env=ENV)
    assert "Traceback" not in done.stderr, done.stderr
    return folder / "page.html"


ENV = {**os.environ, "PYTHONPATH": f"{ROOT}", "CUDA_VISIBLE_DEVICES": ""}


class Data:
    """What is in a page."""

    def __init__(self, page: Path) -> None:
        text = re.search(r'id="data">([^<]*)<', page.read_text(encoding="utf-8"))
        assert text is not None
        self.block = zlib.decompress(base64.b64decode(text[1]))
        (length,) = struct.unpack("<I", self.block[:4])
        self.told = json.loads(self.block[4 : 4 + length])
        self._start = 4 + length

    def array(self, ref: dict) -> np.ndarray:
        return np.frombuffer(self.block, f"<{ref['type']}", ref["count"], self._start + ref["at"])

    def events(self, launch: int = 0) -> list[dict]:
        columns = {name: self.array(ref).tolist() for name, ref in self.told["launches"][launch]["events"].items()}
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def test_the_data_say_who_touched_what(tmp_path):
    data = Data(made(tmp_path, RIGHT))
    (launch,) = data.told["launches"]
    assert (data.told["version"], data.told["findings"], launch["grid"]) == (model.VERSION, [], [4, 1, 1])
    of_last = [event for event in data.events() if event["program"] == 3]
    assert [(one["kind"], one["tensor"], one["base"]) for one in of_last] == [(0, 0, 192), (1, 1, 192)]
    assert data.told["lanes"][of_last[0]["lanes"]] == {"shape": [64], "steps": [1]}
    assert data.told["masks"][of_last[0]["mask"]] == [0, 8, 56]  # 8 active ones, first none inactive
    assert (of_last[1]["low"], of_last[1]["high"]) == (193, 200)
    ((source, line),) = data.told["places"][of_last[1]["place"]]
    told = data.told["sources"][source]
    assert told["lines"][line - told["first"]].strip().startswith("tl.store(")
    x, out = launch["tensors"]
    assert data.array(x["counts"]["loaded"]).tolist() == [1] * 200
    assert data.array(out["last"]["stored"]).tolist() == [1 + i // 64 for i in range(200)]
    assert data.array(out["after"]).tolist() == [i + 1.0 for i in range(200)]
    assert (x["moved"], out["distinct"]) == ({"loaded": 800}, {"stored": 200})


FOUND = {  # by what is wrong: the finding's first words, and the kinds of the event and of the other one
    "out of bounds": (ROWS, "out of bounds: program (1, 0, 0)", 0, None),
    "a race": (RACE, "race: programs", 1, 1),
    "never stored": (SHORT, "never stored: out_ptr has 8 of 200", None, None),
    "a NaN": (BIRTH, "NaN: program (0, 0, 0) of exp_kernel makes one", 4, None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_findings_lead_to_their_place(name, tmp_path):
    source, words, kind, other = FOUND[name]
    data = Data(made(tmp_path, source))
    found, events = data.told["findings"][0], data.events()
    assert found["text"].startswith(words)
    assert found["is_error"] == (name != "a NaN")
    assert (events[found["event"]]["kind"] if found["event"] >= 0 else None) == kind
    assert (events[found["other"]]["kind"] if found["other"] >= 0 else None) == other
    if other is not None:
        assert events[found["event"]]["program"] != events[found["other"]]["program"]
    if kind is None:
        out = data.told["launches"][found["launch"]]["tensors"][found["tensor"]]
        assert np.flatnonzero(data.array(out["unwritten"])).tolist() == list(range(192, 200))


def test_values_that_do_not_fit_are_cut_alike():
    """Small tensors are whole, and the rows of large ones end where the room does"""
    small, large = np.zeros((4, 4), np.float32), np.zeros((2000, 256), np.float32)
    rows = model.kept_rows([small, large, large])
    assert rows(small) == 4
    assert 430 <= rows(large) <= 440  # half of 900,000 bytes


@pytest.mark.slow
def test_what_the_script_reads_and_moves_is_not_counted_twice(tmp_path):
    """The copies for the page are no operations of the script's"""
    (tmp_path / "script.py").write_text(HEAD + RIGHT)
    said = [
        python("-m", "assignment.simulator", "--report", *more, "script.py", cwd=tmp_path, env=ENV).stdout
        for more in ((), ("--html", "page.html"))
    ]
    assert said[1].replace("page.html: open it in a browser\n", "") == said[0]


def test_a_page_without_a_launch_is_not_written(tmp_path):
    (tmp_path / "script.py").write_text("print(1)\n")
    done = python("-m", "assignment.simulator", "--html", "page.html", "script.py", cwd=tmp_path, env=ENV)
    assert done.returncode == 2
    assert "page.html was not written: script.py launched no kernel" in done.stderr
    assert not (tmp_path / "page.html").exists()


# in a browser


@pytest.fixture
def shown(browser, tmp_path):
    """Make a page and open it; no complaint may follow."""

    def show(source, scheme="light", width=1400, name="script.py"):
        chromium.opened(browser, made(tmp_path, source, name), scheme, width)
        until_ready(browser)
        return browser

    yield show
    assert chromium.complaints(browser) == []


def until_ready(browser):
    browser.set_script_timeout(20)
    browser.execute_async_script(
        "const done = arguments[0]; (function look() {"
        "document.documentElement.dataset.ready ? done() : setTimeout(look, 20); })()"
    )


def told(browser):
    return browser.find_element("id", "told").text


def pixel(browser, tensor, cell):
    """Return the colour of a cell of a tensor, by its column and row in the picture."""
    return browser.execute_script(
        "const canvas = document.querySelectorAll('#tensors canvas')[arguments[0]], by = Number(canvas.dataset.scale);"
        "const pen = document.createElement('canvas').getContext('2d', { willReadFrequently: true });"
        "pen.drawImage(canvas, ...arguments[1].map((i) => -Math.floor((i + 0.5) * by)));"
        "return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3)",
        tensor,
        list(cell),
    )


@chromium.needed
@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), pytest.param("dark", 360, marks=pytest.mark.slow)])
def test_a_page_opens_without_a_complaint(shown, scheme, width):
    page = shown(ROWS, scheme, width)
    assert "out of bounds" in page.find_element("id", "findings").text
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    assert page.execute_script(chromium.CONTRAST) >= 4.5


@pytest.mark.slow
@chromium.needed
def test_stepping_changes_the_line_the_words_and_the_picture(shown):
    page = shown(RIGHT)
    page.find_element("css selector", "input[value=one]").click()
    now = "return document.querySelector('#source code.now').textContent"
    assert "step 1 of 2" in told(page)
    assert "loads 64 elements of x_ptr: 64 active; values from 0 to 63" in told(page)
    assert "tl.load(" in page.execute_script(now)
    before = [pixel(page, tensor, (0, 0)) for tensor in (0, 1)]
    page.find_element("id", "on").click()
    assert "step 2 of 2" in told(page)
    assert "stores 64 elements of out_ptr" in told(page)
    assert "tl.store(" in page.execute_script(now)
    after = [pixel(page, tensor, (0, 0)) for tensor in (0, 1)]
    assert [a != b for a, b in zip(before, after, strict=True)] == [True, True]
    assert not page.find_element("id", "on").is_enabled()
    page.find_element("id", "grid").send_keys("")
    page.find_element("id", "grid").send_keys("\ue014")  # the right arrow: the next program
    assert told(page).startswith("Program (1, 0, 0), step 1 of 2")


@pytest.mark.slow
@chromium.needed
def test_a_planted_fault_is_found_by_clicking(shown):
    page = shown(ROWS)
    opened = told(page)
    page.find_element("css selector", "#findings button").click()
    assert told(page) == opened
    assert told(page).startswith("Program (1, 0, 0), step 1 of 1, line 10: loads 8 × 32 elements of x_ptr")
    assert "80 active, 96 masked out, 80 outside the tensor" in told(page)
    assert "tl.load(" in page.find_element("css selector", "#source code.now").text
    fault = [193, 18, 31]  # viewer.css: --fault
    assert pixel(page, 0, (3, 12)) == fault  # below the last row
    assert pixel(page, 0, (3, 11)) != fault
    button = page.find_element("css selector", "#source code.now button")
    assert button.text == "error 1"


@chromium.needed
def test_a_race_leads_to_both_programs(shown):
    page = shown(RACE)
    (race,) = page.find_elements("css selector", "#findings li")
    assert "and 1 program more at the same line" in race.text
    assert page.find_element("css selector", ".facts dd").text == "3 programs"
    first, there = told(page), page.find_element("css selector", "#told button")  # it opens there
    assert "race: programs" in first
    there.click()
    assert told(page).split(",")[0] != first.split(",")[0]
    assert "race: programs" in page.find_element("id", "findings").text


@pytest.mark.slow
@chromium.needed
def test_an_element_names_those_who_touched_it(shown):
    page = shown(RIGHT)
    point = (
        "const canvas = document.querySelectorAll('#tensors canvas')[1], box = canvas.getBoundingClientRect();"
        "canvas.scrollIntoView(); const at = canvas.getBoundingClientRect();"
        "for (const kind of ['mousemove', 'click']) canvas.dispatchEvent(new MouseEvent(kind, "
        "{ clientX: at.left + 2, clientY: at.top + 2, bubbles: true }));"
    )
    page.execute_script(point)
    assert page.find_element("id", "tip").text.splitlines() == [
        "out_ptr[0]",
        "value 1, before the launch never written",
        "stored once, the last time by program (0, 0, 0)",
    ]
    page.find_element("css selector", "#touches button").click()
    assert told(page).startswith("Program (0, 0, 0), step 2 of 2")


@pytest.mark.slow
@chromium.needed
def test_a_product_shows_what_it_multiplies(shown):
    page = shown(DOT)
    page.find_element("css selector", "input[value=one]").click()
    page.find_element("id", "on").click()
    assert "step 2 of 3" in told(page)
    assert "multiplies 16 × 16 by 16 × 16 in tf32" in told(page)
    assert [one.text for one in page.find_elements("css selector", "#tiles figcaption")] == [
        "left 16 × 16", "right 16 × 16", "left · right 16 × 16",
    ]  # fmt: skip
    page.execute_script(
        "const canvas = document.querySelectorAll('#tiles canvas')[2], at = canvas.getBoundingClientRect();"
        "canvas.dispatchEvent(new MouseEvent('mousemove', { clientX: at.left + 1, clientY: at.top + 1 }))"
    )
    assert page.find_element("id", "tip").text == "left · right[0, 0]\nvalue 9"
    page.find_element("id", "on").click()
    assert not page.find_element("id", "tiles").is_displayed()


@pytest.mark.slow
@chromium.needed
def test_values_are_counted(shown):
    page = shown(DOT)
    page.find_element("css selector", "#by option[value=value]").click()
    said = [one.text for one in page.find_elements("css selector", ".spread figcaption")]
    assert said == ["0 to 3; 240 of 256 are zero", "0 to 9; 240 of 256 are zero"]


@chromium.needed
def test_what_a_script_wrote_is_text(browser, shown, tmp_path):
    """Names of files, kernels and tensors, and the source"""
    path = made(tmp_path, HOSTILE, "<img src=x onerror=document.title='taken'>.py")
    path.write_bytes(renamed(path, b'"name":"x_ptr"', f'"name":"{MARKUP}"'.encode()))
    chromium.opened(browser, path)
    until_ready(browser)
    browser.find_element("css selector", "#findings button").click()
    assert browser.title == "<img src=x onerror=document.title='taken'>.py in the simulator"
    assert browser.execute_script("return document.images.length") == 0
    for place in ("#launch h2", "#source", "#tensors", "#traffic", "#told"):
        assert MARKUP in browser.find_element("css selector", place).text, place
    assert chromium.complaints(browser) == []


def renamed(page: Path, old: bytes, new: bytes) -> bytes:
    """Return a page with other words in its data, which no script can choose."""
    data = Data(page)
    (length,) = struct.unpack("<I", data.block[:4])
    told = data.block[4 : 4 + length].replace(old, new)
    told += b" " * (-(len(told) + 4) % 8)
    block = zlib.compress(struct.pack("<I", len(told)) + told + data.block[4 + length :])
    return re.sub(rb'(id="data">)[^<]*', rb"\1" + base64.b64encode(block), page.read_bytes())


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_pages_of_the_handouts_scripts_are_small_and_take_little_time(name, tmp_path):
    """At most 2 MB, and twice the processor's time of the script alone"""
    (tmp_path / name).write_text(SCRIPTS[name].content)
    env = ENV | {"PYTHONPATH": f"{ROOT}/assignment/reference:{ROOT}"}
    alone, drawn = (
        min(processor_s([*more, name], tmp_path, env) for _ in range(2)) for more in ([], ["--html", "page.html"])
    )
    assert (tmp_path / "page.html").stat().st_size <= 2_000_000
    assert drawn <= 2 * alone, f"{drawn:.2f} s beside {alone:.2f} s"


def processor_s(arguments, folder, env):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "assignment.simulator", *arguments], cwd=folder, env=env, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
