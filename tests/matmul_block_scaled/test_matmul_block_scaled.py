"""Quantization by blocks, and the product of block-scaled matrices, for practice."""

import functools
import math

import torch

from tests import layouts, products
from tests.families import (
    LOW_PRECISION,
    Case,
    Rounds,
    Subject,
    built,
    compiles,
    contract,
    in_dtypes,
    laid_out,
    mistakes,
    shapes,
    speed,
    traffic,
    values,
    with_options,
)
from tests.inputs import MOST, TILE, between, drawn, longer, normal
from tests.matmul_block_scaled import models, oracle
from tests.matmul_block_scaled.oracle import BLOCK

FLOAT8 = torch.float8_e4m3fn
BLOCKS = {"rows of 128": {"block": (1, BLOCK)}, "squares of 128": {"block": (BLOCK, BLOCK)}}
SPREAD = 15.0  # of scales: from 2^-15 to 2^15
WITH_FLOAT8 = ("h100", "b200")  # an A100 has none


def whole_blocks(rng, shape, dtype=torch.float32, block=(1, BLOCK)):
    """x whose blocks have sizes of their own."""
    *rows, d = drawn(shape, rng)
    return (sized(rng, normal(rng, math.prod(rows), d), block).to(dtype),)


def sized(rng, x, block, spread=1.0):
    n_blocks = -(-x.shape[0] // block[0]), -(-x.shape[1] // block[1])
    return x * oracle.of_elements(torch.exp2(spread * normal(rng, *n_blocks)), block, x).float()


def factors(rng, shape, dtype=torch.float32):
    """Both factors, each quantized; a row of a, and a row of b, have means of their own, so that no two are alike."""
    *rows, k, n = drawn(shape, rng)
    x, w = (normal(rng, rows, k) + 0.5 * normal(rng, rows, 1) for rows in (math.prod(rows), n))
    return as_factors(sized(rng, x, (1, BLOCK)), sized(rng, w, (BLOCK, BLOCK)))


def as_factors(x, w):
    return (*quantized(x, (1, BLOCK)), *quantized(w, (BLOCK, BLOCK)))


def quantized(x, block):
    numbers, scales = oracle.quantize_block_scaled(x, block)
    return numbers.float().to(FLOAT8), scales.float()


def sizes_over_2_to_the_30(rng, dtype):
    """Rows from 2^-15 to 2^15, and blocks of one in each row as far apart; some are zero."""
    x = normal(rng, 2 * BLOCK, longer(rng))
    x *= torch.logspace(-SPREAD, SPREAD, len(x), base=2).unsqueeze(1)
    x[3] *= oracle.of_elements(torch.logspace(0, SPREAD, x.shape[1] // BLOCK, base=2)[None], (1, BLOCK), x[3:4])[0]
    x[BLOCK:, :BLOCK] = 0
    x[5, BLOCK:] = 0
    return (x.to(dtype),)


def outliers(rng, dtype):
    """Some elements are 10⁶ times as large as the others: under one scale for a row these would all be 0."""
    x = normal(rng, 2 * BLOCK, longer(rng))
    x[::7, 5] = 1e6
    x[1::7, -3] = -1e6
    return (x.to(dtype),)


def negative_ones(rng, dtype):
    """Blocks whose largest element, by its absolute value, is negative; some have no other sign."""
    x = -normal(rng, 2 * BLOCK, longer(rng)).abs()
    x[::2] = torch.where(torch.rand(x[::2].shape, generator=rng) < 0.5, x[::2], -0.1 * x[::2])
    return (x.to(dtype),)


def scales_of_all_sizes(rng, dtype):
    """Scales of any size over 2^30, which no values tell; a row of zeros, and a block of zeros."""
    a, a_scales, b, b_scales = factors(rng, products.whole_tiles)
    far = [torch.exp2((2 * torch.rand(len(of), generator=rng) - 1) * SPREAD) for of in (a_scales, b_scales)]
    a, b = a.float(), b.float()
    a[len(a) // 2], b[:BLOCK, :BLOCK] = 0, 0
    return a.to(FLOAT8), a_scales * far[0][:, None], b.to(FLOAT8), b_scales * far[1][:, None]


def an_outlier_a_row(rng, dtype):
    """The rows that `outliers` says, quantized: what one block holds is 10⁶ times as large as what the others do."""
    (x,) = outliers(rng, torch.float32)
    *_, n = products.whole_tiles(rng)
    w = normal(rng, n, x.shape[1])
    w[:, :BLOCK], w[:, -BLOCK:] = 1e-6 * w[:, :BLOCK], 1e-6 * w[:, -BLOCK:]
    return as_factors(x, w)


def blocks_that_cancel(rng, dtype):
    """Three blocks whose scaled products add up to zero, and a fourth that is left; whole numbers, exact in float32."""
    m, _, n = products.whole_tiles(rng)
    whole = [torch.randint(-8, 9, (rows, BLOCK), generator=rng).float() for rows in (m, n)]
    small = [torch.randint(-1, 2, (rows, BLOCK), generator=rng).float() for rows in (m, n)]
    a = torch.cat([whole[0], whole[0], -whole[0], small[0]], dim=1)
    b = torch.cat([whole[1], whole[1], whole[1], small[1]], dim=1)
    first, second = (torch.randint(200, 1000, (n // BLOCK, 1), generator=rng) / 64 for _ in range(2))
    b_scales = torch.cat([first, second, first + second, torch.ones_like(first)], dim=1)
    return a.to(FLOAT8), torch.ones(m, 4), b.to(FLOAT8), b_scales


QUANTIZE = Subject("quantize_block_scaled", whole_blocks, models.quantize_block_scaled)
MATMUL = Subject("matmul_block_scaled", factors, models.matmul_block_scaled)
ROWS = shapes(
    {
        "whole blocks": lambda rng: (2 * BLOCK * between(rng, 1, 2), longer(rng)),
        "one block across": lambda rng: (2 * BLOCK * between(rng, 1, 2), BLOCK),
        "several tiles in each program": Rounds(lambda n: (n, BLOCK), first=2 * TILE, tile=2 * TILE, most=1 << 16),
    }
)
RAGGED_ROWS = shapes(
    {
        "one element": (1, 1),
        "one row": (1, 300),
        "a short block": (40, 50),
        "one past a block": (129, 129),
        "one column past two blocks": (64, 257),
        "primes": (101, 67),
        "any size": lambda rng: (between(rng, 1, MOST), between(rng, 1, 2 * MOST)),
    }
)
PLAIN = {name: products.PLAIN[name] for name in ("two matrices", "several tiles in each program")}
PLAIN |= shapes({"other sizes": lambda rng: (384, longer(rng), 128)})
WITHOUT_BATCHES = {name: case for name, case in products.RAGGED.items() if name != "batches of 17 rows"}
RAGGED = WITHOUT_BATCHES | shapes({"n past two blocks": (40, 128, 257), "k past two blocks": (64, 257, 128)})
BATCHES = shapes({"ordinary": lambda rng: (2 * BLOCK, longer(rng), 2 * BLOCK), "no rows": (0, 256, 128)})
STRIDED = shapes({"two matrices": lambda rng: (2 * BLOCK, longer(rng), 2 * BLOCK), "few blocks": (128, 256, 384)})
RACED = {f"all of {n}": Case((n, n, n), FLOAT8) for n in (4096, 8192)}


def one_row(tensors, memory_bytes):
    """The rows of all tensors are one, with stride 0."""
    return [x[:1].expand(x.shape) for x in tensors]


def only(position, layout):
    """A layout of one tensor of a call."""
    return lambda tensors, memory_bytes: [layout(x) if i == position else x for i, x in enumerate(tensors)]


NAMES = ("a", "a_scales", "b", "b_scales")
STRIDES = {
    **layouts.each({"each its own": layouts.each_its_own}),
    "rows expanded": one_row,
    **{f"{name} transposed": only(i, layouts.transposed) for i, name in enumerate(NAMES)},
}
MISTAKES = {
    "k differs": lambda a, a_scales, b, b_scales: (a, a_scales, b[:, :-1], b_scales),
    "a scale of a too few": lambda a, a_scales, b, b_scales: (a, a_scales[:, :-1], b, b_scales),
    "scales for each row of b": lambda a, a_scales, b, b_scales: (a, a_scales, b, b_scales.repeat_interleave(3, 0)),
    "b with a batch dimension": lambda a, a_scales, b, b_scales: (a, a_scales, b.unsqueeze(0), b_scales),
    "a in bfloat16": lambda a, a_scales, b, b_scales: (a.bfloat16(), a_scales, b, b_scales),
    "scales in bfloat16": lambda a, a_scales, b, b_scales: (a, a_scales.bfloat16(), b, b_scales),
}
WRONG_ROWS = {
    "three dimensions": lambda x: (x.unsqueeze(0),),
    "in float64": lambda x: (x.double(),),
    "no columns": lambda x: (x[:, :0],),
}

test_quantize_values = values(
    1.75,
    "quantize_block_scaled divides blocks by amax / 448 and rounds to float8",
    QUANTIZE,
    with_options(ROWS, BLOCKS),
)
test_quantize_ragged = values(
    0.75, "quantize_block_scaled is right where the last blocks are short", QUANTIZE, with_options(RAGGED_ROWS, BLOCKS)
)
test_quantize_particular = values(
    0.75,
    "quantize_block_scaled is right for blocks of all sizes, of zeros, with outliers, and below zero",
    QUANTIZE,
    with_options(built([sizes_over_2_to_the_30, outliers, negative_ones]), BLOCKS),
)
test_quantize_16_bit = values(
    0.5,
    "quantize_block_scaled takes bfloat16 and float16, and computes in float32",
    QUANTIZE,
    with_options(in_dtypes(shapes({"whole blocks": lambda rng: (2 * BLOCK, longer(rng))}), LOW_PRECISION), BLOCKS),
)
test_quantize_strides = values(
    0.5,
    "quantize_block_scaled reads x through its strides, with 64-bit offsets",
    QUANTIZE,
    laid_out(
        shapes({"two blocks across": (2 * BLOCK, 2 * BLOCK)}),
        layouts.each({}) | layouts.far({"x": (0, layouts.ROWS)}),
    ),
)
test_quantize_traffic = traffic(
    0.75,
    "quantize_block_scaled reads x once, and writes values and scales once",
    QUANTIZE,
    with_options(shapes({"whole blocks": lambda rng: (2 * BLOCK * between(rng, 1, 2), longer(rng))}), BLOCKS),
    read=["x"],
    written=["values", "scales"],
)
test_values = values(6.25, "matmul_block_scaled returns the sum of the scaled products", MATMUL, PLAIN)
test_ragged = values(2, "matmul_block_scaled is right for every m, n and k from 1", MATMUL, RAGGED)
test_scales = values(
    0.75,
    "matmul_block_scaled is right for scales over 2³⁰, blocks of zeros, outliers, and blocks that cancel",
    MATMUL,
    built([scales_of_all_sizes, an_outlier_a_row, blocks_that_cancel]),
)
test_strides = values(
    1,
    "matmul_block_scaled reads factors and scales through their strides, transposed or not",
    MATMUL,
    laid_out(STRIDED, STRIDES),
)
test_offsets = values(
    0.5,
    "matmul_block_scaled has 64-bit offsets, for a and b that reach over 2³¹ elements",
    MATMUL,
    laid_out(
        shapes({"two matrices": (2 * BLOCK, 2 * BLOCK, 2 * BLOCK)}),
        layouts.far({"a": (0, layouts.ROWS), "b": (2, layouts.ROWS)}),
    ),
)
test_contract = contract(
    0.25,
    "matmul_block_scaled leaves inputs and earlier results alone; no rows give no rows",
    MATMUL,
    BATCHES,
)
test_quantize_contract = contract(
    0.25,
    "quantize_block_scaled leaves x and earlier results alone; no rows give no rows",
    QUANTIZE,
    with_options(shapes({"ordinary": lambda rng: (2 * BLOCK, longer(rng)), "no rows": (0, 2 * BLOCK)}), BLOCKS),
)
test_quantize_mistakes = mistakes(
    0.25, "quantize_block_scaled raises ValueError for what is no matrix to quantize", QUANTIZE, (24, 40), WRONG_ROWS
)
test_mistakes = mistakes(
    0.25,
    "matmul_block_scaled raises ValueError for factors and scales that do not fit together",
    MATMUL,
    (24, 300, 140),
    MISTAKES,
)
test_traffic = traffic(
    1.25,
    "matmul_block_scaled reads a and b in tiles of 32 or more, and writes c once",
    MATMUL,
    products.COSTLY,
    read=[],
    written=["c"],
    beyond=functools.partial(products.in_tiles, factors=("a", "b")),
)
test_quantize_compiles = compiles(
    0.25,
    "quantize_block_scaled's kernels compile and fit on H100 and B200",
    [QUANTIZE],
    with_options(shapes({"512 by 256": (512, 256)}), BLOCKS),
    targets=WITH_FLOAT8,
)
test_compiles = compiles(
    0.5,
    "matmul_block_scaled's kernels compile and fit on H100 and B200",
    [MATMUL],
    products.COMPILED,
    targets=WITH_FLOAT8,
)
test_speed = speed(
    1.5, "matmul_block_scaled is as fast as cuBLAS in bfloat16", RACED, against="cublas_in_bfloat16", reach=1.0
)
