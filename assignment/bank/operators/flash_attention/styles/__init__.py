"""Right attention in other styles than the solution's, each the base with some edits."""

from assignment.bank.operators.flash_attention.styles import forward_numerics

BANKS = (forward_numerics,)
