"""`--explain CHECK`: which check is meant, what is shown of it, and the handout in a terminal."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from assignment.commands import explain, handout
from assignment.submission import UnusableSubmission
from assignment.tests.forked import python
from assignment.tests.graded import append
from assignment.tests.specification import explanations
from assignment.tests.test_simulator_page import Data
from assignment.verdict import checks, reporting, score
from assignment.verdict.case import Case, CheckCases
from assignment.verdict.checks import Check
from assignment.verdict.finding import WRONG_VALUES, Explanation, Finding, SourceLine

ROOT = Path(__file__).resolve().parents[2]
DECLARED = checks.declared()
DOCUMENT = """# Title
## One `way`
text
### Inside
```sh
# no heading
## Ten
```
## Ten, and more
ten
### Inside
again
"""


@pytest.mark.parametrize(
    "name", ["test_eps", "test_rmsnorm.py::test_eps", "tests/rmsnorm/test_rmsnorm.py::test_eps[0.5]"]
)
def test_a_check_is_known_by_its_name(name):
    assert explain.named(name, DECLARED).name == "test_rmsnorm.py::test_eps"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("test_forward_values", "2 fit; say which:\n  test_weighted_sum.py::test_forward_values\n  test_rmsnorm"),
        ("rmsnorm", "expected one check, and 24 fit; say which:"),
        ("test_ebs", "no such check; did you mean:\n  test_rmsnorm.py::test_eps"),
        ("test_rmsnrom.py::test_eps", "no such check; did you mean:\n  test_rmsnorm.py::test_eps"),
        ("qqq", "no such check; --list shows them all"),
        ("", "no such check"),
    ],
)
def test_another_name_is_refused_with_those_that_may_be_meant(name, words):
    with pytest.raises(UnusableSubmission) as refusal:
        explain.named(name, DECLARED)
    assert words in str(refusal.value)
    assert len(str(refusal.value).splitlines()) <= explain.MAX_NAMED + 2


def test_every_check_has_its_test_in_the_source():
    """A function, or the call that makes the checks which operators have in common"""
    for check in DECLARED:
        lines = (checks.TESTS / check.path.partition("::")[0]).read_text(encoding="utf-8").splitlines()
        own = rf"(def )?{check.name.partition('::')[2]}\b"
        assert re.match(rf"{own}|globals\(\)\.update\(", lines[check.line - 1])


# The handout.


@pytest.fixture
def root(tmp_path):
    """A folder with one page."""
    (tmp_path / "page.md").write_text(DOCUMENT)
    return tmp_path


@pytest.mark.parametrize(
    ("anchor", "first", "last"),
    [
        ("#one-way", "## One `way`", "```"),
        ("#inside", "### Inside", "```"),
        ("#ten-and-more", "## Ten, and more", "again"),
        ("#inside-1", "### Inside", "again"),
        ("", "# Title", "again"),
    ],
)
def test_a_section_reaches_to_the_next_of_its_kind(root, anchor, first, last):
    lines = handout.section(f"page.md{anchor}", root).splitlines()
    assert (lines[0], lines[-1]) == (first, last)


@pytest.mark.parametrize("citation", ["gone.md", "page.md#ten", "page.md#none-either", "page.md#inside-2", ""])
def test_a_section_that_is_not_there_is_empty(root, citation):
    assert handout.section(citation, root) == ""


def test_every_hint_cites_a_section():
    for hint in explanations():
        assert handout.section(hint.section), hint
        assert f"({hint.section})" in str(hint)


MATHEMATICS = r"With $\frac{x_i}{y_i}\,z_i$ of `$HOME` and `a_b`:" + "\n\n```math\n\\sum_i x_i\\,w_i\n```\n"


def shown(markdown, **terminal):
    console = Console(file=io.StringIO(), highlight=False, soft_wrap=True, color_system=None, **terminal)
    handout.show(console, markdown)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_mathematics_stays_as_it_was_written():
    out = shown(MATHEMATICS, force_terminal=True, width=100)
    assert r"With \frac{x_i}{y_i}\,z_i of $HOME and a_b:" in out
    assert r"\sum_i x_i\,w_i" in out
    assert "```" not in out


def test_a_pipe_gets_the_source():
    assert shown(MATHEMATICS) == MATHEMATICS + "\n"


@pytest.mark.parametrize("chapter", ["weighted_sum", "rmsnorm", "flash_attention", "grading"])
def test_the_handout_fits_a_terminal(chapter):
    """No line of prose is wider; the formulas of each section are still there"""
    section = handout.section(f"handout/{chapter}.md")
    out = shown(section, force_terminal=True, width=80)
    for formula in (r"\frac", r"\sum", r"\hat x"):
        assert (formula in section) == (formula in out), formula
    assert len(out.splitlines()) > 20


# The verdict.


def told(*cases):
    check = Check("test_rmsnorm.py::test_eps", "rmsnorm", "rmsnorm_forward adds eps", 3.0, function="rmsnorm_forward")
    (result,) = score.results([CheckCases(check, cases, len(cases))])
    console = Console(file=io.StringIO(), highlight=False, soft_wrap=True, color_system=None, width=100)
    explain.show_result(console, result, reporting.check_entry(result, "uv run grade.py --seed 1", "uv run pytest"))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_every_case_that_failed_is_told_in_full():
    """One cause once; those that pass are counted"""
    message = "\n".join(f"line {i}" for i in range(30))
    same = "f(float32 (3,)):\nit raised ValueError\n  at cs336_kernels/rmsnorm.py:3"
    at = (SourceLine("at x.py:3", "x.py", 3),)
    raised = [Case(i, "FAIL", same, finding=Finding("raised", same, at)) for i in "cd"]
    out = told(Case("a", "ok"), Case("b", "FAIL", message), *raised)
    assert "FAIL: 0/3 points, 1 of 4 cases right" in out
    assert "    | line 29\n" in out
    assert out.count("it raised ValueError") == 1
    assert "\n  [d] FAIL: the same as in [c]\n" in out
    assert "[a]" not in out
    assert "open:  cs336_kernels/rmsnorm.py: rmsnorm_forward, handout/rmsnorm.md" in out
    assert "again: uv run grade.py --seed 1 --only test_rmsnorm.py::test_eps" in out


def test_cases_that_differ_in_their_numbers_alone_are_a_line_each():
    """What is wrong in other results, or is NaN, is told in full"""
    wrong = "f(float32 ({0},)):\ny: {0} of 9 elements wrong: rows 1, 2\n  first one: y[{0}] = 1, expected 2"
    cases = []
    for i, name in enumerate("abcd"):
        counts = {"wrong": i + 1, "nan": 3 if name == "d" else 0, "elements": 9}
        seen = Finding(WRONG_VALUES, wrong.format(i), result="y", numbers=counts)
        cases.append(Case(name, "FAIL", wrong.format(i), finding=seen))
    out = told(*cases)
    assert "[b] FAIL: the same as in [a]\n  [c] FAIL: the same as in [a]\n\n  [d] FAIL\n    | f(" in out


def test_what_the_simulator_remarked_is_shown():
    """Once: not beside a message that has it"""
    note = "masked load without other=: a lane\n  at cs336_kernels/rmsnorm.py:3"
    assert "warning: masked load without other=: a lane" in told(Case("a", "ok", notes=(note,)))
    both = told(Case("a", "FAIL", f"f():\n  note: {note.splitlines()[0]}\nwrong", notes=(note,)))
    assert both.count("masked load without other=") == 1


def test_the_case_that_the_report_shows_comes_first():
    """One that was run, before those that were not"""
    out = told(Case("a", "timeout", "not run", ran=False), Case("b", "timeout", "no answer"))
    assert out.index("[b]") < out.index("[a]")


def test_the_likely_cause_and_the_debugger_are_named():
    out = told(Case("a", "FAIL", "wrong", hints=(Explanation("no-eps", "Your y lacks eps."),)))
    assert "likely cause: Your y lacks eps.\n" in out
    assert "  debug: uv run pytest" in out


def test_what_is_to_do_is_told_once():
    message = "cs336_kernels/rmsnorm.py: rmsnorm_forward, handout/rmsnorm.md"
    out = told(Case("a", "todo", message), Case("b", "todo", message))
    assert out.startswith(f"todo: 0/3 points\n    | {message}\n  open:")


def test_what_passes_is_told_in_a_line():
    assert told(Case("a", "ok"), Case("b", "ok")).splitlines()[0] == "ok: 3/3 points, 2 of 2 cases right"


def test_a_message_stays_behind_its_gutter():
    out = told(Case("a", "FAIL", "\x1b[2J[bold]\nScore: 80/80"))
    assert "\x1b" not in out
    assert "    | Score: 80/80" in out


@pytest.fixture
def broken(submission):
    """The reference, with an RMSNorm that leaves out its last row."""
    code = "_right = rmsnorm_forward\n\n\ndef rmsnorm_forward(x, weight, eps=1e-5):\n"
    append(submission, "rmsnorm.py", code + "    y, r = _right(x, weight, eps)\n    y[-1] = 0.0\n    return y, r")
    return submission


def run(folder, *arguments):
    return python(ROOT / "grade.py", *arguments, cwd=folder, timeout=120)


@pytest.mark.slow
def test_a_failure_is_explained(broken):
    """Claim, docstring, section and the cases, and nothing beside"""
    done = run(broken, "--explain", "test_rmsnorm.py::test_forward_values", "--seed", "3")
    assert (done.returncode, done.stderr) == (0, "")
    parts = [
        "test_rmsnorm.py::test_forward_values\n",
        "  rmsnorm_forward returns x · rstd · w and rstd in float32, for 4 points\n",
        "tested by tests/rmsnorm/test_rmsnorm.py:",
        "From handout/rmsnorm.md:",
        "# RMSNorm\n",
        r"\sqrt{",
        "FAIL: 0/4 points, 1 of 4 cases right",
        "again: uv run grade.py --seed 3 --only test_rmsnorm.py::test_forward_values",
    ]
    places = [done.stdout.find(part) for part in parts]
    assert -1 not in places, parts[places.index(-1)]
    assert places == sorted(places)
    assert "Score" not in done.stdout


@pytest.mark.slow
def test_the_failing_launch_is_drawn(submission):
    """On the failing inputs, with the student's lines; nothing is written where nothing fails, or no worker plays"""
    kernel = submission / "cs336_kernels" / "weighted_sum.py"
    code = kernel.read_text()
    store = "y.to(y_ptr.dtype.element_ty), mask=row_mask)"
    kernel.write_text(code.replace(store, store.replace("row_mask", "rows <= n_rows")))
    drawn = "--explain", "test_weighted_sum.py::test_forward_ragged", "--html", "page.html", "--seed", "3"
    done = run(submission, *drawn)
    assert (done.returncode, done.stderr) == (0, "")
    assert "page.html: open it in a browser" in done.stdout
    told = Data(submission / "page.html").told
    (case,) = re.findall(r"in the last call of \[(.*)\]:", done.stdout)
    assert told["launches"][0]["kernel"] == "_weighted_sum_forward_kernel"
    assert told["launches"][0]["where"][0][0] == "cs336_kernels/weighted_sum.py"
    assert "rows <= n_rows" in "".join(told["sources"][0]["lines"])
    assert told["findings"][0]["text"].startswith("out of bounds: ")
    assert f"test_forward_ragged[{case}] in the simulator" in (submission / "page.html").read_text()
    (submission / "page.html").unlink()
    assert "no launch of" in run(submission, *drawn, "--inline").stderr
    kernel.write_text(code)
    done = run(submission, *drawn)
    assert (done.returncode, "no case of" in done.stderr) == (3, True)
    assert not (submission / "page.html").exists()


@pytest.mark.slow
def test_a_check_that_needs_a_gpu_is_explained_without_one(broken):
    done = run(broken, "--device", "cpu", "--explain", "test_flash_forward.py::test_triton_speed")
    assert (done.returncode, done.stderr) == (0, "")
    assert "It needs a GPU" in done.stdout
    assert "From handout/grading.md#speed:\n\n## Speed\n" in done.stdout


def test_an_unknown_check_ends_with_status_2(broken):
    done = run(broken, "--explain", "test_forward_values")
    assert done.returncode == 2
    assert re.match(r"grade\.py: --explain test_forward_values: expected one check, and \d fit", done.stderr)
    assert done.stdout == ""


@pytest.mark.slow
def test_what_a_case_printed_stands_under_it(broken):
    """However late it was read, and whatever was called beside it"""
    init = broken / "cs336_kernels" / "__init__.py"
    init.write_text(
        init.read_text()
        + """
import sys

right = sys.modules["cs336_kernels.rmsnorm"].rmsnorm_forward

def rmsnorm_forward(x, weight, eps=1e-5):
    print("given", tuple(x.shape))
    return tuple(result.view(result.shape) for result in right(2 * x, weight, eps=eps))
"""
    )
    came = run(broken, "--explain", "test_rmsnorm.py::test_forward_values")
    shown = re.findall(r"rmsnorm_forward\(float32 (\(.*?\)), |printed: given (\(.*?\))", came.stdout)
    called, printed = "", 0
    for call, given in shown:
        called = call or called
        printed += bool(given)
        assert not given or given == called
    assert printed >= sum(bool(call) for call, _ in shown) >= 1  # cases that differ in numbers are one line


@pytest.mark.slow
def test_warnings_and_prints_of_right_kernels_are_shown(submission):
    """By --next and --explain too: somebody who works with these sees no other report"""
    name = "test_weighted_sum.py::test_forward_values"
    file = submission / "cs336_kernels" / "weighted_sum.py"
    right, loaded = file.read_text(), "mask=col_mask, other=0.0).to(tl.float32)  # (D_TILE_SIZE,)\n"
    assert loaded in right
    file.write_text(right.replace(loaded, f'mask=col_mask).to(tl.float32)\n{" " * 8}print("w", w)\n', 1))
    for mode in (["--next", "--only", name], ["--explain", name]):
        done = run(submission, *mode)
        assert (done.returncode, done.stderr) == (0, "")
        assert re.search(r"^warning: .*without other", done.stdout, re.MULTILINE), done.stdout
    assert "ok: 2/2 points" in done.stdout
    assert re.search(r"printed in \[.*\], which is right:\n +\| \(.*\) +w: ", done.stdout), done.stdout
    done = run(submission, "--only", name)
    assert re.search(rf"\n\d+ lines printed: --explain {name} shows them\n", done.stdout), done.stdout
