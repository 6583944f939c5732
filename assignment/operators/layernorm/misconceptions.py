"""What can go wrong in LayerNorm, forward and backward."""

from collections.abc import Sequence

from torch import Tensor

from assignment.operators.layer_norms.backward import told_backward
from assignment.operators.layer_norms.forward import told_forward
from assignment.operators.layer_norms.model import Backward, Forward
from assignment.operators.misconception import Call, Models

DEFAULT_EPS = 1e-5
NUMBERS = "handout/layernorm.md#what-goes-wrong"


def forward(call: Call, way: Forward) -> Sequence[Tensor]:
    x, weight, bias = call.tensors
    return way(x, weight, bias, call.options.get("eps", DEFAULT_EPS))


def backward(call: Call, way: Backward) -> Sequence[Tensor]:
    grad_y, x, weight, mean, rstd = call.tensors
    return way(grad_y, x, weight, mean, rstd)


MODELS = {
    "layernorm_forward": Models(told_forward("layernorm", forward, normalized=lambda call: call.tensors[0]), NUMBERS),
    "layernorm_backward": Models(told_backward("layernorm", backward), NUMBERS),
}
