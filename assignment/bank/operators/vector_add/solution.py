"""Vector addition, for practice: z_i = x_i + y_i.

Bytes that must move, for n elements of s bytes: 3·n·s. One operation for 3·s bytes: the memory is all there is to it.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

# BEGIN SOLUTION
TILE_SIZE = 1024
# END SOLUTION


def vector_add(x: Float[Tensor, "*shape"], y: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The sum of two tensors, element by element: z = x + y.

    dtypes: float32, bfloat16 or float16, the same for x, y and z.
    Shapes: any, the same for both; of empty inputs an empty z, without a launch.
    Strides: any; z has memory of its own. The inputs are not written to.

    Raises:
        ValueError: before any launch, if the shapes or the dtypes differ.
    """
    # BEGIN SOLUTION handout/vector_add.md
    if x.shape != y.shape or x.dtype != y.dtype:
        raise ValueError(
            f"expected two tensors of one shape and dtype; got {tuple(x.shape)} of {x.dtype} "
            f"and {tuple(y.shape)} of {y.dtype}"
        )
    z = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if z.numel():
        grid = (triton.cdiv(z.numel(), TILE_SIZE),)
        _add_kernel[grid](x.contiguous(), y.contiguous(), z, z.numel(), TILE_SIZE=TILE_SIZE)
    return z
    # END SOLUTION


@triton.jit
def _add_kernel(x_ptr, y_ptr, z_ptr, n_elements, TILE_SIZE: tl.constexpr):
    """One program a tile of TILE_SIZE elements, as memory holds them. Grid: (⌈n_elements / TILE_SIZE⌉,)."""
    # BEGIN SOLUTION handout/vector_add.md
    offsets = tl.program_id(0).to(tl.int64) * TILE_SIZE + tl.arange(0, TILE_SIZE)
    is_inside = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=is_inside)
    y = tl.load(y_ptr + offsets, mask=is_inside)
    tl.store(z_ptr + offsets, x + y, mask=is_inside)
    # END SOLUTION
