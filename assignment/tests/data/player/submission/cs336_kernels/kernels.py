"""Kernels in the styles that people write them in; each maps x to y, element by element."""

import math
from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from . import common

exp2 = tl.exp2
LOG2E = tl.constexpr(math.log2(math.e))
LOWEST = tl.constexpr(float("-inf"))
KIND = tl.constexpr(tl.float32)
SIZES = tl.constexpr((2, 3))
DEFAULT = 16


class Pair(NamedTuple):
    first: tl.tensor
    second: tl.tensor


@triton.jit
def load(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    return i, tl.load(x_ptr + i, mask=i < n, other=0.0)


@triton.jit
def aliases(x_ptr, y_ptr, n, BLOCK: tl.constexpr = DEFAULT):
    i, x = load(x_ptr, n, BLOCK)
    y = exp2(x * LOG2E) + tl.maximum(x, LOWEST).to(KIND) + SIZES[1]
    tl.store(y_ptr + i, y, mask=i < n)


@triton.jit
def modules(x_ptr: torch.Tensor, y_ptr: "torch.Tensor", n: int, BLOCK: "tl.constexpr" = DEFAULT):
    i, x = load(x_ptr, n, BLOCK)
    y = common.tripled(x) + common.FACTOR + math.pi + tl.math.exp(x) + libdevice.tanh(x)
    y = tl.where(x > -np.inf, y, 0.0) + triton.cdiv(BLOCK, 5)
    tl.store(y_ptr + i, y, mask=i < n)


@triton.jit
def first(pair):
    return pair.first - pair.second


@triton.jit
def tuples(x_ptr, y_ptr, n, BLOCK: tl.constexpr = DEFAULT):
    i, x = load(x_ptr, n, BLOCK)
    y = first(Pair(x, x * x))
    for j in tl.static_range(3):
        y += j
    for j in range(n):
        y += j
    tl.store(y_ptr + i, y, mask=(i < n) & (i >= 0))


@triton.jit
def lists(x_ptr, y_ptr, n, BLOCK: tl.constexpr = DEFAULT):
    i, x = load(x_ptr, n, BLOCK)
    y, z = [tile * 2 + 1 for tile in (x, x * x)]
    tl.store(y_ptr + i, y + z, mask=i < n and n * 2 > 0)


@triton.jit
def applied(x_ptr, y_ptr, n, F: tl.constexpr, BLOCK: tl.constexpr = DEFAULT):
    i, x = load(x_ptr, n, BLOCK)
    tl.static_assert(BLOCK > 0, f"{BLOCK} is no size")
    if BLOCK > 2 and n > 0:
        x = F(x)
    tl.store(y_ptr + i, x if n > 3 else x + 1, mask=i < n)


def made(factor):
    scale = tl.constexpr(factor)

    @triton.jit
    def scaled(x_ptr, y_ptr, n, BLOCK: tl.constexpr = DEFAULT):
        """Documented
        in two lines."""
        i, x = load(x_ptr, n, BLOCK)
        tl.store(y_ptr + i, x * scale, mask=i < n)

    return scaled


@triton.constexpr_function
def doubled(n):
    return 2 * n if n > 1 else 2


def undecorated(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i, x = load(x_ptr, n, BLOCK)
    tl.store(y_ptr + i, x + doubled(BLOCK) * tl.sum(x), mask=i < n)


later = triton.jit(undecorated)


class Methods:
    @triton.jit
    def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr = DEFAULT):  # noqa: N805
        i, x = load(x_ptr, n, BLOCK)
        tl.store(y_ptr + i, x - 1, mask=i < n)


@triton.autotune([triton.Config({"BLOCK": 8}), triton.Config({"BLOCK": 32})], key=["n"])
@triton.jit(do_not_specialize=["n"])
def tuned(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i, x = load(x_ptr, n, BLOCK)
    tl.store(y_ptr + i, x + 7, mask=i < n)


@triton.jit
def of_a_global(x_ptr, y_ptr, n, BLOCK: tl.constexpr = DEFAULT):
    i, x = load(x_ptr, n, BLOCK)
    tl.store(y_ptr + i, x + DEFAULT, mask=i < n)


@triton.jit
def out_of_bounds(x_ptr, y_ptr, n, BLOCK: tl.constexpr = DEFAULT):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i))  # HERE


@triton.jit
def of_none(x_ptr, y_ptr, n, BLOCK: tl.constexpr = DEFAULT):
    i, x = load(x_ptr, n, BLOCK)
    tl.store(y_ptr + i, x * "a", mask=i < n)


def host(x):
    return x


@triton.jit
def of_python(x_ptr, y_ptr, n, BLOCK: tl.constexpr = DEFAULT):
    i, x = load(x_ptr, n, BLOCK)
    tl.store(y_ptr + i, host(x), mask=i < n)


@triton.jit
def power(x_ptr, y_ptr, n, BLOCK: tl.constexpr = DEFAULT):
    i, x = load(x_ptr, n, BLOCK)
    tl.store(y_ptr + i, x + 2 ** (BLOCK * 10**7), mask=i < n)


@triton.jit
def shift(x_ptr, y_ptr, n, BLOCK: tl.constexpr = DEFAULT):
    i, x = load(x_ptr, n, BLOCK)
    tl.store(y_ptr + i, x + (1 << (BLOCK * 10**9)), mask=i < n)


@triton.jit
def product(x_ptr, y_ptr, n, BLOCK: tl.constexpr = DEFAULT):
    i, x = load(x_ptr, n, BLOCK)
    many: tl.constexpr = BLOCK**600
    tl.store(y_ptr + i, x + many * many, mask=i < n)


@triton.jit
def text(x_ptr, y_ptr, n, BLOCK: tl.constexpr = DEFAULT):
    i, x = load(x_ptr, n, BLOCK)
    tl.static_assert(len("a" * (BLOCK * 10**8)) > 0)
    tl.store(y_ptr + i, x, mask=i < n)


@triton.jit
def padded(x_ptr, y_ptr, n, BLOCK: tl.constexpr = DEFAULT):
    i, x = load(x_ptr, n, BLOCK)
    tl.static_assert(len("%1000000000d" % BLOCK) > 0)  # noqa: UP031
    tl.store(y_ptr + i, x, mask=i < n)


@triton.constexpr_function
def enormous(n):
    n *= 10**9
    return 2**n


@triton.jit
def plain_power(x_ptr, y_ptr, n, BLOCK: tl.constexpr = DEFAULT):
    i, x = load(x_ptr, n, BLOCK)
    tl.store(y_ptr + i, x + enormous(BLOCK), mask=i < n)
