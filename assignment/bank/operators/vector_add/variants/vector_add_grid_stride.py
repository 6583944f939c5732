"""As many programs as there are multiprocessors, each walking over the vector: a persistent kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, N_PROGRAMS: tl.constexpr, TILE: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * TILE
    for start in tl.range(first, n, N_PROGRAMS * TILE):
        at = start + tl.arange(0, TILE)
        x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + at, mask=at < n, other=0.0).to(tl.float32)
        tl.store(z_ptr + at, (x + y).to(z_ptr.dtype.element_ty), mask=at < n)


def vector_add(x, y):
    if x.shape != y.shape:
        raise ValueError(f"expected equal shapes, got {tuple(x.shape)} and {tuple(y.shape)}")
    if x.dtype != y.dtype:
        raise ValueError(f"expected equal dtypes, got {x.dtype} and {y.dtype}")
    z = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if z.numel():
        add_kernel[(132,)](x.contiguous(), y.contiguous(), z, z.numel(), N_PROGRAMS=132, TILE=256)
    return z
