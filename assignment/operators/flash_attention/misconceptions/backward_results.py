"""What can go wrong with whole gradients: transposed, multiplied, not stored, in the wrong order."""

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from assignment.operators.flash_attention.misconceptions.backward_model import (
    ALGORITHM,
    SQUARE,
    Gradients,
    Pass,
    Recomputed,
    one,
    usual,
)
from assignment.operators.flash_attention.misconceptions.forward_model import Variants, several
from assignment.operators.misconception import TILES, Call, Misconception


def not_transposed(output: int) -> Variants:
    """The tiles of dS, or of P, multiplied as they are where their transposes belong."""

    def model(call: Call) -> Iterator[Sequence[Tensor]]:
        for tile in TILES:

            def change(x: Pass, tile: int = tile) -> tuple[Tensor, Tensor, Tensor]:
                grads = [*usual(x)]
                left, right = ((x.grad_s, x.scale * x.q), (x.p, x.grad_o))[output - 1]
                grads[output] = turned(left, tile).mT[..., : x.k.shape[-2], : x.q.shape[-2]] @ right
                return tuple(grads)  # type: ignore[return-value]

            yield Recomputed(gradients=change)(call)

    return model


def turned(x: Tensor, tile: int) -> Tensor:
    """Each square tile of x transposed in its place, with zeros up to whole tiles."""
    n_rows, n_cols = (-(-n // tile) for n in x.shape[-2:])
    whole = torch.nn.functional.pad(x, (0, n_cols * tile - x.shape[-1], 0, n_rows * tile - x.shape[-2]))
    return (
        whole.unflatten(-1, (n_cols, tile)).unflatten(-3, (n_rows, tile)).transpose(-1, -3).flatten(-4, -3).flatten(-2)
    )


def replaced(by: Callable[[Tensor], Tensor], *outputs: int) -> Gradients:
    def change(x: Pass) -> tuple[Tensor, Tensor, Tensor]:
        return tuple(by(gradient) if i in outputs else gradient for i, gradient in enumerate(usual(x)))  # type: ignore

    return change


MISCONCEPTIONS = [
    Misconception(
        "dk-not-transposed",
        "Your grad_k equals dS q where dSᵀ q belongs, tile by tile",
        "grad_k has a row for each key: along which axis of dS do the keys run?",
        SQUARE,
        not_transposed(1),
    ),
    Misconception(
        "dv-not-transposed",
        "Your grad_v equals P dO where Pᵀ dO belongs, tile by tile",
        "grad_v has a row for each key: along which axis of P do the keys run?",
        SQUARE,
        not_transposed(2),
    ),
    Misconception(
        "log2-e-in-the-gradients",
        "Your grad_q or grad_k is log₂(e) times too large, or too small",
        "log₂(e) belongs into the exponent of exp2 alone; the gradients are scaled by 1/√d.",
        "handout/speed.md#powers-of-two",
        several(
            *(
                one(gradients=replaced(lambda gradient, factor=factor: factor * gradient, *outputs))
                for factor in (math.log2(math.e), math.log(2))
                for outputs in ((0, 1), (0,), (1,))
            )
        ),
    ),
    Misconception(
        "a-gradient-of-zeros",
        "One of your gradients is zero everywhere, and the others are right",
        "Is it stored, and to the tensor that is returned?",
        ALGORITHM,
        several(*(one(gradients=replaced(torch.zeros_like, output)) for output in range(3))),
    ),
    Misconception(
        "gradients-in-the-wrong-order",
        "Your gradients are right, but returned in the wrong order",
        "The order is grad_q, grad_k, grad_v.",
        "handout/flash_attention.md#backward-interface",
        lambda call: (
            [grads[i] for i in order]
            for grads in [Recomputed()(call)]
            for order in ((0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
        ),
    ),
]
