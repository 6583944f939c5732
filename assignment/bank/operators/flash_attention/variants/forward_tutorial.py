"""The forward pass of Triton's tutorial on fused attention: two stages, off the diagonal and on it, by descriptors.

Descriptors are made on the host, and a hook of the tuner gives them the block of its configuration. The kernel takes
pointers as well, and makes its own of these. Base 2 inside; m starts at -inf and l at 1, which the first block forgets.
"""

import math

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor
from torch.nn import functional
from triton.tools.tensor_descriptor import TensorDescriptor

LOG2_E = math.log2(math.e)


def flash_forward_triton(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float32[Tensor, "*batch n_queries"]]:
    if q.dtype != k.dtype or q.dtype != v.dtype:
        raise ValueError(f"expected one dtype, got {q.dtype}, {k.dtype} and {v.dtype}")
    if k.shape != v.shape or q.shape[:-2] != k.shape[:-2] or q.shape[-1] != k.shape[-1]:
        raise ValueError(f"expected shapes that fit, got {q.shape}, {k.shape} and {v.shape}")
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


def _aligned(x: Tensor) -> Tensor:
    """x where a descriptor can address it, else a copy whose rows are padded to 16 bytes."""
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
    """Blocks of queries are whole numbers of blocks of keys, and all of it takes at most 128 KB."""
    source = named_args["desc_q"]
    width = getattr(source, "base", source).element_size() * kwargs["HEAD_DIM"]
    sizes = [(conf, conf.kwargs["BLOCK_M"], conf.kwargs["BLOCK_N"]) for conf in configs]
    return [conf for conf, m, n in sizes if m % n == 0 and (2 * m + 2 * conf.num_stages * n) * width <= 128 * 1024]


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
    """Fold in the keys before the diagonal (1), on it (2) or all of them (3)."""
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
    """Grid (query blocks, batches). Pointers must be to contiguous (batches, n, D); M is lse, (batches, N_QUERIES)."""
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
