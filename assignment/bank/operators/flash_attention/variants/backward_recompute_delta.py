"""FlashAttention-2 backward that does not look at o: D_i = Σ_j P_ij dP_ij, which is what rowsum(dO ∘ O) stands for,
comes from a pass over the keys of its own. The other passes then make dQ, and dK and dV.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


def flash_backward_triton(
    grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, is_causal: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """(grad_q, grad_k, grad_v); o is checked and otherwise not used."""
    _check_shapes(grad_o, q, k, v, o, lse)
    if not (grad_o.dtype == q.dtype == k.dtype == v.dtype == o.dtype):
        raise ValueError(f"expected one dtype, got {[str(x.dtype) for x in (grad_o, q, k, v, o)]}")
    launch = _Launch(grad_o, q, k, v, lse, is_causal)
    delta = torch.empty(launch.n_batches, launch.n_queries, device=q.device, dtype=torch.float32)
    grad_q = torch.empty(launch.n_batches, launch.n_queries, launch.d, device=q.device, dtype=q.dtype)
    grad_k = torch.empty(launch.n_batches, launch.n_keys, launch.d, device=q.device, dtype=q.dtype)
    grad_v = torch.empty_like(grad_k)
    launch(_delta_kernel, launch.n_queries, delta)
    launch(_grad_q_kernel, launch.n_queries, delta, grad_q)
    launch(_grad_kv_kernel, launch.n_keys, delta, grad_k, grad_v)
    return grad_q.view(q.shape), grad_k.view(k.shape), grad_v.view(v.shape)


def _check_shapes(grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor) -> None:
    if min(q.ndim, k.ndim, v.ndim) < 2:
        raise ValueError(f"expected two dimensions or more, got q {q.shape}, k {k.shape}, v {v.shape}")
    *batch, n_queries, d = q.shape
    expected = {
        "k": (k, (*batch, k.shape[-2], d)),
        "v": (v, (*batch, k.shape[-2], d)),
        "grad_o": (grad_o, (*batch, n_queries, d)),
        "o": (o, (*batch, n_queries, d)),
        "lse": (lse, (*batch, n_queries)),
    }
    for name, (x, shape) in expected.items():
        if x.shape != torch.Size(shape):
            raise ValueError(f"expected {name} of shape {shape}, got {tuple(x.shape)}")


class _Launch:
    """What the three kernels have in common."""

    def __init__(self, grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, lse: Tensor, is_causal: bool) -> None:
        self.n_queries, self.d = q.shape[-2:]
        self.n_keys = k.shape[-2]
        self.tensors = [x.reshape(-1, *x.shape[-2:]) for x in (grad_o, q, k, v)]
        self.tensors.append(lse.reshape(-1, self.n_queries).contiguous())
        self.n_batches = self.tensors[0].shape[0]
        d_tile = max(triton.next_power_of_2(self.d), 16)
        self.tile = 64 if d_tile <= 32 else 32 if d_tile * q.dtype.itemsize <= 512 else 16
        self.constants = {"IS_CAUSAL": is_causal, "TILE": self.tile, "D_TILE": d_tile, "num_stages": 1}

    def __call__(self, kernel, n_rows: int, *written: Tensor) -> None:
        """Run a kernel, one program for every batch and tile of n_rows rows."""
        if self.n_batches == 0:
            return
        grid = (triton.cdiv(n_rows, self.tile) * self.n_batches,)
        strides = [stride for x in self.tensors[:4] for stride in x.stride()]
        sizes = self.n_queries, self.n_keys, self.d, self.d**-0.5
        kernel[grid](*self.tensors, *strides, *sizes, *written, **self.constants)


@triton.jit
def _tile_of(ptr, batch, rows, stride_b, stride_n, stride_d, n_rows, d, D_TILE: tl.constexpr):
    cols = tl.arange(0, D_TILE)
    ptrs = ptr + batch * stride_b + rows[:, None] * stride_n + cols.to(tl.int64)[None, :] * stride_d
    return tl.load(ptrs, mask=(rows < n_rows)[:, None] & (cols < d)[None, :], other=0.0)


@triton.jit
def _p_and_dp(grad_o, q, k, v, lse, queries, keys, n_keys, scale, IS_CAUSAL: tl.constexpr):
    """P and dP = dO Vᵀ of one tile, (queries, keys). Where lse is +∞, past the last query, P is 0."""
    s = tl.dot(q, k.T) * scale
    s = tl.where(keys[None, :] < n_keys, s, float("-inf"))
    if IS_CAUSAL:
        s = tl.where(keys[None, :] > queries[:, None], float("-inf"), s)
    return tl.exp(s - lse[:, None]), tl.dot(grad_o, v.T)


@triton.jit
def _delta_kernel(
    go_ptr, q_ptr, k_ptr, v_ptr, lse_ptr,
    go_b, go_n, go_d, q_b, q_n, q_d, k_b, k_n, k_d, v_b, v_n, v_d,
    n_queries, n_keys, d, scale, delta_ptr,
    IS_CAUSAL: tl.constexpr, TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    """go_b, go_n and go_d are the strides of grad_o; lse and all that is written are contiguous."""
    n_tiles = tl.cdiv(n_queries, TILE)
    batch = (tl.program_id(0) // n_tiles).to(tl.int64)
    tile = tl.program_id(0) % n_tiles
    queries = tile * TILE + tl.arange(0, TILE).to(tl.int64)
    go = _tile_of(go_ptr, batch, queries, go_b, go_n, go_d, n_queries, d, D_TILE)
    q = _tile_of(q_ptr, batch, queries, q_b, q_n, q_d, n_queries, d, D_TILE)
    lse = tl.load(lse_ptr + batch * n_queries + queries, mask=queries < n_queries, other=float("inf"))
    delta = tl.zeros((TILE,), dtype=tl.float32)
    for first_key in range(0, tl.minimum((tile + 1) * TILE, n_keys) if IS_CAUSAL else n_keys, TILE):
        keys = first_key + tl.arange(0, TILE).to(tl.int64)
        k = _tile_of(k_ptr, batch, keys, k_b, k_n, k_d, n_keys, d, D_TILE)
        v = _tile_of(v_ptr, batch, keys, v_b, v_n, v_d, n_keys, d, D_TILE)
        p, dp = _p_and_dp(go, q, k, v, lse, queries, keys, n_keys, scale, IS_CAUSAL)
        delta += tl.sum(p * dp, axis=1)
    tl.store(delta_ptr + batch * n_queries + queries, delta, mask=queries < n_queries)


@triton.jit
def _grad_q_kernel(
    go_ptr, q_ptr, k_ptr, v_ptr, lse_ptr,
    go_b, go_n, go_d, q_b, q_n, q_d, k_b, k_n, k_d, v_b, v_n, v_d,
    n_queries, n_keys, d, scale, delta_ptr, grad_q_ptr,
    IS_CAUSAL: tl.constexpr, TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    n_tiles = tl.cdiv(n_queries, TILE)
    batch = (tl.program_id(0) // n_tiles).to(tl.int64)
    tile = tl.program_id(0) % n_tiles
    queries = tile * TILE + tl.arange(0, TILE).to(tl.int64)
    query_mask = queries < n_queries
    go = _tile_of(go_ptr, batch, queries, go_b, go_n, go_d, n_queries, d, D_TILE)
    q = _tile_of(q_ptr, batch, queries, q_b, q_n, q_d, n_queries, d, D_TILE)
    lse = tl.load(lse_ptr + batch * n_queries + queries, mask=query_mask, other=float("inf"))
    delta = tl.load(delta_ptr + batch * n_queries + queries, mask=query_mask, other=0.0)
    grad_q = tl.zeros((TILE, D_TILE), dtype=tl.float32)
    for first_key in range(0, tl.minimum((tile + 1) * TILE, n_keys) if IS_CAUSAL else n_keys, TILE):
        keys = first_key + tl.arange(0, TILE).to(tl.int64)
        k = _tile_of(k_ptr, batch, keys, k_b, k_n, k_d, n_keys, d, D_TILE)
        v = _tile_of(v_ptr, batch, keys, v_b, v_n, v_d, n_keys, d, D_TILE)
        p, dp = _p_and_dp(go, q, k, v, lse, queries, keys, n_keys, scale, IS_CAUSAL)
        grad_q += tl.dot((p * (dp - delta[:, None])).to(k.dtype), k)
    cols = tl.arange(0, D_TILE)
    grad_q_ptrs = grad_q_ptr + (batch * n_queries + queries)[:, None] * d + cols[None, :]
    mask = query_mask[:, None] & (cols < d)[None, :]
    tl.store(grad_q_ptrs, (grad_q * scale).to(grad_q_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _grad_kv_kernel(
    go_ptr, q_ptr, k_ptr, v_ptr, lse_ptr,
    go_b, go_n, go_d, q_b, q_n, q_d, k_b, k_n, k_d, v_b, v_n, v_d,
    n_queries, n_keys, d, scale, delta_ptr, grad_k_ptr, grad_v_ptr,
    IS_CAUSAL: tl.constexpr, TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    n_tiles = tl.cdiv(n_keys, TILE)
    batch = (tl.program_id(0) // n_tiles).to(tl.int64)
    tile = tl.program_id(0) % n_tiles
    keys = tile * TILE + tl.arange(0, TILE).to(tl.int64)
    k = _tile_of(k_ptr, batch, keys, k_b, k_n, k_d, n_keys, d, D_TILE)
    v = _tile_of(v_ptr, batch, keys, v_b, v_n, v_d, n_keys, d, D_TILE)
    grad_k = tl.zeros((TILE, D_TILE), dtype=tl.float32)
    grad_v = tl.zeros((TILE, D_TILE), dtype=tl.float32)
    for first_query in range(tile * TILE if IS_CAUSAL else 0, n_queries, TILE):
        queries = first_query + tl.arange(0, TILE).to(tl.int64)
        query_mask = queries < n_queries
        go = _tile_of(go_ptr, batch, queries, go_b, go_n, go_d, n_queries, d, D_TILE)
        q = _tile_of(q_ptr, batch, queries, q_b, q_n, q_d, n_queries, d, D_TILE)
        lse = tl.load(lse_ptr + batch * n_queries + queries, mask=query_mask, other=float("inf"))
        delta = tl.load(delta_ptr + batch * n_queries + queries, mask=query_mask, other=0.0)
        p, dp = _p_and_dp(go, q, k, v, lse, queries, keys, n_keys, scale, IS_CAUSAL)
        grad_v += tl.dot(p.T.to(go.dtype), go)
        grad_k += tl.dot((p * (dp - delta[:, None])).T.to(q.dtype), q)
    cols = tl.arange(0, D_TILE)
    offsets = (batch * n_keys + keys)[:, None] * d + cols[None, :]
    mask = (keys < n_keys)[:, None] & (cols < d)[None, :]
    tl.store(grad_k_ptr + offsets, (grad_k * scale).to(grad_k_ptr.dtype.element_ty), mask=mask)
    tl.store(grad_v_ptr + offsets, grad_v.to(grad_v_ptr.dtype.element_ty), mask=mask)
