"""A ring: each rank sends its rows to the next one, and then what has come from the one before; in parts along k."""

import torch
import triton
import triton.language as tl

M_TILE_SIZE, N_TILE_SIZE, K_TILE_SIZE = 64, 64, 32
PARTS = 4  # of k; each has a signal, behind the one that says that the buffer may be written to


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
    per_part = triton.cdiv(triton.cdiv(k, K_TILE_SIZE), PARTS) * K_TILE_SIZE
    _ring_kernel[(PARTS,)](
        a_shard, rows, buffer, signals, buffers, pads, *a_shard.stride(), rows.stride(0),
        rank, call, most, k, per_part, ranks, slots, M_TILE_SIZE, K_TILE_SIZE,
    )  # fmt: skip
    grid = (triton.cdiv(max(sizes), M_TILE_SIZE), triton.cdiv(n, N_TILE_SIZE), ranks)
    begins = rows.cumsum(0, dtype=torch.int32) - rows
    _matmul_kernel[grid](
        buffer, b, c, signals, rows, begins, *b.stride(), rows.stride(0), begins.stride(0), rank, call, most, k, n,
        slots, M_TILE_SIZE, N_TILE_SIZE, K_TILE_SIZE,
    )  # fmt: skip
    return c


@triton.jit
def _signal(table, rank, slot, value):
    tl.debug_barrier()
    tl.atomic_max(tl.load(table + rank).to(tl.pointer_type(tl.int32)) + slot, value, sem="release", scope="sys")


@triton.jit
def _wait(flag, value):
    while tl.atomic_cas(flag, -1, -1, sem="acquire", scope="sys") < value:
        pass
    tl.debug_barrier()


@triton.jit
def _ring_kernel(
    a_ptr, rows_ptr, buffer_ptr, signals_ptr, buffers_ptr, pads_ptr, stride_m, stride_k, stride_r,
    rank, call, most, k, per_part,
    RANKS: tl.constexpr, SLOTS: tl.constexpr, M: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Some columns of all shards: own ones to the own buffer, and each that has come to the next rank, but the last."""
    part = tl.program_id(0)
    begin, after, before = part * per_part, (rank + 1) % RANKS, (rank + RANKS - 1) % RANKS
    end = tl.minimum(begin + per_part, k)
    if part == 0:
        _signal(pads_ptr, before, rank * SLOTS, call)
    _copy(
        a_ptr, buffer_ptr + tl.cast(rank, tl.int64) * most * k, stride_m, stride_k,
        tl.load(rows_ptr + rank * stride_r), begin, end, k, M, K,
    )  # fmt: skip
    _signal(pads_ptr, rank, rank * SLOTS + 1 + part, call)
    _wait(signals_ptr + after * SLOTS, call)
    theirs_ptr = tl.load(buffers_ptr + after).to(tl.pointer_type(buffer_ptr.dtype.element_ty))
    for step in range(RANKS - 1):
        source = (rank + RANKS - step) % RANKS
        at = tl.cast(source, tl.int64) * most * k
        if step > 0:
            _wait(signals_ptr + source * SLOTS + 1 + part, call)
        size = tl.load(rows_ptr + source * stride_r)
        _copy(buffer_ptr + at, theirs_ptr + at, k, 1, size, begin, end, k, M, K)
        _signal(pads_ptr, after, source * SLOTS + 1 + part, call)


@triton.jit
def _copy(from_ptr, to_ptr, stride_m, stride_k, size, begin, end, k, M: tl.constexpr, K: tl.constexpr):
    tl.debug_barrier()
    for first in range(0, size, M):
        rows = first + tl.arange(0, M).to(tl.int64)[:, None]
        for start in range(begin, end, K):
            terms = start + tl.arange(0, K).to(tl.int64)[None, :]
            mask = (rows < size) & (terms < end)
            tl.store(to_ptr + rows * k + terms, tl.load(from_ptr + rows * stride_m + terms * stride_k, mask=mask), mask)


@triton.jit
def _matmul_kernel(
    a_ptr, b_ptr, c_ptr, signals_ptr, rows_ptr, begins_ptr, stride_bk, stride_bn, stride_r, stride_begins,
    rank, call, most, k, n,
    SLOTS: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    source = (rank + tl.num_programs(2) - tl.program_id(2)) % tl.num_programs(2)  # in the order in which they come
    m = tl.load(rows_ptr + source * stride_r)
    if tl.program_id(0) * M >= m:
        return
    for part in tl.static_range(4):
        _wait(signals_ptr + source * SLOTS + 1 + part, call)
    rows = tl.program_id(0) * M + tl.arange(0, M).to(tl.int64)[:, None]
    cols = tl.program_id(1) * N + tl.arange(0, N).to(tl.int64)[None, :]
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k, K):
        terms = start + tl.arange(0, K).to(tl.int64)
        a_ptrs = a_ptr + (tl.cast(source, tl.int64) * most + rows) * k + terms[None, :]
        b_ptrs = b_ptr + terms[:, None] * stride_bk + cols * stride_bn
        a = tl.load(a_ptrs, mask=(rows < m) & (terms[None, :] < k), other=0.0)
        b = tl.load(b_ptrs, mask=(terms[:, None] < k) & (cols < n), other=0.0)
        total = tl.dot(a, b, total)
    at = (tl.load(begins_ptr + source * stride_begins) + rows) * n + cols
    tl.store(c_ptr + at, total.to(c_ptr.dtype.element_ty), mask=(rows < m) & (cols < n))
