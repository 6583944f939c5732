"""Pushes between two barriers of all ranks, each a launch of one program; the product waits for nothing."""

import torch
import triton
import triton.language as tl

M_TILE_SIZE, N_TILE_SIZE, K_TILE_SIZE = 64, 64, 32


def _check(a_shard, b, rows, buffer, signals, buffers, pads, rank):
    if a_shard.ndim != 2 or b.ndim != 2 or a_shard.shape[1] != b.shape[0] or 0 in b.shape:
        raise ValueError(f"expected (rows, k) and (k, n), got {tuple(a_shard.shape)} and {tuple(b.shape)}")
    if len({a_shard.dtype, b.dtype, buffer.dtype}) > 1 or not a_shard.is_floating_point():
        raise ValueError(f"expected one dtype, got {a_shard.dtype}, {b.dtype} and {buffer.dtype}")
    if rows.dtype != torch.int32 or rows.ndim != 1:
        raise ValueError(f"expected a number of rows of each rank in int32, got {rows.dtype}")
    sizes = rows.tolist()
    if a_shard.shape[0] != sizes[rank] or list(buffer.shape) != [len(sizes), max(1, *sizes), a_shard.shape[1]]:
        raise ValueError(f"expected rows {sizes}, got {a_shard.shape[0]} of rank {rank} and {tuple(buffer.shape)}")
    return sizes


def allgather_matmul(a_shard, b, rows, buffer, signals, buffers, pads, rank=0, call=1):
    sizes = _check(a_shard, b, rows, buffer, signals, buffers, pads, rank)
    k, n = b.shape
    ranks = len(sizes)
    c = torch.empty((sum(sizes), n), device=a_shard.device, dtype=a_shard.dtype)
    if sum(sizes) == 0:
        return c
    _barrier_kernel[(1,)](signals, pads, rank, 2 * call - 1, ranks, signals.shape[1], num_warps=1)
    if sizes[rank] > 0:
        grid = (triton.cdiv(sizes[rank], M_TILE_SIZE), triton.cdiv(k, K_TILE_SIZE), ranks)
        _push_kernel[grid](
            a_shard, buffers, *a_shard.stride(), rank, sizes[rank], buffer.shape[1], k, M_TILE_SIZE, K_TILE_SIZE
        )
    _barrier_kernel[(1,)](signals, pads, rank, 2 * call, ranks, signals.shape[1], num_warps=1)
    first = 0
    for source, size in enumerate(sizes):
        if size > 0:
            tiles = (triton.cdiv(size, M_TILE_SIZE), triton.cdiv(n, N_TILE_SIZE))
            _matmul_kernel[tiles](
                buffer[source], b, c[first : first + size], *b.stride(), size, k, n,
                M_TILE_SIZE, N_TILE_SIZE, K_TILE_SIZE,
            )  # fmt: skip
        first += size
    return c


@triton.jit
def _barrier_kernel(signals_ptr, pads_ptr, rank, value, RANKS: tl.constexpr, SLOTS: tl.constexpr):
    """Tell every rank that all launches before are done here, and wait for every other's."""
    for other in tl.static_range(RANKS):
        pad = tl.load(pads_ptr + other).to(tl.pointer_type(tl.int32))
        tl.atomic_xchg(pad + rank * SLOTS, value, sem="release", scope="sys")
    for other in tl.static_range(RANKS):
        while tl.atomic_add(signals_ptr + other * SLOTS, 0, sem="acquire", scope="sys") < value:
            pass


@triton.jit
def _push_kernel(a_ptr, buffers_ptr, stride_m, stride_k, rank, own, most, k, M: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M).to(tl.int64)[:, None]
    terms = tl.program_id(1) * K + tl.arange(0, K).to(tl.int64)[None, :]
    mask = (rows < own) & (terms < k)
    part = tl.load(a_ptr + rows * stride_m + terms * stride_k, mask=mask)
    theirs_ptr = tl.load(buffers_ptr + tl.program_id(2)).to(tl.pointer_type(a_ptr.dtype.element_ty))
    tl.store(theirs_ptr + (tl.cast(rank, tl.int64) * most + rows) * k + terms, part, mask=mask)


@triton.jit
def _matmul_kernel(
    a_ptr, b_ptr, c_ptr, stride_bk, stride_bn, m, k, n, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):
    rows = tl.program_id(0) * M + tl.arange(0, M).to(tl.int64)[:, None]
    cols = tl.program_id(1) * N + tl.arange(0, N).to(tl.int64)[None, :]
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k, K):
        terms = start + tl.arange(0, K).to(tl.int64)
        a = tl.load(a_ptr + rows * k + terms[None, :], mask=(rows < m) & (terms[None, :] < k), other=0.0)
        b_ptrs = b_ptr + terms[:, None] * stride_bk + cols * stride_bn
        total += tl.dot(a, tl.load(b_ptrs, mask=(terms[:, None] < k) & (cols < n), other=0.0))
    tl.store(c_ptr + rows * n + cols, total.to(c_ptr.dtype.element_ty), mask=(rows < m) & (cols < n))
