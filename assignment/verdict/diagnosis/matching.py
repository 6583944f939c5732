"""Which misconceptions explain a wrong result: models that agree with it within its bound."""

import copy
import functools
import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from assignment.operators.misconception import Call
from assignment.verdict.diagnosis.candidates import (
    MODELS,
    SEVERAL,
    Cause,
    both,
    elements,
    possible,
    right,
    too_large,
    two_at_once,
)
from assignment.verdict.diagnosis.closeness import are_near, distance, error_over_bound
from assignment.verdict.finding import Explanation
from tests.compare import Expected

# of the bound: a model that close agrees; others must be at most this many times as far off
CLOSE, FARTHER = 0.1, 3.0
# times: a model that reduces the error by so much explains it: errors grow with a wrong result
LESS = 300.0
FIRST = 2  # results of each model, before the others of any
MOST = 300.0  # times the bound, even then
# of the error that a model may leave, as a root mean square and at its largest
REST, REST_LARGEST = 0.02, 0.1
CALLED = "handout/grading.md#what-may-be-called"
OF_AN_EMPTY_BATCH = Explanation(
    "mean-of-an-empty-batch",
    "A sum over no rows is 0, and a mean over no rows is 0/0, which is NaN",
    look="What does your function do before it returns, where the batch is empty?",
)
ADDED_TO_ANOTHER = Explanation(
    "added-to-another-call",
    "Your result is that of this call added to that of the call before",
    CALLED,
    "Is memory kept from one call to the next, and added to without having been cleared?",
)
OF_ANOTHER_CALL = Explanation(
    "another-call",
    "Your result is right for the inputs of another call",
    CALLED,
    "Is a result kept or looked up from one call to the next? The same tensors may hold other values by then.",
)


def causes(
    calls: Iterable[Call],
    got: Sequence[Tensor],
    expected: dict[str, Expected],
    known: Collection[Explanation] = (),
    budget: "Budget | None" = None,
    only_known: bool = False,
    enough: float = CLOSE,
) -> list[Explanation]:
    """Return the misconceptions that explain one of the calls, the likelier first.

    Args:
        calls: what the result may be of.
        got: the wrong result.
        expected: what it is compared with.
        known: those to try first; where one of them explains the result closely, no other is tried.
        budget: that the search may use, which is the same on every machine.
        only_known: whether no other is tried in any case.
        enough: of the bound: what is close.
    """
    calls = list(calls)
    if of_all := told_at_once(calls, got, expected):
        return [of_all]
    found: dict[Explanation, float] = {}
    budget = budget or Budget()
    for call in calls:
        if call.function not in MODELS or too_large(call):
            continue
        result = Wrong(call, got, expected)
        if len(calls) > 1 and result.agrees(call.looked_at(right(call.function, call, call.tensors))):
            return [OF_ANOTHER_CALL]
        for is_known in (True, False) if known else (False,):
            tried = [one for one in possible(call.function, call) if (one.explanation in known) == is_known]
            for cause, error in zip(tried, result.explained_by(tried, budget), strict=True):
                if error < math.inf:
                    found[cause.explanation] = min(error, found.get(cause.explanation, math.inf))
            if only_known or min(found.values(), default=math.inf) <= enough:
                break
        if not found:
            of_several = {one.name for one in known if SEVERAL in one.name}
            if not only_known or of_several:
                found = several_at_once(result, budget)
            if only_known:
                found = {one: error for one, error in found.items() if one.name in of_several}
        if not found and (factor := constant_factor(result)) and (factor in known or not only_known):
            found[factor] = 1.0
    least = min(found.values(), default=0.0)
    return [one for one, error in found.items() if error <= max(CLOSE, FARTHER * least)]


def several_at_once(result: "Wrong", budget: "Budget") -> dict[Explanation, float]:
    """Return what explains a result as mistakes at once: a pair that the operator knows, or one for each output."""
    pairs = [*two_at_once(result.call.function)]
    errors = zip(pairs, result.explained_by(pairs, budget), strict=True)
    if found := {pair.explanation: error for pair, error in errors if error < math.inf}:
        return found
    singles = [cause for cause in possible(result.call.function, result.call) if cause.is_misconception]
    nearest: dict[Explanation, float] = {}
    wrong = result.by_output()
    for one in wrong if len(wrong) > 1 else ():
        error, i = min(zip(one.explained_by(singles, budget), range(len(singles)), strict=True), default=(math.inf, 0))
        if error > 1 or singles[i].explanation in nearest:
            return {}
        nearest[singles[i].explanation] = error
    return {both([*nearest]): max(nearest.values())} if nearest else {}


def told_at_once(calls: Sequence[Call], got: Sequence[Tensor], expected: dict[str, Expected]) -> Explanation | None:
    """Return what a result shows by itself: NaN of an empty sum, or two calls' results added."""
    if calls and is_nan_of_nothing(got, expected):
        return replace(OF_AN_EMPTY_BATCH, section=MODELS[calls[0].function].section)
    if len(calls) == 2 and is_added_to(calls, got, expected):
        return ADDED_TO_ANOTHER
    return None


def is_nan_of_nothing(got: Sequence[Tensor], expected: dict[str, Expected]) -> bool:
    """Return whether empty inputs gave NaN where every result should be zero."""
    together = [(ours, want) for ours, want in zip(got, expected.values(), strict=True) if ours.numel()]
    is_of_nothing = len(together) < len(got) and all(not want.value.any() for _, want in together)
    return is_of_nothing and any(ours.isnan().all() for ours, _ in together)


def is_added_to(calls: Sequence[Call], got: Sequence[Tensor], expected: dict[str, Expected]) -> bool:
    """Return whether what is wrong is the sum of both calls' results."""
    if any(call.function not in MODELS or too_large(call) for call in calls):
        return False
    both = [call.looked_at(right(call.function, call, call.tensors)) for call in calls]
    sums = [
        one + other if error_over_bound(ours, want.value, want) > 1 else want.value
        for ours, one, other, want in zip(got, *both, expected.values(), strict=True)
    ]
    return Wrong(calls[0], got, expected).agrees(sums)


class Budget:
    """How many elements models may still compute."""

    def __init__(self, elements: float = math.inf) -> None:
        self._elements = elements
        self.spent = 0

    def spend(self, elements: int) -> None:
        """Count elements that a model has computed."""
        self.spent += elements

    @property
    def is_spent(self) -> bool:
        return self.spent > self._elements


class Wrong:
    """A wrong result of a call, to be compared with models."""

    def __init__(self, call: Call, got: Sequence[Tensor], expected: dict[str, Expected]) -> None:
        self.call, self._got, self._expected = call, got, expected
        self._unexplained = self.distance([want.value for want in expected.values()])
        is_finite = math.isfinite(self._unexplained)
        self._enough = min(max(1.0, self._unexplained / LESS), MOST) if is_finite else 1.0

    def distance(self, outputs: Sequence[Tensor]) -> float:
        """Return the largest error of a model over its bound; infinite if its shape differs."""
        return distance(self._got, outputs, self._expected)

    def factors(self) -> dict[str, float]:
        """Return by which factor each wrong output is off, on average."""
        return {
            name: ((ours.double() * want.value).sum() / want.value.square().sum()).item()
            for ours, (name, want) in zip(self._got, self._expected.items(), strict=True)
            if ours.numel() and ours.isfinite().all() and error_over_bound(ours, want.value, want) > 1
        }

    def scaled(self, factors: dict[str, float]) -> list[Tensor]:
        """Return the right outputs, each times its factor."""
        return [want.value * factors.get(name, 1.0) for name, want in self._expected.items()]

    def by_output(self) -> "list[Wrong]":
        """Return each output that is wrong as a result of its own."""
        looked_at = self.call.outputs or range(len(self._got))
        each = zip(looked_at, self._got, self._expected.items(), strict=True)
        return [
            Wrong(replace(self.call, outputs=(i,)), [got], {name: want})
            for i, got, (name, want) in each
            if error_over_bound(got, want.value, want) > 1
        ]

    @functools.cached_property
    def part(self) -> "Wrong":
        """The batch entry that is farthest off: a cause must explain it."""
        batch = self.call.tensors[0].shape[:-2]
        if not batch or not MODELS[self.call.function].is_by_entry:
            return self
        errors = zip(self._got, self._expected.values(), strict=True)
        together = torch.stack([_by_entry(got, want, len(batch)) for got, want in errors]).amax(0)
        at = tuple(int(i) for i in torch.unravel_index(together.argmax(), together.shape))
        part = copy.copy(self)
        part.call = replace(self.call, tensors=[tensor[at] for tensor in self.call.tensors])
        part._got = [got[at] for got in self._got]
        part._expected = {
            name: Expected.within(want.value[at], want.allowed.expand_as(want.value)[at], want.dtype, want.rows)
            for name, want in self._expected.items()
        }
        return part

    def explained_by(self, causes: Sequence[Cause], budget: Budget) -> list[float]:
        """Return the distance of each cause's nearest result; infinite if none explains this one, or none in time.

        The first results of all come before the others: where the budget is small, each is tried.
        """
        least = [math.inf] * len(causes)
        errors = [self._errors_of(cause, budget) for cause in causes]
        for most in (FIRST, None):
            for i, of_cause in enumerate(errors):
                least[i] = min(least[i], *itertools.islice(of_cause, most), math.inf)
        return least

    def _errors_of(self, cause: Cause, budget: Budget) -> Iterator[float]:
        """Yield the distance of each result of a cause within the budget; infinite where it explains nothing."""
        if cause.is_by_batch and self.part is not self:
            is_near = False
            for error in self.part._errors_of(cause, budget):
                is_near = is_near or error < math.inf
                yield math.inf
            if not is_near:
                return
        if budget.is_spent:
            return
        size = elements(self.call)
        for outputs in map(self.call.looked_at, cause.model(self.call)):
            budget.spend(size)
            error = self.distance(outputs)
            yield error if self._agrees(error, outputs) else math.inf
            if budget.is_spent:
                return

    def agrees(self, outputs: Sequence[Tensor]) -> bool:
        """Return whether a result explains this one."""
        return self._agrees(self.distance(outputs), outputs)

    def _agrees(self, error: float, outputs: Sequence[Tensor]) -> bool:
        return (error <= self._enough or self._leaves_little(error, outputs)) and are_near(
            self._got, outputs, self._expected
        )

    def _leaves_little(self, error: float, outputs: Sequence[Tensor]) -> bool:
        """Return whether little of a large error is left: a few values round differently."""
        if not error <= REST_LARGEST * self._unexplained < math.inf:
            return False
        for ours, theirs, want in zip(self._got, outputs, self._expected.values(), strict=True):
            left, whole = ((ours.double() - x).square().mean().sqrt() for x in (theirs, want.value))
            if error_over_bound(ours, theirs, want) > 1 and not left <= REST * whole:
                return False
        return True


def constant_factor(result: Wrong) -> Explanation | None:
    """Return by which factor everything is wrong; None if by no single one."""
    factors = result.factors()
    if not factors or not result.agrees(result.scaled(factors)):
        return None
    # 0.498 is 0.5 times a truncated product
    in_digits = [f"{factor:.2g}" for factor in factors.values()]
    if {"0", "-0", "1"} & set(in_digits):
        return None
    told = " and ".join(f"{name} is {factor} times" for name, factor in zip(factors, in_digits, strict=True))
    section = MODELS[result.call.function].section
    says, look = f"Everywhere alike your {told} what it should be", "Which factor is missing, or one too many?"
    return Explanation(f"factor of {' and '.join(factors)}", says, section, look, tuple(map(float, in_digits)))


def _by_entry(got: Tensor, want: Expected, n_batch: int) -> Tensor:
    """Return the largest error over its bound in each entry of the batch.

    Values that are not finite count as infinite.
    """
    error = (got.double() - want.value).abs() / want.allowed
    return error.nan_to_num(math.inf).flatten(n_batch).amax(-1)
