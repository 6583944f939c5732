"""What can go wrong in the backward pass of bias and GELU."""

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from assignment.operators.bias_gelu.misconceptions.model import other, share
from assignment.operators.misconception import Call, table
from assignment.operators.rows import Variants, lost_rows, mean_counts, summed_in
from tests.bias_gelu import oracle
from tests.bias_gelu.oracle import CUBIC, of_tanh
from tests.sums import as_rows, sum_rows


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


TOLD = """
product-rule-forgotten | the-gradient | Your gradients equal grad_y · Φ(z), without z · Φ′(z) |
    z stands in both factors of z · Φ(z).
density-alone | the-gradient | Your gradients equal grad_y · z · Φ′(z), without Φ(z) |
    z stands in both factors of z · Φ(z).
density-without-z | the-gradient | Your gradients equal grad_y · (Φ(z) + Φ′(z)) |
    The second term of the product rule has the factor z.
density-not-normalised | the-gradient | Your gradients have exp(−z²/2), or with another factor, in
    place of the density | Φ′(z) = exp(−z²/2) / √(2π).
backward-without-the-bias | the-gradient | Your gradients equal those of gelu(x), without the bias |
    z = x + bias in the backward pass, too.
gradient-of-the-other-form | the-gradient | Your gradients equal those of the other form: tanh in
    place of erf, or erf in place of tanh | Does approximate reach the backward pass?
inner-slope-missing | the-gradient | Your gradients equal those of the tanh form without 3 ·
    0.044715 z² in the inner derivative | u = √(2/π) (z + 0.044715 z³): what is its derivative?
grad-bias-of-grad-y | the-gradient | Your grad_bias is the sum of grad_y, not of grad_x |
    The bias goes through the GELU as x does.
grad-bias-the-mean | the-gradient | Your grad_bias is a mean over the rows in place of the sum |
    grad_bias is a sum over all rows.
rows-lost-in-grad-bias | algorithm | Your grad_bias is the sum over some of the rows only |
    Each program adds up its rows, and all partial sums are added: which of them are lost, or
    overwritten?
grad-bias-summed-in-16-bits | what-goes-wrong | Your grad_bias is added up in the inputs' 16 bits |
    Partial sums are float32; the cast comes once, at the end.
"""
MODELS = {
    "product-rule-forgotten": backward(share),
    "density-alone": backward(lambda call, z: z * density(z)),
    "density-without-z": backward(lambda call, z: share(call, z) + density(z)),
    "density-not-normalised": lambda call: (
        variant
        for factor in (1.0, 1 / math.sqrt(math.pi), math.sqrt(2 / math.pi), 1 / math.sqrt(2), 1 / (2 * math.pi))
        for variant in backward(lambda call, z, f=factor: share(call, z) + z * f * (-0.5 * z * z).exp())(call)
    ),
    "backward-without-the-bias": without_bias,
    "gradient-of-the-other-form": form_of_the_forward,
    "inner-slope-missing": lambda call: (
        variant
        for slope in (lambda z: 1 + 0 * z, lambda z: 1 + CUBIC * z * z)
        for variant in backward(
            lambda call, z, slope=slope: (
                of_tanh(z) + z * of_tanh(z) * (1 - of_tanh(z)) * 2 * math.sqrt(2 / math.pi) * slope(z)
            )
        )(call)
    ),
    "grad-bias-of-grad-y": lambda call: iter([[right(call)[0], sum_rows(call.tensors[0].double())]]),
    "grad-bias-the-mean": lambda call: (
        [grad_x, grad_bias / count] for grad_x, grad_bias in [right(call)] for count in mean_counts(call.tensors[1])
    ),
    "rows-lost-in-grad-bias": some_rows,
    "grad-bias-summed-in-16-bits": in_16_bits,
}
MISCONCEPTIONS = table("bias_gelu", TOLD, MODELS)
