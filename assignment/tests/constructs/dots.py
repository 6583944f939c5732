"""Matrix products: operand types, precisions, accumulators and shapes."""

import torch
import triton
import triton.language as tl

from .conversions import TYPES
from .table import Closeness, construct, integers, normal, out

# one wrong bit of an operand is 1e-3 relative; the tensor core's own sums keep about 2^-23 of the largest term
PRODUCT = Closeness(absolute=3e-6, reason="order and width of the tensor core's accumulation")
HALF_PRODUCT = Closeness(relative=2e-3, absolute=2e-3, reason="accumulated in fp16")
THREE_PASS = Closeness(absolute=1e-5, reason="three TF32 products leave out the smallest term")
SIX_PASS = Closeness(absolute=1e-4, reason="bf16 products leave out the smallest terms")


@triton.jit
def dot_kernel(
    a_ptr, b_ptr, c_ptr, y_ptr,
    PRECISION: tl.constexpr, OUT: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    c = tl.load(c_ptr + m[:, None] * N + n[None, :])
    y = tl.dot(a, b, c, input_precision=PRECISION, out_dtype=OUT)
    tl.store(y_ptr + m[:, None] * N + n[None, :], y)


def _dot(name: str, closeness: Closeness, shape: tuple[int, int, int], dtype: str, precision: str | None) -> None:
    m, n, k = shape
    a, b = normal(m, k, dtype=TYPES[dtype], seed=1), normal(k, n, dtype=TYPES[dtype], seed=2)
    construct(
        f"dot {name}, {m}x{n}x{k}", dot_kernel, lambda a, b, c: (a, b, c, out(m, n), precision, tl.float32, m, n, k),
        closeness, a=a, b=b, c=normal(m, n, seed=3),
    )  # fmt: skip


for _shape in ((16, 16, 16), (64, 32, 32), (16, 32, 64)):
    for _dtype in ("fp32", "bf16", "fp16"):
        _dot(_dtype, PRODUCT, _shape, _dtype, None)
    _dot("fp32 tf32", PRODUCT, _shape, "fp32", "tf32")
    _dot("fp32 ieee", PRODUCT, _shape, "fp32", "ieee")
for _shape in ((16, 16, 16), (64, 32, 32)):
    _dot("fp32 tf32x3", THREE_PASS, _shape, "fp32", "tf32x3")
_dot("fp32 bf16x6", SIX_PASS, (64, 32, 32), "fp32", "bf16x6")


construct(
    "dot fp16 with fp16 accumulator", dot_kernel,
    lambda a, b: (
        a.half(), b.half(), a.new_zeros(64, 64).half(), out(64, 64, dtype=torch.float16), None, tl.float16, 64, 64, 32
    ),
    HALF_PRODUCT, a=normal(64, 32, seed=1), b=normal(32, 64, seed=2),
)  # fmt: skip


@triton.jit
def int_dot_kernel(a_ptr, b_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    tl.store(y_ptr + m[:, None] * N + n[None, :], tl.dot(a, b, out_dtype=tl.int32))


construct(
    "dot int8", int_dot_kernel, lambda a, b: (a, b, out(64, 64, dtype=torch.int32), 64, 64, 64),
    a=integers(-128, 128, 64, 64, dtype=torch.int8, seed=1), b=integers(-128, 128, 64, 64, dtype=torch.int8, seed=2),
)  # fmt: skip


@triton.jit
def transposed_dot_kernel(a_ptr, b_ptr, y_ptr, N: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    a = tl.load(a_ptr + i * N + j)
    b = tl.load(b_ptr + i * N + j)
    tl.store(y_ptr + i * N + j, tl.dot(tl.trans(a), b.T))


construct(
    "dot of transposed operands", transposed_dot_kernel, lambda a, b: (a.bfloat16(), b.bfloat16(), out(32, 32), 32),
    PRODUCT, a=normal(32, 32, seed=1), b=normal(32, 32, seed=2),
)  # fmt: skip


@triton.jit
def batched_dot_kernel(a_ptr, b_ptr, y_ptr, B: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, B)[:, None, None] * N * N + tl.arange(0, N)[None, :, None] * N + tl.arange(0, N)[None, None, :]
    tl.store(y_ptr + at, tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at)))


construct(
    "dot of batches", batched_dot_kernel, lambda a, b: (a.half(), b.half(), out(4, 32, 32), 4, 32),
    PRODUCT, a=normal(4, 32, 32, seed=1), b=normal(4, 32, 32, seed=2),
)  # fmt: skip


@triton.jit
def dot_chain_kernel(a_ptr, y_ptr, n, N: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    acc = tl.zeros((N, N), tl.float32)
    for step in range(n):
        a = tl.load(a_ptr + step * N * N + i * N + j)
        acc += tl.dot(a, tl.trans(a))
    tl.store(y_ptr + i * N + j, acc)


_a = normal(5, 32, 32)
construct("dot accumulated in a loop", dot_chain_kernel, lambda a: (a, out(32, 32), 5, 32), PRODUCT, a=_a)


@triton.jit
def tiny_dot_kernel(a_ptr, b_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    tl.store(y_ptr + m[:, None] * N + n[None, :], tl.dot(a, b))


for _m, _n, _k in (8, 16, 16), (16, 8, 16), (16, 16, 8), (1, 16, 16), (4, 4, 16):
    # register tiles below 16: whether they compile, and what they give
    _a, _b = normal(_m, _k, seed=1), normal(_k, _n, seed=2)
    construct(
        f"tiny dot, {_m}x{_n}x{_k}", tiny_dot_kernel,
        lambda a, b, m=_m, n=_n, k=_k: (a.half(), b.half(), out(m, n), m, n, k), PRODUCT, a=_a, b=_b,
    )  # fmt: skip
