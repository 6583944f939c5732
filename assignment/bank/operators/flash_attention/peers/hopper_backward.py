"""The backward pass for Hopper alone, in Gluon: five products, where plain Triton computes S and dP twice.

A program has 128 keys, goes through the queries, and is four groups of warps. One warp copies tiles (TMA). Two groups
of four warps have 64 keys each, keep their grad_k and grad_v in registers, and hand dS over in shared memory. A fourth
group multiplies it by the keys, and adds that to grad_q in memory: by atomic additions, in an order that differs from
run to run.

S and dP are computed transposed, keys × queries: P and dS then are the left operands of the products for grad_v and
grad_k as they lie in registers. The sums for grad_q lie in memory in the order of registers, too: each thread adds four
values in a row, and its neighbour the next four. In the order of rows, two at a time, 4,096 × 128 was 0.7 × as fast on
an H100, since the additions took longer than the products.

Sources: Dao 2023, "FlashAttention-2", algorithm 2; Shah et al. 2024, "FlashAttention-3", section 3.1.
"""

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from .hopper import GROUP_BYTES, LOG2_E, described, load, refuse_others, store

barrier = getattr(gl, "barrier", None) or gl.thread_barrier  # of a group, as Triton 3.6 to 3.8 call it
GROUPS = gl.constexpr(2)  # that compute
ROWS = gl.constexpr(64)  # keys of a group: the height of a product of four warps
Q_TILE_SIZE = gl.constexpr(64)
K_TILE_SIZE = gl.constexpr(128)
ROW_LAYOUT = gl.constexpr(gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=2))
# PART: columns of grad_q that are added at a time. Registers: of a thread in the groups that keep grad_k and grad_v, in
# the one that adds, and in the warp that copies.
WIDE = {"STAGES": 2, "PART": 32, "REGISTERS": 216, "ADD_REGISTERS": 56, "COPY_REGISTERS": 24}
NARROW = {"STAGES": 4, "PART": 64, "REGISTERS": 208, "ADD_REGISTERS": 72, "COPY_REGISTERS": 24}


def flash_backward_triton(grad_o, q, k, v, o, lse, is_causal=False):
    """Return (grad_q, grad_k, grad_v) as the operator's reference does, on a Hopper GPU.

    Raises:
        RuntimeError: without such a GPU, for float32, a d above 128 or rows that are no multiples of 16 bytes.
    """
    refuse_others(q)
    d = q.shape[-1]
    grad_o_, q_, k_, v_, o_ = (x.reshape(-1, *x.shape[-2:]).contiguous() for x in (grad_o, q, k, v, o))
    n_batches, n_queries, n_keys = len(q_), q_.shape[1], k_.shape[1]
    grad_q, grad_k, grad_v = torch.empty_like(q_), torch.empty_like(k_), torch.empty_like(v_)
    n_programs = -(-n_keys // K_TILE_SIZE.value) * n_batches
    if n_programs == 0 or n_queries == 0:
        return grad_q.reshape(q.shape).zero_(), grad_k.reshape(k.shape).zero_(), grad_v.reshape(v.shape).zero_()
    n_padded = -(-n_queries // Q_TILE_SIZE.value) * Q_TILE_SIZE.value
    d_tile_size = 64 if d <= 64 else 128
    sizes = NARROW if d_tile_size == 64 else WIDE
    minus_lse, minus_delta = q_.new_empty(2, n_batches, n_padded, dtype=torch.float32)
    sums = q_.new_empty(n_batches, n_padded, d_tile_size, dtype=torch.float32)
    rows = (n_padded // ROWS.value, n_batches)
    prepare_kernel[rows](
        o_, grad_o_, lse.contiguous(), minus_lse, minus_delta, sums, n_queries, n_padded, d, d**0.5,
        ROWS=ROWS.value, D_TILE_SIZE=d_tile_size,
    )  # fmt: skip
    n_together = min(max(GROUP_BYTES // (4 * n_queries * d), 1), n_batches)
    flash_backward_kernel[(n_programs,)](
        *(described(x, Q_TILE_SIZE.value, d_tile_size) for x in (q_, grad_o_)),
        *(described(x, K_TILE_SIZE.value, d_tile_size) for x in (k_, v_)),
        *(described(x, ROWS.value, d_tile_size) for x in (grad_k, grad_v)),
        *(TensorDescriptor.from_tensor(x, [1, Q_TILE_SIZE.value], ROW_LAYOUT.value) for x in (minus_lse, minus_delta)),
        sums, n_batches, n_queries, n_keys, n_padded, n_together, d**-0.5, d**-0.5 * LOG2_E,
        IS_CAUSAL=is_causal, D_TILE_SIZE=d_tile_size, num_warps=4, **sizes,
    )  # fmt: skip
    finish_kernel[rows](
        sums, grad_q, n_queries, n_padded, d, d**-0.5, ROWS=ROWS.value, D_TILE_SIZE=d_tile_size, PART=sizes["PART"]
    )
    return grad_q.reshape(q.shape), grad_k.reshape(k.shape), grad_v.reshape(v.shape)


@triton.jit
def prepare_kernel(
    o_ptr, grad_o_ptr, lse_ptr, minus_lse_ptr, minus_delta_ptr, sums_ptr, n_queries, n_padded, d, root_of_d,
    ROWS: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """Write what the products begin with: −lse · √d, −∞ past the last query, and −delta = −rowsum(o ∘ grad_o).

    Both (n_batches, n_padded); and zeros to sums (n_batches, n_padded, D_TILE_SIZE). Grid: n_padded / ROWS × n_batches.
    """
    batch = tl.program_id(1).to(tl.int64)
    queries = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, D_TILE_SIZE)
    exists = queries < n_queries
    at = (batch * n_queries + queries[:, None]) * d + cols[None, :]
    mask = exists[:, None] & (cols < d)[None, :]
    o = tl.load(o_ptr + at, mask=mask, other=0.0).to(tl.float32)
    grad_o = tl.load(grad_o_ptr + at, mask=mask, other=0.0).to(tl.float32)
    lse = tl.load(lse_ptr + batch * n_queries + queries, mask=exists, other=float("inf"))
    tl.store(minus_lse_ptr + batch * n_padded + queries, -lse * root_of_d)
    tl.store(minus_delta_ptr + batch * n_padded + queries, -tl.sum(o * grad_o, axis=1))
    sums_ptrs = sums_ptr + (batch * n_padded + queries[:, None]) * D_TILE_SIZE + cols[None, :]
    tl.store(sums_ptrs, tl.zeros((ROWS, D_TILE_SIZE), tl.float32))


@triton.jit
def finish_kernel(
    sums_ptr, grad_q_ptr, n_queries, n_padded, d, scale,
    ROWS: tl.constexpr, D_TILE_SIZE: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """Write grad_q (n_batches, n_queries, d) from the sums of flash_backward_kernel.

    Grid: (n_padded / ROWS, n_batches).
    """
    batch = tl.program_id(1).to(tl.int64)
    queries = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, D_TILE_SIZE)
    # Tiles of 64 × PART, in which four values of a thread follow each other: see _add
    at = (batch * n_padded + tl.program_id(0) * ROWS) * D_TILE_SIZE + tl.arange(0, ROWS * D_TILE_SIZE)
    grad_q = tl.load(sums_ptr + at).reshape(D_TILE_SIZE // PART, 4, PART // 8, 8, 4, 2, 2) * scale
    grad_q = grad_q.permute(1, 5, 3, 0, 2, 4, 6).reshape(ROWS, D_TILE_SIZE)
    exists = (queries < n_queries)[:, None] & (cols < d)[None, :]
    tl.store(grad_q_ptr + (batch * n_queries + queries[:, None]) * d + cols[None, :], grad_q, mask=exists)


@gluon.jit
def flash_backward_kernel(
    q_desc, grad_o_desc, k_desc, v_desc, grad_k_desc, grad_v_desc, minus_lse_desc, minus_delta_desc, sums_ptr,
    n_batches, n_queries, n_keys, n_padded, n_together, scale, scale_of_2,
    IS_CAUSAL: gl.constexpr, D_TILE_SIZE: gl.constexpr, STAGES: gl.constexpr, PART: gl.constexpr,
    REGISTERS: gl.constexpr, ADD_REGISTERS: gl.constexpr, COPY_REGISTERS: gl.constexpr,
):  # fmt: skip
    """Descriptors of q, grad_o (n_batches, n_queries, d), k, v, grad_k, grad_v (n_batches, n_keys, d), and two rows.

    The rows: see prepare_kernel. sums: (n_batches, n_padded, D_TILE_SIZE), zeros; see _add for the order. n_together:
    batches whose tiles take turns. scale_of_2 = log₂ e / √d. Grid: key tiles × batches.
    """
    dtype: gl.constexpr = q_desc.dtype
    q_buffers = _buffers(q_desc, minus_lse_desc, STAGES)
    grad_o_buffers = _buffers(grad_o_desc, minus_delta_desc, STAGES)
    k_tile = gl.allocate_shared_memory(k_desc.dtype, k_desc.block_shape, k_desc.layout)
    v_tile = gl.allocate_shared_memory(v_desc.dtype, v_desc.block_shape, v_desc.layout)
    kv_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(kv_full.index(i), count=1)
    GRAD_S: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    grad_s_tiles = gl.allocate_shared_memory(dtype, [2, K_TILE_SIZE, Q_TILE_SIZE], GRAD_S)
    grad_s_full, grad_s_empty = _barriers(2, 2, 1)
    grad_s_buffers = (grad_s_tiles, grad_s_full, grad_s_empty)
    out_tiles = gl.allocate_shared_memory(dtype, [GROUPS] + grad_k_desc.block_shape, grad_k_desc.layout)  # noqa: RUF005
    fence_async_shared()

    n_key_tiles = gl.cdiv(n_keys, K_TILE_SIZE)
    pid = gl.program_id(0)
    if IS_CAUSAL:  # earlier keys are seen by more queries: they come first
        first = pid // (n_together * n_key_tiles) * n_together
        size = gl.minimum(n_together, n_batches - first)
        turn = pid - first * n_key_tiles
        batch, key_tile = first + turn % size, turn // size
        first_tile = gl.minimum(key_tile * K_TILE_SIZE, n_queries) // Q_TILE_SIZE
    else:
        batch, key_tile = pid // n_key_tiles, pid % n_key_tiles
        first_tile = 0
    n_tiles = gl.cdiv(n_queries, Q_TILE_SIZE)
    sums_ptr += batch.to(gl.int64) * n_padded * D_TILE_SIZE
    place = (batch, key_tile, first_tile, n_tiles)
    grads = (grad_k_desc, grad_v_desc, out_tiles)
    kv = (k_tile, v_tile, kv_full)
    keeping = (q_buffers, grad_o_buffers, kv, grad_s_buffers, grads, place, n_keys, scale, scale_of_2)
    adding = (k_tile, kv_full, grad_s_buffers, sums_ptr, place)
    descs = (q_desc, grad_o_desc, k_desc, v_desc, minus_lse_desc, minus_delta_desc)
    copying = (descs, q_buffers, grad_o_buffers, kv, place)
    gl.warp_specialize(
        [
            (_keep, (0, keeping, IS_CAUSAL, D_TILE_SIZE, STAGES)),
            (_keep, (1, keeping, IS_CAUSAL, D_TILE_SIZE, STAGES)),
            (_add, (adding, IS_CAUSAL, D_TILE_SIZE, PART)),
            (_copy, (copying, IS_CAUSAL, STAGES)),
        ],
        [4, 4, 1],
        [REGISTERS, ADD_REGISTERS, COPY_REGISTERS],
    )


@gluon.jit
def _buffers(desc, row_desc, N: gl.constexpr):
    """Return N tiles of a descriptor, a row beside each, and barriers: as in hopper.py."""
    tiles = gl.allocate_shared_memory(desc.dtype, [N] + desc.block_shape, desc.layout)  # noqa: RUF005
    rows = gl.allocate_shared_memory(gl.float32, [N] + row_desc.block_shape, row_desc.layout)  # noqa: RUF005
    full, empty = _barriers(N, 1, GROUPS)
    return tiles, rows, full, empty


@gluon.jit
def _barriers(N: gl.constexpr, N_WRITERS: gl.constexpr, N_READERS: gl.constexpr):
    full = gl.allocate_shared_memory(gl.int64, [N, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [N, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(N):
        mbarrier.init(full.index(i), count=N_WRITERS)
        mbarrier.init(empty.index(i), count=N_READERS)
    return full, empty


@gluon.jit
def _tile_in_turn(i, place, IS_CAUSAL: gl.constexpr):
    """Return the number of the i-th query tile: programs with the same queries begin at different ones.

    They add to different places of grad_q then. Causal ones do so by where their keys are.
    """
    _, key_tile, first_tile, n_tiles = place
    if IS_CAUSAL:
        return first_tile + i
    else:
        return (i + key_tile) % n_tiles


@gluon.jit
def _copy(copying, IS_CAUSAL: gl.constexpr, STAGES: gl.constexpr):
    """Copy keys and values, then the queries' tiles ahead of the groups that compute."""
    descs, q_buffers, grad_o_buffers, kv, place = copying
    q_desc, grad_o_desc, k_desc, v_desc, minus_lse_desc, minus_delta_desc = descs
    k_tile, v_tile, kv_full = kv
    batch, key_tile, first_tile, n_tiles = place
    for i in range(n_tiles - first_tile):
        tile = _tile_in_turn(i, place, IS_CAUSAL)
        if i == 0:
            mbarrier.expect(kv_full.index(0), k_desc.block_type.nbytes)
            load(k_desc, [batch, key_tile * K_TILE_SIZE, 0], kv_full.index(0), k_tile)
        _fetch(q_desc, minus_lse_desc, batch, tile, q_buffers, i % STAGES, i // STAGES)
        if i == 0:
            mbarrier.expect(kv_full.index(1), v_desc.block_type.nbytes)
            load(v_desc, [batch, key_tile * K_TILE_SIZE, 0], kv_full.index(1), v_tile)
        _fetch(grad_o_desc, minus_delta_desc, batch, tile, grad_o_buffers, i % STAGES, i // STAGES)


@gluon.jit
def _fetch(desc, row_desc, batch, tile, buffers, stage, n_uses):
    tiles, rows, full, empty = buffers
    mbarrier.wait(empty.index(stage), (n_uses & 1) ^ 1)
    mbarrier.expect(full.index(stage), desc.block_type.nbytes + row_desc.block_type.nbytes)
    n: gl.constexpr = row_desc.block_shape[1]
    load(desc, [batch, tile * n, 0], full.index(stage), tiles.index(stage))
    load(row_desc, [batch, tile * n], full.index(stage), rows.index(stage))


@gluon.jit
def _keep(
    GROUP: gl.constexpr, keeping,
    IS_CAUSAL: gl.constexpr, D_TILE_SIZE: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Compute grad_k and grad_v of 64 keys, and hand on their part of dS for each query tile."""
    q_buffers, grad_o_buffers, kv, grad_s_buffers, grads, place, n_keys, scale, scale_of_2 = keeping
    q_tiles, minus_lse_rows, q_full, q_empty = q_buffers
    grad_o_tiles, minus_delta_rows, grad_o_full, grad_o_empty = grad_o_buffers
    grad_s_tiles, grad_s_full, grad_s_empty = grad_s_buffers
    k_tile, v_tile, kv_full = kv
    batch, key_tile, first_tile, n_tiles = place
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], warps_per_cta=[4, 1], instr_shape=[16, Q_TILE_SIZE, 16])
    KEPT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], warps_per_cta=[4, 1], instr_shape=[16, D_TILE_SIZE, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=KEPT, k_width=2)
    dtype: gl.constexpr = grad_s_tiles.dtype

    first_key = key_tile * K_TILE_SIZE + GROUP * ROWS
    keys = first_key + gl.arange(0, ROWS, layout=gl.SliceLayout(1, S_LAYOUT))
    k = k_tile.reshape([K_TILE_SIZE, D_TILE_SIZE]).slice(GROUP * ROWS, ROWS, dim=0)
    v = v_tile.reshape([K_TILE_SIZE, D_TILE_SIZE]).slice(GROUP * ROWS, ROWS, dim=0)
    nothing = gl.zeros([ROWS, Q_TILE_SIZE], gl.float32, S_LAYOUT)
    grad_k = gl.zeros([ROWS, D_TILE_SIZE], gl.float32, KEPT)
    grad_v = gl.zeros([ROWS, D_TILE_SIZE], gl.float32, KEPT)
    n_turns = n_tiles - first_tile
    if n_turns > 0:
        mbarrier.wait(kv_full.index(0), 0)
        mbarrier.wait(q_full.index(0), 0)
        q = q_tiles.index(0).reshape([Q_TILE_SIZE, D_TILE_SIZE])
        # S begins with −lse √d, so that P = exp2(S log₂ e / √d)
        minus_lse, _ = gl.broadcast(minus_lse_rows.index(0).load(S_LAYOUT), nothing)
        s = warpgroup_mma(k, q.permute((1, 0)), minus_lse, is_async=True)
        s = warpgroup_mma_wait(0, deps=[s])
        mbarrier.wait(kv_full.index(1), 0)
        for i in range(n_turns):
            stage = i % STAGES
            mbarrier.wait(grad_o_full.index(stage), i // STAGES & 1)
            mbarrier.wait(grad_s_empty.index(i & 1), (i >> 1 & 1) ^ 1)
            first_query = (first_tile + i) * Q_TILE_SIZE
            is_masked = first_key + ROWS > n_keys
            if IS_CAUSAL:
                is_masked = is_masked | (first_query < first_key + ROWS)
            if is_masked:
                visible = (keys < n_keys)[:, None]
                if IS_CAUSAL:
                    queries = first_query + gl.arange(0, Q_TILE_SIZE, layout=gl.SliceLayout(0, S_LAYOUT))
                    visible = visible & (keys[:, None] <= queries[None, :])
                s = gl.where(visible, s, float("-inf"))
            grad_o = grad_o_tiles.index(stage).reshape([Q_TILE_SIZE, D_TILE_SIZE])
            if D_TILE_SIZE == 64:  # registers are left for dP while P is computed
                grad_p = warpgroup_mma(v, grad_o.permute((1, 0)), nothing, use_acc=False, is_async=True)
                left = gl.convert_layout(gl.exp2(s * scale_of_2).to(dtype), LEFT)
                grad_v = warpgroup_mma(left, grad_o, grad_v, is_async=True)
                grad_p = warpgroup_mma_wait(1, deps=[grad_p]) + minus_delta_rows.index(stage).load(S_LAYOUT)
                grad_s = (gl.convert_layout(left, S_LAYOUT).to(gl.float32) * grad_p).to(dtype)
                grad_v, left = warpgroup_mma_wait(0, deps=[grad_v, left])
            else:
                left = gl.convert_layout(gl.exp2(s * scale_of_2).to(dtype), LEFT)
                grad_v = warpgroup_mma(left, grad_o, grad_v, is_async=True)
                minus_delta, _ = gl.broadcast(minus_delta_rows.index(stage).load(S_LAYOUT), nothing)
                grad_p = warpgroup_mma(v, grad_o.permute((1, 0)), minus_delta, is_async=True)
                grad_v, left, grad_p = warpgroup_mma_wait(0, deps=[grad_v, left, grad_p])
                grad_s = (gl.convert_layout(left, S_LAYOUT).to(gl.float32) * grad_p).to(dtype)
            mbarrier.arrive(grad_o_empty.index(stage), count=1)
            grad_s_tiles.index(i & 1).slice(GROUP * ROWS, ROWS, dim=0).store(grad_s)
            fence_async_shared()
            barrier()
            mbarrier.arrive(grad_s_full.index(i & 1), count=1)

            # The scores of the next queries; after the last, of these once more.
            following = gl.minimum(i + 1, n_turns - 1)
            mbarrier.wait(q_full.index(following % STAGES), following // STAGES & 1)
            next_q = q_tiles.index(following % STAGES).reshape([Q_TILE_SIZE, D_TILE_SIZE])
            minus_lse, _ = gl.broadcast(minus_lse_rows.index(following % STAGES).load(S_LAYOUT), nothing)
            s = warpgroup_mma(k, next_q.permute((1, 0)), minus_lse, is_async=True)
            left_s = gl.convert_layout(grad_s, LEFT)
            q = q_tiles.index(stage).reshape([Q_TILE_SIZE, D_TILE_SIZE])
            grad_k = warpgroup_mma(left_s, q, grad_k, is_async=True)
            s, grad_k, left_s = warpgroup_mma_wait(0, deps=[s, grad_k, left_s])
            mbarrier.arrive(q_empty.index(stage), count=1)

    grad_k_desc, grad_v_desc, out_tiles = grads
    out = out_tiles.index(GROUP)
    out.reshape([ROWS, D_TILE_SIZE]).store(grad_v.to(dtype))
    fence_async_shared()
    store(grad_v_desc, [batch, first_key, 0], out)
    tma.store_wait(pendings=0)
    out.reshape([ROWS, D_TILE_SIZE]).store((grad_k * scale).to(dtype))
    fence_async_shared()
    store(grad_k_desc, [batch, first_key, 0], out)
    tma.store_wait(pendings=0)


@gluon.jit
def _add(adding, IS_CAUSAL: gl.constexpr, D_TILE_SIZE: gl.constexpr, PART: gl.constexpr):
    """Add dS K to the sums for grad_q, PART columns at a time, in the order of registers."""
    k_tile, kv_full, grad_s_buffers, sums_ptr, place = adding
    grad_s_tiles, grad_s_full, grad_s_empty = grad_s_buffers
    _, _, first_tile, n_tiles = place
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], warps_per_cta=[4, 1], instr_shape=[16, PART, 16])
    N_PARTS: gl.constexpr = D_TILE_SIZE // PART
    nothing = gl.zeros([ROWS, PART], gl.float32, LAYOUT)
    k = k_tile.reshape([K_TILE_SIZE, D_TILE_SIZE])
    if first_tile < n_tiles:
        mbarrier.wait(kv_full.index(0), 0)
    for i in range(n_tiles - first_tile):
        tile_ptr = sums_ptr + _tile_in_turn(i, place, IS_CAUSAL) * (Q_TILE_SIZE * D_TILE_SIZE)
        mbarrier.wait(grad_s_full.index(i & 1), i >> 1 & 1)
        grad_s = grad_s_tiles.index(i & 1)
        for part in gl.static_range(N_PARTS):
            right = k.slice(part * PART, PART, dim=1)
            grad_q = warpgroup_mma(grad_s.permute((1, 0)), right, nothing, use_acc=False, is_async=True)
            grad_q = warpgroup_mma_wait(0, deps=[grad_q])
            if part == N_PARTS - 1:
                mbarrier.arrive(grad_s_empty.index(i & 1), count=1)
            # As they lie in registers: four in a row in each thread, one thread after the other.
            grad_q = grad_q.reshape([4, 2, 8, PART // 8, 4, 2]).permute((0, 3, 2, 4, 1, 5)).reshape([ROWS * PART])
            places = gl.arange(0, ROWS * PART, layout=grad_q.type.layout)
            gl.atomic_add(tile_ptr + part * (ROWS * PART) + places, grad_q, sem="relaxed")
            if part < N_PARTS - 1:
                # ptxas would begin the next part before these additions, find too few registers for both, and wait
                # after every product of the whole kernel (its warning C7512).
                barrier()
