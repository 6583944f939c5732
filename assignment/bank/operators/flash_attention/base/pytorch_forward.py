"""FlashAttention-2 forward in plain PyTorch, tile by tile."""

import math

import torch

Q_TILE_SIZE = 64
K_TILE_SIZE = 64


@torch.no_grad()
def flash_forward_pytorch(q, k, v, is_causal=False):
    _check(q, k, v)
    batch = q.shape[:-2]
    n_queries, d = q.shape[-2:]
    n_keys = k.shape[-2]
    scale = 1 / math.sqrt(d)
    n_batches = math.prod(batch)
    q = q.reshape(n_batches, n_queries, d)
    k = k.reshape(n_batches, n_keys, d)
    v = v.reshape(n_batches, n_keys, d)
    o = torch.empty((n_batches, n_queries, d), dtype=q.dtype, device=q.device)
    lse = torch.empty((n_batches, n_queries), dtype=torch.float32, device=q.device)
    for first_query in range(0, n_queries, Q_TILE_SIZE):
        end_query = min(first_query + Q_TILE_SIZE, n_queries)
        queries = torch.arange(first_query, end_query, device=q.device)
        q_tile = q[:, first_query:end_query].float()
        row_max = torch.full(q_tile.shape[:2], -math.inf, device=q.device)
        row_sum = torch.zeros(q_tile.shape[:2], device=q.device)
        acc = torch.zeros(q_tile.shape, device=q.device)
        end = min(n_keys, end_query) if is_causal else n_keys
        for first_key in range(0, end, K_TILE_SIZE):
            end_key = min(first_key + K_TILE_SIZE, n_keys)
            keys = torch.arange(first_key, end_key, device=q.device)
            k_tile = k[:, first_key:end_key].float()
            v_tile = v[:, first_key:end_key].float()
            s = q_tile @ k_tile.mT * scale
            if is_causal:
                hidden = keys[None, :] > queries[:, None]
                s = s.masked_fill(hidden, -math.inf)
            tile_max = s.amax(dim=-1)
            new_max = torch.maximum(row_max, tile_max)
            p = torch.exp(s - new_max[..., None])
            rescale = torch.exp(row_max - new_max)
            row_sum = row_sum * rescale
            row_sum = row_sum + p.sum(dim=-1)
            acc = acc * rescale[..., None]
            acc = acc + p @ v_tile
            row_max = new_max
        o[:, first_query:end_query] = acc / row_sum[..., None]
        lse[:, first_query:end_query] = row_max + torch.log(row_sum)
    return o.reshape(*batch, n_queries, d), lse.reshape(*batch, n_queries)


def _check(q, k, v):
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)}"
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"expected q and k of one d, got {shapes}")
    if q.shape[-1] != v.shape[-1]:
        raise ValueError(f"expected q and v of one d, got {shapes}")
    if q.shape[:-2] != k.shape[:-2]:
        raise ValueError(f"expected q and k of one batch, got {shapes}")
    if q.shape[:-2] != v.shape[:-2]:
        raise ValueError(f"expected q and v of one batch, got {shapes}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"expected k and v of one length, got {shapes}")
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"expected one dtype, got {q.dtype}, {k.dtype} and {v.dtype}")
