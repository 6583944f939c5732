"""As Triton's tutorial 03 has it: autotuned, pointers that move along k, and the activation a parameter."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8}, num_warps=warps, num_stages=stages)
    for bm, bn, bk, warps, stages in ((128, 128, 32, 4, 3), (64, 64, 32, 4, 2))
]


@triton.jit
def gelu(z):
    return 0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476))


@triton.jit
def gelu_tanh(z):
    u = 0.7978845608028654 * z * (1.0 + 0.044715 * z * z)
    return 0.5 * z * (1.0 + (2.0 / (1.0 + tl.exp(-2.0 * u)) - 1.0))


@triton.autotune(CONFIGS, key=["M", "N", "K"])
@triton.jit
def _kernel(
    a_ptr, b_ptr, bias_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bn, stride_bk, stride_bias,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    ACTIVATION: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    num_pid_m, num_pid_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    num_in_group = GROUP_M * num_pid_n
    first_pid_m = pid // num_in_group * GROUP_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_M)
    pid_m = first_pid_m + (pid % num_in_group) % group_size_m
    pid_n = (pid % num_in_group) // group_size_m
    offs_am = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_bn = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptrs = a_ptr + offs_am[:, None].to(tl.int64) * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_bn[None, :].to(tl.int64) * stride_bn
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for i in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - i * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - i * BLOCK_K, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptrs += tl.full((), BLOCK_K, tl.int64) * stride_ak
        b_ptrs += tl.full((), BLOCK_K, tl.int64) * stride_bk
    accumulator += tl.load(bias_ptr + offs_bn.to(tl.int64) * stride_bias)[None, :]
    accumulator = gelu_tanh(accumulator) if ACTIVATION == "gelu_tanh" else gelu(accumulator)
    offs_cm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)
    offs_cn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_mask = (offs_cm[:, None] < M) & (offs_cn[None, :] < N)
    tl.store(c_ptr + offs_cm[:, None] * N + offs_cn[None, :], accumulator.to(c_ptr.dtype.element_ty), mask=c_mask)


def linear_gelu(x, weight, bias, approximate="none"):
    _check(x, weight, bias, approximate)
    (n, k), rows = weight.shape, x.reshape(-1, x.shape[-1])
    m = rows.shape[0]
    y = torch.empty(*x.shape[:-1], n, dtype=x.dtype, device=x.device)
    if m:
        grid = lambda meta: (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)  # noqa: E731
        activation = {"none": "gelu", "tanh": "gelu_tanh"}[approximate]
        strides = (*rows.stride(), *weight.stride(), *bias.stride())
        _kernel[grid](rows, weight, bias, y, m, n, k, *strides, ACTIVATION=activation)
    return y


def _check(x, weight, bias, approximate):
    if x.ndim < 2 or weight.ndim != 2 or x.shape[-1] != weight.shape[1] or bias.shape != weight.shape[:1]:
        raise ValueError(f"expected (..., m, k), (n, k), (n,), got {x.shape}, {weight.shape}, {bias.shape}")
    if min(*x.shape[-2:], *weight.shape) < 1 or approximate not in ("none", "tanh"):
        raise ValueError(f"expected sizes from 1 and a form, got {x.shape}, {weight.shape}, {approximate!r}")
    if not x.dtype == weight.dtype == bias.dtype or x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"expected one dtype for all, got {x.dtype}, {weight.dtype}, {bias.dtype}")
