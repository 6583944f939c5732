"""What operators on products of matrices share: (…, m, k) times (k, n).

A shape is a tuple (…, m, k, n).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from tests.families import SLACK, Case, Rounds, moved, shapes, size
from tests.inputs import LARGEST, MOST, TILE, between, cancelling, drawn, longer, normal, repeated
from tests.tensor_cores import nearest, truncate

Shape = tuple[int, ...] | Callable[[Generator], tuple[int, ...]]
SMALLEST_TILE = 32  # rows and columns of a tile of the result, at least
STEP = 16  # the least that a tensor core adds up at once


def roundings(a: Tensor, b: Tensor) -> list[list[Tensor]]:
    """Products of (…, m, k) and (k, n) in float32: in other orders, and with operands as a tensor core takes them."""
    return [[way(a.float(), b.float()) for way in ways] for ways in WAYS]


def in_order(a: Tensor, b: Tensor) -> Tensor:
    """The product added up STEP terms after STEP terms."""
    total = torch.zeros(*a.shape[:-1], b.shape[-1])
    for first in range(0, a.shape[-1], STEP):
        total += a[..., first : first + STEP] @ b[first : first + STEP]
    return total


WAYS: list[list[Callable[[Tensor, Tensor], Tensor]]] = [
    [torch.matmul, in_order],
    [lambda a, b: truncate(a) @ truncate(b), lambda a, b: nearest(a) @ nearest(b)],
]


def whole_tiles(rng: Generator) -> tuple[int, ...]:
    """Whole tiles of 256 rows and columns, and of 128 terms; no two sizes are alike."""
    n_row_tiles = between(rng, 1, 2)
    return 2 * TILE * n_row_tiles, longer(rng), 2 * TILE * (3 - n_row_tiles)


def batches(rng: Generator) -> tuple[int, ...]:
    return between(rng, 2, 3), 2 * TILE, longer(rng), 2 * TILE


PLAIN = shapes(
    {
        "two matrices": whole_tiles,
        "three dimensions": batches,
        "four dimensions": lambda rng: (1, *batches(rng)),
        "several tiles in each program": Rounds(lambda n: (n, TILE, TILE), first=2 * TILE, tile=2 * TILE, most=1 << 16),
    }
)
RAGGED = shapes(
    {
        "one element": (1, 1, 1),
        "one row": (1, 300, 70),
        "one column": (70, 300, 1),
        "k = 1": (40, 1, 50),
        "k = 8": (33, 8, 65),
        "fewer than a tile": (5, 7, 9),
        "one past a tile": (129, 129, 129),
        "one past a large tile": (257, 65, 257),
        "primes": (101, 67, 59),
        "batches of 17 rows": (2, 3, 17, 40, 80),
        "any size": lambda rng: (between(rng, 1, MOST), between(rng, 1, MOST), between(rng, 1, MOST)),
        "a long sum": lambda rng: (20, between(rng, 3_000, 4_000), 30),
    }
)
BATCHES = shapes({"ordinary": batches, "empty batch": (0, 32, 32, 32)})
# Constant, unlike all others: what was compiled is remembered by its shapes, and saves half of a run.
COMPILED = shapes({"512 by 256 by 512": (512, 256, 512)})
COSTLY = shapes({"two matrices": lambda rng: (2 * TILE * between(rng, 1, 2), TILE, 2 * TILE * between(rng, 2, 3))})
WIDE = Case((512, 64, 8192), torch.bfloat16)
TALL = Case((8192, 64, 512), torch.bfloat16)


def factors(rng: Generator, shape: Shape, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """a and b; the rows of a, and the columns of b, have means of their own, so that no two are alike."""
    *batch, k, n = drawn(shape, rng)
    a = normal(rng, *batch, k) + 0.5 * normal(rng, *batch, 1)
    b = normal(rng, k, n) + 0.5 * normal(rng, 1, n)
    return a.to(dtype), b.to(dtype)


def of_all_sizes(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Rows of a, and columns of b, from tiny to large; a row of zeros, and one with an outlier."""
    a, b = factors(rng, whole_tiles, dtype)
    a *= torch.logspace(-6, 6, len(a)).unsqueeze(-1)
    b *= torch.logspace(-3, 3, b.shape[-1])
    a[len(a) // 2] = 0
    a[3, 5] = 1e6
    return a, b


def whole_numbers(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Integers that TF32 holds, and bfloat16 does not."""
    *_, m, k, n = whole_tiles(rng)
    most = LARGEST[torch.float32]
    a, b = (torch.randint(-most, most + 1, shape, generator=rng) for shape in ((m, k), (k, n)))
    return a.to(dtype), b.to(dtype)


def sums_that_cancel(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Sums of large terms that leave the first of a's columns alone."""
    m, k, n = whole_tiles(rng)
    b = cancelling(rng, k, n, dtype=dtype)
    a = repeated(normal(rng, k, m, dtype=dtype)).mT.contiguous()
    return a, b


def expanded(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The rows of the first factor are one, with stride 0; and so are the columns of the second."""
    a, b, *others = tensors
    return [a[(0,) * (a.ndim - 1)].expand(a.shape), b[:, :1].expand(b.shape), *others]


def in_tiles(costs: Any, tensors: Mapping[str, Tensor], case: Case, factors: Sequence[str] = ()) -> None:
    """Raise Mismatch if a factor is read more often than tiles of 32 × 32 need; by default the first two inputs are."""
    *rows, _, n = case.shape
    m, read = math.prod(rows), dict(zip(tensors, costs.read, strict=True))
    for name, others in zip(factors or tensors, (n, m), strict=False):
        nbytes, tensor = read[name], tensors[name]
        remedy = "compute a tile of the result in each program: what it loads serves a whole row, or column, of it"
        moved("read", name, nbytes, size(tensor), math.ceil(others / SMALLEST_TILE), SLACK * size(tensor), remedy)
