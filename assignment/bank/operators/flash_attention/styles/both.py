"""Right attention in other styles than the base's, forward and backward."""

from assignment.bank.edits import style
from assignment.bank.operators.flash_attention.styles.parts import lines, put

PROBLEMS = ("flash_forward_triton", "flash_backward_triton")
FILES = ("triton_forward.py", "triton_backward.py", "flash_attention.py")

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
)
