"""Flash attention in plain PyTorch, tile by tile, with as little new memory as possible.

Masks are narrowed by `&=`, statistics and sums change in place, over lists at once, or through `out=`.
"""

import math

import torch
from torch import Tensor

TILE = 64


@torch.no_grad()
def flash_forward_pytorch(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> tuple[Tensor, Tensor]:
    check_attention(q, k, v)
    o, lse = torch.empty(q.shape, dtype=q.dtype, device=q.device), q.new_empty(q.shape[:-1], dtype=torch.float32)
    for i in range(0, q.shape[-2], TILE):
        q_tile = q[..., i : i + TILE, :].float() / math.sqrt(q.shape[-1])
        largest = q_tile.new_full((*q_tile.shape[:-1], 1), -math.inf)
        total, weighted = torch.zeros_like(largest), torch.zeros_like(q_tile)
        for j in range(0, k.shape[-2], TILE):
            s = q_tile @ k[..., j : j + TILE, :].float().mT
            s[..., ~seen_keys(i, j, s, is_causal)] = -math.inf
            before = largest.clone()
            torch.maximum(largest, s.amax(-1, keepdim=True), out=largest)
            torch._foreach_mul_([total, weighted], torch._foreach_exp([before.sub_(largest)]) * 2)
            s.sub_(largest).exp_()
            torch._foreach_add_([total, weighted], [s.sum(-1, keepdim=True), s @ v[..., j : j + TILE, :].float()])
        torch._foreach_copy_([o[..., i : i + TILE, :]], [weighted.div_(total)])
        torch.add(largest, total.log_(), out=largest)
        lse[..., i : i + TILE].copy_(largest.squeeze(-1))
    return o, lse


@torch.no_grad()
def flash_backward_pytorch(
    grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, is_causal: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    check_attention(q, k, v)
    scale = 1 / math.sqrt(q.shape[-1])
    delta = (grad_o.float() * o).sum(-1, keepdim=True)
    grads = [torch.empty(x.shape, dtype=torch.float32, device=x.device) for x in (q, k, v)]
    torch._foreach_zero_(grads)
    for i in range(0, q.shape[-2], TILE):
        rows = slice(i, i + TILE)
        q_tile, grad_o_tile = q[..., rows, :].float(), grad_o[..., rows, :].float()
        for j in range(0, k.shape[-2], TILE):
            columns = slice(j, j + TILE)
            k_tile, v_tile = k[..., columns, :].float(), v[..., columns, :].float()
            p = (q_tile @ k_tile.mT).mul_(scale).sub_(lse[..., rows, None]).exp_()
            p *= seen_keys(i, j, p, is_causal)
            grad_s = (grad_o_tile @ v_tile.mT).sub_(delta[..., rows, :]).mul_(p).mul_(scale)
            tiles = [grads[0][..., rows, :], grads[1][..., columns, :], grads[2][..., columns, :]]
            torch._foreach_add_(tiles, [grad_s @ k_tile, grad_s.mT @ q_tile, p.mT @ grad_o_tile])
    return grads[0].to(q.dtype), grads[1].to(k.dtype), grads[2].to(v.dtype)


def seen_keys(i: int, j: int, s: Tensor, is_causal: bool) -> Tensor:
    """Return which queries of the tile from i on may see which keys of that from j on."""
    seen = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device)
    if is_causal:
        rows, cols = (
            torch.arange(i, i + s.shape[-2], device=s.device),
            torch.arange(j, j + s.shape[-1], device=s.device),
        )
        seen &= cols <= rows[:, None]
        seen.logical_and_(cols >= 0)
    return seen


def check_attention(q: Tensor, k: Tensor, v: Tensor) -> None:
    if min(q.ndim, k.ndim, v.ndim) < 2 or not q.shape[-1] == k.shape[-1] == v.shape[-1]:
        raise ValueError(f"expected q, k and v (..., length, d) of one d, got {q.shape}, {k.shape} and {v.shape}")
    if k.shape != v.shape or q.shape[:-2] != k.shape[:-2]:
        raise ValueError(f"expected one batch, as many values as keys, got {q.shape}, {k.shape} and {v.shape}")
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"expected one dtype, got {q.dtype}, {k.dtype} and {v.dtype}")
