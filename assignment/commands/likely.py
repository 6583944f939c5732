"""Likely causes, looked for when all verdicts are known, function by function."""

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor

from rich.console import Console

from assignment.plugin import parallel
from assignment.system import here
from assignment.verdict import checks
from assignment.verdict.case import CheckCases


def explained(
    gathered: Sequence[CheckCases], jobs: int, console: Console, is_thorough: bool = False
) -> list[CheckCases]:
    """Return checks with what may explain their cases, in so many processes.

    The result does not depend on their number, nor on the order in which cases were judged.
    is_thorough: go on until every model has been tried.
    """
    order = {check.name: i for i, check in enumerate(checks.declared())}
    functions: dict[str, list[CheckCases]] = {}
    for of in sorted(gathered, key=lambda of: order[of.check.name]):
        if any(case.wrong for case in of.cases):
            functions.setdefault(of.check.function, []).append(of)
    parts, thorough = [*functions.values()], [is_thorough] * len(functions)
    if not parts:
        return [*gathered]
    with console.status("looking for likely causes"):
        if min(jobs, len(parts)) == 1:
            found = [*map(of_function, parts, thorough)]
        else:
            with ProcessPoolExecutor(min(jobs, len(parts)), here.CONTEXT, here.die_with_parent) as executor:
                with here.interrupts_unheard():
                    finding = executor.map(of_function, parts, thorough)
                found = [*finding]
    by_name = {of.check.name: of for part in found for of in part}
    return [by_name.get(of.check.name, of) for of in gathered]


def of_function(gathered: Iterable[CheckCases], is_thorough: bool) -> list[CheckCases]:
    """Return checks of one function, the plainest first, with what may explain their cases."""
    from assignment.verdict import search  # loads PyTorch

    parallel.compute_alone()
    searching = search.Search(math.inf if is_thorough else search.ELEMENTS)
    return [searching.explained(of) for of in gathered]
