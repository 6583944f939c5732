"""What can go wrong in dropout, residual and LayerNorm in one pass: in the mask, its scale, and LayerNorm itself."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from assignment.operators.layer_norm import Backward, Forward, told_backward, told_forward
from assignment.operators.misconception import Call, Misconception, Models, padded_width
from assignment.operators.rows import WIDTHS
from tests.dropout_add_layernorm.philox import first, rand

CHAPTER = "dropout_add_layernorm"
DEFAULTS: dict[str, Any] = {"p": 0.1, "seed": 0, "eps": 1e-5}
NUMBERS = "handout/dropout_add_layernorm.md#what-goes-wrong"
MASK, INTERFACE = "handout/dropout_add_layernorm.md#the-mask", "handout/dropout_add_layernorm.md#interface"

# What multiplies the elements of a tensor of this shape: keep / (1 − p), or what somebody has in its place.
Dropout = Callable[[torch.Size, float, int], Tensor]


def numbers(shape: torch.Size, seed: int, indices: Tensor | None = None) -> Tensor:
    """Return tl.rand of the row-major indices, or of others."""
    found = first(shape.numel(), seed) if indices is None else rand(seed, indices.reshape(-1))
    return found.view(shape)


def usual(shape: torch.Size, p: float, seed: int) -> Tensor:
    return (numbers(shape, seed) >= float32(p)).double() / (1 - p)


def float32(p: float) -> float:
    return torch.tensor(p, dtype=torch.float32).item()


def option(call: Call, name: str) -> Any:
    return call.options.get(name, DEFAULTS[name])


def summed(call: Call, dropout: Dropout = usual) -> Tensor:
    x, residual = (tensor.double() for tensor in call.tensors[:2])
    return residual + x * dropout(x.shape, option(call, "p"), option(call, "seed"))


def forward(call: Call, way: Forward, dropout: Dropout = usual) -> Sequence[Tensor]:
    """Return (y, summed, mean, rstd)."""
    normalized = summed(call, dropout)
    weight, bias = call.tensors[2:]
    y, mean, rstd = way(normalized, weight, bias, option(call, "eps"))
    return y, normalized, mean, rstd


def backward(call: Call, way: Backward, dropout: Dropout = usual) -> Sequence[Tensor]:
    """Return (grad_x, grad_residual, grad_weight, grad_bias)."""
    grad_residual, grad_weight, grad_bias = way(*call.tensors)
    factor = dropout(grad_residual.shape, option(call, "p"), option(call, "seed"))
    return grad_residual * factor, grad_residual, grad_weight, grad_bias


def masked(indices: Callable[[int, int], Tensor]) -> Dropout:
    """The mask of other indices: of n rows of d, as a matrix."""

    def dropout(shape: torch.Size, p: float, seed: int) -> Tensor:
        found = indices(shape[:-1].numel(), shape[-1]).view(shape)
        return (numbers(shape, seed, found) >= float32(p)).double() / (1 - p)

    return dropout


def padded_rows() -> Iterator[Dropout]:
    """Rows that are as far apart as a padded tile is wide."""
    yield masked(lambda n, d: rows_apart(padded_width(d), n, d))
    for width in WIDTHS:
        yield masked(lambda n, d, width=width: rows_apart(-(-d // width) * width, n, d))


def rows_apart(step: int, n: int, d: int) -> Tensor:
    return torch.arange(n)[:, None] * step + torch.arange(d)


def inside_tiles() -> Iterator[Dropout]:
    """Every row, or every tile of columns, has the same numbers."""
    yield masked(lambda n, d: rows_apart(0, n, d))
    for width in WIDTHS:
        yield masked(lambda n, d, width=width: torch.arange(n)[:, None] * d + torch.arange(d) % width)


def transposed_indices() -> Iterator[Dropout]:
    """Counted column by column."""
    yield masked(lambda n, d: torch.arange(n)[:, None] + torch.arange(d) * n)


def kept_otherwise(p: float) -> Callable[[torch.Size, float, int], Tensor]:
    return lambda shape, _, seed: usual(shape, p, seed)


WRONG: list[tuple[str, str, str, str, Callable[[], Iterator[Dropout]]]] = [
    (
        "nothing-dropped",
        "Your result equals the one without dropout",
        "Which elements does tl.rand(seed, i) ≥ p keep?",
        MASK,
        lambda: iter([lambda shape, p, seed: torch.ones(shape).double()]),
    ),
    (
        "not-scaled",
        "Your result equals the one in which what is kept is not divided by 1 − p",
        "What keeps the mean of x as it was?",
        MASK,
        lambda: iter([lambda shape, p, seed: usual(shape, p, seed) * (1 - p)]),
    ),
    (
        "scaled-wrongly",
        "Your result equals the one in which what is kept is multiplied by 1 − p, or divided by p",
        "Of d elements (1 − p) · d are kept.",
        MASK,
        lambda: iter(
            [
                lambda shape, p, seed: usual(shape, p, seed) * (1 - p) ** 2,
                lambda shape, p, seed: usual(shape, p, seed) * (1 - p) / (p or 1.0),
            ]
        ),
    ),
    (
        "the-others-kept",
        "Your result equals the one that keeps what was to be dropped",
        "keep = tl.rand(seed, i) ≥ p: p is the share that is dropped.",
        MASK,
        lambda: iter(
            [
                lambda shape, p, seed: (numbers(shape, seed) < float32(p)).double() / (1 - p),
                lambda shape, p, seed: (numbers(shape, seed) >= float32(1 - p)).double() / (1 - p),
                lambda shape, p, seed: (numbers(shape, seed) < float32(1 - p)).double() / (1 - p),
            ]
        ),
    ),
    (
        "index-of-padded-rows",
        "Your mask is that of rows as wide as a tile: i counts padding",
        "i = row · d + column, with d as the rows are, not as the tile is.",
        MASK,
        padded_rows,
    ),
    (
        "index-within-a-tile",
        "Your mask repeats itself: i starts anew in every row, or in every tile of columns",
        "i = row · d + column, in the whole of x.",
        MASK,
        inside_tiles,
    ),
    (
        "index-by-columns",
        "Your mask counts i column by column",
        "i = row · d + column.",
        MASK,
        transposed_indices,
    ),
    (
        "seed-fixed",
        "Your mask is that of a seed of its own, whatever the argument is",
        "seed is an argument: does it reach the kernel, with all of its bits?",
        INTERFACE,
        lambda: iter(
            [
                *(lambda shape, p, seed, own=own: usual(shape, p, own) for own in (0, 1, 42, 123, 1234)),
                lambda shape, p, seed: usual(shape, p, seed & 0xFFFFFFFF),
                lambda shape, p, seed: usual(shape, p, seed + 1),
            ]
        ),
    ),
    (
        "p-fixed",
        "Your mask and its scale are those of a p of their own, whatever the argument is",
        "p is an argument: does it reach the kernel?",
        INTERFACE,
        lambda: (kept_otherwise(p) for p in (0.1, 0.5, 0.2)),
    ),
]


def of_dropout(side: str, apply: Callable[[Call, Dropout], Sequence[Tensor]]) -> list[Misconception]:
    """Return the misconceptions of the mask; side is before their names, which are unique."""

    def model(ways: Callable[[], Iterator[Dropout]]) -> Callable[[Call], Iterator[Sequence[Tensor]]]:
        return lambda call: (apply(call, way) for way in ways())

    where = "In the backward pass your" if side else "Your"
    return [
        Misconception(f"{CHAPTER}-{side}{name}", f"{where}{says.removeprefix('Your')}", look, section, model(ways))
        for name, says, look, section, ways in WRONG
    ]


GRADIENT_NOT_DROPPED = Misconception(
    f"{CHAPTER}-gradients-swapped",
    "Your grad_x and grad_residual have changed places",
    "Which of them passes through the dropout?",
    "handout/dropout_add_layernorm.md#backward-mathematics",
    lambda call: ([b, a, *rest] for a, b, *rest in [backward(call, Backward())]),
)
DROPPED_BOTH = Misconception(
    f"{CHAPTER}-residual-dropped",
    "Your grad_residual has been dropped out too",
    "The residual does not pass through the dropout.",
    "handout/dropout_add_layernorm.md#backward-mathematics",
    lambda call: ([a, a, *rest] for a, _, *rest in [backward(call, Backward())]),
)
RESIDUAL_FORGOTTEN = Misconception(
    f"{CHAPTER}-residual-forgotten",
    "Your result equals the one without the residual",
    "summed = residual + keep · x / (1 − p).",
    "handout/dropout_add_layernorm.md#forward-mathematics",
    lambda call: iter(
        [
            forward(
                Call(call.function, [call.tensors[0], 0 * call.tensors[1], *call.tensors[2:]], call.options), Forward()
            )
        ]
    ),
)
RESIDUAL_DROPPED = Misconception(
    f"{CHAPTER}-sum-dropped",
    "Your result equals the one in which the residual has been dropped out too",
    "summed = residual + keep · x / (1 − p): what does keep multiply?",
    "handout/dropout_add_layernorm.md#forward-mathematics",
    lambda call: iter([forward(with_sum_dropped(call), Forward())]),
)


def with_sum_dropped(call: Call) -> Call:
    x, residual, *vectors = call.tensors
    return Call(call.function, [x.double() + residual.double(), 0 * residual, *vectors], call.options)


MODELS = {
    "dropout_add_layernorm_forward": Models(
        [
            *of_dropout("", lambda call, dropout: forward(call, Forward(), dropout)),
            RESIDUAL_FORGOTTEN,
            RESIDUAL_DROPPED,
            *told_forward(CHAPTER, forward, normalized=summed),
        ],
        NUMBERS,
    ),
    "dropout_add_layernorm_backward": Models(
        [
            *of_dropout("backward-", lambda call, dropout: backward(call, Backward(), dropout)),
            GRADIENT_NOT_DROPPED,
            DROPPED_BOTH,
            *told_backward(CHAPTER, backward),
        ],
        NUMBERS,
        right=lambda call: backward(call, Backward()),
    ),
}
