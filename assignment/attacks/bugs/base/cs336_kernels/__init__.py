"""The eleven functions, written plainly: every planted bug is an edit of this package."""

from .flash_attention import (
    flash_attention,
    flash_backward_pytorch,
    flash_backward_triton,
    flash_forward_pytorch,
    flash_forward_triton,
)
from .rmsnorm import rmsnorm, rmsnorm_backward, rmsnorm_forward
from .weighted_sum import weighted_sum, weighted_sum_backward, weighted_sum_forward

__all__ = [
    "flash_attention",
    "flash_backward_pytorch",
    "flash_backward_triton",
    "flash_forward_pytorch",
    "flash_forward_triton",
    "rmsnorm",
    "rmsnorm_backward",
    "rmsnorm_forward",
    "weighted_sum",
    "weighted_sum_backward",
    "weighted_sum_forward",
]
