"""Vector addition that takes its sizes and types from tl.constexpr objects at the top of the file.

Their fields, lengths and methods are the compiler's, which looks at what a tl.constexpr holds. Members of such a global
are of use since Triton 3.8; before, a kernel gets them by index.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl


class Tile(NamedTuple):
    size: int
    axis: int


TILE = tl.constexpr(Tile(512, 0))
STEPS = tl.constexpr(("load", "add", "store"))
LIMIT = tl.constexpr(None)


@triton.jit
def _tile_of(names: tl.constexpr, tile: tl.constexpr):
    tl.static_assert(len(names) == 3)
    return tile[0] + 0


@triton.jit
def _add(x_ptr, y_ptr, z_ptr, n):
    element: tl.constexpr = z_ptr.dtype.element_ty
    tl.static_assert(element.is_floating(), f"expected floats, got {element=}")
    tl.static_assert(len(STEPS) == 3 and STEPS[0] == "load")
    size: tl.constexpr = TILE[0]
    kept = tl.constexpr((1, 2))
    at = tl.program_id(TILE[1]).to(tl.int64) * _tile_of(STEPS, TILE) + tl.arange(0, size) + (kept[1] - 2)
    mask = at < n
    if LIMIT is None:
        tl.store(z_ptr + at, tl.load(x_ptr + at, mask=mask) + tl.load(y_ptr + at, mask=mask), mask=mask)


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.shape != y.shape or x.dtype != y.dtype:
        raise ValueError(f"expected x and y of one shape and dtype, got {x.shape} {x.dtype} and {y.shape} {y.dtype}")
    z = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if n := z.numel():
        _add[(triton.cdiv(n, TILE.value.size),)](x.contiguous(), y.contiguous(), z, n)
    return z
