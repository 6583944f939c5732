"""What can go wrong in a dropout's mask and scale, forward and backward: for all operators that have one in them."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor

from assignment.operators.misconception import Call, Misconception, Model, padded_width, table
from assignment.operators.rows import WIDTHS
from tests.philox import first, rand

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


def wrong(p: Callable[[float], float], keeps: Callable[[Tensor, float], Tensor]) -> Dropout:
    """A mask and its scale of something else than p."""
    return lambda shape, given, seed: keeps(numbers(shape, seed), given).double() * p(given)


def seeded(own: Callable[[int], int]) -> Dropout:
    return lambda shape, p, seed: usual(shape, p, own(seed))


def as_kept(u: Tensor, p: float) -> Tensor:
    return u >= float32(p)


# Of the mask, on either side.
MASKS: dict[str, Callable[[], Iterable[Dropout]]] = {
    "nothing-dropped": lambda: [lambda shape, p, seed: torch.ones(shape).double()],
    "not-scaled": lambda: [wrong(lambda p: 1, as_kept)],
    "scaled-wrongly": lambda: [wrong(lambda p: 1 - p, as_kept), wrong(lambda p: 1 / (p or 1.0), as_kept)],
    "the-others-kept": lambda: [
        wrong(lambda p: 1 / (1 - p), lambda u, p: u < float32(p)),
        wrong(lambda p: 1 / (1 - p), lambda u, p: u >= float32(1 - p)),
        wrong(lambda p: 1 / (1 - p), lambda u, p: u < float32(1 - p)),
    ],
    "index-of-padded-rows": padded_rows,
    "index-within-a-tile": inside_tiles,
    "index-by-columns": transposed_indices,
    "seed-fixed": lambda: [
        *(seeded(lambda seed, own=own: own) for own in (0, 1, 42, 123, 1234)),
        seeded(lambda seed: seed & 0xFFFFFFFF),
        seeded(lambda seed: seed + 1),
    ],
    "p-fixed": lambda: (kept_otherwise(p) for p in (0.1, 0.5, 0.2)),
}
TOLD_OF_MASKS = """
nothing-dropped | the-mask | Your result equals the one without dropout | Which elements does tl.rand(seed, i) ≥ p keep?
not-scaled | the-mask | Your result equals the one in which what is kept is not divided by 1 − p | What keeps the mean
    of x as it was?
scaled-wrongly | the-mask | Your result equals the one in which what is kept is multiplied by 1 − p, or divided by p |
    Of d elements (1 − p) · d are kept.
the-others-kept | the-mask | Your result equals the one that keeps what was to be dropped | keep = tl.rand(seed, i) ≥ p:
    p is the share that is dropped.
index-of-padded-rows | the-mask | Your mask is that of rows as wide as a tile: i counts padding | i = row · d + column,
    with d as the rows are, not as the tile is.
index-within-a-tile | the-mask | Your mask repeats itself: i starts anew in every row, or in every tile of columns | i =
    row · d + column, in the whole of x.
index-by-columns | the-mask | Your mask counts i column by column | i = row · d + column.
seed-fixed | interface | Your mask is that of a seed of its own, whatever the argument is | seed is an argument: does it
    reach the kernel, with all of its bits?
p-fixed | interface | Your mask and its scale are those of a p of their own, whatever the argument is | p is an
    argument: does it reach the kernel?
"""


def told_of_masks(chapter: str, side: str, apply: Callable[[Call, Dropout], Sequence[Tensor]]) -> list[Misconception]:
    """Return the misconceptions of the mask.

    Args:
        chapter: the operator's, before the names, which are unique, and the side: "" of a forward pass.
        apply: the results of a call with a dropout like this.
    """

    def model(ways: Callable[[], Iterable[Dropout]]) -> Model:
        return lambda call: (apply(call, way) for way in ways())

    told = TOLD_OF_MASKS.replace("| Your", "| In the backward pass your") if side else TOLD_OF_MASKS
    return table(chapter, told, {name: model(ways) for name, ways in MASKS.items()}, prefix=f"{chapter}-{side}")
