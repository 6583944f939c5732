"""16-bit inputs on which a sum or a product kept in 16 bits shows, although the result itself is rounded to 16 bits.

A rounding inside a kernel hides below that of the output unless large terms cancel, or the answer leaves in float32
(lse, rstd). Each builder arranges that with values that 16 bits hold exactly: an honest kernel makes no error at all.
"""

import math

import pytest
import torch
from torch import Generator, Tensor

from tests import oracle
from tests.inputs import Attention, attention_inputs, backward_inputs, normal, row_inputs, shifted

LOW_PRECISION = pytest.mark.parametrize(
    "dtype", [pytest.param(torch.bfloat16, id="bfloat16"), pytest.param(torch.float16, id="float16")]
)
STEP = 1.0625  # one step up of a bfloat16, eight of a float16
SHAPE = Attention((2,), 128, 256, 64)
SQUARE = Attention((2,), 256, 256, 64)


def named(builders: list) -> pytest.MarkDecorator:
    """The argument `build`, each named after its function."""
    return pytest.mark.parametrize("build", [pytest.param(b, id=b.__name__.replace("_", " ")) for b in builders])


def mirrored(x: Tensor, sign: float = 1.0) -> Tensor:
    """The second half of the rows like the first, times sign."""
    half = x.shape[-2] // 2
    return torch.cat([x[..., :half, :], sign * x[..., :half, :]], dim=-2)


def ordinary(rng: Generator, dtype: torch.dtype) -> list[Tensor]:
    return attention_inputs(rng, SHAPE, dtype)


def causal(rng: Generator, dtype: torch.dtype) -> list[Tensor]:
    """To be called with is_causal."""
    return attention_inputs(rng, SHAPE, dtype)


def nearly_uniform(rng: Generator, dtype: torch.dtype) -> list[Tensor]:
    """Every p but the first is a little less than 1: P cast before its sum, a sum or an lse in 16 bits show in lse."""
    q, k, v = attention_inputs(rng, SHAPE, dtype)
    q[:], k[:] = 0, 0
    q[..., 0] = 1
    k[..., 1:, 0] = -(2.0 ** round(math.log2(1.6 * torch.finfo(dtype).eps)))
    return [q, k, v]


def values_that_cancel(rng: Generator, dtype: torch.dtype) -> list[Tensor]:
    """P is uniform and the values of the second half of the keys undo the first: o is what the last one leaves."""
    q, k, v = attention_inputs(rng, SHAPE, dtype)
    q[:] = 0
    v = mirrored(v, -1)
    v[..., -1, :] += 0.5
    return [q, k, v]


def logits_near_64(rng: Generator, dtype: torch.dtype) -> list[Tensor]:
    """A third of the rows has its logits near 64, where 16 bits hold no differences between them."""
    q, k, v = attention_inputs(rng, SHAPE)
    shifted(64)(q, k)
    return [q.to(dtype), k.to(dtype), v.to(dtype)]


attention_forward = named([ordinary, causal, nearly_uniform, values_that_cancel, logits_near_64])


def ordinary_gradients(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    return backward_inputs(rng, attention_inputs(rng, SHAPE, dtype), is_causal=False)


def causal_gradients(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """To be called with is_causal."""
    return backward_inputs(rng, attention_inputs(rng, SHAPE, dtype), is_causal=True)


def values_all_equal(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """dP = D for every key, so dS = 0: a D or a dP in 16 bits leaves its rounding."""
    q, k, v = attention_inputs(rng, SHAPE, dtype)
    return backward_inputs(rng, [q, k, v[..., :1, :].expand(v.shape).clone()], is_causal=False)


def queries_that_cancel(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """The second half of the queries undoes the first's dK and dV but for the last row: sums over queries."""
    q, k, v, grad_o = alternating(rng, dtype)
    k[:] = 0
    return backward_inputs(rng, [mirrored(q), k, v], is_causal=False, grad_o=grad_o)


def keys_that_cancel(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """The second half of the keys undoes the first's share of dQ but for the last key: sums over keys."""
    q, k, v, grad_o = alternating(rng, dtype)
    q[:] = 0
    k = mirrored(k)
    k[..., -1, :] *= STEP
    return backward_inputs(rng, [q, k, v], is_causal=False, grad_o=grad_o)


def alternating(rng: Generator, dtype: torch.dtype) -> list[Tensor]:
    """q, k, v and grad_o: v = ±e₀ by halves of the keys, grad_o along e₀ and of opposite sign in the second half.

    With uniform P, o = 0 and D = 0, and dS is grad_o's number times ±1/256: a power of 2, exact in any precision.
    """
    q, k, v = attention_inputs(rng, SQUARE, dtype)
    v[:] = 0
    v[..., 0] = 1
    v = mirrored(v, -1)
    grad_o = torch.zeros_like(q)
    grad_o[..., 0] = normal(rng, *q.shape[:-1], dtype=dtype)
    grad_o = mirrored(grad_o, -1)
    grad_o[..., -1, :] *= STEP
    return [q, k, v, grad_o]


attention_backward = named(
    [ordinary_gradients, causal_gradients, values_all_equal, queries_that_cancel, keys_that_cancel]
)


def ordinary_rows(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return row_inputs(rng, (64, 512), dtype)


def terms_that_cancel(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A row's second half undoes the first, whose sum is beyond float16, but for its last term."""
    x, weight = row_inputs(rng, (64, 512), dtype)
    weight[256:] = weight[:256]
    x = 256 * x.abs() * weight.sign()
    x[:, 256:] = -x[:, :256]
    x[:, -1] *= STEP
    return x, weight


weighted_sum_forward = named([ordinary_rows, terms_that_cancel])


def ordinary_rows_backward(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    x, weight = row_inputs(rng, (512, 64), dtype)
    return normal(rng, 512, dtype=dtype), x, weight


def rows_that_cancel(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """The second half of 2,048 rows undoes the first's share of grad_weight but for the last row."""
    x, weight = row_inputs(rng, (2048, 32), dtype)
    grad_y = mirrored(normal(rng, 2048, 1, dtype=dtype), -1)
    grad_y[-1] *= STEP
    return grad_y.squeeze(-1), mirrored(x), weight


weighted_sum_backward = named([ordinary_rows_backward, rows_that_cancel])


def large_rows_backward(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """x so large that eps, which has a check of its own, does not matter."""
    x, weight = row_inputs(rng, (512, 64), dtype)
    return rmsnorm_gradients(normal(rng, 512, 64, dtype=dtype), 32 * x, weight)


def normalized_rows_that_cancel(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """The second half of 2,048 rows undoes the first's share of grad_weight but for the last row."""
    x, weight = row_inputs(rng, (2048, 32), dtype)
    grad_y = mirrored(normal(rng, 2048, 32, dtype=dtype), -1)
    grad_y[-1] *= STEP
    return rmsnorm_gradients(grad_y, mirrored(32 * x), weight)


def gradient_along_x(rng: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """grad_y ∘ w is nearly x: the two terms of grad_x cancel."""
    x, weight = row_inputs(rng, (64, 512), dtype)
    weight = torch.where(weight < 0, weight - 0.5, weight + 0.5)
    return rmsnorm_gradients((x.float() / weight.float()).to(dtype), x, weight)


def rmsnorm_gradients(grad_y: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return grad_y, x, weight, oracle.rmsnorm_forward(x, weight)[1].float()


rmsnorm_backward = named([large_rows_backward, normalized_rows_that_cancel, gradient_along_x])
