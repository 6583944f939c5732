"""Softmax with wide rows split among programs: a kernel for the maximum and sum of each piece of a row, and one that
combines them and writes; short rows by tiles of several rows, with sizes that are tuned.
"""

import torch
import triton
import triton.language as tl

PIECE = 8192
CONFIGS = [triton.Config({"ROWS": rows}, num_warps=warps) for rows, warps in ((1, 8), (4, 4))]


@triton.autotune(CONFIGS, key=["n_cols"])
@triton.jit
def short_rows(x_ptr, y_ptr, stride_row, stride_col, n_rows, n_cols, COLS: tl.constexpr, ROWS: tl.constexpr):
    rows = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    cols = tl.arange(0, COLS)[None, :].to(tl.int64)
    inside = (rows < n_rows) & (cols < n_cols)
    x = tl.load(x_ptr + rows * stride_row + cols * stride_col, mask=inside, other=-float("inf")).to(tl.float32)
    top = tl.max(x, 1, keep_dims=True)
    e = tl.where(x == -float("inf"), 0.0, tl.exp(x - top))
    total = tl.sum(e, 1, keep_dims=True)
    y = tl.where(total > 0, e / total, 0.0)
    tl.store(y_ptr + rows * n_cols + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def piece_of(x_ptr, stride_row, stride_col, n_cols, PIECE: tl.constexpr):
    cols = tl.program_id(1).to(tl.int64) * PIECE + tl.arange(0, PIECE)
    where = x_ptr + tl.program_id(0).to(tl.int64) * stride_row + cols * stride_col
    return cols, tl.load(where, mask=cols < n_cols, other=-float("inf")).to(tl.float32)


@triton.jit
def pieces(x_ptr, tops_ptr, sums_ptr, stride_row, stride_col, n_cols, n_pieces, PIECE: tl.constexpr):
    _, x = piece_of(x_ptr, stride_row, stride_col, n_cols, PIECE)
    top = tl.maximum(tl.max(x, 0), -1e38)
    at = tl.program_id(0).to(tl.int64) * n_pieces + tl.program_id(1)
    tl.store(tops_ptr + at, top)
    tl.store(sums_ptr + at, tl.sum(tl.exp(x - top), 0))


@triton.jit
def combined(
    x_ptr, y_ptr, tops_ptr, sums_ptr, stride_row, stride_col, n_cols, n_pieces,
    PIECE: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    each = tl.arange(0, PIECES)
    tops = tl.load(tops_ptr + row * n_pieces + each, mask=each < n_pieces, other=-1e38)
    sums = tl.load(sums_ptr + row * n_pieces + each, mask=each < n_pieces, other=0.0)
    top = tl.max(tops, 0)
    total = tl.sum(sums * tl.exp(tops - top), 0)
    cols, x = piece_of(x_ptr, stride_row, stride_col, n_cols, PIECE)
    y = tl.exp(x - top) / tl.where(total == 0, 1.0, total)
    tl.store(y_ptr + row * n_cols + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def dots(g_ptr, y_ptr, dots_ptr, n_cols, PIECE: tl.constexpr):
    row, total = tl.program_id(0).to(tl.int64), tl.zeros((PIECE,), tl.float32)
    for start in range(0, n_cols, PIECE):
        cols = start + tl.arange(0, PIECE)
        g = tl.load(g_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        total += g * tl.load(y_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(dots_ptr + row, tl.sum(total, 0))


@triton.jit
def from_dots(g_ptr, y_ptr, dots_ptr, out_ptr, n_cols, PIECE: tl.constexpr):
    row, cols = tl.program_id(0).to(tl.int64), tl.program_id(1) * PIECE + tl.arange(0, PIECE)
    g = tl.load(g_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    out = (g - tl.load(dots_ptr + row)) * y
    tl.store(out_ptr + row * n_cols + cols, out.to(out_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def backward_rows(g_ptr, y_ptr, out_ptr, n_rows, n_cols, COLS: tl.constexpr, ROWS: tl.constexpr):
    rows = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    cols = tl.arange(0, COLS)[None, :]
    inside = (rows < n_rows) & (cols < n_cols)
    g = tl.load(g_ptr + rows * n_cols + cols, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + rows * n_cols + cols, mask=inside, other=0.0).to(tl.float32)
    out = (g - tl.sum(g * y, 1, keep_dims=True)) * y
    tl.store(out_ptr + rows * n_cols + cols, out.to(out_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x):
    if not x.ndim or not x.shape[-1]:
        raise ValueError(f"expected (..., d), got {tuple(x.shape)}")
    rows = x.reshape(-1, x.shape[-1])
    n_rows, n_cols = rows.shape
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if n_rows and n_cols <= PIECE:
        short_rows[lambda meta: (triton.cdiv(n_rows, meta["ROWS"]),)](
            rows, y, *rows.stride(), n_rows, n_cols, COLS=triton.next_power_of_2(n_cols)
        )
    elif n_rows:
        n_pieces = triton.cdiv(n_cols, PIECE)
        tops, sums = (torch.empty(n_rows, n_pieces, dtype=torch.float32, device=x.device) for _ in range(2))
        pieces[(n_rows, n_pieces)](rows, tops, sums, *rows.stride(), n_cols, n_pieces, PIECE=PIECE)
        combined[(n_rows, n_pieces)](
            rows, y, tops, sums, *rows.stride(), n_cols, n_pieces,
            PIECE=PIECE, PIECES=triton.next_power_of_2(n_pieces),
        )  # fmt: skip
    return y


def softmax_backward(grad_y, y):
    if grad_y.shape != y.shape:
        raise ValueError(f"shapes differ: {grad_y.shape}, {y.shape}")
    if grad_y.dtype != y.dtype:
        raise ValueError(f"dtypes differ: {grad_y.dtype}, {y.dtype}")
    g, y = grad_y.contiguous(), y.contiguous()
    out = torch.empty_like(y)
    if y.numel() and y.shape[-1] <= PIECE:
        n_rows, n_cols = y.shape[:-1].numel(), y.shape[-1]
        grid, cols = (triton.cdiv(n_rows, 2),), triton.next_power_of_2(n_cols)
        backward_rows[grid](g, y, out, n_rows, n_cols, COLS=cols, ROWS=2)
    elif y.numel():
        n_rows, n_cols = y.shape[:-1].numel(), y.shape[-1]
        of_rows = torch.empty(n_rows, dtype=torch.float32, device=y.device)
        dots[(n_rows,)](g, y, of_rows, n_cols, PIECE=PIECE)
        from_dots[(n_rows, triton.cdiv(n_cols, PIECE))](g, y, of_rows, out, n_cols, PIECE=PIECE)
    return out


class SplitSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_y):
        return softmax_backward(grad_y, ctx.saved_tensors[0])


def softmax(x):
    return SplitSoftmax.apply(x)
