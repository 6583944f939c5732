"""What may have been computed in place of a function: the results of models and of other tensors."""

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assignment.operators import parts
from assignment.operators.misconception import Call, Misconception, Model, Models
from assignment.protocol.messages import Options
from assignment.protocol.requests import Again, Called, Gradients, Ranks
from assignment.verdict.diagnosis import strides
from assignment.verdict.finding import Explanation
from tests.operators import Function, functions, of_oracle, operator_of, oracle

OF_ANOTHER_GRAPH = Explanation(
    "another-graph",
    "Your gradients are those with tensors, or options, of another forward pass that came in between",
    "handout/grading.md#what-may-be-called",
    "A class or a module holds the last ones only: ctx keeps those of its own graph.",
)
SEVERAL = " + "  # between the names of mistakes that were made at once
MAX_ELEMENTS = 1 << 22  # of scores, or of x: what is larger is not looked at

MODELS: dict[str, Models] = {name: models for part in parts("misconceptions") for name, models in part.MODELS.items()}


@dataclass(frozen=True)
class Cause:
    """What may have been computed instead: how it is told, and all such results."""

    explanation: Explanation
    model: Model
    is_by_batch: bool = False  # what it computes of an entry of the batch depends on no other entry
    is_misconception: bool = False  # of the operator's own


def calls(request: Called, sent: Sequence[Tensor]) -> list[Call]:
    """Return the calls that a request of judge/door.py has the submission compute.

    They are calls of the functions that have models.
    """
    function, tensors, middle = functions().get(request.function), list(sent), len(sent) // 2
    if function is None:
        return []
    if isinstance(request, Ranks):
        return [*of_ranks(function, request, tensors)]
    if isinstance(request, Gradients):
        return [gradients_of(function, tensors, request)]
    outputs = (0,) if function.gradients else None
    halves = [tensors[:middle], tensors[middle:]] if isinstance(request, Again) else [tensors]
    return [Call(function.oracle, half, request.options, outputs) for half in halves]


def of_ranks(function: Function, request: Ranks, tensors: list[Tensor]) -> Iterator[Call]:
    """Yield the calls of all ranks; options say which one it is, and hold the inputs of all, in other calls too."""
    by_call = [*zip(*(request.of_rank(tensors, rank) for rank in range(request.ranks)), strict=True)]
    for number, ranks in enumerate(by_call, 1):
        others = [call for call in by_call if call is not ranks]
        for rank, own in enumerate(ranks):
            options = {"rank": rank, "call": number, "ranks": ranks, "others": others}
            yield Call(function.oracle, own, request.options | options)


@dataclass(frozen=True)
class Interleaved(Call):
    """The backward pass of a call after another forward pass, of `others`."""

    others: Sequence[Tensor] = ()


def gradients_of(function: Function, tensors: list[Tensor], asked: Gradients) -> Call:
    """Return the backward pass that asking for gradients amounts to."""
    inputs, options = tensors[:-1] if asked.has_grad else tensors, asked.options
    backward, dtype = functions()[function.gradients].oracle, inputs[0].dtype
    if asked.has_grad:
        grad = tensors[-1]
    else:
        grad = torch.ones_like(outputs_of(function.oracle, inputs, options)[0], dtype=dtype)
    kept = saved(backward, inputs_of(backward, inputs), intermediates(backward, inputs, options, dtype))
    call = Call(backward, [grad, *kept], options, tuple(asked.wrt))
    if not asked.interleaved:
        return call
    others = [tensor / 2 for tensor in inputs]
    return Interleaved(call.function, call.tensors, call.options, call.outputs, others=others)


def inputs_of(function: str, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    """Return the inputs of a backward pass's forward one, by name."""
    return dict(zip(functions()[of_oracle(function).forward].inputs, tensors, strict=True))


def saved(function: str, inputs: dict[str, Tensor], between: dict[str, Tensor]) -> list[Tensor]:
    """Return what a backward pass gets beside the gradient, in its order: what forward got and what it computed."""
    return [(inputs | between)[name] for name in of_oracle(function).inputs[1:]]


def intermediates(function: str, inputs: Sequence[Tensor], options: Options, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return what forward saves besides inputs, by name: its result in that dtype, the rest in float32."""
    backward = of_oracle(function)
    forward = functions()[backward.forward]
    came = zip(forward.outputs, outputs_of(forward.oracle, inputs, options), strict=True)
    return {name: x.to(dtype) if name == forward.outputs[0] else x.float() for name, x in came if name in backward.left}


def outputs_of(function: str, tensors: Sequence[Tensor], options: Options) -> Sequence[Tensor]:
    """Return the oracle's outputs."""
    came = oracle(function)(*tensors, **options)
    return came if isinstance(came, tuple) else (came,)


def elements(call: Call) -> int:
    """Return how many elements a call's work is measured by."""
    named = dict(zip(of_oracle(call.function).inputs, call.tensors, strict=True))
    return operator_of(of_oracle(call.function).name).elements(named)


def too_large(call: Call) -> bool:
    return elements(call) > MAX_ELEMENTS


def possible(function: str, call: Call) -> Iterator[Cause]:
    """Yield whatever may have been computed in place of the function, the likelier first."""
    models = MODELS[function]
    several = models.misconceptions
    # of what is wrong in 16 bits alone, the most is rounded too early
    if call.dtype != torch.float32:
        several = sorted(several, key=lambda one: not one.section.endswith("what-goes-wrong"))
    for misconception in several:
        model = functools.partial(in_every_way, misconception.model, models.ways)
        yield Cause(told_by(misconception), model, misconception.is_by_batch, is_misconception=True)
    section = models.section
    for words, tensors in strides.misread(call, of_oracle(function).inputs, models.n_inner):
        says = f"Your result is what comes out if {words}"
        look = "Every tensor has strides of its own: .stride() tells them."
        misread = functools.partial(results, function, tensors=tensors)
        yield Cause(Explanation(f"misread: {words}", says, section, look), misread)
    if isinstance(call, Interleaved):
        yield Cause(OF_ANOTHER_GRAPH, functools.partial(of_another_graph, function))
    says = "Your result is right, but stored with an input's strides"
    look = "The result has strides of its own: pass those of the tensor that is stored to."
    yield Cause(Explanation("stored-with-inputs-strides", says, section, look), functools.partial(misplaced, function))
    says = "Your result is right, but stored as if it were contiguous"
    look = "torch.empty_like(x) has x's strides: pass those of the result to the kernel."
    yield Cause(Explanation("stored-as-contiguous", says, section, look), functools.partial(mislaid, function))


def two_at_once(function: str) -> Iterator[Cause]:
    """Yield the pairs of misconceptions that may have been made at once, as one cause each."""
    models = MODELS[function]
    named = {one.name: one for one in models.misconceptions}
    for pair in models.pairs:
        pair_of = [named[pair.one], named[pair.other]]
        model = functools.partial(in_every_way, pair.model, models.ways)
        yield Cause(both([*map(told_by, pair_of)]), model, all(one.is_by_batch for one in pair_of))


def both(of: Sequence[Explanation]) -> Explanation:
    """Return how several mistakes are told that were made at once."""
    says = ". ".join([f"{len(of)} mistakes at once", *(one.says for one in of)])
    return Explanation(SEVERAL.join(one.name for one in of), says, of[0].section, " ".join(one.look for one in of))


def told_by(one: Misconception) -> Explanation:
    """Return how a misconception is told."""
    return Explanation(one.name, one.says, one.section, one.look, is_rare=one.is_rare)


def in_every_way(model: Model, ways: Callable[[Call], Iterable[str]], call: Call) -> Iterator[Sequence[Tensor]]:
    """Yield all results of a model, with the work done in each of the ways."""
    for way in ways(call):
        yield from model(replace(call, way=way))


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
    others = inputs_of(function, call.others)
    computed = {name: named[name] for name in of_oracle(function).left}
    flipped = {name: not value if isinstance(value, bool) else value for name, value in call.options.items()}
    others_computed = intermediates(function, call.others, flipped, call.dtype)
    for inputs in (others, named):
        for values in itertools.product(*((others_computed[name], own) for name, own in computed.items())):
            between = dict(zip(computed, values, strict=True))
            kept = saved(function, inputs, between)
            is_others = any(map(operator.is_not, kept, call.tensors[1:]))
            for options in (call.options, flipped):
                if is_others or options != call.options:
                    yield right(function, replace(call, options=options), [call.tensors[0], *kept])


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
