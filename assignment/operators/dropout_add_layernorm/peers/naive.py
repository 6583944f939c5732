"""PyTorch's own words for it, one operation after the other; the mask by a kernel, since PyTorch has other numbers."""

import torch
import triton
import triton.language as tl

TILE_SIZE = 1024


def dropout_add_layernorm_forward(x, residual, weight, bias, p=0.1, seed=0, eps=1e-5):
    summed = residual + factors(x, p, seed) * x
    mean = summed.mean(-1)
    differences = summed - mean[:, None]
    rstd = (differences.square().mean(-1) + eps).rsqrt()
    y = differences * rstd[:, None] * weight + bias
    return y.to(x.dtype), summed.to(x.dtype), mean, rstd


def dropout_add_layernorm_backward(grad_y, summed, weight, mean, rstd, p=0.1, seed=0):
    x_hat, h = (summed - mean[:, None]) * rstd[:, None], grad_y.float() * weight
    grad = rstd[:, None] * (h - h.mean(-1, keepdim=True) - x_hat * (h * x_hat).mean(-1, keepdim=True))
    grad_weight, grad_bias = (grad_y * x_hat).sum(0), grad_y.float().sum(0)
    dtype = summed.dtype
    return (factors(summed, p, seed) * grad).to(dtype), grad.to(dtype), grad_weight.to(dtype), grad_bias.to(dtype)


def factors(x, p, seed):
    """Return keep / (1 − p) in float32."""
    result = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    _factors_kernel[(triton.cdiv(x.numel(), TILE_SIZE),)](result, x.numel(), p, 1 / (1 - p), seed, TILE_SIZE)
    return result


@triton.jit
def _factors_kernel(result_ptr, n, p, scale, seed, TILE_SIZE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * TILE_SIZE + tl.arange(0, TILE_SIZE)
    tl.store(result_ptr + at, tl.where(tl.rand(seed, at) >= p, scale, 0.0), mask=at < n)
