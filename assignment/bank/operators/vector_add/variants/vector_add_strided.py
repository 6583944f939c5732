"""One stride for each tensor, of what is a vector; a copy where no stride walks over it."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, stride_x, stride_y, n, TILE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    inside = at < n
    x = tl.load(x_ptr + at * stride_x, mask=inside, other=0.0)
    y = tl.load(y_ptr + at * stride_y, mask=inside, other=0.0)
    tl.store(z_ptr + at, x + y, mask=inside)


def vector_add(x, y):
    if x.shape != y.shape or x.dtype != y.dtype:
        raise ValueError(f"expected alike, got {x.shape} {x.dtype} and {y.shape} {y.dtype}")
    a, b = x.reshape(-1), y.reshape(-1)
    z = torch.empty(a.shape, dtype=x.dtype, device=x.device)
    if a.numel():
        add_kernel[(triton.cdiv(a.numel(), 512),)](a, b, z, a.stride(0), b.stride(0), a.numel(), TILE=512)
    return z.view(x.shape)
