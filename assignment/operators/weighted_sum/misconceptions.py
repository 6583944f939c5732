"""What can go wrong in the weighted sum, forward and backward."""

import functools
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from assignment.operators.misconception import Call, Misconception, Models, padded_width, rounded
from assignment.operators.rows import WIDTHS, Round, Variants, in_dtype, lost_rows, mean_counts, several, summed_in


def forward(y: Callable[[Tensor, Tensor], Tensor]) -> Variants:
    return lambda call: iter([[y(*(tensor.double() for tensor in call.tensors[:2]))]])


def one_tile(call: Call) -> Iterator[Sequence[Tensor]]:
    """The sum over one tile of columns."""
    x, weight = (tensor.double() for tensor in call.tensors)
    d = x.shape[-1]
    if d < USUAL_WIDTH:  # no whole tile at all
        yield [0 * (x * weight).sum(-1)]
    for width in (width for width in WIDTHS if width < d):
        last = (d - 1) // width * width
        for part in (slice(0, width), slice(last, None), slice(0, d // width * width)):
            yield [(x[..., part] * weight[part]).sum(-1)]


def along_rows(call: Call) -> Iterator[Sequence[Tensor]]:
    """Sums along the rows of square tiles, whose columns are taken for rows."""
    x, weight = (tensor.double() for tensor in call.tensors)
    products = (x * weight).reshape(-1, x.shape[-1])
    n_rows, d = products.shape
    for size in SQUARES:
        padded = torch.nn.functional.pad(products, (0, -d % size, 0, -n_rows % size))
        tiles = padded.unflatten(0, (-1, size)).unflatten(-1, (-1, size))
        yield [tiles.sum((1, 2)).flatten()[:n_rows].reshape(x.shape[:-1])]


SQUARES = 16, 32, 64, 128
USUAL_WIDTH = 64  # of a tile
MATH, ALGORITHM = "handout/weighted_sum.md#mathematics", "handout/weighted_sum.md#algorithm"
NUMBERS = "handout/weighted_sum.md#what-goes-wrong"

FORWARD = [
    Misconception(
        "weight-forgotten-in-the-sum",
        "Your y equals the plain sum of x, without the weight",
        "y = Σ x_j w_j.",
        MATH,
        forward(lambda x, weight: x.sum(-1) + 0 * weight.sum()),
    ),
    Misconception(
        "weighted-mean",
        "Your y equals the weighted mean",
        "Nothing is divided by d, nor by the sum of the weights.",
        MATH,
        several(
            forward(lambda x, weight: (x * weight).mean(-1)),
            forward(lambda x, weight: (x * weight).sum(-1) / weight.sum()),
            forward(lambda x, weight: (x * weight).sum(-1) / padded_width(x.shape[-1])),
        ),
    ),
    Misconception(
        "sum-of-one-tile-of-columns",
        "Your y is the sum over some tiles of columns only",
        "Does the loop reach the last, partial tile, and is its sum added to the others?",
        ALGORITHM,
        one_tile,
    ),
    Misconception(
        "sum-along-the-rows-of-a-tile",
        "Your y equals sums along the rows of a tile, where those along its columns belong",
        "tl.sum(x * w[None, :], axis=1) leaves one number a row; axis=0 leaves one a column.",
        "handout/triton.md#shapes-in-a-tile",
        along_rows,
    ),
    Misconception(
        "sum-in-16-bits-of-a-row",
        "Your y equals a sum whose terms, or itself, are rounded to the inputs' 16 bits",
        "Cast x and w to float32 as they are loaded; cast once more at the store.",
        NUMBERS,
        several(
            in_dtype(lambda call, cast: [cast(products(call)).sum(-1)]),
            lambda call: (
                [total]
                for width in WIDTHS
                if call.dtype != torch.float32
                for total in added_up(call, width, rounded(call.dtype))
            ),
        ),
    ),
    Misconception(
        "inputs-rounded",
        "Your y equals the sum of inputs rounded to 16 bits whatever they are",
        "float32 stays float32.",
        NUMBERS,
        lambda call: (
            [(cast_x(call.tensors[0].double()) * cast_w(call.tensors[1].double())).sum(-1)]
            for dtype in (torch.bfloat16, torch.float16)
            if dtype != call.dtype
            for cast_x, cast_w in ((rounded(dtype), rounded(dtype)), (rounded(dtype), same), (same, rounded(dtype)))
        ),
    ),
    Misconception(
        "small-taken-for-zero",
        "Your y is zero where it is small",
        "No value is too small to count.",
        MATH,
        lambda call: (
            [torch.where(y.abs() < limit, 0.0, y)]
            for y in [products(call).sum(-1)]
            for limit in (10.0**-i for i in range(1, 13))
        ),
    ),
]


def same(x: Tensor) -> Tensor:
    return x


def products(call: Call) -> Tensor:
    return call.tensors[0].double() * call.tensors[1].double()


def added_up(call: Call, width: int, cast: Round) -> Iterator[Tensor]:
    """The running sum rounded after each tile of columns; or one for each column of a tile."""
    parts = products(call).split(width, -1)
    yield functools.reduce(lambda total, part: cast(total + cast(part.sum(-1))), parts, torch.zeros(()))
    yield functools.reduce(lambda total, part: cast(total + part.sum(-1)), parts, torch.zeros(()))
    lanes = torch.zeros(*call.tensors[0].shape[:-1], width, dtype=torch.float64)
    for part in parts:
        lanes[..., : part.shape[-1]] = cast(lanes[..., : part.shape[-1]] + cast(part))
    yield lanes.sum(-1)
    yield cast(lanes).sum(-1)


def gradients(call: Call) -> tuple[Tensor, Tensor]:
    """grad_x, and the terms of grad_weight by row."""
    grad_y, x, weight = (tensor.double() for tensor in call.tensors)
    return grad_y.unsqueeze(-1) * weight, (grad_y.unsqueeze(-1) * x).reshape(-1, x.shape[-1])


BACKWARD = [
    Misconception(
        "grad-x-without-the-weight",
        "Your grad_x equals grad_y alone, without the weight",
        "y_i = Σ x_ij w_j: what is the derivative by x_ij?",
        MATH,
        lambda call: (
            [call.tensors[0].double().unsqueeze(-1).expand_as(grad_x), terms.sum(0)]
            for grad_x, terms in [gradients(call)]
        ),
    ),
    Misconception(
        "grad-x-of-x-in-place-of-the-weight",
        "Your grad_x equals grad_y times x, where the weight belongs",
        "y_i = Σ x_ij w_j: what is the derivative by x_ij?",
        MATH,
        lambda call: (
            [call.tensors[0].double().unsqueeze(-1) * call.tensors[1].double(), terms.sum(0)]
            for _, terms in [gradients(call)]
        ),
    ),
    Misconception(
        "grad-weight-without-grad-y",
        "Your grad_weight equals the sum of x, without grad_y",
        "y_i = Σ x_ij w_j: by the chain rule each row counts as much as its grad_y.",
        MATH,
        lambda call: iter(
            [[gradients(call)[0], call.tensors[1].double().reshape(-1, call.tensors[1].shape[-1]).sum(0)]]
        ),
    ),
    Misconception(
        "weighted-sum-rows-lost",
        "Your grad_weight is the sum over some of the rows only",
        "Each program adds up its rows, and all partial sums are added: which of them are lost, or overwritten?",
        ALGORITHM,
        lambda call: (
            [grad_x, terms[rows].sum(0)] for grad_x, terms in [gradients(call)] for rows in lost_rows(len(terms))
        ),
    ),
    Misconception(
        "weighted-sum-mean-over-rows",
        "Your grad_weight is a mean over the rows, or over tiles of rows, in place of the sum",
        "grad_weight is a sum over all rows.",
        MATH,
        lambda call: (
            [grad_x, terms.sum(0) / count]
            for grad_x, terms in [gradients(call)]
            for count in mean_counts(call.tensors[1])
        ),
    ),
    Misconception(
        "weighted-sum-partial-sums-in-16-bits",
        "Your grad_weight is added up, or its terms are multiplied, in the inputs' 16 bits",
        "Partial sums are float32; the cast comes once, at the end.",
        NUMBERS,
        several(
            in_dtype(lambda call, cast: [gradients(call)[0], cast(gradients(call)[1]).sum(0)]),
            lambda call: (
                [grad_x, total]
                for grad_x, terms in [gradients(call)]
                for size in (1, 2, 4, 8, 16, 32, 64, 128)
                if call.dtype != torch.float32
                for total in summed_in(call.dtype, terms, size)
            ),
        ),
    ),
]


MODELS = {"weighted_sum_forward": Models(FORWARD, NUMBERS), "weighted_sum_backward": Models(BACKWARD, NUMBERS)}
