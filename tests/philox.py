"""Triton's random numbers, bit for bit: Philox 4×32-10.

Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".

The counter is the offset, low word first, the key is the seed, and `tl.rand` makes a float of the first word that
comes out.
"""

import functools

import numpy as np
import torch
from torch import Tensor

WORD = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
KEY_STEPS = 0x9E3779B9, 0xBB67AE85  # the golden ratio and √3 − 1
ROUNDS = 10
SCALE = np.float32(4.6566127342e-10)  # the float32 that keeps the largest number below 1


def rand(seed: int, offsets: Tensor) -> Tensor:
    """Return tl.rand(seed, offsets) in float32, of int64 offsets and a seed of at most 64 bits."""
    counter = offsets.numpy().astype(np.uint64)
    words = [counter & WORD, counter >> HALF, np.zeros_like(counter), np.zeros_like(counter)]
    keys = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(ROUNDS):
        first, second = MULTIPLIERS[0] * words[0], MULTIPLIERS[1] * words[2]
        low, high = (np.uint64(key) for key in keys)
        words = [second >> HALF ^ words[1] ^ low, second & WORD, first >> HALF ^ words[3] ^ high, first & WORD]
        keys = [(key + step) & 0xFFFFFFFF for key, step in zip(keys, KEY_STEPS, strict=True)]
    signed = words[0].astype(np.uint32).view(np.int32)
    positive = np.where(signed < 0, -(signed + 1), signed)
    return torch.from_numpy(positive.astype(np.float32) * SCALE)


def kept(shape: torch.Size, p: float, seed: int) -> Tensor:
    """Return which elements dropout keeps: rand(seed, i) ≥ p, with p in float32, for the row-major index i."""
    return (first(shape.numel(), seed) >= torch.tensor(p, dtype=torch.float32)).view(shape)


@functools.lru_cache(maxsize=16)
def first(n: int, seed: int) -> Tensor:
    """Return the first n numbers; an oracle and its models ask for the same ones."""
    return rand(seed, torch.arange(n))
