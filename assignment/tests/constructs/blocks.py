"""Rearranging elements: shapes, sorting, gathering."""

import warnings

import torch
import triton
import triton.language as tl
from torch import Tensor

from .table import EXACT, construct, integers, normal


@triton.jit
def shape_kernel(x_ptr, y_ptr, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    flat = tl.arange(0, N * N)
    tl.store(y_ptr + at, tl.trans(x))
    tl.store(y_ptr + N * N + at, x.T)
    tl.store(y_ptr + 2 * N * N + flat, tl.ravel(tl.permute(x, (1, 0))))
    tl.store(y_ptr + 3 * N * N + at, tl.reshape(tl.reshape(x, (N * N,)) * 2, (N, N)))
    tl.store(y_ptr + 4 * N * N + at, tl.broadcast_to(tl.sum(x, 1)[:, None], (N, N)))
    tl.store(y_ptr + 5 * N * N + at, tl.expand_dims(tl.max(x, 0), 0) + tl.zeros((N, N), tl.float32))
    tl.store(
        y_ptr + 6 * N * N + at,
        x.reshape(N * N).reshape(N, N) + tl.full((N, N), 2, tl.float32),
    )


@construct("trans, permute, reshape, broadcast", EXACT, x=integers(-9, 9, 16, 16).float())
def _shapes(x: Tensor) -> Tensor:
    y = torch.zeros(7 * 256, device=x.device)
    shape_kernel[(1,)](x, y, 16)
    return y


@triton.jit
def join_kernel(a_ptr, b_ptr, y_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    wide = tl.arange(0, 2 * N)
    a, b = tl.load(a_ptr + at), tl.load(b_ptr + at)
    tl.store(y_ptr + wide, tl.interleave(a, b))
    joined = tl.join(a, b)
    left, right = tl.split(joined)
    tl.store(y_ptr + 2 * N + at, left - right)
    tl.store(y_ptr + 3 * N + wide, tl.reshape(tl.permute(joined, (1, 0)), (2 * N,)))
    tl.store(y_ptr + 5 * N + at, tl.flip(a, 0))
    even, odd = tl.split(tl.reshape(a, (N // 2, 2)))
    tl.store(y_ptr + 6 * N + tl.arange(0, N // 2), even * odd)


@construct("join, split, interleave, flip", EXACT, a=normal(32), b=normal(32, seed=1))
def _joins(a: Tensor, b: Tensor) -> Tensor:
    a, b = a.half(), b.half()
    y = torch.zeros(7 * 32, dtype=a.dtype, device=a.device)
    join_kernel[(1,)](a, b, y, 32)
    return y


@triton.jit
def sort_kernel(x_ptr, y_ptr, N: tl.constexpr):
    at = tl.arange(0, 4)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, tl.sort(x))
    tl.store(y_ptr + 4 * N + at, tl.sort(x, descending=True))
    top = tl.arange(0, 4)[:, None] * 4 + tl.arange(0, 4)[None, :]
    tl.store(y_ptr + 8 * N + top, tl.topk(x, 4))


for _name, _x in {"fp32": normal(4, 32), "int32": integers(-50, 50, 4, 32)}.items():

    @construct(f"sort and topk of {_name}", EXACT, x=_x)
    def _sort(x: Tensor) -> Tensor:
        y = torch.zeros(8 * 32 + 16, dtype=x.dtype, device=x.device)
        sort_kernel[(1,)](x, y, 32)
        return y


@triton.jit
def gather_kernel(x_ptr, i_ptr, y_ptr, h_ptr, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    x, index = tl.load(x_ptr + at), tl.load(i_ptr + at)
    tl.store(y_ptr + at, tl.gather(x, index, 0))
    tl.store(y_ptr + N * N + at, tl.gather(x, index, 1))
    tl.store(h_ptr + tl.arange(0, N), tl.histogram(tl.ravel(index), N))


@construct("gather and histogram", EXACT, x=normal(16, 16), index=integers(0, 16, 16, 16))
def _gather(x: Tensor, index: Tensor) -> dict[str, Tensor]:
    y = torch.zeros(512, device=x.device)
    counts = torch.zeros(16, dtype=torch.int32, device=x.device)
    gather_kernel[(1,)](x, index, y, counts, 16)
    return {"y": y, "counts": counts}


@triton.jit
def cat_kernel(a_ptr, b_ptr, y_ptr, N: tl.constexpr):
    both = tl.cat(
        tl.load(a_ptr + tl.arange(0, N)),
        tl.load(b_ptr + tl.arange(0, N)),
        can_reorder=True,
    )
    tl.store(y_ptr, tl.sum(both, 0))
    tl.store(y_ptr + 1, tl.max(both, 0))


@construct("cat", EXACT, a=integers(-9, 9, 32), b=integers(-99, 99, 32, seed=1))
def _cat(a: Tensor, b: Tensor) -> Tensor:
    y = torch.zeros(2, dtype=a.dtype, device=a.device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated since 3.9
        cat_kernel[(1,)](a, b, y, 32)
    return y
