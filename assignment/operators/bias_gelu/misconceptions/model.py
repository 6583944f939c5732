"""Bias and GELU, right by default."""

from torch import Tensor

from assignment.operators.misconception import Call
from tests.bias_gelu.oracle import of_erf, of_tanh


def is_tanh(call: Call) -> bool:
    return call.options.get("approximate", "none") == "tanh"


def share(call: Call, z: Tensor) -> Tensor:
    """Φ(z), or what takes its place."""
    return of_tanh(z) if is_tanh(call) else of_erf(z)


def other(call: Call) -> str:
    """The form that is not asked for."""
    return "none" if is_tanh(call) else "tanh"
