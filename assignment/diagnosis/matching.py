"""Which misconceptions explain a wrong result: their models agree with it, within the bound of the check itself."""

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

from assignment.diagnosis import attention, attention_backward, rmsnorm, strides, weighted_sum
from assignment.diagnosis.misconception import Call, Misconception, Model
from tests import oracle
from tests.compare import Expected

CLOSE, FARTHER = 0.1, 3.0  # of the bound: who is that close agrees; and of others who is no farther than the closest
FAR, ROUGHLY = 10.0, 1e-3  # values so many times as large as the right ones need agree only so well
NEAR = 0.03  # of a row's largest value: what differs by more than that and by more than the check allows is not alike
HUGE, NEAR_HUGE = 1e3, 0.3  # times the right row's largest: so far off, exp has made errors of logits large
LESS = 300.0  # times: a model that leaves so little of the error explains it, though errors grow with a wrong result
MOST = 300.0  # times the bound, even then
REST, REST_LARGEST = 0.02, 0.1  # of the error that a model may leave, as a root mean square and at its largest
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

MISCONCEPTIONS: dict[str, list[Misconception]] = {
    "weighted_sum_forward": weighted_sum.FORWARD,
    "weighted_sum_backward": weighted_sum.BACKWARD,
    "rmsnorm_forward": rmsnorm.FORWARD,
    "rmsnorm_backward": rmsnorm.BACKWARD,
    "flash_forward": attention.MISCONCEPTIONS,
    "flash_backward": attention_backward.MISCONCEPTIONS,
}
HINTS = {one.hint: one.name for several in MISCONCEPTIONS.values() for one in several}
DIFFERENTIABLE = {
    "weighted_sum": "weighted_sum_forward",
    "rmsnorm": "rmsnorm_forward",
    "flash_attention": "flash_forward",
}
ORACLES = {"flash_forward": "attention_forward", "flash_backward": "attention_backward"}
SECTIONS = {
    "weighted": "handout/weighted_sum.md#what-goes-wrong",
    "rmsnorm": "handout/rmsnorm.md#what-goes-wrong",
    "flash_forward": "handout/flash_attention.md#forward-what-goes-wrong",
    "flash_backward": "handout/flash_attention.md#backward-what-goes-wrong",
}


@dataclass(frozen=True)
class Cause:
    """What may have been computed instead: a sentence for the student, and all results of having done so."""

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
    """Return a sentence for each misconception that explains the result of one of the calls, the likelier first.

    Args:
        calls: what the result may be of.
        got: the wrong result.
        expected: what it is compared with.
        known: sentences to try first; where one of them explains the result closely, no other is tried.
        budget_s: seconds of this process, not of the clock, so that a busy machine gives no other answers.
        only_known: whether no other sentence is tried in any case.
    """
    calls = list(calls)
    if of_all := told_at_once(calls, got, expected):
        return [of_all]
    found: dict[str, float] = {}
    until = time.process_time() + budget_s
    for call in calls:
        if call.function not in MISCONCEPTIONS or too_large(call):
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


def told_at_once(calls: Sequence[Call], got: Sequence[Tensor], expected: dict[str, Expected]) -> str:
    """What a result shows by itself: NaN where nothing is summed, or the sum of two calls' results."""
    if calls and is_nan_of_nothing(got, expected):
        return OF_AN_EMPTY_BATCH.format(section=section_of(calls[0].function))
    if len(calls) == 2 and is_added_to(calls, got, expected):
        return ADDED_TO_ANOTHER
    return ""


def is_nan_of_nothing(got: Sequence[Tensor], expected: dict[str, Expected]) -> bool:
    """Whether the inputs are empty, every result with elements is to be zero, and what is wrong is NaN."""
    together = [(ours, want) for ours, want in zip(got, expected.values(), strict=True) if ours.numel()]
    is_of_nothing = len(together) < len(got) and all(not want.value.any() for _, want in together)
    return is_of_nothing and any(ours.isnan().all() for ours, _ in together)


def is_added_to(calls: Sequence[Call], got: Sequence[Tensor], expected: dict[str, Expected]) -> bool:
    """Whether what is wrong is the sum of both calls' results."""
    if any(call.function not in MISCONCEPTIONS or too_large(call) for call in calls):
        return False
    both = [call.chosen(right(call.function, call, call.tensors)) for call in calls]
    sums = [
        one + other if error_over_bound(ours, want.value, want) > 1 else want.value
        for ours, one, other, want in zip(got, *both, expected.values(), strict=True)
    ]
    return Wrong(calls[0], got, expected).agrees(sums)


class Wrong:
    """A wrong result of a call, for models to be compared with."""

    def __init__(self, call: Call, got: Sequence[Tensor], expected: dict[str, Expected]) -> None:
        self.call, self._got, self._expected = call, got, expected
        self._unexplained = self.distance([want.value for want in expected.values()])
        is_finite = math.isfinite(self._unexplained)
        self._enough = min(max(1.0, self._unexplained / LESS), MOST) if is_finite else 1.0

    def distance(self, outputs: Sequence[Tensor]) -> float:
        """Return the largest error of a model over its bound; infinite where it has another form."""
        return distance(self._got, outputs, self._expected)

    def factors(self) -> dict[str, float]:
        """By which factor each wrong output is off, in the mean."""
        return {
            name: ((ours.double() * want.value).sum() / want.value.square().sum()).item()
            for ours, (name, want) in zip(self._got, self._expected.items(), strict=True)
            if ours.numel() and ours.isfinite().all() and error_over_bound(ours, want.value, want) > 1
        }

    def scaled(self, factors: dict[str, float]) -> list[Tensor]:
        """The right outputs, each times its factor."""
        return [want.value * factors.get(name, 1.0) for name, want in self._expected.items()]

    @functools.cached_property
    def part(self) -> "Wrong":
        """The entry of the batch that is farthest off: who does not explain it explains nothing."""
        batch = self.call.tensors[0].shape[:-2]
        if not batch or not self.call.function.startswith("flash"):
            return self
        errors = zip(self._got, self._expected.values(), strict=True)
        together = torch.stack([_by_entry(got, want, len(batch)) for got, want in errors]).amax(0)
        at = tuple(int(i) for i in torch.unravel_index(together.argmax(), together.shape))
        part = copy.copy(self)
        part.call = replace(self.call, tensors=[tensor[at] for tensor in self.call.tensors])
        part._got = [got[at] for got in self._got]
        part._expected = {
            name: replace(want, value=want.value[at], allowed=want.allowed.expand_as(want.value)[at])
            for name, want in self._expected.items()
        }
        return part

    def explained_by(self, cause: Cause) -> float:
        """Return how far the nearest of its results is off; infinite where none explains this one."""
        if cause.is_by_batch and self.part is not self and self.part.explained_by(cause) == math.inf:
            return math.inf
        results = (self.call.chosen(outputs) for outputs in cause.model(self.call))
        near = ((self.distance(outputs), outputs) for outputs in results)
        alike = (error for error, outputs in near if self._agrees(error, outputs))
        return min(alike, default=math.inf)

    def agrees(self, outputs: Sequence[Tensor]) -> bool:
        """Whether a result explains this one."""
        return self._agrees(self.distance(outputs), outputs)

    def _agrees(self, error: float, outputs: Sequence[Tensor]) -> bool:
        return (error <= self._enough or self._leaves_little(error, outputs)) and self._is_near(outputs)

    def _leaves_little(self, error: float, outputs: Sequence[Tensor]) -> bool:
        """Whether next to nothing of a large error is left: roundings fall to the other side here and there."""
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
    """What is wrong by one factor everywhere, in a sentence; "" where nothing is."""
    factors = result.factors()
    if not factors or not result.agrees(result.scaled(factors)):
        return ""
    in_digits = [f"{factor:.2g}" for factor in factors.values()]  # 0.498 is 0.5 times a truncated product
    if {"0", "-0", "1"} & set(in_digits):
        return ""
    told = " and ".join(f"{name} is {factor} times" for name, factor in zip(factors, in_digits, strict=True))
    section = section_of(result.call.function)
    return f"Everywhere alike your {told} what it should be ({section}). Which factor is missing, or one too many?"


def root_mean_square(x: Tensor) -> float:
    return x.square().mean().sqrt().item()


def _by_entry(got: Tensor, want: Expected, n_batch: int) -> Tensor:
    """The largest error over its bound in each entry of the batch; what is not finite is larger than all."""
    error = (got.double() - want.value).abs() / want.allowed
    return error.nan_to_num(math.inf).flatten(n_batch).amax(-1)


def calls(asked: dict[str, Any]) -> list[Call]:
    """What a request of judge/calls.py has the submission compute, as calls of the functions that have models."""
    function, tensors, options = asked["function"], list(asked["tensors"]), asked["options"]
    name = function.removesuffix("_triton").removesuffix("_pytorch")
    if asked["kind"] == "gradients":
        return [gradients_of(name, tensors, options, asked)]
    name = DIFFERENTIABLE.get(name, name + "_")
    outputs = None if name.endswith("_") else (0,)
    halves = [tensors[: len(tensors) // 2], tensors[len(tensors) // 2 :]] if asked["kind"] == "again" else [tensors]
    return [Call(name.rstrip("_"), half, options, outputs) for half in halves]


@dataclass(frozen=True)
class Interleaved(Call):
    """The backward pass of a call that another forward pass, of `others`, has followed."""

    others: Sequence[Tensor] = ()


def gradients_of(name: str, tensors: list[Tensor], options: dict[str, Any], asked: dict[str, Any]) -> Call:
    """The backward pass that asking for gradients amounts to."""
    inputs = tensors[:-1] if asked["has_grad"] else tensors
    function = DIFFERENTIABLE[name].replace("forward", "backward")
    between = intermediates(function, inputs, options, inputs[0].dtype)
    shape = inputs[0].shape[:-1] if name == "weighted_sum" else inputs[0].shape
    grad = tensors[-1] if asked["has_grad"] else torch.ones(shape, dtype=inputs[0].dtype)
    call = Call(function, [grad, *inputs, *between], options, tuple(asked["wrt"]))
    if not asked.get("interleaved"):
        return call
    others = [tensor / 2 for tensor in inputs]
    return Interleaved(call.function, call.tensors, call.options, call.outputs, others=others)


def intermediates(function: str, inputs: Sequence[Tensor], options: dict[str, Any], dtype: torch.dtype) -> list[Tensor]:
    """What the forward pass hands to the backward pass beside its inputs: o and lse, rstd, or nothing."""
    forward = function.replace("backward", "forward")
    came = getattr(oracle, ORACLES.get(forward, forward))(*inputs, **options)
    o, *rest = came if isinstance(came, tuple) else (came,)
    saved = [x.float() for x in rest]
    return [o.to(dtype), *saved] if forward == "flash_forward" else saved


def too_large(call: Call) -> bool:
    if call.function.startswith("flash"):
        q, k = (call.tensors[i] for i in ((1, 2) if "backward" in call.function else (0, 1)))
        return q[..., 0].numel() * k.shape[-2] > MAX_ELEMENTS
    return max(tensor.numel() for tensor in call.tensors) > MAX_ELEMENTS


def possible(function: str, call: Call) -> Iterator[Cause]:
    """Whatever may have been computed in place of the function, the likelier first."""
    several = MISCONCEPTIONS[function]
    if call.dtype != torch.float32:  # of what is wrong in 16 bits alone, the most is rounded too early
        several = sorted(several, key=lambda one: not one.section.endswith("what-goes-wrong"))
    for misconception in several:
        model = functools.partial(in_every_way, misconception.model)
        yield Cause(misconception.hint, model, misconception.is_by_batch)
    names = strides.NAMES[function]
    section = section_of(function)
    for words, tensors in strides.misread(call, names):
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


def section_of(function: str) -> str:
    """The handout's section of a function."""
    return next(section for start, section in SECTIONS.items() if function.startswith(start))


def in_every_way(model: Model, call: Call) -> Iterator[Sequence[Tensor]]:
    """All results of a model, operands being rounded to 16 bits before they are multiplied or not."""
    if call.function.startswith("flash") and call.dtype != torch.float32:
        yield from model(replace(call, casts=True))
    yield from model(call)


def results(function: str, call: Call, tensors: Sequence[Tensor]) -> list[Sequence[Tensor]]:
    """What comes of other tensors in place of the call's; of a backward pass of attention D may be right, or it alone
    wrong: it is computed by a kernel of its own.
    """
    came: list[Sequence[Tensor]] = [right(function, call, tensors)]
    if function == "flash_backward" and any(tensors[i] is not call.tensors[i] for i in (0, 4)):
        for others, of_delta in ((tensors, call.tensors), (call.tensors, tensors)):
            grad_o, o = (of_delta[i].double() for i in (0, 4))
            delta = (grad_o * o).sum(-1, keepdim=True)
            model = attention_backward.Recomputed(delta=lambda *_, delta=delta: delta)
            came.append(model(replace(call, tensors=others)))
    return came


def of_another_graph(function: str, call: "Interleaved") -> Iterator[Sequence[Tensor]]:
    """What comes of the tensors that another forward pass has saved: all of them, those that it has computed, or its
    switches.
    """
    grad, *saved = call.tensors
    flipped = {name: not value if isinstance(value, bool) else value for name, value in call.options.items()}
    inputs, computed = saved[: len(call.others)], saved[len(call.others) :]
    others_computed = intermediates(function, call.others, flipped, call.dtype)
    for tensors in (call.others, inputs):
        for between in itertools.product(*zip(others_computed, computed, strict=True)):
            for options in (call.options, flipped):
                if tensors is call.others or any(map(operator.is_, between, others_computed)) or options is flipped:
                    yield right(function, replace(call, options=options), [grad, *tensors, *between])


def misplaced(function: str, call: Call) -> Iterator[Sequence[Tensor]]:
    """What is right, and stored through strides of an input."""
    return strides.misplaced(right(function, call, call.tensors), call.tensors)


def mislaid(function: str, call: Call) -> Iterator[Sequence[Tensor]]:
    """What is right, and stored in other places."""
    return strides.mislaid(right(function, call, call.tensors), call.tensors)


def right(function: str, call: Call, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """What the function returns for these tensors."""
    if function == "flash_forward":
        q, k, v = tensors
        return oracle.attention_forward(q, k, v, is_causal=call.is_causal)
    if function == "flash_backward":
        return attention_backward.Recomputed()(replace(call, tensors=tensors))
    options = {} if "backward" in function else call.options
    came = getattr(oracle, function)(*tensors, **options)
    return came if isinstance(came, tuple) else (came,)


def distance(got: Sequence[Tensor], outputs: Sequence[Tensor], expected: dict[str, Expected]) -> float:
    """The largest error of a model over its bound; infinite where it has another form."""
    if len(got) != len(outputs):
        return math.inf
    together = zip(got, outputs, expected.values(), strict=True)
    return max(error_over_bound(ours, theirs, want) for ours, theirs, want in together)


def error_over_bound(got: Tensor, model: Tensor, want: Expected) -> float:
    """The bound is that of the right value, wider where the wrong one is larger; what is not finite is so in both."""
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
    allowed = torch.where(wider > FAR, torch.maximum(want.allowed * wider, ROUGHLY * largest), want.allowed * wider)
    return torch.where(finite, (theirs - model).abs() / allowed, 0.0).max().item()


def are_near(got: Sequence[Tensor], outputs: Sequence[Tensor], expected: dict[str, Expected]) -> bool:
    """Whether no element differs by more than the check allows and by more than a part of its row's largest."""
    for ours, theirs, want in zip(got, outputs, expected.values(), strict=True):
        error, largest = (ours.double() - theirs).abs(), row_max(theirs.nan_to_num().abs(), want.rows)
        near = torch.where(largest > HUGE * row_max(want.value.abs(), want.rows), NEAR_HUGE, NEAR)
        if ((error > want.allowed) & (error > near * largest)).any():
            return False
    return True


def cast(model: Tensor, dtype: torch.dtype) -> Tensor:
    """Infinite where the dtype has no such number; rounded no further than the bound knows."""
    return torch.where(model.abs() > torch.finfo(dtype).max, torch.inf * model.sign(), model)


def row_max(x: Tensor, rows: bool) -> Tensor:
    return x.amax(-1, keepdim=True) if rows and x.numel() else x
