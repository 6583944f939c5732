"""A linear layer with its GELU in one kernel, for practice."""

import torch

from tests import layouts, products
from tests.compare import Mismatch
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
    size,
    speed,
    traffic,
    values,
    with_options,
)
from tests.inputs import normal
from tests.linear_gelu import models

WAYS = {"erf": {"approximate": "none"}, "tanh": {"approximate": "tanh"}}
STEP = 2.0**-20  # of whole numbers: sums of their products are a few ones
BETWEEN = 0.25  # of y: what may be moved beside it and copies of the factors


def inputs(rng, shape, dtype=torch.float32, **options):
    """x and weight as factors of a product whose elements are ones and tens, and a bias."""
    x, columns = products.factors(rng, shape)
    weight = (columns / x.shape[-1] ** 0.5).mT.contiguous()
    return x.to(dtype), weight.to(dtype), (normal(rng, len(weight)) - 0.5).to(dtype)


def whole_numbers(rng, dtype):
    """Integers that TF32 holds, times a power of two: no error but that of sums in float32 and of the GELU is left."""
    x, columns = products.whole_numbers(rng, dtype)
    return x, (columns * STEP).mT.contiguous(), normal(rng, columns.shape[-1], dtype=dtype)


def tails(rng, dtype):
    """Rows far below zero, where y is 0, and far above, where it is z; and rows near zero."""
    x, weight, bias = whole_numbers(rng, dtype)
    for i, scale in enumerate((4, 32, 256, 4096)):
        x[i::5] *= scale
    return x, weight, bias


def bias_that_cancels(rng, dtype):
    """Each bias is about as large as x weightᵀ, whose rows are nearly alike, so that the sum of both is a few ones.

    All are whole numbers, times a power of two, and so are their sums in float32, exactly.
    """
    *_, m, k, n = products.whole_tiles(rng)
    of_all_rows, own, weight = (whole(rng, *shape) for shape in ((63, 1, k), (1, m, k), (31, n, k)))
    weight *= 2.0**-7
    return (of_all_rows + own).to(dtype), weight.to(dtype), -(of_all_rows @ weight.mT)[0].to(dtype)


def whole(rng, most, *shape):
    return torch.randint(-most, most + 1, shape, generator=rng).float()


LINEAR_GELU = Subject("linear_gelu", inputs, models.linear_gelu)
BATCHES = shapes({"three dimensions": products.batches})
MISTAKES = {
    "k differs": lambda x, weight, bias: (x, weight[:, :-1], bias),
    "a bias too short": lambda x, weight, bias: (x, weight, bias[:-1]),
    "weight with a batch dimension": lambda x, weight, bias: (x, weight.unsqueeze(0), bias),
    "dtypes differ": lambda x, weight, bias: (x, weight.bfloat16(), bias),
}
STRIDES = {
    **layouts.each(
        {"rows of x and columns of weight expanded": products.expanded, "each its own": layouts.each_its_own}
    ),
    "x transposed": lambda tensors, memory_bytes: [layouts.transposed(tensors[0]), *tensors[1:]],
    "weight transposed": lambda tensors, memory_bytes: [tensors[0], layouts.transposed(tensors[1]), tensors[2]],
}
RACED = {f"all of {n}": Case((n, n, n), torch.bfloat16) for n in (4096, 8192)}


def nothing_between(costs, tensors, case):
    """Raise Mismatch if a factor is read too often, or a matrix of y's size is written that is not y."""
    products.in_tiles(costs, tensors, case)
    y, copies = size(costs.results), 4 * sum(tensor.numel() for tensor in tensors.values())  # in float32, written
    if costs.beside > copies + BETWEEN * y:
        raise Mismatch(
            f"{costs.beside:,} bytes are moved of tensors between x and y, which has {y:,}: expected a few at most\n"
            "  add the bias and apply the GELU where the sum is: in registers, before the one store"
        )


test_values = values(8, "linear_gelu returns gelu(x weightᵀ + bias) in float32", LINEAR_GELU, products.PLAIN)
test_ragged = values(2, "linear_gelu is right for every m, n and k from 1", LINEAR_GELU, products.RAGGED)
test_forms = values(
    0.5,
    "linear_gelu has the form of erf and that of tanh, and keeps them apart",
    LINEAR_GELU,
    with_options(built([whole_numbers]), WAYS),
)
test_tails = values(
    0.5, "linear_gelu is right far from zero, in both forms", LINEAR_GELU, with_options(built([tails]), WAYS)
)
test_precision = values(
    0.75,
    "linear_gelu keeps at least the 10 bits of TF32: integers of 9 come out right",
    LINEAR_GELU,
    built([whole_numbers]),
)
test_16_bit = values(
    1.25,
    "linear_gelu takes bfloat16 and float16, keeps the sum and the bias in float32 and returns the dtype of x",
    LINEAR_GELU,
    in_dtypes(shapes({"two matrices": products.whole_tiles}) | built([bias_that_cancels]), LOW_PRECISION),
)
test_strides = values(
    1,
    "linear_gelu reads x, weight and bias through their strides, transposed or not",
    LINEAR_GELU,
    laid_out(BATCHES | shapes({"two matrices": (256, 128, 256)}), STRIDES),
)
test_offsets = values(
    0.5,
    "linear_gelu has 64-bit offsets, for x and weight that reach over 2³¹ elements",
    LINEAR_GELU,
    laid_out(BATCHES, layouts.far({"x": (0, layouts.ROWS), "weight": (1, layouts.ROWS)})),
)
test_contract = contract(
    0.5,
    "linear_gelu leaves inputs and earlier results alone; an empty batch gives an empty result",
    LINEAR_GELU,
    products.BATCHES,
)
test_mistakes = mistakes(
    0.5, "linear_gelu raises ValueError for tensors that do not fit together", LINEAR_GELU, (24, 16, 40), MISTAKES
)
test_traffic = traffic(
    2,
    "linear_gelu reads x and weight in tiles of 32 or more, and writes y once and nothing else of its size",
    LINEAR_GELU,
    in_dtypes(products.COSTLY, DTYPES),
    read=[],
    written=["y"],
    beyond=nothing_between,
)
test_compiles = compiles(
    0.5,
    "linear_gelu's kernels compile and fit on A100, H100 and B200",
    [LINEAR_GELU],
    with_options(in_dtypes(products.COMPILED, DTYPES), WAYS),
)
test_speed = speed(
    2,
    "linear_gelu computes at 70 % of the speed of cuBLAS and a GELU after it",
    RACED,
    against="cublas_gelu",
    reach=0.7,
)
