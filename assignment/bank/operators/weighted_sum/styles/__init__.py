"""Right weighted sums: the base in other styles."""

from assignment.bank.operators.weighted_sum.styles import (
    compiled,
    functions,
    kernels,
    launches,
    memory,
    sums,
    together,
    tuners,
    values,
)

BANKS = [tuners, launches, values, memory, functions, kernels, sums, compiled, together]
