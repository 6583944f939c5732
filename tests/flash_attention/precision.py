"""16-bit inputs on which a sum or a product kept in 16 bits shows, although the result itself is rounded to 16 bits.

A rounding inside a kernel hides below that of the output unless large terms cancel, or the answer leaves in float32
(lse). Each builder arranges that with values that 16 bits hold exactly: an honest kernel makes no error at all.
"""

import math

import torch
from torch import Generator, Tensor

from tests.families import LOW_PRECISION, built, in_dtypes
from tests.flash_attention.inputs import CAUSAL, Attention, Shape, after_forward, forward_inputs, long, square
from tests.inputs import cancelling, normal, repeated

SHAPE = square()  # of 128 keys
LONG = Attention((2,), 256, 256, 64)  # with 2⁸ keys a uniform P is a power of two, exact in any precision
MANY = Attention((4,), 128, 128, 64)


def ordinary(rng: Generator, dtype: torch.dtype) -> list[Tensor]:
    return forward_inputs(rng, SHAPE, dtype)


def causal(rng: Generator, dtype: torch.dtype) -> list[Tensor]:
    """To be called with is_causal."""
    return forward_inputs(rng, long(), dtype)


def nearly_uniform(rng: Generator, dtype: torch.dtype) -> list[Tensor]:
    """Every p but the first is a little less than 1: P cast before its sum, a sum or an lse in 16 bits show in lse."""
    q, k, v = forward_inputs(rng, SHAPE, dtype)
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
    q, k, _ = forward_inputs(rng, SHAPE, dtype)
    return [torch.zeros_like(q), k, cancelling_at_powers_of_two(rng, *k.shape, dtype=dtype)]


def logits_that_cancel(rng: Generator, dtype: torch.dtype) -> list[Tensor]:
    """For float32: all logits of a row are equal, as a sum whose terms are exact in TF32 and not in bfloat16."""
    q, k, _ = forward_inputs(rng, SHAPE)
    q[..., 1::2] = q[..., ::2]
    k[..., ::2] = torch.randint(0, 8 * 256, k[..., ::2].shape, generator=rng) / 256
    k[..., 1::2] = 8 - k[..., ::2]
    return [q.to(dtype), k.to(dtype), cancelling_at_powers_of_two(rng, *k.shape, dtype=dtype)]


def logits_near_128(rng: Generator, dtype: torch.dtype, shape: Shape = SHAPE) -> list[Tensor]:
    """Logits of which 16 bits hold no differences, as a sum over all channels of terms that are exact."""
    q, k, v = forward_inputs(rng, shape, dtype)
    q = 0.5 + torch.rand(q.shape, generator=rng)
    k = 16 + normal(rng, *k.shape)
    return [q.to(dtype), k.to(dtype), v]


def beyond_float16(rng: Generator, dtype: torch.dtype) -> list[Tensor]:
    """bfloat16 with the range of float32: who computes in float16 overflows."""
    q, k, v = forward_inputs(rng, SHAPE, dtype)
    if dtype == torch.float16:
        return [q, k, v]
    return [q * 2.0**20, k * 2.0**-20, v * 2.0**-24]


FORWARD = in_dtypes(
    built([ordinary, nearly_uniform, values_that_cancel, logits_near_128, beyond_float16]) | built([causal], **CAUSAL),
    LOW_PRECISION,
)


def ordinary_gradients(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    return after_forward(rng, forward_inputs(rng, SHAPE, dtype), is_causal=False)


def causal_gradients(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """To be called with is_causal."""
    return after_forward(rng, forward_inputs(rng, long(), dtype), is_causal=True)


def values_all_equal(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """dP = D for every key, so dS = 0: a D or a dP in 16 bits leaves its rounding."""
    q, k, v = forward_inputs(rng, SHAPE, dtype)
    return after_forward(rng, [q, k, v[..., :1, :].expand(v.shape).clone()], is_causal=False)


def logits_near_128_backward(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """P recomputed from logits of which 16 bits hold no differences; the worst of many rows shows it."""
    return after_forward(rng, logits_near_128(rng, dtype, MANY), is_causal=False)


def queries_that_cancel(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Sums over queries, dK and dV, of terms that cancel: P is uniform, v = ±e₀ by halves of the keys, dO along e₀.

    Then o = 0 and D = 0, and dS is dO's number times ±1/256: a power of 2, exact in any precision.
    """
    q, k, v = forward_inputs(rng, LONG, dtype)
    v[:] = 0
    v[..., :128, 0], v[..., 128:, 0] = 1, -1
    grad_o = torch.zeros_like(q)
    grad_o[..., :1] = cancelling(rng, *q.shape[:-1], 1, dtype=dtype)
    return after_forward(rng, [repeated(q.half().to(dtype)), torch.zeros_like(k), v], is_causal=False, grad_o=grad_o)


def keys_that_cancel(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Sums over keys, dQ, of terms that cancel: P is uniform, v an integer times e₀ whose sum is 0, dO = ±e₀."""
    q, k, v = forward_inputs(rng, LONG, dtype)
    k = repeated(k.half())
    k[..., 0, :] += 0.125  # what is left of dQ
    v[:] = 0
    v[..., :1] = cancelling(rng, *k.shape[:-1], 1, dtype=dtype)
    v[..., 0, 0] -= 1
    grad_o = torch.zeros_like(q)
    grad_o[..., 0] = normal(rng, *q.shape[:-1]).sign().to(dtype)
    return after_forward(rng, [torch.zeros_like(q), k.to(dtype), v], is_causal=False, grad_o=grad_o)


def lse_of_powers_of_two(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """To be called with is_causal: an lse in 16 bits is off by another factor in each row, and dV's terms cancel.

    With q = 0 query 2ᵐ − 1 has P = 2⁻ᵐ and lse = m ln 2; its dO, ±2ᵐ⁻⁸, gives each key before it the same ±2⁻⁸.
    """
    q, k, v = forward_inputs(rng, LONG, dtype)
    grad_o = torch.zeros_like(q)
    for m in range(1, 9):
        grad_o[..., 2**m - 1, :] = 2.0 ** (m - 8) * (-1) ** m
    return after_forward(rng, [torch.zeros_like(q), k, v], is_causal=True, grad_o=grad_o)


BACKWARD = in_dtypes(
    built([ordinary_gradients, values_all_equal, logits_near_128_backward, queries_that_cancel, keys_that_cancel])
    | built([causal_gradients, lse_of_powers_of_two], **CAUSAL),
    LOW_PRECISION,
)
LSE = in_dtypes(built([lse_of_powers_of_two], **CAUSAL), LOW_PRECISION)
