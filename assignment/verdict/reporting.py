"""From verdicts to the report: what is told of each check, as plain data."""

import shlex
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from assignment import failure, text
from assignment.protocol.said import SourceLine
from assignment.verdict import checks
from assignment.verdict.case import Case, CheckCases
from assignment.verdict.entries import CheckEntry, KernelEntry, MovedEntry, ProblemEntry, Problems, Report, StaffNote
from assignment.verdict.finding import OTHER, Finding, FindingEntry
from assignment.verdict.score import (
    FAIL,
    KEEPS_POINTS,
    NEEDS_LINUX,
    NOT_GRADED,
    OK,
    TO_DO,
    CheckResult,
    by_itself,
    results,
)

OR = " Or: "  # between two likely causes
LARGEST_MARGIN = 1e9  # JSON has no infinity
MAX_NOTES = 5  # of a check
MAX_FINDINGS = 8  # likewise
MAX_NOTE_LINES = 6
MAX_PLACES, MAX_PLACE = 8, 300  # of a finding, and characters of one
MAX_STAFF_NOTES = 20
MAX_LISTED = 100  # figures of kernels, of a check


@dataclass(frozen=True)
class Circumstances:
    """Under which circumstances a grade was made."""

    command: str  # that repeats it: "uv run grade.py --seed 7"
    seed: int
    device: str  # "cpu-simulated", or "cuda" and the name of the GPU
    sandbox: str
    submission_sha256: str
    seconds: float = 0.0
    import_error: str = ""  # what kept the package from being imported
    jobs: int = 1  # processes that judged
    versions: dict[str, str] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    # the command that runs a case in a debugger, up to its name: "uv run pytest --inline --pdb --seed 7"
    debug: str = ""


def report(session: Circumstances, gathered: Sequence[CheckCases], failures: list[str]) -> Report:
    """Return the report as it is written to --json: plain data; failures are those of the grader itself."""
    found = [*map(by_itself, gathered)]
    with failure.kept(failures):
        found = results(gathered)
    graded, practice, notes = [], [], _told_staff(found)[:MAX_STAFF_NOTES]
    for problem in checks.problems().values():
        own = [result for result in found if result.check.problem == problem.name]
        if checks.is_practice(problem.name):
            practice += [_problem(problem, own, session, is_whole=False)] if own else []
        else:
            graded.append(_problem(problem, own, session))
    graded = [problem for problem in graded if problem["checks"]]
    return {
        "schema": 1,
        "score": _total(problem["score"] for problem in graded),
        "max_score": _total(problem["max_score"] for problem in graded),
        "gradable": _total(problem["gradable"] for problem in graded),
        "device": session.device,
        "seed": session.seed,
        "seconds": round(session.seconds, 1),
        "versions": session.versions,
        "sandbox": session.sandbox,
        "jobs": session.jobs,
        "submission_sha256": session.submission_sha256,
        "import_error": text.clean(session.import_error),
        "grader_failures": [failure.end_of(problem) for problem in failures][:MAX_STAFF_NOTES],
        "notes_to_staff": [text.line(f"{one['check']}: {one['says']}") for one in notes],
        "told_staff": notes,
        "problems": graded,
        "practice": practice,
    }


def _told_staff(results: list[CheckResult]) -> list[StaffNote]:
    """Return each remark once, with the first case that it was made of."""
    said: dict[str, str] = {}
    for result in results:
        for case in result.cases:
            for note in case.staff:
                said.setdefault(note, f"{result.check.name}[{case.name}]" if case.name else result.check.name)
    return [{"check": text.line(where), "says": text.line(note)} for note, where in said.items()]


def _problem(
    problem: checks.Problem, results: list[CheckResult], session: Circumstances, is_whole: bool = True
) -> ProblemEntry:
    """Return the entry of a problem; of a whole one, points that no check of these carries are shown too."""
    entries = [check_entry(result, session.command, session.debug) for result in results]
    missing = _total([problem.points, *(-entry["max_score"] for entry in entries)])
    if is_whole and missing > 0 and (not session.only or problem.name in session.only):
        entries.append(_not_graded(problem.name, problem.title, missing))
    return {
        "name": problem.name,
        "title": problem.title,
        "score": _total(entry["score"] for entry in entries),
        "max_score": _total(entry["max_score"] for entry in entries),
        "gradable": sum(entry["max_score"] for entry in entries if entry["status"] != NOT_GRADED),
        "checks": entries,
    }


def problems_of(report: Problems) -> list[ProblemEntry]:
    """Return all problems of a report, those of practice after the others."""
    return [*report["problems"], *report["practice"]]


def entries_of(report: Problems) -> list[CheckEntry]:
    """Return all checks of a report, those of practice after the others."""
    return [check for problem in problems_of(report) for check in problem["checks"]]


def needing_linux(problems: Iterable[ProblemEntry]) -> float:
    """Return the points that are not graded where Triton's compiler is not installed."""
    entries = (entry for problem in problems for entry in problem["checks"] if entry["status"] == NOT_GRADED)
    return _total(entry["max_score"] for entry in entries if entry["message"] == NEEDS_LINUX)


def warnings_in(checks: Iterable[CheckEntry]) -> list[str]:
    """Return what the simulator remarked about code that keeps its points, each remark once."""
    return list(dict.fromkeys(note for check in checks if check["status"] == OK for note in check.get("notes", ())))


def _total(points: Iterable[float]) -> float:
    return round(sum(points), 6)


def _not_graded(name: str, title: str, points: float) -> CheckEntry:
    """Return the entry for points of a problem that no check carries."""
    return {
        "name": name,
        "claim": f"{title}: no check of it can run here",
        "score": 0.0,
        "max_score": points,
        "status": NOT_GRADED,
        "cases": 0,
        "passed": 0,
        "message": "",
        "hint": "",
        "function": "",
        "findings": [],
        "rerun": "",
    }


def check_entry(result: CheckResult, command: str, debug: str = "") -> CheckEntry:
    """Return one check as the report shows it; command --only NAME runs it again, debug a case of it."""
    good, worst = result.status in KEEPS_POINTS, result.worst
    entry: CheckEntry = {
        "name": result.check.name,
        "claim": result.check.claim,
        "score": result.score,
        "max_score": result.check.points,
        "status": result.status,
        "cases": result.expected,
        "passed": sum(case.status in KEEPS_POINTS for case in result.cases),
        "message": "" if result.status == OK else text.clean(_message(result)),
        "hint": text.clean(_hint(result)),
        "function": result.check.function,
        "findings": findings_of(result),
        "rerun": "" if good else text.line(f"{command} --only {result.check.name}"),
        "debug": text.line(f"{debug} {_node(result)}") if debug and not good and result.worst else "",
        "margin": round(result.margin, 4) if result.margin < LARGEST_MARGIN else LARGEST_MARGIN,  # nor a NaN
        "map": {"case": text.line(case.name), **case.map} if (case := mapped(result)) and case.map else None,
        "notes": notes_of(result.cases),
        "printed": sum(case.n_printed for case in result.cases),
        "measured": [text.line(f"{case.name}: {case.measured}") for case in result.cases if case.measured],
        "moved": _most_moved(result.cases),
        "compiled": _compiled(result.cases),
        "timings": [{"case": text.line(case.name), **case.timing} for case in result.cases if case.timing],
    }
    if worst and not worst.ran:
        entry["ran"] = False
    if lanes := next((case.lanes for case in result.cases if case.lanes), ()):
        entry["lanes"] = [*lanes]
    return entry


def findings_of(result: CheckResult) -> list[FindingEntry]:
    """Return what is wrong with the check's cases: of the one that is told, and of those with other causes or hints."""
    found: dict[Hashable, FindingEntry] = {}
    for case in sorted(result.cases, key=lambda case: case is not result.worst):
        if case.status not in (OK, TO_DO, NOT_GRADED):
            hints = result.explained(case)
            of = case.finding or Finding(OTHER if case.status == FAIL else case.status, case.message)
            places = tuple(map(_shown, of.places[:MAX_PLACES]))
            shown = replace(of, says=in_brief(of.says), places=places, file=text.line(of.file), why=in_brief(of.why))
            found.setdefault(hints or of.cause, shown.as_json(text.line(case.name), hints))
    return [*found.values()][:MAX_FINDINGS]


def _shown(place: SourceLine) -> SourceLine:
    return replace(place, says=text.clean(place.says, 1, MAX_PLACE), path=text.clean(place.path, 1, MAX_PLACE))


def in_brief(said: str) -> str:
    return text.clean(said, MAX_NOTE_LINES)


def _most_moved(cases: Iterable[Case]) -> list[MovedEntry]:
    """Return what was moved of each tensor, in the case in which that is most beside the least."""
    found: dict[tuple[str, ...], MovedEntry] = {}
    for case in cases:
        for one in case.moved:
            key = (one["function"], one["verb"], one["tensor"])
            told: MovedEntry = {**one, "case": text.line(case.name)}
            if key not in found or one["bytes"] * found[key]["least"] > found[key]["bytes"] * one["least"]:
                found[key] = told
    return [*found.values()]


def _compiled(cases: Iterable[Case]) -> list[KernelEntry]:
    """Return the figures of kernels, with the first case that has them."""
    found: dict[str, KernelEntry] = {}
    for case in cases:
        for one in case.compiled:
            found.setdefault(str(one), {**one, "case": text.line(case.name)})
    return [*found.values()][:MAX_LISTED]


def mapped(result: CheckResult) -> Case | None:
    """Return the case whose map of errors is shown: the one that the report tells, or the first that has one."""
    cases = [case for case in result.cases if case.map]
    return result.worst if result.worst in cases else next(iter(cases), None)


def _node(result: CheckResult) -> str:
    """Return the worst case as pytest calls it, for a shell."""
    assert result.worst is not None
    case = f"[{result.worst.name}]" if result.worst.name else ""
    return shlex.quote(f"tests/{result.check.path}{case}")


def _hint(result: CheckResult) -> str:
    """Return what is likely, and in which case that was seen, if not in the one that is shown."""
    told = OR.join(map(str, result.hints))
    if not told or result.worst is None or set(result.hints) <= set(result.worst.hints or ()):
        return told
    seen = next(case.name for case in result.cases if result.hints[0] in (case.hints or ()))
    return f"In case [{seen}]: {told}"


def notes_of(cases: Iterable[Case]) -> list[str]:
    """Return what was remarked on a check's cases, each remark once, and not more than anybody reads."""
    notes = (in_brief(note) for case in cases for note in case.notes[:MAX_NOTES])
    return list(dict.fromkeys(note for note in notes if note))[:MAX_NOTES]


def _message(result: CheckResult) -> str:
    worst = result.worst
    if worst is None:
        return f"only {len(result.cases)} of {result.expected} cases were run: not your code, please report this"
    return f"[{worst.name}] {worst.message}" if worst.name and worst.status != TO_DO else worst.message
