"""What the variables of a kernel hold, what it calls, and what a launch passes, as types."""

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import torch
import triton.language as tl

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


def static(value: Plain | tl.constexpr) -> Plain:
    """Return the value of a constexpr; anything else unchanged."""
    return value.value if isinstance(value, tl.constexpr) else value
