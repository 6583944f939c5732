"""What came of bugs and right submissions: the tables that are printed, and the section of results.md."""

import math

from assignment.bank.bugs import gathered
from assignment.bank.corpus import BUG, VARIANT, graded
from assignment.bank.run import verdicts
from assignment.bank.run.judging import CAUGHT
from assignment.bank.run.results_page import listed, rows_of, table
from assignment.bank.run.verdicts import HONEST, Cost, VerdictRow
from assignment.verdict.checks import Check, problems
from tests import operators

TITLE, YARDSTICK = "Planted bugs and right submissions", "Single defects"  # sections of results.md

# Checks that may catch no bug alone, by the end of their names, and why they are there all the same.
REASONS = {
    "_values": "plain inputs carry 40 % of the points: what fails here fails elsewhere too",
    "_causal": "plain causal inputs: what fails here fails on ragged ones too",
    "_properties": "the only check that rests on no oracle",
    "_memory": "what makes such a tensor in the bank also moves too much",
    **gathered("bugs", "REASONS"),
}


def render(rows: list[VerdictRow], checks: list[Check]) -> str:
    """Return all tables in Markdown: checks, right submissions, and bug × check for each problem."""
    parts = [summary(rows), _checks(rows, checks), yardstick(verdicts.costs(rows, checks)), _variants(rows)]
    with_bugs = {row.entry.problem for row in rows if row.entry.kind == BUG}
    parts += [_matrix(problem, rows, checks) for problem in operators.problems() if problem in with_bugs]
    return "\n\n".join(part for part in parts if part) + "\n"


def section(rows: list[VerdictRow], checks: list[Check]) -> str:
    """Return the totals, a line for each problem, and everything that is not perfect."""
    header = "problem | bugs | caught | least margin | of | right | largest margin | of"
    lines = [
        f"Bugs were graded on {_seeds(rows, BUG)} seeds, right submissions on {_seeds(rows, VARIANT)}. A margin is",
        f"the largest error over its bound: at most {HONEST} is honest, at least {CAUGHT:g} is safely caught, and ∞ is",
        "what cannot be measured, such as a NaN, a wrong shape or an exception.",
        "",
        *(f"- {line}" for line in summary(rows).splitlines()),
        "",
        *table(header, (_problem_cells(problem, rows, checks) for problem in operators.problems())),
    ]
    return "\n".join(lines + _imperfect(rows, checks))


def _seeds(rows: list[VerdictRow], kind: str) -> int:
    return max((len(row.results) for row in rows if row.entry.kind == kind), default=0)


def _problem_cells(problem: str, rows: list[VerdictRow], checks: list[Check]) -> list[str]:
    own = [check.name for check in checks if check.problem == problem]
    bugs = [row for row in rows if row.entry.kind == BUG and row.entry.problem == problem]
    right = [row for row in rows if row.entry.kind == VARIANT and problem in row.entry.problems]
    weakest, bug = min((verdicts.weakest_bug(bugs, name) for name in own), default=(math.inf, ""))
    honest, variant = max((verdicts.honest_margin(right, name) for name in own), default=(0.0, ""))
    cells = [problem, str(len(bugs)), str(sum(map(verdicts.is_caught, bugs))), _number(weakest), _short(bug)]
    return [*cells, str(len(right)), f"{honest:.3f}", _short(variant)]


def _imperfect(rows: list[VerdictRow], checks: list[Check]) -> list[str]:
    told = set(verdicts.naming(rows)[0])
    untold = [row.entry.name for row in rows if row.entry.kind == BUG and row.entry.name not in told]
    paying = [f"{_short(row.entry.name)}: {', '.join(map(_column, row.entry.pays))}" for row in rows if row.entry.pays]
    return [
        *listed("What the command complains of", verdicts.judge(rows, checks)),
        *listed("Bugs that neither their name nor their line tells", [name.removeprefix("bugs/") for name in untold]),
        *listed("Right submissions that pay for their style, and in which checks", paying),
    ]


def yardstick(found: list[Cost]) -> str:
    """Return what single defects cost; nothing where none was graded by all checks."""
    if not found:
        return ""
    told = sum(cost.is_told for cost in found)
    lines = [
        "Real students' mistakes, one at a time, on one seed. Each costs the check that is there for it, and at most a",
        f"quarter of its problem. {told} of {len(found)} are told by a hint or by their line.",
        "",
    ]
    cells = []
    for cost in found:
        entry = cost.row.entry
        others = ", ".join(_column(name) for name in cost.failed if name != entry.caught_by)
        direction = "backward" if "backward" in entry.problem else "forward"
        named, lost = f"{direction}: {cost.defect.title}", f"{cost.lost:g} of {cost.points:g}"
        is_told = "yes" if cost.is_told else ""
        cells.append([named, _short(entry.name), lost, _column(entry.caught_by), others, is_told])
    return "\n".join([*lines, *table("defect | bug | costs | its check | others | told", cells)])


def useless(rows: list[VerdictRow], checks: list[Check]) -> list[str]:
    """Return the checks that neither kill a bug alone nor have a reason, where bugs were graded by all checks.

    Problems that the committed page does not have yet are passed over.
    """
    if not _is_whole(rows):
        return []
    alone, new = verdicts.only_killer(rows), not_in_page(rows)
    names = [c.name for c in checks if c.problem not in new and c.name not in alone and not _reason(c.name)]
    return [f"{name}: catches no bug that no other check catches, and REASONS has no reason" for name in names]


def not_in_page(rows: list[VerdictRow]) -> list[str]:
    """Return the problems of bugs that the committed page does not have yet."""
    return sorted({row.entry.problem for row in rows if row.entry.kind == BUG} - {*rows_of(TITLE)})


def _is_whole(rows: list[VerdictRow]) -> bool:
    """Return whether bugs were graded by more than the check that must catch them."""
    return any(len(result.verdicts) > 1 for row in rows if row.entry.kind == BUG for result in row.results)


def _reason(check: str) -> str:
    return next((reason for end, reason in REASONS.items() if check.endswith(end)), "")


def summary(rows: list[VerdictRow]) -> str:
    """Return how many bugs are caught and told, and how many right submissions keep their points."""
    bugs = [row for row in rows if row.entry.kind == BUG]
    variants = [row for row in rows if row.entry.kind == VARIANT]
    lines = []
    if bugs:
        caught = sum(map(verdicts.is_caught, bugs))
        right, wrong = verdicts.naming(rows)
        lines.append(f"{caught} of {len(bugs)} planted bugs caught by their own check on every seed")
        lines.append(f"{len(right)} of them are told by their name or their line, {len(wrong)} get a wrong name")
        lines += _over_all_checks(bugs) if _is_whole(bugs) else []
    if variants:
        kept = sum(not set(row.kills) - set(row.entry.pays) for row in variants)
        margin, check, name = max((*row.worst, row.entry.name) for row in variants)
        paying = sum(bool(row.entry.pays) for row in variants)
        paid = f"but for points of cost that {paying} of them pay for their style"
        lines.append(f"{kept} of {len(variants)} right submissions keep every point on every seed, {paid}")
        lines.append(f"the largest error of a right submission is {margin:.3f} of its bound: {name}, {check}")
    return "\n".join(lines)


def _over_all_checks(bugs: list[VerdictRow]) -> list[str]:
    """Return the wrong names of the checks that a bug fails, its own and others; each pair of bug and check once."""
    failures = {(row.entry.name, check) for row in bugs for check in row.kills}
    wrong = {(bug, check): hint for bug, check, hint in verdicts.misnamed(bugs)}
    line = f"over all checks {len(wrong)} of {len(failures)} failures get a wrong name"
    return [f"{line}, of {len({bug for bug, _ in wrong})} bugs"]


def _checks(rows: list[VerdictRow], checks: list[Check]) -> str:
    alone = verdicts.only_killer(rows) if (is_whole := _is_whole(rows)) else {}
    lines = [
        "## Checks",
        "",
        "*Honest*: the largest margin of a right submission. *Weakest*: the least margin of a bug that the check must",
        "catch. *Alone*: how many bugs no other check catches, or why the check is there.",
        "",
    ]
    cells = []
    for check in checks:
        honest, variant = verdicts.honest_margin(rows, check.name)
        weakest, bug = verdicts.weakest_bug(rows, check.name)
        worth = str(len(alone[check.name])) if check.name in alone else _reason(check.name) or "0" * is_whole
        cells.append([f"`{check.name}`", f"{honest:.3f}", _short(variant) if honest else ""])
        cells[-1] += [_number(weakest) if bug else "", _short(bug), worth]
    return "\n".join([*lines, *table("check | honest | whose | weakest | bug | alone", cells)])


def _variants(rows: list[VerdictRow]) -> str:
    cells = []
    for row in rows:
        if row.entry.kind == VARIANT:
            margin, check = row.worst
            where = "everything" if row.entry.problems == graded() else ", ".join(row.entry.problems)
            pays = ", ".join(map(_column, row.entry.pays))
            cells.append([_short(row.entry.name), where, f"{margin:.3f}", f"`{check}`", pays])
    return "\n".join(
        ["## Right submissions", "", *table("submission | graded on | largest margin | check | pays", cells)]
    )


def _matrix(problem: str, rows: list[VerdictRow], checks: list[Check]) -> str:
    """Return a table of bug × check: the least margin by which a check caught the bug; bold for the one that must."""
    rows = [row for row in rows if row.entry.kind == BUG and row.entry.problem == problem]
    columns = [c.name for c in checks if c.problem == problem]
    columns += sorted({name for row in rows for name in row.kills} - set(columns))
    if not rows:
        return ""
    cells = ([_short(row.entry.name), *(_cell(row, name) for name in columns)] for row in rows)
    return "\n".join(
        [f"## {problems()[problem].title}", "", *table(" | ".join(["bug", *map(_column, columns)]), cells)]
    )


def _cell(row: VerdictRow, check: str) -> str:
    if check not in row.kills:
        return ""
    seeds, margin = row.kills[check]
    text = _number(margin) + (f" ({seeds}/{row.seeds(check)})" if seeds < row.seeds(check) else "")
    return f"**{text}**" if check == row.entry.caught_by else text


def _number(margin: float) -> str:
    if math.isinf(margin) or margin >= 1e6:
        return "∞"
    return f"{margin:.1f}" if margin < 10 else f"{margin:.0f}"


def _short(name: str) -> str:
    return name.rpartition("/")[2]


def _column(check: str) -> str:
    name = check.partition("::test_")[2]
    return name.removeprefix("pytorch_").removeprefix("triton_").replace("_", " ")
