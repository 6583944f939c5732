"""Right attention in other styles than the solution's, each the base with some edits."""

from assignment.bank.operators.flash_attention.styles import (
    backward,
    both,
    forward_launches,
    forward_numerics,
    forward_structure,
    pytorch,
    pytorch_backward,
)

BANKS = (forward_numerics, forward_structure, forward_launches, backward, both, pytorch, pytorch_backward)
