"""What products in groups mean, in float64."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int32
from torch import Tensor

Multiply = Callable[[Tensor, Tensor], Tensor]


def grouped_matmul(
    x: Float[Tensor, "tokens k"], weight: Float[Tensor, "experts k n"], group_sizes: Int32[Tensor, " experts"]
) -> Float[Tensor, "tokens n"]:
    """y_i = x_i weight_e for each row i of group e; 0 for rows of no group."""
    return by_group(x.double(), weight.double(), group_sizes)


def grouped_matmul_backward(
    grad_y: Float[Tensor, "tokens n"],
    x: Float[Tensor, "tokens k"],
    weight: Float[Tensor, "experts k n"],
    group_sizes: Int32[Tensor, " experts"],
) -> tuple[Float[Tensor, "tokens k"], Float[Tensor, "experts k n"]]:
    """grad_x_i = grad_y_i weight_eᵀ for each row i of group e; grad_weight_e = Σ_i x_iᵀ grad_y_i over its rows."""
    grad_y = grad_y.double()
    return by_group(grad_y, weight.double().mT, group_sizes), over_groups(x.double(), grad_y, group_sizes)


def groups(group_sizes: Tensor) -> list[slice]:
    """Return which rows are those of each group: they lie one after the other."""
    sizes = group_sizes.tolist()
    return [slice(sum(sizes[:i]), sum(sizes[: i + 1])) for i in range(len(sizes))]


def by_group(x: Tensor, weight: Tensor, group_sizes: Tensor, multiply: Multiply = torch.matmul) -> Tensor:
    """Return the rows of each group times the matrix of its expert."""
    y = x.new_zeros(len(x), weight.shape[-1])
    for rows, matrix in zip(groups(group_sizes), weight, strict=True):
        y[rows] = multiply(x[rows], matrix)
    return y


def over_groups(x: Tensor, grad_y: Tensor, group_sizes: Tensor, multiply: Multiply = torch.matmul) -> Tensor:
    """Return the sums over the rows of each group."""
    return torch.stack([multiply(x[rows].mT, grad_y[rows]) for rows in groups(group_sizes)])
