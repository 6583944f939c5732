"""What the variables of a kernel hold, what it calls, and what a launch passes, as types; and the sizes of a grid."""

import contextlib
import operator
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import torch
import triton.language as tl

from assignment.whose import theirs

from .triton_private import TensorDescriptor, TensorWrapper

KernelValue: TypeAlias = (
    tl.tensor | tl.tuple | tl.dtype | tl.core.base_value | tuple["KernelValue", ...] | bool | int | float | str | None
)
KernelFunction: TypeAlias = Callable[..., KernelValue]
Operand: TypeAlias = Callable[[], KernelValue]  # an expression that is evaluated when its value is needed
LaunchArgument: TypeAlias = torch.Tensor | TensorDescriptor | TensorWrapper | KernelFunction | KernelValue
Sizes: TypeAlias = Sequence[int]  # of a grid
Grid: TypeAlias = Sizes | Callable[[dict[str, LaunchArgument]], Sizes]
Plain = TypeVar("Plain")
MAX_GRID = (2**31 - 1, 65535, 65535)


def static(value: Plain | tl.constexpr) -> Plain:
    """Return the value of a constexpr; anything else unchanged."""
    return value.value if isinstance(value, tl.constexpr) else value


def grid_sizes(grid: Grid, values: dict[str, LaunchArgument]) -> list[int]:
    """Return one to three sizes, padded with 1."""
    if callable(grid):
        grid = theirs(grid, values)
    is_one = False
    with contextlib.suppress(TypeError):  # of an array of no dimensions
        is_one = hasattr(grid, "__getitem__") and len(grid) > 0
    if not is_one or not all(hasattr(size, "__index__") for size in grid):
        raise TypeError(f"expected a grid of one to three integers, such as (triton.cdiv(n, 64),), got {grid!r}")
    given = theirs(tuple, theirs(operator.getitem, grid, slice(3)))
    sizes: list[int] = theirs(list, map(operator.index, (*given, 1, 1)[:3]))
    if min(sizes) < 0:
        raise ValueError(f"expected a grid of sizes that are 0 or more, got {tuple(sizes)}")
    for axis, size, limit in zip("xyz", sizes, MAX_GRID, strict=True):
        if size > limit:
            raise RuntimeError(f"Triton Error [CUDA]: invalid argument: grid {axis} is {size}, at most {limit} allowed")
    return sizes
