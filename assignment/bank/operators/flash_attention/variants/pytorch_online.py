"""Flash attention in plain PyTorch, as two Python loops over tiles of 128 queries and 32 keys.

The batch is one dimension; the tiles come from `split`, and the finished query tiles are put together by `cat`.
"""

import math

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Float32
from torch import Tensor

QUERY_TILE = 128
KEY_TILE = 32


@torch.no_grad()
def flash_forward_pytorch(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float32[Tensor, "*batch n_queries"]]:
    check_attention(q, k, v)
    keys_and_values = list(zip(batched(k).split(KEY_TILE, 1), batched(v).split(KEY_TILE, 1), strict=True))
    o_tiles, lse_tiles = [], []
    for i, q_tile in enumerate(batched(q).split(QUERY_TILE, 1)):
        state = OnlineSoftmax(q_tile)
        for j, (k_tile, v_tile) in enumerate(keys_and_values):
            hidden = hidden_keys(i, j, q_tile, k_tile) if is_causal else None
            state.add(scores(q_tile, k_tile, hidden), v_tile)
        o_tiles.append(state.output())
        lse_tiles.append(state.logsumexp())
    return torch.cat(o_tiles, 1).to(q.dtype).reshape(q.shape), torch.cat(lse_tiles, 1).reshape(q.shape[:-1])


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
    check_attention(q, k, v)
    if not grad_o.shape == o.shape == q.shape or lse.shape != q.shape[:-1]:
        raise ValueError(f"expected grad_o, o and lse for q {q.shape}, got {grad_o.shape}, {o.shape}, {lse.shape}")
    if not grad_o.dtype == o.dtype == q.dtype:
        raise ValueError(f"expected grad_o and o in {q.dtype}, got {grad_o.dtype} and {o.dtype}")
    scale = 1 / math.sqrt(q.shape[-1])
    delta = rearrange((grad_o.float() * o.float()).sum(-1, keepdim=True), "... n one -> (...) n one")
    lse = rearrange(lse, "... n -> (...) n 1")
    query_tiles = [x.split(QUERY_TILE, 1) for x in (batched(q), batched(grad_o), lse, delta)]
    grad_q = [torch.zeros_like(tile, dtype=torch.float32) for tile in query_tiles[0]]
    grad_k, grad_v = [], []
    for j, (k_tile, v_tile) in enumerate(
        zip(batched(k).split(KEY_TILE, 1), batched(v).split(KEY_TILE, 1), strict=True)
    ):
        grad_k_tile, grad_v_tile = (torch.zeros_like(x, dtype=torch.float32) for x in (k_tile, v_tile))
        for i, (q_tile, grad_o_tile, lse_tile, delta_tile) in enumerate(zip(*query_tiles, strict=True)):
            hidden = hidden_keys(i, j, q_tile, k_tile) if is_causal else None
            p = torch.exp(scores(q_tile, k_tile, hidden) - lse_tile)
            grad_p = grad_o_tile.float() @ v_tile.float().mT
            grad_s = p * (grad_p - delta_tile)
            grad_q[i] += grad_s @ k_tile.float() * scale
            grad_k_tile += grad_s.mT @ q_tile.float() * scale
            grad_v_tile += p.mT @ grad_o_tile.float()
        grad_k.append(grad_k_tile)
        grad_v.append(grad_v_tile)
    together = ((grad_q, q), (grad_k, k), (grad_v, v))
    grads = [torch.cat(tiles, 1).to(x.dtype).reshape(x.shape) for tiles, x in together]
    return grads[0], grads[1], grads[2]


class OnlineSoftmax:
    """Softmax-weighted sums of values, one tile of keys after the other."""

    def __init__(self, q_tile: Tensor) -> None:
        self.largest = q_tile.new_full((*q_tile.shape[:2], 1), -math.inf, dtype=torch.float32)
        self.total = torch.zeros_like(self.largest)
        self.weighted = torch.zeros_like(q_tile, dtype=torch.float32)

    def add(self, s: Tensor, v_tile: Tensor) -> None:
        largest = self.largest.maximum(s.amax(-1, keepdim=True))
        p, decay = torch.exp(s - largest), torch.exp(self.largest - largest)
        self.total = self.total * decay + p.sum(-1, keepdim=True)
        self.weighted = self.weighted * decay + p @ v_tile.float()
        self.largest = largest

    def output(self) -> Tensor:
        return self.weighted / self.total

    def logsumexp(self) -> Tensor:
        return (self.largest + self.total.log()).squeeze(-1)


def batched(x: Tensor) -> Tensor:
    return rearrange(x, "... n d -> (...) n d")


def scores(q_tile: Tensor, k_tile: Tensor, hidden: Tensor | None) -> Float32[Tensor, "batch queries keys"]:
    s = q_tile.float() @ k_tile.float().mT / math.sqrt(q_tile.shape[-1])
    return s if hidden is None else s.masked_fill(hidden, -math.inf)


def hidden_keys(i: int, j: int, q_tile: Tensor, k_tile: Tensor) -> Bool[Tensor, "queries keys"]:
    """Where a key of tile j comes after a query of tile i."""
    queries = torch.arange(q_tile.shape[1], device=q_tile.device) + i * QUERY_TILE
    keys = torch.arange(k_tile.shape[1], device=q_tile.device) + j * KEY_TILE
    return keys[None, :] > queries[:, None]


def check_attention(q: Tensor, k: Tensor, v: Tensor) -> None:
    if min(q.ndim, k.ndim, v.ndim) < 2 or not q.shape[-1] == k.shape[-1] == v.shape[-1]:
        raise ValueError(f"expected q, k and v (..., length, d) of one d, got {q.shape}, {k.shape} and {v.shape}")
    if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        raise ValueError(f"expected one batch shape, got {q.shape[:-2]}, {k.shape[:-2]} and {v.shape[:-2]}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"expected as many values as keys, got {v.shape[-2]} and {k.shape[-2]}")
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"expected one dtype, got {q.dtype}, {k.dtype} and {v.dtype}")
