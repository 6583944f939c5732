"""From the outcomes of single cases to what each check earns: pure functions of data."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from assignment.verdict.agree import agreed_hints
from assignment.verdict.case import Case, CheckCases
from assignment.verdict.finding import Explanation
from tests import operators

OK, FAIL, TO_DO, NOT_GRADED = "ok", "FAIL", "todo", "not graded"
CRASHED, TIMEOUT, NEEDS_REVIEW, GRADER_ERROR = "crashed", "timeout", "needs review", "grader error"

# The status of a check is the first of these that one of its cases has.
SEVERITY = (GRADER_ERROR, CRASHED, TIMEOUT, FAIL, TO_DO, NOT_GRADED, NEEDS_REVIEW, OK)
KEEPS_POINTS = (OK, NEEDS_REVIEW)
NEEDS_LINUX = "needs Linux"  # of a check that is not graded where Triton's compiler is not installed
NO_POINTS = "the problem earns no points: "


@dataclass(frozen=True)
class CheckResult(CheckCases):
    """What became of a check: see results."""

    hints: tuple[Explanation, ...] = ()  # what its wrong results may come from, as its function's checks agree

    def explained(self, case: Case) -> tuple[Explanation, ...]:
        """Return which of the check's hints explain a case."""
        return tuple(hint for hint in self.hints if hint in (case.hints or ()))

    @property
    def status(self) -> str:
        if not self.expected or len(self.cases) < self.expected:
            return min([GRADER_ERROR, *(case.status for case in self.cases)], key=SEVERITY.index)
        return min((case.status for case in self.cases), key=SEVERITY.index)

    @property
    def score(self) -> float:
        if self.status in KEEPS_POINTS:
            return self.check.points
        failed = [case for case in self.cases if case.status not in (*KEEPS_POINTS, NOT_GRADED)]
        if self.status != FAIL or any(case.share is None for case in failed):
            return 0.0
        shares = [1.0 if case.share is None else case.share for case in self.cases if case.measured]
        return round(self.check.points * sum(shares) / len(shares), 2)

    @property
    def worst(self) -> Case | None:
        """The most telling case of the check's status: a fault with its line, a likely cause, the smallest."""
        alike = [case for case in self.cases if case.status == self.status]
        telling = [
            (not case.ran, not case.is_fault, not self.explained(case), is_of_one_element(case), case.size)
            for case in alike
        ]
        return alike[telling.index(min(telling))] if alike else None

    @property
    def margin(self) -> float:
        return max((case.margin or 0.0 for case in self.cases), default=0.0)


def is_of_one_element(case: Case) -> bool:
    """Return whether a case's wrong result has no dimensions to show a place in."""
    return case.finding is not None and case.finding.numbers.get("elements") == 1


def results(gathered: Iterable[CheckCases]) -> list[CheckResult]:
    """Return what became of checks: all that is told of them is made of this, so that it is the same everywhere."""
    gathered = list(gathered)
    told = zip(map(by_itself, gathered), agreed_hints(gathered), strict=True)
    return _without_cheated([replace(result, hints=hints) for result, hints in told])


def by_itself(of: CheckCases) -> CheckResult:
    """Return what became of a check, without what other checks show of it: no hints, and all points."""
    return CheckResult(of.check, of.cases, of.expected)


def _without_cheated(results: list[CheckResult]) -> list[CheckResult]:
    """Return the checks, none of them passed where the problem's own function does not do the work in one case.

    flash_attention stands between two problems and costs its own checks alone.
    """
    shown: dict[str, tuple[CheckResult, Case]] = {}
    for result in results:
        for case in result.cases:
            if any(operators.functions()[name].problem == result.check.problem for name in case.cheated):
                shown.setdefault(result.check.problem, (result, case))
    return [_failed_for(result, shown.get(result.check.problem)) for result in results]


def _failed_for(result: CheckResult, shown: tuple[CheckResult, Case] | None) -> CheckResult:
    """Return the check without its points, for what a case of another has shown."""
    if shown is None or result.status not in KEEPS_POINTS:
        return result
    where, evidence = shown
    at = f"{where.check.name}[{evidence.name}]" if evidence.name else where.check.name
    message = f"{NO_POINTS}{at}: {evidence.message}"
    found = evidence.finding
    failed = (replace(case, status=FAIL, message=message, share=None, finding=found) for case in result.cases)
    return replace(result, cases=tuple(failed))
