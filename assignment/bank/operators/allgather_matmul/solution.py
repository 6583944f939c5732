"""A product whose first factor lies in parts on several GPUs, for practice: c = gather(a) b on every rank.

Each rank has some rows of a, and a b of its own. Rows move by one-sided stores between symmetric buffers, and signals
say that they are there. Bytes that must cross to a rank, for elements of s bytes: s·k for each row of the others. They
need not take time of their own: while rows of others come, a rank multiplies its own.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int32, Int64
from torch import Tensor

# BEGIN SOLUTION
from triton.tools.tensor_descriptor import TensorDescriptor

ALIGNMENT = 16  # bytes: what a tensor descriptor asks of a matrix's base and of its stride
LARGE_SHARED_MEMORY = {(9, 0), (10, 0)}  # H100 and B200: 227 KB a program; elsewhere as little as 99 KB
# By the bytes of an element: rows, columns and terms of a tile, warps, stages.
SIZES = {2: (64, 128, 32, 4, 3), 4: (64, 64, 32, 4, 3)}
LARGE_SIZES = {2: (128, 256, 64, 8, 3), 4: (128, 128, 32, 8, 3)}
GROUP_SIZE = 8  # rows of tiles that are computed together
# END SOLUTION


def allgather_matmul(
    a_shard: Float[Tensor, "own k"],
    b: Float[Tensor, "k n"],
    rows: Int32[Tensor, " ranks"],
    buffer: Float[Tensor, "ranks most k"],
    signals: Int32[Tensor, "ranks 64"],
    buffers: Int64[Tensor, " ranks"],
    pads: Int64[Tensor, " ranks"],
    rank: int = 0,
    call: int = 1,
) -> Float[Tensor, "all n"]:
    """c = a b, where a has the rows of all ranks one after the other, a_shard those of this one.

    dtypes: float32, bfloat16 or float16, the same for a_shard, b, buffer and c. Sums are float32, and cast once, at the
        store; products of float32 may be TF32.
    Shapes: rank r has rows[r] rows, none or more, and most is the largest of them, at least 1; any k and n from 1, one
        rank or more.
    Strides: of a_shard, b and rows any; c has memory of its own. None of the three is written to.
    No rows at all: an empty c, without a launch.

    rows is structure: host code may read it. buffer and signals are this rank's part of the symmetric memory: kernels
    of all ranks load from it and store to it. buffers and pads hold the address of each rank's buffer and signals. What
    lies in buffer at first means nothing; signals are 0 before the first call, and later as the calls before have left
    them. All ranks make the same calls on this memory, with the same rows and shape of b; `call` counts them, from 1.

    Raises:
        ValueError: before any launch, if a_shard or b has not exactly two dimensions, k differs, k or n is 0, a_shard
            has not rows[rank] rows, rows, buffer, signals, buffers and pads are not of the shapes above, or dtypes are
            not as said.
    """
    # BEGIN SOLUTION handout/allgather_matmul.md
    sizes = _checked(a_shard, b, rows, buffer, signals, buffers, pads, rank)
    (own, k), n, ranks, most = a_shard.shape, b.shape[1], len(sizes), max(1, *sizes)
    c = a_shard.new_empty(sum(sizes), n)
    if sum(sizes) == 0:
        return c
    is_large = torch.cuda.get_device_capability(a_shard.device) in LARGE_SHARED_MEMORY
    m_tile, n_tile, k_tile, num_warps, num_stages = (LARGE_SIZES if is_large else SIZES)[a_shard.itemsize]
    slots = signals.shape[1]
    in_block = triton.cdiv(triton.cdiv(most, m_tile), slots - 1)  # row tiles whose arrival is one signal
    n_blocks = triton.cdiv(own, in_block * m_tile) if ranks > 1 or a_shard.stride(1) != 1 else 0
    n_tiles = triton.cdiv(most, m_tile) * triton.cdiv(n, n_tile)  # of a shard, at most
    is_tiled = is_large and _is_describable(b)
    factor = TensorDescriptor.from_tensor(b, [k_tile, n_tile]) if is_tiled else b
    _allgather_matmul_kernel[(n_blocks + ranks * n_tiles,)](
        a_shard, factor, rows, buffer, signals, buffers, pads, c, *a_shard.stride(), *b.stride(), rows.stride(0),
        rank, call, most, k, n, in_block, n_blocks, n_tiles,
        IS_WHOLE=k % k_tile == 0, IN_PLACE=a_shard.stride(1) == 1, B_IS_TILED=is_tiled, RANKS=ranks, SLOTS=slots,
        M_TILE_SIZE=m_tile, N_TILE_SIZE=n_tile, K_TILE_SIZE=k_tile, GROUP_SIZE=GROUP_SIZE,
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return c
    # END SOLUTION


# BEGIN SOLUTION
def _checked(
    a_shard: Tensor, b: Tensor, rows: Tensor, buffer: Tensor, signals: Tensor, buffers: Tensor, pads: Tensor, rank: int
) -> list[int]:
    """Return the rows of each rank."""
    if a_shard.ndim != 2 or b.ndim != 2 or a_shard.shape[1] != b.shape[0] or min(b.shape) < 1:
        raise ValueError(f"expected (rows, k) and (k, n), got {tuple(a_shard.shape)} and {tuple(b.shape)}")
    if a_shard.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"expected one of float32, bfloat16, float16, got {a_shard.dtype}")
    if not a_shard.dtype == b.dtype == buffer.dtype:
        raise ValueError(f"expected one dtype, got {a_shard.dtype}, {b.dtype} and {buffer.dtype}")
    if (rows.dtype, signals.dtype, buffers.dtype, pads.dtype) != (torch.int32, torch.int32, torch.int64, torch.int64):
        raise ValueError(f"expected rows and signals in int32, addresses in int64, got {rows.dtype}, {signals.dtype}")
    if rows.ndim != 1 or not 0 <= rank < len(rows) or not rows.shape == buffers.shape == pads.shape:
        raise ValueError(f"expected rows and addresses of each rank, got {rows.shape}, {buffers.shape}, {pads.shape}")
    sizes = rows.tolist()
    if len(a_shard) != sizes[rank]:
        raise ValueError(f"expected {sizes[rank]} rows on rank {rank}, got {len(a_shard)}")
    if buffer.shape != (len(sizes), max(1, *sizes), b.shape[0]) or signals.ndim != 2 or len(signals) != len(sizes):
        raise ValueError(f"expected room for every rank's rows, got {tuple(buffer.shape)} and {tuple(signals.shape)}")
    return sizes


def _is_describable(b: Tensor) -> bool:
    """Whether the elements of rows follow one another, from aligned places."""
    outer, inner = b.stride()
    return inner == 1 and outer > 1 and (b.data_ptr() | outer * b.itemsize) % ALIGNMENT == 0


# END SOLUTION
@triton.jit
def signal(pad, value):
    """Set a signal, on any rank; who waits for it sees all that this program has stored, on every rank."""
    tl.debug_barrier()  # all threads have stored
    tl.atomic_xchg(pad, value, sem="release", scope="sys")


@triton.jit
def wait(pad, value):
    """Wait for a signal of this rank to be `value` or more."""
    while tl.atomic_add(pad, 0, sem="acquire", scope="sys") < value:
        pass
    tl.debug_barrier()  # no thread loads before


@triton.jit(do_not_specialize=["call"])
def _allgather_matmul_kernel(
    a_ptr, b, rows_ptr, buffer_ptr, signals_ptr, buffers_ptr, pads_ptr, c_ptr,
    stride_am, stride_ak, stride_bk, stride_bn, stride_r,
    rank, call, most, k, n, in_block, n_blocks, n_tiles,
    IS_WHOLE: tl.constexpr, IN_PLACE: tl.constexpr, B_IS_TILED: tl.constexpr,
    RANKS: tl.constexpr, SLOTS: tl.constexpr,
    M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, GROUP_SIZE: tl.constexpr,
):  # fmt: skip
    """Blocks of a_shard that are stored to the buffers of other ranks, then tiles of c, this rank's own rows first.

    a_shard (rows[rank], k), b (k, n) and rows (RANKS,), of stride stride_r, are of any strides; buffer (RANKS, most,
    k), signals (RANKS, SLOTS) and c (all, n) are contiguous. signals[r] is what rank r has to say: of each of its
    blocks that it is here, and in the last slot that its buffer may be written to. IS_WHOLE: k is a multiple of
    K_TILE_SIZE. IN_PLACE: rows of a_shard are contiguous, and multiplied where they are. B_IS_TILED: b is a descriptor,
    which saves addresses.
    Grid: n_blocks programs, each for a block of in_block tiles of rows, and n_tiles for each rank, some of which have
    no tile.
    """
    # BEGIN SOLUTION handout/allgather_matmul.md
    program = tl.program_id(0)
    if program == 0:  # launches before this one are done: nobody here reads what came with the last call
        for to in range(RANKS):
            signal(tl.load(pads_ptr + to).to(tl.pointer_type(tl.int32)) + rank * SLOTS + SLOTS - 1, call)
    if program < n_blocks:
        end = tl.load(rows_ptr + rank * stride_r)
        for step in range(1 if IN_PLACE else 0, RANKS):
            to = (rank + step) % RANKS
            wait(signals_ptr + to * SLOTS + SLOTS - 1, call)
            theirs_ptr = tl.load(buffers_ptr + to).to(tl.pointer_type(buffer_ptr.dtype.element_ty))
            for tile in range(program * in_block, program * in_block + in_block):
                _copy_rows(
                    a_ptr, theirs_ptr + tl.cast(rank, tl.int64) * most * k, stride_am, stride_ak,
                    tile * M_TILE_SIZE, end, k, M_TILE_SIZE, K_TILE_SIZE,
                )  # fmt: skip
            signal(tl.load(pads_ptr + to).to(tl.pointer_type(tl.int32)) + rank * SLOTS + program, call)
    else:
        source = (rank + (program - n_blocks) // n_tiles) % RANKS
        n_rows, first = tl.load(rows_ptr + source * stride_r), 0
        for before in range(source):
            first += tl.load(rows_ptr + before * stride_r)
        n_row_tiles, n_col_tiles = tl.cdiv(n_rows, M_TILE_SIZE), tl.cdiv(n, N_TILE_SIZE)
        tile = (program - n_blocks) % n_tiles
        if tile < n_row_tiles * n_col_tiles:
            row_tile, col_tile = _grouped(tile, n_row_tiles, n_col_tiles, GROUP_SIZE)
            is_own = IN_PLACE & (source == rank)
            if not is_own:
                wait(signals_ptr + source * SLOTS + row_tile // in_block, call)
            _multiply(
                tl.where(is_own, a_ptr, buffer_ptr + tl.cast(source, tl.int64) * most * k), b,
                c_ptr + tl.cast(first, tl.int64) * n,
                tl.where(is_own, stride_am, k), stride_bk, stride_bn, row_tile, col_tile, n_rows, k, n,
                IS_WHOLE, B_IS_TILED, M_TILE_SIZE, N_TILE_SIZE, K_TILE_SIZE,
            )  # fmt: skip
    # END SOLUTION


# BEGIN SOLUTION
@triton.jit
def _copy_rows(
    from_ptr, to_ptr, stride_m, stride_k, first, end, k,
    M_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """Copy rows from `first` on, M_TILE_SIZE of them or until `end`, to (rows, k), which is contiguous."""
    rows = tl.cast(first, tl.int64) + tl.arange(0, M_TILE_SIZE)
    for start in range(0, k, K_TILE_SIZE):
        terms = start + tl.arange(0, K_TILE_SIZE).to(tl.int64)
        mask = (rows[:, None] < end) & (terms[None, :] < k)
        part = tl.load(from_ptr + rows[:, None] * stride_m + terms[None, :] * stride_k, mask=mask)
        tl.store(to_ptr + rows[:, None] * k + terms[None, :], part, mask=mask)


@triton.jit
def _multiply(
    a_ptr, b, c_ptr, stride_am, stride_bk, stride_bn, row_tile, col_tile, m, k, n,
    IS_WHOLE: tl.constexpr, B_IS_TILED: tl.constexpr,
    M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """A tile of c (m, n), which is contiguous, of a (m, k), whose rows are, and b (k, n)."""
    rows = tl.cast(row_tile, tl.int64) * M_TILE_SIZE + tl.arange(0, M_TILE_SIZE)
    cols = tl.cast(col_tile, tl.int64) * N_TILE_SIZE + tl.arange(0, N_TILE_SIZE)
    row_mask, col_mask = rows[:, None] < m, cols[None, :] < n
    total = tl.zeros((M_TILE_SIZE, N_TILE_SIZE), dtype=tl.float32)
    for start in range(0, k, K_TILE_SIZE):
        terms = start + tl.arange(0, K_TILE_SIZE).to(tl.int64)
        a_mask = row_mask if IS_WHOLE else row_mask & (terms[None, :] < k)
        a_part = tl.load(a_ptr + rows[:, None] * stride_am + terms[None, :], mask=a_mask, other=0.0)
        if B_IS_TILED:
            b_part = b.load([start, col_tile * N_TILE_SIZE])
        else:
            b_mask = col_mask if IS_WHOLE else (terms[:, None] < k) & col_mask
            b_part = tl.load(b + terms[:, None] * stride_bk + cols[None, :] * stride_bn, mask=b_mask, other=0.0)
        total = tl.dot(a_part, b_part, total)  # (M, K), (K, N)
    tl.store(c_ptr + rows[:, None] * n + cols[None, :], total.to(c_ptr.dtype.element_ty), mask=row_mask & col_mask)


@triton.jit
def _grouped(tile, n_row_tiles, n_col_tiles, GROUP_SIZE: tl.constexpr):
    """The row and column of a tile: GROUP_SIZE rows of tiles together, column after column."""
    in_group = GROUP_SIZE * n_col_tiles
    first_row = tile // in_group * GROUP_SIZE
    n_rows = tl.minimum(n_row_tiles - first_row, GROUP_SIZE)
    return first_row + tile % in_group % n_rows, tile % in_group // n_rows


# END SOLUTION
