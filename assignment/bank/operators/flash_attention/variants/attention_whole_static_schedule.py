"""Static schedules, as in Triton's tutorial on persistent matrix products: one program a multiprocessor, whose
flattened loop takes every n-th tile, in an order swizzled so that neighbours share keys. Forward and backward.

Named tuples carry each tensor's pointer and strides; the walk over keys is a function that takes what is done with a
tile as a constexpr function; the compiler is told of sizes by tl.assume.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor

GROUP = 4


class Rows(NamedTuple):
    """A tensor (batches, n, d) in memory."""

    ptr: Tensor
    batch: int  # strides
    row: int
    col: int


def flash_forward_triton(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float32[Tensor, "*batch n_queries"]]:
    _check(q, k, v)
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if q.numel() > 0:
        shape, tile, grid = _plan(q, k, q.shape[-2])
        _forward_kernel[grid](
            _rows(q), _rows(k), _rows(v), _rows(o), lse, *shape, IS_CAUSAL=is_causal, NUM_SMS=grid[0], **tile
        )
    return o, lse


def flash_backward_triton(
    grad_o: Float[Tensor, "*batch n_queries d"],
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    o: Float[Tensor, "*batch n_queries d"],
    lse: Float32[Tensor, "*batch n_queries"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float[Tensor, "*batch n_keys d"], Float[Tensor, "*batch n_keys d"]]:
    _check(q, k, v)
    if grad_o.shape != q.shape or o.shape != q.shape or lse.shape != q.shape[:-1]:
        raise ValueError(f"expected grad_o, o, lse for q {q.shape}, got {grad_o.shape}, {o.shape}, {lse.shape}")
    if grad_o.dtype != q.dtype or o.dtype != q.dtype:
        raise ValueError(f"expected grad_o and o in {q.dtype}, got {grad_o.dtype} and {o.dtype}")
    grad_q, grad_k, grad_v = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    if q.numel() == 0:
        return grad_q, grad_k, grad_v
    delta = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    lse = lse.contiguous()
    inputs = [_rows(x) for x in (grad_o, q, k, v)]
    shape, tile, grid = _plan(q, k, q.shape[-2])
    _grad_q_kernel[grid](
        *inputs, _rows(o), lse, delta, _rows(grad_q), *shape, IS_CAUSAL=is_causal, NUM_SMS=grid[0], **tile
    )
    shape, tile, grid = _plan(q, k, k.shape[-2])
    _grad_kv_kernel[grid](
        *inputs, lse, delta, _rows(grad_k), _rows(grad_v), *shape, IS_CAUSAL=is_causal, NUM_SMS=grid[0], **tile
    )
    return grad_q, grad_k, grad_v


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)}"
    if q.shape[:-2] != k.shape[:-2] or k.shape != v.shape or q.shape[-1] != k.shape[-1]:
        raise ValueError(f"expected shapes that fit, got {shapes}")
    if q.dtype != k.dtype or q.dtype != v.dtype:
        raise ValueError(f"expected one dtype, got {q.dtype}, {k.dtype} and {v.dtype}")


def _rows(x: Tensor) -> Rows:
    x = x.reshape(-1, *x.shape[-2:])
    return Rows(x, *x.stride())


def _plan(q: Tensor, k: Tensor, n: int) -> tuple[tuple, dict[str, int], tuple[int]]:
    """Sizes for the kernel, its tiles, and the grid for n rows a batch."""
    d = q.shape[-1]
    d_tile = max(16, triton.next_power_of_2(d))
    tile = 64 if d_tile * q.element_size() <= 128 else 32 if d_tile * q.element_size() <= 512 else 16
    n_batches = q.shape[:-2].numel()
    num_sms = torch.cuda.get_device_properties(q.device).multi_processor_count
    options = {"TILE": tile, "D_TILE": d_tile, "GROUP": GROUP, "num_warps": 4, "num_stages": 1}
    shape = (n_batches, q.shape[-2], k.shape[-2], d, d**-0.5)
    return shape, options, (min(num_sms, n_batches * triton.cdiv(n, tile)),)


@triton.jit
def _compute_pid(tile_id, n_batches, n_tiles, GROUP: tl.constexpr):
    """The batch and the first row's tile: GROUP batches take turns."""
    return tl.swizzle2d(tile_id // n_tiles, tile_id % n_tiles, n_batches, n_tiles, GROUP)


@triton.jit
def _pointers(x, batch, rows, D_TILE: tl.constexpr):
    cols = tl.max_contiguous(tl.arange(0, D_TILE), D_TILE).to(tl.int64)
    return x.ptr + batch.to(tl.int64) * x.batch + rows.to(tl.int64)[:, None] * x.row + cols[None, :] * x.col


@triton.jit
def _load(x, batch, rows, n, d, D_TILE: tl.constexpr):
    mask = (rows < n)[:, None] & (tl.arange(0, D_TILE) < d)[None, :]
    return tl.load(_pointers(x, batch, rows, D_TILE), mask=mask, other=0.0)


@triton.jit
def _store(x, tile, batch, rows, n, d, D_TILE: tl.constexpr):
    mask = (rows < n)[:, None] & (tl.arange(0, D_TILE) < d)[None, :]
    tl.store(_pointers(x, batch, rows, D_TILE), tile.to(x.ptr.dtype.element_ty), mask=mask)


@triton.jit
def _walk(state, fixed, k, v, batch, queries, end, n_keys, d, FOLD: tl.constexpr, IS_CAUSAL: tl.constexpr,
          TILE: tl.constexpr, D_TILE: tl.constexpr):  # fmt: skip
    """The state after FOLD has seen every tile of the keys before `end`."""
    for start in tl.range(0, end, TILE, num_stages=1, disallow_acc_multi_buffer=True):
        keys = start + tl.arange(0, TILE)
        visible = (keys < n_keys)[None, :]
        if IS_CAUSAL:
            visible = visible & (keys[None, :] <= queries[:, None])
        k_tile = _load(k, batch, keys, n_keys, d, D_TILE)
        v_tile = _load(v, batch, keys, n_keys, d, D_TILE)
        state = FOLD(state, fixed, k_tile, v_tile, visible)
    return state


@triton.jit
def _fold_forward(state, fixed, k, v, visible):
    row_max, row_sum, o = state
    q, scale = fixed
    s = tl.where(visible, tl.dot(q, k.T) * scale, float("-inf"))
    new_max = tl.maximum(row_max, tl.max(s, axis=1))
    p = tl.exp(s - new_max[:, None])
    rescale = tl.exp(row_max - new_max)
    return new_max, row_sum * rescale + tl.sum(p, axis=1), tl.dot(p.to(v.dtype), v, acc=o * rescale[:, None])


@triton.jit
def _fold_grad_q(state, fixed, k, v, visible):
    q, grad_o, lse, delta, scale = fixed
    p = tl.where(visible, tl.exp(tl.dot(q, k.T) * scale - lse[:, None]), 0.0)
    grad_s = p * (tl.dot(grad_o, v.T) - delta[:, None])
    return (tl.dot(grad_s.to(k.dtype), k, acc=state[0]),)


@triton.jit
def _forward_kernel(
    q: Rows, k: Rows, v: Rows, o: Rows, lse_ptr, n_batches, n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, NUM_SMS: tl.constexpr, TILE: tl.constexpr, D_TILE: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    tl.assume(n_queries > 0)
    tl.assume(n_keys > 0)
    n_tiles = tl.cdiv(n_queries, TILE)
    for tile_id in tl.range(tl.program_id(0), n_batches * n_tiles, NUM_SMS, flatten=True, warp_specialize=False):
        batch, tile = _compute_pid(tile_id, n_batches, n_tiles, GROUP)
        queries = tile * TILE + tl.arange(0, TILE)
        end = tl.minimum(n_keys, (tile + 1) * TILE) if IS_CAUSAL else n_keys
        fixed = (_load(q, batch, queries, n_queries, d, D_TILE), scale)
        row_max = tl.full((TILE,), float("-inf"), tl.float32)
        state = (row_max, tl.zeros((TILE,), tl.float32), tl.zeros((TILE, D_TILE), tl.float32))
        row_max, row_sum, acc = _walk(
            state, fixed, k, v, batch, queries, end, n_keys, d, _fold_forward, IS_CAUSAL, TILE, D_TILE
        )
        _store(o, acc / row_sum[:, None], batch, queries, n_queries, d, D_TILE)
        lse_ptrs = lse_ptr + batch.to(tl.int64) * n_queries + queries
        tl.store(lse_ptrs, row_max + tl.log(row_sum), mask=queries < n_queries)


@triton.jit
def _grad_q_kernel(
    grad_o: Rows, q: Rows, k: Rows, v: Rows, o: Rows, lse_ptr, delta_ptr, grad_q: Rows,
    n_batches, n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, NUM_SMS: tl.constexpr, TILE: tl.constexpr, D_TILE: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Leaves delta, contiguous like lse, to the next kernel."""
    tl.assume(n_queries > 0)
    n_tiles = tl.cdiv(n_queries, TILE)
    for tile_id in tl.range(tl.program_id(0), n_batches * n_tiles, NUM_SMS, flatten=True, warp_specialize=False):
        batch, tile = _compute_pid(tile_id, n_batches, n_tiles, GROUP)
        queries = tile * TILE + tl.arange(0, TILE)
        rows = batch.to(tl.int64) * n_queries + queries
        grad_o_tile = _load(grad_o, batch, queries, n_queries, d, D_TILE)
        o_tile = _load(o, batch, queries, n_queries, d, D_TILE).to(tl.float32)
        delta = tl.sum(grad_o_tile.to(tl.float32) * o_tile, axis=1)
        tl.store(delta_ptr + rows, delta, mask=queries < n_queries)
        lse = tl.load(lse_ptr + rows, mask=queries < n_queries, other=float("inf"))
        fixed = (_load(q, batch, queries, n_queries, d, D_TILE), grad_o_tile, lse, delta, scale)
        end = tl.minimum(n_keys, (tile + 1) * TILE) if IS_CAUSAL else n_keys
        state = _walk(
            (tl.zeros((TILE, D_TILE), tl.float32),), fixed, k, v, batch, queries, end, n_keys, d,
            _fold_grad_q, IS_CAUSAL, TILE, D_TILE,
        )  # fmt: skip
        _store(grad_q, state[0] * scale, batch, queries, n_queries, d, D_TILE)


@triton.jit
def _grad_kv_kernel(
    grad_o: Rows, q: Rows, k: Rows, v: Rows, lse_ptr, delta_ptr, grad_k: Rows, grad_v: Rows,
    n_batches, n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, NUM_SMS: tl.constexpr, TILE: tl.constexpr, D_TILE: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    tl.assume(n_keys > 0)
    n_tiles = tl.cdiv(n_keys, TILE)
    for tile_id in tl.range(tl.program_id(0), n_batches * n_tiles, NUM_SMS, flatten=True, warp_specialize=False):
        batch, tile = _compute_pid(tile_id, n_batches, n_tiles, GROUP)
        keys = tile * TILE + tl.arange(0, TILE)
        k_tile = _load(k, batch, keys, n_keys, d, D_TILE)
        v_tile = _load(v, batch, keys, n_keys, d, D_TILE)
        dk = tl.zeros((TILE, D_TILE), tl.float32)
        dv = tl.zeros((TILE, D_TILE), tl.float32)
        for start in tl.range(tile * TILE if IS_CAUSAL else 0, n_queries, TILE):
            queries = start + tl.arange(0, TILE)
            rows = batch.to(tl.int64) * n_queries + queries
            q_tile = _load(q, batch, queries, n_queries, d, D_TILE)
            grad_o_tile = _load(grad_o, batch, queries, n_queries, d, D_TILE)
            lse = tl.load(lse_ptr + rows, mask=queries < n_queries, other=float("inf"))
            delta = tl.load(delta_ptr + rows, mask=queries < n_queries, other=0.0)
            p = tl.exp(tl.dot(k_tile, q_tile.T) * scale - lse[None, :])  # (keys, queries)
            if IS_CAUSAL:
                p = tl.where(keys[:, None] <= queries[None, :], p, 0.0)
            dv = tl.dot(p.to(grad_o_tile.dtype), grad_o_tile, acc=dv)
            grad_s = p * (tl.dot(v_tile, grad_o_tile.T) - delta[None, :])
            dk = tl.dot(grad_s.to(q_tile.dtype), q_tile, acc=dk)
        _store(grad_k, dk * scale, batch, keys, n_keys, d, D_TILE)
        _store(grad_v, dv, batch, keys, n_keys, d, D_TILE)
