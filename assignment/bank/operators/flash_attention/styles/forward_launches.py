"""Right forward passes whose tensors and launches are handed over in another way than the base's."""

from assignment.bank.operators.edits import style
from assignment.bank.operators.flash_attention.styles import parts
from assignment.bank.operators.flash_attention.styles.parts import before, lines, put

PROBLEMS = ("flash_forward_triton",)
FILES = ("triton_forward.py",)

STYLES = (
    style(  # tile sizes found by trying, heuristics for the width of a tile and whether the last one of keys is full
        "forward_autotuned",
        *put(
            LAUNCH="""\
    def grid(meta):
        return n_batches, triton.cdiv(meta["n_queries"], meta["Q_TILE_SIZE"])

    if n_batches > 0:
        _forward_kernel[grid](
            q, k, v, o, lse, *q.stride(), *k.stride(), *v.stride(), *o.stride(), *lse.stride(),
            n_queries=n_queries, n_keys=n_keys, d=d, scale=scale, IS_CAUSAL=is_causal,
        )  # fmt: skip
""",
            JIT="""\
# The first fits whatever d is; the others are dropped where rows are long.
CONFIGS = [
    triton.Config({"Q_TILE_SIZE": 32, "K_TILE_SIZE": 32}, num_warps=4, num_stages=1),
    triton.Config({"Q_TILE_SIZE": 64, "K_TILE_SIZE": 32}, num_warps=4, num_stages=2),
    triton.Config({"Q_TILE_SIZE": 128, "K_TILE_SIZE": 64}, num_warps=8, num_stages=2),
]

def _fits(configs, named_args, **kwargs):
    row_bytes = max(16, triton.next_power_of_2(kwargs["d"])) * named_args["q_ptr"].element_size()
    rows = {c: c.kwargs["Q_TILE_SIZE"] + 2 * c.num_stages * c.kwargs["K_TILE_SIZE"] for c in configs}
    return [c for c in configs if rows[c] * row_bytes <= 128 * 1024]

@triton.autotune(CONFIGS, key=["n_queries", "n_keys", "d", "IS_CAUSAL"], prune_configs_by={"early_config_prune": _fits})
@triton.heuristics(
    {
        "D_TILE_SIZE": lambda args: max(16, triton.next_power_of_2(args["d"])),
        "EVEN_KEYS": lambda args: args["n_keys"] % args["K_TILE_SIZE"] == 0,
    }
)
@triton.jit
""",
            VISIBLE="""\
        if not EVEN_KEYS:
            s = tl.where(key_mask[None, :], s, float("-inf"))
        if IS_CAUSAL:
            s = tl.where(keys[None, :] <= queries[:, None], s, float("-inf"))
""",
        ),
        *lines("""
            D_TILE_SIZE: tl.constexpr, → D_TILE_SIZE: tl.constexpr, EVEN_KEYS: tl.constexpr,
            k_mask = key_mask[:, None] & col_mask[None, :] →
                k_mask = col_mask[None, :] if EVEN_KEYS else key_mask[:, None] & col_mask[None, :]
            v_mask = key_mask[:, None] & col_mask[None, :] → v_mask = k_mask
        """),
    ),
    style(  # launch plans as classes: a dataclass cached by shape, an enumeration of precisions, NumPy's square root
        "forward_launch_classes",
        *put(
            LAUNCH="""\
    if n_batches:
        Plan.of(d, q.dtype).launch(q, k, v, o, lse, is_causal=is_causal)
""",
        ),
        *before(
            CHECK="""\
class Precision(enum.Enum):
    EXACT = "ieee"
    TF32 = "tf32"

@dataclass(frozen=True)
class Plan:
    block: int
    block_d: int
    precision: Precision

    @classmethod
    @functools.cache
    def of(cls, d, dtype):
        padded = max(16, triton.next_power_of_2(d))
        match dtype, padded:
            case torch.float32, _:
                return cls(32, padded, Precision.EXACT)
            case _, 16 | 32 | 64:
                return cls(64, padded, Precision.TF32)
            case _:
                return cls(32, padded, Precision.TF32)

    def launch(self, *tensors, is_causal):
        q, k, v, o, lse = tensors
        n_batches, n_queries, d = q.shape
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.cuda.device(q.device))
            stack.enter_context(torch.cuda.nvtx.range("flash_forward"))
            _forward_kernel[n_batches, triton.cdiv(n_queries, self.block)](
                *tensors, *q.stride(), *k.stride(), *v.stride(), *o.stride(), *lse.stride(),
                n_queries, k.shape[1], d, 1 / np.sqrt(d), IS_CAUSAL=bool(is_causal), MODE=self.precision.value,
                Q_TILE_SIZE=self.block, K_TILE_SIZE=self.block, D_TILE_SIZE=self.block_d,
            )  # fmt: skip
""",
        ),
        *lines("""
            import math⏎⏎ →
                import contextlib⏎import enum⏎import functools⏎import math⏎from
                dataclasses import dataclass⏎⏎import numpy as np⏎
            D_TILE_SIZE: tl.constexpr, → D_TILE_SIZE: tl.constexpr, MODE: tl.constexpr,
            tl.dot(q, tl.trans(k)) → tl.dot(q, tl.trans(k), input_precision=MODE)
            tl.dot(p.to(v.dtype), v) → tl.dot(p.to(v.dtype), v, input_precision=MODE)
        """),
    ),
    style(  # copies of whole tiles in place of masks; the results are views of padded ones
        "forward_padded",
        *put(
            HOST="""\
    q, k, v = _pad(q, 64), _pad(k, 32), _pad(v, 32)
    o = torch.empty_like(q)
    lse = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
""",
            LAUNCH="""\
    if n_batches > 0:
        _forward_kernel[n_batches, q.shape[1] // 64](
            q, k, v, o, lse, *q.stride(), *k.stride(), *v.stride(), *o.stride(), *lse.stride(),
            n_queries, n_keys, d, scale, IS_CAUSAL=is_causal, Q_TILE_SIZE=64, K_TILE_SIZE=32, D_TILE_SIZE=q.shape[2],
            num_warps=4 if q.shape[2] <= 64 else 8, num_stages=2 if q.shape[2] <= 64 else 1,
        )  # fmt: skip
    o = o[:, :n_queries, :d].unflatten(0, (*batch, 1)).squeeze(-3)
    return o, lse[:, :n_queries].unflatten(0, (*batch, 1)).squeeze(-2)
""",
        ),
        *before(
            CHECK="""\
def _pad(x, tile_size):
    n, d = x.shape[-2:]
    d_padded = max(16, 1 << (d - 1).bit_length())
    x = x.reshape(x.shape[:-2].numel(), n, d)
    return functional.pad(x, (0, d_padded - d, 0, -n % tile_size)).contiguous()
""",
        ),
        *put(
            LOOP="""\
    kv_tile = tl.arange(0, K_TILE_SIZE)[:, None] * D_TILE_SIZE + cols[None, :]
    k_ptr += batch * stride_kb
    v_ptr += batch * stride_vb
    for first_key in range(0, end, K_TILE_SIZE):
        k = tl.load(k_ptr + kv_tile)
        v = tl.load(v_ptr + kv_tile)
        s = tl.dot(q, k.T, out_dtype=tl.float32) * scale
        last_visible = n_keys - 1 - first_key  # of the keys of this tile
        if IS_CAUSAL:
            last_visible = tl.minimum(last_visible, queries - first_key)[:, None]
        s = tl.where(tl.arange(0, K_TILE_SIZE)[None, :] <= last_visible, s, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(s, axis=1))
        rescale = tl.exp(row_max - new_max)
        p = tl.exp(s - new_max[:, None])
        row_sum = tl.fma(row_sum, rescale, tl.sum(p, axis=1))
        acc = tl.dot(p.to(v.dtype), v, acc=acc * rescale[:, None])
        row_max = new_max
        k_ptr += K_TILE_SIZE * D_TILE_SIZE
        v_ptr += K_TILE_SIZE * D_TILE_SIZE
""",
        ),
        *lines("""
            import torch⏎ → import torch⏎from torch.nn import functional⏎
            tl.load(q_ptrs, mask=q_mask, other=0.0) → tl.load(q_ptrs)
            o.to(o_ptr.dtype.element_ty), mask=o_mask → o.to(o_ptr.dtype.element_ty)
            tl.store(lse_ptrs, lse, mask=query_mask) → tl.store(lse_ptrs, lse)
        """),
    ),
    style(  # descriptors (TMA): inputs that are not aligned to 16 bytes are copied first; o is a view of padded rows
        "forward_descriptors",
        *put(
            LAUNCH="""\
    if n_batches > 0:
        q, k, v = _aligned(q), _aligned(k), _aligned(v)
        o = torch.empty(n_batches, n_queries, d + -d % (16 // q.element_size()), dtype=q.dtype, device=q.device)
        d_tile = max(16, triton.next_power_of_2(d))
        tile = 64 if d_tile * q.element_size() <= 256 else 32
        # On a GPU the kernel writes its descriptors to memory that the host provides.
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=lse.device))
        _forward_kernel[n_batches, triton.cdiv(n_queries, tile)](
            q, k, v, o, lse, *q.stride(), *k.stride(), *v.stride(), *o.stride(), *lse.stride(),
            n_queries, n_keys, d, scale, IS_CAUSAL=is_causal, Q_TILE_SIZE=tile, K_TILE_SIZE=tile, D_TILE_SIZE=d_tile,
            num_warps=4, num_stages=2 if d_tile <= 64 else 1,
        )  # fmt: skip
        o = o[..., :d]
""",
        ),
        *before(
            CHECK="""\
def _aligned(x):
    unit = 16 // x.element_size()
    *outer, inner = x.stride()
    rows_fit = inner == 1 and all(stride > 0 and stride % unit == 0 for stride in outer)
    if rows_fit and x.data_ptr() % 16 == 0:
        return x
    return functional.pad(x, (0, -x.shape[-1] % unit)).clone(memory_format=torch.contiguous_format)
""",
        ),
        *put(
            Q_LOAD="""\
    tile_of_q: tl.constexpr = [Q_TILE_SIZE, D_TILE_SIZE]
    q_desc = tl.make_tensor_descriptor(q_ptr + batch * stride_qb, [n_queries, d], [stride_qn, 1], tile_of_q)
    o_desc = tl.make_tensor_descriptor(o_ptr + batch * stride_ob, [n_queries, d], [stride_on, 1], tile_of_q)
    tile_of_k: tl.constexpr = [K_TILE_SIZE, D_TILE_SIZE]
    k_desc = tl.make_tensor_descriptor(k_ptr + batch * stride_kb, [n_keys, d], [stride_kn, 1], tile_of_k)
    v_desc = tl.make_tensor_descriptor(v_ptr + batch * stride_vb, [n_keys, d], [stride_vn, 1], tile_of_k)
    q = q_desc.load([first_query, 0])
""",
        ),
        (parts.K_LOAD, "        k = k_desc.load([first_key, 0])\n"),
        (parts.V_LOAD, "        v = v_desc.load([first_key, 0])\n"),
        (parts.O_STORE, "    o_desc.store([first_query, 0], o.to(o_ptr.dtype.element_ty))\n"),
        *lines("""
            import torch⏎ → import torch⏎from torch.nn import functional⏎
            tl.trans(k) → k.T
        """),
    ),
    style(  # block pointers that advance along the keys, that of k for its transpose; boundary checks fill with zeros
        "forward_block_pointers",
        *put(
            Q_LOAD="""\
    q_block = tl.make_block_ptr(
        q_ptr + batch * stride_qb, (n_queries, d), (stride_qn, stride_qd),
        (first_query, 0), (Q_TILE_SIZE, D_TILE_SIZE), (1, 0),
    )  # fmt: skip
    k_block = tl.make_block_ptr(
        k_ptr + batch * stride_kb, (d, n_keys), (stride_kd, stride_kn),
        (0, 0), (D_TILE_SIZE, K_TILE_SIZE), (0, 1),
    )  # fmt: skip
    v_block = tl.make_block_ptr(
        v_ptr + batch * stride_vb, (n_keys, d), (stride_vn, stride_vd),
        (0, 0), (K_TILE_SIZE, D_TILE_SIZE), (1, 0),
    )  # fmt: skip
    o_block = tl.make_block_ptr(
        o_ptr + batch * stride_ob, (n_queries, d), (stride_on, stride_od),
        (first_query, 0), (Q_TILE_SIZE, D_TILE_SIZE), (1, 0),
    )  # fmt: skip
    lse_block = tl.make_block_ptr(
        lse_ptr + batch * stride_lb, (n_queries,), (stride_ln,), (first_query,), (Q_TILE_SIZE,), (0,)
    )
    q = tl.load(q_block, boundary_check=(0, 1), padding_option="zero")
""",
        ),
        (parts.K_LOAD, '        k = tl.load(k_block, boundary_check=(0, 1), padding_option="zero")\n'),
        (parts.V_LOAD, '        v = tl.load(v_block, boundary_check=(0, 1), padding_option="zero")\n'),
        (parts.O_STORE, "    tl.store(o_block, o.to(o_ptr.dtype.element_ty), boundary_check=(0, 1))\n"),
        (parts.LSE_STORE, "    tl.store(lse_block, lse, boundary_check=(0,))\n"),
        *lines("""
            tl.trans(k) → k
            row_max = new_max →
                row_max = new_max⏎        k_block = tl.advance(k_block, (0, K_TILE_SIZE))⏎        v_block =
                tl.advance(v_block, (K_TILE_SIZE, 0))
        """),
    ),
    style(  # LightLLM's: requests lie end to end in (tokens, heads, d), tables say where each begins and its length;
        # o is normalised in each step and returned as a view
        "forward_start_locations",
        *put(
            HOST="""\
    heads = q.shape[-3] if q.ndim > 3 else 1
    n_requests = n_batches // heads if heads else 0
    if n_batches == 0:
        return torch.empty_like(q), torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    lengths = [torch.full((n_requests,), n, dtype=torch.int32, device=q.device) for n in (n_queries, n_keys)]
    starts = [torch.arange(n_requests, dtype=torch.int64, device=q.device) * n for n in (n_queries, n_keys)]
    # (tokens of all requests, heads, d), of (..., heads, n, d)
    q, k, v = (x.reshape(-1, heads, *x.shape[-2:]).transpose(1, 2).flatten(0, 1) for x in (q, k, v))
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty((heads, len(q)), dtype=torch.float32, device=q.device)
""",
            LAUNCH="""\
    d_tile = max(16, triton.next_power_of_2(d))
    tile = 64 if d_tile * q.element_size() <= 256 else 32 if d_tile * q.element_size() <= 512 else 16
    _forward_kernel[n_requests, heads, triton.cdiv(n_queries, tile)](
        q, k, v, o, lse, *starts, *lengths, *q.stride(), *k.stride(), *v.stride(), *o.stride(), *lse.stride(), d, scale,
        IS_CAUSAL=is_causal, Q_TILE_SIZE=tile, K_TILE_SIZE=tile, D_TILE_SIZE=d_tile, num_warps=4, num_stages=1,
    )  # fmt: skip
    o = o.unflatten(0, (n_requests, -1)).transpose(1, 2)
    lse = lse.unflatten(1, (n_requests, -1)).transpose(0, 1)
""",
            SIGNATURE="""\
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, q_start_ptr, k_start_ptr, q_len_ptr, k_len_ptr,
    stride_qn, stride_qb, stride_qd, stride_kn, stride_kb, stride_kd, stride_vn, stride_vb, stride_vd,
    stride_on, stride_ob, stride_od, stride_lb, stride_ln, d, scale,
    IS_CAUSAL: tl.constexpr, Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    request = tl.program_id(0)
    q_start, k_start = tl.load(q_start_ptr + request), tl.load(k_start_ptr + request)
    n_queries, n_keys = tl.load(q_len_ptr + request), tl.load(k_len_ptr + request)
""",
            SOFTMAX="""\
        new_max = tl.maximum(row_max, tl.max(s, 1))
        p = tl.exp(s - new_max[:, None])
        rescale = tl.exp(row_max - new_max)
        new_sum = rescale * row_sum + tl.sum(p, 1)
        acc = acc * (row_sum / new_sum * rescale)[:, None]
        acc += tl.dot(p.to(v.dtype), v) / new_sum[:, None]
        row_sum = new_sum
        row_max = new_max
""",
        ),
        *lines("""
            batch = tl.program_id(0) → batch = tl.program_id(1)
            first_query = tl.program_id(1) → first_query = tl.program_id(2)
            queries[:, None] * stride_qn → (q_start + queries[:, None]) * stride_qn
            keys[:, None] * stride_kn → (k_start + keys[:, None]) * stride_kn
            keys[:, None] * stride_vn → (k_start + keys[:, None]) * stride_vn
            queries[:, None] * stride_on → (q_start + queries[:, None]) * stride_on
            queries * stride_ln → (q_start + queries) * stride_ln
            for first_key in range(0, end, K_TILE_SIZE): → has_queries = tl.where(first_query < n_queries, 1,
                0)⏎    for first_key in range(0, has_queries * end, K_TILE_SIZE):⏎        first_key =
                tl.multiple_of(first_key, K_TILE_SIZE)
            o = acc / row_sum[:, None] → o = acc
        """),
    ),
    style(  # FlexAttention's: a jit function given to the kernel says what is visible, tables which blocks of keys each
        # block of queries has to visit, whole ones and partial ones apart
        "forward_flex",
        *put(
            LAUNCH="""\
    head_dim = max(16, triton.next_power_of_2(d))
    block = next(block for limit, block in BLOCKS if head_dim * q.element_size() <= limit)
    if n_batches > 0:
        partial, full = _block_mask(n_queries, n_keys, block, is_causal, q.device)
        _flex_kernel[partial[0].numel(), n_batches](
            q, k, v, o, lse, *partial, *full, *q.stride(), *k.stride(), *v.stride(),
            n_queries, n_keys, d, partial[1].stride(0),
            SM_SCALE=scale, MASK_MOD=causal_mask if is_causal else no_mask, SCORE_MOD=identity,
            BLOCK=block, HEAD_DIM=head_dim, num_warps=4, num_stages=1,
        )  # fmt: skip
""",
            KERNEL="""\
BLOCKS = ((256, 64), (512, 32), (1024, 16))  # up to so many bytes of a row: the block of queries and of keys

def _block_mask(n_queries, n_keys, block, is_causal, device):
    q_blocks = torch.arange(triton.cdiv(n_queries, block), dtype=torch.int32, device=device)
    kv_idx = torch.arange(triton.cdiv(n_keys, block), dtype=torch.int32, device=device)
    n_whole = torch.full_like(q_blocks, n_keys // block)
    n_visited = torch.full_like(q_blocks, len(kv_idx))
    if is_causal:
        n_whole, n_visited = torch.minimum(q_blocks, n_whole), torch.minimum(q_blocks + 1, n_visited)
    whole_first = kv_idx.expand(len(q_blocks), -1).contiguous()
    rest = torch.minimum(n_whole[:, None] + kv_idx, n_visited[:, None] - 1).to(torch.int32)
    return (n_visited - n_whole, rest.contiguous()), (n_whole, whole_first)

@triton.jit
def no_mask(q_idx, kv_idx):
    return (q_idx >= 0) & (kv_idx >= 0)

@triton.jit
def causal_mask(q_idx, kv_idx):
    return q_idx >= kv_idx

@triton.jit
def identity(score, q_idx, kv_idx):
    return score

@triton.jit
def _forward_inner(
    q, k_ptr, v_ptr, acc, l_i, m_i, kv_indices, kv_num_blocks, offs_m,
    stride_kn, stride_kd, stride_vn, stride_vd, n_keys, d, scale2,
    MASK_MOD: tl.constexpr, SCORE_MOD: tl.constexpr, IS_FULL_BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr, HEAD_DIM: tl.constexpr,
):  # fmt: skip
    offs_d = tl.arange(0, HEAD_DIM).to(tl.int64)
    for i in range(0, kv_num_blocks):
        first = tl.load(kv_indices + i, eviction_policy="evict_last") * BLOCK
        offs_n = tl.multiple_of(first, BLOCK).to(tl.int64) + tl.arange(0, BLOCK)
        mask = (offs_d < d)[None, :] if IS_FULL_BLOCKS else (offs_n < n_keys)[:, None] & (offs_d < d)[None, :]
        k = tl.load(k_ptr + offs_n[:, None] * stride_kn + offs_d[None, :] * stride_kd, mask=mask, other=0.0)
        qk = tl.dot(q, tl.trans(k))
        post_mod_scores = SCORE_MOD(qk, offs_m[:, None], offs_n[None, :]) * scale2
        if not IS_FULL_BLOCKS:
            is_visible = MASK_MOD(offs_m[:, None], offs_n[None, :]) & (offs_n < n_keys)[None, :]
            post_mod_scores = tl.where(is_visible, post_mod_scores, float("-inf"))
        m_ij = tl.maximum(m_i, tl.max(post_mod_scores, 1))
        masked_out_rows = m_ij == float("-inf")
        m_ij_masked = tl.where(masked_out_rows, 0, m_ij)
        alpha = tl.math.exp2(m_i - m_ij_masked)
        p = tl.math.exp2(post_mod_scores - m_ij_masked[:, None])
        l_i = l_i * alpha + tl.sum(p, 1)
        v = tl.load(v_ptr + offs_n[:, None] * stride_vn + offs_d[None, :] * stride_vd, mask=mask, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m_i = m_ij
    return acc, l_i, m_i

@triton.jit
def _flex_kernel(
    Q, K, V, OUT, LSE, KV_NUM_BLKS, KV_IDX, FULL_KV_NUM_BLKS, FULL_KV_IDX,
    stride_qz, stride_qm, stride_qk, stride_kz, stride_kn, stride_kd, stride_vz, stride_vn, stride_vd,
    Q_LEN, KV_LEN, d, stride_kv_idx,
    SM_SCALE: tl.constexpr, MASK_MOD: tl.constexpr, SCORE_MOD: tl.constexpr,
    BLOCK: tl.constexpr, HEAD_DIM: tl.constexpr,
):  # fmt: skip
    q_block, off_z = tl.program_id(0), tl.program_id(1).to(tl.int64)
    offs_m = q_block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_d = tl.arange(0, HEAD_DIM).to(tl.int64)
    mask = (offs_m < Q_LEN)[:, None] & (offs_d < d)[None, :]
    q_offsets = off_z * stride_qz + offs_m[:, None] * stride_qm + offs_d[None, :] * stride_qk
    q = tl.load(Q + q_offsets, mask=mask, other=0.0)
    m_i = tl.zeros([BLOCK], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK], dtype=tl.float32)
    acc = tl.zeros([BLOCK, HEAD_DIM], dtype=tl.float32)
    K += off_z * stride_kz
    V += off_z * stride_vz
    scale2: tl.constexpr = SM_SCALE * 1.4426950408889634  # log2(e)
    acc, l_i, m_i = _forward_inner(
        q, K, V, acc, l_i, m_i, KV_IDX + q_block * stride_kv_idx, tl.load(KV_NUM_BLKS + q_block), offs_m,
        stride_kn, stride_kd, stride_vn, stride_vd, KV_LEN, d, scale2,
        MASK_MOD, SCORE_MOD, IS_FULL_BLOCKS=False, BLOCK=BLOCK, HEAD_DIM=HEAD_DIM,
    )  # fmt: skip
    acc, l_i, m_i = _forward_inner(
        q, K, V, acc, l_i, m_i, FULL_KV_IDX + q_block * stride_kv_idx, tl.load(FULL_KV_NUM_BLKS + q_block), offs_m,
        stride_kn, stride_kd, stride_vn, stride_vd, KV_LEN, d, scale2,
        MASK_MOD, SCORE_MOD, IS_FULL_BLOCKS=True, BLOCK=BLOCK, HEAD_DIM=HEAD_DIM,
    )  # fmt: skip
    l_i = tl.where(l_i == 0.0, 1, l_i)
    rows = off_z * Q_LEN + offs_m
    tl.store(OUT + rows[:, None] * d + offs_d[None, :], (acc / l_i[:, None]).to(OUT.dtype.element_ty), mask=mask)
    tl.store(LSE + rows, (m_i + tl.math.log2(l_i)) / 1.4426950408889634, mask=offs_m < Q_LEN)
""",
        ),
    ),
    style(  # Triton's tutorial: two stages, off the diagonal and on it, by descriptors made on the host, whose block a
        # hook of the tuner gives, or of pointers; base 2; m starts at -inf and l at 1, which the first block forgets
        "forward_tutorial",
        *put(
            TRITON_FORWARD="""\
from torch.nn import functional
from triton.tools.tensor_descriptor import TensorDescriptor

def flash_forward_triton(q, k, v, is_causal=False):
    _check(q, k, v)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if q.numel() == 0:
        return torch.empty_like(q), lse
    q_, k_, v_ = (_aligned(x.reshape(-1, *x.shape[-2:])) for x in (q, k, v))
    z, n_queries, d = *q_.shape[:2], q.shape[-1] + -q.shape[-1] % (16 // q.element_size())
    o = torch.empty((z, n_queries, d), dtype=q.dtype, device=q.device)
    if torch.cuda.get_device_capability()[0] >= 9:
        dummy_block = [1, 1, 1]  # until the tuner has chosen
        tensors = [TensorDescriptor(x, x.shape, x.stride(), dummy_block) for x in (q_, k_, v_, o)]
    else:
        tensors = [*(functional.pad(x, (0, d - x.shape[-1])).contiguous() for x in (q_, k_, v_)), o]
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device=q.device))
    _attn_fwd[lambda meta: (triton.cdiv(n_queries, meta["BLOCK_M"]), z, 1)](
        q.shape[-1] ** -0.5, lse, z, *tensors, n_queries, k_.shape[1], d,
        HEAD_DIM=max(16, triton.next_power_of_2(d)), STAGE=3 if is_causal else 1, warp_specialize=False,
    )  # fmt: skip
    return o[..., : q.shape[-1]].reshape(q.shape), lse

def _aligned(x):
    unit = 16 // x.element_size()
    is_regular = x.stride(-1) == 1 and x.stride(0) > 0 and x.stride(1) > 0
    if is_regular and x.stride(0) % unit == 0 and x.stride(1) % unit == 0 and x.data_ptr() % 16 == 0:
        return x
    return functional.pad(x, (0, -x.shape[-1] % unit)).contiguous().clone()

def _host_descriptor_pre_hook(nargs):
    if not isinstance(nargs["desc_q"], TensorDescriptor):
        return
    for name, rows in (("q", "BLOCK_M"), ("k", "BLOCK_N"), ("v", "BLOCK_N"), ("o", "BLOCK_M")):
        nargs[f"desc_{name}"].block_shape = [1, nargs[rows], nargs["HEAD_DIM"]]

configs = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn}, num_stages=s, num_warps=w, pre_hook=_host_descriptor_pre_hook)
    for bm in (64, 32, 128)
    for bn in (32, 64)
    for s in (1, 2)
    for w in (4, 8)
]

def keep(conf):
    return not (conf.kwargs["BLOCK_M"] * conf.kwargs["BLOCK_N"] < 64 * 64 and conf.num_warps == 8)

def prune_invalid_configs(configs, named_args, **kwargs):
    source = named_args["desc_q"]
    width = getattr(source, "base", source).element_size() * kwargs["HEAD_DIM"]
    sizes = [(conf, conf.kwargs["BLOCK_M"], conf.kwargs["BLOCK_N"]) for conf in configs]
    return [conf for conf, m, n in sizes if m % n == 0 and (2 * m + 2 * conf.num_stages * n) * width <= 128 * 1024]
""",
            KERNEL="""\
@triton.jit
def _maybe_make_tensor_desc(desc_or_ptr, shape, strides, block_shape):
    if isinstance(desc_or_ptr, tl.tensor_descriptor):
        return desc_or_ptr
    else:
        return tl.make_tensor_descriptor(desc_or_ptr, shape, strides, block_shape)

@triton.jit
def _attn_fwd_inner(
    acc, l_i, m_i, q, desc_k, desc_v, off_z, start_m, qk_scale, N_KEYS,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, STAGE: tl.constexpr,
    offs_m, offs_n, dtype: tl.constexpr, warp_specialize: tl.constexpr,
):  # fmt: skip
    if STAGE == 1:
        lo, hi = 0, tl.minimum(start_m * BLOCK_M, N_KEYS)
    elif STAGE == 2:
        lo, hi = start_m * BLOCK_M, tl.minimum((start_m + 1) * BLOCK_M, N_KEYS)
        lo = tl.multiple_of(lo, BLOCK_M)
    else:
        lo, hi = 0, N_KEYS
    for start_n in tl.range(lo, hi, BLOCK_N, warp_specialize=warp_specialize):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        k = desc_k.load([off_z, start_n, 0]).reshape(BLOCK_N, HEAD_DIM).T
        qk = tl.dot(q, k)
        visible = (start_n + offs_n < N_KEYS)[None, :]
        if STAGE == 2:
            visible = visible & (offs_m[:, None] >= (start_n + offs_n[None, :]))
        qk = tl.where(visible, qk * qk_scale, float("-inf"))
        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.math.exp2(qk - m_ij[:, None])
        alpha = tl.math.exp2(m_i - m_ij)
        l_ij = tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = desc_v.load([off_z, start_n, 0]).reshape(BLOCK_N, HEAD_DIM)
        acc = tl.dot(p.to(dtype), v, acc)
        l_i = l_i * alpha + l_ij
        m_i = m_ij
    return acc, l_i, m_i

@triton.autotune(
    configs=list(filter(keep, configs)),
    key=["N_QUERIES", "N_KEYS", "HEAD_DIM", "STAGE", "warp_specialize"],
    prune_configs_by={"early_config_prune": prune_invalid_configs},
)
@triton.jit
def _attn_fwd(
    sm_scale, M, Z, desc_q, desc_k, desc_v, desc_o, N_QUERIES, N_KEYS, D,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    STAGE: tl.constexpr, warp_specialize: tl.constexpr,
):  # fmt: skip
    dtype = desc_q.dtype if isinstance(desc_q, tl.tensor_descriptor) else desc_q.dtype.element_ty
    start_m, off_z = tl.program_id(0), tl.program_id(1)
    desc_q = _maybe_make_tensor_desc(desc_q, [Z, N_QUERIES, D], [N_QUERIES * D, D, 1], [1, BLOCK_M, HEAD_DIM])
    desc_k = _maybe_make_tensor_desc(desc_k, [Z, N_KEYS, D], [N_KEYS * D, D, 1], [1, BLOCK_N, HEAD_DIM])
    desc_v = _maybe_make_tensor_desc(desc_v, [Z, N_KEYS, D], [N_KEYS * D, D, 1], [1, BLOCK_N, HEAD_DIM])
    desc_o = _maybe_make_tensor_desc(desc_o, [Z, N_QUERIES, D], [N_QUERIES * D, D, 1], [1, BLOCK_M, HEAD_DIM])
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32) + 1.0
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    qk_scale = sm_scale * 1.44269504  # 1 / log(2)
    q = desc_q.load([off_z, start_m * BLOCK_M, 0]).reshape(BLOCK_M, HEAD_DIM)
    if STAGE & 1:
        acc, l_i, m_i = _attn_fwd_inner(
            acc, l_i, m_i, q, desc_k, desc_v, off_z, start_m, qk_scale, N_KEYS,
            BLOCK_M, BLOCK_N, HEAD_DIM, 4 - STAGE, offs_m, offs_n, dtype, warp_specialize,
        )  # fmt: skip
    if STAGE & 2:
        acc, l_i, m_i = _attn_fwd_inner(
            acc, l_i, m_i, q, desc_k, desc_v, off_z, start_m, qk_scale, N_KEYS,
            BLOCK_M, BLOCK_N, HEAD_DIM, 2, offs_m, offs_n, dtype, warp_specialize,
        )  # fmt: skip
    m_i += tl.math.log2(l_i)
    acc = acc / l_i[:, None]
    m_ptrs = M + off_z.to(tl.int64) * N_QUERIES + offs_m
    tl.store(m_ptrs, m_i * 0.6931471805599453, mask=offs_m < N_QUERIES)
    desc_o.store([off_z, start_m * BLOCK_M, 0], acc.to(dtype).reshape(1, BLOCK_M, HEAD_DIM))
""",
        ),
    ),
)
