"""What came of the cheats: the table that is printed, and the section of results.md."""

from assignment.bank.cheats import CLASSES, CONFINED, Cheat
from assignment.bank.run import held
from assignment.bank.run.judging import Result
from assignment.bank.run.results_page import listed, table
from assignment.bank.run.verdicts import VerdictRow, judge
from assignment.verdict.checks import Check

TITLE = "Cheats"  # section of results.md
HEAD = """cheats. One is *held* if its run of grade.py ended in time with a whole and honest report, left nothing
behind, cost nobody else a point and its author what the bank says: no point for a function that it replaces. *Open* is
what no limit can hold: the rung `rlimits` hides nothing. Known tricks and their cheats: [tricks.md](tricks.md)."""


def section(rows: list[VerdictRow], checks: list[Check]) -> str:
    """Return class × rung, and each cheat that is not simply held: open, in review, or not as the bank says."""
    problem_of = {check.name: check.problem for check in checks}
    cheats = [(row.entry.cheat, row) for row in rows if row.entry.cheat]
    review = [f"{_name(cheat)}: {came}" for cheat, came in _came(cheats, problem_of) if "review" in came]
    is_open = [_name(c) for c, row in cheats if any(held.is_open(c, result) for result in row.results)]
    lines = [
        *listed("What the command complains of", judge([row for row in rows if row.entry.cheat], checks)),
        *listed("Open", is_open),
        *listed("For staff to look at", review),
    ]
    return "\n".join([f"{len(cheats)} {HEAD}", "", _classes(cheats, problem_of), *lines])


def render(rows: list[VerdictRow], checks: list[Check]) -> str:
    """Return a table in Markdown: what came of each cheat."""
    problem_of = {check.name: check.problem for check in checks}
    cheats = [(row.entry.cheat, row) for row in rows if row.entry.cheat]
    found = _came(cheats, problem_of)
    cells = ([_name(cheat), cheat.problem, cheat.expectation, came] for cheat, came in found)
    return "\n".join(table("cheat | attacks | must | came", cells))


def _name(cheat: Cheat) -> str:
    return f"{cheat.group}/{cheat.name}"


def _came(cheats: list[tuple[Cheat, VerdictRow]], problem_of: dict[str, str]) -> list[tuple[Cheat, str]]:
    """Return the cheats with what came of them, each different outcome once."""
    return [
        (cheat, "; ".join(dict.fromkeys(held.came(cheat, result, problem_of) for result in row.results)))
        for cheat, row in cheats
    ]


def summary(rows: list[VerdictRow], checks: list[Check]) -> str:
    """Return how many runs of cheats are held."""
    problem_of = {check.name: check.problem for check in checks}
    runs = [(row.entry.cheat, result) for row in rows if row.entry.cheat for result in row.results]
    return f"{_held(runs, problem_of)} runs of cheats held" if runs else ""


def _classes(cheats: list[tuple[Cheat, VerdictRow]], problem_of: dict[str, str]) -> str:
    """Return a table of class × rung: how many of how many runs were held."""
    runs = [(cheat, result) for cheat, row in cheats for result in row.results]
    rungs = sorted({result.rung for _, result in runs if result.rung})
    cells = []
    for group in CLASSES:
        own = [(cheat, result) for cheat, result in runs if cheat.group == group]
        by_rung = [[(cheat, result) for cheat, result in own if result.rung == rung] for rung in rungs]
        where = "" if group in CONFINED else " (any sandbox)"
        cells.append([f"{group}{where}", *(_held(found, problem_of) for found in by_rung)])
    return "\n".join(table(" | ".join(["class", *rungs]), cells))


def _held(runs: list[tuple[Cheat, Result]], problem_of: dict[str, str]) -> str:
    """Return how many were held, and are open: "58 of 60, 2 open"."""
    runs = [(cheat, result) for cheat, result in runs if not held.is_unavailable(result)]
    n_open = sum(held.is_open(cheat, result) for cheat, result in runs)
    n_held = sum(not held.wrong(cheat, result, problem_of) for cheat, result in runs) - n_open
    return f"{n_held} of {len(runs)}" + (f", {n_open} open" if n_open else "") if runs else ""
