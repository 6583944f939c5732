"""Sizes and values that a seed decides, for every operator.

Families of checks keep to what every ordinary kernel can do, but for the one thing that is theirs, so that one bug
costs one family: whole tiles of 128, of one dtype, contiguous. In each of them one case or more has a size that only
the seed tells, so that no list of sizes is enough.
"""

import hashlib
from typing import Any

import torch
from torch import Generator, Tensor

TILE = 128
LONGER = (3, 5, 6, 7)  # tiles: no powers of two, which are what a list would hold
MOST = 200  # of a size that the seed decides alone
# Sums of two such integers, and they themselves, are exact in the dtype; in float32 also after truncation to TF32.
LARGEST = {torch.bfloat16: 63, torch.float16: 500, torch.float32: 500}


def apart(rng: Generator) -> Generator:
    """Return a generator of another stream: who has seen all that it draws knows nothing of what `rng` draws.

    Submissions see structure, and must not find the values of other inputs by it: between the streams lies a hash.
    """
    drawn = torch.randint(256, (32,), generator=rng, dtype=torch.uint8)
    return Generator().manual_seed(int.from_bytes(hashlib.sha256(bytes(drawn.tolist())).digest()[:8]))


def between(rng: Generator, least: int, most: int) -> int:
    return int(torch.randint(least, most + 1, (), generator=rng))


def longer(rng: Generator) -> int:
    """Return 384, 640, 768 or 896: the smallest of three draws, since attention costs the square of it."""
    return TILE * LONGER[min(between(rng, 0, len(LONGER) - 1) for _ in range(3))]


def drawn(shape: Any, rng: Generator) -> Any:
    """Return a shape, or what a function makes of the seed."""
    return shape(rng) if callable(shape) else shape


def normal(rng: Generator, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=rng).to(dtype)


def cancelling(rng: Generator, *shape: int, dtype: torch.dtype) -> Tensor:
    """Return integers along the last but one dimension whose quarters are a, b, −(a + b) and 0; and 1 more in the first
    row.

    Multiplied with what repeats in every quarter they add up to what the first row has too much. Halves that mirror
    each other would not do: their products are rounded alike, and cancel even so.
    """
    *batch, n, d = shape
    a, b = (torch.randint(1, LARGEST[dtype], (*batch, n // 4, d), generator=rng) for _ in range(2))
    x = torch.cat([a, b, -(a + b), torch.zeros_like(a)], dim=-2).to(dtype)
    x[..., 0, :] += 1
    return x


def repeated(x: Tensor) -> Tensor:
    """Return the first quarter of the rows four times."""
    return x[..., : x.shape[-2] // 4, :].repeat(*[1] * (x.ndim - 2), 4, 1)
