"""Pushes tile by tile, counted by atomics, in one launch with the product; own rows are read where they lie."""

import torch
import triton
import triton.language as tl

M_TILE_SIZE, N_TILE_SIZE, K_TILE_SIZE = 32, 64, 64


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
    c = a_shard.new_empty((sum(sizes), n))
    if c.shape[0] > 0:
        n_pushed = triton.cdiv(sizes[rank], M_TILE_SIZE) * (len(sizes) - 1)
        n_tiles = sum(triton.cdiv(size, M_TILE_SIZE) for size in sizes) * triton.cdiv(n, N_TILE_SIZE)
        _kernel[(1 + n_pushed + n_tiles,)](
            a_shard, b, rows, buffer, signals, buffers, pads, c, *a_shard.stride(), *b.stride(), *rows.stride(),
            rank, call, buffer.shape[1], k, n, n_pushed,
            len(sizes), signals.shape[1], M_TILE_SIZE, N_TILE_SIZE, K_TILE_SIZE,
        )  # fmt: skip
    return c


@triton.jit
def _add_to(pads_ptr, rank, slot):
    tl.debug_barrier()
    tl.atomic_add(tl.load(pads_ptr + rank).to(tl.pointer_type(tl.int32)) + slot, 1, sem="acq_rel", scope="sys")


@triton.jit
def _wait(counter, value):
    while tl.atomic_add(counter, 0, sem="acq_rel", scope="sys") < value:
        pass
    tl.debug_barrier()


@triton.jit
def _kernel(
    a_ptr, b_ptr, rows_ptr, buffer_ptr, signals_ptr, buffers_ptr, pads_ptr, c_ptr,
    stride_am, stride_ak, stride_bk, stride_bn, stride_r,
    rank, call, most, k, n, n_pushed,
    RANKS: tl.constexpr, SLOTS: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    if program == 0:
        for step in range(1, RANKS):
            _add_to(pads_ptr, (rank + step) % RANKS, rank * SLOTS)
    elif program <= n_pushed:
        to = (rank + 1 + (program - 1) % (RANKS - 1)) % RANKS if RANKS > 1 else 0
        _wait(signals_ptr + to * SLOTS, call)
        theirs_ptr = tl.load(buffers_ptr + to).to(tl.pointer_type(a_ptr.dtype.element_ty))
        theirs_ptr += tl.cast(rank, tl.int64) * most * k
        rows = (program - 1) // (RANKS - 1 if RANKS > 1 else 1) * M + tl.arange(0, M).to(tl.int64)[:, None]
        m = tl.load(rows_ptr + rank * stride_r)
        for start in range(0, k, K):
            terms = start + tl.arange(0, K).to(tl.int64)[None, :]
            mask = (rows < m) & (terms < k)
            part = tl.load(a_ptr + rows * stride_am + terms * stride_ak, mask=mask)
            tl.store(theirs_ptr + rows * k + terms, part, mask=mask)
        _add_to(pads_ptr, to, rank * SLOTS + 1)
    else:
        tile = program - 1 - n_pushed
        row_tile, col_tile = tile // tl.cdiv(n, N), tile % tl.cdiv(n, N)
        source, begin, m = rank, 0, tl.load(rows_ptr + rank * stride_r)
        is_found = row_tile < tl.cdiv(m, M)
        for step in range(1, RANKS):  # own rows, then those of the next rank
            if not is_found:
                row_tile -= tl.cdiv(m, M)
                source = (rank + step) % RANKS
                m = tl.load(rows_ptr + source * stride_r)
                is_found = row_tile < tl.cdiv(m, M)
        for before in range(RANKS):
            begin += tl.where(before < source, tl.load(rows_ptr + before * stride_r), 0)
        rows = row_tile * M + tl.arange(0, M).to(tl.int64)[:, None]
        cols = col_tile * N + tl.arange(0, N).to(tl.int64)[None, :]
        total = tl.zeros((M, N), dtype=tl.float32)
        if source != rank:
            _wait(signals_ptr + source * SLOTS + 1, call * tl.cdiv(m, M))
        for start in range(0, k, K):
            terms = start + tl.arange(0, K).to(tl.int64)
            mask = (rows < m) & (terms[None, :] < k)
            if source == rank:
                a = tl.load(a_ptr + rows * stride_am + terms[None, :] * stride_ak, mask=mask, other=0.0)
            else:
                a_ptrs = buffer_ptr + (tl.cast(source, tl.int64) * most + rows) * k + terms[None, :]
                a = tl.load(a_ptrs, mask=mask, other=0.0)
            b_ptrs = b_ptr + terms[:, None] * stride_bk + cols * stride_bn
            b = tl.load(b_ptrs, mask=(terms[:, None] < k) & (cols < n), other=0.0)
            total = tl.dot(a, b, total)
        tl.store(c_ptr + (begin + rows) * n + cols, total.to(c_ptr.dtype.element_ty), mask=(rows < m) & (cols < n))
