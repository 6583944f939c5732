"""LayerNorms that are wrong, each a few edits away from the solution."""

from assignment.operators.layernorm.staff.bugs import autograd, backward, forward

BANKS = (forward, backward, autograd)
