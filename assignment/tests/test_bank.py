"""The corpora are whole, what is said of their results follows from them, and the committed page is of these."""

import ast
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from assignment import course
from assignment.bank import bugs, corpus
from assignment.bank.__main__ import parsed
from assignment.bank.corpus import BUG, VARIANT, Entry, defined, entries, graded
from assignment.bank.operators.edits import Bug, bug, table
from assignment.bank.run import engines, grade, matrix, one_bug, results_page, rules, yardstick
from assignment.bank.run.judging import GradingJob, Result, Verdict, judge_all, key
from assignment.bank.run.verdicts import VerdictRow, costs, judge, misnamed, naming, only_killer
from assignment.judge.pool import FUNCTIONS
from assignment.submission import Submission
from assignment.tests import class_made
from assignment.verdict import checks
from assignment.verdict.case import Case
from assignment.verdict.finding import Explanation, Finding

ENTRIES = entries()
ASSIGNMENT = Path(__file__).parents[1]
DECLARED = checks.without_a_gpu(checks.declared())
PROBLEM_OF = {check.name: check.problem for check in DECLARED}


def named(kind: str) -> list:
    return [pytest.param(entry, id=entry.name) for entry in ENTRIES if entry.kind == kind]


def test_names_are_unique():
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)


def test_there_are_enough_of_each():
    assert sum(entry.kind == VARIANT for entry in ENTRIES) >= 22
    assert sum(entry.kind == BUG for entry in ENTRIES) >= 120
    assert {entry.problem for entry in ENTRIES if entry.kind == BUG} >= set(graded())


@pytest.mark.parametrize("entry", named(BUG))
def test_a_bug_is_the_base_with_an_edit_and_names_a_check_of_its_problem(entry):
    assert entry.submission.files != bugs.base()
    for name, content in entry.submission.files.items():
        ast.parse(content, name)
    assert PROBLEM_OF[entry.caught_by] == entry.problem


def test_a_table_of_bugs_has_one_on_every_line():
    rows = """
no sum | values | {SUM} → 0⏎    y | no-sum / is 0
stored past the end | ragged | mask=mask
    →  | a → b | line: tl.store(
"""
    first, second = table("forward", rows, SUM="tl.sum(x)")
    assert first == bug("forward: no sum", "test_forward_values", "tl.sum(x) → 0\n    y", named=("no-sum", "is 0"))
    assert (second.edits, second.line) == ((("mask=mask", ""), ("a", "b")), "tl.store(")
    (third,) = table("autograd", "not twice | test_value | {x} → y | -")
    assert (third.caught_by, third.edits, third.named) == ("test_value", (("{x}", "y"),), ())


@pytest.mark.parametrize("entry", named(VARIANT))
def test_a_variant_brings_functions_of_its_own(entry):
    if "cs336_kernels/part.py" in entry.submission.files:
        assert set(defined(entry.submission.files["cs336_kernels/part.py"])) & set(FUNCTIONS)
    assert entry.problems


def test_an_edit_that_does_not_fit_the_base_is_refused():
    planted = bugs.all_bugs()[0]
    edits = (("no such line", ""),)
    with pytest.raises(ValueError, match="no such line"):
        bugs.submission(bugs.PlantedBug(planted.problem, planted.files, Bug("typo", edits, "test_values")))


def entry(kind: str, name: str) -> Entry:
    return next(entry for entry in ENTRIES if entry.kind == kind and name in entry.name)


def row(entry: Entry, *verdicts: dict[str, Verdict]) -> VerdictRow:
    results = [Result(entry.name, seed, "", f"{seed}", 1.0, seen) for seed, seen in enumerate(verdicts)]
    return VerdictRow(entry, tuple(results))


GOOD = Verdict("ok", 0.4)
EPS = "test_rmsnorm.py::test_eps"
VALUES = "test_rmsnorm.py::test_forward_values"
ELSEWHERE = "test_weighted_sum.py::test_forward_values"
A_BUG = Entry("bugs/rmsnorm/eps", BUG, Submission({}), ("rmsnorm",), "rmsnorm", EPS)
A_VARIANT = Entry("variants/plain", VARIANT, Submission({}), ("rmsnorm",))


def failed(margin: float) -> Verdict:
    return Verdict("FAIL", margin, "some case", "y: 3 of 64 elements wrong")


def test_a_bug_caught_on_every_seed_is_no_finding():
    assert judge([row(A_BUG, {EPS: failed(2.5)}, {EPS: failed(math.inf)})], DECLARED) == []


@pytest.mark.parametrize(
    ("seen", "finding"),
    [
        ([{EPS: GOOD}], "caught it on 0 of 1 seeds; also: nothing"),
        ([{EPS: failed(9)}, {EPS: GOOD, VALUES: failed(9)}], "caught it on 1 of 2 seeds; also: test_rmsnorm"),
        ([{EPS: failed(1.5)}], "caught it by 1.50 times the bound"),
        ([{EPS: failed(9), ELSEWHERE: failed(9)}], "costs points in weighted_sum"),
    ],
)
def test_a_bug_that_slips_through_is_a_finding(seen, finding):
    (line,) = judge([row(A_BUG, *seen)], DECLARED)
    assert finding in line


FAULT = "race: …\n  at cs336_kernels/rmsnorm.py:158 in _backward_kernel: tl.store(partial_ptrs, grad_w, mask=mask)"


def test_names_are_counted_over_all_checks():
    """One that is told, another's name in a check that need not catch it, and two of which one is right"""
    right, wrong = Explanation("eps-missing", "No eps."), Explanation("eps-fixed", "Another eps.")
    entry = replace(A_BUG, named=("eps-missing",))
    both = replace(failed(9), hints=[wrong, right])
    seen = {EPS: replace(failed(9), hints=[right]), VALUES: replace(failed(9), hints=[wrong]), ELSEWHERE: both}
    rows = [row(entry, seen)]
    assert naming(rows) == ([entry.name], [])
    assert misnamed(rows) == [(entry.name, VALUES, "Another eps.")]
    assert "over all checks 1 of 3 failures get a wrong name, of 1 bugs" in matrix.summary(rows)
    assert "over all checks" not in matrix.summary([row(entry, {EPS: seen[EPS]})])


def test_a_bug_with_a_line_must_have_it_quoted_on_every_seed():
    entry = replace(A_BUG, line="tl.store(partial_ptrs")
    fault = Verdict("FAIL", math.inf, "some case", FAULT)
    assert judge([row(entry, {EPS: fault}, {EPS: fault})], DECLARED) == []
    (line,) = judge([row(entry, {EPS: fault}, {EPS: failed(math.inf)})], DECLARED)
    assert "does not quote 'tl.store(partial_ptrs' on seed 1" in line


def test_a_line_is_one_of_the_submission():
    for entry in ENTRIES:
        if entry.line and entry.line != "never stored":
            source = b"\n".join(entry.submission.files.values()).decode()
            assert any(entry.line in line for line in source.splitlines()), entry.name


def test_a_variant_may_be_for_staff_to_look_at():
    """Then it must be, and keeps its points all the same"""
    entry, seen = replace(A_VARIANT, is_doubted=True), {VALUES: Verdict("needs review", 0.1)}
    assert judge([row(entry, seen)], DECLARED) == []
    (line,) = judge([row(A_VARIANT, seen)], DECLARED)
    assert "is doubted in test_rmsnorm.py::test_forward_values" in line
    (line,) = judge([row(entry, {VALUES: Verdict("ok", 0.1)})], DECLARED)
    assert "was to be for staff to look at" in line


def test_variants_may_be_folders_and_other_bytes():
    """A folder's modules are where its imports look for them; what Windows writes is graded as if it had not"""
    files = entry(VARIANT, "weighted_sum_package").submission.files
    assert {"cs336_kernels/part/__init__.py", "cs336_kernels/part/launch/tiles.py"} <= set(files)
    plain, windows, marked = (
        entry(VARIANT, f"weighted_sum_row_program{end}").submission.sources["cs336_kernels/part.py"]
        for end in ("", "_crlf", "_mark")
    )
    assert plain == windows
    assert plain.rstrip() == marked


@pytest.mark.parametrize("table", rules.TABLES.values())
def test_an_edit_of_the_machinery_fits_and_is_shown_by_somebody_there(table):
    """A cheat, a right submission by a check, or a test"""
    names = {entry.name for entry in ENTRIES}
    for edit in rules.edits_of(table):
        assert (ASSIGNMENT.parent / edit.file).read_text(encoding="utf-8").count(edit.old) == 1, edit.name
        for who in edit.shown_by:
            name, _, check = who.partition("::")
            if name.startswith("test_"):
                assert check in (ASSIGNMENT / "tests" / name).read_text(encoding="utf-8")
            else:
                assert {f"variants/{name}", f"cheats/{name}"} & names, who
                assert any(check in known for known in PROBLEM_OF)


def test_there_are_enough_accusations():
    assert len(rules.edits_of("accusations.txt")) >= 40


@pytest.mark.parametrize(
    ("seen", "finding"),
    [
        ({VALUES: failed(1.1)}, "loses test_rmsnorm.py::test_forward_values [some case] on seed 0"),
        ({VALUES: Verdict("ok", 0.6, "64 rows of 64")}, "margin 0.600 on test_rmsnorm.py::test_forward_values"),
    ],
)
def test_a_variant_that_is_marked_down_or_nearly_is_a_finding(seen, finding):
    (line,) = judge([row(A_VARIANT, seen)], DECLARED)
    assert finding in line


def test_a_variant_within_half_the_bound_is_no_finding():
    assert judge([row(A_VARIANT, {VALUES: GOOD})], DECLARED) == []


def defect(verdicts: dict[str, Verdict]) -> VerdictRow:
    return row(entry(BUG, "flash_forward_triton/keys-past-the-end-unmasked"), verdicts)


RAGGED, ORDINARY = "test_flash_forward.py::test_triton_ragged", "test_flash_forward.py::test_triton_values"


def test_every_defect_of_the_yardstick_is_a_bug_of_the_bank():
    assert set(yardstick.DEFECTS) <= {entry.name for entry in ENTRIES if entry.kind == BUG}
    assert len(yardstick.DEFECTS) == len(yardstick.all_defects()) == 32


def test_a_defect_that_costs_over_a_quarter_of_its_problem_is_a_finding():
    assert judge([defect({RAGGED: failed(9), ORDINARY: GOOD})], DECLARED) == []
    (line,) = judge([defect({RAGGED: failed(9), ORDINARY: failed(9)})], DECLARED)
    assert "costs 6.25 of 20 points, at most 25% may be lost" in line


def test_defects_are_printed_with_what_they_cost():
    verdicts = {RAGGED: failed(9), "test_flash_forward.py::test_triton_traffic": failed(9)}
    text = matrix.yardstick(costs([defect(verdicts)], DECLARED))
    assert "keys-past-the-end-unmasked | 2.5 of 20 | ragged | traffic |" in text
    assert matrix.yardstick(costs([defect({RAGGED: failed(9)})], DECLARED)) == ""


def test_a_section_of_the_page_is_replaced_where_it_stands(tmp_path):
    file = tmp_path / "results.md"
    for title, body in (("First", "one"), ("Second", "two"), ("Third", "three"), ("Second", "**2**")):
        results_page.write(title, "python -m some.command", body, file)
    text = file.read_text()
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## First", "## Second", "## Third"]
    assert text.count("Written by `python -m some.command` on ") == 3
    assert results_page.section("Second", file).strip().endswith("**2**")
    assert "two" not in text


def test_the_yardstick_is_run_by_all_checks_on_one_seed():
    asked = grade.BankGrade([yardstick.NAME])
    chosen = [entry for entry in ENTRIES if grade.selected(entry, asked.names)]
    assert {entry.name for entry in chosen} == set(yardstick.DEFECTS)
    assert [job.only for entry in chosen for job in grade.jobs_of(entry, asked)] == [""] * len(chosen)


def test_the_only_check_that_catches_a_bug_is_known():
    rows = [row(A_BUG, {EPS: failed(9), VALUES: GOOD}), row(A_VARIANT, {VALUES: GOOD})]
    assert only_killer(rows) == {EPS: ["bugs/rmsnorm/eps"]}
    assert only_killer([row(A_BUG, {EPS: failed(9), VALUES: failed(9)})]) == {}


def test_only_checks_of_whole_problems_need_a_bug_of_their_own():
    bank = [entry for entry in ENTRIES if entry.kind == BUG and entry.problem == "rmsnorm"]
    assert {check.problem for check in grade.of_whole_problems(bank, DECLARED)} == {"rmsnorm"}
    assert grade.of_whole_problems(bank[1:], DECLARED) == []


def test_tables_show_margins_and_the_check_that_must_catch():
    text = matrix.render(
        [row(A_BUG, {EPS: failed(2.5), VALUES: failed(math.inf)}), row(A_VARIANT, {EPS: GOOD})], DECLARED
    )
    line = next(line for line in text.splitlines() if line.startswith("| eps |"))
    assert "**2.5**" in line
    assert "∞" in line
    assert "| plain | rmsnorm | 0.400 |" in text


def test_the_section_has_totals_and_what_is_not_perfect():
    text = matrix.section([row(A_BUG, {EPS: failed(1.5)}), row(A_VARIANT, {EPS: GOOD})], DECLARED)
    assert "| rmsnorm | 1 | 1 | 1.5 | eps | 1 | 0.400 | plain |" in text
    assert "caught it by 1.50 times the bound" in text
    assert "tells:\n\n- rmsnorm/eps\n" in text
    assert "in which checks: none." in text


def test_a_result_is_read_as_it_was_written():
    result = Result("bugs/x", 3, EPS, "abc", 1.5, {EPS: failed(math.inf)})
    assert Result.read(json.loads(result.line())) == result


def test_kept_results_are_found_again_unless_cut_short(tmp_path):
    first, second = (Result("x", seed, "", f"key {seed}", 1.0, {EPS: GOOD}) for seed in (0, 1))
    file = tmp_path / "results.jsonl"
    file.write_text(f"{first.line()}\n{second.line()[:40]}")
    assert grade.read(file, {first.key, second.key}) == {first.key: first}


def test_a_changed_submission_is_judged_again():
    other = Entry(A_BUG.name, BUG, Submission({"a": b""}), ("rmsnorm",))
    jobs = [GradingJob(A_BUG, 0), GradingJob(A_BUG, 1), GradingJob(other, 0)]
    assert len({key(job, "tests") for job in jobs}) == 3
    assert key(jobs[0], "tests") != key(jobs[0], "other tests")


@pytest.mark.slow
def test_warm_judges_tell_one_submission_from_the_next():
    """A bug, then a correct submission on the same worker: neither verdicts nor margins are carried over"""
    only = "test_rmsnorm.py::test_eps"
    wrong = next(entry for entry in ENTRIES if entry.caught_by == only)
    right = next(entry for entry in ENTRIES if entry.name == "variants/base")
    jobs = [GradingJob(submission, 0, only) for submission in (wrong, right, wrong)]
    results = list(judge_all(jobs, "cpu", processes=1))
    assert [bool(result.failed) for result in results] == [True, False, True]
    assert results[0].verdicts[only].margin > 2
    assert results[1].verdicts[only].margin < 0.5


WITH_BUGS = list(dict.fromkeys(entry.problem for entry in ENTRIES if entry.kind == BUG))
IN_PAGE = results_page.rows_of(matrix.TITLE)


@pytest.mark.parametrize("problem", WITH_BUGS)
def test_the_committed_page_counts_what_the_bank_has(problem):
    if problem not in IN_PAGE:
        pytest.skip(f"{problem} is not in results.md yet; `python -m assignment.bank grade` writes it there")
    n_bugs = sum(entry.kind == BUG and entry.problem == problem for entry in ENTRIES)
    n_right = sum(entry.kind == VARIANT and problem in entry.problems for entry in ENTRIES)
    found = IN_PAGE[problem][1], IN_PAGE[problem][5]
    assert found == (str(n_bugs), str(n_right)), f"{problem}: run `python -m assignment.bank grade`"


def test_the_committed_page_has_nothing_that_is_gone():
    assert {*IN_PAGE} - {"problem"} <= {*WITH_BUGS}


def test_a_check_that_catches_nothing_alone_has_a_reason_once_its_problem_is_in_the_page():
    """Of a new operator, whose bugs are yet to be graded, nothing is asked, and it is said which"""
    lazy, new = (replace(of, name=name) for of, name in ((DECLARED[0], "a::test_lazy"), (DECLARED[0], "b::test_lazy")))
    new = replace(new, problem="not_yet")
    rows = [row(entry, {EPS: failed(9), VALUES: GOOD}) for entry in (A_BUG, replace(A_BUG, problem="not_yet"))]
    assert [line.partition(":")[0] for line in matrix.useless(rows, [lazy, new])] == ["a"]
    assert matrix.not_in_page(rows) == ["not_yet"]


def test_a_message_tells_of_a_fault_only_in_the_simulator():
    race = Case("", "FAIL", "…", finding=Finding("race", FAULT, class_made.places_in(FAULT)))
    assert one_bug.outcome_of(race, "simulator") == one_bug.BugOutcome("fault", "", "…", "race", "rmsnorm.py:158")
    assert one_bug.outcome_of(replace(race, finding=Finding("never stored")), "guarded").result == "wrong"
    assert one_bug.outcome_of(replace(race, finding=Finding("raised")), "cuda").result == "error"
    assert one_bug.outcome_of(Case("", "ok"), "cuda").result == "right"


def test_the_committed_page_counts_the_bugs_that_misuse_memory():
    n_bugs = sum(not name.startswith("base/") for name in engines.targets())
    text = results_page.section(engines.TITLE)
    assert f"| all | {n_bugs} | {n_bugs} |" in text, "run `python -m assignment.bank engines` and commit results.md"
    assert "Missed by the simulator: none.\n\nFalse alarms: none." in text


def test_misused_memory_is_counted_by_kind_and_false_alarms_are_named():
    fine = {"simulator": "right", "guarded": "right", "interpreter": "right", "kind": "", "at": ""}
    seen = {"x/a": fine | {"simulator": "fault", "kind": "race"}, "x/b": fine | {"kind": "race", "guarded": "wrong"}}
    text = engines.section(seen | {"base/y": fine}, {"base/y": {"memcheck": 1, "values": "right"}})
    assert "| race | 2 | 1 | 1 | 0 | – | – |" in text
    assert "Missed by the simulator:\n\n- x/b\n\nFalse alarms:\n\n- base/y" in text


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], {"bugs/a_1", "variants/a_2", "variants/b_2"}),
        (["variants/"], {"variants/a_2", "variants/b_2"}),
        (["*_2", "!variants/a"], {"variants/b_2"}),
        (["!*_2"], {"bugs/a_1"}),
    ],
)
def test_names_choose_and_leave_out(names, expected):
    some = [replace(A_BUG, name=name) for name in ("bugs/a_1", "variants/a_2", "variants/b_2")]
    assert {entry.name for entry in some if grade.selected(entry, names)} == expected


def test_a_part_without_a_submission_is_no_error(monkeypatch, capsys):
    assert parsed(["grade", "variants/", "--shard", "999/1000"])() == 0
    assert "nothing to grade in part 999/1000" in capsys.readouterr().out


def test_a_name_that_nothing_has_is_an_error(monkeypatch, capsys):
    assert parsed(["grade", "no_such_submission"])() == 2
    assert "nothing is called no_such_submission" in capsys.readouterr().err


RUN_ONE = """
from pathlib import Path
from assignment.bank.run import one_bug
root = Path("assignment/reference")
files = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*.py")}
print(one_bug.run(files, "test_weighted_sum.py::test_forward_values", "simulator").result)
"""


@pytest.mark.slow
def test_one_submission_runs_in_this_process():
    """As those who watch processes run it: the reference is right there"""
    done = subprocess.run(
        [sys.executable, "-c", RUN_ONE], cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=99
    )
    assert done.stdout == "right\n", done.stderr


def test_the_bank_has_what_the_course_has(monkeypatch):
    """Bugs, cheats and the problems of others go with one that is off"""
    problems, own = checks.in_course(course.Course(points={"rmsnorm": course.OFF}), checks.in_tests())
    monkeypatch.setattr(checks, "problems", lambda: problems)
    monkeypatch.setattr(checks, "declared", lambda: own)
    left = [corpus._in_course(entry) for entry in corpus.everything()]
    gone = [entry for entry, of_it in zip(corpus.everything(), left, strict=True) if of_it is None]
    assert {"rmsnorm", ""} >= {entry.problem for entry in gone}
    assert {entry.cheat.problem for entry in gone if entry.cheat} == {"rmsnorm"}
    assert not any("rmsnorm" in entry.problems for entry in left if entry)
    (reference,) = (entry for entry in left if entry and entry.name == "variants/reference")
    assert len(reference.problems) == len(graded()) - 1
