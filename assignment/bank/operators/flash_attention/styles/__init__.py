"""Right attention in other styles than the solution's, each the base with some edits."""

from assignment.bank.operators.flash_attention.styles import (
    backward,
    both,
    forward_launches,
    forward_numerics,
    forward_structure,
    libraries,
    pytorch,
    pytorch_backward,
    schedules,
)

BANKS = (
    forward_numerics,
    forward_structure,
    forward_launches,
    backward,
    both,
    schedules,
    libraries,
    pytorch,
    pytorch_backward,
)
