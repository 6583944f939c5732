"""Right weighted sums: the base in other styles."""

from assignment.bank.operators.weighted_sum.styles import compiled, functions, kernels, launches, memory, tuners

BANKS = [tuners, launches, memory, functions, kernels, compiled]
