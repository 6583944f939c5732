"""Dropouts with residual and LayerNorm that are wrong, each a few edits away from the solution."""

from assignment.operators.dropout_add_layernorm.staff.bugs import autograd, mask, norm

BANKS = (mask, norm, autograd)
