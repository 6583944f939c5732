"""Which misconceptions explain a wrong result: their models agree with it, within the bound of the check itself."""

import copy
import functools
import math
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
    found: dict[str, float] = {}
    until = time.process_time() + budget_s
    for call in calls:
        if call.function not in MISCONCEPTIONS or too_large(call):
            continue
        result = Wrong(call, got, expected)
        if result.distance(call.chosen(right(call.function, call, call.tensors))) <= 1:
            return [OF_ANOTHER_CALL]
        for is_known in (True, False) if known else (False,):
            for cause in possible(call.function, call):
                if (cause.hint in known) == is_known and time.process_time() <= until:
                    error = result.explained_by(cause)
                    if error < math.inf:
                        found[cause.hint] = min(error, found.get(cause.hint, math.inf))
            if only_known or min(found.values(), default=math.inf) <= CLOSE:
                break
    least = min(found.values(), default=0.0)
    return [hint for hint, error in found.items() if error <= max(CLOSE, FARTHER * least)]


class Wrong:
    """A wrong result of a call, for models to be compared with."""

    def __init__(self, call: Call, got: Sequence[Tensor], expected: dict[str, Expected]) -> None:
        self.call, self._got, self._expected = call, got, expected
        unexplained = self.distance([want.value for want in expected.values()])
        self._enough = min(max(1.0, unexplained / LESS), MOST) if math.isfinite(unexplained) else 1.0

    def distance(self, outputs: Sequence[Tensor]) -> float:
        """Return the largest error of a model over its bound; infinite where it has another form."""
        return distance(self._got, outputs, self._expected)

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
        alike = (error for error, outputs in near if error <= self._enough and self._is_near(outputs))
        return min(alike, default=math.inf)

    def _is_near(self, outputs: Sequence[Tensor]) -> bool:
        return are_near(self._got, outputs, self._expected)


def _by_entry(got: Tensor, want: Expected, n_batch: int) -> Tensor:
    """The largest error over its bound in each entry of the batch; what is not finite is larger than all."""
    error = (got.double() - want.value).abs() / want.allowed
    return error.nan_to_num(math.inf).flatten(n_batch).amax(-1)


def calls(asked: dict[str, Any]) -> list[Call]:
    """What a request of grading/calls.py has the submission compute, as calls of the functions that have models."""
    function, tensors, options = asked["function"], list(asked["tensors"]), asked["options"]
    name = function.removesuffix("_triton").removesuffix("_pytorch")
    if asked["kind"] == "gradients":
        return [gradients_of(name, tensors, options, asked)]
    name = DIFFERENTIABLE.get(name, name + "_")
    outputs = None if name.endswith("_") else (0,)
    halves = [tensors[: len(tensors) // 2], tensors[len(tensors) // 2 :]] if asked["kind"] == "again" else [tensors]
    return [Call(name.rstrip("_"), half, options, outputs) for half in halves]


def gradients_of(name: str, tensors: list[Tensor], options: dict[str, Any], asked: dict[str, Any]) -> Call:
    """The backward pass that asking for gradients amounts to."""
    inputs = tensors[:-1] if asked["has_grad"] else tensors
    forward = DIFFERENTIABLE[name]
    came = getattr(oracle, ORACLES.get(forward, forward))(*inputs, **options)
    o, *rest = came if isinstance(came, tuple) else (came,)
    grad = tensors[-1] if asked["has_grad"] else torch.ones_like(o)
    between = {"flash_attention": [o.to(inputs[0].dtype), *(x.float() for x in rest)]}.get(
        name, [x.float() for x in rest]
    )
    return Call(forward.replace("forward", "backward"), [grad, *inputs, *between], options, tuple(asked["wrt"]))


def too_large(call: Call) -> bool:
    if call.function.startswith("flash"):
        q, k = (call.tensors[i] for i in ((1, 2) if "backward" in call.function else (0, 1)))
        return q[..., 0].numel() * k.shape[-2] > MAX_ELEMENTS
    return max(tensor.numel() for tensor in call.tensors) > MAX_ELEMENTS


def possible(function: str, call: Call) -> Iterator[Cause]:
    """Whatever may have been computed in place of the function, the likelier first."""
    for misconception in MISCONCEPTIONS[function]:
        model = functools.partial(in_every_way, misconception.model)
        yield Cause(misconception.hint, model, misconception.is_by_batch)
    names = strides.NAMES[function]
    section = next(section for start, section in SECTIONS.items() if function.startswith(start))
    for words, tensors in strides.misread(call, names):
        hint = f"Your result is what comes out if {words} ({section}). "
        misread = functools.partial(results, function, tensors=tensors)
        yield Cause(hint + "Every tensor has strides of its own: .stride() tells them.", misread)
    hint = f"Your result is right, but stored as if it were contiguous ({section}). "
    hint += "torch.empty_like(x) has x's strides: pass those of the result to the kernel."
    yield Cause(hint, functools.partial(mislaid, function))


def in_every_way(model: Model, call: Call) -> Iterator[Sequence[Tensor]]:
    """All results of a model, operands being rounded to 16 bits before they are multiplied or not."""
    if call.function.startswith("flash") and call.dtype != torch.float32:
        yield from model(replace(call, casts=True))
    yield from model(call)


def results(function: str, call: Call, tensors: Sequence[Tensor]) -> list[Sequence[Tensor]]:
    """What comes of other tensors in place of the call's."""
    return [right(function, call, tensors)]


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
