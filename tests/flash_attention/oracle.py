"""What attention means, in float64: no tiles, no tricks."""

import math

import torch
from jaxtyping import Float
from torch import Tensor


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
