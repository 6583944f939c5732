"""Measure what long sums of float8 products lose on a GPU: `python -m` and this module's name.

For each number of terms it prints the error, as a share of the exact result, of one accumulator for all of them, and of
a float32 sum to which each 128 are added. The terms are normal numbers, and then positive ones.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

SIDE, BLOCK = 256, 128
TERMS = 1024, 4096, 16384, 65536
FORMS = ("one accumulator", "added every 128")


@triton.jit
def _product_kernel(a_tiles, b_tiles, c_tiles, k, IS_ONE: tl.constexpr, SIZE: tl.constexpr):
    row, col = tl.program_id(0) * SIZE, tl.program_id(1) * SIZE
    total = tl.zeros((SIZE, SIZE), dtype=tl.float32)
    for start in range(0, k, SIZE):
        a, b = a_tiles.load([row, start]), b_tiles.load([col, start]).T
        if IS_ONE:
            total = tl.dot(a, b, total)
        else:
            total += tl.dot(a, b)
    c_tiles.store([row, col], total)


def tiles(x: torch.Tensor) -> TensorDescriptor:
    """Return a descriptor of square tiles."""
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [BLOCK, BLOCK])


def lost(a: torch.Tensor, b: torch.Tensor, is_one: bool) -> float:
    """Return the norm of the error of a · bᵀ over that of the exact result."""
    c, exact = torch.empty(len(a), len(b), device=a.device), a.double() @ b.double().T
    grid = len(a) // BLOCK, len(b) // BLOCK
    _product_kernel[grid](tiles(a), tiles(b), tiles(c), a.shape[1], IS_ONE=is_one, SIZE=BLOCK, num_warps=8)
    return ((c.double() - exact).norm() / exact.norm()).item()


def main() -> None:
    """Print a line for each kind of terms and number of them."""
    rng = torch.Generator("cuda").manual_seed(0)
    for kind in ("normal", "positive"):
        for k in TERMS:
            a, b = (torch.randn(SIDE, k, device="cuda", generator=rng) for _ in range(2))
            a, b = ((x.abs() if kind == "positive" else x).to(torch.float8_e4m3fn) for x in (a, b))
            found = (f"{name} {lost(a, b, is_one):.1e}" for name, is_one in zip(FORMS, (True, False), strict=True))
            print(f"{kind} terms, k = {k}:", *found, sep="  ")


if __name__ == "__main__":
    main()
