"""The forward pass for Hopper alone, in Gluon: copies, products and softmax overlap, as in FlashAttention-3.

Plain Triton waits for S = Q Kᵀ before its softmax and idles the tensor cores meanwhile. Here a program is three or
four groups of warps. One warp copies tiles (the hardware's tensor memory accelerator, TMA); two or three groups of four
warps have 64 queries each, and while one computes its softmax the others multiply. A group issues the products of its
next scores and of its last P V together; ptxas lets it wait for both before its softmax.
Programs are as many as multiprocessors, and take the next query tile when they are done: the longest first, where it
is causal.

`mbarrier`: one of two sides waits until the other has arrived. Each buffer has a pair, "full" and "empty"; the n-th use
of a buffer waits for the parity of n.

Sources: Shah et al. 2024, "FlashAttention-3", sections 3.1 and 3.2, algorithm 1; Dao 2023 for the recurrences.
"""

import torch
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

load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # as Triton 3.6 to 3.8 call it
store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
HOPPER = (9, 0)
MAX_D = 128
ROWS = gl.constexpr(64)  # queries of a group: the height of a product of four warps
ONE_WARP = gl.constexpr(gl.BlockedLayout([1], [32], [1], [0]))
FOUR_WARPS = gl.constexpr(gl.BlockedLayout([1], [32], [4], [0]))
LOWEST = gl.constexpr(-1e30)  # a maximum that is finite where a query sees none of a tile's keys
LOG2_E = 1.4426950408889634
LN_2 = gl.constexpr(0.6931471805599453)
GROUP_BYTES = 16 << 20  # of keys and values that programs of a causal grid read at a time, for L2
# Registers: of a thread in groups that compute, and of the warp that copies.
WIDE = {"GROUPS": 2, "K_TILE_SIZE": 128, "STAGES": 2, "TAKES_TURNS": False, "REGISTERS": 240, "COPY_REGISTERS": 24}
# At d = 64 the softmax takes as long as the products, and turns pay: 1.07 to 1.13 × as fast (H100).
NARROW = {"GROUPS": 3, "K_TILE_SIZE": 128, "STAGES": 2, "TAKES_TURNS": True, "REGISTERS": 160, "COPY_REGISTERS": 32}
LONG = 8192  # keys: before that, tiles on the diagonal cost 192 queries more than their turns gain
# There, three programs of one group share a multiprocessor: 1.07 to 1.35 × as fast as one of two groups (H200).
SHORT = {
    "GROUPS": 1, "K_TILE_SIZE": 64, "STAGES": 2, "TAKES_TURNS": False, "REGISTERS": 136, "COPY_REGISTERS": 24,
    "PROGRAMS": 3, "maxnreg": 80,
}  # fmt: skip


def flash_forward_triton(q, k, v, is_causal=False):
    """Return (o, lse) as the operator's reference does, on a Hopper GPU.

    Raises:
        RuntimeError: without such a GPU, for float32, a d above 128 or rows that are no multiples of 16 bytes.
    """
    refuse_others(q)
    d = q.shape[-1]
    q_, k_, v_ = (x.reshape(-1, *x.shape[-2:]).contiguous() for x in (q, k, v))
    n_batches, n_queries, n_keys = len(q_), q_.shape[1], k_.shape[1]
    o, lse = torch.empty_like(q_), q.new_empty(n_batches, n_queries, dtype=torch.float32)
    d_tile_size = 64 if d <= 64 else 128
    sizes = sizes_of(d_tile_size, is_causal, n_keys)
    n_tiles = n_batches * -(-n_queries // (64 * sizes["GROUPS"]))
    n_programs = sizes.pop("PROGRAMS", 1) * torch.cuda.get_device_properties(q.device).multi_processor_count
    n_together = min(max(GROUP_BYTES // (4 * n_keys * d), 1), n_batches)
    if n_tiles > 0:
        flash_forward_kernel[(min(n_programs, n_tiles),)](
            *(described(x, 64, d_tile_size) for x in (q_, o)),
            *(described(x, sizes["K_TILE_SIZE"], d_tile_size) for x in (k_, v_)),
            lse, torch.zeros(1, dtype=torch.int32, device=q.device),
            n_batches, n_queries, n_keys, n_tiles, n_together, d**-0.5 * LOG2_E,
            IS_CAUSAL=is_causal, D_TILE_SIZE=d_tile_size, num_warps=4, **sizes,
        )  # fmt: skip
    return o.reshape(q.shape), lse.reshape(q.shape[:-1])


def sizes_of(d_tile_size, is_causal, n_keys):
    """Return what the kernel is launched with."""
    if d_tile_size == MAX_D:
        return dict(WIDE)
    return dict(SHORT if is_causal and n_keys < LONG else NARROW)


def refuse_others(q):
    """Raise RuntimeError for what these kernels do not take."""
    if torch.cuda.get_device_capability(q.device) != HOPPER:
        raise RuntimeError("needs a Hopper GPU")
    if q.itemsize != 2 or not q.dtype.is_floating_point:
        raise RuntimeError("takes bfloat16 and float16")
    if q.shape[-1] > MAX_D or q.shape[-1] % 8:
        raise RuntimeError(f"takes a d of 8, 16, 24, … {MAX_D}")


def described(x, rows, d_tile_size):
    """Return a descriptor of x (n_batches, n, d) in tiles of so many rows."""
    dtype = gl.bfloat16 if x.dtype == torch.bfloat16 else gl.float16
    tile = [1, rows, d_tile_size]
    return TensorDescriptor.from_tensor(x, tile, gl.NVMMASharedLayout.get_default_for(tile, dtype))


@gluon.jit
def flash_forward_kernel(
    q_desc, o_desc, k_desc, v_desc, lse_ptr, n_taken_ptr,
    n_batches, n_queries, n_keys, n_tiles, n_together, scale,
    IS_CAUSAL: gl.constexpr, D_TILE_SIZE: gl.constexpr, K_TILE_SIZE: gl.constexpr,
    GROUPS: gl.constexpr, STAGES: gl.constexpr, TAKES_TURNS: gl.constexpr,
    REGISTERS: gl.constexpr, COPY_REGISTERS: gl.constexpr,
):  # fmt: skip
    """Descriptors of q and o (n_batches, n_queries, d), k and v (n_batches, n_keys, d); lse (n_batches, n_queries).

    n_taken_ptr: a zero. n_together: batches whose tiles take turns. scale = log₂ e / √d. Grid: any.
    """
    q_buffers = _buffers(q_desc, GROUPS, 1)
    k_buffers = _buffers(k_desc, STAGES, GROUPS)
    v_buffers = _buffers(v_desc, STAGES, GROUPS)
    o_tiles = gl.allocate_shared_memory(o_desc.dtype, [GROUPS] + o_desc.block_shape, o_desc.layout)  # noqa: RUF005
    next_tile = gl.allocate_shared_memory(gl.int32, [1, 1], gl.SwizzledSharedLayout(1, 1, 1, order=[0]))
    next_full, next_empty = _barriers(1, GROUPS)
    next_buffers = (next_tile, next_full, next_empty)
    fence_async_shared()
    counts = (n_batches, n_queries, n_keys, n_together)
    buffers = (q_buffers, k_buffers, v_buffers, next_buffers)
    copying = (q_desc, k_desc, v_desc, n_taken_ptr, buffers, counts, n_tiles)
    attending = (o_desc, lse_ptr, o_tiles, scale, buffers, counts, n_tiles)
    if GROUPS == 1:
        gl.warp_specialize(
            [
                (_attend, (0, attending, IS_CAUSAL, D_TILE_SIZE, K_TILE_SIZE, GROUPS, STAGES, TAKES_TURNS)),
                (_copy, (copying, IS_CAUSAL, K_TILE_SIZE, GROUPS, STAGES)),
            ],
            [1],
            [COPY_REGISTERS],
        )
    elif GROUPS == 2:
        gl.warp_specialize(
            [
                (_attend, (0, attending, IS_CAUSAL, D_TILE_SIZE, K_TILE_SIZE, GROUPS, STAGES, TAKES_TURNS)),
                (_attend, (1, attending, IS_CAUSAL, D_TILE_SIZE, K_TILE_SIZE, GROUPS, STAGES, TAKES_TURNS)),
                (_copy, (copying, IS_CAUSAL, K_TILE_SIZE, GROUPS, STAGES)),
            ],
            [4, 1],
            [REGISTERS, COPY_REGISTERS],
        )
    else:
        gl.warp_specialize(
            [
                (_attend, (0, attending, IS_CAUSAL, D_TILE_SIZE, K_TILE_SIZE, GROUPS, STAGES, TAKES_TURNS)),
                (_attend, (1, attending, IS_CAUSAL, D_TILE_SIZE, K_TILE_SIZE, GROUPS, STAGES, TAKES_TURNS)),
                (_attend, (2, attending, IS_CAUSAL, D_TILE_SIZE, K_TILE_SIZE, GROUPS, STAGES, TAKES_TURNS)),
                (_copy, (copying, IS_CAUSAL, K_TILE_SIZE, GROUPS, STAGES)),
            ],
            [4, 4, 1],
            [REGISTERS, REGISTERS, COPY_REGISTERS],
        )


@gluon.jit
def _buffers(desc, N: gl.constexpr, N_READERS: gl.constexpr):
    """Return N tiles of a descriptor, and for each a barrier of those who wait until it is full, and until it is empty.

    It is full when the copy is complete, empty when N_READERS have arrived.
    """
    tiles = gl.allocate_shared_memory(desc.dtype, [N] + desc.block_shape, desc.layout)  # noqa: RUF005
    full, empty = _barriers(N, N_READERS)
    return tiles, full, empty


@gluon.jit
def _barriers(N: gl.constexpr, N_READERS: gl.constexpr):
    full = gl.allocate_shared_memory(gl.int64, [N, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [N, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(N):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=N_READERS)
    return full, empty


@gluon.jit
def _place(tile, counts, IS_CAUSAL: gl.constexpr, Q_TILE_SIZE: gl.constexpr, K_TILE_SIZE: gl.constexpr):
    """Return batch, first query and number of key tiles of the query tile that is `tile`-th in order."""
    n_batches, n_queries, n_keys, n_together = counts
    n_query_tiles = gl.cdiv(n_queries, Q_TILE_SIZE)
    n_key_tiles = gl.cdiv(n_keys, K_TILE_SIZE)
    if IS_CAUSAL:  # later queries see more keys: they come first
        first = tile // (n_together * n_query_tiles) * n_together
        size = gl.minimum(n_together, n_batches - first)
        turn = tile - first * n_query_tiles
        first_query = (n_query_tiles - 1 - turn // size) * Q_TILE_SIZE
        n_seen = gl.minimum(n_key_tiles, gl.cdiv(first_query + Q_TILE_SIZE, K_TILE_SIZE))
        # At least those with masks, which are in no loop; tiles past the last are zeros.
        return first + turn % size, first_query, gl.maximum(n_seen, gl.cdiv(Q_TILE_SIZE, K_TILE_SIZE))
    else:
        return tile // n_query_tiles, tile % n_query_tiles * Q_TILE_SIZE, n_key_tiles


@gluon.jit
def _copy(
    copying,
    IS_CAUSAL: gl.constexpr, K_TILE_SIZE: gl.constexpr, GROUPS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Copy tiles ahead of the groups that compute, and say which query tile is the next."""
    q_desc, k_desc, v_desc, n_taken_ptr, buffers, counts, n_tiles = copying
    q_buffers, k_buffers, v_buffers, next_buffers = buffers
    use = 0  # of buffers of keys and values
    n_done = 0
    tile = gl.program_id(0)
    while tile < n_tiles:
        _hand_over(tile, next_buffers, n_done)
        batch, first_query, n_key_tiles = _place(tile, counts, IS_CAUSAL, GROUPS * ROWS, K_TILE_SIZE)
        tile = gl.num_programs(0) + gl.atomic_add(n_taken_ptr, 1)
        for i in range(n_key_tiles):
            first_key = (n_key_tiles - 1 - i) * K_TILE_SIZE
            if i == 0:
                _fetch(q_desc, batch, first_query, q_buffers, 0, n_done)
            _fetch(k_desc, batch, first_key, k_buffers, use % STAGES, use // STAGES)
            if i == 0:
                for j in gl.static_range(1, GROUPS):
                    _fetch(q_desc, batch, first_query + j * ROWS, q_buffers, j, n_done)
            _fetch(v_desc, batch, first_key, v_buffers, use % STAGES, use // STAGES)
            use += 1
        n_done += 1
    _hand_over(tile, next_buffers, n_done)


@gluon.jit
def _fetch(desc, batch, row, buffers, i, n_uses):
    tiles, full, empty = buffers
    mbarrier.wait(empty.index(i), (n_uses & 1) ^ 1)
    mbarrier.expect(full.index(i), desc.block_type.nbytes)
    load(desc, [batch, row, 0], full.index(i), tiles.index(i))


@gluon.jit
def _hand_over(tile, buffers, n_done):
    tiles, full, empty = buffers
    mbarrier.wait(empty.index(0), (n_done & 1) ^ 1)
    tiles.index(0).store(gl.full([1], tile, gl.int32, ONE_WARP))
    mbarrier.arrive(full.index(0), count=1)


@gluon.jit
def _take(buffers, n_done):
    tiles, full, empty = buffers
    mbarrier.wait(full.index(0), n_done & 1)
    tile = gl.max(tiles.index(0).load(FOUR_WARPS), axis=0)
    mbarrier.arrive(empty.index(0), count=1)
    return tile


@gluon.jit
def _attend(
    GROUP: gl.constexpr, attending,
    IS_CAUSAL: gl.constexpr, D_TILE_SIZE: gl.constexpr, K_TILE_SIZE: gl.constexpr,
    GROUPS: gl.constexpr, STAGES: gl.constexpr, TAKES_TURNS: gl.constexpr,
):  # fmt: skip
    """Compute o and lse of 64 queries after the other; from the last keys to the first, so that masks come first."""
    o_desc, lse_ptr, o_tiles, scale, buffers, counts, n_tiles = attending
    q_buffers, k_buffers, v_buffers, next_buffers = buffers
    q_tiles, q_full, q_empty = q_buffers
    k_tiles, k_full, k_empty = k_buffers
    v_tiles, v_full, v_empty = v_buffers
    _, n_queries, n_keys, _ = counts
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], warps_per_cta=[4, 1], instr_shape=[16, K_TILE_SIZE, 16])
    O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], warps_per_cta=[4, 1], instr_shape=[16, D_TILE_SIZE, 16])
    P_LAYOUT: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=O_LAYOUT, k_width=2)
    O_ROWS: gl.constexpr = gl.SliceLayout(1, O_LAYOUT)
    dtype: gl.constexpr = o_tiles.dtype
    N_MASKED: gl.constexpr = (GROUPS * ROWS + K_TILE_SIZE - 1) // K_TILE_SIZE if IS_CAUSAL else 1
    if TAKES_TURNS and GROUP == GROUPS - 1:
        _let_next(GROUP, GROUPS, n_tiles)

    q = q_tiles.index(GROUP).reshape([ROWS, D_TILE_SIZE])
    nothing = gl.zeros([ROWS, K_TILE_SIZE], gl.float32, S_LAYOUT)
    use = 0
    n_done = 0
    tile = _take(next_buffers, n_done)
    while tile < n_tiles:
        batch, first_query, n_key_tiles = _place(tile, counts, IS_CAUSAL, GROUPS * ROWS, K_TILE_SIZE)
        first_query += GROUP * ROWS
        queries = first_query + gl.arange(0, ROWS, layout=gl.SliceLayout(1, S_LAYOUT))

        mbarrier.wait(q_full.index(GROUP), n_done & 1)
        mbarrier.wait(k_full.index(use % STAGES), use // STAGES & 1)
        k = k_tiles.index(use % STAGES).reshape([K_TILE_SIZE, D_TILE_SIZE])
        s = warpgroup_mma(q, k.permute((1, 0)), nothing, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(0, deps=[s])
        mbarrier.arrive(k_empty.index(use % STAGES), count=1)
        s = _hide(s, queries, (n_key_tiles - 1) * K_TILE_SIZE, n_keys, IS_CAUSAL, K_TILE_SIZE, S_LAYOUT)
        # Over the keys so far, with s_j = q·k_j · scale: max_j s_j, Σ_j exp2(s_j − row_max), and that times v_j.
        row_max = gl.maximum(gl.max(s, axis=1) * scale, LOWEST)
        p = gl.exp2(s * scale - row_max[:, None])
        row_sum = gl.sum(p, axis=1)
        o = gl.zeros([ROWS, D_TILE_SIZE], gl.float32, O_LAYOUT)
        p = gl.convert_layout(p.to(dtype), P_LAYOUT)
        # Unrolled: p would be unpacked and packed again in each step, if it went from one loop to another.
        for i in gl.static_range(1, N_MASKED):
            o, p, row_max, row_sum = _step(
                o, p, row_max, row_sum, q, nothing, queries, (n_key_tiles - 1 - i) * K_TILE_SIZE, n_keys, scale,
                k_buffers, v_buffers, use, True, GROUP, GROUPS, STAGES, TAKES_TURNS, D_TILE_SIZE, K_TILE_SIZE,
                S_LAYOUT, O_LAYOUT, P_LAYOUT,
            )  # fmt: skip
            use += 1
        for _ in range(N_MASKED, n_key_tiles):
            o, p, row_max, row_sum = _step(
                o, p, row_max, row_sum, q, nothing, queries, 0, n_keys, scale,
                k_buffers, v_buffers, use, False, GROUP, GROUPS, STAGES, TAKES_TURNS, D_TILE_SIZE, K_TILE_SIZE,
                S_LAYOUT, O_LAYOUT, P_LAYOUT,
            )  # fmt: skip
            use += 1
        mbarrier.arrive(q_empty.index(GROUP), count=1)

        stage = use % STAGES
        mbarrier.wait(v_full.index(stage), use // STAGES & 1)
        v = v_tiles.index(stage).reshape([K_TILE_SIZE, D_TILE_SIZE])
        o = warpgroup_mma(p, v, o, is_async=True)
        o, p = warpgroup_mma_wait(0, deps=[o, p])
        mbarrier.arrive(v_empty.index(stage), count=1)
        use += 1

        tma.store_wait(pendings=0)  # of the tile before
        o = o / gl.convert_layout(row_sum, O_ROWS)[:, None]
        o_tiles.index(GROUP).reshape([ROWS, D_TILE_SIZE]).store(o.to(dtype))
        fence_async_shared()
        store(o_desc, [batch, first_query, 0], o_tiles.index(GROUP))
        lse_ptrs = lse_ptr + batch.to(gl.int64) * n_queries + queries
        gl.store(lse_ptrs, (row_max + gl.log2(row_sum)) * LN_2, mask=queries < n_queries)
        n_done += 1
        tile = _take(next_buffers, n_done)
    tma.store_wait(pendings=0)


@gluon.jit
def _step(
    o, p, row_max, row_sum, q, nothing, queries, first_key, n_keys, scale, k_buffers, v_buffers, use,
    IS_MASKED: gl.constexpr, GROUP: gl.constexpr, GROUPS: gl.constexpr, STAGES: gl.constexpr,
    TAKES_TURNS: gl.constexpr, D_TILE_SIZE: gl.constexpr, K_TILE_SIZE: gl.constexpr,
    S_LAYOUT: gl.constexpr, O_LAYOUT: gl.constexpr, P_LAYOUT: gl.constexpr,
):  # fmt: skip
    """Return the running values after another tile of keys; p are its exponentials, whose values come next time."""
    k_tiles, k_full, k_empty = k_buffers
    v_tiles, v_full, v_empty = v_buffers
    stage, last = (use + 1) % STAGES, use % STAGES
    mbarrier.wait(k_full.index(stage), (use + 1) // STAGES & 1)
    k = k_tiles.index(stage).reshape([K_TILE_SIZE, D_TILE_SIZE])
    if TAKES_TURNS:
        _await_turn(GROUP, use)
    s = warpgroup_mma(q, k.permute((1, 0)), nothing, use_acc=False, is_async=True)
    mbarrier.wait(v_full.index(last), use // STAGES & 1)
    v = v_tiles.index(last).reshape([K_TILE_SIZE, D_TILE_SIZE])
    o = warpgroup_mma(p, v, o, is_async=True)
    if TAKES_TURNS:
        _let_next(GROUP, GROUPS, use)
    s = warpgroup_mma_wait(1, deps=[s])
    mbarrier.arrive(k_empty.index(stage), count=1)
    if IS_MASKED:
        s = _hide(s, queries, first_key, n_keys, True, K_TILE_SIZE, S_LAYOUT)
    new_max = gl.maximum(row_max, gl.max(s, axis=1) * scale)
    new_p = gl.exp2(s * scale - new_max[:, None])
    rescale = gl.exp2(row_max - new_max)
    row_sum = rescale * row_sum + gl.sum(new_p, axis=1)
    o, p = warpgroup_mma_wait(0, deps=[o, p])
    mbarrier.arrive(v_empty.index(last), count=1)
    o = o * gl.convert_layout(rescale, gl.SliceLayout(1, O_LAYOUT))[:, None]
    return o, gl.convert_layout(new_p.to(p.dtype), P_LAYOUT), new_max, row_sum


@gluon.jit
def _hide(s, queries, first_key, n_keys, IS_CAUSAL: gl.constexpr, K_TILE_SIZE: gl.constexpr, S_LAYOUT: gl.constexpr):
    keys = first_key + gl.arange(0, K_TILE_SIZE, layout=gl.SliceLayout(0, S_LAYOUT))
    visible = (keys < n_keys)[None, :]
    if IS_CAUSAL:
        visible = visible & (keys[None, :] <= queries[:, None])
    return gl.where(visible, s, float("-inf"))


# Taking turns: each group has a barrier of the hardware, on which it waits and which the group before it completes.
# They are numbered beyond those that Triton takes for itself.


@gluon.constexpr_function
def _barrier_of(group, instruction):
    return f"{instruction} {10 + group}, 256; mov.b32 $0, $1;"


@gluon.jit
def _await_turn(GROUP: gl.constexpr, x):
    instruction: gl.constexpr = _barrier_of(GROUP, "bar.sync")
    gl.inline_asm_elementwise(instruction, "=r,r", [x], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def _let_next(GROUP: gl.constexpr, GROUPS: gl.constexpr, x):
    instruction: gl.constexpr = _barrier_of((GROUP + 1) % GROUPS, "bar.arrive")
    gl.inline_asm_elementwise(instruction, "=r,r", [x], dtype=gl.int32, is_pure=False, pack=1)
