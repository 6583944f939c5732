"""The backward pass: the gradients of x and of the weight."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .tiles import COLS, ROWS, load_row, load_tile


def backward(grad_y: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    n_rows, d = x.shape
    grad_x = torch.empty((n_rows, d), dtype=x.dtype, device=x.device)
    if not n_rows:
        return grad_x, torch.zeros_like(weight)
    parts = torch.empty((triton.cdiv(n_rows, ROWS), d), dtype=torch.float32, device=x.device)
    _kernel[(len(parts),)](
        grad_y, x, weight, grad_x, parts,
        *grad_y.stride(), *x.stride(), *weight.stride(), n_rows, d, TILE_ROWS=ROWS,
    )  # fmt: skip
    return grad_x, parts.sum(0).to(weight.dtype)


@triton.jit
def _kernel(
    grad_y_ptr, x_ptr, w_ptr, grad_x_ptr, parts_ptr,
    stride_gyr, stride_xr, stride_xd, stride_wd,
    n_rows, d,
    TILE_ROWS: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0).to(tl.int64)
    rows = tile * TILE_ROWS + tl.arange(0, TILE_ROWS)
    grad_y = load_row(grad_y_ptr, rows, stride_gyr, n_rows)
    for start in range(0, d, COLS):
        cols = start + tl.arange(0, COLS).to(tl.int64)
        mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
        grad_x = (grad_y[:, None] * load_row(w_ptr, cols, stride_wd, d)[None, :]).to(grad_x_ptr.dtype.element_ty)
        tl.store(grad_x_ptr + rows[:, None] * d + cols[None, :], grad_x, mask=mask)
        part = tl.sum(grad_y[:, None] * load_tile(x_ptr, rows, stride_xr, cols, stride_xd, n_rows, d), axis=0)
        tl.store(parts_ptr + tile * d + cols, part, mask=cols < d)
