"""`--next`: the first check that is not finished, in the order of the problems, and what comes after it."""

import pytest
from rich.console import Console
from rich.text import Text

from assignment import failure, text
from assignment.commands import likely, report, run
from assignment.commands.collector import Judge
from assignment.commands.settings import Settings
from assignment.system import here
from assignment.verdict import reporting, score, where
from assignment.verdict.case import Case
from assignment.verdict.checks import Check
from assignment.verdict.entries import CheckEntry

NOWHERE = -1


def by_function(selected: list[Check]) -> list[Check]:
    """Return all that a problem asks of one function, before the next function's."""
    firsts: dict[tuple[str, str], int] = {}
    for i, check in enumerate(selected):
        firsts.setdefault((check.problem, check.function), i)
    problems = {check.problem: i for i, check in reversed([*enumerate(selected)])}
    return sorted(selected, key=lambda check: (problems[check.problem], firsts[check.problem, check.function]))


def number_of(check: Check, selected: list[Check]) -> int:
    """Return a check's number, the same in whatever order: --watch puts first what a change concerns."""
    return sorted(other.name for other in selected).index(check.name)


class First(Judge):
    """Ends the run when the first check is known, in the order of those selected, that is not finished."""

    def __init__(self, selected: list[Check], console: Console, command: str) -> None:
        super().__init__(selected, console, command)
        self._selected = selected
        self._failures: dict[str, Case] = {}  # the first of each check
        self.entries: dict[str, CheckEntry] = {}  # of the checks that are complete

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        super().pytest_collection_finish(session)
        self._session = session

    def hear_failure(self, check: Check, told: Case) -> None:
        """Tell of the failure where all checks before this one are known to be right; else keep it until they are."""
        self._failures.setdefault(check.name, told)
        current = next(other for other in self._selected if not self.is_finished(other))
        if current.name in self._failures:
            super().hear_failure(current, self._failures[current.name])

    def hear(self, entry: CheckEntry) -> None:
        self.entries[entry["name"]] = entry
        if self.unfinished():
            self.has_enough = True
            self._session.shouldstop = "the first check that is not finished is known"

    def unfinished(self) -> Check | None:
        """Return the first unfinished check; None if there is none, and while one before it may be the first."""
        for check in self._selected:
            if check.name not in self.entries:
                return None
            if not self.is_finished(check):
                return check
        return None

    def is_finished(self, check: Check) -> bool:
        return check.name in self.entries and self.entries[check.name]["status"] in score.KEEPS_POINTS


class Following:
    """A mode of the grader. Where it is run again it begins with the check that it ended at: somebody is at work there.

    The runs of --watch are processes of their own, and share the number of that check.
    """

    def __init__(self) -> None:
        self._at = here.CONTEXT.Value("i", NOWHERE, lock=False)

    def __call__(self, settings: Settings, asked: run.GraderRun) -> int:
        pool, console = asked.pool, asked.console
        order = by_function(run.runnable(settings, asked.selected, pool))
        current = [check for check in order if number_of(check, order) == self._at.value]
        turns = [*current, *(check for check in order if check not in current)]
        command = settings.command(pool.seed)
        judge = First(turns, console, command)
        run.introduce(settings, pool, console)
        pool.shared.is_in_order = True
        if not run.judged(judge, turns, pool):
            return run.INTERRUPTED
        if judge.problems:
            return failure.tell(judge.problems)
        check = judge.unfinished()
        self._at.value = number_of(check, order) if check else NOWHERE
        if check is None:
            report.print_notes(console, judge.entries.values())
            console.print(Text(all_finished(settings, order), "bold green"))
            return run.GRADED
        complete = [of for of in judge.gathered() if of.check.name in judge.entries]
        complete = likely.explained(complete, pool.jobs, console)
        results = score.results(sorted(complete, key=lambda of: order.index(of.check)))
        (result,) = (result for result in results if result.check == check)
        show(console, judge, order, check, reporting.check_entry(result, command, settings.debugger(pool.seed)))
        report.print_notes(console, judge.entries.values())
        console.print(Text(f"  open:  {where.place(check)}"))
        console.print(Text(text.line(f"  all of it: {command} --explain {check.name}"), "dim"))
        console.print()
        console.print(Text(f"After it: {coming(order[order.index(check) + 1 :])}"))
        return run.BROKEN if result.status == score.GRADER_ERROR else run.GRADED


def show(console: Console, judge: First, order: list[Check], check: Check, entry: CheckEntry) -> None:
    """Print what is wrong with the check, or to do."""
    before = order[: order.index(check)]
    if before and all(judge.is_finished(other) for other in before):
        console.print(Text(f"{counted(len(before))} before it: all right.", "green"))
    if entry["status"] == score.TO_DO:
        show_todo(console, entry, where.place(check))
    else:
        report.print_failures(console, [entry], judge.import_error)


def show_todo(console: Console, entry: CheckEntry, place: where.Place) -> None:
    console.print(Text(f"{entry['name']}: to do, for {counted(entry['max_score'], 'point')}", "yellow"))
    console.print(Text(f"  {entry['claim']}"))
    message = report.short(entry["message"])
    if message != str(place):  # what a stub within the function says, or the student
        report.print_block(console, message)


def coming(after: list[Check]) -> str:
    if not after:
        return "nothing, it is the last one."
    more = f", and {counted(len(after) - 1)} more" if after[1:] else ""
    return f"{after[0].claim} ({counted(after[0].points, 'point')}){more}"


def all_finished(settings: Settings, order: list[Check]) -> str:
    if not order:
        return "Nothing here can be graded without a GPU."
    if settings.only:
        return f"All right: {counted(len(order))}. For the others, leave out --only."
    return f"All right: {counted(len(order))}. For the score: uv run grade.py"


def counted(number: float, what: str = "check") -> str:
    return f"{number:g} {what}{'' if number == 1 else 's'}"
