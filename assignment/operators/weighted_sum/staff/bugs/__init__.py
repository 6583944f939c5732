"""Wrong weighted sums, each a few edits away from what is in base/."""

from assignment.operators.weighted_sum.staff.bugs import autograd, backward, compiled, forward, memory, unseen

BANKS = (forward, backward, autograd, unseen, memory, compiled)
