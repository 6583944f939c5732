"""Sums over rows, and along a dimension in the orders that a kernel may choose."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


def sum_rows(x: Float[Tensor, "*batch d"]) -> Float[Tensor, " d"]:
    """Return the sum over every dimension but the last; zero for an empty batch."""
    return x.reshape(-1, x.shape[-1]).sum(0)


def as_rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def sums(terms: Tensor, dim: int) -> list[Tensor]:
    """Return float32 sums along dim in the orders a kernel may choose: pairwise, and one term after the other."""
    if not terms.shape[dim]:
        return [terms.sum(dim)]
    with np.errstate(over="ignore", invalid="ignore"):  # expect() refuses what overflows
        in_order = np.add.accumulate(terms.contiguous().numpy(), axis=dim)
    return [terms.sum(dim), torch.from_numpy(in_order).select(dim, -1)]
