"""Chooses what is told of what may explain cases: the checks of a function agree on it."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from assignment.verdict.case import CheckCases
from assignment.verdict.finding import Explanation


def agreed_hints(checks: Sequence[CheckCases]) -> list[tuple[Explanation, ...]]:
    """Return what is likely of each check: one hint, or two that explain the same, the most of its function's cases.

    Where a function's first check, the plainest, is wrong, what does not explain it explains nothing else.
    """
    looked_into = [(of.check.function, [case.hints for case in of.cases if case.hints is not None]) for of in checks]
    plain: dict[str, list[tuple[Explanation, ...]]] = {}
    everywhere: defaultdict[str, Counter[Explanation]] = defaultdict(Counter)
    for function, hints in looked_into:
        plain.setdefault(function, hints)
        everywhere[function].update(hint for of_case in hints for hint in of_case)
    return [_consistent(_likely(hints, everywhere[function]), plain[function]) for function, hints in looked_into]


def _likely(hints: Sequence[Sequence[Explanation]], everywhere: Mapping[Explanation, int]) -> tuple[Explanation, ...]:
    """Return, of what may explain each case that was looked into, what explains the most; the likelier come first.

    Two where both explain them all, and as much elsewhere. Nothing where it explains fewer than half: that is chance.
    everywhere: how many cases each explains in all, which goes before.
    """
    votes = Counter(hint for of_case in hints for hint in of_case)
    enough = [hint for hint, count in votes.most_common() if 2 * count >= len(hints)]
    if not enough:
        return ()
    best = max(enough, key=lambda hint: (everywhere[hint], not hint.is_rare))
    same = len(hints), everywhere[best]
    alike = [hint for hint in enough if not hint.is_rare and (votes[hint], everywhere[hint]) == same]
    return tuple(dict.fromkeys([best, *alike])) if votes[best] == len(hints) else (best,)


def _consistent(found: Sequence[Explanation], plain: Sequence[Sequence[Explanation]]) -> tuple[Explanation, ...]:
    """Return what explains a case of the function's first check, too; all of it where that one has none."""
    return tuple(hint for hint in found if not plain or any(hint in of_case for of_case in plain))
