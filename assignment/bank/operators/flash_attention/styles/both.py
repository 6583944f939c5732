"""Right attention in other styles than the base's, forward and backward."""

from assignment.bank.operators.edits import style
from assignment.bank.operators.flash_attention.styles import parts, two_kernels
from assignment.bank.operators.flash_attention.styles.parts import lines, put

PROBLEMS = ("flash_forward_triton", "flash_backward_triton")
FILES = ("triton_forward.py", "triton_backward.py", "flash_attention.py")

TRANSPOSED = (
    parts.changed(
        two_kernels.HELPERS,
        *lines("""
            q, tl.trans(k) → k, q
            (keys < n_keys)[None, :] → (keys < n_keys)[:, None]
            keys[None, :] <= queries[:, None] → keys[:, None] <= queries[None, :]
            lse[:, None] → lse[None, :]
            grad_o, tl.trans(v)) - delta[:, None] → v, grad_o) - delta[None, :]
        """),
    )
    + """\
@triton.jit
def _load_t(ptr, rows, stride_n, stride_d, n_rows, d, D_TILE: tl.constexpr):
    cols = tl.arange(0, D_TILE)
    ptrs = ptr + rows.to(tl.int64)[None, :] * stride_n + cols.to(tl.int64)[:, None] * stride_d
    return tl.load(ptrs, mask=(rows < n_rows)[None, :] & (cols < d)[:, None], other=0.0)

@triton.jit
def _store_t(ptr, x, rows, n_rows, d, D_TILE: tl.constexpr):
    cols = tl.arange(0, D_TILE)
    ptrs = ptr + rows.to(tl.int64)[None, :] * d + cols[:, None]
    tl.store(ptrs, x.to(ptr.dtype.element_ty), mask=(rows < n_rows)[None, :] & (cols < d)[:, None])

"""
)

STYLES = (
    style(  # the scale is folded into the exponent, exp2(s · scale · log₂e − m): one multiply-subtract an element; keys
        # in whole tiles go first, without a mask; pointers and mask of a load are a tuple with a star
        "forward_exp2_folded_scale",
        *put(
            LOOP="""\
    # Keys before `whole` are in tiles that every query sees all of.
    whole = n_keys // K_TILE_SIZE * K_TILE_SIZE
    if IS_CAUSAL:
        whole = tl.minimum(whole, first_query)
    k_ptr += batch * stride_kb
    v_ptr += batch * stride_vb
    for start in range(0, whole, K_TILE_SIZE):
        row_max, row_sum, acc = absorb(
            q, k_ptr, v_ptr, row_max, row_sum, acc, queries, start, stride_kn, stride_kd, stride_vn, stride_vd,
            n_keys, d, scale * LOG2_E, IS_CAUSAL, False, K_TILE_SIZE, D_TILE_SIZE,
        )  # fmt: skip
    for start in range(whole, end, K_TILE_SIZE):
        row_max, row_sum, acc = absorb(
            q, k_ptr, v_ptr, row_max, row_sum, acc, queries, start, stride_kn, stride_kd, stride_vn, stride_vd,
            n_keys, d, scale * LOG2_E, IS_CAUSAL, True, K_TILE_SIZE, D_TILE_SIZE,
        )  # fmt: skip
""",
        ),
        (
            "@triton.jit\ndef _forward_kernel(",
            """\
@triton.jit
def absorb(
    q, k_ptr, v_ptr, row_max, row_sum, acc, queries, start, stride_kn, stride_kd, stride_vn, stride_vd,
    n_keys, d, scale_log2_e, IS_CAUSAL: tl.constexpr, MASKED: tl.constexpr, TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    keys = start + tl.arange(0, TILE)
    k = tl.load(*tile_at(k_ptr, keys, stride_kn, stride_kd, n_keys, d, D_TILE), other=0.0)
    v = tl.load(*tile_at(v_ptr, keys, stride_vn, stride_vd, n_keys, d, D_TILE), other=0.0)
    s = tl.dot(q, tl.trans(k))
    if MASKED:
        s = tl.where(visible(queries[:, None], keys[None, :], n_keys, IS_CAUSAL), s, float("-inf"))
    new_max = tl.maximum(row_max, tl.max(s, axis=1) * scale_log2_e)
    p = tl.exp2(s * scale_log2_e - new_max[:, None])
    shrink = tl.exp2(row_max - new_max)
    return new_max, row_sum * shrink + tl.sum(p, axis=1), tl.dot(p.to(v.dtype), v, acc=acc * shrink[:, None])

@triton.jit
def tile_at(ptr, rows, stride_row, stride_col, n_rows, d, D_TILE: tl.constexpr):
    cols = tl.arange(0, D_TILE)
    ptrs = ptr + rows.to(tl.int64)[:, None] * stride_row + cols.to(tl.int64)[None, :] * stride_col
    return ptrs, (rows < n_rows)[:, None] & (cols < d)[None, :]

@triton.jit
def visible(queries, keys, n_keys, IS_CAUSAL: tl.constexpr):
    return (keys < n_keys) & (keys <= queries) if IS_CAUSAL else keys < n_keys

@triton.jit
def _forward_kernel(""",
        ),
        *lines("""
            lse = row_max + tl.log(row_sum) → lse = (row_max + tl.log2(row_sum)) / LOG2_E
            def flash_forward_triton( → LOG2_E = tl.constexpr(1.4426950408889634)⏎⏎⏎def flash_forward_triton(
            def flash_backward_triton( → from .triton_forward import LOG2_E⏎⏎⏎def flash_backward_triton(
            s = tl.dot(q, tl.trans(k)) * scale → s = tl.dot(q, tl.trans(k))
            s = tl.where(visible, s, float("-inf"))⏎        p = tl.exp(s - lse[:, None]) →
                p = tl.exp2(s * (scale * LOG2_E) - (lse * LOG2_E)[:, None])⏎        p = tl.where(visible, p, 0.0)
            grad_s = p * (grad_p - delta[:, None]) → grad_s = (p * (grad_p - delta[:, None]) * scale).to(q.dtype)
            tl.dot(tl.trans(grad_s.to(q.dtype)), q) * scale → tl.dot(tl.trans(grad_s), q)
            tl.dot(grad_s.to(k.dtype), k) * scale → tl.dot(grad_s, k)
            def backward( → @torch.autograd.function.once_differentiable⏎    def backward(
        """),
    ),
    style(  # contiguous copies, whose rows need no strides forward; one function launches any kernel
        "attention_whole_minimal",
        *two_kernels.EDITS,
        *put(
            HOST=parts.HOST.replace(".reshape", ".contiguous().reshape"),
            LAUNCH="    launch(_forward_kernel, n_queries, q, k, v, o, lse, n_queries, n_keys, d, scale, is_causal)\n",
            SIGNATURE="""\
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
""",
        ),
        (
            "def flash_forward_triton(",
            """\
def launch(kernel, n_rows, x, *arguments):
    n_batches, _, d = x.shape
    d_tile = max(16, triton.next_power_of_2(d))
    tile = 32 if d_tile * x.element_size() <= 512 else 16
    if n_batches > 0:
        kernel[(n_batches, triton.cdiv(n_rows, tile))](x, *arguments, tile, tile, d_tile, num_stages=1)

def flash_forward_triton(""",
        ),
        *lines("""
            q_ptr + batch * stride_qb + queries[:, None] * stride_qn + cols[None, :] * stride_qd →
                q_ptr + (batch * n_queries + queries[:, None]) * d + cols[None, :]
            k_ptr + batch * stride_kb + keys[:, None] * stride_kn + cols[None, :] * stride_kd →
                k_ptr + (batch * n_keys + keys[:, None]) * d + cols[None, :]
            v_ptr + batch * stride_vb + keys[:, None] * stride_vn + cols[None, :] * stride_vd →
                v_ptr + (batch * n_keys + keys[:, None]) * d + cols[None, :]
            o_ptr + batch * stride_ob + queries[:, None] * stride_on + cols[None, :] * stride_od →
                o_ptr + (batch * n_queries + queries[:, None]) * d + cols[None, :]
            lse_ptr + batch * stride_lb + queries * stride_ln → lse_ptr + batch * n_queries + queries
            def flash_backward_triton( → from .triton_forward import launch⏎⏎⏎def flash_backward_triton(
            inputs = [grad_o, q, k, v, lse, delta] → inputs = [x.contiguous() for x in (grad_o, q, k, v, lse, delta)]
        """),
        (
            two_kernels.LAUNCH[two_kernels.LAUNCH.index("    if n_batches") :],
            """\
    launch(_grad_q_kernel, n_queries, *arguments, grad_q, is_causal)
    launch(_grad_kv_kernel, n_keys, *arguments, grad_k, grad_v, is_causal)
""",
        ),
    ),
    style(  # everything transposed: Sᵀ = K Qᵀ with keys in rows, softmax down the columns, Oᵀ = Vᵀ Pᵀ; o is returned as
        # a view with d as the slow dimension; an autograd Function with setup_context and two results
        "forward_transposed",
        (parts.B_LAUNCH, two_kernels.LAUNCH),
        (
            parts.B_KERNELS,
            TRANSPOSED
            + parts.changed(
                two_kernels.GRAD_Q,
                *lines("""
                    q = _load( → q = _load_t(
                    grad_o = _load( → grad_o = _load_t(
                    grad_q = tl.zeros((Q_TILE, D_TILE) → grad_q = tl.zeros((D_TILE, Q_TILE)
                    grad_q += tl.dot(grad_s.to(k.dtype), k) → grad_q = tl.dot(k.T, grad_s.to(k.dtype), acc=grad_q)
                    _store(grad_q_ptr → _store_t(grad_q_ptr
                """),
            )
            + parts.changed(
                two_kernels.GRAD_KV,
                *lines("""
                    q = _load( → q = _load_t(
                    grad_o = _load( → grad_o = _load_t(
                    tl.trans(p).to(grad_o.dtype), grad_o → p.to(grad_o.dtype), tl.trans(grad_o)
                    tl.trans(grad_s).to(q.dtype), q → grad_s.to(q.dtype), tl.trans(q)
                """),
            ),
        ),
        *lines("""
            delta = torch.empty((n_batches, n_queries), dtype=torch.float32, device=q.device) →
                delta = torch.einsum("...d,...d->...", grad_o.float(), o.float())
            grad_q = torch.zeros((n_batches, n_queries, d), dtype=torch.float32, →
                grad_q = torch.empty((n_batches, n_queries, d), dtype=q.dtype,
            o = torch.empty((n_batches, n_queries, d), dtype=q.dtype, device=q.device)⏎    lse →
                o = torch.empty((n_batches, d, n_queries), dtype=q.dtype, device=q.device).mT⏎    lse
            q_ptr + batch * stride_qb + queries[:, None] * stride_qn + cols[None, :] * stride_qd →
                q_ptr + batch * stride_qb + queries[None, :] * stride_qn + cols[:, None] * stride_qd
            q_mask = query_mask[:, None] & col_mask[None, :] → q_mask = query_mask[None, :] & col_mask[:, None]
            row_max = tl.full((Q_TILE_SIZE,) → row_max = tl.full((1, Q_TILE_SIZE)
            row_sum = tl.zeros((Q_TILE_SIZE,) → row_sum = tl.zeros((1, Q_TILE_SIZE)
            acc = tl.zeros((Q_TILE_SIZE, D_TILE_SIZE) → acc = tl.zeros((D_TILE_SIZE, Q_TILE_SIZE)
            v_ptr + batch * stride_vb + keys[:, None] * stride_vn + cols[None, :] * stride_vd →
                v_ptr + batch * stride_vb + keys[None, :] * stride_vn + cols[:, None] * stride_vd
            v_mask = key_mask[:, None] & col_mask[None, :] → v_mask = key_mask[None, :] & col_mask[:, None]
            s = tl.dot(q, tl.trans(k)) * scale⏎        visible = key_mask[None, :] →
                s = tl.dot(k, q) * scale⏎        visible = key_mask[:, None]
            (keys[None, :] <= queries[:, None])⏎        s → (keys[:, None] <= queries[None, :])⏎        s
            tl.max(s, axis=1) → tl.max(s, axis=0, keep_dims=True)
            tl.exp(s - new_max[:, None]) → tl.exp(s - new_max)
            tl.sum(p, axis=1) → tl.sum(p, axis=0, keep_dims=True)
            acc = acc * rescale[:, None] → acc = acc * rescale
            tl.dot(p.to(v.dtype), v) → tl.dot(v, p.to(v.dtype))
            o = acc / row_sum[:, None] → o = acc / row_sum
            o_ptr + batch * stride_ob + queries[:, None] * stride_on + cols[None, :] * stride_od →
                o_ptr + batch * stride_ob + queries[None, :] * stride_on + cols[:, None] * stride_od
            o_mask = query_mask[:, None] & col_mask[None, :] → o_mask = query_mask[None, :] & col_mask[:, None]
            batch * stride_lb + queries * stride_ln → batch * stride_lb + queries[None, :] * stride_ln
            tl.store(lse_ptrs, lse, mask=query_mask) → tl.store(lse_ptrs, lse, mask=query_mask[None, :])
        """),
        *put(
            AUTOGRAD="""\
class FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(q, k, v, is_causal):
        return flash_forward_triton(q, k, v, is_causal=is_causal)

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, ctx.is_causal = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*tensors, *output)

    @staticmethod
    def backward(ctx, grad_o, _):
        q, k, v, o, lse = ctx.saved_tensors
        with torch.no_grad():
            return *flash_backward_triton(grad_o, q, k, v, o, lse, ctx.is_causal), None
""",
        ),
        ("FlashAttention.apply(q, k, v, is_causal)", "FlashAttention.apply(q, k, v, is_causal)[0]"),
    ),
)
