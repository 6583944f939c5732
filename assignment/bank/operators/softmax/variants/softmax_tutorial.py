"""Softmax in the style of Triton's tutorial 02: a row in one block of a power of two, programs that stride over rows,
as many as the GPU holds; the block is as wide as the row, whatever its width.
"""

import torch
import triton
import triton.language as tl


def softmax_forward(x):
    check(x)
    rows = x.reshape(-1, x.shape[-1])
    n_rows, n_cols = rows.shape
    y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if n_rows == 0:
        return y.view(x.shape)
    n_programs = min(n_rows, torch.cuda.get_device_properties(x.device).multi_processor_count * 4)
    softmax_kernel[(n_programs, 1, 1)](
        y, rows, rows.stride(0), rows.stride(1), y.stride(0), n_rows, n_cols,
        BLOCK_SIZE=triton.next_power_of_2(n_cols), num_stages=2, num_warps=8,
    )  # fmt: skip
    return y.view(x.shape)


def softmax_backward(grad_y, y):
    check(y)
    if grad_y.shape != y.shape or grad_y.dtype != y.dtype:
        raise ValueError(f"expected two alike, got {grad_y.shape} {grad_y.dtype} and {y.shape} {y.dtype}")
    grads, rows = (t.contiguous().view(-1, y.shape[-1]) for t in (grad_y, y))
    grad_x = torch.empty_like(rows)
    if rows.shape[0]:
        softmax_backward_kernel[(rows.shape[0],)](
            grad_x, grads, rows, rows.stride(0), rows.shape[1], BLOCK_SIZE=triton.next_power_of_2(rows.shape[1])
        )
    return grad_x.view(y.shape)


def softmax(x):
    return Softmax.apply(x)


def check(x):
    if x.dim() < 1 or x.shape[-1] < 1:
        raise ValueError(f"expected columns, got shape {tuple(x.shape)}")


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(y := softmax_forward(x))
        return y

    @staticmethod
    def backward(ctx, grad_y):
        return softmax_backward(grad_y, *ctx.saved_tensors)


@triton.jit
def softmax_kernel(
    output_ptr, input_ptr, input_row_stride, input_col_stride, output_row_stride, n_rows, n_cols,
    BLOCK_SIZE: tl.constexpr, num_stages: tl.constexpr,
):  # fmt: skip
    row_start = tl.program_id(0)
    row_step = tl.num_programs(0)
    for row_idx in tl.range(row_start, n_rows, row_step, num_stages=num_stages):
        row_start_ptr = input_ptr + row_idx.to(tl.int64) * input_row_stride
        col_offsets = tl.arange(0, BLOCK_SIZE)
        mask = col_offsets < n_cols
        row = tl.load(row_start_ptr + col_offsets.to(tl.int64) * input_col_stride, mask=mask, other=-float("inf"))
        row = row.to(tl.float32)
        row_max = tl.max(row, axis=0)
        row_minus_max = row - tl.where(row_max == -float("inf"), 0.0, row_max)
        numerator = tl.exp(row_minus_max)
        denominator = tl.sum(numerator, axis=0)
        softmax_output = numerator / tl.where(denominator == 0.0, 1.0, denominator)
        tl.store(output_ptr + row_idx.to(tl.int64) * output_row_stride + col_offsets, softmax_output, mask=mask)


@triton.jit
def softmax_backward_kernel(grad_x_ptr, grad_y_ptr, y_ptr, row_stride, n_cols, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * row_stride + tl.arange(0, BLOCK_SIZE)
    mask = tl.arange(0, BLOCK_SIZE) < n_cols
    grad_y = tl.load(grad_y_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    scaled = y * grad_y
    tl.store(grad_x_ptr + offsets, scaled - y * tl.sum(scaled, axis=0), mask=mask)
