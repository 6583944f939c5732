"""What can go wrong in softmax, forward and backward."""

from assignment.operators.misconception import Models
from assignment.operators.softmax.misconceptions import backward, forward

WRONG = "handout/softmax.md#what-goes-wrong"
MODELS = {
    "softmax_forward": Models(forward.MISCONCEPTIONS, WRONG),
    "softmax_backward": Models(backward.MISCONCEPTIONS, WRONG),
}
