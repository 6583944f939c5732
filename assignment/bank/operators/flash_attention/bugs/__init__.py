"""Wrong attention, each a few edits away from what is in base/."""

from assignment.bank.operators.flash_attention.bugs import (
    backward_addresses,
    backward_contract,
    backward_pytorch,
    backward_triton,
    compiled_backward,
    compiled_forward,
    first_drafts,
    forward_contract,
    forward_pytorch,
    forward_pytorch_contract,
    forward_softmax,
    forward_strides,
    forward_tiles,
    memory_backward,
    memory_forward,
)

# flash_attention is graded in both problems, and its gradients go through the forward pass: a wrong o or lse costs
# these checks of the backward problem too.
SHARED = {
    "flash_forward_triton": [
        f"test_flash_backward.py::test_attention_{name}" for name in ("gradients", "16_bit", "memory")
    ]
}
# How long a student waits is measured by these, which are in no table: a full run of the bank does not grade them.
DRAFTS = (first_drafts,)
BANKS = (
    forward_pytorch,
    forward_pytorch_contract,
    backward_pytorch,
    forward_strides,
    forward_tiles,
    forward_contract,
    forward_softmax,
    backward_triton,
    backward_addresses,
    backward_contract,
    memory_forward,
    memory_backward,
    compiled_forward,
    compiled_backward,
)
