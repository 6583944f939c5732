"""Mistakes that first drafts of attention make two of at once: what each changes, of which two are put together."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from assignment.operators.flash_attention.misconceptions.backward_model import Pass, Recomputed, usual
from assignment.operators.flash_attention.misconceptions.forward_model import Tiled, Variants, is_causal
from assignment.operators.flash_attention.misconceptions.forward_softmax import ones
from assignment.operators.misconception import TILES, Call, Pair

Changes = Mapping[str, Any]  # of a model's fields
FORWARD: Mapping[str, Changes] = {
    "acc-not-rescaled": {"keep_acc": ones},
    "sum-not-rescaled": {"keep_sum": ones},
    "scale-missing": {"scale": lambda d: 1.0},
    "not-divided": {"divided": False},
    "lse-without-the-maximum": {"lse": lambda m, total: total.log()},
    "lse-the-maximum-alone": {"lse": lambda m, total: m},
    "lse-without-the-logarithm": {"lse": lambda m, total: m + total},
    "causal-ignored": {"seen": None},
    "causal-diagonal-hidden": {"seen": lambda q, k, *_: k < q},
}
BACKWARD: Mapping[str, Changes] = {
    "d-missing": {"sign": 0.0},
    "p-without-the-scale": {"recompute_scale": lambda d: 1.0},
    "dp-from-k": {"grad_p": lambda grad_o, k, v: grad_o @ k.mT},
    "backward-causal-ignored": {"seen": None},
    "dq-without-the-scale": {"grad_q": lambda x: x.grad_s @ x.k},
    "dk-without-the-scale": {"grad_k": lambda x: x.grad_s.mT @ x.q},
    "dv-from-ds": {"grad_v": lambda x: x.grad_s.mT @ x.grad_o},
    "dv-from-o": {"grad_v": lambda x: x.p.mT @ x.o},
}
GRADIENTS = ("grad_q", "grad_k", "grad_v")
ANOTHER = {"acc-not-rescaled", "sum-not-rescaled"}  # together they are a misconception of its own


def together(singles: Mapping[str, Changes], model: Any) -> list[Pair]:
    """Return pairs of mistakes that change other things than each other; model() makes what both do."""
    return [
        Pair(one, other, model({**singles[one], **singles[other]}))
        for one, other in itertools.combinations(singles, 2)
        if not singles[one].keys() & singles[other].keys() and {one, other} != ANOTHER
    ]


def forward(changes: Changes) -> Variants:
    def model(call: Call) -> Iterator[Sequence[Tensor]]:
        if is_causal(call) or "seen" not in changes:
            for tile in TILES:
                yield Tiled(**changes)(call, tile)

    return model


def backward(changes: Changes) -> Variants:
    own = {name: change for name, change in changes.items() if name in GRADIENTS}
    fields = {name: change for name, change in changes.items() if name not in GRADIENTS}

    def gradients(x: Pass) -> tuple[Tensor, Tensor, Tensor]:
        grad_q, grad_k, grad_v = (
            own[name](x) if name in own else right for name, right in zip(GRADIENTS, usual(x), strict=True)
        )
        return grad_q, grad_k, grad_v

    def model(call: Call) -> Iterator[Sequence[Tensor]]:
        if is_causal(call) or "seen" not in changes:
            yield Recomputed(gradients=gradients, **fields)(call)

    return model


FORWARD_PAIRS, BACKWARD_PAIRS = together(FORWARD, forward), together(BACKWARD, backward)
