"""What callers may get wrong."""

from torch import Tensor


def check(x: Tensor, weight: Tensor) -> None:
    if x.ndim == 0 or weight.ndim != 1 or x.shape[-1] != weight.shape[0]:
        raise ValueError(f"expected x (..., d) and weight (d,), got {tuple(x.shape)} and {tuple(weight.shape)}")
    if x.dtype != weight.dtype:
        raise ValueError(f"expected x and weight in one dtype, got {x.dtype} and {weight.dtype}")


def check_gradient(grad_y: Tensor, x: Tensor) -> None:
    if grad_y.shape != x.shape[:-1] or grad_y.dtype != x.dtype:
        raise ValueError(f"expected grad_y {tuple(x.shape[:-1])} {x.dtype}, got {tuple(grad_y.shape)} {grad_y.dtype}")
