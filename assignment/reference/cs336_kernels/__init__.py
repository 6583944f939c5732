"""The functions of the assignment; `handout.md` says what each of them computes."""

from .flash_attention import (
    flash_attention,
    flash_backward_pytorch,
    flash_backward_triton,
    flash_forward_pytorch,
    flash_forward_triton,
)
from .rmsnorm import rmsnorm, rmsnorm_backward, rmsnorm_forward
from .weighted_sum import weighted_sum, weighted_sum_backward, weighted_sum_forward

__all__ = [  # noqa: RUF022, the order of the course
    "weighted_sum_forward",
    "weighted_sum_backward",
    "weighted_sum",
    "rmsnorm_forward",
    "rmsnorm_backward",
    "rmsnorm",
    "flash_forward_pytorch",
    "flash_forward_triton",
    "flash_backward_pytorch",
    "flash_backward_triton",
    "flash_attention",
]
