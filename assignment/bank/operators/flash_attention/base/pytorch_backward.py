"""FlashAttention-2 backward in plain PyTorch, tile by tile."""

import math

import torch

Q_TILE_SIZE = 64
K_TILE_SIZE = 64


@torch.no_grad()
def flash_backward_pytorch(grad_o, q, k, v, o, lse, is_causal=False):
    _check(grad_o, q, k, v, o, lse)
    batch = q.shape[:-2]
    n_queries, d = q.shape[-2:]
    n_keys = k.shape[-2]
    scale = 1 / math.sqrt(d)
    n_batches = math.prod(batch)
    grad_o = grad_o.reshape(n_batches, n_queries, d)
    q = q.reshape(n_batches, n_queries, d)
    k = k.reshape(n_batches, n_keys, d)
    v = v.reshape(n_batches, n_keys, d)
    o = o.reshape(n_batches, n_queries, d)
    lse = lse.reshape(n_batches, n_queries)
    grad_q = torch.zeros((n_batches, n_queries, d), dtype=torch.float32, device=q.device)
    grad_k = torch.zeros((n_batches, n_keys, d), dtype=torch.float32, device=k.device)
    grad_v = torch.zeros((n_batches, n_keys, d), dtype=torch.float32, device=v.device)
    delta = (grad_o.float() * o.float()).sum(dim=-1)
    for first_key in range(0, n_keys, K_TILE_SIZE):
        end_key = min(first_key + K_TILE_SIZE, n_keys)
        keys = torch.arange(first_key, end_key, device=q.device)
        k_tile = k[:, first_key:end_key].float()
        v_tile = v[:, first_key:end_key].float()
        start = first_key // Q_TILE_SIZE * Q_TILE_SIZE if is_causal else 0
        for first_query in range(start, n_queries, Q_TILE_SIZE):
            end_query = min(first_query + Q_TILE_SIZE, n_queries)
            queries = torch.arange(first_query, end_query, device=q.device)
            q_tile = q[:, first_query:end_query].float()
            grad_o_tile = grad_o[:, first_query:end_query].float()
            lse_tile = lse[:, first_query:end_query, None]
            delta_tile = delta[:, first_query:end_query, None]
            s = q_tile @ k_tile.mT * scale
            if is_causal:
                hidden = keys[None, :] > queries[:, None]
                s = s.masked_fill(hidden, -math.inf)
            p = torch.exp(s - lse_tile)
            grad_v[:, first_key:end_key] += p.mT @ grad_o_tile
            grad_p = grad_o_tile @ v_tile.mT
            grad_s = p * (grad_p - delta_tile)
            grad_q[:, first_query:end_query] += grad_s @ k_tile * scale
            grad_k[:, first_key:end_key] += grad_s.mT @ q_tile * scale
    grad_q = grad_q.reshape(*batch, n_queries, d).to(q.dtype)
    grad_k = grad_k.reshape(*batch, n_keys, d).to(k.dtype)
    grad_v = grad_v.reshape(*batch, n_keys, d).to(v.dtype)
    return grad_q, grad_k, grad_v


def _check(grad_o, q, k, v, o, lse):
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
    if not grad_o.shape == o.shape == q.shape:
        raise ValueError(f"expected grad_o and o like {shapes}, got {tuple(grad_o.shape)} and {tuple(o.shape)}")
    if lse.shape != q.shape[:-1]:
        raise ValueError(f"expected lse of shape {tuple(q.shape[:-1])}, got {tuple(lse.shape)}")
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"expected one dtype, got {q.dtype}, {k.dtype} and {v.dtype}")
