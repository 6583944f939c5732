"""Wrong attention, each a few edits away from what is in base/."""

from assignment.bank.operators.flash_attention.bugs import (
    backward_addresses,
    backward_contract,
    backward_pytorch,
    backward_triton,
    compiled_backward,
    compiled_forward,
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
# Mistakes of first drafts, some of which no misconception explains: how long a student waits is measured by them.
FIRST_DRAFTS = {
    "flash_forward_triton/the-maximum-never-updated",
    "flash_forward_triton/the-old-accumulator-rescaled-along-columns",
    "flash_forward_triton/the-sum-of-the-whole-tile",
    "flash_forward_triton/keys-not-transposed",
    "flash_forward_triton/causal-the-mask-transposed",
    "flash_forward_triton/the-values-of-the-first-batch-in-all",
    "flash_backward_triton/p-without-the-scale",
    "flash_backward_triton/ds-not-transposed-for-dk",
}
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
