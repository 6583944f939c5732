"""Control flow, arguments, grids and calls."""

# mypy: disable-error-code="attr-defined"
# (in a kernel a loop variable is a tensor)

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language import constexpr as known

from .table import EXACT, Closeness, Construct, Out, construct, integers, normal, out, register

WIDTH = tl.constexpr(8)


@triton.jit
def loop_kernel(y_ptr, n, big):
    at = 0
    for i in range(n):
        tl.store(y_ptr + at, i.to(tl.int64) * 1000 + (i == 2).to(tl.int32))
        at += 1
    for i in range(n, -3, -2):
        tl.store(y_ptr + at, i)
        at += 1
    for i in range(2, big, 5000000000):
        tl.store(y_ptr + at, i)
        at += 1
    for i in tl.range(1, n, 2, num_stages=2):
        tl.store(y_ptr + at, i * i)
        at += 1
    for i in tl.static_range(3):
        tl.store(y_ptr + at + i, tl.sum(tl.arange(0, 2 ** (i + 1)), 0))
    x = n
    while x > 1 and at < 100:
        tl.store(y_ptr + at + 3, x)
        x = x // 2 if x % 2 == 0 else 3 * x + 1
        at += 1


construct("loops", loop_kernel, lambda y: (Out(y), 7, 10_000_000_000), y=torch.zeros(64, dtype=torch.int64))


@triton.jit
def overflow_kernel(y_ptr, n, wide):
    for i in range(n, n + 2):
        tl.store(y_ptr + i - n, i * 100000)
        tl.store(y_ptr + 2 + i - n, i.to(tl.int64) * 100000)
    for i in range(wide, wide + 2):
        tl.store(y_ptr + 4 + i - wide, i * 100000)


construct(
    "loop variables overflow in int32, not in int64", overflow_kernel, lambda y: (Out(y), 100_000, 5_000_000_000),
    y=torch.zeros(6, dtype=torch.int64),
)  # fmt: skip


@triton.jit
def branch_kernel(x_ptr, y_ptr, n, flag, other, scale, NAME: tl.constexpr):
    pid = tl.program_id(0)
    if pid >= n:
        return
    x = tl.load(x_ptr + pid)
    if flag and x > 0:
        y = x * 2
    elif not other or x < -1.0:
        y = x - 1.0
    else:
        y = 0.0
    if NAME == "scaled":
        y *= scale
    y += 0.25 if pid == 1 else 0.5
    if pid == 3:
        return
    tl.store(y_ptr + pid, y)


def _branches(x: Tensor) -> dict[str, Tensor]:
    y = torch.zeros(4, 8, device=x.device)
    for i, (flag, other) in enumerate([(True, False), (False, True), (True, True), (False, False)]):
        branch_kernel[(8,)](x, y[i], 6, flag, other, 2.0, NAME="scaled" if i % 2 else "plain")
    return {"y": y}


register(Construct("branches, bool arguments, early return", {"x": normal(8)}, _branches, EXACT))


@triton.jit
def _halves(x, N: tl.constexpr):
    half: known = N // 2  # tl.constexpr, whatever a module calls it
    tl.static_assert(half * 2 == N)
    low = tl.sum(tl.where(tl.arange(0, N) < half, x, 0), 0)
    return low, tl.sum(x, 0) - low


@triton.jit
def call_kernel(x_ptr, y_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    low, high = _halves(x, N)
    pair = _halves(x * WIDTH, N=N)
    tl.store(y_ptr, low)
    tl.store(y_ptr + 1, high)
    tl.store(y_ptr + 2, pair[0] + pair[1])
    tl.store(y_ptr + 3, max(low, high))
    tl.store(y_ptr + 4, min(low, high, 3))
    tl.store(y_ptr + 5, WIDTH * low)


construct(
    "calls, tuples, constexpr globals", call_kernel, lambda x: (x, out(6, dtype=x.dtype), 32), x=integers(-9, 9, 32)
)


@triton.jit
def grid_kernel(y_ptr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    sizes = tl.num_programs(0) * 100 + tl.num_programs(1) * 10 + tl.num_programs(2)
    at = (z * tl.num_programs(1) + y) * tl.num_programs(0) + x
    tl.store(y_ptr + at, sizes * 1000 + x * 100 + y * 10 + z)


_y = torch.zeros(24, dtype=torch.int32)
construct("grids of three dimensions", grid_kernel, lambda y: (Out(y),), grid=(2, 3, 4), y=_y)


@triton.jit
def argument_kernel(y_ptr, small, one, large, huge, flag, ratio):
    tl.store(y_ptr, small * 100000)  # int32
    tl.store(y_ptr + 1, one + 2)
    tl.store(y_ptr + 2, large * 10)  # int64
    tl.store(y_ptr + 3, (huge >> 1).to(tl.int64))  # uint64
    tl.store(y_ptr + 4, flag.to(tl.int64) + 1)
    tl.store(y_ptr + 5, (ratio * 1e9).to(tl.int64))  # float32


construct(
    "types of integer, bool and float arguments", argument_kernel,
    lambda y: (Out(y), 100_000, 1, 3_000_000_000, 2**63 + 5, True, 0.1), y=torch.zeros(6, dtype=torch.int64),
)  # fmt: skip


@triton.jit
def logic_kernel(x_ptr, y_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    mask = (x > 0) & (x < 5) | (x == -3)
    tl.store(y_ptr + at, tl.where(mask, x, -x))
    tl.store(y_ptr + N + at, tl.where(x % 2 == 0, 1.5, 2))
    tl.store(y_ptr + 2 * N + at, (~mask).to(tl.int32) + mask)


construct("masks and where", logic_kernel, lambda x: (x, out(96), 32), x=integers(-9, 9, 32))


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n, N: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, N)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=-float("inf")).to(tl.float32)
    p = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * n + at, p / tl.sum(p, 0), mask=at < n)


for _dtype in (torch.float32, torch.float16, torch.bfloat16):
    _name = f"a whole softmax in {str(_dtype).removeprefix('torch.')}"
    _step = Closeness(torch.finfo(_dtype).eps, 1e-6, reason="exp is approximate: it may round the other way")
    construct(
        _name, softmax_kernel, lambda x: (x, out(5, 50, dtype=x.dtype), 50, 64), _step, grid=(5,),
        x=normal(5, 50, dtype=_dtype),
    )  # fmt: skip
