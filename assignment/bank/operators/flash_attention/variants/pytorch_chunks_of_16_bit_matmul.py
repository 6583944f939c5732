"""Flash attention in PyTorch with einsum: all queries at once against chunks of keys.

Products have operands of the input's dtype, to which P and dS are cast, and float32 results, as on a tensor core.
"""

import torch
from jaxtyping import Float, Float32
from torch import Tensor

CHUNK = 64


@torch.no_grad()
def flash_forward_pytorch(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float32[Tensor, "*batch n_queries"]]:
    _check(q, k, v)
    acc = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    m = torch.full(q.shape[:-1], float("-inf"), device=q.device)
    l = torch.zeros_like(m)  # noqa: E741
    for start in range(0, k.shape[-2], CHUNK):
        k_chunk, v_chunk = k[..., start : start + CHUNK, :], v[..., start : start + CHUNK, :]
        s = _scores(q, k_chunk, start, is_causal)
        m_new = torch.maximum(m, s.max(dim=-1).values)
        p = torch.exp(s - m_new.unsqueeze(-1))
        alpha = torch.exp(m - m_new)
        l = alpha * l + p.sum(dim=-1)  # noqa: E741
        acc = acc * alpha.unsqueeze(-1) + _product("...qk,...kd->...qd", p.to(v.dtype), v_chunk)
        m = m_new
    return (acc / l.unsqueeze(-1)).to(q.dtype), m + torch.log(l)


@torch.no_grad()
def flash_backward_pytorch(
    grad_o: Float[Tensor, "*batch n_queries d"],
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    o: Float[Tensor, "*batch n_queries d"],
    lse: Float32[Tensor, "*batch n_queries"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float[Tensor, "*batch n_keys d"], Float[Tensor, "*batch n_keys d"]]:
    _check(q, k, v)
    for name, x, shape in (("grad_o", grad_o, q.shape), ("o", o, q.shape), ("lse", lse, q.shape[:-1])):
        if x.shape != shape:
            raise ValueError(f"expected {name} of shape {tuple(shape)}, got {tuple(x.shape)}")
    scale = q.shape[-1] ** -0.5
    delta = torch.einsum("...qd,...qd->...q", grad_o.float(), o.float())
    grad_q = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    grad_k, grad_v = k.new_empty(k.shape), v.new_empty(v.shape)
    for start in range(0, k.shape[-2], CHUNK):
        chunk = slice(start, start + CHUNK)
        k_chunk, v_chunk = k[..., chunk, :], v[..., chunk, :]
        p = torch.exp(_scores(q, k_chunk, start, is_causal) - lse.unsqueeze(-1))
        grad_p = _product("...qd,...kd->...qk", grad_o, v_chunk)
        grad_s = (p * (grad_p - delta.unsqueeze(-1))).to(q.dtype)
        grad_q += scale * _product("...qk,...kd->...qd", grad_s, k_chunk)
        grad_k[..., chunk, :] = scale * _product("...qk,...qd->...kd", grad_s, q)
        grad_v[..., chunk, :] = _product("...qk,...qd->...kd", p.to(q.dtype), grad_o)
    return grad_q.to(q.dtype), grad_k, grad_v


def _product(equation: str, a: Tensor, b: Tensor) -> Tensor:
    """einsum of 16-bit operands in float32, in which their products are exact; PyTorch alone would round the result."""
    return torch.einsum(equation, a.float(), b.float())


def _scores(q: Tensor, k_chunk: Tensor, start: int, is_causal: bool) -> Float32[Tensor, "*batch n_queries chunk"]:
    s = _product("...qd,...kd->...qk", q, k_chunk) * q.shape[-1] ** -0.5
    if is_causal:
        q_idx = torch.arange(s.shape[-2], device=s.device).unsqueeze(1)
        k_idx = torch.arange(start, start + s.shape[-1], device=s.device).unsqueeze(0)
        s = torch.where(k_idx <= q_idx, s, float("-inf"))
    return s


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    shapes = f"{tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
    if q.ndim < 2 or k.ndim < 2 or k.shape != v.shape:
        raise ValueError(f"expected q (..., n_queries, d), k and v (..., n_keys, d), got {shapes}")
    if q.shape[:-2] != k.shape[:-2] or q.shape[-1] != k.shape[-1]:
        raise ValueError(f"expected q and k that differ in nothing but their length, got {shapes}")
    if q.dtype != k.dtype or q.dtype != v.dtype:
        raise ValueError(f"expected one dtype, got {q.dtype}, {k.dtype}, {v.dtype}")
