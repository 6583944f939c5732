"""What may have been computed in place of a function: the results of models and of other tensors."""

import functools
import itertools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from assignment.diagnosis import strides
from assignment.operators import parts
from assignment.operators.misconception import Call, Model, Models
from tests.operators import Function, functions, of_oracle, operator_of, oracle

OF_ANOTHER_GRAPH = (
    "Your gradients are those with tensors, or options, of another forward pass that came in between "
    "(handout/grading.md#what-may-be-called). A class or a module holds the last ones only: ctx keeps those of its own "
    "graph."
)
MAX_ELEMENTS = 1 << 22  # of scores, or of x: what is larger is not looked at

MODELS: dict[str, Models] = {name: models for part in parts("misconceptions") for name, models in part.MODELS.items()}


@dataclass(frozen=True)
class Cause:
    """What may have been computed instead: a sentence for the student, and all such results."""

    hint: str
    model: Model
    is_by_batch: bool = False  # what it computes of an entry of the batch depends on no other entry


def calls(asked: dict[str, Any]) -> list[Call]:
    """Return the calls that a request of judge/door.py has the submission compute.

    They are calls of the functions that have models.
    """
    function, tensors, options = (functions().get(asked["function"]), list(asked["tensors"]), asked["options"])
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


def gradients_of(function: Function, tensors: list[Tensor], options: dict[str, Any], asked: dict[str, Any]) -> Call:
    """Return the backward pass that asking for gradients amounts to."""
    inputs = tensors[:-1] if asked["has_grad"] else tensors
    backward, dtype = functions()[function.gradients].oracle, inputs[0].dtype
    between = intermediates(backward, inputs, options, dtype)
    if asked["has_grad"]:
        grad = tensors[-1]
    else:
        grad = torch.ones_like(outputs_of(function.oracle, inputs, options)[0], dtype=dtype)
    given = kept(backward, inputs)
    call = Call(backward, [grad, *saved(backward, given, between)], options, tuple(asked["wrt"]))
    if not asked.get("interleaved"):
        return call
    others = [tensor / 2 for tensor in inputs]
    return Interleaved(call.function, call.tensors, call.options, call.outputs, others=others)


def kept(function: str, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return those of a forward pass's inputs that the backward pass gets."""
    backward = of_oracle(function)
    names = functions()[backward.forward].inputs
    return [tensor for name, tensor in zip(names, inputs, strict=True) if name in backward.inputs]


def saved(function: str, given: Sequence[Tensor], between: Sequence[Tensor]) -> list[Tensor]:
    """Return the inputs of a backward pass beside the gradient, in its order: what forward got and computed."""
    named = dict(zip(saved_names(function), [*given, *between], strict=True))
    return [named[name] for name in of_oracle(function).inputs[1:]]


def saved_names(function: str) -> list[str]:
    """Return those names, as `kept` and `intermediates` have them."""
    backward = of_oracle(function)
    forward = functions()[backward.forward]
    inputs = [name for name in forward.inputs if name in backward.inputs]
    return inputs + [name for name in forward.outputs if name in backward.left]


def intermediates(function: str, inputs: Sequence[Tensor], options: dict[str, Any], dtype: torch.dtype) -> list[Tensor]:
    """Return what forward saves besides inputs: its result in that dtype, the rest in float32."""
    backward = of_oracle(function)
    forward = functions()[backward.forward]
    came = zip(forward.outputs, outputs_of(forward.oracle, inputs, options), strict=True)
    return [x.to(dtype) if name == forward.outputs[0] else x.float() for name, x in came if name in backward.left]


def outputs_of(function: str, tensors: Sequence[Tensor], options: dict[str, Any]) -> Sequence[Tensor]:
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
    named = dict(zip(of_oracle(function).inputs, call.tensors, strict=True))
    grad, in_order = call.tensors[0], [named[name] for name in saved_names(function)]
    flipped = {name: not value if isinstance(value, bool) else value for name, value in call.options.items()}
    others = kept(function, call.others)
    inputs, computed = in_order[: len(others)], in_order[len(others) :]
    others_computed = intermediates(function, call.others, flipped, call.dtype)
    for tensors in (others, inputs):
        for between in itertools.product(*zip(others_computed, computed, strict=True)):
            for options in (call.options, flipped):
                if tensors is others or any(map(operator.is_, between, others_computed)) or options is flipped:
                    yield right(function, replace(call, options=options), [grad, *saved(function, tensors, between)])


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
