"""The forward pass: x @ weight."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import tiles


def forward(x: Tensor, weight: Tensor) -> Tensor:
    n_rows, d = x.shape
    y = torch.empty(n_rows, dtype=x.dtype, device=x.device)
    if n_rows:
        _kernel[(triton.cdiv(n_rows, tiles.ROWS),)](
            x, weight, y, *x.stride(), *weight.stride(), n_rows, d, ROWS=tiles.ROWS
        )
    return y


@triton.jit
def _kernel(x_ptr, w_ptr, y_ptr, stride_xr, stride_xd, stride_wd, n_rows, d, ROWS: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, d, tiles.COLS):
        cols = start + tl.arange(0, tiles.COLS).to(tl.int64)
        x = tiles.load_tile(x_ptr, rows, stride_xr, cols, stride_xd, n_rows, d)
        total += tl.sum(x * tiles.load_row(w_ptr, cols, stride_wd, d)[None, :], axis=1)
    tl.store(y_ptr + rows, total.to(y_ptr.dtype.element_ty), mask=rows < n_rows)
