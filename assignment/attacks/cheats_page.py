"""What came of the cheats, as a page, cheats.md: pure functions of the results, and one that writes the file."""

from pathlib import Path

from assignment.attacks import held
from assignment.attacks.cheats import CLASSES, CONFINED, Cheat
from assignment.attacks.judging import Result
from assignment.attacks.verdicts import VerdictRow
from assignment.judge.checks import Check

PAGE = Path(__file__).with_name("cheats.md")
HEAD = """# The cheats, and what came of them

Written by `python -m assignment.attacks cheats/ --sandbox NAME --sandbox NAME …`, not by hand. A cheat is *held* if its
run of grade.py ended in time with a whole and honest report, left nothing behind, cost nobody else a point and its
author what the bank says: no point for a function that it replaces. *Open* is what no limit can hold: the rung
`rlimits` hides nothing."""


def write(rows: list[VerdictRow], checks: list[Check]) -> None:
    PAGE.write_text(render(rows, checks), encoding="utf-8")


def render(rows: list[VerdictRow], checks: list[Check]) -> str:
    """Return the whole page in Markdown."""
    problem_of = {check.name: check.problem for check in checks}
    cheats = [(row.entry.cheat, row) for row in rows if row.entry.cheat]
    return "\n\n".join([HEAD, _classes(cheats, problem_of), _cheats(cheats, problem_of)]) + "\n"


def summary(rows: list[VerdictRow], checks: list[Check]) -> str:
    problem_of = {check.name: check.problem for check in checks}
    runs = [(row.entry.cheat, result) for row in rows if row.entry.cheat for result in row.results]
    return f"{_held(runs, problem_of)} runs of cheats held" if runs else ""


def _classes(cheats: list[tuple[Cheat, VerdictRow]], problem_of: dict[str, str]) -> str:
    """Return a table of class × rung: how many of how many runs were held."""
    runs = [(cheat, result) for cheat, row in cheats for result in row.results]
    rungs = sorted({result.rung for _, result in runs if result.rung})
    lines = [f"| class | {' | '.join(rungs)} |", "|---" * (len(rungs) + 1) + "|"]
    for group in CLASSES:
        own = [(cheat, result) for cheat, result in runs if cheat.group == group]
        by_rung = [[(cheat, result) for cheat, result in own if result.rung == rung] for rung in rungs]
        where = "" if group in CONFINED else " (any sandbox)"
        lines.append(f"| {group}{where} | {' | '.join(_held(found, problem_of) for found in by_rung)} |")
    return "\n".join(lines)


def _held(runs: list[tuple[Cheat, Result]], problem_of: dict[str, str]) -> str:
    """Return how many were held, and are open: "58 of 60, 2 open"."""
    runs = [(cheat, result) for cheat, result in runs if not held.is_unavailable(result)]
    n_open = sum(held.is_open(cheat, result) for cheat, result in runs)
    n_held = sum(not held.wrong(cheat, result, problem_of) for cheat, result in runs) - n_open
    return f"{n_held} of {len(runs)}" + (f", {n_open} open" if n_open else "") if runs else ""


def _cheats(cheats: list[tuple[Cheat, VerdictRow]], problem_of: dict[str, str]) -> str:
    lines = ["| cheat | attacks | must | came |", "|---|---|---|---|"]
    for cheat, row in cheats:
        came = "; ".join(dict.fromkeys(held.came(cheat, result, problem_of) for result in row.results))
        lines.append(f"| {cheat.group}/{cheat.name} | {cheat.problem} | {cheat.expectation} | {came} |")
    return "\n".join(lines)
