"""What both functions return, and how far a right kernel may be from it: see tests/compare.py."""

from collections.abc import Callable

import torch
from torch import Tensor

from tests.compare import FLOAT32_EPS, Expected, expect
from tests.matmul_block_scaled import oracle
from tests.matmul_block_scaled.oracle import BLOCK

NEAR = 16 * FLOAT32_EPS  # of x / scale: divisions and reciprocals of a GPU, of numbers that are rounded themselves
BELOW_A_STEP = 0.25  # of e4m3: no two of its numbers are so close
STEP = 32  # terms that a tensor core adds at once, of float8
KEPT_BITS = 13  # after the leading one of the largest, of what a Hopper GPU adds up in float8
SOME_ROWS = 32


def quantize_block_scaled(x: Tensor, block: tuple[int, int] = (1, BLOCK)) -> dict[str, Expected]:
    """Scales as float32 has them; a value is another float8 only where x / scale is nearly in the middle of two."""
    values, scales = oracle.quantize_block_scaled(x, block)
    exact = x.double() / oracle.of_elements(scales, block, x)
    off = [(oracle.to_float8(exact * (1 + near)) - values).abs() for near in (-NEAR, NEAR)]
    allowed = 2 * torch.maximum(*off) + BELOW_A_STEP * oracle.step(exact)
    in_float32 = oracle.scales_of(x, block).float()
    return {
        "values": Expected.within(values, allowed, torch.float8_e4m3fn, rows=True),
        "scales": expect(scales, [[in_float32]], [], scales, torch.float32, rows=False),
    }


def matmul_block_scaled(a: Tensor, a_scales: Tensor, b: Tensor, b_scales: Tensor) -> dict[str, Expected]:
    """Products of float8 are exact in float32: the order of sums is open, and what a tensor core keeps of them."""
    factors = a, a_scales, b, b_scales
    c = oracle.matmul_block_scaled(*factors)
    magnitude = oracle.matmul_block_scaled(a.float().abs(), a_scales.abs(), b.float().abs(), b_scales.abs())

    def on_tensor_cores() -> Tensor:
        """Some rows as float8 products of a Hopper GPU are, the others right."""
        some = torch.linspace(0, len(a) - 1, min(len(a), SOME_ROWS)).long()
        return c.index_copy(0, some, in_blocks(a[some], a_scales[some], b, b_scales, cut_sums).double())

    roundings = [[in_blocks(*factors), lambda: in_blocks(*factors, is_backwards=True)], [on_tensor_cores]]
    return {"c": expect(c, roundings, [], magnitude, torch.bfloat16, rows=True)}


def whole_sums(a: Tensor, b: Tensor) -> Tensor:
    return a @ b.mT


def in_blocks(
    a: Tensor,
    a_scales: Tensor,
    b: Tensor,
    b_scales: Tensor,
    product: Callable[[Tensor, Tensor], Tensor] = whole_sums,
    is_backwards: bool = False,
) -> Tensor:
    """The product in float32: block after block of k, each scaled before it is added."""
    total = torch.zeros(len(a), len(b))
    columns = b_scales.repeat_interleave(BLOCK, 0)[: len(b)].mT
    blocks = [*zip(a.float().split(BLOCK, 1), b.float().split(BLOCK, 1), a_scales.mT, columns, strict=True)]
    for own_a, own_b, rows, of_b in reversed(blocks) if is_backwards else blocks:
        total += product(own_a, own_b) * rows[:, None] * of_b
    return total


def cut_sums(a: Tensor, b: Tensor) -> Tensor:
    """The product a bᵀ as a Hopper GPU adds it: STEP terms and the sum so far, all cut to the bits of the largest."""
    total = torch.zeros(len(a), len(b))
    for some_a, some_b in zip(a.split(STEP, 1), b.split(STEP, 1), strict=True):
        terms = torch.cat([some_a[:, None] * some_b, total[..., None]], dim=-1)  # (m, n, STEP + 1)
        exponents = torch.frexp(terms)[1].amax(-1, keepdim=True) - 1
        total = torch.ldexp(torch.ldexp(terms, KEPT_BITS - exponents).trunc().sum(-1), exponents[..., 0] - KEPT_BITS)
    return total
