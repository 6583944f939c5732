"""What kernels of another module use by this module's name."""

import triton
import triton.language as tl

FACTOR = tl.constexpr(3)


@triton.jit
def tripled(x):
    return x * FACTOR
