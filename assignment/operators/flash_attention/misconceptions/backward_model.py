"""FlashAttention-2's backward pass, right by default; the sections of the handout that tell of it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assignment.operators.flash_attention.misconceptions.forward_axes import transposed
from assignment.operators.flash_attention.misconceptions.forward_model import (
    Round,
    Variants,
    default_scale,
    in_the_future,
    is_causal,
    operand,
    past,
)
from assignment.operators.misconception import Call, exact, exp

Gradients = Callable[["Pass"], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class Pass:
    """The tensors of one backward pass, in float64."""

    grad_o: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor
    lse: Tensor
    p: Tensor
    grad_p: Tensor
    delta: Tensor
    grad_s: Tensor
    scale: float


def usual(x: Pass) -> tuple[Tensor, Tensor, Tensor]:
    return x.grad_s @ x.k * x.scale, x.grad_s.mT @ x.q * x.scale, x.p.mT @ x.grad_o


def row_dots(grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor) -> Tensor:
    return (grad_o * o).sum(-1, keepdim=True)


@dataclass(frozen=True)
class Recomputed:
    """Each field is a thing that can be wrong."""

    recompute_scale: Callable[[int], float] = default_scale
    scale: Callable[[int], float] = default_scale
    product: Callable[[Tensor, Tensor], Tensor] = transposed  # of q and k
    seen: Callable[..., Tensor] | None = past
    hidden: float = -math.inf
    lse: Callable[[Tensor], Tensor] = lambda lse: lse.unsqueeze(-1)
    p_from: Callable[[Tensor, Tensor], Tensor] = lambda s, lse: torch.where(s == -math.inf, 0.0, exp(s - lse))
    delta: Callable[..., Tensor] = row_dots
    grad_p: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda grad_o, k, v: grad_o @ v.mT
    sign: float = -1.0  # of D
    gradients: Gradients = usual
    logits: Round = exact
    dp: Round = exact
    d: Round = exact
    p: Round = exact
    ds: Round = exact
    n_keys: Callable[[int, int], int] = lambda n_queries, n_keys: n_keys
    visited: tuple[int, int] | None = None
    inputs: Callable[..., Sequence[Tensor]] = lambda *tensors: tensors

    def __call__(self, call: Call) -> tuple[Tensor, ...]:
        grad_o, q, k, v, o, lse = self.inputs(*(tensor.double() for tensor in call.tensors))
        n_queries, n_keys = q.shape[-2], k.shape[-2]
        s = self.logits(self.product(q, k) * self.recompute_scale(q.shape[-1]))
        if is_causal(call) and self.seen:
            seen = self.seen(torch.arange(n_queries)[:, None], torch.arange(n_keys), 0, n_queries, n_keys)
            s = torch.where(seen, s, self.hidden)
        p = self.p(self.p_from(s, self.lse(lse)))
        p = torch.where(torch.arange(n_keys) < self.n_keys(n_queries, n_keys), p, 0.0)
        if self.visited and is_causal(call):
            p = torch.where(
                in_the_future(torch.arange(n_queries)[:, None], torch.arange(n_keys), *self.visited), 0.0, p
            )
        grad_p = self.dp(self.grad_p(grad_o, k, v))
        delta = self.d(self.delta(grad_o, q, k, v, o))
        grad_s = self.ds(p * (grad_p + self.sign * delta))
        p, grad_s = operand(call)(p), operand(call)(grad_s)
        return self.gradients(Pass(grad_o, q, k, v, o, lse, p, grad_p, delta, grad_s, self.scale(q.shape[-1])))


def one(**changes: Any) -> Variants:
    return lambda call: iter([Recomputed(**changes)(call)])


SQUARE = "handout/flash_attention.md#backward-mathematics"
RECOMPUTING = "handout/flash_attention.md#recomputing-p"
ALGORITHM = "handout/flash_attention.md#backward-algorithm"
NUMBERS = "handout/flash_attention.md#backward-what-goes-wrong"


def only_square(model: Variants) -> Variants:
    return lambda call: model(call) if call.tensors[1].shape[-2] == call.tensors[2].shape[-2] else iter(())
