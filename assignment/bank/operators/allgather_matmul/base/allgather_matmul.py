"""A product of gathered rows, plainly: a launch says that the buffer is free, one pushes, one multiplies."""

import torch
import triton
import triton.language as tl

M_TILE_SIZE, N_TILE_SIZE, K_TILE_SIZE = 64, 64, 32


def allgather_matmul(a_shard, b, rows, buffer, signals, buffers, pads, rank=0, call=1):
    _check(a_shard, b, rows, buffer, signals, buffers, pads, rank)
    sizes = rows.tolist()
    (own, k), n = a_shard.shape, b.shape[1]
    ranks, most, slots = buffer.shape[0], buffer.shape[1], signals.shape[1]
    c = torch.empty((sum(sizes), n), dtype=a_shard.dtype, device=a_shard.device)
    if sum(sizes) == 0:
        return c
    _free_kernel[(ranks,)](pads, rank, call, SLOTS=slots)
    _push_kernel[(ranks,)](
        a_shard, signals, buffers, pads, a_shard.stride(0), a_shard.stride(1),
        rank, call, own, most, k,
        SLOTS=slots, M_TILE_SIZE=M_TILE_SIZE, K_TILE_SIZE=K_TILE_SIZE,
    )  # fmt: skip
    grid = (triton.cdiv(most, M_TILE_SIZE), triton.cdiv(n, N_TILE_SIZE), ranks)
    _matmul_kernel[grid](
        buffer, b, c, signals, rows, b.stride(0), b.stride(1), rows.stride(0),
        rank, call, most, k, n,
        SLOTS=slots, M_TILE_SIZE=M_TILE_SIZE, N_TILE_SIZE=N_TILE_SIZE, K_TILE_SIZE=K_TILE_SIZE,
    )  # fmt: skip
    return c


def _check(a_shard, b, rows, buffer, signals, buffers, pads, rank):
    if a_shard.ndim != 2 or b.ndim != 2 or a_shard.shape[1] != b.shape[0] or min(b.shape) < 1:
        raise ValueError(f"expected (rows, k) and (k, n), got {tuple(a_shard.shape)} and {tuple(b.shape)}")
    if a_shard.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"expected float32, bfloat16 or float16, got {a_shard.dtype}")
    if a_shard.dtype != b.dtype or a_shard.dtype != buffer.dtype:
        raise ValueError(f"expected one dtype, got {a_shard.dtype}, {b.dtype} and {buffer.dtype}")
    if rows.dtype != torch.int32 or signals.dtype != torch.int32:
        raise ValueError(f"expected rows and signals in int32, got {rows.dtype} and {signals.dtype}")
    if rows.ndim != 1 or rows.shape != buffers.shape or rows.shape != pads.shape or not 0 <= rank < len(rows):
        raise ValueError(f"expected rows and addresses of each rank, got {rows.shape}, {buffers.shape}, {pads.shape}")
    sizes = rows.tolist()
    if a_shard.shape[0] != sizes[rank]:
        raise ValueError(f"expected {sizes[rank]} rows on rank {rank}, got {a_shard.shape[0]}")
    if buffer.shape != (len(sizes), max(1, *sizes), b.shape[0]) or signals.shape[0] != len(sizes):
        raise ValueError(f"expected room for the rows of every rank, got {tuple(buffer.shape)}")


@triton.jit
def signal(pad, value):
    tl.debug_barrier()
    tl.atomic_xchg(pad, value, sem="release", scope="sys")


@triton.jit
def wait(pad, value):
    while tl.atomic_add(pad, 0, sem="acquire", scope="sys") < value:
        pass
    tl.debug_barrier()


@triton.jit
def _free_kernel(pads_ptr, rank, call, SLOTS: tl.constexpr):
    """Say to each rank that this one has read what came with the last call."""
    pad = tl.load(pads_ptr + tl.program_id(0)).to(tl.pointer_type(tl.int32))
    signal(pad + rank * SLOTS + 1, call)


@triton.jit
def _push_kernel(
    a_ptr, signals_ptr, buffers_ptr, pads_ptr, stride_am, stride_ak,
    rank, call, own, most, k,
    SLOTS: tl.constexpr, M_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """Store all own rows to the buffer of one rank, and signal that they are there."""
    to = tl.program_id(0)
    pad = tl.load(pads_ptr + to).to(tl.pointer_type(tl.int32)) + rank * SLOTS
    theirs_ptr = tl.load(buffers_ptr + to).to(tl.pointer_type(a_ptr.dtype.element_ty))
    theirs_ptr += tl.cast(rank, tl.int64) * most * k
    wait(signals_ptr + to * SLOTS + 1, call)
    for first in range(0, own, M_TILE_SIZE):
        rows = first + tl.arange(0, M_TILE_SIZE).to(tl.int64)[:, None]
        for start in range(0, k, K_TILE_SIZE):
            terms = start + tl.arange(0, K_TILE_SIZE).to(tl.int64)[None, :]
            mask = (rows < own) & (terms < k)
            part = tl.load(a_ptr + rows * stride_am + terms * stride_ak, mask=mask)
            tl.store(theirs_ptr + rows * k + terms, part, mask=mask)
    signal(pad, call)


@triton.jit
def _matmul_kernel(
    buffer_ptr, b_ptr, c_ptr, signals_ptr, rows_ptr, stride_bk, stride_bn, stride_r,
    rank, call, most, k, n,
    SLOTS: tl.constexpr, M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """A tile of the rows of one rank times b."""
    ranks = tl.num_programs(2)
    source = (rank + tl.program_id(2)) % ranks
    size = tl.load(rows_ptr + source * stride_r)
    begin = 0
    for before in range(source):
        begin += tl.load(rows_ptr + before * stride_r)
    first = tl.program_id(0) * M_TILE_SIZE
    if first < size:
        wait(signals_ptr + source * SLOTS, call)
        rows = first + tl.arange(0, M_TILE_SIZE).to(tl.int64)[:, None]
        cols = tl.program_id(1) * N_TILE_SIZE + tl.arange(0, N_TILE_SIZE).to(tl.int64)[None, :]
        a_ptrs = buffer_ptr + (tl.cast(source, tl.int64) * most + rows) * k
        total = tl.zeros((M_TILE_SIZE, N_TILE_SIZE), dtype=tl.float32)
        for start in range(0, k, K_TILE_SIZE):
            terms = start + tl.arange(0, K_TILE_SIZE).to(tl.int64)
            a = tl.load(a_ptrs + terms[None, :], mask=(rows < size) & (terms[None, :] < k), other=0.0)
            b_ptrs = b_ptr + terms[:, None] * stride_bk + cols * stride_bn
            b = tl.load(b_ptrs, mask=(terms[:, None] < k) & (cols < n), other=0.0)
            total = tl.dot(a, b, total)
        c_ptrs = c_ptr + (begin + rows) * n + cols
        tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=(rows < size) & (cols < n))
