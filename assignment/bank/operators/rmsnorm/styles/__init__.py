"""Right RMSNorms: the base in other styles."""

from assignment.bank.operators.rmsnorm.styles import host, kernels, libraries, tutorials, wide

BANKS = [host, kernels, wide, libraries, tutorials]
