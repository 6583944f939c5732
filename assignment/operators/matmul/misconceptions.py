"""What can go wrong in a product of matrices."""

import functools
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from assignment.operators.misconception import TILES, Call, Misconception, Models, rounded
from tests.matmul import oracle

FORMULA, ALGORITHM = "handout/matmul.md#mathematics", "handout/matmul.md#algorithm"
WRONG = "handout/matmul.md#what-goes-wrong"
STEPS = (16, *TILES[1:], 256)  # terms of a tile


def of_factors(c: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Call], Iterator[Sequence[Tensor]]]:
    return lambda call: iter([[c(call.tensors[0].double(), call.tensors[1].double())]])


def some_terms(call: Call) -> Iterator[Sequence[Tensor]]:
    """The sum over the first terms, the last, all but a tile, or those of one tile in several."""
    a, b = (tensor.double() for tensor in call.tensors)
    k = len(b)
    for step in STEPS:
        for terms in (slice(0, step), slice((k - 1) // step * step, None), slice(0, k // step * step), slice(step, k)):
            if len(b[terms]) < k:
                yield [a[..., terms] @ b[terms]]


def one_tile_again(call: Call) -> Iterator[Sequence[Tensor]]:
    """The first tile of one factor or of both, as often as there are tiles of terms."""
    a, b = (tensor.double() for tensor in call.tensors)
    k = len(b)
    for step in STEPS:
        terms = torch.arange(k) % step
        if step < k:
            yield [a[..., terms] @ b]
            yield [a @ b[terms]]
            yield [a[..., terms] @ b[terms]]


def transposed(call: Call) -> Iterator[Sequence[Tensor]]:
    a, b = (tensor.double() for tensor in call.tensors)
    if b.shape[0] == b.shape[1]:
        yield [a @ b.mT]
    if a.shape[-1] == a.shape[-2]:
        yield [a.mT @ b]
    c = a @ b
    if c.shape[-1] == c.shape[-2]:
        yield [c.mT]


def summed_in_16_bits(call: Call) -> Iterator[Sequence[Tensor]]:
    if call.dtype == torch.float32:
        return
    a, b = (tensor.double() for tensor in call.tensors)
    for dtype in (call.dtype, torch.float16):
        cast = rounded(dtype)
        for step in STEPS:
            parts = zip(a.split(step, -1), b.split(step), strict=True)
            products = [x @ y for x, y in parts]
            yield [functools.reduce(lambda total, part: cast(total + part), products, 0 * products[0])]
            yield [functools.reduce(lambda total, part: cast(total + cast(part)), products, 0 * products[0])]


def of_16_bits(call: Call) -> Iterator[Sequence[Tensor]]:
    for dtype in (torch.bfloat16, torch.float16):
        a, b = (tensor.to(dtype).double() for tensor in call.tensors)
        yield [a @ b]


MISCONCEPTIONS = [
    Misconception(
        "a-part-of-the-terms",
        "Your result is the sum over some of the k terms only",
        "Every tile of terms is added to the sum, the last one too, however few they are.",
        ALGORITHM,
        some_terms,
    ),
    Misconception(
        "the-same-tile-again",
        "Your result takes the first tile of a, of b or of both again in every step",
        "The pointers, or offsets, of both factors move along k in every step.",
        ALGORITHM,
        one_tile_again,
    ),
    Misconception(
        "transposed",
        "Your result is that of a transposed factor, or transposed itself",
        "Which stride belongs to rows, and which to columns?",
        FORMULA,
        transposed,
    ),
    Misconception(
        "element-by-element",
        "Your result equals the product of sums, not the sum of products",
        "Each term is a product of its own.",
        FORMULA,
        of_factors(lambda a, b: a.sum(-1, keepdim=True) * b.sum(0)),
    ),
    Misconception(
        "the-mean",
        "Your result is divided by k, or by √k",
        "It is a sum.",
        FORMULA,
        lambda call: (
            [oracle.matmul(*call.tensors) / divisor] for divisor in (len(call.tensors[1]), len(call.tensors[1]) ** 0.5)
        ),
    ),
    Misconception(
        "summed-in-16-bits",
        "Your result is added up in 16 bits",
        "The sum is float32, tl.dot's too; the cast comes once, at the store.",
        WRONG,
        summed_in_16_bits,
    ),
    Misconception(
        "factors-in-16-bits",
        "Your result has factors that were rounded to 16 bits",
        "float32 goes into tl.dot as it is: TF32 keeps 10 bits of it.",
        WRONG,
        of_16_bits,
    ),
    Misconception(
        "the-sign",
        "Your result has the other sign, or is twice as large",
        "What is the sum begun with?",
        FORMULA,
        lambda call: ([factor * oracle.matmul(*call.tensors)] for factor in (-1, 2)),
    ),
]
MODELS = {"matmul": Models(MISCONCEPTIONS, WRONG, n_inner=2)}
