"""What can go wrong in a linear layer and its GELU: in the product, and in what is done to it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from assignment.operators.bias_gelu.misconceptions import forward as epilogue
from assignment.operators.bias_gelu.misconceptions.model import share
from assignment.operators.matmul import misconceptions as product
from assignment.operators.misconception import Call, Model, Models, rounded, table

WRONG = "handout/linear_gelu.md#what-goes-wrong"


def exact(call: Call) -> Tensor:
    x, weight, _ = call.tensors
    return x.double() @ weight.double().mT


def gelu(call: Call, z: Tensor) -> Tensor:
    return z * share(call, z)


def of_product(model: Model) -> Model:
    """Return the model of a wrong product, with the bias and the GELU after it."""

    def variants(call: Call) -> Iterator[Sequence[Tensor]]:
        x, weight, bias = call.tensors
        for (wrong,) in model(replace(call, tensors=[x, weight.mT])):
            if wrong.shape[-1] == len(bias):
                yield [gelu(call, wrong + bias.double())]

    return variants


def of_epilogue(model: Model) -> Model:
    """Return the model of a wrong bias or GELU, of the right product."""
    return lambda call: model(replace(call, tensors=[exact(call), call.tensors[2]]))


def weight_as_it_lies(call: Call) -> Iterator[Sequence[Tensor]]:
    """The elements of weight as if it were (k, n): where both are one number, its transpose."""
    x, weight, bias = (tensor.double() for tensor in call.tensors)
    n, k = weight.shape
    yield [gelu(call, x @ weight.reshape(k, n) + bias)]


def before_the_bias(call: Call) -> Iterator[Sequence[Tensor]]:
    """The sum in 16 bits when the bias is added, and perhaps what it is then."""
    for dtype in (torch.bfloat16, torch.float16):
        cast = rounded(dtype)
        z = cast(exact(call)) + call.tensors[2].double()
        yield [gelu(call, z)]
        yield [gelu(call, cast(z))]


def per_tile(call: Call) -> Iterator[Sequence[Tensor]]:
    """The bias, or the GELU, with each tile of terms."""
    x, weight, bias = (tensor.double() for tensor in call.tensors)
    for step in product.STEPS:
        parts = zip(x.split(step, -1), weight.split(step, -1), strict=True)
        terms = [a @ b.mT for a, b in parts]
        if len(terms) > 1:
            yield [gelu(call, torch.stack(terms).sum(0) + len(terms) * bias)]
            yield [torch.stack([gelu(call, term + bias) for term in terms]).sum(0)]


TOLD = """
part-of-the-terms | algorithm | Your result has the sum over some of the k terms only |
    Every tile of terms is added to the sum, the last one too, however few they are.
same-tile-again | algorithm | Your result has the first tile of x, of weight or of both again in
    every step | The pointers, or offsets, of both move along k in every step.
transposed | mathematics | Your result has a factor that is transposed, or is transposed itself |
    Which stride belongs to rows, and which to columns?
weight-as-it-lies | mathematics | Your result has the elements of weight in the order of (k, n) |
    weight is (n, k): its rows are what y has as columns.
sign-or-twice | mathematics | Your result has the product with the other sign, or twice |
    What is the sum begun with?
bias-per-tile | algorithm | Your result has the bias, or the GELU, with every tile of terms |
    Both come after the loop, once.
sum-cast-before-the-bias | what-goes-wrong | Your result has a sum that was cast to 16 bits before
    the bias was added | Cast once, at the store, after the GELU.
sum-in-16-bits | what-goes-wrong | Your result has a sum that is added up in 16 bits |
    The sum is float32, tl.dot's too; the cast comes once, at the store.
factors-in-16-bits | what-goes-wrong | Your result has factors that were rounded to 16 bits |
    float32 goes into tl.dot as it is: TF32 keeps 10 bits of it.
no-bias | mathematics | Your result equals gelu(x weightᵀ), without the bias |
    Where does bias come in?
bias-after | mathematics | Your result equals gelu(x weightᵀ) + bias |
    The bias is added before the GELU.
factor-without-bias | mathematics | Your result equals x weightᵀ · Φ(x weightᵀ + bias) |
    GELU is z · Φ(z): both are of the sum and the bias.
bias-subtracted | mathematics | Your result equals gelu(x weightᵀ − bias) | Which sign has the bias?
bias-of-another-column | algorithm | Your result has the bias of another column, or of a row |
    bias is indexed by the column of y alone.
no-gelu | mathematics | Your result equals x weightᵀ + bias, without the GELU |
    What is done to the sum before it is stored?
the-other-form | mathematics | Your result equals the GELU of the other form: tanh in place of erf,
    or erf in place of tanh | approximate is "none" for erf and "tanh" for tanh; the default is erf.
a-sigmoid | mathematics | Your result equals z · σ(1.702 z), or z · σ(z) |
    That is a third form, and SiLU: neither is asked for.
relu | mathematics | Your result equals max(z, 0) | That is ReLU.
erf-of-z | mathematics | Your result equals z · ½ (1 + erf(z)) | Φ(z) is ½ (1 + erf(z / √2)).
half-missing | mathematics | Your result is twice the GELU | Φ(z) is between 0 and 1.
no-cubic-term | mathematics | Your result equals the tanh form without its cubic term, or with
    another one | √(2/π) (z + 0.044715 z³): is 0.044715 z³ within the parentheses?
"""
OF_PRODUCT = {
    "part-of-the-terms": product.some_terms,
    "same-tile-again": product.one_tile_again,
    "transposed": product.transposed,
    "sign-or-twice": lambda call: ([by * product.oracle.matmul(*call.tensors)] for by in (-1, 2)),
    "sum-in-16-bits": product.summed_in_16_bits,
    "factors-in-16-bits": product.of_16_bits,
}
OF_EPILOGUE = {
    "factor-without-bias": "x-in-front",
    "a-sigmoid": "a-sigmoid-of-z",
    **{
        name: name
        for name in (
            "no-bias",
            "bias-after",
            "bias-subtracted",
            "bias-of-another-column",
            "the-other-form",
            "relu",
            "erf-of-z",
            "half-missing",
            "no-cubic-term",
        )
    },
}
MODELS_BY_NAME = {
    **{name: of_product(model) for name, model in OF_PRODUCT.items()},
    **{name: of_epilogue(epilogue.MODELS[theirs]) for name, theirs in OF_EPILOGUE.items()},
    "weight-as-it-lies": weight_as_it_lies,
    "sum-cast-before-the-bias": before_the_bias,
    "bias-per-tile": per_tile,
    "no-gelu": lambda call: iter([[exact(call) + call.tensors[2].double()]]),
}
MISCONCEPTIONS = table("linear_gelu", TOLD, MODELS_BY_NAME, prefix="linear_gelu-")
MODELS = {"linear_gelu": Models(MISCONCEPTIONS, WRONG, n_inner=2)}
