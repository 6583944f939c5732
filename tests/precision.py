"""16-bit inputs on which a sum or a product kept in 16 bits shows, although the result itself is rounded to 16 bits.

A rounding inside a kernel hides below that of the output unless large terms cancel, or the answer leaves in float32
(lse, rstd). Each builder arranges that with values that 16 bits hold exactly: an honest kernel makes no error at all.
"""

import math

import pytest
import torch
from torch import Generator, Tensor

from tests import oracle
from tests.inputs import (
    TILE,
    Attention,
    Shape,
    attention_inputs,
    backward_inputs,
    between,
    long,
    long_matrix,
    normal,
    row_inputs,
    square,
    wide_matrix,
)

LOW_PRECISION = pytest.mark.parametrize(
    "dtype", [pytest.param(torch.bfloat16, id="bfloat16"), pytest.param(torch.float16, id="float16")]
)
SHAPE = square()  # of 128 keys
LONG = Attention((2,), 256, 256, 64)  # with 2⁸ keys a uniform P is a power of two, exact in any precision
MANY = Attention((4,), 128, 128, 64)
# Sums of two such integers, and they themselves, are exact in the dtype; in float32 also after truncation to TF32.
LARGEST = {torch.bfloat16: 63, torch.float16: 500, torch.float32: 500}


def named(builders: list) -> pytest.MarkDecorator:
    """The argument `build`, each named after its function."""
    return pytest.mark.parametrize("build", [pytest.param(b, id=b.__name__.replace("_", " ")) for b in builders])


def cancelling(rng: Generator, *shape: int, dtype: torch.dtype) -> Tensor:
    """Integers along the last but one dimension whose quarters are a, b, −(a + b) and 0; and 1 more in the first row.

    Multiplied with what repeats in every quarter they add up to what the first row has too much. Halves that mirror
    each other would not do: their products are rounded alike, and cancel even so.
    """
    *batch, n, d = shape
    a, b = (torch.randint(1, LARGEST[dtype], (*batch, n // 4, d), generator=rng) for _ in range(2))
    x = torch.cat([a, b, -(a + b), torch.zeros_like(a)], dim=-2).to(dtype)
    x[..., 0, :] += 1
    return x


def repeated(x: Tensor) -> Tensor:
    """The first quarter of the rows four times."""
    return x[..., : x.shape[-2] // 4, :].repeat(*[1] * (x.ndim - 2), 4, 1)


def ordinary(rng: Generator, dtype: torch.dtype) -> list[Tensor]:
    return attention_inputs(rng, SHAPE, dtype)


def causal(rng: Generator, dtype: torch.dtype) -> list[Tensor]:
    """To be called with is_causal."""
    return attention_inputs(rng, long(), dtype)


def nearly_uniform(rng: Generator, dtype: torch.dtype) -> list[Tensor]:
    """Every p but the first is a little less than 1: P cast before its sum, a sum or an lse in 16 bits show in lse."""
    q, k, v = attention_inputs(rng, SHAPE, dtype)
    q[:], k[:] = 0, 0
    q[..., 0] = 1
    k[..., 1:, 0] = -(2.0 ** round(math.log2(1.6 * torch.finfo(dtype).eps)))
    return [q, k, v]


def cancelling_at_powers_of_two(rng: Generator, *shape: int, dtype: torch.dtype) -> Tensor:
    """Keys 0 to 31 of 128 hold a and b, the last 16 −(a + b), the others 0.

    Each lies in a tile that ends after a power of two of keys, be it of 16, 32, 64 or 128: a kernel that divides by the
    sum of a uniform P in each tile, as FlashAttention-1 does, makes no error there either.
    """
    *batch, n, d = shape
    a, b, rest, _ = cancelling(rng, *batch, 64, d, dtype=dtype).chunk(4, dim=-2)
    return torch.cat([a, b, a.new_zeros(*batch, n - 48, d), rest], dim=-2)


def values_that_cancel(rng: Generator, dtype: torch.dtype) -> list[Tensor]:
    """P is uniform and the values cancel: a sum or a product with v in 16 bits is all that is left of o."""
    q, k, _ = attention_inputs(rng, SHAPE, dtype)
    return [torch.zeros_like(q), k, cancelling_at_powers_of_two(rng, *k.shape, dtype=dtype)]


def logits_that_cancel(rng: Generator, dtype: torch.dtype) -> list[Tensor]:
    """For float32: all logits of a row are equal, as a sum whose terms are exact in TF32 and not in bfloat16."""
    q, k, _ = attention_inputs(rng, SHAPE)
    q[..., 1::2] = q[..., ::2]
    k[..., ::2] = torch.randint(0, 8 * 256, k[..., ::2].shape, generator=rng) / 256
    k[..., 1::2] = 8 - k[..., ::2]
    return [q.to(dtype), k.to(dtype), cancelling_at_powers_of_two(rng, *k.shape, dtype=dtype)]


def logits_near_128(rng: Generator, dtype: torch.dtype, shape: Shape = SHAPE) -> list[Tensor]:
    """Logits of which 16 bits hold no differences, as a sum over all channels of terms that are exact."""
    q, k, v = attention_inputs(rng, shape, dtype)
    q = 0.5 + torch.rand(q.shape, generator=rng)
    k = 16 + normal(rng, *k.shape)
    return [q.to(dtype), k.to(dtype), v]


def beyond_float16(rng: Generator, dtype: torch.dtype) -> list[Tensor]:
    """bfloat16 with the range of float32: who computes in float16 overflows."""
    q, k, v = attention_inputs(rng, SHAPE, dtype)
    if dtype == torch.float16:
        return [q, k, v]
    return [q * 2.0**20, k * 2.0**-20, v * 2.0**-24]


attention_forward = named([ordinary, causal, nearly_uniform, values_that_cancel, logits_near_128, beyond_float16])


def ordinary_gradients(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    return backward_inputs(rng, attention_inputs(rng, SHAPE, dtype), is_causal=False)


def causal_gradients(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """To be called with is_causal."""
    return backward_inputs(rng, attention_inputs(rng, long(), dtype), is_causal=True)


def values_all_equal(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """dP = D for every key, so dS = 0: a D or a dP in 16 bits leaves its rounding."""
    q, k, v = attention_inputs(rng, SHAPE, dtype)
    return backward_inputs(rng, [q, k, v[..., :1, :].expand(v.shape).clone()], is_causal=False)


def logits_near_128_backward(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """P recomputed from logits of which 16 bits hold no differences; the worst of many rows shows it."""
    return backward_inputs(rng, logits_near_128(rng, dtype, MANY), is_causal=False)


def queries_that_cancel(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Sums over queries, dK and dV, of terms that cancel: P is uniform, v = ±e₀ by halves of the keys, dO along e₀.

    Then o = 0 and D = 0, and dS is dO's number times ±1/256: a power of 2, exact in any precision.
    """
    q, k, v = attention_inputs(rng, LONG, dtype)
    v[:] = 0
    v[..., :128, 0], v[..., 128:, 0] = 1, -1
    grad_o = torch.zeros_like(q)
    grad_o[..., :1] = cancelling(rng, *q.shape[:-1], 1, dtype=dtype)
    return backward_inputs(rng, [repeated(q.half().to(dtype)), torch.zeros_like(k), v], is_causal=False, grad_o=grad_o)


def keys_that_cancel(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Sums over keys, dQ, of terms that cancel: P is uniform, v an integer times e₀ whose sum is 0, dO = ±e₀."""
    q, k, v = attention_inputs(rng, LONG, dtype)
    k = repeated(k.half())
    k[..., 0, :] += 0.125  # what is left of dQ
    v[:] = 0
    v[..., :1] = cancelling(rng, *k.shape[:-1], 1, dtype=dtype)
    v[..., 0, 0] -= 1
    grad_o = torch.zeros_like(q)
    grad_o[..., 0] = normal(rng, *q.shape[:-1]).sign().to(dtype)
    return backward_inputs(rng, [torch.zeros_like(q), k.to(dtype), v], is_causal=False, grad_o=grad_o)


def lse_of_powers_of_two(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """To be called with is_causal: an lse in 16 bits is off by another factor in each row, and dV's terms cancel.

    With q = 0 query 2ᵐ − 1 has P = 2⁻ᵐ and lse = m ln 2; its dO, ±2ᵐ⁻⁸, gives each key before it the same ±2⁻⁸.
    """
    q, k, v = attention_inputs(rng, LONG, dtype)
    grad_o = torch.zeros_like(q)
    for m in range(1, 9):
        grad_o[..., 2**m - 1, :] = 2.0 ** (m - 8) * (-1) ** m
    return backward_inputs(rng, [torch.zeros_like(q), k, v], is_causal=True, grad_o=grad_o)


CAUSAL = (causal, causal_gradients, lse_of_powers_of_two)
attention_backward = named(
    [
        ordinary_gradients,
        causal_gradients,
        values_all_equal,
        logits_near_128_backward,
        queries_that_cancel,
        keys_that_cancel,
        lse_of_powers_of_two,
    ]
)


def ordinary_rows(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return row_inputs(rng, wide_matrix, dtype)


def terms_that_cancel(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A row's terms add up to next to nothing, on the way to which they are beyond float16."""
    x, _ = row_inputs(rng, wide_matrix, dtype)
    return repeated(x.abs().mT).mT, cancelling(rng, x.shape[-1], 1, dtype=dtype).squeeze(-1)


weighted_sum_forward = named([ordinary_rows, terms_that_cancel])


def ordinary_rows_backward(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    x, weight = row_inputs(rng, wide_matrix, dtype)
    return normal(rng, len(x), dtype=dtype), x, weight


def many_rows(rng: Generator) -> tuple[int, ...]:
    return TILE * between(rng, 13, 19), TILE


def rows_that_cancel(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """The shares of some 2,000 rows in grad_weight cancel."""
    x, weight = row_inputs(rng, many_rows, dtype)
    return cancelling(rng, len(x), 1, dtype=dtype).squeeze(-1), repeated(x), weight


weighted_sum_backward = named([ordinary_rows_backward, rows_that_cancel])


def large_rows_backward(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """x so large that eps, which has a check of its own, does not matter."""
    x, weight = row_inputs(rng, long_matrix, dtype)
    return rmsnorm_gradients(normal(rng, *x.shape, dtype=dtype), 32 * x, weight)


def normalized_rows_that_cancel(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """The shares of some 2,000 rows in grad_weight cancel."""
    x, weight = row_inputs(rng, many_rows, dtype)
    return rmsnorm_gradients(cancelling(rng, *x.shape, dtype=dtype), repeated(32 * x), weight)


def gradient_along_x(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """grad_y ∘ w is nearly x: the two terms of grad_x cancel."""
    x, weight = row_inputs(rng, wide_matrix, dtype)
    weight = torch.where(weight < 0, weight - 0.5, weight + 0.5)
    return rmsnorm_gradients((x.float() / weight.float()).to(dtype), x, weight)


def rmsnorm_gradients(grad_y: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return grad_y, x, weight, oracle.rmsnorm_forward(x, weight)[1].float()


rmsnorm_backward = named([large_rows_backward, normalized_rows_that_cancel, gradient_along_x])
