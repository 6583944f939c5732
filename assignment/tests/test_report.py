"""What the report looks like, with hostile texts in every place that a submission can fill."""

import dataclasses
import io
import json
import math
import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from rich.console import Console

from assignment import text
from assignment.commands import collector, files, report
from assignment.commands.settings import Settings
from assignment.protocol.said import SourceLine
from assignment.tests import class_made
from assignment.tests.specification import explanations
from assignment.verdict import causes, finding, reporting
from assignment.verdict.checks import Check, declared, without_practice
from assignment.verdict.finding import Explanation, Finding
from assignment.verdict.reporting import Circumstances
from assignment.verdict.score import Case, CheckResult
from tests import operators

HOSTILE = "\x1b[2J[bold]80/80[/bold]\0 </failure> " + "x" * 10_000 + "\n" * 50 + "end"
SESSION = Circumstances("uv run grade.py", 1, "cpu-simulated", "none", "00")
FORGED = "Score: 80/80 gradable here, 20 need a GPU"
TEXTS = {
    "ANSI": f"\x1b[2J\x1b[1;1H{FORGED}\x1b[8m",
    "a link": f"\x1b]8;;http://evil\x1b\\{FORGED}\x1b]8;;\x07",
    "C1 controls": f"\x9b2J{FORGED}\x9d0;title\x9c",
    "control characters": "".join(map(chr, range(32))) + "\x7f" + "".join(map(chr, range(0x80, 0xA0))),
    "carriage return": f"line\r{FORGED}\b\b\b",
    "vertical moves": f"\v\v\f{FORGED}\x85{FORGED}\u2028{FORGED}\u2029",
    "bidi": f"\u202e{FORGED[::-1]}\u202c\u2066\u200f",
    "invisible": "\u200b\ufeff\u00ad\u2060" * 20 + FORGED,
    "surrogates": "\ud800 \udfff \udcff" + FORGED,
    "no characters": "\ufffe\uffff\U0001ffff\x00\ue000",
    "markup": "[bold red]80/80[/] [link=x]y[/link] ]]> </failure></testsuite> <script>alert(1)</script> **b** | `c`",
    "padding to the next row": " " * 54 + FORGED + " " * 40 + FORGED,
    "wide padding": "\u3000" * 27 + "全" * 27 + FORGED,
    "tabs": "\t" * 500 + FORGED,
    "many lines": "\n".join([FORGED] * 10_000),
    "a long word": "x" * 1_000_000,
    "wide": "\U0001f600" * 100_000,
    "combining": "a" + "\u0301" * 5000,
    "nothing": "",
    "a line feed": "\n",
    "spaces": " \n \t\n",
    "workflow commands": "::error::x\n::add-mask::8\n::stop-commands::x\n##[error]y",
}
hostile = pytest.mark.parametrize("said", TEXTS.values(), ids=TEXTS.keys())


def report_of(said):
    """A report in which a text stands wherever a submission's can, in a check of every status."""
    statuses = ("ok", "FAIL", "todo", "crashed", "needs review", "timeout")
    checks = [Check(f"test_rmsnorm.py::test_{i}", "rmsnorm", f"claim {i}", 1.0) for i in range(len(statuses))]
    results = [
        CheckResult(check, (Case("case", status, said, math.nan, True, (said,)),), 1)
        for check, status in zip(checks, statuses, strict=True)
    ]
    return reporting.report(SESSION, results, [])


def printed(data, **terminal):
    console = Console(highlight=False, soft_wrap=True, file=io.StringIO(), color_system=None, **terminal)
    report.print_failures(console, reporting.entries_of(data), command="uv run grade.py")
    report.print_notes(console, reporting.entries_of(data))
    report.print_summary(console, data, [], report.next_step(data))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def columns(row):
    return sum(2 if unicodedata.east_asian_width(char) in "WFA" else 1 for char in row)


@hostile
@pytest.mark.parametrize("terminal", [{"force_terminal": True, "width": 60}, {"width": 60}], ids=["terminal", "pipe"])
def test_a_text_writes_no_line_of_the_report(said, terminal):
    """What a submission says stands behind a gutter, on each row of the screen, and moves no cursor"""
    out = printed(report_of(said), **terminal)
    rows = out.split("\n")
    assert all(char.isprintable() or char == "\n" for char in out)
    assert rows[-2:] == ["Score: 2/6 gradable here, 94 need a GPU", ""]
    assert sum(row.lstrip().startswith("Score") for row in rows) == 1
    if terminal.get("force_terminal"):
        assert max(columns(row) for row in rows if not row.startswith(("  again: ", "  all of it"))) <= 60
    assert len(rows) < 150


@hostile
def test_the_files_are_legal_whatever_is_said(said):
    data = report_of(said)
    as_json = files.as_json(data)
    assert json.loads(as_json, parse_constant=pytest.fail) == data
    assert re.fullmatch(r"[^\x00-\x09\x0b-\x1f\x7f-\x9f]*", as_json.decode())
    root = ElementTree.fromstring(files.junit(data))
    assert {element.tag for element in root.iter()} <= {"testsuites", "testsuite", "testcase", "failure", "skipped"}
    assert len(root.findall(".//testcase")) == 13


@pytest.mark.parametrize("char", ["\U0001f600", "\x1b", "\ud800", '"', "<", "x"])
def test_the_files_stay_small(char):
    """Every check of the grade with as long a message and as many notes as there can be: at most 3 MB a file"""
    cases = tuple(
        Case(f"{i}", "FAIL", char * 100_000, notes=tuple(f"{i}{j}" + char * 9000 for j in range(9))) for i in range(2)
    )
    results = [CheckResult(check, cases, 2) for check in without_practice(declared())]
    data = reporting.report(SESSION, results, [])
    assert len(files.as_json(data)) < 3_000_000
    assert len(files.junit(data)) < 3_000_000


def test_what_is_said_stays_readable():
    """Lines, indentation, mathematics and other scripts arrive as they are"""
    said = "y: 3 of 4 elements wrong ± 2·10⁻³\n\tдва 二\n  at cs336_kernels/rmsnorm.py:3"
    assert text.clean(said) == said.replace("\t", "    ")
    assert "    | [case] y: 3 of 4 elements wrong ± 2·10⁻³\n    |     два 二\n" in printed(report_of(said))


def test_an_import_error_is_told_once():
    """Above; the checks that it costs are one cause, whether a case is named first or not"""
    said = "SyntaxError: invalid syntax\n  at cs336_kernels/rmsnorm.py:3: def f(:"
    broken = f"cs336_kernels/rmsnorm.py cannot be imported: {said}"
    checks = entries(
        ("test_a", "f", finding.NOT_IMPORTED, broken, ""), ("test_b", "g", finding.NOT_IMPORTED, broken, "")
    )
    for check in checks:
        check["findings"][0] |= {"file": "cs336_kernels/rmsnorm.py", "why": said}
    assert len(causes.grouped(checks)) == 1
    page = io.StringIO()
    report.print_failures(Console(file=page, width=100), [{**check, "rerun": ""} for check in checks], said)
    assert "SyntaxError" not in page.getvalue()
    assert "cs336_kernels/rmsnorm.py cannot be imported: see above" in page.getvalue()


def test_of_many_causes_one_is_told_in_brief_without_its_call():
    says: Any = {"says": "y: 3 of 4 elements wrong\n  row 1\n  row 2"}
    check: Any = {"message": "f(float32 (3,)):\n  note: a remark\ny: 3 of 4 elements wrong", "findings": [says]}
    assert report.brief(check) == "y: 3 of 4 elements wrong\n  row 1"
    assert report.brief({**check, "message": "not run", "findings": []}) == "not run"


def test_what_right_code_prints_is_counted():
    cases = (Case("a", "ok", printed=("x = 1", "x = 2"), n_printed=2), Case("b", "ok", printed=("y",), n_printed=1))
    check = Check("test_rmsnorm.py::test_eps", "rmsnorm", "rmsnorm_forward adds eps", 1.0)
    page = io.StringIO()
    entry = reporting.check_entry(CheckResult(check, cases, 2), "")
    report.print_printed(Console(file=page, width=100, highlight=False), [entry, {**entry, "printed": 0}])
    assert page.getvalue() == "\n3 lines printed: --explain test_rmsnorm.py::test_eps shows them\n"


def test_what_is_cut_says_so():
    assert text.clean("x" * 5_000).endswith("x …")
    assert text.clean("x" * 150, max_line=100) == "x" * 100 + " …"
    assert text.clean("off by 4.18e+04 times", max_line=11) == "off by …"


CODE = "tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=tile_mask)"
HINT = f"{'Your y is 1.0625 times what is expected, which is 17/16. ' * 3}({'a/' * 20}rmsnorm.md)"


@pytest.mark.parametrize(
    "said", ["±1.234567e-05, 12345678 1 22 " * 9, f"out of bounds\n  at a/b.py:247 in kernel: {CODE}"]
)
@pytest.mark.parametrize("width", [74, 80, 93])
def test_a_narrow_terminal_breaks_no_number_and_no_line_of_code(said, width):
    case = Case("case", "FAIL", said, hints=(Explanation("a", HINT),))
    check = Check("test_rmsnorm.py::test_a", "rmsnorm", "claim", 1.0)
    data = reporting.report(SESSION, [CheckResult(check, (case,), 1)], [])
    rows = printed(data, width=width, force_terminal=True).splitlines()
    told = [row.removeprefix(report.GUTTER).removeprefix(report.LIKELY) for row in rows]
    assert set(f"{report.short(f'[case] {said}')} {HINT}".split()) <= set(" ".join(told).split())
    assert CODE not in said or CODE in [row.strip() for row in told]
    assert max(map(columns, rows)) <= max(width, report.WIDTH)


@pytest.fixture
def data():
    checks = [Check(f"test_rmsnorm.py::test_{i}", "rmsnorm", f"claim {i}", 1.0) for i in range(4)]
    statuses = ("ok", "FAIL", "todo", "crashed")
    results = [
        CheckResult(check, (Case("case", status, HOSTILE),), 1) for check, status in zip(checks, statuses, strict=True)
    ]
    return reporting.report(SESSION, results, [])


def test_a_message_cannot_write_on_the_screen(data):
    out = printed(data)
    assert "\x1b[2J" not in out
    assert "[bold]80/80[/bold]" in out
    assert max(map(len, out.splitlines())) < 300
    assert len(out.splitlines()) < 60


def test_the_last_line_is_the_total(data):
    assert "Score: 1/4 gradable here, 96 need a GPU" in printed(data).splitlines()[-1]


def test_only_failures_are_told_at_length(data):
    out = printed(data)
    assert "test_1: FAIL" in out
    assert "test_0" not in out
    assert "test_2:" not in out


def test_the_next_step_is_the_first_stub():
    assert "Next: cs336_kernels/rmsnorm.py: handout/x.md\nScore:" in printed(
        report_of("Traceback\ncs336_kernels/rmsnorm.py: handout/x.md")
    )


@pytest.mark.parametrize(
    ("finished", "words"),
    [
        (["weighted_sum"], "rmsnorm, handout/rmsnorm.md; practice: bias_gelu, handout/bias_gelu.md"),
        (
            ["weighted_sum", "rmsnorm"],
            "flash_forward_pytorch, handout/flash_attention.md#forward-in-pytorch"
            "; practice: layernorm, handout/layernorm.md",
        ),
        (["flash_backward_triton"], "matmul, handout/matmul.md; practice: custom_op, handout/custom_op.md"),
    ],
)
def test_after_finished_problems_comes_the_next(finished, words):
    problems = [{"name": name, "score": 1, "max_score": 1, "checks": []} for name in finished]
    assert report.next_step({"problems": problems, "practice": []}) == words
    assert report.next_step({"problems": [*problems, {**problems[0], "score": 0.5}], "practice": []}) == ""


@pytest.mark.parametrize(
    ("finished", "words"),
    [
        ("vector_add", "weighted_sum, handout/weighted_sum.md"),
        ("layernorm", "dropout_add_layernorm, handout/dropout_add_layernorm.md"),
        ("softmax", ""),
    ],
)
def test_after_practice_comes_what_follows_it(finished, words):
    practice = [{"name": finished, "score": 1, "max_score": 1, "checks": []}]
    assert report.next_step({"problems": [], "practice": practice}) == words


def test_practice_follows_problems_that_there_are():
    followed = {one.follows for one in operators.operators()}
    assert followed - {None, ""} <= set(operators.problems())


def test_junit_is_well_formed_and_counts_checks(data):
    root = ElementTree.fromstring(files.junit(data))
    suite = next(suite for suite in root if suite.get("name") == "rmsnorm")
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", "3", "1")
    assert sum(case.find("failure") is not None for case in suite) == 3


def write(tmp_path, data, json_name="report.json", junit_name="report.xml"):
    return files.write(Settings(json=tmp_path / json_name, junit=tmp_path / junit_name), data)


def test_both_files_are_written_and_nothing_else(tmp_path, data):
    (tmp_path / "report.json").write_text("an older one")
    assert write(tmp_path, data) == []
    assert json.loads((tmp_path / "report.json").read_text()) == data
    assert {path.name for path in tmp_path.iterdir()} == {"report.json", "report.xml"}


@pytest.mark.parametrize("name", ["gone/report.json", "folder", "blocked", "x" * 255, "/dev/full"])
def test_a_file_that_cannot_be_written_does_not_cost_the_other(tmp_path, data, name):
    """No such folder, a folder of that name, a part that is in the way, too long a name, a full disk"""
    (tmp_path / "folder").mkdir()
    (tmp_path / "blocked.part").mkdir()
    (reason,) = write(tmp_path, data, json_name=name)
    assert "was not written" in reason
    assert ElementTree.parse(tmp_path / "report.xml").getroot().tag == "testsuites"
    assert not [path for path in tmp_path.iterdir() if path.is_file() and path.name != "report.xml"]


def test_what_is_no_file_is_not_replaced(tmp_path, data):
    """--json /dev/null, as root"""
    (tmp_path / "null").symlink_to("/dev/null")
    assert write(tmp_path, data, json_name="null") == []
    assert (tmp_path / "null").is_symlink()


def test_one_cause_is_told_once():
    """A line that fails several checks, with other values in each; another line, or no line, is another cause"""
    at, other = (class_made.places_in(f"computed at cs336_kernels/rmsnorm.py:{line} in f") for line in (3, 4))
    first, again = (Finding(finding.NOT_THE_WORK, f"{i} of 9 elements", at) for i in range(2))
    assert first.cause == again.cause
    assert first.cause != Finding(finding.RAISED, "", at).cause
    assert first.cause != dataclasses.replace(first, places=other).cause
    assert Finding(finding.OTHER, "row 1 is wrong").cause != Finding(finding.OTHER, "row 2 is wrong").cause


def test_a_finding_is_read_as_the_report_has_it():
    seen = Finding(
        finding.WRONG_VALUES,
        "y: 1 of 9",
        class_made.places_in("at x.py:3 in f: y = x"),
        "",
        "y",
        {"wrong": 1, "nan": 0, "elements": 9},
    )
    hint = Explanation("factor of y", "y is twice it.", "handout/faq.md", "Why?", (2.0,))
    data = json.loads(json.dumps(seen.as_json("d = 8", (hint,))))
    assert finding.finding(data) == seen
    assert causes.misconceptions({"findings": [data, data]}) == [hint]
    assert data["case"] == "d = 8"


def test_lines_that_a_process_makes_up_take_little_room():
    long = tuple(SourceLine("x" * 9000, "y" * 9000, line) for line in range(16))
    case = Case("a", "FAIL", finding=Finding("race", "race", long))
    (check,) = [check for check in without_practice(declared()) if check.name.endswith("::test_eps")][:1]
    (found,) = reporting.findings_of(CheckResult(check, (case,), 1))
    assert len(found["places"]) == len(found["lines"]) == reporting.MAX_PLACES
    assert len(str(found)) < 3 * reporting.MAX_PLACES * reporting.MAX_PLACE


def test_a_finding_of_an_older_grader_has_a_cause():
    """Whose report has no lines"""
    data: Any = Finding("race", "race: y[3]", class_made.places_in("at x.py:3 in f")).as_json("")
    older = {name: value for name, value in data.items() if name != "lines"}
    assert causes.cause({"findings": [older], "message": ""}) == causes.cause(
        {"findings": [older | {"says": "race: y[4]"}], "message": ""}
    )
    assert causes.lines({"findings": [older]}) == []


FIRST, SCALE, TAIL = "test_triton_values", "the scale is missing", "the last tile is left out"
WRONG = finding.WRONG_VALUES


def entries(*checks):
    """Return checks of a report that failed: of each its name, function, kind, what is wrong, and the likely cause."""
    found = []
    for name, function, kind, said, hint in checks:
        hints = (Explanation(hint, hint),) if hint else ()
        one = Finding(kind, said, class_made.places_in(said)).as_json("a", hints)
        found.append(
            {"name": name, "function": function, "claim": f"{function} is right", "status": "FAIL",
             "message": f"f(3):\n{said}", "hint": hint, "findings": [one]}
        )  # fmt: skip
    return found


@pytest.mark.parametrize(
    ("checks", "groups"),
    [
        pytest.param(
            [(FIRST, "f", WRONG, "1", SCALE), ("ragged", "f", WRONG, "2", SCALE), ("g", "g", WRONG, "3", SCALE)],
            [[FIRST, "ragged", "g"]],
            id="one likely cause, in whatever function",
        ),
        pytest.param(
            [(FIRST, "f", WRONG, "1", SCALE), ("traffic", "f", WRONG, "costs are counted …", "")],
            [[FIRST, "traffic"]],
            id="wrong values of a function whose first check is wrong",
        ),
        pytest.param(
            [(FIRST, "f", WRONG, "1", ""), ("ragged", "f", WRONG, "2", TAIL), ("strides", "f", WRONG, "3", "")],
            [[FIRST, "strides"], ["ragged"]],
            id="another likely cause",
        ),
        pytest.param(
            [("ragged", "f", WRONG, "1", TAIL), ("mistakes", "f", finding.NO_ERROR, "it returned a result", "")],
            [["ragged"], ["mistakes"]],
            id="no values at all",
        ),
        pytest.param(
            [(FIRST, "f", finding.RAISED, "it raised X\n  at a.py:3", ""), ("ragged", "f", WRONG, "1", "")],
            [[FIRST], ["ragged"]],
            id="the first check raises",
        ),
        pytest.param(
            [
                ("a", "f", finding.RAISED, "it raised X: 1\n  at a.py:3", ""),
                ("b", "f", finding.RAISED, "it raised X: 2\n  at a.py:3", ""),
            ],
            [["a", "b"]],
            id="one line",
        ),
    ],
)
def test_checks_with_one_cause_are_together(checks, groups):
    assert [[check["name"] for check in group] for group in causes.grouped(entries(*checks))] == groups


def test_a_first_check_that_passes_excuses_nothing():
    """Wrong values of other checks are told each by itself"""
    checks = entries((FIRST, "f", WRONG, "", ""), ("ragged", "f", WRONG, "1", ""), ("strides", "f", WRONG, "2", ""))
    checks[0]["status"] = "ok"
    assert [len(group) for group in causes.grouped(checks)] == [1, 1]


def test_checks_of_one_cause_are_named_where_causes_are_many():
    """In brief, too: who mends it knows what to run again"""
    checks = [(f"t.py::test_{i}", f"f{i}", finding.RAISED, f"it raised X\n  at a.py:{i // 2}", "") for i in range(20)]
    page = io.StringIO()
    report.print_failures(Console(file=page, width=100), [{**check, "rerun": ""} for check in entries(*checks)])
    assert all(f"test_{i}" in page.getvalue() for i in range(20))
    assert page.getvalue().count("1 check more, as it seems for the same cause:") == 10


def test_a_failure_fits_a_screen():
    """25 lines of 100 columns, the longest message, hint and name included"""
    lines = [f"flash_forward_triton({'float32 (3, 200, 300), ' * 6}is_causal=True):", *["  " + "x" * 90] * 20]
    hint = max(explanations(), key=lambda hint: len(str(hint)))
    check = Check("test_flash_forward.py::test_triton_properties", "flash_forward_triton", "c" * 95, 1.0)
    case = Case("one token past a tile-causal", "FAIL", "\n".join(lines), hints=(hint,))
    session = Circumstances("uv run grade.py --seed 123456789", 1, "cpu-simulated", "none", "00")
    session = dataclasses.replace(session, debug="uv run pytest --inline --pdb --seed 123456789")
    data = reporting.report(session, [CheckResult(check, (case,), 1)], [])
    page = io.StringIO()
    report.print_failures(Console(highlight=False, soft_wrap=True, file=page, width=100), reporting.entries_of(data))
    shown = [line for line in page.getvalue().splitlines() if line]
    assert any(line.startswith("  likely cause: ") for line in shown)
    assert sum(max(1, -(-len(line) // 100)) for line in shown) <= 25


@pytest.mark.parametrize(
    ("statuses", "shown"),
    [
        (("todo", "todo", "todo"), ["  todo               0/3  rmsnorm: 3 checks"]),
        (
            ("todo", "ok", "todo"),
            ["  ok                 1/1  b", "  todo               0/1  a", "  todo               0/1  c"],
        ),
        (("todo", "todo"), ["  todo               0/2  rmsnorm: 2 checks"]),  # the third got no verdict
    ],
    ids=["all", "some", "interrupted"],
)
def test_a_problem_that_is_all_to_do_is_one_line(statuses, shown):
    checks = [Check(f"test_rmsnorm.py::test_{name}", "rmsnorm", name, 1.0) for name in "abc"]
    console = Console(file=io.StringIO(), width=100, color_system=None)
    heard = collector.Judge(checks, console, "")
    for check, status in zip(checks, statuses, strict=False):
        heard.hear(reporting.check_entry(CheckResult(check, (Case("", status),), 1), ""))
    heard.pytest_unconfigure()
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == shown


def test_a_verdict_is_one_line_of_a_terminal():
    """The end of a long claim gives way; the count of cases stays"""
    for check in declared():
        entry: Any = {
            "status": "grader error",
            "score": 0,
            "max_score": 0.25,
            "claim": check.claim,
            "cases": 28,
            "passed": 7,
        }
        line = report.verdict_line(entry).plain
        assert len(line) <= report.WIDTH, check.name
        assert line.endswith("  (7 of 28 passed)")
        assert check.claim.startswith(line[report.CLAIM_AT :].partition("  (")[0].removesuffix(" …"))


def test_ten_checks_that_fail_take_a_hundred_lines():
    """Each for a cause of its own, with the longest message and hint; the commands are told once"""
    message = "\n".join(["f(float32 (3,)):", "it raised {}", *["  " + "x" * 90] * 30])
    hint = max(explanations(), key=lambda hint: len(str(hint)))
    checks = [Check(f"test_rmsnorm.py::test_{i}", "rmsnorm", f"f{i} {'claim ' * 20}", 1.0) for i in range(10)]
    results = []
    for i, check in enumerate(checks):
        case = Case("a", "FAIL", message.format(i), hints=(dataclasses.replace(hint, name=str(i)),))
        results.append(CheckResult(check, (case,), 1))
    data = reporting.report(dataclasses.replace(SESSION, debug="uv run pytest --inline --pdb"), results, [])
    shown = printed(data, width=100)
    rows = [report.verdict_line(entry).plain for entry in reporting.entries_of(data)] + shown.splitlines()
    assert sum(max(1, -(-len(row) // 100)) for row in rows) <= 100
    assert shown.count("  again: ") == 1
    assert "--explain NAME" in shown
    assert all(f"test_{i}: FAIL" in shown for i in range(10))


@pytest.mark.parametrize(("width", "lines"), [(80, 2), (100, 3)])
def test_what_passes_is_counted_on_a_narrow_terminal(width, lines):
    checks = [Check(f"test_rmsnorm.py::test_{name}", "rmsnorm", name, 1.0) for name in "abc"]
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=True)
    heard = collector.Judge(checks, console, "")
    for check, status in zip(checks, ("ok", "FAIL", "ok"), strict=True):
        heard.hear(reporting.check_entry(CheckResult(check, (Case("", status),), 1), ""))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue().splitlines()
    assert len(shown) == lines
    assert (width == 100) == ("  ok                 1/1  a" in shown)
    assert (width == 80) == ("  ok                 2/2  rmsnorm: 2 checks" in shown)
