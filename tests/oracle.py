"""What each operator means: plain PyTorch in float64, no tiles, no tricks.

Every function takes tensors of any dtype and layout and returns float64.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def weighted_sum_forward(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    """y_i = Σ_j x_ij w_j"""
    return (x.double() * weight.double()).sum(-1)


def weighted_sum_backward(
    grad_y: Float[Tensor, "*batch"], x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    """dx_ij = dy_i w_j and dw_j = Σ_i dy_i x_ij"""
    grad_y = grad_y.double().unsqueeze(-1)
    return grad_y * weight.double(), sum_rows(grad_y * x.double())


def rmsnorm_forward(
    x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"], eps: float = 1e-5
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, "*batch"]]:
    """y = x · rstd · w with rstd = 1/√(mean(x²) + eps)  (Zhang & Sennrich 2019, eq. 4)"""
    x = x.double()
    rstd = (x.square().mean(-1) + eps).rsqrt()
    return x * rstd.unsqueeze(-1) * weight.double(), rstd


def rmsnorm_backward(
    grad_y: Float[Tensor, "*batch d"],
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    rstd: Float[Tensor, "*batch"],
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    """dx = rstd · (w∘dy − x̂ · mean(w∘dy∘x̂)) and dw = Σ_rows dy∘x̂, where x̂ = x · rstd"""
    grad_y, rstd = grad_y.double(), rstd.double().unsqueeze(-1)
    x_hat = x.double() * rstd
    grad_x_hat = grad_y * weight.double()
    grad_x = rstd * (grad_x_hat - x_hat * (grad_x_hat * x_hat).mean(-1, keepdim=True))
    return grad_x, sum_rows(grad_y * x_hat)


def attention_logits(
    q: Float[Tensor, "*batch n_queries d"], k: Float[Tensor, "*batch n_keys d"], is_causal: bool
) -> Float[Tensor, "*batch n_queries n_keys"]:
    """S = q kᵀ / √d, with −∞ where a causal query may not look: key j > query i"""
    logits = q.double() @ k.double().mT / math.sqrt(q.shape[-1])
    return logits.masked_fill(above_diagonal(logits), -math.inf) if is_causal else logits


def attention_forward(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float[Tensor, "*batch n_queries"]]:
    """o = softmax(S) v and lse_i = ln Σ_j exp(S_ij)"""
    logits = attention_logits(q, k, is_causal)
    return logits.softmax(-1) @ v.double(), logits.logsumexp(-1)


def attention_backward(
    grad_o: Float[Tensor, "*batch n_queries d"],
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[
    Float[Tensor, "*batch n_queries d"],
    Float[Tensor, "*batch n_keys d"],
    Float[Tensor, "*batch n_keys d"],
]:
    """dV = Pᵀ dO, dS = P∘(dO Vᵀ − rowsum(dO∘O)), dQ = dS K/√d, dK = dSᵀ Q/√d  (Dao 2023, section 2.3)"""
    grad_o, q, k, v = grad_o.double(), q.double(), k.double(), v.double()
    probabilities = attention_logits(q, k, is_causal).softmax(-1)
    grad_v = probabilities.mT @ grad_o
    delta = (grad_o * (probabilities @ v)).sum(-1, keepdim=True)
    grad_logits = probabilities * (grad_o @ v.mT - delta) / math.sqrt(q.shape[-1])
    return grad_logits @ k, grad_logits.mT @ q, grad_v


def above_diagonal(logits: Float[Tensor, "*batch n_queries n_keys"]) -> Tensor:
    """True where key j > query i, of shape (n_queries, n_keys): aligned top-left, as in PyTorch's is_causal"""
    queries = torch.arange(logits.shape[-2], device=logits.device).unsqueeze(-1)
    keys = torch.arange(logits.shape[-1], device=logits.device)
    return keys > queries


def sum_rows(x: Float[Tensor, "*batch d"]) -> Float[Tensor, " d"]:
    """The sum over every dimension but the last; zero for an empty batch."""
    return x.reshape(-1, x.shape[-1]).sum(0)
