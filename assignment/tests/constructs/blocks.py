"""Rearranging elements: shapes, sorting, gathering."""

import warnings

import torch
import triton
import triton.language as tl
from torch import Tensor

from .table import EXACT, Construct, construct, integers, normal, out, register


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
    tl.store(y_ptr + 6 * N * N + at, x.reshape(N * N).reshape(N, N) + tl.full((N, N), 2, tl.float32))


_x = integers(-9, 9, 16, 16).float()
construct("trans, permute, reshape, broadcast", shape_kernel, lambda x: (x, out(7 * 256), 16), x=_x)


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


construct(
    "join, split, interleave, flip", join_kernel,
    lambda a, b: (a.half(), b.half(), out(7 * 32, dtype=torch.float16), 32), a=normal(32), b=normal(32, seed=1),
)  # fmt: skip


@triton.jit
def sort_kernel(x_ptr, y_ptr, N: tl.constexpr):
    at = tl.arange(0, 4)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, tl.sort(x))
    tl.store(y_ptr + 4 * N + at, tl.sort(x, descending=True))
    top = tl.arange(0, 4)[:, None] * 4 + tl.arange(0, 4)[None, :]
    tl.store(y_ptr + 8 * N + top, tl.topk(x, 4))


for _name, _x in {"fp32": normal(4, 32), "int32": integers(-50, 50, 4, 32)}.items():
    construct(f"sort and topk of {_name}", sort_kernel, lambda x: (x, out(8 * 32 + 16, dtype=x.dtype), 32), x=_x)


@triton.jit
def gather_kernel(x_ptr, i_ptr, y_ptr, h_ptr, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    x, index = tl.load(x_ptr + at), tl.load(i_ptr + at)
    tl.store(y_ptr + at, tl.gather(x, index, 0))
    tl.store(y_ptr + N * N + at, tl.gather(x, index, 1))
    tl.store(h_ptr + tl.arange(0, N), tl.histogram(tl.ravel(index), N))


construct(
    "gather and histogram", gather_kernel,
    lambda x, index: (x, index, out(512), out(16, dtype=torch.int32, name="counts"), 16),
    x=normal(16, 16), index=integers(0, 16, 16, 16),
)  # fmt: skip


@triton.jit
def cat_kernel(a_ptr, b_ptr, y_ptr, N: tl.constexpr):
    both = tl.cat(tl.load(a_ptr + tl.arange(0, N)), tl.load(b_ptr + tl.arange(0, N)), can_reorder=True)
    tl.store(y_ptr, tl.sum(both, 0))
    tl.store(y_ptr + 1, tl.max(both, 0))


def _cat(a: Tensor, b: Tensor) -> dict[str, Tensor]:
    y = torch.zeros(2, dtype=a.dtype, device=a.device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated since 3.9
        cat_kernel[(1,)](a, b, y, 32)
    return {"y": y}


register(Construct("cat", {"a": integers(-9, 9, 32), "b": integers(-99, 99, 32, seed=1)}, _cat, EXACT))
