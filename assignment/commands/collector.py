"""What has become of each check of a run: a pytest plugin that gathers the outcomes of their cases."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from assignment import plugin
from assignment.commands import report
from assignment.verdict import case, checks, finding, reporting, score
from assignment.verdict.entries import CheckEntry

TOLD_AT_ONCE = (score.FAIL, score.CRASHED, score.TIMEOUT)
NARROW = 100  # columns: on a narrower terminal the checks that pass are counted


class GraderProblems:
    """A pytest plugin that gathers what goes wrong in the grader itself."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.problems.append(f"{report.nodeid}: {report.longreprtext}")

    def pytest_internalerror(self, excrepr: object) -> bool:
        self.problems.append(str(excrepr))
        return True  # pytest need not print it


class Judge(GraderProblems):
    """Says each check's verdict when it is complete."""

    def __init__(
        self,
        selected: list[checks.Check],
        console: Console,
        command: str,
        ungraded: Sequence[case.CheckCases] = (),
    ) -> None:
        super().__init__()
        self._command, self._ungraded = command, ungraded
        self._checks = {check.name: check for check in selected}
        self._expected: dict[str, int] = defaultdict(int)
        self._cases: dict[str, list[case.Case]] = defaultdict(list)
        self._heard: Counter[str] = Counter()  # verdicts, by problem
        self._to_do: dict[str, list[CheckEntry]] = defaultdict(list)
        self._passed: dict[str, list[CheckEntry]] = defaultdict(list)  # counted only, on a narrow terminal
        self._is_narrow = console.is_terminal and console.width < NARROW
        self._progress = Progress(
            TextColumn("  grading"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("cases"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            auto_refresh=False,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=None)
        self._failed = set[str]()  # functions of which a failure was told
        self.has_enough = False  # and has stopped pytest itself
        self.import_error = ""  # what kept the package from being imported

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.expect(session.items)
        self._progress.start()

    def expect(self, items: Sequence[pytest.Item]) -> None:
        """Count the cases of each check."""
        for item in items:
            self._expected[plugin.check_name(item)] += 1
        self._progress.update(self._task, total=len(items))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = case.held_by(report)
        if told is not None:
            self.hear_import_error(told.import_error)
            self._add(report.nodeid.partition("[")[0].rpartition("/")[2], told)

    def _add(self, name: str, told: case.Case) -> None:
        self._cases[name].append(told)
        self._progress.advance(self._task)
        self._progress.refresh()
        if told.status in TOLD_AT_ONCE:
            self.hear_failure(self._checks[name], told)
        if len(self._cases[name]) == self._expected[name]:
            self.hear(reporting.check_entry(score.by_itself(self._gathered(name)), self._command))

    def hear_import_error(self, said: str) -> None:
        """Tell of an import error, which some case met, once and before any verdict."""
        if said and not self.import_error:
            self.import_error = said
            report.print_import_error(self._progress.console, said)

    def hear_failure(self, check: checks.Check, told: case.Case) -> None:
        """Tell of the first failure of each function at once: others follow, and likely causes."""
        is_told = self.import_error and told.finding and told.finding.kind == finding.NOT_IMPORTED
        if not is_told and check.function not in self._failed:
            self._failed.add(check.function)
            report.print_first_words(self._progress.console, check, told)

    def hear(self, entry: CheckEntry) -> None:
        """Print the verdict of a completed check; those of checks that are to do come together, when all are known."""
        problem = self._checks[entry["name"]].problem
        self._heard[problem] += 1
        if entry["status"] == score.TO_DO:
            self._to_do[problem].append(entry)
        elif entry["status"] == score.OK and self._is_narrow:
            self._passed[problem].append(entry)
        else:
            self._progress.console.print(report.verdict_line(entry))
        if self._heard[problem] == sum(check.problem == problem for check in self._checks.values()):
            self._print_counted(problem)

    def _print_counted(self, problem: str) -> None:
        """Print how many checks of a problem are right and what they earn, then those that are to do.

        These come in one line if no other check has a verdict.
        """
        if entries := self._passed.pop(problem, []):
            earned, whole = sum(entry["score"] for entry in entries), sum(entry["max_score"] for entry in entries)
            count = f"{len(entries)} check{'s' if len(entries) > 1 else ''}"
            line: CheckEntry = {**entries[0], "score": earned, "max_score": whole, "measured": []}
            self._progress.console.print(report.verdict_line({**line, "claim": f"{problem}: {count}"}))
        entries = self._to_do.pop(problem, [])
        if len(entries) > 1 and len(entries) == self._heard[problem]:
            whole = sum(entry["max_score"] for entry in entries)
            entries = [{**entries[0], "max_score": whole, "claim": f"{problem}: {len(entries)} checks"}]
        for entry in entries:
            self._progress.console.print(report.verdict_line(entry))

    def pytest_unconfigure(self) -> None:
        for problem in [*self._passed, *self._to_do]:
            self._print_counted(problem)
        self._progress.stop()

    def _gathered(self, name: str) -> case.CheckCases:
        cases = tuple(sorted(self._cases[name], key=lambda case: case.name))
        return case.CheckCases(self._checks[name], cases, self._expected[name])

    def gathered(self) -> list[case.CheckCases]:
        return [*(self._gathered(name) for name in self._checks), *self._ungraded]
