"""Right forward passes whose rounding is not the base's."""

from assignment.bank.operators.edits import style
from assignment.bank.operators.flash_attention.styles import parts
from assignment.bank.operators.flash_attention.styles.parts import lines, put

PROBLEMS = ("flash_forward_triton",)
FILES = ("triton_forward.py",)

STYLES = (
    style(  # FlashAttention-1's order: P is divided by the sum so far before its product with v
        "forward_normalized_early",
        *lines("""
            row_sum = row_sum * rescale → before = row_sum * rescale
            row_sum += tl.sum(p, axis=1) → row_sum = before + tl.sum(p, axis=1)
            acc = acc * rescale[:, None] → acc = acc * (before / row_sum)[:, None]
            acc += tl.dot(p.to(v.dtype), v) → acc += tl.dot((p / row_sum[:, None]).to(v.dtype), v)
            o = acc / row_sum[:, None] → o = acc
            tile_size = min(64, 4096 // d_tile_size) → tile_size = 64 if d_tile_size <= 128 else 32
        """),
    ),
    style(  # row by row the maximum moves where it has grown much, as FlashAttention-4 has it; exp(8) fits in 16 bits
        "forward_lazy_rows",
        *lines("""
            new_max = tl.maximum(row_max, tile_max) → new_max = tl.where(tile_max > row_max + 8.0, tile_max, row_max)
        """),
    ),
    style(  # what was summed is rescaled only where the maximum of some row has grown much
        "forward_lazy_tiles",
        *put(
            SOFTMAX="""\
        tile_max = tl.max(s, axis=1)
        if tl.max(tile_max - row_max, axis=0) > 8.0:
            new_max = tl.maximum(row_max, tile_max)
            rescale = tl.exp(row_max - new_max)
            row_sum = row_sum * rescale
            acc = acc * rescale[:, None]
            row_max = new_max
        p = tl.exp(s - row_max[:, None])
        row_sum += tl.sum(p, axis=1)
        acc += tl.dot(p.to(v.dtype), v)
"""
        ),
    ),
    style(  # the first pass over the keys finds lse, the second adds up exp(s − lse) v, which is never rescaled
        "forward_two_pass",
        (
            parts.LOOP,
            parts.SCORES.replace(parts.V_LOAD, "")
            + """\
        new_max = tl.maximum(row_max, tl.max(s, axis=1))
        row_sum = row_sum * tl.exp(row_max - new_max) + tl.sum(tl.exp(s - new_max[:, None]), axis=1)
        row_max = new_max
    log_sum = tl.log(row_sum)
"""
            + parts.SCORES
            + """\
        # The maximum first: it may be 1e4, and a sum with it would round the logarithm away.
        p = tl.exp((s - row_max[:, None]) - log_sum[:, None])
        acc += tl.dot(p.to(v.dtype), v)
""",
        ),
        *lines("""
            o = acc / row_sum[:, None] → o = acc
            lse = row_max + tl.log(row_sum) → lse = row_max + log_sum
            def _check( → class ShapeError(ValueError):⏎    pass⏎⏎⏎def _check(
            raise ValueError(f"expected q and k of one d → raise ShapeError(f"expected q and k of one d
            raise ValueError(f"expected k and v of one length → raise ShapeError(f"expected k and v of one length
        """),
    ),
    style(  # exact float32 products, and hidden logits of -1e6 in place of −∞; tiles are moved along by their pointers
        "forward_ieee",
        *put(
            LOOP="""\
    k_ptrs = k_ptr + batch * stride_kb + tl.arange(0, K_TILE_SIZE).to(tl.int64)[:, None] * stride_kn + cols * stride_kd
    v_ptrs = v_ptr + batch * stride_vb + tl.arange(0, K_TILE_SIZE).to(tl.int64)[:, None] * stride_vn + cols * stride_vd
    for block in range(tl.cdiv(end, K_TILE_SIZE)):
        keys = block * K_TILE_SIZE + tl.arange(0, K_TILE_SIZE).to(tl.int64)
        mask = (keys < n_keys)[:, None] & (cols < d)
        k = tl.load(k_ptrs, mask=mask, other=0)
        v = tl.load(v_ptrs, mask=mask, other=0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where((keys < n_keys)[None, :], s, HIDDEN)
        if IS_CAUSAL:
            s = tl.where(keys[None, :] > queries[:, None], HIDDEN, s)
        new_max = tl.maximum(row_max, tl.max(s, axis=1, keep_dims=True))
        p = tl.exp(s - new_max)
        rescale = tl.exp(row_max - new_max)
        row_sum = row_sum * rescale + tl.sum(p, axis=1, keep_dims=True)
        acc = acc * rescale + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        row_max = new_max
        k_ptrs += K_TILE_SIZE * tl.cast(stride_kn, tl.int64)
        v_ptrs += K_TILE_SIZE * tl.cast(stride_vn, tl.int64)
""",
        ),
        # float32 can hold it beside logits of a few 1e4, and exp(HIDDEN - logit) is 0
        *lines("""
            def flash → HIDDEN = tl.constexpr(-1e6)⏎⏎⏎def flash
            row_max = tl.full((Q_TILE_SIZE,), float("-inf") → row_max = tl.full([Q_TILE_SIZE, 1], HIDDEN
            row_sum = tl.zeros((Q_TILE_SIZE,) → row_sum = tl.zeros([Q_TILE_SIZE, 1]
            o = acc / row_sum[:, None] → o = acc / row_sum
            queries * stride_ln → queries[:, None] * stride_ln
            lse, mask=query_mask → lse, mask=query_mask[:, None]
            o = torch.empty((n_batches, n_queries, d), dtype=q.dtype, device=q.device) → o = torch.zeros_like(q)
            return o.reshape(*batch, n_queries, d), lse.reshape( →
                o = o.unflatten(0, batch) if batch else o.squeeze(0)⏎    return o, lse.reshape(
        """),
    ),
    style(  # three TF32 products in place of one of float32; the online softmax is a function that returns a tuple
        "forward_tf32x3",
        *put(
            SOFTMAX="""\
        p, row_max, row_sum, rescale = _softmax_step(s, row_max, row_sum)
        acc = tl.dot(p.to(v.dtype), v, acc=acc * rescale[:, None], input_precision="tf32x3")
""",
        ),
        (
            "@triton.jit\n",
            """\
@triton.jit
def _softmax_step(s, row_max, row_sum):
    new_max = tl.maximum(row_max, tl.max(s, axis=1))
    factor = tl.exp(row_max - new_max)
    p = tl.exp(s - new_max[:, None])
    return p, new_max, factor * row_sum + tl.sum(p, axis=1), factor

@triton.jit
""",
        ),
        *lines("""
            tl.dot(q, tl.trans(k)) → tl.dot(q, tl.trans(k), input_precision="tf32x3")
            q = q.reshape(n_batches, n_queries, d) → q = q[None] if q.ndim == 2 else q.flatten(0, -3)
            lse = torch.empty((n_batches, n_queries) → lse = torch.full((n_batches, n_queries), torch.nan
            range(0, end → tl.range(0, end
            n_queries, n_keys, d, scale,⏎            IS → n_queries, k.size(1), d, 1 / d**0.5,⏎            IS
            Q_TILE_SIZE=tile_size → Q_TILE_SIZE=32
            triton.cdiv(n_queries, tile_size)) → triton.cdiv(n_queries, 32), 1)
        """),
    ),
    style(  # no infinities: the maximum starts at the least float32, hidden keys get weight zero by a select, sums stay
        # above zero and o is multiplied by their reciprocals; q and k are both scaled by d^(−1/4), in float32
        "forward_finite_start",
        (
            parts.SELECT + parts.SOFTMAX,
            """\
        new_max = tl.maximum(row_max, tl.max(tl.where(visible, s, LEAST), axis=1))
        p = tl.where(visible, tl.exp(s - new_max[:, None]), 0.0)
        shrink = tl.exp(row_max - new_max)
        acc = tl.dot(p.to(v.dtype), v, acc=acc * shrink[:, None])
        row_sum = row_sum * shrink + tl.sum(p, axis=1)
        row_max = new_max
        first_key += K_TILE_SIZE

    row_sum = tl.maximum(row_sum, TINY)  # the rows past the last one saw no key
""",
        ),
        (
            "def flash",
            """\
LEAST = tl.constexpr(torch.finfo(torch.float32).min)
TINY = tl.constexpr(torch.finfo(torch.float32).tiny)

def flash""",
        ),
        *lines("""
            scale = 1 / math.sqrt(d) → scale = d**-0.25
            q = tl.load(q_ptrs, mask=q_mask, other=0.0) →
                q = tl.load(q_ptrs, mask=q_mask, other=0.0).to(tl.float32) * scale
            s = tl.dot(q, tl.trans(k)) * scale → s = tl.dot(q, tl.trans(k.to(tl.float32) * scale))
            visible = key_mask[None, :] → visible = key_mask[None, :] & query_mask[:, None]
            float("-inf"), dtype → LEAST, dtype
            for first_key in range(0, end, K_TILE_SIZE): → first_key = tl.zeros((), tl.int32)⏎    while first_key < end:
            o = acc / row_sum[:, None] → o = acc * (1.0 / row_sum)[:, None]
        """),
    ),
    style(  # base 2: q is multiplied by scale · log₂e once and cast back to its dtype; the longest causal rows go first
        "forward_exp2_prescaled_q",
        *put(
            K_LOAD="""\
        k_ptrs = k_ptr + batch * stride_kb + cols[:, None] * stride_kd + keys[None, :] * stride_kn
        k = tl.load(k_ptrs, mask=col_mask[:, None] & key_mask[None, :], other=0.0)
""",
        ),
        *lines("""
            import torch⏎ → import torch⏎from einops import rearrange⏎
            q = q.reshape(n_batches, n_queries, d) → q = rearrange(q[None], "... n d -> (...) n d")
            scale = 1 / math.sqrt(d) → scale = math.log2(math.e) / math.sqrt(d)
            Q_TILE_SIZE=tile_size → Q_TILE_SIZE=32
            triton.cdiv(n_queries, tile_size) → triton.cdiv(n_queries, 32)
            first_query = tl.program_id(1) → first_query = (tl.num_programs(1) - 1 - tl.program_id(1))
            q_mask, other=0.0) → q_mask, other=0.0)⏎    q = (q.to(tl.float32) * scale).to(q_ptr.dtype.element_ty)
            for first_key in range(0, end, K_TILE_SIZE):⏎        keys = (first_key +
                tl.arange(0, K_TILE_SIZE)).to(tl.int64) →
                keys = tl.arange(0, K_TILE_SIZE).to(tl.int64)⏎    for _ in range(0, end, K_TILE_SIZE):
            row_max = new_max → row_max = new_max⏎        keys += K_TILE_SIZE
            s = tl.dot(q, tl.trans(k)) * scale → s = tl.dot(q, k)
            p = tl.exp(s → p = tl.exp2(s
            rescale = tl.exp( → rescale = tl.exp2(
            o = acc / row_sum[:, None] → acc /= row_sum[:, None]⏎    o = acc
            lse = row_max + tl.log(row_sum) → lse = (row_max + tl.log2(row_sum)) * LN_2
            def flash → LN_2 = tl.constexpr(math.log(2))⏎⏎⏎def flash
        """),
    ),
    style(  # the least tiles that tl.dot takes, on a grid of (query tiles, batch) in parts that CUDA allows
        "forward_tiles_16",
        *put(
            LAUNCH="""\
    for start in range(0, n_batches, 65_535):
        part = slice(start, start + 65_535)
        _launch(q[part], k[part], v[part], o[part], lse[part], scale, is_causal)
""",
        ),
        (
            "def _check(",
            """\
def _launch(q, k, v, o, lse, scale, is_causal):
    d_tile_size = max(16, triton.next_power_of_2(q.shape[2]))
    _forward_kernel[triton.cdiv(q.shape[1], 16), q.shape[0]](
        q, k, v, o, lse, *q.stride(), *k.stride(), *v.stride(), *o.stride(), *lse.stride(),
        q.shape[1], k.shape[1], q.shape[2], scale,
        IS_CAUSAL=is_causal, Q_TILE_SIZE=16, K_TILE_SIZE=16, D_TILE_SIZE=d_tile_size,
        num_warps=1 if d_tile_size <= 64 else 4,
    )  # fmt: skip

def _check(""",
        ),
        *lines("""
            batch = tl.program_id(0) → batch = tl.program_id(1)
            first_query = tl.program_id(1) → first_query = tl.program_id(0)
        """),
    ),
)
