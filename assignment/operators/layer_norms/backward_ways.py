"""Ways in which a LayerNorm's gradients come out wrong."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from assignment.operators.layer_norms.model import Backward, rounding
from assignment.operators.misconception import Call
from assignment.operators.rows import WIDTHS, lost_rows, mean_counts, padded_counts


def several_backward(*ways: dict[str, Any]) -> Callable[[Call], Iterator[Backward]]:
    return lambda call: (Backward(**way) for way in ways)


def over_padded_rows_backward(call: Call) -> Iterator[Backward]:
    for count in padded_counts(call.tensors[0].shape[-1]):
        yield Backward(mean=lambda terms, n=count: terms.sum(-1, keepdim=True) / n)


def of_one_tile_backward(call: Call) -> Iterator[Backward]:
    for width in (width for width in WIDTHS if width < call.tensors[0].shape[-1]):
        yield Backward(mean=lambda terms, w=width: terms[..., :w].sum(-1, keepdim=True) / terms.shape[-1])


def of_some_rows(call: Call) -> Iterator[Backward]:
    for rows in lost_rows(math.prod(call.tensors[0].shape[:-1])):
        yield Backward(sum_rows=lambda terms, rows=rows: terms[rows].sum(0))


def of_means(call: Call) -> Iterator[Backward]:
    for count in mean_counts(call.tensors[0]):
        yield Backward(sum_rows=lambda terms, n=count: terms.sum(0) / n)


def x_hat_of(x: Tensor, mean: Tensor, rstd: Tensor) -> Tensor:
    """Return x̂ in float32: what is rounded to 16 bits next should come to lie on the same side."""
    return (x.float() - mean.float()) * rstd.float()


def rounded_early(call: Call) -> Iterator[Backward]:
    if call.dtype != torch.float32:
        cast = rounding(call)
        yield Backward(product=cast)
        yield Backward(weight_terms=lambda dy, x, mean, rstd: cast(dy.float() * x_hat_of(x, mean, rstd)))
        yield Backward(weight_terms=lambda dy, x, mean, rstd: cast(dy * cast(x_hat_of(x, mean, rstd))))
        yield Backward(h=lambda grad_y, weight: cast(grad_y * weight))


def statistics_rounded(call: Call) -> Iterator[Backward]:
    if call.dtype != torch.float32:
        cast = rounding(call)
        own = (lambda x, mean, rstd: (x - cast(mean)) * rstd, lambda dy, x, mean, rstd: dy * (x - cast(mean)) * rstd)
        yield Backward(rstd=cast)
        yield Backward(x_hat=own[0], weight_terms=own[1])
        yield Backward(rstd=cast, x_hat=own[0], weight_terms=own[1])
