"""Right forward passes whose programs share the work in another way than the base's."""

import textwrap

from assignment.bank.operators.edits import style
from assignment.bank.operators.flash_attention.styles import parts
from assignment.bank.operators.flash_attention.styles.parts import before, lines, put

PROBLEMS = ("flash_forward_triton",)
FILES = ("triton_forward.py",)

STYLES = (
    style(  # as many programs as an H100 has multiprocessors, each with every n-th tile; tensors and strides are tuples
        "forward_persistent",
        *put(
            LAUNCH="""\
    q_tile = 64 if d <= 64 else 32
    n_items = n_batches * triton.cdiv(n_queries, q_tile)
    if n_items > 0:
        _persistent_kernel[(min(n_items, 132),)](
            (q, k, v, o, lse), (q.stride(), k.stride(), v.stride(), o.stride(), lse.stride()),
            n_items, n_queries, n_keys, d, scale,
            IS_CAUSAL=is_causal, Q_TILE_SIZE=q_tile, K_TILE_SIZE=32,
            D_TILE_SIZE=max(16, triton.next_power_of_2(d)), num_warps=4, num_stages=2 if d <= 128 else 1,
        )  # fmt: skip
""",
            SIGNATURE="""\
    tensors, strides, batch, first_query, n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
""",
        ),
        (
            "    batch = tl.program_id(0).to(tl.int64)\n    first_query = tl.program_id(1) * Q_TILE_SIZE\n",
            """\
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr = tensors
    stride_qb, stride_qn, stride_qd = strides[0]
    stride_kb, stride_kn, stride_kd = strides[1]
    stride_vb, stride_vn, stride_vd = strides[2]
    stride_ob, stride_on, stride_od = strides[3]
    stride_lb, stride_ln = strides[4]
""",
        ),
        *before(
            JIT="""\
@triton.jit
def _persistent_kernel(
    tensors, strides, n_items, n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    n_tiles = tl.cdiv(n_queries, Q_TILE_SIZE)
    for item in tl.range(tl.program_id(0), n_items, tl.num_programs(0), num_stages=1):
        _attend(
            tensors, strides, tl.cast(item // n_tiles, tl.int64), item % n_tiles * Q_TILE_SIZE,
            n_queries, n_keys, d, scale, IS_CAUSAL, Q_TILE_SIZE, K_TILE_SIZE, D_TILE_SIZE,
        )  # fmt: skip
""",
        ),
        *lines("""
            def _forward_kernel( → def _attend(
            range(0, end → tl.range(0, end
        """),
    ),
    style(  # 128 queries by 64 keys, or 64 by 128, on a grid of (query tile, head, batch); hidden logits get −∞ added
        "forward_tiles_128",
        *put(
            HOST="""\
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    q4, k4, v4, o4 = (_as_batch_heads(x) for x in (q, k, v, o))
    lse3 = _as_batch_heads(lse[..., None])[..., 0]
""",
            LAUNCH="""\
    if n_batches == 0:
        return o, lse
    row_bytes = max(16, triton.next_power_of_2(d)) * q.element_size()
    q_tile, k_tile = (128, 64) if row_bytes <= 256 else (64, 128) if row_bytes <= 512 else (64, 32)
    for b, h in itertools.product(range(0, q4.shape[0], GRID_LIMIT), range(0, q4.shape[1], GRID_LIMIT)):
        part = slice(b, b + GRID_LIMIT), slice(h, h + GRID_LIMIT)
        tensors = q4[part], k4[part], v4[part], o4[part], lse3[part]
        n_here, n_heads = tensors[0].shape[:2]
        _forward_kernel[triton.cdiv(n_queries, q_tile), n_heads, n_here](
            *(argument for x in tensors for argument in (x, *x.stride())), n_queries, n_keys, d, scale,
            IS_CAUSAL=is_causal, Q_TILE_SIZE=q_tile, K_TILE_SIZE=k_tile,
            D_TILE_SIZE=max(16, triton.next_power_of_2(d)), num_warps=8, num_stages=2 if row_bytes <= 256 else 1,
        )  # fmt: skip
""",
        ),
        *before(
            CHECK="""\
GRID_LIMIT = 65535  # of the second and third axis

def _as_batch_heads(x):
    return x.expand(*[1] * (4 - x.ndim), *x.shape) if x.ndim < 4 else x.reshape(-1, *x.shape[-3:])
""",
        ),
        *put(
            SIGNATURE="""\
    q_ptr, stride_qb, stride_qh, stride_qn, stride_qd, k_ptr, stride_kb, stride_kh, stride_kn, stride_kd,
    v_ptr, stride_vb, stride_vh, stride_vn, stride_vd, o_ptr, stride_ob, stride_oh, stride_on, stride_od,
    lse_ptr, stride_lb, stride_lh, stride_ln, n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
""",
        ),
        *lines("""
            import math → import itertools⏎import math
            batch = tl.program_id(0).to(tl.int64) →
                head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
            first_query = tl.program_id(1) → first_query = tl.program_id(0)
            q_ptr + batch * stride_qb → q_ptr + batch * stride_qb + head * stride_qh
            k_ptr + batch * stride_kb → k_ptr + batch * stride_kb + head * stride_kh
            v_ptr + batch * stride_vb → v_ptr + batch * stride_vb + head * stride_vh
            o_ptr + batch * stride_ob → o_ptr + batch * stride_ob + head * stride_oh
            lse_ptr + batch * stride_lb → lse_ptr + batch * stride_lb + head * stride_lh
            s = tl.where(visible, s, float("-inf")) → s += tl.where(visible, 0.0, -float("inf"))
        """),
    ),
    style(  # one query a program, in float32 and without tl.dot; a table says where each batch of a tensor begins
        "forward_row_program",
        *put(
            HOST="""\
    o = torch.empty_like(q, memory_format=torch.contiguous_format)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
""",
            LAUNCH="""\
    if lse.numel() > 0:
        batch_starts = torch.stack([_batch_starts(x) for x in (q, k, v)]).to(q.device)  # (3, n_batches)
        _row_kernel[(lse.numel(),)](
            q, k, v, o, lse, batch_starts, *q.stride()[-2:], *k.stride()[-2:], *v.stride()[-2:],
            n_batches, n_queries, n_keys, d, scale,
            IS_CAUSAL=is_causal, K_TILE=128 if d <= 128 else 64, D_TILE=max(2, triton.next_power_of_2(d)),
            num_warps=4 if d <= 64 else 8,
        )  # fmt: skip
""",
        ),
        *before(
            CHECK="""\
def _batch_starts(x):
    starts = torch.zeros(1, dtype=torch.int64)
    for size, stride in zip(x.shape[:-2], x.stride()[:-2], strict=True):
        starts = (starts[:, None] + torch.arange(size) * stride).flatten()
    return starts
""",
        ),
        *put(
            KERNEL="""\
@triton.jit
def _row_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, batch_starts_ptr,
    stride_qn, stride_qd, stride_kn, stride_kd, stride_vn, stride_vd,
    n_batches, n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, K_TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    batch, query = row // n_queries, row % n_queries
    q_start = tl.load(batch_starts_ptr + batch)
    k_start = tl.load(batch_starts_ptr + n_batches + batch)
    v_start = tl.load(batch_starts_ptr + 2 * n_batches + batch)
    cols = tl.arange(0, D_TILE).to(tl.int64)
    col_mask = cols < d
    q = tl.load(q_ptr + q_start + query * stride_qn + cols * stride_qd, mask=col_mask, other=0.0)  # (D,)
    q = q.to(tl.float32) * scale

    n_seen = n_keys
    if IS_CAUSAL:
        n_seen = tl.minimum(n_keys, (query + 1).to(tl.int32))
    largest = float("-inf")
    total = 0.0
    o = tl.zeros((D_TILE,), dtype=tl.float32)
    for start in range(0, n_seen, K_TILE):
        keys = (start + tl.arange(0, K_TILE)).to(tl.int64)
        key_mask = keys < n_seen  # a query sees its first n_seen keys: causal or not, this is all there is to hide
        mask = key_mask[:, None] & col_mask[None, :]
        k_ptrs = k_ptr + k_start + keys[:, None] * stride_kn + cols[None, :] * stride_kd
        k = tl.load(k_ptrs, mask=mask, other=0.0).to(tl.float32)  # (K, D)
        s = tl.where(key_mask, tl.sum(q[None, :] * k, axis=1), float("-inf"))  # (K,)
        new_largest = tl.maximum(largest, tl.max(s, axis=0))
        p = tl.exp(s - new_largest)
        rescale = tl.exp(largest - new_largest)
        v_ptrs = v_ptr + v_start + keys[:, None] * stride_vn + cols[None, :] * stride_vd
        v = tl.load(v_ptrs, mask=mask, other=0.0).to(tl.float32)  # (K, D)
        o = o * rescale + tl.sum(p[:, None] * v, axis=0)
        total = total * rescale + tl.sum(p, axis=0)
        largest = new_largest

    tl.store(o_ptr + row * d + cols, (o / total).to(o_ptr.dtype.element_ty), mask=col_mask)
    tl.store(lse_ptr + row, largest + tl.log(total))
""",
        ),
    ),
    style(  # d in pieces of at most 64, as xFormers and DeepSpeed split it: q and o are lists of tiles
        "forward_pieces_of_d",
        *put(
            LAUNCH="""\
    piece = max(16, min(64, triton.next_power_of_2(d)))
    block_m = 64 if d * q.element_size() <= 256 else 32
    if n_batches > 0:
        _kernel[triton.cdiv(n_queries, block_m), n_batches](
            q, k, v, o, lse, q.stride(), k.stride(), v.stride(), n_queries, n_keys, d, scale,
            N_PIECES=triton.cdiv(d, piece), PIECE=piece, BLOCK_M=block_m, BLOCK_N=32, IS_CAUSAL=is_causal,
            num_warps=4, num_stages=1,
        )  # fmt: skip
""",
            KERNEL="""\
@triton.jit
def _piece(ptr, rows, n, strides, d, index: tl.constexpr, PIECE: tl.constexpr):
    cols = index * PIECE + tl.arange(0, PIECE).to(tl.int64)
    mask = (rows < n)[:, None] & (cols < d)[None, :]
    return tl.load(ptr + rows[:, None] * strides[1] + cols[None, :] * strides[2], mask=mask, other=0.0)

@triton.jit
def _kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, q_strides, k_strides, v_strides, n_queries, n_keys, d, scale,
    N_PIECES: tl.constexpr, PIECE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    start_m, batch = tl.program_id(0) * BLOCK_M, tl.program_id(1).to(tl.int64)
    q_ptr += batch * q_strides[0]
    k_ptr += batch * k_strides[0]
    v_ptr += batch * v_strides[0]
    queries = start_m + tl.arange(0, BLOCK_M).to(tl.int64)
    q = [_piece(q_ptr, queries, n_queries, q_strides, d, i, PIECE) for i in (0, 1, 2, 3)[:N_PIECES]]
    o = [tl.zeros((BLOCK_M, PIECE), dtype=tl.float32) for i in (0, 1, 2, 3)[:N_PIECES]]
    m = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    end = tl.minimum(n_keys, start_m + BLOCK_M) if IS_CAUSAL else n_keys
    for start_n in range(0, end, BLOCK_N):
        keys = start_n + tl.arange(0, BLOCK_N).to(tl.int64)
        s = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for i in tl.static_range(N_PIECES):
            s = tl.dot(q[i], _piece(k_ptr, keys, n_keys, k_strides, d, i, PIECE).T, acc=s)
        visible = (keys < n_keys)[None, :]
        if IS_CAUSAL:
            visible = visible & (keys[None, :] <= queries[:, None])
        s = tl.where(visible, s * scale, float("-inf"))
        new_m = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp(s - new_m[:, None])
        alpha = tl.exp(m - new_m)
        total = total * alpha + tl.sum(p, axis=1)
        p = p.to(v_ptr.dtype.element_ty)
        o = [
            tl.dot(p, _piece(v_ptr, keys, n_keys, v_strides, d, i, PIECE), acc=o[i] * alpha[:, None])
            for i in (0, 1, 2, 3)[:N_PIECES]
        ]
        m = new_m
    rows = batch * n_queries + queries
    for i in tl.static_range(N_PIECES):
        cols = i * PIECE + tl.arange(0, PIECE)
        mask = (queries < n_queries)[:, None] & (cols < d)[None, :]
        tl.store(o_ptr + rows[:, None] * d + cols[None, :], o[i] / total[:, None], mask=mask)
    tl.store(lse_ptr + rows, m + tl.log(total), mask=queries < n_queries)
""",
        ),
    ),
    style(  # even and odd columns apart, as rotary embeddings hold them, interleaved before the store; a program has
        # two batches, so that tiles and products have three dimensions; tl.reduce over pairs (max, sum)
        "forward_even_odd",
        *put(
            LAUNCH="""\
    half = max(16, triton.next_power_of_2(triton.cdiv(d, 2)))
    m, n = (32, 32) if half <= 32 else (16, 16)
    if n_batches > 0:
        _even_odd_kernel[triton.cdiv(n_batches, 2), triton.cdiv(n_queries, m)](
            q, k, v, o, lse, *q.stride(), *k.stride(), *v.stride(), n_batches, n_queries, n_keys, d, scale,
            IS_CAUSAL=is_causal, M=m, N=n, HALF=half, num_warps=4, num_stages=1,
        )  # fmt: skip
""",
            KERNEL="""\
@triton.jit
def _pair(ptr, batches, n_batches, rows, n, d, stride_b, stride_n, stride_d, HALF: tl.constexpr):
    cols = 2 * tl.arange(0, HALF).to(tl.int64)[None, None, :]
    ptrs = ptr + batches[:, None, None] * stride_b + rows[None, :, None] * stride_n
    mask = (batches < n_batches)[:, None, None] & (rows < n)[None, :, None]
    even = tl.load(ptrs + cols * stride_d, mask=mask & (cols < d), other=0.0)
    odd = tl.load(ptrs + (cols + 1) * stride_d, mask=mask & (cols + 1 < d), other=0.0)
    return even, odd

@triton.jit
def _merge(max_a, sum_a, max_b, sum_b):
    top = tl.maximum(max_a, max_b)
    zero = tl.where(top == float("-inf"), 0.0, top)
    return top, sum_a * tl.exp(max_a - zero) + sum_b * tl.exp(max_b - zero)

@triton.jit
def _even_odd_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    stride_qb, stride_qn, stride_qd, stride_kb, stride_kn, stride_kd, stride_vb, stride_vn, stride_vd,
    n_batches, n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, M: tl.constexpr, N: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    batches = tl.program_id(0).to(tl.int64) * 2 + tl.arange(0, 2)
    first = tl.program_id(1) * M
    queries = first + tl.arange(0, M).to(tl.int64)
    q_even, q_odd = _pair(q_ptr, batches, n_batches, queries, n_queries, d, stride_qb, stride_qn, stride_qd, HALF)
    o_even, o_odd = tl.zeros((2, M, HALF), tl.float32), tl.zeros((2, M, HALF), tl.float32)
    row_max = tl.full((2, M), float("-inf"), tl.float32)
    row_sum = tl.zeros((2, M), tl.float32)
    for start in range(0, tl.minimum(n_keys, first + M) if IS_CAUSAL else n_keys, N):
        keys = start + tl.arange(0, N).to(tl.int64)
        k_even, k_odd = _pair(k_ptr, batches, n_batches, keys, n_keys, d, stride_kb, stride_kn, stride_kd, HALF)
        v_even, v_odd = _pair(v_ptr, batches, n_batches, keys, n_keys, d, stride_vb, stride_vn, stride_vd, HALF)
        s = tl.dot(q_even, tl.permute(k_even, (0, 2, 1))) + tl.dot(q_odd, tl.trans(k_odd, 0, 2, 1))
        visible = (keys < n_keys)[None, :]
        if IS_CAUSAL:
            visible = visible & (keys[None, :] <= queries[:, None])
        s = tl.where(tl.expand_dims(visible, 0), s * scale, float("-inf"))
        tile_max, tile_sum = tl.reduce((s, tl.full(s.shape, 1.0, tl.float32)), 2, _merge)
        new_max, row_sum = _merge(row_max, row_sum, tile_max, tile_sum)
        p = tl.exp(s - new_max[:, :, None]).to(v_even.dtype)
        rescale = tl.exp(row_max - new_max)[:, :, None]
        o_even = o_even * rescale + tl.dot(p, v_even)
        o_odd = o_odd * rescale + tl.dot(p, v_odd)
        row_max = new_max
    o = tl.interleave(o_even / row_sum[:, :, None], o_odd / row_sum[:, :, None])  # (2, M, 2 · HALF)
    o = tl.reshape(o, (2 * M, 2 * HALF))
    rows = tl.reshape(batches[:, None] * n_queries + queries[None, :], (2 * M,))
    row_mask = tl.reshape((batches < n_batches)[:, None] & (queries < n_queries)[None, :], (2 * M,))
    cols = tl.arange(0, 2 * HALF)
    tl.store(
        o_ptr + rows[:, None] * d + cols[None, :], o.to(o_ptr.dtype.element_ty), mask=row_mask[:, None] & (cols < d)
    )
    lse = tl.reshape(row_max + tl.log(row_sum), (2 * M,))
    tl.store(lse_ptr + rows, lse, mask=row_mask)
""",
        ),
    ),
    style(  # a program sees one chunk of the keys and writes a normalised o and lse of its own; a second kernel weighs
        # the chunks by exp(lse − max lse) and adds them up
        "forward_split_keys",
        *put(
            LAUNCH="""\
    d_tile_size = max(16, triton.next_power_of_2(d))
    tile_size = 32 if d_tile_size > 64 else 64
    chunk = tile_size * max(1, triton.cdiv(n_keys, 8 * tile_size))  # at most eight of them
    n_chunks = triton.cdiv(n_keys, chunk)
    chunk_o = torch.empty(n_chunks, *o.shape, dtype=torch.float32, device=q.device)
    chunk_lse = torch.empty(n_chunks, *lse.shape, dtype=torch.float32, device=q.device)
    n_rows = lse.numel()
    if n_rows > 0:
        _forward_kernel[n_batches, triton.cdiv(n_queries, tile_size), n_chunks](
            q, k, v, chunk_o, chunk_lse, *q.stride(), *k.stride(), *v.stride(), *o.stride(), *lse.stride(),
            n_queries, n_keys, d, scale, chunk, o.numel(), n_rows,
            IS_CAUSAL=is_causal, Q_TILE_SIZE=tile_size, K_TILE_SIZE=tile_size, D_TILE_SIZE=d_tile_size, num_stages=1,
        )  # fmt: skip
        _combine_kernel[(triton.cdiv(n_rows, 16),)](
            chunk_o, chunk_lse, o, lse, n_rows, d, n_chunks, ROWS=16, D_TILE=d_tile_size
        )
""",
        ),
        (
            parts.SOFTMAX,
            parts.SOFTMAX.replace(
                "        p = tl.exp(s - new_max[:, None])\n        rescale = tl.exp(row_max - new_max)\n",
                """\
        # A query may see no key of this chunk: its maximum stays −∞, and 0 stands in for it.
        finite_max = tl.where(new_max == float("-inf"), 0.0, new_max)
        p = tl.exp(s - finite_max[:, None])
        rescale = tl.exp(row_max - finite_max)
""",
            ),
        ),
        *lines("""
            n_keys, d, scale,⏎    IS → n_keys, d, scale, chunk_size, stride_oc, stride_lc,⏎    IS
            batch = tl.program_id(0).to → chunk = tl.program_id(2).to(tl.int64)⏎    batch = tl.program_id(0).to
            end = n_keys → end = tl.minimum(n_keys, (tl.program_id(2) + 1) * chunk_size)
            tl.minimum(n_keys, first_query → tl.minimum(end, first_query
            range(0, end → range(tl.program_id(2) * chunk_size, end
            o = acc / row_sum[:, None] →
                saw_any = row_sum > 0.0⏎    divisor = tl.where(saw_any, row_sum, 1.0)⏎    o = acc / divisor[:, None]
            o_ptr + batch → o_ptr + chunk * stride_oc + batch
            lse_ptr + batch → lse_ptr + chunk * stride_lc + batch
            lse = row_max + tl.log(row_sum) → lse = tl.where(saw_any, row_max + tl.log(divisor), float("-inf"))
        """),
        *before(
            JIT="""\
@triton.jit
def _combine_kernel(
    chunk_o_ptr, chunk_lse_ptr, o_ptr, lse_ptr, n_rows, d, n_chunks, ROWS: tl.constexpr, D_TILE: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, D_TILE)
    row_mask = rows < n_rows
    mask = row_mask[:, None] & (cols[None, :] < d)
    largest = tl.load(chunk_lse_ptr + rows, mask=row_mask, other=0.0)
    for chunk in range(1, n_chunks):
        chunk_rows = tl.cast(chunk, tl.int64) * n_rows + rows
        largest = tl.maximum(largest, tl.load(chunk_lse_ptr + chunk_rows, mask=row_mask, other=0.0))
    total = tl.zeros((ROWS,), tl.float32)
    o = tl.zeros((ROWS, D_TILE), tl.float32)
    for chunk in range(0, n_chunks):
        chunk_rows = tl.cast(chunk, tl.int64) * n_rows + rows
        weight = tl.exp(tl.load(chunk_lse_ptr + chunk_rows, mask=row_mask, other=0.0) - largest)
        total += weight
        chunk_o_ptrs = chunk_o_ptr + chunk_rows[:, None] * d + cols[None, :]
        o += weight[:, None] * tl.load(chunk_o_ptrs, mask=mask, other=0.0)
    o = (o / total[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + rows[:, None] * d + cols[None, :], o, mask=mask)
    tl.store(lse_ptr + rows, largest + tl.log(total), mask=row_mask)
""",
        ),
    ),
    style(  # one kernel finds lse; programs of a second one each add a chunk of exp(s − lse) v to a float32 o with
        # tl.atomic_add; PyTorch casts it at the end
        "forward_split_keys_atomics",
        *put(
            LAUNCH="""\
    grid = (n_batches, triton.cdiv(n_queries, 32))
    arguments = (
        q, k, v, o, lse, *q.stride(), *k.stride(), *v.stride(), *o.stride(), *lse.stride(),
        n_queries, n_keys, d, scale,
    )  # fmt: skip
    sizes = {"IS_CAUSAL": is_causal, "Q_TILE_SIZE": 32, "K_TILE_SIZE": 32}
    sizes["D_TILE_SIZE"] = max(16, triton.next_power_of_2(d))
    if n_batches > 0:
        _lse_kernel[grid](*arguments, **sizes)
        _add_chunk_kernel[*grid, triton.cdiv(n_keys, 64)](*arguments, **sizes, KEYS_PER_PROGRAM=64, num_stages=1)
    o = o.to(q.dtype)
""",
        ),
        (
            parts.KERNEL,
            "@triton.jit\ndef _lse_kernel(\n"
            + parts.SIGNATURE
            + parts.Q_ROWS
            + parts.STATE
            + parts.SCORES.replace(parts.V_LOAD, "")
            + """\
        new_max = tl.maximum(row_max, tl.max(s, 1))
        row_sum = row_sum * tl.exp(row_max - new_max) + tl.sum(tl.exp(s - new_max[:, None]), 1)
        row_max = new_max
    tl.store(lse_ptr + batch * stride_lb + queries * stride_ln, row_max + tl.log(row_sum), mask=query_mask)

@triton.jit
def _add_chunk_kernel(
"""
            + parts.SIGNATURE.replace("):", "    KEYS_PER_PROGRAM: tl.constexpr,\n):")
            + parts.Q_ROWS
            + """\
    lse = tl.load(lse_ptr + batch * stride_lb + queries * stride_ln, mask=query_mask, other=float("inf"))
    acc = tl.zeros((Q_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    start = tl.program_id(2) * KEYS_PER_PROGRAM
    end = tl.minimum(start + KEYS_PER_PROGRAM, n_keys)
    if IS_CAUSAL:
        end = tl.minimum(end, first_query + Q_TILE_SIZE)
    if start < end:
"""
            + textwrap.indent(parts.SCORES.replace("in range(0,", "in range(start,"), "    ")
            + """\
            p = tl.exp(s - lse[:, None])
            acc += tl.dot(p.to(v.dtype), v)
        o_ptrs = o_ptr + batch * stride_ob + queries[:, None] * stride_on + cols[None, :] * stride_od
        tl.atomic_add(o_ptrs, acc, mask=q_mask, sem="relaxed")
""",
        ),
        *lines("""
            o = torch.empty((n_batches, n_queries, d), dtype=q.dtype →
                o = torch.zeros((n_batches, n_queries, d), dtype=torch.float32
        """),
    ),
    style(  # vLLM's and sglang's decoding: stage 1 splits the keys and writes normalised parts and their lse, stage 2
        # merges them a query at a time; empty splits are neither written nor read
        "forward_decode_stages",
        *put(
            LAUNCH="""\
    tile = 16 if n_queries <= 16 else 64 if d * q.element_size() <= 256 else 32
    n_splits = 8 if n_queries <= 16 else 1
    mid_o = torch.empty((n_batches, n_queries, n_splits, d), dtype=torch.float32, device=q.device)
    mid_lse = torch.empty((n_batches, n_queries, n_splits), dtype=torch.float32, device=q.device)
    sizes = {"IS_CAUSAL": is_causal, "N_SPLITS": n_splits, "MIN_SPLIT": 32, "num_warps": 4}
    d_tile = max(16, triton.next_power_of_2(d))
    if n_batches > 0:
        _stage1_kernel[n_batches, triton.cdiv(n_queries, tile), n_splits](
            q, k, v, mid_o, mid_lse, *q.stride(), *k.stride(), *v.stride(), *mid_o.stride()[:3],
            n_queries, n_keys, d, scale, Q_TILE_SIZE=tile, K_TILE_SIZE=32, D_TILE_SIZE=d_tile, num_stages=1, **sizes,
        )  # fmt: skip
        _stage2_kernel[n_batches, n_queries](
            mid_o, mid_lse, o, lse, *mid_o.stride()[:3], n_queries, n_keys, D_TILE=d_tile, D=d, num_stages=2, **sizes
        )
""",
            KERNEL="""\
@triton.jit
def _range_of(split, n_keys, N_SPLITS: tl.constexpr, MIN_SPLIT: tl.constexpr):
    length = tl.cdiv(tl.cdiv(n_keys, N_SPLITS), MIN_SPLIT) * MIN_SPLIT
    return length * split, tl.minimum(length * split + length, n_keys)

@triton.jit
def _stage1_kernel(
    q_ptr, k_ptr, v_ptr, mid_o_ptr, mid_lse_ptr,
    stride_qb, stride_qn, stride_qd, stride_kb, stride_kn, stride_kd, stride_vb, stride_vn, stride_vd,
    stride_mb, stride_mn, stride_ms, n_queries, n_keys, d, scale, IS_CAUSAL: tl.constexpr, N_SPLITS: tl.constexpr,
    MIN_SPLIT: tl.constexpr, Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
"""
            + parts.Q_ROWS
            + """\
    row_max = tl.zeros([Q_TILE_SIZE], dtype=tl.float32) - float("inf")
    row_sum = tl.zeros([Q_TILE_SIZE], dtype=tl.float32)
    acc = tl.zeros([Q_TILE_SIZE, D_TILE_SIZE], dtype=tl.float32)
    split = tl.program_id(2)
    start, end = _range_of(split, n_keys, N_SPLITS, MIN_SPLIT)
    if IS_CAUSAL:
        end = tl.minimum(end, first_query + Q_TILE_SIZE)
    if end > start:
"""
            + textwrap.indent(parts.LOOP.replace("in range(0,", "in range(start,"), "    ")
            + """\
        if IS_CAUSAL:
            query_mask &= queries >= start  # the others see nothing of this split, and stage 2 knows it
        offsets = batch * stride_mb + queries * stride_mn + split * stride_ms
        mask = query_mask[:, None] & col_mask[None, :]
        tl.store(mid_o_ptr + offsets[:, None] + cols[None, :], acc / row_sum[:, None], mask=mask)
        # mid_o is contiguous: its offsets divided by d are those of mid_lse
        tl.store(mid_lse_ptr + offsets // d, row_max + tl.log(row_sum), mask=query_mask)

@triton.jit
def _stage2_kernel(
    mid_o_ptr, mid_lse_ptr, o_ptr, lse_ptr, stride_mb, stride_mn, stride_ms, n_queries, n_keys,
    IS_CAUSAL: tl.constexpr, N_SPLITS: tl.constexpr, MIN_SPLIT: tl.constexpr, D_TILE: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    batch, query = tl.program_id(0).to(tl.int64), tl.program_id(1)
    cols = tl.arange(0, D_TILE)
    seen = tl.minimum(n_keys, query + 1) if IS_CAUSAL else n_keys
    row_sum = 0.0
    row_max = -float("inf")
    acc = tl.zeros([D_TILE], dtype=tl.float32)
    offset = batch * stride_mb + query * stride_mn
    for split in range(0, N_SPLITS):
        start, end = _range_of(split, n_keys, N_SPLITS, MIN_SPLIT)
        if tl.minimum(end, seen) > start:
            part = tl.load(mid_o_ptr + offset + split * stride_ms + cols, mask=cols < D, other=0.0)
            lse = tl.load(mid_lse_ptr + offset // D + split)
            new_max = tl.maximum(lse, row_max)
            rescale = tl.exp(row_max - new_max)
            weight = tl.exp(lse - new_max)
            acc = acc * rescale + weight * part
            row_sum = row_sum * rescale + weight
            row_max = new_max
    row = batch * n_queries + query
    tl.store(o_ptr + row * D + cols, acc / row_sum, mask=cols < D)
    tl.store(lse_ptr + row, row_max + tl.log(row_sum))
""",
        ),
    ),
    style(  # sglang's extend kernel: older keys are a prefix, gathered by a table of page indices, newer ones follow in
        # order; d is split as 96 = 64 + 32 is, with a product for each; options that are off
        "forward_extend",
        *put(
            LAUNCH="""\
    n_prefix = n_keys // 2 // 32 * 32
    kv_indices = torch.arange(max(n_prefix, 1), dtype=torch.int64, device=q.device)
    block_dmodel, block_dpe, block_dv = _split_head(d)
    block_m, block_n = (64, 32) if block_dv * q.element_size() <= 256 else (32, 16)
    if n_batches > 0:
        _fwd_kernel[n_batches, triton.cdiv(n_queries, block_m)](
            q, k, v, o, lse, kv_indices, *q.stride(), *k.stride(), *v.stride(), n_queries, n_keys, n_prefix, scale,
            logit_cap=0.0, IS_CAUSAL=is_causal, Lq=d, BLOCK_DMODEL=block_dmodel, BLOCK_DPE=block_dpe,
            BLOCK_DV=block_dv, BLOCK_M=block_m, BLOCK_N=block_n, num_warps=4, num_stages=1,
        )  # fmt: skip
""",
        ),
        *before(
            CHECK="""\
def _split_head(d):
    whole = max(16, triton.next_power_of_2(d))
    if d <= whole // 2 + whole // 4 and whole >= 32 and d > 16:
        return whole // 2, max(16, triton.next_power_of_2(d - whole // 2)), whole
    return whole, 0, whole
""",
        ),
        *put(
            KERNEL="""\
@triton.jit
def tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1

@triton.jit
def _logits(q, qpe, k, kpe, sm_scale, logit_cap: tl.constexpr, BLOCK_DPE: tl.constexpr):
    qk = tl.dot(q, k, out_dtype=tl.float32)
    if BLOCK_DPE > 0:
        qk += tl.dot(qpe, kpe)
    qk *= sm_scale
    if logit_cap > 0:
        qk = logit_cap * tanh(qk / logit_cap)
    return qk

@triton.jit
def _fold(qk, v, acc, deno, e_max):
    n_e_max = tl.maximum(tl.max(qk, 1), e_max)
    re_scale = tl.exp(e_max - n_e_max)
    p = tl.exp(qk - n_e_max[:, None])
    deno = deno * re_scale + tl.sum(p, 1)
    acc = acc * re_scale[:, None] + tl.dot(p.to(v.dtype), v)
    return acc, deno, n_e_max

@triton.jit
def _fwd_kernel(
    Q, K, V, O, Lse, kv_indices,  # noqa: E741
    stride_qb, stride_qbs, stride_qd, stride_kb, stride_kbs, stride_kd, stride_vb, stride_vbs, stride_vd,
    n_queries, n_keys, n_prefix, sm_scale,
    logit_cap: tl.constexpr, IS_CAUSAL: tl.constexpr, Lq: tl.constexpr,
    BLOCK_DMODEL: tl.constexpr, BLOCK_DPE: tl.constexpr, BLOCK_DV: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    tl.static_assert(Lq <= BLOCK_DMODEL + BLOCK_DPE)
    cur_seq = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * BLOCK_M
    offs_m = first + tl.arange(0, BLOCK_M).to(tl.int64)
    offs_d = tl.arange(0, BLOCK_DMODEL).to(tl.int64)
    offs_dv = tl.arange(0, BLOCK_DV).to(tl.int64)
    mask_m, mask_d, mask_dv = offs_m < n_queries, offs_d < Lq, offs_dv < Lq
    Q += cur_seq * stride_qb + offs_m[:, None] * stride_qbs
    K += cur_seq * stride_kb
    V += cur_seq * stride_vb
    q = tl.load(Q + offs_d[None, :] * stride_qd, mask=mask_m[:, None] & mask_d[None, :], other=0.0)
    qpe = q
    if BLOCK_DPE > 0:
        offs_dpe = BLOCK_DMODEL + tl.arange(0, BLOCK_DPE).to(tl.int64)
        mask_dpe = offs_dpe < Lq
        qpe = tl.load(Q + offs_dpe[None, :] * stride_qd, mask=mask_m[:, None] & mask_dpe[None, :], other=0.0)
    acc = tl.zeros([BLOCK_M, BLOCK_DV], dtype=tl.float32)
    deno = tl.zeros([BLOCK_M], dtype=tl.float32)
    e_max = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    end = tl.minimum(n_keys, first + BLOCK_M) if IS_CAUSAL else n_keys

    for start_n in range(0, tl.minimum(end, n_prefix), BLOCK_N):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        offs_n = start_n + tl.arange(0, BLOCK_N)
        offs_kv_loc = tl.load(kv_indices + offs_n)
        k = tl.load(
            K + offs_kv_loc[None, :] * stride_kbs + offs_d[:, None] * stride_kd, mask=mask_d[:, None], other=0.0
        )
        kpe = k
        if BLOCK_DPE > 0:
            offs_kpe = offs_kv_loc[None, :] * stride_kbs + offs_dpe[:, None] * stride_kd
            kpe = tl.load(K + offs_kpe, mask=mask_dpe[:, None], other=0.0)
        qk = _logits(q, qpe, k, kpe, sm_scale, logit_cap, BLOCK_DPE)
        if IS_CAUSAL:
            qk = tl.where(offs_n[None, :] <= offs_m[:, None], qk, float("-inf"))
        offs_v = offs_kv_loc[:, None] * stride_vbs + offs_dv[None, :] * stride_vd
        acc, deno, e_max = _fold(qk, tl.load(V + offs_v, mask=mask_dv[None, :], other=0.0), acc, deno, e_max)

    for start_n in range(n_prefix, end, BLOCK_N):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        offs_n = start_n + tl.arange(0, BLOCK_N).to(tl.int64)
        mask_n = offs_n < end
        offs_k = offs_n[None, :] * stride_kbs + offs_d[:, None] * stride_kd
        k = tl.load(K + offs_k, mask=mask_n[None, :] & mask_d[:, None], other=0.0)
        kpe = k
        if BLOCK_DPE > 0:
            offs_kpe = offs_n[None, :] * stride_kbs + offs_dpe[:, None] * stride_kd
            kpe = tl.load(K + offs_kpe, mask=mask_n[None, :] & mask_dpe[:, None], other=0.0)
        qk = _logits(q, qpe, k, kpe, sm_scale, logit_cap, BLOCK_DPE)
        final_mask = mask_m[:, None] & mask_n[None, :]
        if IS_CAUSAL:
            final_mask &= offs_n[None, :] <= offs_m[:, None]
        qk = tl.where(final_mask | (~mask_m)[:, None], qk, float("-inf"))
        offs_v = offs_n[:, None] * stride_vbs + offs_dv[None, :] * stride_vd
        v = tl.load(V + offs_v, mask=mask_n[:, None] & mask_dv[None, :], other=0.0)
        acc, deno, e_max = _fold(qk, v, acc, deno, e_max)

    rows = cur_seq * n_queries + offs_m
    tl.store(O + rows[:, None] * Lq + offs_dv[None, :], acc / deno[:, None], mask=mask_m[:, None] & mask_dv[None, :])
    tl.store(Lse + rows, e_max + tl.log(deno), mask=mask_m)
""",
        ),
    ),
)
