"""How close a model comes to a wrong result, measured by the bound of the check."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tests.compare import Expected

FAR, ROUGHLY = 10.0, 1e-3  # values so many times as large as the right ones need agree only so well
# of a row's largest value: a larger difference than this and the check's bound is not near
NEAR = 0.03
# times the right row's largest: so far off, exp has made errors of logits large
HUGE, NEAR_HUGE = 1e3, 0.3


def distance(got: Sequence[Tensor], outputs: Sequence[Tensor], expected: dict[str, Expected]) -> float:
    """Return the largest error of a model over its bound; infinite if its shape differs."""
    if len(got) != len(outputs):
        return math.inf
    together = zip(got, outputs, expected.values(), strict=True)
    return max(error_over_bound(ours, theirs, want) for ours, theirs, want in together)


def error_over_bound(got: Tensor, model: Tensor, want: Expected) -> float:
    """Return the error over the bound of the right value.

    The bound is wider where the wrong value is larger; what is not finite must be so in both.
    """
    if model.shape != got.shape:
        return math.inf
    if not got.numel():
        return 0.0
    model, theirs = cast(model, got.dtype), got.double()
    finite = model.isfinite()
    if not torch.equal(finite, theirs.isfinite()):
        return math.inf
    largest = row_max(torch.where(finite, model, 0.0).abs(), want.rows)
    wider = (largest / row_max(want.value.abs(), want.rows)).nan_to_num(1.0, 1.0, 1.0).clamp(min=1.0)
    allowed = torch.where(wider > FAR, torch.maximum(want.allowed * wider, ROUGHLY * largest), want.allowed * wider)
    return torch.where(finite, (theirs - model).abs() / allowed, 0.0).max().item()


def are_near(got: Sequence[Tensor], outputs: Sequence[Tensor], expected: dict[str, Expected]) -> bool:
    """Return whether all agree within the check's bound or a part of the row's maximum."""
    for ours, theirs, want in zip(got, outputs, expected.values(), strict=True):
        error, largest = ((ours.double() - theirs).abs(), row_max(theirs.nan_to_num().abs(), want.rows))
        near = torch.where(largest > HUGE * row_max(want.value.abs(), want.rows), NEAR_HUGE, NEAR)
        if ((error > want.allowed) & (error > near * largest)).any():
            return False
    return True


def cast(model: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the tensor in a dtype: infinite where it overflows.

    It is rounded no further than the bound allows for.
    """
    return torch.where(model.abs() > torch.finfo(dtype).max, torch.inf * model.sign(), model)


def row_max(x: Tensor, rows: bool) -> Tensor:
    return x.amax(-1, keepdim=True) if rows and x.numel() else x
