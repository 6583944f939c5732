"""The product of matrices, for practice."""

import torch

from tests import layouts, products
from tests.families import (
    DTYPES,
    LOW_PRECISION,
    Case,
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
)
from tests.matmul import models

MATMUL = Subject("matmul", products.factors, models.matmul)
STRIDED = shapes({"three dimensions": products.batches, "two matrices": (256, 128, 256)})
MISTAKES = {
    "k differs": lambda a, b: (a, b[:-1]),
    "b with a batch dimension": lambda a, b: (a, b.unsqueeze(0)),
    "dtypes differ": lambda a, b: (a, b.bfloat16()),
}
RACED = {f"all of {n}": Case((n, n, n), torch.bfloat16) for n in (4096, 8192)}


def transposed_first(tensors, memory_bytes):
    return [layouts.transposed(tensors[0]), tensors[1]]


def transposed_second(tensors, memory_bytes):
    return [tensors[0], layouts.transposed(tensors[1])]


STRIDES = {
    **layouts.each({"rows of a and columns of b expanded": products.expanded}),
    "a transposed": transposed_first,
    "b transposed": transposed_second,
}
OFFSETS = layouts.far({"a": (0, layouts.ROWS), "b": (1, layouts.ROWS)})

test_values = values(8, "matmul returns a b in float32", MATMUL, products.PLAIN)
test_ragged = values(2, "matmul is right for every m, n and k from 1", MATMUL, products.RAGGED)
test_outliers = values(1, "matmul is right for rows and columns of all sizes", MATMUL, built([products.of_all_sizes]))
test_precision = values(
    1,
    "matmul keeps at least the 10 bits of TF32: integers of 9 come out right",
    MATMUL,
    built([products.whole_numbers]),
)
test_16_bit = values(
    2,
    "matmul takes bfloat16 and float16, sums in float32 and returns the dtype of a",
    MATMUL,
    in_dtypes(shapes({"two matrices": products.whole_tiles}) | built([products.sums_that_cancel]), LOW_PRECISION),
)
test_strides = values(
    1, "matmul reads a and b through their strides, transposed or not", MATMUL, laid_out(STRIDED, STRIDES)
)
test_offsets = values(
    0.5,
    "matmul has 64-bit offsets, for a and b that reach over 2³¹ elements",
    MATMUL,
    laid_out(shapes({"three dimensions": products.batches}), OFFSETS),
)
test_contract = contract(
    0.25,
    "matmul leaves inputs and earlier results alone; an empty batch gives an empty result",
    MATMUL,
    products.BATCHES,
)
test_mistakes = mistakes(
    0.25, "matmul raises ValueError for factors that do not fit together", MATMUL, (24, 16, 40), MISTAKES
)
test_traffic = traffic(
    2,
    "matmul reads a and b in tiles of 32 or more, and writes c once",
    MATMUL,
    in_dtypes(products.COSTLY, DTYPES),
    read=[],
    written=["c"],
    beyond=products.in_tiles,
)
test_compiles = compiles(
    0.5,
    "matmul's kernels compile and fit on A100, H100 and B200",
    [MATMUL],
    in_dtypes(products.COMPILED, DTYPES),
)
test_speed = speed(1.5, "matmul multiplies at 70 % of cuBLAS's speed", RACED, against="cublas", reach=0.7)
