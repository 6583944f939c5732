"""Right attention as libraries ship it."""

import textwrap

from assignment.bank.operators.edits import style
from assignment.bank.operators.flash_attention.styles import parts
from assignment.bank.operators.flash_attention.styles.parts import lines, put

PROBLEMS = ("flash_forward_triton", "flash_backward_triton")
FILES = ("triton_forward.py", "triton_backward.py", "flash_attention.py")

STYLES = (
    style(  # launch settings as data, by d and dtype; a persistent forward; descriptors where device and alignment
        # allow, pointers elsewhere; programs of one backward kernel each make a tile of dK and dV and a tile of dQ
        "attention_whole_library",
        *put(
            TRITON_FORWARD="""\
import functools
from dataclasses import dataclass

from triton.tools.tensor_descriptor import TensorDescriptor

LOG2_E = math.log2(math.e)

@dataclass(frozen=True)
class Settings:
    row_bytes: int
    forward_tiles: tuple[int, int]  # queries, keys
    backward_tile: int
    num_warps: int
    num_stages: int

SETTINGS = (
    Settings(row_bytes=128, forward_tiles=(128, 64), backward_tile=64, num_warps=8, num_stages=2),
    Settings(row_bytes=256, forward_tiles=(64, 64), backward_tile=64, num_warps=8, num_stages=1),
    Settings(row_bytes=512, forward_tiles=(64, 32), backward_tile=32, num_warps=8, num_stages=1),
    Settings(row_bytes=1024, forward_tiles=(32, 16), backward_tile=16, num_warps=4, num_stages=1),
)

def flash_forward_triton(q, k, v, is_causal=False):
    _check(q, k, v)
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if q.numel() == 0:
        return o, lse
    d_tile, settings = _heuristics(q.shape[-1], q.dtype)
    q_tile, k_tile = settings.forward_tiles
    inputs = [_three_dimensional(x) for x in (q, k, v)]
    sources, described = _sources(inputs, (q_tile, k_tile, k_tile), d_tile)
    n_tiles = inputs[0].shape[0] * triton.cdiv(q.shape[-2], q_tile)
    _forward_kernel[(min(n_tiles, 2 * _multiprocessors(q.device)),)](
        *sources, o, lse, *(stride for x in inputs for stride in x.stride()),
        n_tiles, q.shape[-2], k.shape[-2], q.shape[-1], q.shape[-1] ** -0.5 * LOG2_E,
        DESCRIBED=described, IS_CAUSAL=is_causal, Q_TILE=q_tile, K_TILE=k_tile, D_TILE=d_tile,
        num_warps=settings.num_warps, num_stages=settings.num_stages,
    )  # fmt: skip
    return o, lse

def _heuristics(d, dtype):
    d_tile = max(16, triton.next_power_of_2(d))
    return d_tile, next(s for s in SETTINGS if d_tile * dtype.itemsize <= s.row_bytes)

@functools.cache
def _multiprocessors(device):
    return torch.cuda.get_device_properties(device).multi_processor_count

def _three_dimensional(x):
    return x.reshape(-1, *x.shape[-2:])

def _sources(tensors, rows, d_tile):
    if torch.cuda.get_device_capability(tensors[0].device)[0] < 9 or not all(_is_describable(x) for x in tensors):
        return list(tensors), False
    blocks = [[1, n, d_tile] for n in rows]
    return [TensorDescriptor(x, x.shape, x.stride(), b) for x, b in zip(tensors, blocks, strict=True)], True

def _is_describable(x):
    batch, row, column = x.stride()
    nested = column == 1 and row >= x.shape[2] and batch >= x.shape[1] * row and batch % row == 0
    return nested and row * x.element_size() % 16 == 0 and x.data_ptr() % 16 == 0
""",
            KERNEL="""\
@triton.jit
def _load(
    source, batch, first, stride_b, stride_n, stride_d, n, d,
    DESCRIBED: tl.constexpr, ROWS: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    if DESCRIBED:
        tile = source.load([batch, first, 0]).reshape(ROWS, D_TILE)
    else:
        rows, cols = first + tl.arange(0, ROWS), tl.arange(0, D_TILE)
        ptrs = source + batch.to(tl.int64) * stride_b
        ptrs = ptrs + rows.to(tl.int64)[:, None] * stride_n + cols.to(tl.int64)[None, :] * stride_d
        tile = tl.load(ptrs, mask=(rows < n)[:, None] & (cols < d)[None, :], other=0.0)
    return tile

@triton.jit
def _store(ptr, tile, batch, first, n, d, ROWS: tl.constexpr, D_TILE: tl.constexpr):
    rows, cols = first + tl.arange(0, ROWS), tl.arange(0, D_TILE)
    ptrs = ptr + (batch.to(tl.int64) * n + rows)[:, None] * d + cols[None, :]
    tl.store(ptrs, tile.to(ptr.dtype.element_ty), mask=(rows < n)[:, None] & (cols < d)[None, :])

@triton.jit
def _forward_kernel(
    q_src, k_src, v_src, o_ptr, lse_ptr,
    stride_qb, stride_qn, stride_qd, stride_kb, stride_kn, stride_kd, stride_vb, stride_vn, stride_vd,
    n_tiles, n_queries, n_keys, d, scale2,
    DESCRIBED: tl.constexpr, IS_CAUSAL: tl.constexpr,
    Q_TILE: tl.constexpr, K_TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    tiles_per_batch = tl.cdiv(n_queries, Q_TILE)
    for tile in range(tl.program_id(0), n_tiles, tl.num_programs(0)):
        batch, first = tile // tiles_per_batch, tile % tiles_per_batch * Q_TILE
        queries = first + tl.arange(0, Q_TILE)
        q = _load(q_src, batch, first, stride_qb, stride_qn, stride_qd, n_queries, d, DESCRIBED, Q_TILE, D_TILE)
        o = tl.zeros((Q_TILE, D_TILE), dtype=tl.float32)
        row_max = tl.full((Q_TILE,), float("-inf"), dtype=tl.float32)
        row_sum = tl.zeros((Q_TILE,), dtype=tl.float32)
        end = tl.minimum(n_keys, first + Q_TILE) if IS_CAUSAL else n_keys
        for start in range(0, end, K_TILE):
            keys = start + tl.arange(0, K_TILE)
            k = _load(k_src, batch, start, stride_kb, stride_kn, stride_kd, n_keys, d, DESCRIBED, K_TILE, D_TILE)
            v = _load(v_src, batch, start, stride_vb, stride_vn, stride_vd, n_keys, d, DESCRIBED, K_TILE, D_TILE)
            s = tl.dot(q, k.T) * scale2
            visible = (keys < n_keys)[None, :]
            if IS_CAUSAL:
                visible = visible & (keys[None, :] <= queries[:, None])
            s = tl.where(visible, s, float("-inf"))
            new_max = tl.maximum(row_max, tl.max(s, axis=1))
            p = tl.exp2(s - new_max[:, None])
            rescale = tl.exp2(row_max - new_max)
            row_sum = row_sum * rescale + tl.sum(p, axis=1)
            o = o * rescale[:, None] + tl.dot(p.to(v.dtype), v)
            row_max = new_max
        _store(o_ptr, o / row_sum[:, None], batch, first, n_queries, d, Q_TILE, D_TILE)
        lse = (row_max + tl.log2(row_sum)) * 0.6931471805599453  # ln 2
        tl.store(lse_ptr + batch.to(tl.int64) * n_queries + queries, lse, mask=queries < n_queries)
""",
            TRITON_BACKWARD="""\
from torch.nn import functional

from .triton_forward import LOG2_E, _heuristics, _load, _sources, _store, _three_dimensional

def flash_backward_triton(grad_o, q, k, v, o, lse, is_causal=False):
    _check(grad_o, q, k, v, o, lse)
    gradients = tuple(torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    if q.numel() == 0:
        return gradients
    d_tile, settings = _heuristics(q.shape[-1], q.dtype)
    tile = settings.backward_tile
    inputs = [_three_dimensional(x) for x in (grad_o, q, k, v)]
    o, lse = _three_dimensional(o), lse.reshape(-1, q.shape[-2])
    (n_batches, n_queries, d), n_keys = inputs[1].shape, k.shape[-2]
    query_tiles, key_tiles = triton.cdiv(n_queries, tile), triton.cdiv(n_keys, tile)
    # Padded to whole tiles, in base 2
    lse2 = functional.pad(lse * LOG2_E, (0, -n_queries % tile), value=torch.inf)
    delta = functional.pad((inputs[0].float() * o.float()).sum(-1), (0, -n_queries % tile))
    sources, described = _sources(inputs, (tile,) * 4, d_tile)
    tiles = max(query_tiles, key_tiles)
    _backward_kernel[(n_batches * tiles,)](
        *sources, lse2, delta, *gradients, *(stride for x in inputs for stride in x.stride()),
        tiles, query_tiles * tile, n_queries, n_keys, d, d**-0.5,
        DESCRIBED=described, IS_CAUSAL=is_causal, TILE=tile, D_TILE=d_tile,
        num_warps=settings.num_warps, num_stages=settings.num_stages,
    )  # fmt: skip
    return gradients
""",
            B_KERNELS="""\
@triton.jit
def _backward_kernel(
    go_src, q_src, k_src, v_src, lse2_ptr, delta_ptr, grad_q_ptr, grad_k_ptr, grad_v_ptr,
    stride_gob, stride_gon, stride_god, stride_qb, stride_qn, stride_qd,
    stride_kb, stride_kn, stride_kd, stride_vb, stride_vn, stride_vd,
    n_tiles, padded_queries, n_queries, n_keys, d, scale,
    DESCRIBED: tl.constexpr, IS_CAUSAL: tl.constexpr, TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    batch, first = tl.program_id(0) // n_tiles, tl.program_id(0) % n_tiles * TILE
    lse2_ptr += batch.to(tl.int64) * padded_queries
    delta_ptr += batch.to(tl.int64) * padded_queries
    own, scale2 = first + tl.arange(0, TILE), scale * 1.4426950408889634
    if first < n_keys:
        k = _load(k_src, batch, first, stride_kb, stride_kn, stride_kd, n_keys, d, DESCRIBED, TILE, D_TILE)
        v = _load(v_src, batch, first, stride_vb, stride_vn, stride_vd, n_keys, d, DESCRIBED, TILE, D_TILE)
        grad_k = tl.zeros((TILE, D_TILE), dtype=tl.float32)
        grad_v = tl.zeros((TILE, D_TILE), dtype=tl.float32)
        for start in range(first if IS_CAUSAL else 0, n_queries, TILE):
            queries = start + tl.arange(0, TILE)
            q = _load(q_src, batch, start, stride_qb, stride_qn, stride_qd, n_queries, d, DESCRIBED, TILE, D_TILE)
            go = _load(go_src, batch, start, stride_gob, stride_gon, stride_god, n_queries, d, DESCRIBED, TILE, D_TILE)
            # Rows of keys past the last hold anything: they mix with no other row and are not stored.
            p = tl.exp2(tl.dot(k, q.T) * scale2 - tl.load(lse2_ptr + queries)[None, :])  # (keys, queries)
            if IS_CAUSAL:
                p = tl.where(own[:, None] <= queries[None, :], p, 0.0)
            grad_s = p * (tl.dot(v, go.T) - tl.load(delta_ptr + queries)[None, :])
            grad_v += tl.dot(p.to(go.dtype), go)
            grad_k += tl.dot(grad_s.to(q.dtype), q)
        _store(grad_k_ptr, grad_k * scale, batch, first, n_keys, d, TILE, D_TILE)
        _store(grad_v_ptr, grad_v, batch, first, n_keys, d, TILE, D_TILE)
    if first < n_queries:
        q = _load(q_src, batch, first, stride_qb, stride_qn, stride_qd, n_queries, d, DESCRIBED, TILE, D_TILE)
        go = _load(go_src, batch, first, stride_gob, stride_gon, stride_god, n_queries, d, DESCRIBED, TILE, D_TILE)
        lse2, delta = tl.load(lse2_ptr + own), tl.load(delta_ptr + own)
        grad_q = tl.zeros((TILE, D_TILE), dtype=tl.float32)
        for start in range(0, tl.minimum(n_keys, first + TILE) if IS_CAUSAL else n_keys, TILE):
            keys = start + tl.arange(0, TILE)
            k = _load(k_src, batch, start, stride_kb, stride_kn, stride_kd, n_keys, d, DESCRIBED, TILE, D_TILE)
            v = _load(v_src, batch, start, stride_vb, stride_vn, stride_vd, n_keys, d, DESCRIBED, TILE, D_TILE)
            visible = (keys < n_keys)[None, :]
            if IS_CAUSAL:
                visible = visible & (keys[None, :] <= own[:, None])
            p = tl.where(visible, tl.exp2(tl.dot(q, k.T) * scale2 - lse2[:, None]), 0.0)  # (queries, keys)
            grad_s = p * (tl.dot(go, v.T) - delta[:, None])
            grad_q += tl.dot(grad_s.to(k.dtype), k)
        _store(grad_q_ptr, grad_q * scale, batch, first, n_queries, d, TILE, D_TILE)
""",
        ),
    ),
    style(  # flash-linear-attention's: guarded (contiguous) inputs, block pointers into (B, T, K), options that are off
        # told by arguments that are None, autotuned warps; V is split over the grid's first axis forward
        "attention_whole_linear_attention",
        *put(
            TRITON_FORWARD="""\
import functools

import triton.language.extra.libdevice as tldevice

USE_FAST_OPS = True
exp2 = tl.math.exp2 if USE_FAST_OPS else tldevice.exp2
log2 = tl.log2
RCP_LN2 = tl.constexpr(1.4426950216293335)
WARPS = [triton.Config({}, num_warps=num_warps, num_stages=1) for num_warps in (4, 8)]
tuned = triton.autotune(WARPS, key=["B", "K", "V", "BT", "BS", "BK", "BV", "IS_CAUSAL"])

def input_guard(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        guarded = (x.contiguous() if isinstance(x, torch.Tensor) else x for x in args)
        return fn(*guarded, **{k: v.contiguous() if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()})

    return wrapper

@input_guard
def flash_forward_triton(q, k, v, is_causal=False):
    _check(q, k, v)
    o, lse = torch.empty_like(q), torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if q.numel() > 0:
        sizes, BS = _sizes(q, k)
        grid = (1, triton.cdiv(sizes["TQ"], sizes["BT"]), sizes["B"])
        parallel_attn_fwd_kernel[grid](
            q, k, v, o, None, lse, q.shape[-1] ** -0.5, None, BS=BS, IS_CAUSAL=is_causal, **sizes
        )
    return o, lse

def _sizes(q, k):
    K = q.shape[-1]
    BK = max(16, triton.next_power_of_2(K))
    BT, BS = (64, 32) if BK * q.element_size() <= 256 else (32, 16) if BK * q.element_size() <= 512 else (16, 16)
    B = math.prod(q.shape[:-2])
    return {"B": B, "TQ": q.shape[-2], "TK": k.shape[-2], "K": K, "V": K, "BT": BT, "BK": BK, "BV": BK}, BS
""",
            KERNEL="""\
@triton.heuristics(
    {
        "USE_G": lambda args: args["g_cumsum"] is not None,
        "IS_VARLEN": lambda args: args["cu_seqlens"] is not None,
    }
)
@tuned
@triton.jit(do_not_specialize=["TQ", "TK"])
def parallel_attn_fwd_kernel(
    q, k, v, o, g_cumsum, lse, scale, cu_seqlens, TQ, TK,
    B: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr, BS: tl.constexpr,
    BK: tl.constexpr, BV: tl.constexpr, IS_CAUSAL: tl.constexpr, USE_G: tl.constexpr, IS_VARLEN: tl.constexpr,
):  # fmt: skip
    tl.static_assert(not USE_G and not IS_VARLEN)
    i_v, i_t, i_b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    p_q = tl.make_block_ptr(q + i_b * TQ * K, (TQ, K), (K, 1), (i_t * BT, 0), (BT, BK), (1, 0))
    p_o = tl.make_block_ptr(o + i_b * TQ * V, (TQ, V), (V, 1), (i_t * BT, i_v * BV), (BT, BV), (1, 0))
    p_lse = tl.make_block_ptr(lse + i_b * TQ, (TQ,), (1,), (i_t * BT,), (BT,), (0,))
    b_q = tl.load(p_q, boundary_check=(0, 1), padding_option="zero")
    b_o = tl.zeros([BT, BV], dtype=tl.float32)
    b_m = tl.full([BT], float("-inf"), dtype=tl.float32)
    b_acc = tl.zeros([BT], dtype=tl.float32)
    o_q = i_t * BT + tl.arange(0, BT)
    for i_s in range(0, min((i_t + 1) * BT, TK) if IS_CAUSAL else TK, BS):
        p_k = tl.make_block_ptr(k + i_b * TK * K, (K, TK), (1, K), (0, i_s), (BK, BS), (0, 1))
        p_v = tl.make_block_ptr(v + i_b * TK * V, (TK, V), (V, 1), (i_s, i_v * BV), (BS, BV), (1, 0))
        o_k = i_s + tl.arange(0, BS)
        m_k = o_k < TK
        b_k = tl.load(p_k, boundary_check=(0, 1), padding_option="zero")
        b_v = tl.load(p_v, boundary_check=(0, 1), padding_option="zero")
        b_s = tl.dot(b_q, b_k) * scale * RCP_LN2
        m_s = (o_q[:, None] >= o_k[None, :]) & m_k[None, :] if IS_CAUSAL else (o_q[:, None] >= 0) & m_k[None, :]
        b_s = tl.where(m_s, b_s, float("-inf"))
        b_m, b_mp = tl.maximum(b_m, tl.max(b_s, 1)), b_m
        b_r = exp2(b_mp - b_m)
        b_p = exp2(b_s - b_m[:, None])
        b_acc = b_acc * b_r + tl.sum(b_p, 1)
        b_o = b_o * b_r[:, None] + tl.dot(b_p.to(b_q.dtype), b_v)
    b_o = b_o / b_acc[:, None]
    tl.store(p_o, b_o.to(p_o.dtype.element_ty), boundary_check=(0, 1))
    if i_v == 0:
        b_m += log2(b_acc)
        tl.store(p_lse, (b_m / RCP_LN2).to(p_lse.dtype.element_ty), boundary_check=(0,))
""",
            TRITON_BACKWARD="""\
from .triton_forward import RCP_LN2, _sizes, exp2, input_guard, tuned

@input_guard
def flash_backward_triton(grad_o, q, k, v, o, lse, is_causal=False):
    _check(grad_o, q, k, v, o, lse)
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    if q.numel() == 0:
        return dq, dk, dv
    sizes, BS = _sizes(q, k)
    delta = torch.empty_like(lse)
    parallel_attn_bwd_kernel_preprocess[(delta.numel(),)](o, grad_o, delta, B=sizes["BV"], V=sizes["V"])
    scale = q.shape[-1] ** -0.5
    rest = {**sizes, "IS_CAUSAL": is_causal}
    parallel_attn_bwd_kernel_dq[(1, triton.cdiv(sizes["TQ"], sizes["BT"]), sizes["B"])](
        q, k, v, lse, delta, grad_o, dq, scale, None, BS=BS, **rest
    )
    parallel_attn_bwd_kernel_dkv[(1, triton.cdiv(sizes["TK"], sizes["BT"]), sizes["B"])](
        q, k, v, lse, delta, grad_o, dk, dv, scale, None, BS=BS, **rest
    )
    return dq, dk, dv
""",
            B_KERNELS="""\
@triton.jit
def parallel_attn_bwd_kernel_preprocess(o, do, delta, B: tl.constexpr, V: tl.constexpr):
    i_n = tl.program_id(0).to(tl.int64)
    o_d = tl.arange(0, B)
    m_d = o_d < V
    b_o = tl.load(o + i_n * V + o_d, mask=m_d, other=0)
    b_do = tl.load(do + i_n * V + o_d, mask=m_d, other=0).to(tl.float32)
    tl.store(delta + i_n, tl.sum(b_o * b_do).to(delta.dtype.element_ty))

@triton.heuristics({"USE_G": lambda args: args["g_cumsum"] is not None})
@tuned
@triton.jit(do_not_specialize=["TQ", "TK"])
def parallel_attn_bwd_kernel_dq(
    q, k, v, lse, delta, do, dq, scale, g_cumsum, TQ, TK,
    B: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr, BS: tl.constexpr,
    BK: tl.constexpr, BV: tl.constexpr, IS_CAUSAL: tl.constexpr, USE_G: tl.constexpr,
):  # fmt: skip
    tl.static_assert(not USE_G and BV >= V)
    i_t, i_b = tl.program_id(1), tl.program_id(2).to(tl.int64)
    p_q = tl.make_block_ptr(q + i_b * TQ * K, (TQ, K), (K, 1), (i_t * BT, 0), (BT, BK), (1, 0))
    p_dq = tl.make_block_ptr(dq + i_b * TQ * K, (TQ, K), (K, 1), (i_t * BT, 0), (BT, BK), (1, 0))
    p_do = tl.make_block_ptr(do + i_b * TQ * V, (TQ, V), (V, 1), (i_t * BT, 0), (BT, BV), (1, 0))
    p_lse = tl.make_block_ptr(lse + i_b * TQ, (TQ,), (1,), (i_t * BT,), (BT,), (0,))
    p_delta = tl.make_block_ptr(delta + i_b * TQ, (TQ,), (1,), (i_t * BT,), (BT,), (0,))
    b_q = tl.load(p_q, boundary_check=(0, 1), padding_option="zero")
    b_do = tl.load(p_do, boundary_check=(0, 1), padding_option="zero")
    b_lse = tl.load(p_lse, boundary_check=(0,), padding_option="zero")
    b_delta = tl.load(p_delta, boundary_check=(0,), padding_option="zero")
    b_dq = tl.zeros([BT, BK], dtype=tl.float32)
    o_q = i_t * BT + tl.arange(0, BT)
    for i_s in range(0, min((i_t + 1) * BT, TK) if IS_CAUSAL else TK, BS):
        p_k = tl.make_block_ptr(k + i_b * TK * K, (TK, K), (K, 1), (i_s, 0), (BS, BK), (1, 0))
        p_v = tl.make_block_ptr(v + i_b * TK * V, (V, TK), (1, V), (0, i_s), (BV, BS), (0, 1))
        b_k = tl.load(p_k, boundary_check=(0, 1), padding_option="zero")
        b_v = tl.load(p_v, boundary_check=(0, 1), padding_option="zero")
        o_k = i_s + tl.arange(0, BS)
        m_s = (o_q[:, None] < TQ) & (o_k[None, :] < TK)
        if IS_CAUSAL:
            m_s &= o_q[:, None] >= o_k[None, :]
        b_s = (tl.dot(b_q, tl.trans(b_k)) * scale - b_lse[:, None]) * RCP_LN2
        b_p = tl.where(m_s, exp2(b_s), 0)
        b_dp = tl.dot(b_do, b_v)
        b_ds = b_p * (b_dp.to(tl.float32) - b_delta[:, None])
        b_dq += tl.dot(b_ds.to(b_k.dtype), b_k)
    tl.store(p_dq, (b_dq * scale).to(p_dq.dtype.element_ty), boundary_check=(0, 1))

@triton.heuristics({"USE_G": lambda args: args["g_cumsum"] is not None})
@tuned
@triton.jit(do_not_specialize=["TQ", "TK"])
def parallel_attn_bwd_kernel_dkv(
    q, k, v, lse, delta, do, dk, dv, scale, g_cumsum, TQ, TK,
    B: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr, BS: tl.constexpr,
    BK: tl.constexpr, BV: tl.constexpr, IS_CAUSAL: tl.constexpr, USE_G: tl.constexpr,
):  # fmt: skip
    tl.static_assert(not USE_G and BV >= V)
    i_t, i_b = tl.program_id(1), tl.program_id(2).to(tl.int64)
    p_k = tl.make_block_ptr(k + i_b * TK * K, (TK, K), (K, 1), (i_t * BT, 0), (BT, BK), (1, 0))
    p_v = tl.make_block_ptr(v + i_b * TK * V, (TK, V), (V, 1), (i_t * BT, 0), (BT, BV), (1, 0))
    p_dk = tl.make_block_ptr(dk + i_b * TK * K, (TK, K), (K, 1), (i_t * BT, 0), (BT, BK), (1, 0))
    p_dv = tl.make_block_ptr(dv + i_b * TK * V, (TK, V), (V, 1), (i_t * BT, 0), (BT, BV), (1, 0))
    b_k = tl.load(p_k, boundary_check=(0, 1), padding_option="zero")
    b_v = tl.load(p_v, boundary_check=(0, 1), padding_option="zero")
    b_dk = tl.zeros([BT, BK], dtype=tl.float32)
    b_dv = tl.zeros([BT, BV], dtype=tl.float32)
    o_k = i_t * BT + tl.arange(0, BT)
    for i_s in range(i_t * BT if IS_CAUSAL else 0, TQ, BS):
        p_q = tl.make_block_ptr(q + i_b * TQ * K, (TQ, K), (K, 1), (i_s, 0), (BS, BK), (1, 0))
        p_do = tl.make_block_ptr(do + i_b * TQ * V, (TQ, V), (V, 1), (i_s, 0), (BS, BV), (1, 0))
        p_lse = tl.make_block_ptr(lse + i_b * TQ, (TQ,), (1,), (i_s,), (BS,), (0,))
        p_delta = tl.make_block_ptr(delta + i_b * TQ, (TQ,), (1,), (i_s,), (BS,), (0,))
        b_q = tl.load(p_q, boundary_check=(0, 1), padding_option="zero")
        b_do = tl.load(p_do, boundary_check=(0, 1), padding_option="zero")
        b_lse = tl.load(p_lse, boundary_check=(0,), padding_option="zero")
        b_delta = tl.load(p_delta, boundary_check=(0,), padding_option="zero")
        o_q = i_s + tl.arange(0, BS)
        m_s = (o_k[:, None] < TK) & (o_q[None, :] < TQ)
        if IS_CAUSAL:
            m_s &= o_k[:, None] <= o_q[None, :]
        b_s = (tl.dot(b_k, tl.trans(b_q)) * scale - b_lse[None, :]) * RCP_LN2
        b_p = tl.where(m_s, exp2(b_s), 0)
        b_dv += tl.dot(b_p.to(b_do.dtype), b_do)
        b_dp = tl.dot(b_v, tl.trans(b_do))
        b_ds = b_p * (b_dp - b_delta[None, :])
        b_dk += tl.dot(b_ds.to(b_q.dtype), b_q)
    tl.store(p_dk, (b_dk * scale).to(p_dk.dtype.element_ty), boundary_check=(0, 1))
    tl.store(p_dv, b_dv.to(p_dv.dtype.element_ty), boundary_check=(0, 1))
""",
        ),
    ),
    style(  # FlashAttention's own first one: heuristics that leave masks out, a scratch buffer that vectors go through,
        # lse in place of the sum; dq by atomics, or by load and store: the tuner chooses, and its hook clears dq
        "attention_whole_old_triton",
        *put(
            LAUNCH="""\
    d_tile = max(16, triton.next_power_of_2(d))
    tile = 64 if d_tile * q.element_size() <= 256 else 32 if d_tile * q.element_size() <= 512 else 16
    tmp = torch.empty((n_batches, math.ceil(n_queries / 128) * 128), device=q.device, dtype=torch.float32)
    if n_batches > 0:
        _forward_kernel[lambda META: (n_batches, triton.cdiv(n_queries, META["Q_TILE_SIZE"]))](
            q, k, v, o, lse, tmp, *q.stride(), *k.stride(), *v.stride(), *o.stride(), *lse.stride(), tmp.stride(0),
            n_queries, n_keys, d, scale, is_causal, tile, tile, d_tile, num_warps=4, num_stages=1,
        )  # fmt: skip
""",
            KERNEL="""\
@triton.jit
def _load(ptrs, rows, cols, n_rows, n_cols, EVEN_ROWS: tl.constexpr, EVEN_HEADDIM: tl.constexpr):
    if EVEN_ROWS & EVEN_HEADDIM:
        x = tl.load(ptrs)
    elif EVEN_ROWS:
        x = tl.load(ptrs, mask=cols[None, :] < n_cols, other=0.0)
    elif EVEN_HEADDIM:
        x = tl.load(ptrs, mask=rows[:, None] < n_rows, other=0.0)
    else:
        x = tl.load(ptrs, mask=(rows[:, None] < n_rows) & (cols[None, :] < n_cols), other=0.0)
    return x

@triton.jit
def _through_memory(ptrs, x):
    tl.debug_barrier()
    tl.store(ptrs, x)
    tl.debug_barrier()
    return tl.load(ptrs)

even = triton.heuristics(
    {
        "EVEN_M": lambda args: args["n_queries"] % args["Q_TILE_SIZE"] == 0,
        "EVEN_N": lambda args: args["n_keys"] % args["K_TILE_SIZE"] == 0,
        "EVEN_HEADDIM": lambda args: args["d"] == args["D_TILE_SIZE"],
    }
)

@even
"""
            + parts.changed(
                parts.KERNEL,
                (
                    parts.VISIBLE + parts.SOFTMAX,
                    """\
        if not EVEN_N:
            s += tl.where(key_mask[None, :], 0, float("-inf"))
        if IS_CAUSAL:
            s += tl.where(queries[:, None] >= keys[None, :], 0, float("-inf"))
        m_ij = tl.maximum(tl.max(s, 1) * scale, lse)
        p = tl.exp(s * scale - m_ij[:, None])
        acc = acc * _through_memory(tmp_ptrs, tl.exp(row_max - m_ij))[:, None]
        acc += tl.dot(p.to(v.dtype), v)
        row_max = m_ij
        lse = m_ij + tl.log(tl.exp(lse - m_ij) + tl.sum(p, 1))
""",
                ),
                *lines("""
                    lse_ptr,⏎ → lse_ptr, tmp_ptr,⏎
                    stride_lb, stride_ln, → stride_lb, stride_ln, stride_tb,
                    D_TILE_SIZE: tl.constexpr, → D_TILE_SIZE: tl.constexpr, EVEN_M: tl.constexpr,
                        EVEN_N: tl.constexpr, EVEN_HEADDIM: tl.constexpr,
                    tl.load(q_ptrs, mask=q_mask, other=0.0) →
                        _load(q_ptrs, queries, cols, n_queries, d, EVEN_M, EVEN_HEADDIM)
                    tl.load(k_ptrs, mask=k_mask, other=0.0) → _load(k_ptrs, keys, cols, n_keys, d, EVEN_N, EVEN_HEADDIM)
                    tl.load(v_ptrs, mask=v_mask, other=0.0) → _load(v_ptrs, keys, cols, n_keys, d, EVEN_N, EVEN_HEADDIM)
                    row_sum = tl.zeros((Q_TILE_SIZE,), dtype=tl.float32) →
                        lse = row_max⏎    tmp_ptrs = tmp_ptr + batch * stride_tb + queries
                    s = tl.dot(q, tl.trans(k)) * scale → s = tl.dot(q, tl.trans(k))
                    o = acc / row_sum[:, None] → o = acc * _through_memory(tmp_ptrs, tl.exp(row_max - lse))[:, None]
                    lse = row_max + tl.log(row_sum)⏎    lse_ptrs → lse_ptrs
                """),
            ),
            B_LAUNCH="""\
    n_rounded = math.ceil(n_queries / 128) * 128
    lse_ = torch.full((n_batches, n_rounded), torch.inf, dtype=torch.float32, device=q.device)
    lse_[:, :n_queries] = lse
    delta = functional.pad((grad_o.float() * o.float()).sum(-1), (0, n_rounded - n_queries))
    d_tile = max(16, triton.next_power_of_2(d))
    tile = 64 if d_tile * q.element_size() <= 256 else 32 if d_tile * q.element_size() <= 512 else 16
    tensors = grad_o, q, k, v, lse_, delta, grad_q, grad_k, grad_v

    def grid(META):
        return n_batches, triton.cdiv(n_keys, META["K_TILE_SIZE"]) if META["SEQUENCE_PARALLEL"] else 1

    if n_batches > 0:
        _backward_kernel[grid](
            *tensors, *(stride for x in tensors for stride in x.stride()), n_queries, n_keys, d, scale,
            n_queries // 32, n_keys // 32, is_causal, tile, tile, d_tile,
        )  # fmt: skip
""",
            B_KERNELS="""\
from torch.nn import functional

from .triton_forward import _load, even

def init_to_zero(name):
    return lambda nargs: nargs[name].zero_()

CONFIGS = [
    triton.Config({"SEQUENCE_PARALLEL": way}, num_warps=4, num_stages=1, pre_hook=init_to_zero("grad_q_ptr"))
    for way in (False, True)
]

@triton.autotune(configs=CONFIGS, key=["CACHE_KEY_SEQLEN_Q", "CACHE_KEY_SEQLEN_K", "IS_CAUSAL", "D_TILE_SIZE"])
@even
@triton.jit
"""
            + parts.changed(
                parts.B_KERNELS[parts.B_KERNELS.index("def _backward_kernel") :],
                (
                    "    first_key = tl.program_id(1) * K_TILE_SIZE\n" + parts.B_TILE,
                    """\
    first = tl.program_id(1) if SEQUENCE_PARALLEL else 0
    last = first + 1 if SEQUENCE_PARALLEL else tl.cdiv(n_keys, K_TILE_SIZE)
    for start_n in range(first, last):
        tl.debug_barrier()  # what one block has stored to grad_q the next one loads
        first_key = start_n * K_TILE_SIZE
"""
                    + textwrap.indent(parts.B_TILE, "    "),
                ),
                (
                    "            tl.atomic_add(grad_q_ptrs, grad_q, mask=q_mask)\n",
                    """\
            if SEQUENCE_PARALLEL:
                tl.atomic_add(grad_q_ptrs, grad_q, mask=q_mask)
            else:
                grad_q += tl.load(grad_q_ptrs, mask=q_mask, other=0.0, eviction_policy="evict_last")
                tl.store(grad_q_ptrs, grad_q, mask=q_mask, eviction_policy="evict_last")
""",
                ),
                *lines("""
                    d, scale, → d, scale, CACHE_KEY_SEQLEN_Q, CACHE_KEY_SEQLEN_K,
                    D_TILE_SIZE: tl.constexpr, → D_TILE_SIZE: tl.constexpr, SEQUENCE_PARALLEL: tl.constexpr,
                        EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, EVEN_HEADDIM: tl.constexpr,
                    tl.load(k_ptrs, mask=k_mask, other=0.0) → _load(k_ptrs, keys, cols, n_keys, d, EVEN_N, EVEN_HEADDIM)
                    tl.load(v_ptrs, mask=k_mask, other=0.0) → _load(v_ptrs, keys, cols, n_keys, d, EVEN_N, EVEN_HEADDIM)
                    tl.load(q_ptrs, mask=q_mask, other=0.0) →
                        _load(q_ptrs, queries, cols, n_queries, d, EVEN_M, EVEN_HEADDIM)
                    tl.load(grad_o_ptrs, mask=q_mask, other=0.0) →
                        _load(grad_o_ptrs, queries, cols, n_queries, d, EVEN_M, EVEN_HEADDIM)
                    tl.load(lse_ptrs, mask=query_mask, other=0.0) → tl.load(lse_ptrs)
                    tl.load(delta_ptrs, mask=query_mask, other=0.0) → tl.load(delta_ptrs)
                    s = tl.dot(q, tl.trans(k)) * scale⏎            visible = query_mask[:, None] & key_mask[None, :] →
                        s = tl.dot(q, tl.trans(k))⏎            visible = key_mask[None, :]
                    p = tl.exp(s - lse → p = tl.exp(s * scale - lse
                    grad_s = p * (grad_p - delta[:, None]) →
                        grad_s = (p * (grad_p - delta[:, None]) * scale).to(q.dtype)
                    tl.dot(tl.trans(grad_s.to(q.dtype)), q) * scale → tl.dot(tl.trans(grad_s), q)
                    tl.dot(grad_s.to(k.dtype), k) * scale → tl.dot(grad_s, k)
                """),
            ),
        ),
        ("grad_q = torch.zeros(", "grad_q = torch.empty("),
    ),
)
