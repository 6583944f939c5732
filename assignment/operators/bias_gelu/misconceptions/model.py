"""Bias and GELU, right by default; the sections of the chapter that tell of a wrong one."""

from torch import Tensor

from assignment.operators.misconception import Call
from tests.bias_gelu.oracle import of_erf, of_tanh

FORMULA, GRADIENT = "handout/bias_gelu.md#mathematics", "handout/bias_gelu.md#the-gradient"
ALGORITHM, WRONG = "handout/bias_gelu.md#algorithm", "handout/bias_gelu.md#what-goes-wrong"


def is_tanh(call: Call) -> bool:
    return call.options.get("approximate", "none") == "tanh"


def share(call: Call, z: Tensor) -> Tensor:
    """Φ(z), or what takes its place."""
    return of_tanh(z) if is_tanh(call) else of_erf(z)


def other(call: Call) -> str:
    """The form that is not asked for."""
    return "none" if is_tanh(call) else "tanh"
