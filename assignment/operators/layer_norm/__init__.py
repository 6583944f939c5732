"""What can go wrong in a LayerNorm, forward and backward, right by default: for all operators that have one."""

from assignment.operators.layer_norm.backward import told_backward
from assignment.operators.layer_norm.forward import told_forward
from assignment.operators.layer_norm.model import Backward, Forward

__all__ = ["Backward", "Forward", "told_backward", "told_forward"]
