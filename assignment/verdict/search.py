"""The search for causes during a run: what was found, or not found, is not searched again."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from torch import Tensor

from assignment.protocol.requests import Called
from assignment.verdict.diagnosis import candidates, matching
from assignment.verdict.finding import Explanation
from tests.compare import Expected

MOST_IN_VAIN = 3  # results of a check that are looked into without finding anything
BUDGET_S = 2.0  # for a result


class Search:
    """The search of one process that judges.

    What does not explain a function's first check, the plainest, explains none of its checks
    (`agree.agreed_hints`): where that one is wrong, only what was found there is tried on the others.
    """

    def __init__(self) -> None:
        self._known: defaultdict[str, dict[Explanation, None]] = defaultdict(dict)  # by function
        self._first_is_wrong: set[str] = set()  # functions
        self._in_vain: Counter[str] = Counter()  # by check

    def causes(
        self,
        check: str,
        function: str,
        is_first: bool,
        request: Called | None,
        sent: Sequence[Tensor],
        got: Sequence[Tensor],
        expected: dict[str, Expected],
    ) -> list[Explanation] | None:
        """Return what may explain a wrong result of a check; None if it was not searched.

        Args:
            check: its name.
            function: that it is about.
            is_first: whether it is the function's plainest check.
            request: of judge/door.py, and the tensors sent with it.
            got: what came.
            expected: what should have come.
        """
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
        calls = candidates.calls(request, sent) if request else []
        found = matching.causes(calls, got, expected, known, BUDGET_S, only_known=only_known)
        if is_first:
            self._first_is_wrong.add(function)
        if not only_known:
            known |= dict.fromkeys(found)
            self._in_vain[check] += not found
        return found
