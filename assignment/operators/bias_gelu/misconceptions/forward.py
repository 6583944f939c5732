"""What can go wrong in the forward pass of bias and GELU."""

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from assignment.operators.bias_gelu.misconceptions.model import is_tanh, other, share
from assignment.operators.misconception import Call, table
from assignment.operators.rows import Variants
from tests.bias_gelu import oracle
from tests.bias_gelu.oracle import CUBIC, of_tanh

FLOAT32_HALF = 44.3  # exp of twice as much overflows


def forward(y: Callable[[Call, Tensor, Tensor], Tensor]) -> Variants:
    """Of the call, x and bias."""
    return lambda call: iter([[y(call, call.tensors[0].double(), call.tensors[1].double())]])


def of_z(y: Callable[[Tensor], Tensor]) -> Variants:
    return forward(lambda call, x, bias: y(x + bias))


def other_form(call: Call) -> Iterator[Sequence[Tensor]]:
    x, bias = call.tensors
    yield [oracle.bias_gelu_forward(x, bias, other(call))]


def overflowed(call: Call) -> Iterator[Sequence[Tensor]]:
    """tanh as a quotient of powers that both overflow, on one side or on the other."""
    if not is_tanh(call):
        return
    z = call.tensors[0].double() + call.tensors[1].double()
    u = math.sqrt(2 / math.pi) * (z + CUBIC * z**3)
    for is_over in (u > FLOAT32_HALF, u < -FLOAT32_HALF, u.abs() > FLOAT32_HALF, u > 2 * FLOAT32_HALF):
        yield [torch.where(is_over, math.nan, z * of_tanh(z))]


def along_rows(call: Call) -> Iterator[Sequence[Tensor]]:
    """The bias of another column, or of a row."""
    x, bias = call.tensors[0].double(), call.tensors[1].double()
    n = x.shape[:-1].numel()
    by_row = bias[torch.arange(n) % len(bias)].view(*x.shape[:-1], 1)
    for z in (x + by_row, x + bias[:1], *(x + bias.roll(step) for step in (1, -1))):
        yield [z * share(call, z)]


TOLD = """
no-bias | mathematics | Your result equals gelu(x), without the bias | Where does bias come in?
bias-after | mathematics | Your result equals gelu(x) + bias | The bias is added before the GELU.
x-in-front | mathematics | Your result equals x · Φ(x + bias) |
    GELU is z · Φ(z): both are of x + bias.
bias-subtracted | mathematics | Your result equals gelu(x − bias) | Which sign has the bias?
bias-of-another-column | algorithm | Your result has the bias of another column, or of a row |
    bias is indexed by the column alone.
the-other-form | mathematics | Your result equals the GELU of the other form: tanh in place of erf,
    or erf in place of tanh | approximate is "none" for erf and "tanh" for tanh; the default is erf.
a-sigmoid-of-z | mathematics | Your result equals z · σ(1.702 z), or z · σ(z) |
    That is a third form, and SiLU: neither is asked for.
relu | mathematics | Your result equals max(x + bias, 0) | That is ReLU.
erf-of-z | mathematics | Your result equals z · ½ (1 + erf(z)) | Φ(z) is ½ (1 + erf(z / √2)).
half-missing | mathematics | Your result is twice the GELU | Φ(z) is between 0 and 1.
no-cubic-term | mathematics | Your result equals the tanh form without its cubic term, or with
    another one | √(2/π) (z + 0.044715 z³): is 0.044715 z³ within the parentheses?
inf-over-inf | what-goes-wrong | Your result is NaN where |z|
    is large: a quotient of powers that both overflow | tanh u = (exp(2u) − 1) / (exp(2u) + 1) is
    ∞/∞ above 44: which form has one power only?
"""
MODELS = {
    "no-bias": forward(lambda call, x, bias: x * share(call, x) + 0 * bias),
    "bias-after": forward(lambda call, x, bias: x * share(call, x) + bias),
    "x-in-front": forward(lambda call, x, bias: x * share(call, x + bias)),
    "bias-subtracted": forward(lambda call, x, bias: (x - bias) * share(call, x - bias)),
    "bias-of-another-column": along_rows,
    "the-other-form": other_form,
    "a-sigmoid-of-z": lambda call: (
        [z * (by * z).sigmoid()] for z in [call.tensors[0].double() + call.tensors[1].double()] for by in (1.702, 1.0)
    ),
    "relu": of_z(lambda z: z.clamp(min=0)),
    "erf-of-z": of_z(lambda z: z * 0.5 * (1 + torch.erf(z))),
    "half-missing": forward(lambda call, x, bias: 2 * (x + bias) * share(call, x + bias)),
    "no-cubic-term": lambda call: (
        [z * (2 * u).sigmoid()]
        for z in [call.tensors[0].double() + call.tensors[1].double()]
        for u in (
            math.sqrt(2 / math.pi) * z,
            math.sqrt(2 / math.pi) * (z + CUBIC * z**2),
            math.sqrt(2 / math.pi) * z + CUBIC * z**3,
            math.sqrt(1 / math.pi) * (z + CUBIC * z**3),
            math.sqrt(math.pi / 2) * (z + CUBIC * z**3),
        )
    ),
    "inf-over-inf": overflowed,
}
MISCONCEPTIONS = table("bias_gelu", TOLD, MODELS)
