"""What can go wrong in the mathematics of the gradients: D, dP, dS, their products and scales."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from assignment.operators.flash_attention.misconceptions.backward_model import (
    SQUARE,
    Gradients,
    Pass,
    Recomputed,
    one,
    only_square,
    usual,
)
from assignment.operators.flash_attention.misconceptions.forward_axes import untransposed
from assignment.operators.flash_attention.misconceptions.forward_model import Variants, several
from assignment.operators.misconception import TILES, Call, Misconception


def scaled(q: float = 0, k: float = 0, v: float = 0) -> Gradients:
    """With more powers of the scale."""

    def change(x: Pass) -> tuple[Tensor, Tensor, Tensor]:
        return tuple(gradient * x.scale**power for gradient, power in zip(usual(x), (q, k, v), strict=True))

    return change


def of_one_side(output: int) -> Variants:
    """dSᵀ times a tile of k for grad_k, or dS times a tile of q for grad_q: tiles are square, and nothing complains."""

    def model(call: Call) -> Iterator[Sequence[Tensor]]:
        for tile in TILES:

            def change(x: Pass, tile: int = tile) -> tuple[Tensor, Tensor, Tensor]:
                grads = [*usual(x)]
                left, right = ((x.grad_s, x.q), (x.grad_s.mT, x.k))[output]
                n_left, n_right = (-n % tile for n in left.shape[-2:])
                whole = torch.nn.functional.pad(left, (0, n_right, 0, n_left))
                whole = whole.unflatten(-1, (-1, tile)).sum(-2)  # (…, rows, tile)
                rows = torch.nn.functional.pad(right, (0, 0, 0, n_left)).unflatten(-2, (-1, tile))
                product = whole.unflatten(-2, (-1, tile)) @ rows
                grads[output] = x.scale * product.flatten(-3, -2)[..., : left.shape[-2], :]
                return tuple(grads)  # type: ignore[return-value]

            yield Recomputed(gradients=change)(call)

    return model


def in_place_of_grad_o(call: Call) -> Iterator[Sequence[Tensor]]:
    """o where grad_o belongs: in dP and grad_v, or in D too."""
    yield Recomputed(inputs=lambda grad_o, q, k, v, o, lse: (o, q, k, v, o, lse))(call)
    grad_o = call.tensors[0].double()
    yield Recomputed(
        inputs=lambda _, q, k, v, o, lse: (o, q, k, v, o, lse),
        delta=lambda _, q, k, v, o: (grad_o * o).sum(-1, keepdim=True),
    )(call)


MISCONCEPTIONS = [
    Misconception(
        "d-missing",
        "Your gradients equal those without D: dS = P∘dP",
        "dS = P∘(dP − D): what is subtracted from each row of dP?",
        SQUARE,
        one(sign=0.0),
    ),
    Misconception(
        "d-added",
        "Your gradients equal those with D added instead of subtracted",
        "dS = P∘(dP − D): check the sign.",
        SQUARE,
        one(sign=1.0),
    ),
    Misconception(
        "d-twice",
        "Your gradients equal those with D subtracted twice",
        "dS = P∘(dP − D): is it taken off dP, and once more off dS?",
        SQUARE,
        one(sign=-2.0),
    ),
    Misconception(
        "d-missing-in-one-gradient",
        "Your grad_q, or your grad_k, is a product with P∘dP, and the other one with dS",
        "Both are products with dS = P∘(dP − D): which tile is multiplied in each?",
        SQUARE,
        several(
            one(gradients=lambda x: (x.p * x.grad_p @ x.k * x.scale, *usual(x)[1:])),
            one(gradients=lambda x: (usual(x)[0], (x.p * x.grad_p).mT @ x.q * x.scale, usual(x)[2])),
        ),
    ),
    Misconception(
        "d-from-the-wrong-tensors",
        "Your gradients equal those with D taken from the wrong tensors",
        "D_i is the sum over the row of dO_i times O_i.",
        SQUARE,
        several(
            one(delta=lambda grad_o, q, k, v, o: o.sum(-1, keepdim=True)),
            one(delta=lambda grad_o, q, k, v, o: grad_o.sum(-1, keepdim=True)),
            one(delta=lambda grad_o, q, k, v, o: (o * o).sum(-1, keepdim=True)),
            one(delta=lambda grad_o, q, k, v, o: (grad_o * grad_o).sum(-1, keepdim=True)),
            one(delta=lambda grad_o, q, k, v, o: (grad_o * q).sum(-1, keepdim=True)),
            only_square(one(delta=lambda grad_o, q, k, v, o: (grad_o * v).sum(-1, keepdim=True))),
            one(delta=lambda grad_o, q, k, v, o: (grad_o * o).mean(-1, keepdim=True)),
        ),
    ),
    Misconception(
        "dp-from-k",
        "Your gradients equal those with dP = dO Kᵀ",
        "O = P V: which of k and v does dP meet?",
        SQUARE,
        one(grad_p=lambda grad_o, k, v: grad_o @ k.mT),
    ),
    Misconception(
        "k-not-transposed-in-the-backward",
        "Your gradients equal those with P from q k in place of q kᵀ, tile by tile",
        "A logit is the product of two rows, one of q and one of k: along which axis of k's tile does d run?",
        SQUARE,
        one(product=untransposed),
    ),
    Misconception(
        "v-not-transposed",
        "Your gradients equal those with dP = dO V in place of dO Vᵀ, tile by tile",
        "An element of dP is the product of two rows, one of dO and one of V: along which axis of V's tile does d run?",
        SQUARE,
        one(grad_p=lambda grad_o, k, v: untransposed(grad_o, v)),
    ),
    Misconception(
        "dv-from-ds",
        "Your grad_v equals dSᵀ dO",
        "O = P V: dV is a product with P, not with dS.",
        SQUARE,
        one(gradients=lambda x: (*usual(x)[:2], x.grad_s.mT @ x.grad_o)),
    ),
    Misconception(
        "dv-from-o",
        "Your grad_v equals Pᵀ O",
        "dV = Pᵀ dO: which gradient comes in?",
        SQUARE,
        one(gradients=lambda x: (*usual(x)[:2], x.p.mT @ x.o)),
    ),
    Misconception(
        "o-for-grad-o",
        "Your gradients equal those with o in the place of grad_o",
        "dP = dO Vᵀ and dV = Pᵀ dO: which of the two tensors does the kernel get?",
        SQUARE,
        in_place_of_grad_o,
    ),
    Misconception(
        "k-and-v-swapped-in-the-backward",
        "Your gradients equal those with k and v in each other's place",
        "In which order are they saved, and in which order handed on?",
        "handout/flash_attention.md#backward-interface",
        several(
            one(inputs=lambda grad_o, q, k, v, o, lse: (grad_o, q, v, k, o, lse)),
            lambda call: (
                (grads[0], grads[2], grads[1])
                for grads in one(inputs=lambda grad_o, q, k, v, o, lse: (grad_o, q, v, k, o, lse))(call)
            ),
        ),
    ),
    Misconception(
        "dk-from-k",
        "Your grad_k equals dSᵀ k, tile by tile, or your grad_q equals dS q",
        "S = q kᵀ: by the chain rule the gradient of one factor is a product with the other.",
        SQUARE,
        several(of_one_side(1), of_one_side(0)),
    ),
    Misconception(
        "p-squared",
        "Your gradients equal those with dS multiplied by P twice",
        "dS = P∘(dP − D): P stands in it once.",
        SQUARE,
        several(
            one(
                gradients=lambda x: (
                    x.p * x.grad_s @ x.k * x.scale,
                    (x.p * x.grad_s).mT @ x.q * x.scale,
                    x.p.mT @ x.grad_o,
                )
            ),
            one(gradients=lambda x: (x.p * x.grad_s @ x.k * x.scale, *usual(x)[1:])),
            one(gradients=lambda x: (usual(x)[0], (x.p * x.grad_s).mT @ x.q * x.scale, usual(x)[2])),
        ),
    ),
    Misconception(
        "ds-without-p",
        "Your gradients equal those with dS = dP − D, without the factor P",
        "dS = P∘(dP − D).",
        SQUARE,
        one(
            gradients=lambda x: (
                (x.grad_p - x.delta) @ x.k * x.scale,
                (x.grad_p - x.delta).mT @ x.q * x.scale,
                x.p.mT @ x.grad_o,
            )
        ),
    ),
    Misconception(
        "dq-without-the-scale",
        "Your grad_q lacks the scale 1/√d",
        "S = q kᵀ/√d: the chain rule brings the scale back once for grad_q.",
        SQUARE,
        one(gradients=scaled(q=-1)),
    ),
    Misconception(
        "dk-without-the-scale",
        "Your grad_k lacks the scale 1/√d",
        "S = q kᵀ/√d: the chain rule brings the scale back once for grad_k.",
        SQUARE,
        one(gradients=scaled(k=-1)),
    ),
    Misconception(
        "ds-without-the-scale",
        "Your grad_q and grad_k lack the scale 1/√d",
        "S = q kᵀ/√d: the chain rule brings the scale back once.",
        SQUARE,
        one(gradients=scaled(q=-1, k=-1)),
    ),
    Misconception(
        "scaled-twice",
        "Your grad_q or grad_k is scaled by 1/√d once too often",
        "If q, or dS, is scaled already, its product is not scaled again.",
        SQUARE,
        several(*(one(gradients=scaled(q=q, k=k)) for q, k in ((1, 0), (0, 1), (1, 1)))),
    ),
]
