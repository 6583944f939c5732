"""Honest models of attention: how a right kernel of a given precision errs, which sets the bound for every kernel.

They are the same computation in float32 with one of the roundings that a right kernel may make: what a tensor core does
to float32 operands, q scaled before the product, P and dS cast before they are multiplied. See tests/compare.py.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor

from tests.compare import Expected, Model, expect
from tests.flash_attention import oracle
from tests.tensor_cores import nearest, truncate

Rounding = Callable[[Tensor], Tensor]
UNIT = 2.0**-23


def attention_forward(
    q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, tf32: bool = True
) -> dict[str, Expected]:
    """o and lse; tf32 says whether float32 products may be made by a tensor core, as tl.dot makes them."""
    o, lse = oracle.attention_forward(q, k, v, is_causal)
    model = cache(partial(_attention_forward, q, k, v, is_causal))
    probabilities = (_logits(q, k, is_causal) - lse.float().unsqueeze(-1)).exp()
    products = _logits(q.abs(), k.abs(), is_causal=False)
    lse_magnitude = (probabilities * products).sum(-1) + lse.abs() + 1
    return {
        "o": expect(o, *models(model, 0, q.dtype, tf32), probabilities @ v.float().abs(), q.dtype, rows=True),
        "lse": expect(lse, *models(model, 1, q.dtype, tf32), lse_magnitude, torch.float32, rows=False),
    }


def attention_backward(
    grad_o: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    is_causal: bool = False,
    tf32: bool = True,
) -> dict[str, Expected]:
    """The gradients for o in the inputs' dtype and lse in float32, as a forward pass returns them."""
    values = oracle.attention_backward(grad_o, q, k, v, is_causal)
    model = cache(partial(_attention_backward, grad_o, q, k, v, o, lse, is_causal))
    probabilities = _logits(q, k, is_causal).softmax(-1)
    grad_o, q_, k_, v_ = (t.float().abs() for t in (grad_o, q, k, v))
    delta = (grad_o * (probabilities @ v_)).sum(-1, keepdim=True)
    grad_logits = probabilities * (grad_o @ v_.mT + delta) / math.sqrt(q.shape[-1])
    magnitudes = (grad_logits @ k_, grad_logits.mT @ q_, probabilities.mT @ grad_o)
    return {
        name: expect(values[i], *models(model, i, q.dtype, tf32), magnitudes[i], q.dtype, rows=True)
        for i, name in enumerate(("grad_q", "grad_k", "grad_v"))
    }


def exact(x: Tensor) -> Tensor:
    return x


@dataclass(frozen=True)
class Arithmetic:
    """What one attention kernel rounds: by default nothing beyond float32."""

    logits: Rounding = exact  # the operands of q kᵀ
    grad_p: Rounding = exact  # the operands of dO vᵀ
    outputs: Rounding = exact  # the operands of the products with P and dS
    probabilities: Rounding = exact  # P and dS, before they are multiplied
    scaled_q: Rounding | None = None  # q times the scale, before the product; None: the logits are scaled instead
    scaled_k: Rounding | None = None  # likewise k; who scales both does it by the root of the scale
    base: float = 1.0  # log₂e where the exponentials are powers of 2
    normalized: bool = False  # P = exp(S − lse), as in two passes over the keys, instead of exp(S − max) and a division
    below: bool = (
        False  # P a unit less: by a fused multiply-add the largest is not quite exp(0), which truncation shows
    )
    delta_from_p: bool = False  # D = Σ P∘dP, which is the same number as Σ dO∘O


def roundings(dtype: torch.dtype, tf32: bool) -> list[list[Arithmetic]]:
    """Each rounding that a correct kernel for inputs of this dtype may make, in all its ways."""

    def cast(x: Tensor) -> Tensor:
        return x.to(dtype).float()

    bases = (1.0, math.log2(math.e))
    truncated = [Arithmetic(outputs=truncate, below=True, normalized=normalized) for normalized in (False, True)]
    if dtype == torch.float32:
        ways = (truncate, nearest) if tf32 else (exact,)
        products = [
            [*(Arithmetic(logits=way) for way in ways), Arithmetic(logits=truncate, delta_from_p=True)],
            [Arithmetic(grad_p=way) for way in ways],
            [*(Arithmetic(outputs=way) for way in ways), *truncated],
        ]
    else:
        ways = (cast, truncate) if tf32 else (cast,)  # truncate: widened to float32 before it is scaled
        products = [
            [Arithmetic(probabilities=cast), Arithmetic(probabilities=cast, normalized=True)],
            [Arithmetic(outputs=truncate), *truncated],
        ]
    return [
        [Arithmetic(), Arithmetic(delta_from_p=True)],
        *(products if tf32 or dtype != torch.float32 else []),
        [Arithmetic(scaled_q=way, base=base) for way in ways for base in bases],
        [Arithmetic(scaled_k=way, base=base) for way in ways for base in bases]
        + [Arithmetic(scaled_q=way, scaled_k=way) for way in ways],
    ]


def together(dtype: torch.dtype, tf32: bool) -> list[Arithmetic]:
    """What a tensor core does when it makes all float32 products."""
    is_tf32 = tf32 and dtype == torch.float32
    return [Arithmetic(logits=truncate, grad_p=truncate, outputs=truncate)] if is_tf32 else []


def models(
    model: Callable[[Arithmetic], tuple[Tensor, ...]], output: int, dtype: torch.dtype, tf32: bool
) -> tuple[list[list[Model]], list[Model]]:
    """One output of all models, each computed when it is asked for, for expect()'s roundings and together."""

    def of(ways: Iterable[Arithmetic]) -> list[Model]:
        return [lambda how=how: model(how)[output] for how in ways]

    return [of(ways) for ways in roundings(dtype, tf32)], of(together(dtype, tf32))


def _logits(q: Tensor, k: Tensor, is_causal: bool, how: Arithmetic = Arithmetic()) -> Tensor:
    scale = how.base / math.sqrt(q.shape[-1])
    if how.scaled_q is not None and how.scaled_k is not None:
        logits = how.scaled_q(q.float() * math.sqrt(scale)) @ how.scaled_k(k.float() * math.sqrt(scale)).mT
    elif how.scaled_q is not None:
        logits = how.scaled_q(q.float() * scale) @ k.float().mT
    elif how.scaled_k is not None:
        logits = q.float() @ how.scaled_k(k.float() * scale).mT
    else:
        logits = how.logits(q.float()) @ how.logits(k.float()).mT * scale
    logits = logits / how.base
    return logits.masked_fill(oracle.above_diagonal(logits), -math.inf) if is_causal else logits


def _attention_forward(q: Tensor, k: Tensor, v: Tensor, is_causal: bool, how: Arithmetic) -> tuple[Tensor, Tensor]:
    logits = _logits(q, k, is_causal, how)
    largest = logits.amax(-1, keepdim=True)
    p = (logits - largest).exp()
    total = p.sum(-1, keepdim=True)
    lse = largest + total.log()
    if how.normalized:
        p, total = (logits - lse).exp(), torch.ones_like(total)
    if how.below:
        p = p * (1 - UNIT)
    o = how.outputs(how.probabilities(p)) @ how.outputs(v.float()) / total
    return o, lse.squeeze(-1)


def _attention_backward(
    grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, is_causal: bool, how: Arithmetic
) -> tuple[Tensor, Tensor, Tensor]:
    p = (_logits(q, k, is_causal, how) - lse.unsqueeze(-1)).exp()
    if how.below:
        p = p * (1 - UNIT)
    grad_p = how.grad_p(grad_o.float()) @ how.grad_p(v.float()).mT
    delta = (p * grad_p if how.delta_from_p else grad_o.float() * o.float()).sum(-1, keepdim=True)
    p, ds = (how.outputs(how.probabilities(x)) for x in (p, p * (grad_p - delta)))
    do, q32, k32 = (how.outputs(x.float()) for x in (grad_o, q, k))
    scale = 1 / math.sqrt(q.shape[-1])
    return ds @ k32 * scale, ds.mT @ q32 * scale, p.mT @ do
