"""Flash attention in plain PyTorch, tile by tile in float64 and cast back at the end.

The forward makes two passes over the keys of a query tile: the logsumexp first, then the weighted sum of the values.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Float32, Float64
from torch import Tensor

TILE = 64


@torch.no_grad()
def flash_forward_pytorch(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float32[Tensor, "*batch n_queries"]]:
    """o in q's dtype, and lse in float32."""
    validate(q, k, v)
    o, lse = torch.empty(q.shape, dtype=q.dtype, device=q.device), q.new_empty(q.shape[:-1], dtype=torch.float32)
    for rows in tiles(q.shape[-2]):
        exact_lse = q.new_full((*q.shape[:-2], rows.stop - rows.start), -torch.inf, dtype=torch.float64)
        for cols in tiles(k.shape[-2], is_causal, rows):
            exact_lse = torch.logaddexp(exact_lse, logits(q, k, rows, cols, is_causal).logsumexp(-1))
        acc = torch.zeros_like(q[..., rows, :], dtype=torch.float64)
        for cols in tiles(k.shape[-2], is_causal, rows):
            acc += torch.exp(logits(q, k, rows, cols, is_causal) - exact_lse[..., None]) @ v[..., cols, :].double()
        o[..., rows, :], lse[..., rows] = acc.to(o.dtype), exact_lse.float()
    return o, lse


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
    """The gradients of q, k and v, in their dtypes."""
    validate(q, k, v)
    if grad_o.shape != q.shape or o.shape != q.shape or lse.shape != q.shape[:-1]:
        raise ValueError(f"expected grad_o and o like q {tuple(q.shape)}, got {tuple(grad_o.shape)}, {tuple(o.shape)}")
    if grad_o.dtype != q.dtype or o.dtype != q.dtype or lse.dtype != torch.float32:
        raise ValueError(f"expected {q.dtype} and a float32 lse, got {grad_o.dtype}, {o.dtype}, {lse.dtype}")
    grad_q, grad_k, grad_v = (torch.zeros(x.shape, dtype=torch.float64, device=x.device) for x in (q, k, v))
    for rows in tiles(q.shape[-2]):
        q_, do = q[..., rows, :].double(), grad_o[..., rows, :].double()
        delta = (do * o[..., rows, :].double()).sum(-1, keepdim=True)
        for cols in tiles(k.shape[-2], is_causal, rows):
            k_, v_ = k[..., cols, :].double(), v[..., cols, :].double()
            p = torch.exp(logits(q, k, rows, cols, is_causal) - lse[..., rows, None].double())
            ds = p * (do @ v_.transpose(-1, -2) - delta) / q.shape[-1] ** 0.5
            grad_q[..., rows, :] += ds @ k_
            grad_k[..., cols, :] += ds.transpose(-1, -2) @ q_
            grad_v[..., cols, :] += p.transpose(-1, -2) @ do
    return grad_q.to(q.dtype), grad_k.to(k.dtype), grad_v.to(v.dtype)


def tiles(length: int, is_causal: bool = False, rows: slice | None = None) -> Iterator[slice]:
    """The tiles of a dimension: of the keys under is_causal, those that one of the rows sees."""
    end = length if rows is None or not is_causal else min(length, rows.stop)
    for start in range(0, end, TILE):
        yield slice(start, min(start + TILE, length))


def logits(
    q: Tensor, k: Tensor, rows: slice, cols: slice, is_causal: bool
) -> Float64[Tensor, "*batch rows_tile cols_tile"]:
    s = q[..., rows, :].double() @ k[..., cols, :].double().transpose(-1, -2) / q.shape[-1] ** 0.5
    if is_causal:
        visible = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).tril(rows.start - cols.start)
        s = s.where(visible, -torch.inf)
    return s


def validate(q: Tensor, k: Tensor, v: Tensor) -> None:
    if len({x.dtype for x in (q, k, v)}) != 1:
        raise ValueError(f"expected q, k and v of one dtype, got {q.dtype}, {k.dtype} and {v.dtype}")
    if k.shape != v.shape:
        raise ValueError(f"expected k and v of one shape, got {tuple(k.shape)} and {tuple(v.shape)}")
    if q.ndim < 2 or q.ndim != k.ndim or q.shape[:-2] != k.shape[:-2] or q.shape[-1] != k.shape[-1]:
        raise ValueError(f"expected q (..., n, d) to fit k {tuple(k.shape)}, got {tuple(q.shape)}")
