"""A backward pass of two kernels, without atomics: what several styles edit in place of the base's one."""

from assignment.bank.operators.flash_attention.styles import parts
from assignment.bank.operators.flash_attention.styles.parts import lines

LAUNCH = """\
    inputs = [grad_o, q, k, v, lse, delta]
    d_tile = max(16, triton.next_power_of_2(d))
    tile = 64 if d_tile <= 32 else 32 if d_tile * q.element_size() <= 512 else 16
    options = {"IS_CAUSAL": is_causal, "Q_TILE": tile, "K_TILE": tile, "D_TILE": d_tile, "num_stages": 1}
    arguments = [*inputs, *(stride for x in inputs for stride in x.stride()), n_queries, n_keys, d, scale]
    if n_batches > 0:
        _grad_q_kernel[n_batches, triton.cdiv(n_queries, tile)](*arguments, grad_q, **options)
        _grad_kv_kernel[n_batches, triton.cdiv(n_keys, tile)](*arguments, grad_k, grad_v, **options)
"""
ARGUMENTS = """\
    grad_o_ptr, q_ptr, k_ptr, v_ptr, lse_ptr, delta_ptr,
    go_b, go_n, go_d, q_b, q_n, q_d, k_b, k_n, k_d, v_b, v_n, v_d, lse_b, lse_n, delta_b, delta_n,
    n_queries, n_keys, d, scale"""
SIGNATURE = """\
{arguments}, {gradients},
    IS_CAUSAL: tl.constexpr, Q_TILE: tl.constexpr, K_TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
"""
HELPERS = """\
@triton.jit
def _load(ptr, rows, stride_n, stride_d, n_rows, d, D_TILE: tl.constexpr):
    cols = tl.arange(0, D_TILE)
    ptrs = ptr + rows.to(tl.int64)[:, None] * stride_n + cols.to(tl.int64)[None, :] * stride_d
    return tl.load(ptrs, mask=(rows < n_rows)[:, None] & (cols < d)[None, :], other=0.0)

@triton.jit
def _vector(ptr, rows, stride, n_rows, other):
    return tl.load(ptr + rows.to(tl.int64) * stride, mask=rows < n_rows, other=other)

@triton.jit
def _store(ptr, x, rows, n_rows, d, D_TILE: tl.constexpr):
    cols = tl.arange(0, D_TILE)
    ptrs = ptr + rows.to(tl.int64)[:, None] * d + cols[None, :]
    tl.store(ptrs, x.to(ptr.dtype.element_ty), mask=(rows < n_rows)[:, None] & (cols < d)[None, :])

@triton.jit
def _p_and_ds(grad_o, q, k, v, lse, delta, queries, keys, n_keys, scale, IS_CAUSAL: tl.constexpr):
    s = tl.dot(q, tl.trans(k)) * scale
    visible = (keys < n_keys)[None, :]
    if IS_CAUSAL:
        visible = visible & (keys[None, :] <= queries[:, None])
    p = tl.exp(tl.where(visible, s, float("-inf")) - lse[:, None])  # 0 past the last query, where lse is +∞
    return p, p * (tl.dot(grad_o, tl.trans(v)) - delta[:, None])

"""
GRAD_Q = (
    "@triton.jit\ndef _grad_q_kernel(\n"
    + SIGNATURE.format(arguments=ARGUMENTS, gradients="grad_q_ptr")
    + """\
    batch, first_query = tl.program_id(0).to(tl.int64), tl.program_id(1) * Q_TILE
    queries = first_query + tl.arange(0, Q_TILE)
    q = _load(q_ptr + batch * q_b, queries, q_n, q_d, n_queries, d, D_TILE)
    grad_o = _load(grad_o_ptr + batch * go_b, queries, go_n, go_d, n_queries, d, D_TILE)
    lse = _vector(lse_ptr + batch * lse_b, queries, lse_n, n_queries, float("inf"))
    delta = _vector(delta_ptr + batch * delta_b, queries, delta_n, n_queries, 0.0)
    grad_q = tl.zeros((Q_TILE, D_TILE), tl.float32)
    for first_key in range(0, tl.minimum(n_keys, first_query + Q_TILE) if IS_CAUSAL else n_keys, K_TILE):
        keys = first_key + tl.arange(0, K_TILE)
        k = _load(k_ptr + batch * k_b, keys, k_n, k_d, n_keys, d, D_TILE)
        v = _load(v_ptr + batch * v_b, keys, v_n, v_d, n_keys, d, D_TILE)
        _, grad_s = _p_and_ds(grad_o, q, k, v, lse, delta, queries, keys, n_keys, scale, IS_CAUSAL)
        grad_q += tl.dot(grad_s.to(k.dtype), k)
    _store(grad_q_ptr + batch * n_queries * d, grad_q * scale, queries, n_queries, d, D_TILE)

"""
)
GRAD_KV = (
    "@triton.jit\ndef _grad_kv_kernel(\n"
    + SIGNATURE.format(arguments=ARGUMENTS, gradients="grad_k_ptr, grad_v_ptr")
    + """\
    batch, first_key = tl.program_id(0).to(tl.int64), tl.program_id(1) * K_TILE
    keys = first_key + tl.arange(0, K_TILE)
    k = _load(k_ptr + batch * k_b, keys, k_n, k_d, n_keys, d, D_TILE)
    v = _load(v_ptr + batch * v_b, keys, v_n, v_d, n_keys, d, D_TILE)
    grad_k = tl.zeros((K_TILE, D_TILE), tl.float32)
    grad_v = tl.zeros((K_TILE, D_TILE), tl.float32)
    for first_query in range(first_key // Q_TILE * Q_TILE if IS_CAUSAL else 0, n_queries, Q_TILE):
        queries = first_query + tl.arange(0, Q_TILE)
        q = _load(q_ptr + batch * q_b, queries, q_n, q_d, n_queries, d, D_TILE)
        grad_o = _load(grad_o_ptr + batch * go_b, queries, go_n, go_d, n_queries, d, D_TILE)
        lse = _vector(lse_ptr + batch * lse_b, queries, lse_n, n_queries, float("inf"))
        delta = _vector(delta_ptr + batch * delta_b, queries, delta_n, n_queries, 0.0)
        p, grad_s = _p_and_ds(grad_o, q, k, v, lse, delta, queries, keys, n_keys, scale, IS_CAUSAL)
        grad_v += tl.dot(tl.trans(p).to(grad_o.dtype), grad_o)
        grad_k += tl.dot(tl.trans(grad_s).to(q.dtype), q)
    _store(grad_k_ptr + batch * n_keys * d, grad_k * scale, keys, n_keys, d, D_TILE)
    _store(grad_v_ptr + batch * n_keys * d, grad_v, keys, n_keys, d, D_TILE)
"""
)
EDITS = (
    (parts.B_LAUNCH, LAUNCH),
    (parts.B_KERNELS, HELPERS + GRAD_Q + GRAD_KV),
    *lines("""
        delta = torch.empty((n_batches, n_queries), dtype=torch.float32, device=q.device) →
            delta = (grad_o.float() * o.float()).sum(dim=-1)
        grad_q = torch.zeros((n_batches, n_queries, d), dtype=torch.float32, →
            grad_q = torch.empty((n_batches, n_queries, d), dtype=q.dtype,
    """),
)
