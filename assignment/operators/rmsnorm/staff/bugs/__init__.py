"""Wrong RMSNorms, each a few edits away from what is in base/."""

from assignment.operators.rmsnorm.staff.bugs import compiled, memory, results

BANKS = (results, memory, compiled)
