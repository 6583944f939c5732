"""Pulls: each rank copies its rows to its own buffer and says so; the others load them from there, once."""

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
    ranks, most, slots = len(sizes), buffer.shape[1], signals.shape[1]
    c = a_shard.new_empty((sum(sizes), n))
    if len(c) == 0:
        return c
    if sizes[rank] > 0:
        _share_kernel[(1,)](
            a_shard, buffer[rank], signals, pads, *a_shard.stride(), sizes[rank], k, rank, call, ranks, slots,
            M_TILE_SIZE, K_TILE_SIZE,
        )  # fmt: skip
    first = 0
    for source, size in enumerate(sizes):
        if size > 0 and source != rank:
            _pull_kernel[(1,)](
                buffer, buffers, signals, pads, source, size, most, k, rank, call, slots, M_TILE_SIZE, K_TILE_SIZE,
            )  # fmt: skip
    for source, size in enumerate(sizes):
        if size > 0:
            grid = (triton.cdiv(size, M_TILE_SIZE), triton.cdiv(n, N_TILE_SIZE))
            _matmul_kernel[grid](
                buffer[source], b, c[first : first + size], *b.stride(), size, k, n,
                M_TILE_SIZE, N_TILE_SIZE, K_TILE_SIZE,
            )  # fmt: skip
        first += size
    return c


@triton.jit
def _wait(flag, value):
    found = tl.atomic_add(flag, 0, sem="acquire", scope="sys")
    while found < value:
        found = tl.atomic_add(flag, 0, sem="acquire", scope="sys")
    tl.debug_barrier()


@triton.jit
def _copy(from_ptr, to_ptr, stride_m, stride_k, size, k, M: tl.constexpr, K: tl.constexpr):
    """Copy (size, k) to where it is contiguous."""
    for first in range(0, size, M):
        rows = first + tl.arange(0, M).to(tl.int64)[:, None]
        for start in range(0, k, K):
            terms = start + tl.arange(0, K).to(tl.int64)[None, :]
            mask = (rows < size) & (terms < k)
            tl.store(to_ptr + rows * k + terms, tl.load(from_ptr + rows * stride_m + terms * stride_k, mask=mask), mask)


@triton.jit
def _share_kernel(
    a_ptr, own_ptr, signals_ptr, pads_ptr, stride_m, stride_k, size, k, rank, call,
    RANKS: tl.constexpr, SLOTS: tl.constexpr, M: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Copy own rows to the own buffer, once all others have read those of the last call, and tell the others."""
    for other in range(RANKS):
        if other != rank:
            _wait(signals_ptr + other * SLOTS + 1, call - 1)
    _copy(a_ptr, own_ptr, stride_m, stride_k, size, k, M, K)
    tl.debug_barrier()
    for other in range(RANKS):
        pad = tl.load(pads_ptr + other).to(tl.pointer_type(tl.int32))
        tl.atomic_xchg(pad + rank * SLOTS, call, sem="release", scope="sys")


@triton.jit
def _pull_kernel(
    buffer_ptr, buffers_ptr, signals_ptr, pads_ptr, source, size, most, k, rank, call,
    SLOTS: tl.constexpr, M: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Copy the rows of another rank from its buffer to the same place in this one's, and tell it that they are read."""
    _wait(signals_ptr + source * SLOTS, call)
    at = tl.cast(source, tl.int64) * most * k
    theirs_ptr = tl.load(buffers_ptr + source).to(tl.pointer_type(buffer_ptr.dtype.element_ty))
    _copy(theirs_ptr + at, buffer_ptr + at, k, 1, size, k, M, K)
    tl.debug_barrier()
    pad = tl.load(pads_ptr + source).to(tl.pointer_type(tl.int32))
    tl.atomic_xchg(pad + rank * SLOTS + 1, call, sem="release", scope="sys")


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
