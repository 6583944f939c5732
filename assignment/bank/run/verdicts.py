"""From results to verdicts: which bugs are caught and which variants keep their points. Pure functions."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from assignment.bank.bugs import gathered
from assignment.bank.corpus import BUG, CHEAT, VARIANT, Entry
from assignment.bank.run import held, yardstick
from assignment.bank.run.judging import CAUGHT, Result, Verdict
from assignment.verdict import reporting, score
from assignment.verdict.checks import Check

NAMED, WRONGLY = 0.8, 0.02  # of all bugs: how many must be told by name or line, and how many may get another's name
MANY = 100  # bugs; of fewer no share is asked for
HONEST = 0.5  # the largest error over bound that a right submission may reach

# By problem: the checks of another one that its bugs may cost too. Everything else is graded apart.
SHARED = gathered("bugs", "SHARED")


@dataclass(frozen=True)
class VerdictRow:
    """One entry with its results on all seeds."""

    entry: Entry
    results: tuple[Result, ...]

    @cached_property
    def kills(self) -> dict[str, tuple[int, float]]:
        """Check → on how many seeds it failed, and the least margin of those."""
        found: dict[str, tuple[int, float]] = {}
        for result in self.results:
            for name in result.failed:
                seeds, least = found.get(name, (0, math.inf))
                found[name] = seeds + 1, min(least, result.verdicts[name].margin)
        return found

    @cached_property
    def verdicts(self) -> list[tuple[Result, str, Verdict]]:
        """The verdict of each check on each seed."""
        return [(result, name, verdict) for result in self.results for name, verdict in result.verdicts.items()]

    def seeds(self, check: str) -> int:
        """Return on how many seeds a check was run."""
        return sum(check in result.verdicts for result in self.results)

    @property
    def margins(self) -> dict[str, tuple[float, int, str]]:
        """Check → the largest margin, with the seed and the case that it was seen on; but for checks that it pays."""
        worst: dict[str, tuple[float, int, str]] = {}
        for result, name, verdict in self.verdicts:
            if name not in self.entry.pays:
                seen = (verdict.margin, result.seed, verdict.case)
                worst[name] = max(worst.get(name, seen), seen)
        return worst

    @property
    def worst(self) -> tuple[float, str]:
        """The largest margin of all checks, and the check."""
        return max(((margin, name) for name, (margin, *_) in self.margins.items()), default=(0.0, ""))


@dataclass
class Complaints:
    """What is not as it must be, a line each."""

    lines: list[str] = field(default_factory=list)

    def add(self, row: VerdictRow, text: str) -> None:
        self.lines.append(f"{row.entry.name}: {text}")


def judge(rows: Iterable[VerdictRow], declared: list[Check]) -> list[str]:
    """Return everything that is not as the corpus says."""
    rows, findings = list(rows), Complaints()
    problem_of = {check.name: check.problem for check in declared}
    for row in rows:
        if row.entry.kind == BUG:
            _judge_bug(row, problem_of, findings)
        elif row.entry.kind == CHEAT:
            _judge_cheat(row, problem_of, findings)
        else:
            _judge_variant(row, findings)
    _judge_naming(rows, findings.lines)
    _judge_yardstick(costs(rows, declared), findings)
    return findings.lines


@dataclass(frozen=True)
class Cost:
    """What a defect of the yardstick costs in its problem, on one seed."""

    row: VerdictRow
    failed: tuple[str, ...]  # checks of its problem
    lost: float  # points
    points: float  # that the problem has

    @property
    def defect(self) -> yardstick.Defect:
        return yardstick.DEFECTS[self.row.entry.name]

    @property
    def is_told(self) -> bool:
        return bool(naming([self.row])[0])


def costs(rows: Iterable[VerdictRow], declared: list[Check]) -> list[Cost]:
    """Return the costs of the defects among the rows that were graded by all checks."""
    points = {check.name: (check.problem, check.points) for check in declared}
    found = []
    for row in rows:
        if row.entry.name in yardstick.DEFECTS and len(row.results[0].verdicts) > 1:
            own = {name: worth for name, (problem, worth) in points.items() if problem == row.entry.problem}
            failed = tuple(name for name in row.results[0].failed if name in own)
            found.append(Cost(row, failed, sum(own[name] for name in failed), sum(own.values())))
    return found


def _judge_yardstick(found: list[Cost], findings: Complaints) -> None:
    for cost in found:
        if cost.lost > yardstick.SHARE * cost.points:
            checks, most = ", ".join(cost.failed), f"at most {yardstick.SHARE:.0%} may be lost"
            findings.add(cost.row, f"costs {cost.lost:g} of {cost.points:g} points, {most}: {checks}")
    n_told = sum(cost.is_told for cost in found)
    if len(found) == len(yardstick.DEFECTS) and n_told < yardstick.TOLD * len(found):
        asked = f"{yardstick.TOLD:.0%} is asked for"
        findings.lines.append(f"{n_told} of the yardstick's {len(found)} defects are told: {asked}")


def _judge_cheat(row: VerdictRow, problem_of: dict[str, str], findings: Complaints) -> None:
    assert row.entry.cheat is not None
    for result in row.results:
        for text in held.wrong(row.entry.cheat, result, problem_of):
            findings.add(row, f"{text} (seed {result.seed}, {result.rung or 'no sandbox'})")


def _judge_variant(row: VerdictRow, findings: Complaints) -> None:
    pays, is_doubted = row.entry.pays, row.entry.is_doubted
    for result, name, verdict in row.verdicts:
        if name in result.failed and name not in pays:
            findings.add(row, f"loses {name} [{verdict.case}] on seed {result.seed}: {verdict.message}")
        if name in pays and name not in result.failed:
            findings.add(row, f"was to lose {name}, and keeps it on seed {result.seed}")
        if verdict.status == score.NEEDS_REVIEW and not is_doubted:
            findings.add(row, f"is doubted in {name} on seed {result.seed}: {verdict.message}")
    if is_doubted and all(verdict.status != score.NEEDS_REVIEW for *_, verdict in row.verdicts):
        findings.add(row, "was to be for staff to look at, and is not")
    for hint in {str(hint) for *_, verdict in row.verdicts for hint in verdict.hints or ()}:
        findings.add(row, f"is right, and gets a hint: {hint}")
    for note in sorted({note for *_, verdict in row.verdicts for note in verdict.notes}):
        findings.add(row, f"is warned: {note}")
    margin, name = row.worst
    if not set(row.kills) - set(row.entry.pays) and margin > HONEST:
        _, seed, case = row.margins[name]
        findings.add(row, f"margin {margin:.3f} on {name} [{case}], seed {seed}; at most {HONEST} is honest")


def _judge_bug(row: VerdictRow, problem_of: dict[str, str], findings: Complaints) -> None:
    entry = row.entry
    if entry.caught_by not in problem_of:
        findings.add(row, f"there is no check {entry.caught_by}")
        return
    seeds, margin = row.kills.get(entry.caught_by, (0, 0.0))
    if seeds < row.seeds(entry.caught_by):
        others, n = ", ".join(name for name in row.kills if name != entry.caught_by), row.seeds(entry.caught_by)
        findings.add(row, f"{entry.caught_by} caught it on {seeds} of {n} seeds; also: {others or 'nothing'}")
    elif margin < CAUGHT:
        findings.add(row, f"{entry.caught_by} caught it by {margin:.2f} times the bound; at least {CAUGHT} is safe")
    _judge_line(row, findings)
    for name in row.kills:
        if problem_of[name] != entry.problem and name not in SHARED.get(entry.problem, []):
            findings.add(row, f"costs points in {problem_of[name]}: {name}")
    if any(verdict.status == score.GRADER_ERROR for *_, verdict in row.verdicts):
        findings.add(row, "the grader failed on it")


def is_caught(row: VerdictRow) -> bool:
    """Return whether the check that must catch a bug does so on every seed."""
    return row.kills.get(row.entry.caught_by, (0, 0.0))[0] == row.seeds(row.entry.caught_by)


def told(entry: Entry, verdict: Verdict) -> tuple[bool, bool]:
    """Return whether a failure names the bug, or quotes its line; and whether it names another."""
    hints = verdict.hints or []
    said = "\n".join([verdict.message, *verdict.notes, *map(str, hints)])
    names = {hint.name for hint in hints}
    is_quoted = bool(entry.line and entry.line in verdict.message)
    is_right = is_quoted or any(name in names or name in said for name in entry.named)
    return is_right, bool(hints) and not is_right


def naming(rows: Iterable[VerdictRow]) -> tuple[list[str], list[str]]:
    """Return the bugs that are told on every seed, and those that get a wrong name on one."""
    right, wrong = [], []
    for row in rows:
        if row.entry.kind == BUG:
            check = row.entry.caught_by
            found = [told(row.entry, result.verdicts[check]) for result in row.results if check in result.failed]
            right += [row.entry.name] * (bool(found) and all(is_right for is_right, _ in found))
            wrong += [row.entry.name] * any(is_wrong for _, is_wrong in found)
    return right, wrong


def misnamed(rows: Iterable[VerdictRow]) -> list[tuple[str, str, str]]:
    """Yield every bug, failed check and hint that names another bug, be it the check that must catch the bug or not."""
    found = {
        (row.entry.name, check, reporting.OR.join(map(str, result.verdicts[check].hints or ()))): None
        for row in rows
        if row.entry.kind == BUG
        for result in row.results
        for check in result.failed
        if told(row.entry, result.verdicts[check])[1]
    }
    return list(found)


def _judge_naming(rows: list[VerdictRow], findings: list[str]) -> None:
    n_bugs, (right, wrong) = sum(row.entry.kind == BUG for row in rows), naming(rows)
    if n_bugs < MANY:
        return
    if len(right) < NAMED * n_bugs:
        findings.append(f"{len(right)} of {n_bugs} bugs are told by name or line: {NAMED:.0%} is asked for")
    if len(wrong) > WRONGLY * n_bugs:
        named = ", ".join(wrong)
        findings.append(f"{len(wrong)} of {n_bugs} bugs get a wrong name, at most {WRONGLY:.0%} may: {named}")


def _judge_line(row: VerdictRow, findings: Complaints) -> None:
    """Note where misused memory is told by wrong values somewhere else, and not by the line at fault."""
    check, line = row.entry.caught_by, row.entry.line
    for result in row.results:
        if check in result.failed and line not in (message := result.verdicts[check].message):
            findings.add(row, f"{check} does not quote {line!r} on seed {result.seed}: {message}")


def only_killer(rows: Iterable[VerdictRow]) -> dict[str, list[str]]:
    """Check → the bugs that no other check of any problem catches."""
    unique: dict[str, list[str]] = {}
    for row in rows:
        if row.entry.kind == BUG and len(row.kills) == 1:
            unique.setdefault(next(iter(row.kills)), []).append(row.entry.name)
    return unique


def honest_margin(rows: Iterable[VerdictRow], check: str) -> tuple[float, str]:
    """Return the largest margin of a check over all right submissions, and the submission."""
    right = (row for row in rows if row.entry.kind == VARIANT and check in row.margins)
    return max(((row.margins[check][0], row.entry.name) for row in right), default=(0.0, ""))


def weakest_bug(rows: Iterable[VerdictRow], check: str) -> tuple[float, str]:
    """Return the bug that exceeds this check's bound by the least, among those that it must catch."""
    own = [row for row in rows if row.entry.caught_by == check]
    return min(((row.kills.get(check, (0, 0.0))[1], row.entry.name) for row in own), default=(math.inf, ""))
