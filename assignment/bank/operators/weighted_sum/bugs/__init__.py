"""Wrong weighted sums, each a few edits away from what is in base/."""

from assignment.bank.operators.weighted_sum.bugs import (
    autograd,
    backward,
    compiled,
    forward,
    left_open,
    memory,
    together,
    unseen,
)

BANKS = (forward, backward, autograd, unseen, memory, compiled, left_open, together)
