"""As xformers' fused linear layer had it: the sum is begun with the bias, the activation follows in place."""

import torch
import triton
import triton.language as tl


@triton.jit
def gelu(z):
    return 0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476))


@triton.jit
def gelu_tanh(z):
    u = 0.7978845608028654 * z * (1.0 + 0.044715 * z * z)
    return 0.5 * z * (1.0 + (2.0 / (1.0 + tl.exp(-2.0 * u)) - 1.0))


@triton.jit
def _kernel(
    out_ptr, in_ptr, weight_ptr, bias_ptr, M, N, K, stride_im, stride_ik, stride_wn, stride_wk, stride_b,
    BLOCK_ROW: tl.constexpr, BLOCK_COL: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_ROW: tl.constexpr,
    ACTIVATION: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    num_col = tl.cdiv(N, BLOCK_COL)
    group = GROUP_ROW * num_col
    first = pid // group * GROUP_ROW
    size = tl.minimum(tl.cdiv(M, BLOCK_ROW) - first, GROUP_ROW)
    row, col = first + pid % size, (pid % group) // size
    rm = row * BLOCK_ROW + tl.arange(0, BLOCK_ROW).to(tl.int64)
    rn = col * BLOCK_COL + tl.arange(0, BLOCK_COL).to(tl.int64)
    rk = tl.arange(0, BLOCK_K).to(tl.int64)
    bias = tl.load(bias_ptr + rn * stride_b, mask=rn < N, other=0.0).to(tl.float32)
    acc = tl.zeros((BLOCK_ROW, BLOCK_COL), dtype=tl.float32) + bias[None, :]
    for start in range(0, K, BLOCK_K):
        ks = start + rk
        a = tl.load(
            in_ptr + rm[:, None] * stride_im + ks[None, :] * stride_ik,
            mask=(rm[:, None] < M) & (ks[None, :] < K),
            other=0.0,
        )
        w = tl.load(
            weight_ptr + rn[None, :] * stride_wn + ks[:, None] * stride_wk,
            mask=(rn[None, :] < N) & (ks[:, None] < K),
            other=0.0,
        )
        acc += tl.dot(a, w)
    acc = gelu_tanh(acc) if ACTIVATION == "gelu_tanh" else gelu(acc)
    tl.store(out_ptr + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


class FusedLinear(torch.nn.Module):
    def __init__(self, weight, bias, activation):
        super().__init__()
        self.weight, self.bias, self.activation = weight, bias, activation

    def forward(self, x):
        (n, k), inputs = self.weight.shape, x.reshape(-1, x.shape[-1])
        m = inputs.shape[0]
        outputs = torch.empty((m, n), device=x.device, dtype=x.dtype)
        if m:
            _kernel[(triton.cdiv(m, 32) * triton.cdiv(n, 64),)](
                outputs, inputs, self.weight, self.bias, m, n, k,
                *inputs.stride(), *self.weight.stride(), *self.bias.stride(),
                BLOCK_ROW=32, BLOCK_COL=64, BLOCK_K=32, GROUP_ROW=8, ACTIVATION=self.activation,
            )  # fmt: skip
        return outputs.reshape(*x.shape[:-1], n)


def linear_gelu(x, weight, bias, approximate="none"):
    _check(x, weight, bias, approximate)
    return FusedLinear(weight, bias, "gelu_tanh" if approximate == "tanh" else "gelu")(x)


def _check(x, weight, bias, approximate):
    if x.ndim < 2 or weight.ndim != 2 or x.shape[-1] != weight.shape[1] or bias.shape != weight.shape[:1]:
        raise ValueError(f"expected (..., m, k), (n, k), (n,), got {x.shape}, {weight.shape}, {bias.shape}")
    if min(*x.shape[-2:], *weight.shape) < 1 or approximate not in ("none", "tanh"):
        raise ValueError(f"expected sizes from 1 and a form, got {x.shape}, {weight.shape}, {approximate!r}")
    if not x.dtype == weight.dtype == bias.dtype or x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"expected one dtype for all, got {x.dtype}, {weight.dtype}, {bias.dtype}")
