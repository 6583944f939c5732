"""What can go wrong with what the backward pass keeps in 16 bits, or cuts off."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from assignment.operators.flash_attention.misconceptions.backward_model import NUMBERS, Pass, Recomputed, usual
from assignment.operators.flash_attention.misconceptions.forward_model import Round, Variants, several
from assignment.operators.misconception import TILES, Call, Misconception, exact, rounded


def in_dtype(*fields: str, **changes: Any) -> Variants:
    def model(call: Call) -> Iterator[Sequence[Tensor]]:
        if call.dtype != torch.float32:
            yield Recomputed(**(dict.fromkeys(fields, rounded(call.dtype)) | changes))(call)

    return model


def accumulated(output: int) -> Variants:
    """A gradient that is rounded to 16 bits after every tile."""

    def model(call: Call) -> Iterator[Sequence[Tensor]]:
        if call.dtype == torch.float32:
            return
        cast = rounded(call.dtype)
        for tile in TILES:
            for operands in (exact, cast):

                def change(x: Pass, tile: int = tile, operands: Round = operands) -> tuple[Tensor, Tensor, Tensor]:
                    grads = [*usual(x)]
                    products = (x.grad_s, x.scale * x.k), (x.grad_s.mT, x.scale * x.q), (x.p.mT, x.grad_o)
                    left, right = products[output]
                    total = torch.zeros_like(grads[output])
                    for columns, rows in zip(left.split(tile, -1), right.split(tile, -2), strict=True):
                        total = cast(total + operands(columns) @ rows)
                    grads[output] = total
                    return tuple(grads)  # type: ignore[return-value]

                yield Recomputed(gradients=change)(call)

    return model


MISCONCEPTIONS = [
    Misconception(
        "d-in-16-bits",
        "Your gradients equal those with D rounded to the inputs' 16 bits",
        "D is a sum over a row: in float32, from products in float32.",
        NUMBERS,
        several(
            in_dtype("d"),
            lambda call: (
                Recomputed(
                    delta=lambda grad_o, q, k, v, o: rounded(call.dtype)(
                        rounded(call.dtype)(grad_o * o).sum(-1, keepdim=True)
                    )
                )(call)
                for _ in range(call.dtype != torch.float32)
            ),
            lambda call: (
                Recomputed(delta=lambda grad_o, q, k, v, o: rounded(call.dtype)(grad_o * o).sum(-1, keepdim=True))(call)
                for _ in range(call.dtype != torch.float32)
            ),
        ),
    ),
    Misconception(
        "backward-lse-in-16-bits",
        "Your gradients equal those with lse rounded to the inputs' 16 bits",
        "lse is float32: what does it become after the load?",
        NUMBERS,
        lambda call: (
            Recomputed(lse=lambda lse, dtype=dtype: rounded(dtype)(lse).unsqueeze(-1))(call)
            for dtype in (torch.bfloat16, torch.float16)
        ),
    ),
    Misconception(
        "backward-logits-in-16-bits",
        "Your gradients equal those whose logits are rounded to the inputs' 16 bits",
        "What dtype has q kᵀ before lse is subtracted?",
        NUMBERS,
        in_dtype("logits"),
    ),
    Misconception(
        "dp-in-16-bits",
        "Your gradients equal those with dP rounded to the inputs' 16 bits before D is subtracted",
        "dP − D cancels: both in float32; the cast comes after.",
        NUMBERS,
        several(in_dtype("dp"), in_dtype("dp", "d")),
    ),
    Misconception(
        "gradient-accumulated-in-16-bits",
        "Your gradients equal those with a gradient added up in the inputs' 16 bits",
        "In which dtype is the accumulator made?",
        NUMBERS,
        several(accumulated(0), accumulated(1), accumulated(2)),
    ),
    Misconception(
        "p-and-do-in-another-16-bits",
        "Your grad_v equals Pᵀ dO with operands rounded to 16 bits whatever the inputs are",
        "Products are made in the inputs' dtype: which cast comes before tl.dot?",
        NUMBERS,
        lambda call: (
            Recomputed(gradients=lambda x, cast=cast: (*usual(x)[:2], cast(x.p).mT @ cast(x.grad_o)))(call)
            for cast in (rounded(dtype) for dtype in (torch.bfloat16, torch.float16) if dtype != call.dtype)
        ),
    ),
    Misconception(
        "values-limited",
        "Your gradients equal those in which large values are cut off",
        "Nothing in the backward pass needs a limit: P is at most 1.",
        NUMBERS,
        lambda call: (
            tuple(gradient.clamp(-limit, limit) for gradient in Recomputed()(call))
            for limit in (1e2, 1e3, 1e4, 65504.0)
        ),
    ),
    Misconception(
        "inputs-limited",
        "Your gradients equal those of inputs whose large values are cut off",
        "Nothing in the backward pass needs a limit: P is at most 1.",
        NUMBERS,
        lambda call: (
            Recomputed(
                inputs=lambda grad_o, *qkv, which=which, limit=limit: (
                    grad_o,
                    *(x.clamp(-limit, limit) if i in which else x for i, x in enumerate(qkv)),
                )
            )(call)
            for which in ((0,), (0, 1), (0, 1, 2))
            for limit in (1e2, 1e3, 1e4, 65504.0)
            if any(call.tensors[1 + i].abs().max() > limit for i in which)
        ),
    ),
]
