"""What can go wrong in softmax, forward and backward."""

from assignment.operators.misconception import Models
from assignment.operators.softmax.misconceptions import backward, forward
from assignment.operators.softmax.misconceptions.sections import WRONG

MODELS = {
    "softmax_forward": Models(forward.MISCONCEPTIONS, WRONG),
    "softmax_backward": Models(backward.MISCONCEPTIONS, WRONG),
}
