"""Copies x by a Triton kernel: what memory allows a function that reads one matrix and writes another.

What starting such a function takes beside its work is that of any other, and is measured on this one. Results have the
form that is expected, and no meaning.
"""

import torch
import triton
import triton.language as tl

BLOCK_SIZE = 4096  # elements
NUM_WARPS = 8


def _copied(x):
    y = torch.empty_like(x)
    _copy_kernel[(triton.cdiv(x.numel(), BLOCK_SIZE),)](x, y, x.numel(), BLOCK_SIZE, num_warps=NUM_WARPS)
    return y


@triton.jit
def _copy_kernel(x_ptr, y_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


def weighted_sum_forward(x, weight):
    return _copied(x)[:, 0]


def weighted_sum_backward(grad_y, x, weight):
    return _copied(x), torch.empty_like(weight)


def rmsnorm_forward(x, weight, eps=1e-5):
    return _copied(x), torch.empty(len(x), dtype=torch.float32, device=x.device)


def rmsnorm_backward(grad_y, x, weight, rstd):
    return _copied(x), torch.empty_like(weight)
