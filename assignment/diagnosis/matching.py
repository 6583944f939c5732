"""Which misconceptions explain a wrong result: models that agree with it within its bound."""

import copy
import functools
import itertools
import math
import operator
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from assignment.diagnosis import strides
from assignment.operators import parts
from assignment.operators.misconception import Call, Model, Models
from tests.compare import Expected
from tests.operators import Function, functions, of_oracle, operator_of, oracle

# of the bound: a model that close agrees; others must be at most this many times as far off
CLOSE, FARTHER = 0.1, 3.0
FAR, ROUGHLY = 10.0, 1e-3  # values so many times as large as the right ones need agree only so well
# of a row's largest value: what differs by more than that and by more than the check allows is not
# alike
NEAR = 0.03
# times the right row's largest: so far off, exp has made errors of logits large
HUGE, NEAR_HUGE = 1e3, 0.3
# times: a model that leaves so little of the error explains it, though errors grow with a wrong
# result
LESS = 300.0
MOST = 300.0  # times the bound, even then
# of the error that a model may leave, as a root mean square and at its largest
REST, REST_LARGEST = 0.02, 0.1
OF_AN_EMPTY_BATCH = (
    "A sum over no rows is 0, and a mean over no rows is 0/0, which is NaN ({section}"
    "). What does your function do before it returns, where the batch is empty?"
)
ADDED_TO_ANOTHER = (
    "Your result is that of this call added to that of the call before (handout/grading.md#what-may-be-called). Is "
    "memory kept from one call to the next, and added to without having been cleared?"
)
OF_ANOTHER_GRAPH = (
    "Your gradients are those with tensors, or options, of another forward pass that came in between "
    "(handout/grading.md#what-may-be-called). A class or a module holds the last ones only: ctx keeps those of its own "
    "graph."
)
OF_ANOTHER_CALL = (
    "Your result is right for the inputs of another call (handout/grading.md#what-may-be-called). Is a result kept or "
    "looked up from one call to the next? The same tensors may hold other values by then."
)
MAX_ELEMENTS = 1 << 22  # of scores, or of x: what is larger is not looked at

MODELS: dict[str, Models] = {name: models for part in parts("misconceptions") for name, models in part.MODELS.items()}
HINTS = {one.hint: one.name for models in MODELS.values() for one in models.misconceptions}


@dataclass(frozen=True)
class Cause:
    """What may have been computed instead: a sentence for the student, and all such results."""

    hint: str
    model: Model
    is_by_batch: bool = False  # what it computes of an entry of the batch depends on no other entry


def causes(
    calls: Iterable[Call],
    got: Sequence[Tensor],
    expected: dict[str, Expected],
    known: Collection[str] = (),
    budget_s: float = math.inf,
    only_known: bool = False,
) -> list[str]:
    """Return a sentence for each misconception that explains one of the calls, the likelier first.

    Args:
        calls: what the result may be of.
        got: the wrong result.
        expected: what it is compared with.
        known: sentences to try first; where one of them explains the result closely, no other is tried.
        budget_s: processor seconds of this process, so that a busy machine gives the same answers.
        only_known: whether no other sentence is tried in any case.
    """
    calls = list(calls)
    if of_all := told_at_once(calls, got, expected):
        return [of_all]
    found: dict[str, float] = {}
    until = time.process_time() + budget_s
    for call in calls:
        if call.function not in MODELS or too_large(call):
            continue
        result = Wrong(call, got, expected)
        if len(calls) > 1 and result.agrees(call.chosen(right(call.function, call, call.tensors))):
            return [OF_ANOTHER_CALL]
        for is_known in (True, False) if known else (False,):
            for cause in possible(call.function, call):
                if (cause.hint in known) == is_known and time.process_time() <= until:
                    error = result.explained_by(cause)
                    if error < math.inf:
                        found[cause.hint] = min(error, found.get(cause.hint, math.inf))
            if only_known or min(found.values(), default=math.inf) <= CLOSE:
                break
        if not found and (hint := constant_factor(result)) and (hint in known or not only_known):
            found[hint] = 1.0
    least = min(found.values(), default=0.0)
    return [hint for hint, error in found.items() if error <= max(CLOSE, FARTHER * least)]


def told_at_once(
    calls: Sequence[Call],
    got: Sequence[Tensor],
    expected: dict[str, Expected],
) -> str:
    """Return what a result shows by itself: NaN of an empty sum, or two calls' results added."""
    if calls and is_nan_of_nothing(got, expected):
        return OF_AN_EMPTY_BATCH.format(section=MODELS[calls[0].function].section)
    if len(calls) == 2 and is_added_to(calls, got, expected):
        return ADDED_TO_ANOTHER
    return ""


def is_nan_of_nothing(got: Sequence[Tensor], expected: dict[str, Expected]) -> bool:
    """Return whether empty inputs gave NaN where every result should be zero."""
    together = [(ours, want) for ours, want in zip(got, expected.values(), strict=True) if ours.numel()]
    is_of_nothing = len(together) < len(got) and all(not want.value.any() for _, want in together)
    return is_of_nothing and any(ours.isnan().all() for ours, _ in together)


def is_added_to(
    calls: Sequence[Call],
    got: Sequence[Tensor],
    expected: dict[str, Expected],
) -> bool:
    """Return whether what is wrong is the sum of both calls' results."""
    if any(call.function not in MODELS or too_large(call) for call in calls):
        return False
    both = [call.chosen(right(call.function, call, call.tensors)) for call in calls]
    sums = [
        one + other if error_over_bound(ours, want.value, want) > 1 else want.value
        for ours, one, other, want in zip(got, *both, expected.values(), strict=True)
    ]
    return Wrong(calls[0], got, expected).agrees(sums)


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
            name: replace(
                want,
                value=want.value[at],
                allowed=want.allowed.expand_as(want.value)[at],
            )
            for name, want in self._expected.items()
        }
        return part

    def explained_by(self, cause: Cause) -> float:
        """Return the distance of a cause's nearest result; infinite if none explains this one."""
        if cause.is_by_batch and self.part is not self and self.part.explained_by(cause) == math.inf:
            return math.inf
        results = (self.call.chosen(outputs) for outputs in cause.model(self.call))
        near = ((self.distance(outputs), outputs) for outputs in results)
        alike = (error for error, outputs in near if self._agrees(error, outputs))
        return min(alike, default=math.inf)

    def agrees(self, outputs: Sequence[Tensor]) -> bool:
        """Return whether a result explains this one."""
        return self._agrees(self.distance(outputs), outputs)

    def _agrees(self, error: float, outputs: Sequence[Tensor]) -> bool:
        return (error <= self._enough or self._leaves_little(error, outputs)) and self._is_near(outputs)

    def _leaves_little(self, error: float, outputs: Sequence[Tensor]) -> bool:
        """Return whether little of a large error is left: a few values round differently."""
        if not error <= REST_LARGEST * self._unexplained < math.inf:
            return False
        for ours, theirs, want in zip(self._got, outputs, self._expected.values(), strict=True):
            left, whole = (root_mean_square(ours.double() - x) for x in (theirs, want.value))
            if error_over_bound(ours, theirs, want) > 1 and not left <= REST * whole:
                return False
        return True

    def _is_near(self, outputs: Sequence[Tensor]) -> bool:
        return are_near(self._got, outputs, self._expected)


def constant_factor(result: Wrong) -> str:
    """Return a sentence if everything is wrong by one factor; "" if not."""
    factors = result.factors()
    if not factors or not result.agrees(result.scaled(factors)):
        return ""
    # 0.498 is 0.5 times a truncated product
    in_digits = [f"{factor:.2g}" for factor in factors.values()]
    if {"0", "-0", "1"} & set(in_digits):
        return ""
    told = " and ".join(f"{name} is {factor} times" for name, factor in zip(factors, in_digits, strict=True))
    section = MODELS[result.call.function].section
    return f"Everywhere alike your {told} what it should be ({section}). Which factor is missing, or one too many?"


def root_mean_square(x: Tensor) -> float:
    return x.square().mean().sqrt().item()


def _by_entry(got: Tensor, want: Expected, n_batch: int) -> Tensor:
    """Return the largest error over its bound in each entry of the batch.

    Values that are not finite count as infinite.
    """
    error = (got.double() - want.value).abs() / want.allowed
    return error.nan_to_num(math.inf).flatten(n_batch).amax(-1)


def calls(asked: dict[str, Any]) -> list[Call]:
    """Return the calls that a request of judge/calls.py has the submission compute.

    They are calls of the functions that have models.
    """
    function, tensors, options = (
        functions().get(asked["function"]),
        list(asked["tensors"]),
        asked["options"],
    )
    if function is None:
        return []
    if asked["kind"] == "gradients":
        return [gradients_of(function, tensors, options, asked)]
    outputs = (0,) if function.gradients else None
    halves = [tensors[: len(tensors) // 2], tensors[len(tensors) // 2 :]] if asked["kind"] == "again" else [tensors]
    return [Call(function.oracle, half, options, outputs) for half in halves]


@dataclass(frozen=True)
class Interleaved(Call):
    """The backward pass of a call after another forward pass, of `others`."""

    others: Sequence[Tensor] = ()


def gradients_of(
    function: Function,
    tensors: list[Tensor],
    options: dict[str, Any],
    asked: dict[str, Any],
) -> Call:
    """Return the backward pass that asking for gradients amounts to."""
    inputs = tensors[:-1] if asked["has_grad"] else tensors
    backward, dtype = functions()[function.gradients].oracle, inputs[0].dtype
    between = intermediates(backward, inputs, options, dtype)
    if asked["has_grad"]:
        grad = tensors[-1]
    else:
        grad = torch.ones_like(outputs_of(function.oracle, inputs, options)[0], dtype=dtype)
    call = Call(backward, [grad, *inputs, *between], options, tuple(asked["wrt"]))
    if not asked.get("interleaved"):
        return call
    others = [tensor / 2 for tensor in inputs]
    return Interleaved(call.function, call.tensors, call.options, call.outputs, others=others)


def intermediates(
    function: str,
    inputs: Sequence[Tensor],
    options: dict[str, Any],
    dtype: torch.dtype,
) -> list[Tensor]:
    """Return what forward saves besides inputs: its result in that dtype, the rest in float32."""
    backward = of_oracle(function)
    forward = functions()[backward.forward]
    came = zip(forward.outputs, outputs_of(forward.oracle, inputs, options), strict=True)
    return [x.to(dtype) if name == forward.outputs[0] else x.float() for name, x in came if name in backward.left]


def outputs_of(
    function: str,
    tensors: Sequence[Tensor],
    options: dict[str, Any],
) -> Sequence[Tensor]:
    """Return the oracle's outputs."""
    came = oracle(function)(*tensors, **options)
    return came if isinstance(came, tuple) else (came,)


def too_large(call: Call) -> bool:
    named = dict(zip(of_oracle(call.function).inputs, call.tensors, strict=True))
    return operator_of(of_oracle(call.function).name).elements(named) > MAX_ELEMENTS


def possible(function: str, call: Call) -> Iterator[Cause]:
    """Yield whatever may have been computed in place of the function, the likelier first."""
    models = MODELS[function]
    several = models.misconceptions
    # of what is wrong in 16 bits alone, the most is rounded too early
    if call.dtype != torch.float32:
        several = sorted(several, key=lambda one: not one.section.endswith("what-goes-wrong"))
    for misconception in several:
        model = functools.partial(in_every_way, misconception.model, models.has_products)
        yield Cause(misconception.hint, model, misconception.is_by_batch)
    section = models.section
    for words, tensors in strides.misread(call, of_oracle(function).inputs, models.n_inner):
        hint = f"Your result is what comes out if {words} ({section}). "
        misread = functools.partial(results, function, tensors=tensors)
        yield Cause(hint + "Every tensor has strides of its own: .stride() tells them.", misread)
    if isinstance(call, Interleaved):
        yield Cause(OF_ANOTHER_GRAPH, functools.partial(of_another_graph, function))
    hint = f"Your result is right, but stored with an input's strides ({section}). "
    hint += "The result has strides of its own: pass those of the tensor that is stored to."
    yield Cause(hint, functools.partial(misplaced, function))
    hint = f"Your result is right, but stored as if it were contiguous ({section}). "
    hint += "torch.empty_like(x) has x's strides: pass those of the result to the kernel."
    yield Cause(hint, functools.partial(mislaid, function))


def in_every_way(model: Model, has_products: bool, call: Call) -> Iterator[Sequence[Tensor]]:
    """Yield all results of a model, with operands rounded to 16 bits before products or not."""
    if has_products and call.dtype != torch.float32:
        yield from model(replace(call, casts=True))
    yield from model(call)


def results(function: str, call: Call, tensors: Sequence[Tensor]) -> list[Sequence[Tensor]]:
    """Return the results for other tensors in place of the call's.

    All of the work may read them, or a part of it.
    """
    return [right(function, call, tensors), *MODELS[function].apart(call, tensors)]


def of_another_graph(function: str, call: "Interleaved") -> Iterator[Sequence[Tensor]]:
    """Yield the results for tensors that another forward pass has saved.

    They are all of them, those that it has computed, or its switches.
    """
    grad, *saved = call.tensors
    flipped = {name: not value if isinstance(value, bool) else value for name, value in call.options.items()}
    inputs, computed = saved[: len(call.others)], saved[len(call.others) :]
    others_computed = intermediates(function, call.others, flipped, call.dtype)
    for tensors in (call.others, inputs):
        for between in itertools.product(*zip(others_computed, computed, strict=True)):
            for options in (call.options, flipped):
                if tensors is call.others or any(map(operator.is_, between, others_computed)) or options is flipped:
                    yield right(
                        function,
                        replace(call, options=options),
                        [grad, *tensors, *between],
                    )


def misplaced(function: str, call: Call) -> Iterator[Sequence[Tensor]]:
    """Return right results that are stored through strides of an input."""
    return strides.misplaced(right(function, call, call.tensors), call.tensors)


def mislaid(function: str, call: Call) -> Iterator[Sequence[Tensor]]:
    """Return right results that are stored in other places."""
    return strides.mislaid(right(function, call, call.tensors), call.tensors)


def right(function: str, call: Call, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return what the function returns for these tensors."""
    if (by_model := MODELS[function].right) is not None:
        return by_model(replace(call, tensors=tensors))
    return outputs_of(function, tensors, {} if of_oracle(function).is_backward else call.options)


def distance(
    got: Sequence[Tensor],
    outputs: Sequence[Tensor],
    expected: dict[str, Expected],
) -> float:
    """Return the largest error of a model over its bound; infinite if its shape differs."""
    if len(got) != len(outputs):
        return math.inf
    together = zip(got, outputs, expected.values(), strict=True)
    return max(error_over_bound(ours, theirs, want) for ours, theirs, want in together)


def error_over_bound(got: Tensor, model: Tensor, want: Expected) -> float:
    """Return the error over the bound of the right value.

    The bound is wider where the wrong value is larger; what is not finite must be so in both.
    """
    if model.shape != got.shape:
        return math.inf
    if not got.numel():
        return 0.0
    model, theirs = cast(model, got.dtype), got.double()
    finite = model.isfinite()
    if not torch.equal(finite, theirs.isfinite()):
        return math.inf
    largest = row_max(torch.where(finite, model, 0.0).abs(), want.rows)
    wider = (largest / row_max(want.value.abs(), want.rows)).nan_to_num(1.0, 1.0, 1.0).clamp(min=1.0)
    allowed = torch.where(
        wider > FAR,
        torch.maximum(want.allowed * wider, ROUGHLY * largest),
        want.allowed * wider,
    )
    return torch.where(finite, (theirs - model).abs() / allowed, 0.0).max().item()


def are_near(
    got: Sequence[Tensor],
    outputs: Sequence[Tensor],
    expected: dict[str, Expected],
) -> bool:
    """Return whether all agree within the check's bound or a part of the row's maximum."""
    for ours, theirs, want in zip(got, outputs, expected.values(), strict=True):
        error, largest = (
            (ours.double() - theirs).abs(),
            row_max(theirs.nan_to_num().abs(), want.rows),
        )
        near = torch.where(largest > HUGE * row_max(want.value.abs(), want.rows), NEAR_HUGE, NEAR)
        if ((error > want.allowed) & (error > near * largest)).any():
            return False
    return True


def cast(model: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the tensor in a dtype: infinite where it overflows.

    It is rounded no further than the bound allows for.
    """
    return torch.where(model.abs() > torch.finfo(dtype).max, torch.inf * model.sign(), model)


def row_max(x: Tensor, rows: bool) -> Tensor:
    return x.amax(-1, keepdim=True) if rows and x.numel() else x
