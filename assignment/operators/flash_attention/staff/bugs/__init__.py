"""Wrong attention, each a few edits away from what is in base/."""

from assignment.operators.flash_attention.staff.bugs import (
    backward_pytorch,
    backward_triton,
    compiled_backward,
    compiled_forward,
    forward_pytorch,
    forward_softmax,
    forward_triton,
    memory_backward,
    memory_forward,
)

BANKS = (
    forward_pytorch,
    backward_pytorch,
    forward_triton,
    forward_softmax,
    backward_triton,
    memory_forward,
    memory_backward,
    compiled_forward,
    compiled_backward,
)
