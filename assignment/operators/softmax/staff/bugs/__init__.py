"""Softmaxes that are wrong, each a few edits away from the plain one in base/."""

from assignment.operators.softmax.staff.bugs import autograd, backward, forward

BANKS = (forward, backward, autograd)
