"""What the variables of a kernel hold, and what it calls, as types."""

from collections.abc import Callable
from typing import TypeAlias

import triton.language as tl

KernelValue: TypeAlias = (
    tl.tensor | tl.tuple | tl.dtype | tl.core.base_value | tuple["KernelValue", ...] | bool | int | float | str | None
)
KernelFunction: TypeAlias = Callable[..., KernelValue]
Operand: TypeAlias = Callable[[], KernelValue]  # an expression that is evaluated when its value is needed
