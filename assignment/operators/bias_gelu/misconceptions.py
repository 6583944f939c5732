"""What can go wrong in bias and GELU, forward and backward."""

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from assignment.operators.misconception import Call, Misconception, Models
from assignment.operators.rows import Variants, lost_rows, mean_counts, summed_in
from tests.bias_gelu import oracle
from tests.bias_gelu.oracle import CUBIC, of_erf, of_tanh
from tests.sums import as_rows, sum_rows

FORMULA, GRADIENT = "handout/bias_gelu.md#mathematics", "handout/bias_gelu.md#the-gradient"
ALGORITHM, WRONG = "handout/bias_gelu.md#algorithm", "handout/bias_gelu.md#what-goes-wrong"
FLOAT32_HALF = 44.3  # exp of twice as much overflows


def is_tanh(call: Call) -> bool:
    return call.options.get("approximate", "none") == "tanh"


def share(call: Call, z: Tensor) -> Tensor:
    """Φ(z), or what takes its place."""
    return of_tanh(z) if is_tanh(call) else of_erf(z)


def forward(y: Callable[[Call, Tensor, Tensor], Tensor]) -> Variants:
    """Of the call, x and bias."""
    return lambda call: iter([[y(call, call.tensors[0].double(), call.tensors[1].double())]])


def of_z(y: Callable[[Tensor], Tensor]) -> Variants:
    return forward(lambda call, x, bias: y(x + bias))


def other(call: Call) -> str:
    """The form that is not asked for."""
    return "none" if is_tanh(call) else "tanh"


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


FORWARD = [
    Misconception(
        "no-bias",
        "Your result equals gelu(x), without the bias",
        "Where does bias come in?",
        FORMULA,
        forward(lambda call, x, bias: x * share(call, x) + 0 * bias),
    ),
    Misconception(
        "bias-after",
        "Your result equals gelu(x) + bias",
        "The bias is added before the GELU.",
        FORMULA,
        forward(lambda call, x, bias: x * share(call, x) + bias),
    ),
    Misconception(
        "x-in-front",
        "Your result equals x · Φ(x + bias)",
        "GELU is z · Φ(z): both are of x + bias.",
        FORMULA,
        forward(lambda call, x, bias: x * share(call, x + bias)),
    ),
    Misconception(
        "bias-subtracted",
        "Your result equals gelu(x − bias)",
        "Which sign has the bias?",
        FORMULA,
        forward(lambda call, x, bias: (x - bias) * share(call, x - bias)),
    ),
    Misconception(
        "bias-of-another-column",
        "Your result has the bias of another column, or of a row",
        "bias is indexed by the column alone.",
        ALGORITHM,
        along_rows,
    ),
    Misconception(
        "the-other-form",
        "Your result equals the GELU of the other form: tanh in place of erf, or erf in place of tanh",
        'approximate is "none" for erf and "tanh" for tanh; the default is erf.',
        FORMULA,
        other_form,
    ),
    Misconception(
        "a-sigmoid-of-z",
        "Your result equals z · σ(1.702 z), or z · σ(z)",
        "That is a third form, and SiLU: neither is asked for.",
        FORMULA,
        lambda call: (
            [z * (by * z).sigmoid()]
            for z in [call.tensors[0].double() + call.tensors[1].double()]
            for by in (1.702, 1.0)
        ),
    ),
    Misconception(
        "relu",
        "Your result equals max(x + bias, 0)",
        "That is ReLU.",
        FORMULA,
        of_z(lambda z: z.clamp(min=0)),
    ),
    Misconception(
        "erf-of-z",
        "Your result equals z · ½ (1 + erf(z))",
        "Φ(z) is ½ (1 + erf(z / √2)).",
        FORMULA,
        of_z(lambda z: z * 0.5 * (1 + torch.erf(z))),
    ),
    Misconception(
        "half-missing",
        "Your result is twice the GELU",
        "Φ(z) is between 0 and 1.",
        FORMULA,
        forward(lambda call, x, bias: 2 * (x + bias) * share(call, x + bias)),
    ),
    Misconception(
        "no-cubic-term",
        "Your result equals the tanh form without its cubic term, or with another one",
        "√(2/π) (z + 0.044715 z³): is 0.044715 z³ within the parentheses?",
        FORMULA,
        lambda call: (
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
    ),
    Misconception(
        "inf-over-inf",
        "Your result is NaN where |z| is large: a quotient of powers that both overflow",
        "tanh u = (exp(2u) − 1) / (exp(2u) + 1) is ∞/∞ above 44: which form has one power only?",
        WRONG,
        overflowed,
    ),
]


def backward(slope: Callable[[Call, Tensor], Tensor], grad_bias: Callable[[Tensor], Tensor] = sum_rows) -> Variants:
    """grad_y times something of z, and its sum."""

    def variants(call: Call) -> Iterator[Sequence[Tensor]]:
        grad_y, x, bias = (tensor.double() for tensor in call.tensors)
        grad_x = grad_y * slope(call, x + bias)
        yield [grad_x, grad_bias(grad_x)]

    return variants


def right(call: Call) -> Sequence[Tensor]:
    grad_y, x, bias = call.tensors
    return oracle.bias_gelu_backward(grad_y, x, bias, **call.options)


def density(z: Tensor) -> Tensor:
    return (-0.5 * z * z).exp() / math.sqrt(2 * math.pi)


def without_bias(call: Call) -> Iterator[Sequence[Tensor]]:
    grad_y, x, bias = call.tensors
    yield oracle.bias_gelu_backward(grad_y, x, torch.zeros_like(bias), **call.options)


def form_of_the_forward(call: Call) -> Iterator[Sequence[Tensor]]:
    grad_y, x, bias = call.tensors
    yield oracle.bias_gelu_backward(grad_y, x, bias, other(call))


def some_rows(call: Call) -> Iterator[Sequence[Tensor]]:
    grad_x, _ = right(call)
    terms = as_rows(grad_x)
    yield from ([grad_x, terms[rows].sum(0)] for rows in lost_rows(len(terms)))


def in_16_bits(call: Call) -> Iterator[Sequence[Tensor]]:
    if call.dtype != torch.float32:
        grad_x, _ = right(call)
        for size in (1, 2, 4, 8, 16, 32, 64, 128):
            yield from ([grad_x, total] for total in summed_in(call.dtype, as_rows(grad_x), size))


BACKWARD = [
    Misconception(
        "product-rule-forgotten",
        "Your gradients equal grad_y · Φ(z), without z · Φ′(z)",
        "z stands in both factors of z · Φ(z).",
        GRADIENT,
        backward(share),
    ),
    Misconception(
        "density-alone",
        "Your gradients equal grad_y · z · Φ′(z), without Φ(z)",
        "z stands in both factors of z · Φ(z).",
        GRADIENT,
        backward(lambda call, z: z * density(z)),
    ),
    Misconception(
        "density-without-z",
        "Your gradients equal grad_y · (Φ(z) + Φ′(z))",
        "The second term of the product rule has the factor z.",
        GRADIENT,
        backward(lambda call, z: share(call, z) + density(z)),
    ),
    Misconception(
        "density-not-normalised",
        "Your gradients have exp(−z²/2), or with another factor, in place of the density",
        "Φ′(z) = exp(−z²/2) / √(2π).",
        GRADIENT,
        lambda call: (
            variant
            for factor in (1.0, 1 / math.sqrt(math.pi), math.sqrt(2 / math.pi), 1 / math.sqrt(2), 1 / (2 * math.pi))
            for variant in backward(lambda call, z, f=factor: share(call, z) + z * f * (-0.5 * z * z).exp())(call)
        ),
    ),
    Misconception(
        "backward-without-the-bias",
        "Your gradients equal those of gelu(x), without the bias",
        "z = x + bias in the backward pass, too.",
        GRADIENT,
        without_bias,
    ),
    Misconception(
        "gradient-of-the-other-form",
        "Your gradients equal those of the other form: tanh in place of erf, or erf in place of tanh",
        "Does approximate reach the backward pass?",
        GRADIENT,
        form_of_the_forward,
    ),
    Misconception(
        "inner-slope-missing",
        "Your gradients equal those of the tanh form without 3 · 0.044715 z² in the inner derivative",
        "u = √(2/π) (z + 0.044715 z³): what is its derivative?",
        GRADIENT,
        lambda call: (
            variant
            for slope in (lambda z: 1 + 0 * z, lambda z: 1 + CUBIC * z * z)
            for variant in backward(
                lambda call, z, slope=slope: (
                    of_tanh(z) + z * of_tanh(z) * (1 - of_tanh(z)) * 2 * math.sqrt(2 / math.pi) * slope(z)
                )
            )(call)
        ),
    ),
    Misconception(
        "grad-bias-of-grad-y",
        "Your grad_bias is the sum of grad_y, not of grad_x",
        "The bias goes through the GELU as x does.",
        GRADIENT,
        lambda call: iter([[right(call)[0], sum_rows(call.tensors[0].double())]]),
    ),
    Misconception(
        "grad-bias-the-mean",
        "Your grad_bias is a mean over the rows in place of the sum",
        "grad_bias is a sum over all rows.",
        GRADIENT,
        lambda call: (
            [grad_x, grad_bias / count] for grad_x, grad_bias in [right(call)] for count in mean_counts(call.tensors[1])
        ),
    ),
    Misconception(
        "rows-lost-in-grad-bias",
        "Your grad_bias is the sum over some of the rows only",
        "Each program adds up its rows, and all partial sums are added: which of them are lost, or overwritten?",
        ALGORITHM,
        some_rows,
    ),
    Misconception(
        "grad-bias-summed-in-16-bits",
        "Your grad_bias is added up in the inputs' 16 bits",
        "Partial sums are float32; the cast comes once, at the end.",
        WRONG,
        in_16_bits,
    ),
]

MODELS = {
    "bias_gelu_forward": Models(FORWARD, WRONG),
    "bias_gelu_backward": Models(BACKWARD, WRONG, right=right),
}
