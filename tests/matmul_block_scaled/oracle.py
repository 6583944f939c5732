"""What quantization by blocks, and the product of what comes of it, mean, in float64."""

import torch
from jaxtyping import Float
from torch import Tensor

BLOCK = 128  # terms that share a scale
LARGEST = 448.0  # of float8 e4m3
FINEST = 2.0**-9  # the distance of its smallest numbers
MANTISSA_BITS = 3


def quantize_block_scaled(
    x: Float[Tensor, "rows d"], block: tuple[int, int] = (1, BLOCK)
) -> tuple[Float[Tensor, "rows d"], Float[Tensor, "row_blocks d_blocks"]]:
    """The scale is amax(|x|) / 448 of a block, 1 if that is 0; the value is x / scale, rounded to float8 e4m3."""
    scales = scales_of(x, block)
    return to_float8(x.double() / of_elements(scales, block, x)), scales


def matmul_block_scaled(
    a: Float[Tensor, "m k"],
    a_scales: Float[Tensor, "m k_blocks"],
    b: Float[Tensor, "n k"],
    b_scales: Float[Tensor, "n_blocks k_blocks"],
) -> Float[Tensor, "m n"]:
    """c_ij = Σ_l (a_il · its scale) (b_jl · its scale)"""
    return (a.double() * of_elements(a_scales, (1, BLOCK), a)) @ (
        b.double() * of_elements(b_scales, (BLOCK, BLOCK), b)
    ).mT


def scales_of(x: Tensor, block: tuple[int, int]) -> Tensor:
    (n_rows, d), (height, width) = x.shape, block
    padded = torch.nn.functional.pad(x.double().abs(), (0, -d % width, 0, -n_rows % height))
    largest = padded.reshape(len(padded) // height, height, -(-d // width), width).amax((1, 3))
    return torch.where(largest > 0, largest / LARGEST, 1.0)


def of_elements(scales: Tensor, block: tuple[int, int], x: Tensor) -> Tensor:
    """Each element's scale."""
    height, width = block
    return scales.double().repeat_interleave(height, 0)[: len(x)].repeat_interleave(width, 1)[:, : x.shape[1]]


def step(x: Tensor) -> Tensor:
    """The distance of neighbouring numbers of float8 e4m3 in the binade of x."""
    exponents = torch.frexp(x)[1] - 1
    return torch.ldexp(torch.ones_like(x), exponents - MANTISSA_BITS).clamp(min=FINEST)


def to_float8(x: Tensor) -> Tensor:
    """x in float64, rounded to the nearest number of float8 e4m3, to even in the middle of two; at most ±448."""
    return ((x / step(x)).round() * step(x)).clamp(-LARGEST, LARGEST)
