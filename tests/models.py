"""Honest models: how a correct kernel of a given precision errs, which sets the bound that every kernel is held to.

Each function returns the outputs of one operator as compare.Expected. The models are the same computation in float32
with the roundings that a correct kernel may choose: what a tensor core does to float32 operands, when q is scaled,
what dtype P and dS have when they are multiplied, and in which order long sums are added.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tests import oracle
from tests.compare import Expected, expect

Rounding = Callable[[Tensor], Tensor]


def weighted_sum_forward(x: Tensor, weight: Tensor) -> dict[str, Expected]:
    terms = x.float() * weight.float()
    magnitude = oracle.weighted_sum_forward(x.abs(), weight.abs())
    models = [total.to(x.dtype) for total in sums(terms, dim=-1)]
    return {"y": expect(oracle.weighted_sum_forward(x, weight), models, magnitude, x.dtype, rows=False)}


def weighted_sum_backward(grad_y: Tensor, x: Tensor, weight: Tensor) -> dict[str, Expected]:
    grad_x, grad_weight = oracle.weighted_sum_backward(grad_y, x, weight)
    outer = grad_y.float().unsqueeze(-1)
    magnitude = oracle.sum_rows(outer.abs() * x.abs())
    weight_models = [total.to(weight.dtype) for total in sums(as_rows(outer * x.float()), dim=0)]
    return {
        "grad_x": expect(grad_x, [(outer * weight.float()).to(x.dtype)], grad_x.abs(), x.dtype, rows=True),
        "grad_weight": expect(grad_weight, weight_models, magnitude, weight.dtype, rows=False),
    }


def rmsnorm_forward(x: Tensor, weight: Tensor, eps: float = 1e-5) -> dict[str, Expected]:
    y, rstd = oracle.rmsnorm_forward(x, weight, eps)
    d = x.shape[-1]
    rstd_models = [(total / d + eps).rsqrt() for total in sums(x.float().square(), dim=-1)]
    y_models = [(x.float() * model.unsqueeze(-1) * weight.float()).to(x.dtype) for model in rstd_models]
    return {
        "y": expect(y, y_models, y.abs(), x.dtype, rows=True),
        "rstd": expect(rstd, rstd_models, rstd, torch.float32, rows=False),
    }


def rmsnorm_backward(grad_y: Tensor, x: Tensor, weight: Tensor, rstd: Tensor) -> dict[str, Expected]:
    grad_x, grad_weight = oracle.rmsnorm_backward(grad_y, x, weight, rstd)
    x_hat, g = x.float() * rstd.unsqueeze(-1), grad_y.float() * weight.float()
    d = x.shape[-1]
    x_models = [
        (rstd.unsqueeze(-1) * (g - x_hat * (total / d).unsqueeze(-1))).to(x.dtype) for total in sums(g * x_hat, dim=-1)
    ]
    x_hat_, g_ = x_hat.double().abs(), g.double().abs()
    x_magnitude = rstd.double().unsqueeze(-1) * (g_ + x_hat_ * (g_ * x_hat_).mean(-1, keepdim=True))
    terms = as_rows(grad_y.float() * x_hat)
    weight_models = [total.to(weight.dtype) for total in sums(terms, dim=0)]
    return {
        "grad_x": expect(grad_x, x_models, x_magnitude, x.dtype, rows=True),
        "grad_weight": expect(grad_weight, weight_models, terms.double().abs().sum(0), weight.dtype, rows=False),
    }


def attention_forward(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> dict[str, Expected]:
    o, lse = oracle.attention_forward(q, k, v, is_causal)
    models = [_attention_forward(q, k, v, is_causal, how) for how in arithmetics(q.dtype)]
    probabilities = (oracle.attention_logits(q, k, is_causal) - lse.unsqueeze(-1)).exp()
    products = oracle.attention_logits(q.abs(), k.abs(), is_causal=False)
    lse_magnitude = (probabilities * products).sum(-1) + lse.abs() + 1
    return {
        "o": expect(o, [model[0] for model in models], probabilities @ v.double().abs(), q.dtype, rows=True),
        "lse": expect(lse, [model[1] for model in models], lse_magnitude, torch.float32, rows=False),
    }


def attention_backward(
    grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, is_causal: bool = False
) -> dict[str, Expected]:
    """The gradients for o in the inputs' dtype and lse in float32, as a forward pass returns them."""
    values = oracle.attention_backward(grad_o, q, k, v, is_causal)
    models = [_attention_backward(grad_o, q, k, v, o, lse, is_causal, how) for how in arithmetics(q.dtype)]
    probabilities = oracle.attention_logits(q, k, is_causal).softmax(-1)
    grad_o, q_, k_, v_ = (t.double().abs() for t in (grad_o, q, k, v))
    delta = (grad_o * (probabilities @ v_)).sum(-1, keepdim=True)
    grad_logits = probabilities * (grad_o @ v_.mT + delta) / math.sqrt(q.shape[-1])
    magnitudes = (grad_logits @ k_, grad_logits.mT @ q_, probabilities.mT @ grad_o)
    return {
        name: expect(values[i], [model[i] for model in models], magnitudes[i], q.dtype, rows=True)
        for i, name in enumerate(("grad_q", "grad_k", "grad_v"))
    }


@dataclass(frozen=True)
class Arithmetic:
    """The roundings of one honest attention kernel."""

    operand: Rounding  # of a float32 operand of tl.dot
    scale_q: float | None  # q is multiplied by this, and rounded to its dtype, before the product; None: afterwards
    probability: Rounding  # of P and dS before they are multiplied


def arithmetics(dtype: torch.dtype) -> list[Arithmetic]:
    """All combinations that a correct kernel for inputs of this dtype may choose from."""
    scales = (None, 1.0, math.log2(math.e))
    if dtype == torch.float32:
        return [Arithmetic(operand, s, exact) for operand in (exact, truncate, nearest) for s in scales]
    low = [Arithmetic(exact, s, lambda p: p.to(dtype).float()) for s in scales]
    return [*low, *(Arithmetic(truncate, s, exact) for s in scales)]


def exact(x: Tensor) -> Tensor:
    return x


def truncate(x: Tensor) -> Tensor:
    """Float32 cut to TF32's 10 mantissa bits, which is what an H100 or H200 does to the operands of tl.dot."""
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def nearest(x: Tensor) -> Tensor:
    """Float32 rounded to TF32's 10 mantissa bits."""
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def _logits(q: Tensor, k: Tensor, is_causal: bool, how: Arithmetic) -> Tensor:
    scale = 1 / math.sqrt(q.shape[-1])
    q32, after = q.float(), scale
    if how.scale_q is not None:
        q32, after = (q32 * (scale * how.scale_q)).to(q.dtype).float(), 1 / how.scale_q
    logits = how.operand(q32) @ how.operand(k.float()).mT * after
    return logits.masked_fill(oracle.above_diagonal(logits), -math.inf) if is_causal else logits


def _attention_forward(q: Tensor, k: Tensor, v: Tensor, is_causal: bool, how: Arithmetic) -> tuple[Tensor, Tensor]:
    logits = _logits(q, k, is_causal, how)
    largest = logits.amax(-1, keepdim=True)
    p = (logits - largest).exp()
    total = p.sum(-1, keepdim=True)
    o = how.operand(how.probability(p)) @ how.operand(v.float()) / total
    return o.to(q.dtype), (largest + total.log()).squeeze(-1)


def _attention_backward(
    grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, is_causal: bool, how: Arithmetic
) -> tuple[Tensor, Tensor, Tensor]:
    do, v32 = grad_o.float(), v.float()
    p = (_logits(q, k, is_causal, how) - lse.unsqueeze(-1)).exp()
    grad_v = how.operand(how.probability(p)).mT @ how.operand(do)
    delta = (do * o.float()).sum(-1, keepdim=True)
    ds = how.operand(how.probability(p * (how.operand(do) @ how.operand(v32).mT - delta)))
    scale = 1 / math.sqrt(q.shape[-1])
    grad_q, grad_k = ds @ how.operand(k.float()) * scale, ds.mT @ how.operand(q.float()) * scale
    return grad_q.to(q.dtype), grad_k.to(q.dtype), grad_v.to(q.dtype)


def sums(terms: Tensor, dim: int) -> list[Tensor]:
    """Float32 sums along dim in the orders a kernel may choose: pairwise, and one term after the other."""
    in_order = list(itertools.accumulate(terms.unbind(dim)))[-1:]
    return [terms.sum(dim), *in_order]


def as_rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])
