"""The report as Markdown, read as GitHub reads it: with hostile texts in every place that a submission can fill."""

import math

import pytest
from markdown_it import MarkdownIt

from assignment.commands import markdown
from assignment.tests.test_report import SESSION, TEXTS, report_of
from assignment.verdict import reporting
from assignment.verdict.checks import Check, declared, without_practice
from assignment.verdict.finding import OTHER, Finding
from assignment.verdict.score import Case, CheckResult

MARK = "PWNED"
SUMMARY_OF_A_STEP = 1 << 20  # bytes that GitHub takes
HOSTILE = TEXTS | {
    "the end of a block": f"```\n# {MARK}\n<script>{MARK}</script>\n```text",
    "the end of a longer block": f"{'`' * 40}\n\n# {MARK}\n{'~' * 40}\n![{MARK}](http://evil)",
    "the end of a block on a line of its own": f"\n```\n\n| {MARK} |\n|---|\n| 1 |\n",
    "HTML": f"</details></code></pre><img src=x onerror=alert('{MARK}')><!-- ",
    "a link": f"[{MARK}](javascript:alert(1)) <http://{MARK}.evil> http://{MARK}.evil www.{MARK}.evil",
    "mentions": f"@{MARK} @org/{MARK} #{1} GH-1 {'a' * 40}",
    "a cell": f"| {MARK} | x |\n|{MARK}",
    "code in a line": f"` {MARK} `` {MARK} ``` {MARK}",
    "mathematics": f"$`{MARK}`$ $$ {MARK} $$",
}
DECORATION = {"heading", "table", "thead", "tbody", "tr", "th", "td", "paragraph", "bullet_list", "list_item"}
PLAIN = {"text", "softbreak", "code_inline", "code_block", "fence", "inline", "hardbreak"}


def tokens(page):
    reader = MarkdownIt("commonmark", {"html": True}).enable("table")
    for token in reader.parse(page):
        yield token
        yield from token.children or ()


@pytest.mark.parametrize("said", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_text_is_nothing_but_code(said):
    """No markup, link, image, mention or heading of a submission's, in a message, a hint, a note or an import error"""
    data = report_of(said) | {"import_error": said, "notes_to_staff": [said], "device": f"cuda: {said}"}
    for entry in reporting.entries_of(data):
        entry |= {"hint": said, "rerun": f"uv run grade.py '{said}'", "notes": [said], "measured": [said]}
    page = markdown.page(data)
    assert all(char.isprintable() or char == "\n" for char in page)
    found = list(tokens(page))
    kinds = {token.type.removesuffix("_open").removesuffix("_close") for token in found}
    assert kinds <= DECORATION | PLAIN | {"html_inline"}
    assert {token.content for token in found if token.type == "html_inline"} <= {"<br>"}
    prose = "\n".join(token.content for token in found if token.type == "text")
    assert MARK not in prose
    assert "80/80" not in prose
    assert "evil" not in prose
    titles = [found[at + 1].content for at, token in enumerate(found) if token.type == "heading_open"]
    assert len(titles) == len(set(titles))
    assert sum("Score" in title for title in titles) == 1


def test_it_tells_what_the_terminal_tells():
    data = report_of("y: 3 of 4 elements wrong\n  at cs336_kernels/rmsnorm.py:3")
    data["problems"][1]["checks"][1]["hint"] = "the sum is over the wrong axis"
    page = markdown.page(data)
    assert page.startswith("# Score: 2/6 gradable here, 94 need a GPU\n")
    for said in ("elements wrong\n  at cs336_kernels/rmsnorm.py:3\n```", "claim 1", "Likely cause:", "Again:"):
        assert said in page
    assert "| FAIL | 0/1 | 0 of 1 | claim 1 |" in page
    assert "| `rmsnorm` | 2/20 |" in page


@pytest.mark.parametrize("char", ["\U0001f600", "`", "x"])
def test_it_fits_a_summary(char):
    """Every check of the 100 points with as long a message as there can be"""
    cases = tuple(Case(f"{i}", "FAIL", f"{i}" + char * 100_000, math.nan) for i in range(2))
    results = [
        CheckResult(Check(c.name, c.problem, c.claim, c.points), tuple(cases), 2) for c in without_practice(declared())
    ]
    data = reporting.report(SESSION, results, [])
    for number, entry in enumerate(reporting.entries_of(data)):  # each a cause of its own
        entry["message"] = "\n".join(f"{number} {char * 170}" for _ in range(40))
        entry["hint"] = f"{number} {char * 900}"
        entry["findings"] = [Finding(OTHER, str(number)).as_json("0")]
    page = markdown.page(data)
    assert len(page.encode()) < SUMMARY_OF_A_STEP
    assert ("are left out here" in page) == (char == "\U0001f600")
