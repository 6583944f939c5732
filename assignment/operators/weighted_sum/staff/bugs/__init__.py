"""Wrong weighted sums, each a few edits away from what is in base/."""

from assignment.operators.weighted_sum.staff.bugs import compiled, memory, results

BANKS = (results, memory, compiled)
