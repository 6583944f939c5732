"""Vector addition, for practice: z_i = x_i + y_i.

Bytes that must move, for n elements of s bytes: 3·n·s. One operation for 3·s bytes: the memory is all there is to it.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor


def vector_add(x: Float[Tensor, "*shape"], y: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The sum of two tensors, element by element: z = x + y.

    dtypes: float32, bfloat16 or float16, the same for x, y and z.
    Shapes: any, the same for both; of empty inputs an empty z, without a launch.
    Strides: any; z has memory of its own. The inputs are not written to.

    Raises:
        ValueError: before any launch, if the shapes or the dtypes differ.
    """
    raise NotImplementedError("cs336_kernels/practice/vector_add.py: vector_add, handout/vector_add.md")


@triton.jit
def _add_kernel(x_ptr, y_ptr, z_ptr, n_elements, TILE_SIZE: tl.constexpr):
    """One program a tile of TILE_SIZE elements, as memory holds them. Grid: (⌈n_elements / TILE_SIZE⌉,)."""
    raise NotImplementedError("cs336_kernels/practice/vector_add.py: _add_kernel, handout/vector_add.md")
