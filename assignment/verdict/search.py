"""The search for causes, once results are known to be wrong: it goes through them in one order, whoever judged them."""

import base64
import io
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assignment import failure
from assignment.protocol.requests import Called
from assignment.verdict import checks
from assignment.verdict.case import Case, CheckCases
from assignment.verdict.diagnosis import candidates, matching
from assignment.verdict.diagnosis.matching import Budget
from assignment.verdict.finding import Explanation
from tests.compare import Expected

MOST_IN_VAIN = 3  # results of a check that are looked into without finding anything
TIMES_ENOUGH = 3  # results that something explains, before it is taken for what is wrong with others that it explains
MOST_BYTES = 1 << 26  # of the memory that an input lies in
ELEMENTS = 96e6  # of results that models compute, for a check
SHARE = 0.5  # of what is left, for one result: a large one leaves enough for small ones


@dataclass(frozen=True)
class WrongResult:
    """A wrong result, what it was asked for by, and what should have come."""

    request: Called | None  # of judge/door.py
    sent: Sequence[Tensor]
    got: Sequence[Tensor]
    expected: dict[str, Expected]

    def packed(self) -> str:
        """Return the result as text, for another process of the grader's."""
        expected = {name: (one.value, one.allowed, one.dtype, one.rows) for name, one in self.expected.items()}
        parts, data = ([*map(movable, self.sent)], [got.clone() for got in self.got]), io.BytesIO()
        torch.save((self.request, *parts, expected), data)  # pickle alone has no floats of 8 bits
        return base64.b64encode(data.getvalue()).decode()

    @classmethod
    def unpacked(cls, data: str) -> "WrongResult":
        """Return what packed() made text of."""
        request, sent, got, expected = torch.load(io.BytesIO(base64.b64decode(data)), weights_only=False)
        return cls(request, sent, got, {name: Expected.within(*one) for name, one in expected.items()})


def movable(tensor: Tensor) -> Tensor:
    """Return a tensor with the memory that it lies in; in memory of its own where that is large."""
    return tensor if tensor.untyped_storage().nbytes() <= MOST_BYTES else tensor.clone()


def work(case: Case) -> int:
    """Return how many elements a model of a case's wrong result computes."""
    wrong = WrongResult.unpacked(case.wrong) if case.wrong else None
    calls = candidates.calls(wrong.request, wrong.sent) if wrong and wrong.request else []
    return sum(map(candidates.elements, calls))


class Search:
    """The search for what may explain the wrong results of one submission.

    What does not explain a function's first check, the plainest, explains none of its checks
    (`agree.agreed_hints`): where that one is wrong, only what was found there is tried on the others.
    """

    def __init__(self, elements: float = ELEMENTS) -> None:
        self._known: defaultdict[str, Counter[Explanation]] = defaultdict(Counter)  # by function: how often
        self._first_is_wrong: set[str] = set()  # functions
        self._in_vain: Counter[str] = Counter()  # by check
        self._left: defaultdict[str, float] = defaultdict(lambda: elements)  # likewise: elements

    def explained(self, of: CheckCases) -> CheckCases:
        """Return a check with what may explain its cases, those looked at first whose models compute the least."""
        by_work = sorted(of.cases, key=lambda case: (work(case), case.name))
        found = {case.name: self.look(of.check.name, case) for case in by_work}
        return replace(of, cases=tuple(found[case.name] for case in of.cases))

    def look(self, check: str, case: Case) -> Case:
        """Return a case of a check with what may explain it, and without its wrong result."""
        if not case.wrong:
            return case
        staff: list[str] = []

        def causes() -> list[Explanation] | None:
            return self.causes(check, *checks.place(check), WrongResult.unpacked(case.wrong))

        hints = failure.diagnosed("no likely cause was found", causes, None, staff)
        told = None if hints is None else tuple(hints)
        return replace(case, hints=told, wrong="", staff=(*case.staff, *staff))

    def causes(self, check: str, function: str, is_first: bool, wrong: WrongResult) -> list[Explanation] | None:
        """Return what may explain a wrong result of a check; None if it was not searched, or not to the end.

        Args:
            check: its name.
            function: that it is about.
            is_first: whether it is the function's plainest check.
            wrong: the result.
        """
        got, expected = wrong.got, wrong.expected
        if self._in_vain[check] >= MOST_IN_VAIN:
            return None
        if not any(output.double().isfinite().any() for output in got) and not matching.is_nan_of_nothing(
            got, expected
        ):
            return []
        known = self._known[function]
        only_known = function in self._first_is_wrong and not is_first
        if only_known and not known:
            return None
        calls = candidates.calls(wrong.request, wrong.sent) if wrong.request else []
        budget = Budget(self._left[check] * SHARE)
        is_sure = max(known.values(), default=0) >= TIMES_ENOUGH
        found = matching.causes(
            calls, got, expected, known, budget, only_known, math.inf if is_sure else matching.CLOSE
        )
        self._left[check] -= budget.spent
        if is_first:
            self._first_is_wrong.add(function)
        if not only_known:
            known.update(found)
            self._in_vain[check] += not found and not budget.is_spent
        return None if budget.is_spent and not found else found
