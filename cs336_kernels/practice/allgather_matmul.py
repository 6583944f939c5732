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
    raise NotImplementedError(
        "cs336_kernels/practice/allgather_matmul.py: allgather_matmul, handout/allgather_matmul.md"
    )


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
    raise NotImplementedError(
        "cs336_kernels/practice/allgather_matmul.py: _allgather_matmul_kernel, handout/allgather_matmul.md"
    )
