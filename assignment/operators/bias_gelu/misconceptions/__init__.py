"""What can go wrong in bias and GELU, forward and backward."""

from assignment.operators.bias_gelu.misconceptions import backward, forward
from assignment.operators.misconception import Models

WRONG = "handout/bias_gelu.md#what-goes-wrong"
MODELS = {
    "bias_gelu_forward": Models(forward.MISCONCEPTIONS, WRONG),
    "bias_gelu_backward": Models(backward.MISCONCEPTIONS, WRONG, right=backward.right),
}
