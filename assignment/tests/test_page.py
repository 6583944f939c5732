"""The report as a page: what it shows, and that what a submission wrote stays text."""

import dataclasses
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from assignment.commands import html_page, modes, progress
from assignment.commands.cli import parse_arguments
from assignment.commands.excerpts import excerpts
from assignment.submission import UnusableSubmission
from assignment.tests import chromium, class_made
from assignment.tests.class_made import FLASH, MARKUP, SPEED, TIMING, VALUES
from assignment.verdict import checks, reporting, score
from assignment.verdict.case import Case
from assignment.verdict.finding import Explanation, Finding

MAP: Any = {
    "name": "o[1, 0]", "shape": [77, 64], "tile": [16, 32], "cells": ["..", "..", "#.", "N.", "++"],
    "heights": [16, 16, 16, 16, 13], "widths": [32, 32], "signs": ["..", "..", "#.", "N.", "++"],
    "over": [[0.2, 0.1], [0.3, 0.9], [5.0, 0.4], [1e9, 0.4], [300.0, 2e4]],
}  # fmt: skip
HINT = Explanation("no-mask", "Your o lacks the mask", "handout/flash_attention.md#forward-algorithm")
WRONG = Case("77 queries", score.FAIL, f"{MARKUP}\no: 3 of 4 elements wrong", hints=(HINT,), map=MAP)
OUTSIDE = f"out of bounds\n  at {class_made.FILE}:12 in f: line_12 = 12"
IS_OUTSIDE = Finding("out of bounds", OUTSIDE, class_made.places_in(OUTSIDE))
FAULT = Case("", score.FAIL, f"f(x):\n{OUTSIDE}", finding=IS_OUTSIDE)


def told(cases=None, scores=(80.0,), is_watched=False, **more):
    of = class_made.submission()
    return html_page.of_report(class_made.report(of, cases, **more), of.sources, scores, is_watched).decode()


class Elements(HTMLParser):
    """The elements of a page, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


def elements(text, tag):
    return [attributes for name, attributes in Elements(text).found if name == tag]


def test_what_a_submission_wrote_is_text():
    text = told({FLASH: WRONG}, import_error=MARKUP)
    assert text.count("&lt;script&gt;document.title") == 2
    assert len(elements(text, "script")) == 1  # ours
    assert elements(text, "img") == []
    assert "http://127.0.0.1" not in {value for _, found in Elements(text).found for value in found.values()}


def test_a_map_has_a_cell_for_each_part_that_says_by_how_much():
    text = told({FLASH: WRONG})
    says = re.findall(r"<title>(rows[^<]*)</title>", text)
    assert len(says) == 10
    assert "rows 32–47, columns 0–31: all wrong, the largest error is 5 times its bound" in says
    assert "rows 48–63, columns 0–31: NaN" in says
    assert "rows 64–76, columns 32–63: partly wrong, the largest error is 2e+04 times its bound" in says
    assert [f"level-{i}" in text.partition("</style>")[2] for i in range(len(html_page.LEVELS))] == [True] * 5
    assert [cell.level for cell in html_page.map_of({**MAP, "case": ""}).cells] == [0, 0, 0, 0, 1, 0, 4, 0, 2, 3]
    assert '<svg class="map"' not in told({FLASH: dataclasses.replace(WRONG, map=None)})


def test_a_wide_map_fits():
    wide = {**MAP, "shape": [1, 4096], "heights": [1], "widths": [64] * 64, "signs": ["#" + "." * 63]}
    drawn = html_page.map_of({**wide, "over": [[9.0] + [0.0] * 63], "case": "wide"})
    assert (round(drawn.width, 6), len(drawn.cells)) == (html_page.WIDEST, 64)
    assert drawn.cells[0].says == "columns 0–63: all wrong, the largest error is 9 times its bound"


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ([12, 14], [((12, 14), 8, 18)]),
        ([14, 12, 14], [((12, 14), 8, 18)]),
        ([12, 21], [((12, 21), 8, 25)]),
        ([12, 22], [((12,), 8, 16), ((22,), 18, 26)]),
        ([12, 28, 20], [((12, 20, 28), 8, 32)]),
    ],
)
def test_lines_of_one_place_are_in_one_excerpt(lines, shown):
    files = {"f.py": "\n".join(f"line_{i} = {i}" for i in range(1, 41))}
    found = excerpts([{"path": "f.py", "line": line} for line in lines], files, set())
    assert [(one.named, one.lines[0][0], one.lines[-1][0]) for one in found] == shown


def test_one_row_is_painted_as_one_row_to_scale():
    signs, over = [".", "#", "."], [[0.0], [9.0], [0.0]]
    one = {**MAP, "shape": [128, 64], "heights": [40, 1, 87], "widths": [64], "signs": signs, "over": over}
    above, row, below = html_page.map_of({**one, "case": ""}).cells
    assert row.says == "row 40, columns 0–63: all wrong, the largest error is 9 times its bound"
    assert row.height < above.height / 8 < below.height / 8
    assert (row.y, below.y) == (above.height, above.height + row.height)


def test_the_lines_that_a_message_names_are_shown_with_those_around():
    text = told({VALUES: FAULT})
    assert re.search(r"<mark>\s+12 &gt; line_12 = 12</mark>", text)
    assert "line_16 = 16" in text
    assert "line_17 = 17" not in text


def test_hints_link_to_the_handout():
    links = [found["href"] for found in elements(told({FLASH: WRONG}), "a")]
    (link,) = [link for link in links if "handout" in link]
    assert link.startswith("file://")
    assert link.endswith("/handout/flash_attention.md#forward-algorithm")
    assert str(html_page.linked("a <b> (handout.md)", ["handout.md"])).startswith("a &lt;b&gt; (<a href=")


def test_all_that_is_right_needs_no_mending():
    text = told()
    assert "to mend" not in text
    assert "80/80 gradable here" in text
    assert "1 thing" not in told({VALUES: FAULT})
    assert "One thing to mend" in told({VALUES: FAULT})


def test_the_scores_so_far_are_a_line():
    assert "polyline points" not in told(scores=(80.0,))
    assert 'points="6,30.0 18,0.0"' in told(scores=(40.0, 80.0))


MOVED: Any = {"function": "rmsnorm_forward", "tensor": "x", "verb": "read", "bytes": 300, "least": 100}
KERNEL: Any = {
    "kernel": "row_kernel", "constants": "ROWS=4", "gpu": "H100", "fits": False, "error": "", "shared": 327_680,
    "shared_limit": 232_448, "registers": 255, "spills": 8, "products": ["wgmma"],
}  # fmt: skip


def text_of(page):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page.replace("<wbr>", "").partition("</style>")[2]))


def test_bytes_stand_beside_the_least():
    """Of a check's cases, the one that moves most"""
    cases = [Case(name, score.OK, moved=({**MOVED, "bytes": moved},)) for name, moved in (("a", 100), ("b", 300))]
    (entry,) = [reporting.check_entry(score.CheckResult(class_made.DECLARED[0], tuple(cases), 2), "")]
    assert entry["moved"] == [{**MOVED, "case": "b"}]
    assert "rmsnorm_forward x read 300 100 3 b" in text_of(told({VALUES: cases[1]}))
    assert 'id="cost"' not in told()


def test_what_ranks_did_is_shown_step_by_step():
    """Of a check's cases, the first on several ranks"""
    cases = [Case("a", score.OK)] + [Case(name, score.OK, lanes=(f"rank 0 moves ·█ {name}",)) for name in "bc"]
    (entry,) = [reporting.check_entry(score.CheckResult(class_made.DECLARED[0], tuple(cases), 3), "")]
    assert entry["lanes"] == ["rank 0 moves ·█ b"]
    assert "rank 0 moves ·█ b" in told({VALUES: cases[1]})
    assert 'id="ranks"' not in told()


def test_kernels_are_shown_on_each_gpu():
    refused: Any = {**KERNEL, "gpu": "B200", "error": f"out of registers {MARKUP}"}
    text = told({VALUES: Case("a", score.OK, compiled=(KERNEL, refused))})
    assert "row_kernel ROWS=4; a H100 NO 320 / 227 255 8 wgmma" in text_of(text)
    assert "B200 does not compile: out of registers &lt;script&gt;" in text_of(text)
    assert 'id="compiled"' not in told()


def test_the_roofline_has_what_was_timed():
    """Without products at one operation a byte: 2e8 bytes in 140 µs of the 2 TB/s that this GPU moves"""
    fast = Case("large", score.OK, measured="m", timing=TIMING)
    text = told({SPEED: fast}, device="cuda: GPU")
    (dot,) = elements(text, "circle")
    (roof,) = [found["points"] for found in elements(text, "polyline") if found["points"].count(",") == 3]
    x, y = float(dot["cx"]), float(dot["cy"])
    (x0, y0), (x1, y1), _ = (map(float, point.split(",")) for point in roof.split())
    assert y > y0 + (y1 - y0) * (x - x0) / (x1 - x0)  # under the line
    assert x == pytest.approx(83.9, abs=0.1)  # one of 0.2 to 2000 operations a byte, on 480 units
    assert "0.9 (0.8–1) 0.75" in text_of(text)
    unknown: Any = {**TIMING, "gpu_bytes_per_s": 0}
    assert "<circle" not in told({SPEED: dataclasses.replace(fast, timing=unknown)})


def test_it_loads_itself_again_where_it_is_watched():
    assert 'http-equiv="refresh"' in told(is_watched=True)
    assert 'http-equiv="refresh"' not in told()


def test_scores_are_kept_but_not_what_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    report = class_made.report(class_made.submission())
    for _ in range(progress.MAX_KEPT + 5):
        progress.lines(tmp_path, report)
    assert progress.scores(tmp_path, report) == [80.0] * (progress.MAX_KEPT + 1)
    broken: Any = {"best": 3, "good": {}, "scores": ["x"]}
    progress.cache.remember(progress.key(tmp_path, report), broken, progress.KIND)
    assert progress.scores(tmp_path, report) == [80.0]


@pytest.mark.parametrize(("asked", "fits"), [(["--watch"], True), (["--next"], False), (["--watch", "--next"], False)])
def test_who_watches_may_have_a_page(tmp_path, asked, fits):
    options = parse_arguments([str(tmp_path), "--html", str(tmp_path / "page.html"), *asked])
    if fits:
        modes.choose(options, checks.declared())
        return
    with pytest.raises(UnusableSubmission, match="--html"):
        modes.choose(options, checks.declared())


@chromium.needed
@pytest.mark.parametrize("width", [360, 1400])
def test_a_browser_shows_it(browser, tmp_path, width):
    (tmp_path / "page.html").write_text(told({FLASH: WRONG, VALUES: FAULT}, scores=(20.0, 75.5)), encoding="utf-8")
    chromium.opened(browser, tmp_path / "page.html", width=width)
    assert chromium.complaints(browser) == []
    assert "gradable here" in browser.title
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script("return document.querySelectorAll('svg.map rect').length") == 20
