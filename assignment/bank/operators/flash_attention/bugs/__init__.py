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
DRAFTS = {  # mistakes of first drafts, by which a student's wait is measured
    "flash_forward_triton": (
        "the-maximum-never-updated",
        "the-old-accumulator-rescaled-along-columns",
        "the-sum-of-the-whole-tile",
        "keys-not-transposed",
        "causal-the-mask-transposed",
        "the-values-of-the-first-batch-in-all",
    )
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
# What its chapter teaches: bugs that cost at least a tenth of their problem (tests/test_lessons.py).
LESSONS = {
    "flash_forward_pytorch": (
        "old-accumulator-not-rescaled",
        "no-maximum-subtracted",
        "causal-the-tile-on-the-diagonal-skipped",
    ),
    "flash_forward_triton": (
        "old-accumulator-not-rescaled",
        "no-maximum-subtracted",
        "causal-whole-tiles-only",
    ),
    "flash_backward_pytorch": (
        "d-forgotten",
        "p-a-softmax-over-the-tile",
        "causal-p-recomputed-without-the-mask",
    ),
    "flash_backward_triton": (
        "d-forgotten",
        "p-a-softmax-over-the-tile",
        "causal-the-mask-transposed",
    ),
}
