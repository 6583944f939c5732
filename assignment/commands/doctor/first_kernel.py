"""A script that runs one small kernel, on a GPU or, by `python -m assignment.simulator`, without one."""

import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, y_ptr, n, TILE_SIZE: tl.constexpr):
    for start in range(0, n, TILE_SIZE):  # a bound that is known at run time only: old interpreters fail on it
        cols = start + tl.arange(0, TILE_SIZE)
        x = tl.load(x_ptr + cols, mask=cols < n, other=0.0)
        tl.store(y_ptr + cols, x + x, mask=cols < n)


if __name__ == "__main__":
    x = torch.arange(100, dtype=torch.float32, device="cuda")
    y = torch.empty_like(x)
    double_kernel[(1,)](x, y, len(x), TILE_SIZE=32)
    if not torch.equal(y, 2 * x):
        raise SystemExit("a kernel that doubles 100 numbers gave a wrong result")
