"""What the checks of the simulator share."""

import torch
import triton
import triton.language as tl
from torch import Tensor


def raised(error: type[Exception], function, *args, **kwargs) -> Exception:
    """Return the exception of type `error` that the call raises."""
    try:
        function(*args, **kwargs)
    except error as caught:
        return caught
    raise AssertionError(f"{error.__name__} was not raised")


def says(fault: Exception, *parts: str) -> None:
    for part in parts:
        assert part in str(fault), f"{part!r} is not in:\n{fault}"


@triton.jit
def cast_kernel(x_ptr, y_ptr, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, x.to(y_ptr.dtype.element_ty), mask=at < n)


def converted(x: Tensor, dtype: torch.dtype) -> Tensor:
    y = torch.empty(x.shape, dtype=dtype)
    cast_kernel[lambda meta: (triton.cdiv(x.numel(), meta["SIZE"]),)](x, y, x.numel(), SIZE=4096)
    return y
