"""What can go wrong in RMSNorm, forward and backward."""

from assignment.operators.misconception import Models
from assignment.operators.rmsnorm.misconceptions import backward, forward_eps, forward_rows
from assignment.operators.rmsnorm.misconceptions.forward_model import NUMBERS

MODELS = {
    "rmsnorm_forward": Models([*forward_eps.MISCONCEPTIONS, *forward_rows.MISCONCEPTIONS], NUMBERS),
    "rmsnorm_backward": Models(backward.MISCONCEPTIONS, NUMBERS),
}
