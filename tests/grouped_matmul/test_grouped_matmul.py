"""Products in groups, for practice."""

import math

import torch

from tests import layouts, products
from tests.families import (
    DTYPES,
    LOW_PRECISION,
    SLACK,
    Case,
    Rounds,
    Subject,
    built,
    built_by,
    compiles,
    contract,
    in_dtypes,
    laid_out,
    mistakes,
    moved,
    shapes,
    size,
    speed,
    traffic,
    values,
)
from tests.grouped_matmul import models
from tests.inputs import LARGEST, TILE, apart, between, cancelling, drawn, normal, repeated


def factors(rng, shape, dtype=torch.float32):
    """x, weight and group_sizes; rows of x, and columns of weight, have means of their own, so that no two are alike.

    A shape is the sizes of all groups, the rows behind the last, k and n; or that of x alone. Sizes are drawn
    apart from all else.
    """
    sizes, behind, k, n = of_rows(drawn(shape, rng))
    x = normal(rng, sum(sizes) + behind, k) + 0.5 * normal(rng, sum(sizes) + behind, 1)
    weight = normal(rng, len(sizes), k, n) + 0.5 * normal(rng, len(sizes), 1, n)
    return x.to(dtype), weight.to(dtype), torch.tensor(sizes, dtype=torch.int32)


def of_rows(shape):
    """The shape for rows of k, half of them in the first group and a quarter in the last."""
    *rows, k = shape
    n_rows = math.prod(rows) if isinstance(rows[0], int) else 0
    return ([n_rows // 2, 0, n_rows // 4], n_rows - n_rows // 2 - n_rows // 4, k, min(k, 64)) if n_rows else shape


def backward_inputs(rng, shape, dtype=torch.float32):
    """grad_y before those of the forward pass."""
    x, weight, group_sizes = factors(rng, shape, dtype)
    return normal(rng, len(x), weight.shape[-1], dtype=dtype), x, weight, group_sizes


def shuffled(rng, sizes):
    """The sizes in any order."""
    own = apart(rng)
    return [sizes[i] for i in torch.randperm(len(sizes), generator=own).tolist()]


def whole_tiles(rng):
    """Groups of whole tiles, no two alike, in any order."""
    return shuffled(rng, [TILE, 2 * TILE, 3 * TILE]), 0, TILE, 2 * TILE


def any_sizes(n_experts, most, behind=0, k=48, n=80):
    """Groups of up to so many rows, some of them empty."""

    def of(rng):
        own = apart(rng)
        sizes = [between(own, 0, most) for _ in range(n_experts)]
        sizes[between(own, 0, n_experts - 1)] = most
        return sizes, behind, k, n

    return of


def in_any_order(build):
    """Build with the sizes of the shape in another order each time."""
    return lambda rng, shape, dtype: build(rng, (shuffled(rng, shape[0]), *shape[1:]), dtype)


def sixteenths(rng, *shape, dtype):
    """Normal numbers in whole sixteenths: their products with integers have sums that are exact in float32."""
    return ((16 * normal(rng, *shape)).round() / 16).to(dtype)


def sums_that_cancel(rng, dtype):
    """Sums over k of large terms that leave the first alone, in groups of whole tiles."""
    sizes, _, k, n = whole_tiles(rng)
    x = repeated(sixteenths(rng, k, sum(sizes), dtype=dtype)).mT.contiguous()
    return x, cancelling(rng, len(sizes), k, n, dtype=dtype), torch.tensor(sizes, dtype=torch.int32)


def sums_of_grad_x_that_cancel(rng, dtype):
    """The same over n: those of grad_x."""
    grad_y, weight, sizes = sums_that_cancel(rng, dtype)
    return grad_y, normal(rng, len(grad_y), weight.shape[-1], dtype=dtype), weight.mT.contiguous(), sizes


def sums_of_grad_weight_that_cancel(rng, dtype):
    """The same over the rows of each group."""
    sizes, _, k, n = whole_tiles(rng)
    x = torch.cat([repeated(sixteenths(rng, rows, k, dtype=dtype)) for rows in sizes])
    grad_y = torch.cat([cancelling(rng, rows, n, dtype=dtype) for rows in sizes])
    return grad_y, x, normal(rng, len(sizes), k, n, dtype=dtype), torch.tensor(sizes, dtype=torch.int32)


def whole_numbers(rng, dtype):
    """Integers that TF32 holds, and bfloat16 does not."""
    sizes, _, k, n = whole_tiles(rng)
    most = LARGEST[torch.float32]
    x, weight = (torch.randint(-most, most + 1, s, generator=rng) for s in ((sum(sizes), k), (len(sizes), k, n)))
    return x.to(dtype), weight.to(dtype), torch.tensor(sizes, dtype=torch.int32)


FORWARD = Subject("grouped_matmul", factors, models.grouped_matmul)
BACKWARD = Subject("grouped_matmul_backward", backward_inputs, models.grouped_matmul_backward)
TILES = shapes({"groups of whole tiles": whole_tiles})
PLAIN = TILES | shapes(
    {
        "one expert": ([2 * TILE], 0, TILE, TILE),
        "eight experts": lambda rng: (shuffled(rng, [TILE] * 6 + [2 * TILE] * 2), 0, TILE, TILE),
    }
)
ROUNDS = shapes(
    {"several tiles in each program": Rounds(lambda n: ([n, n], 0, TILE, TILE), first=TILE, tile=TILE, most=1 << 13)}
)
GROUPS = shapes(
    {
        "groups that no tile fits": any_sizes(6, 150),
        "one past a tile": lambda rng: (shuffled(rng, [1, 31, 33, 63, 65, 127, 129]), 0, 32, 40),
        "256 experts": any_sizes(256, 5, k=16, n=16),
        "many experts, few rows": any_sizes(37, 3, k=24, n=33),
    }
)
EMPTY_GROUPS = shapes(
    {
        "empty groups between": lambda rng: (shuffled(rng, [0, 0, 0, 40, 70, 129]), 0, 32, 40),
        "one group with everything": lambda rng: (shuffled(rng, [0, 0, 0, 0, 200]), 0, 32, 40),
        "the first and the last empty": ([0, 30, 60, 0], 0, 32, 40),
    }
)
BEHIND = shapes(
    {
        "rows behind the last group": any_sizes(5, 100, behind=77),
        "a last group that is empty": ([50, 0], 70, 32, 40),
        "all groups empty": ([0, 0, 0], 90, 32, 40),
    }
)
RAGGED = shapes(
    {
        "one row, k and n of 1": ([1], 0, 1, 1),
        "k = 1": ([20, 33], 0, 1, 50),
        "n = 1": ([20, 33], 0, 70, 1),
        "primes": ([29, 0, 41], 7, 67, 59),
        "one past a tile": ([65, 30], 0, 129, 65),
        "any size": lambda rng: ([40, 25], 0, between(rng, 1, 200), between(rng, 1, 200)),
    }
)
CALLS = shapes({"sizes that change": ([90, 0, 17, 55, 3], 20, 32, 40), "no rows": ([0, 0, 0], 0, 32, 40)})
STRIDED = shapes({"three experts": ([100, 28, 64], 10, 64, 96)})
MISTAKES = {
    "k differs": lambda x, weight, sizes: (x[:, :-1], weight, sizes),
    "fewer sizes than experts": lambda x, weight, sizes: (x, weight, sizes[:-1]),
    "weight of two dimensions": lambda x, weight, sizes: (x, weight[0], sizes[:1]),
    "dtypes differ": lambda x, weight, sizes: (x, weight.bfloat16(), sizes),
    "sizes in float32": lambda x, weight, sizes: (x, weight, sizes.float()),
}
COSTLY = shapes({"groups of whole tiles": lambda rng: (shuffled(rng, [256, 128]), 0, 128, 512)})
# Constant, unlike all others: what was compiled is remembered by its shapes, and saves half of a run.
COMPILED = shapes({"4 experts of 128 rows": ([TILE] * 4, 0, 256, 256)})
RACED = {"64 experts of 128 rows": Case(([TILE] * 64, 0, 4096, 1536), torch.bfloat16)}


def of_floats(way):
    """Lay out all but group_sizes, of which every second element is in memory: it has no NaN."""

    def laid(tensors, memory_bytes):
        *floats, sizes = tensors
        return [*way(floats, memory_bytes), torch.stack([sizes, sizes + 1], 1)[:, 0]]

    return laid


def transposed(which):
    return lambda tensors, memory_bytes: [layouts.transposed(x) if i == which else x for i, x in enumerate(tensors)]


def expanded(tensors):
    """The rows of each matrix are one, with stride 0, and all experts have one matrix."""
    return [x[:1].expand(x.shape) for x in tensors]


def strides(*inputs):
    """Return ways to lay out the inputs of these names, and group_sizes."""
    ways = layouts.each({"rows and experts expanded": expanded})
    ways |= {f"{name} transposed": transposed(i) for i, name in enumerate(inputs)}
    return {name: of_floats(way) for name, way in ways.items()}


EXPERTS, ROWS = slice(None, -2), slice(None, -1)
OFFSETS = layouts.far({"x": (0, ROWS), "weight": (1, EXPERTS)})
OFFSETS_BACKWARD = layouts.far({"grad_y": (0, ROWS), "x": (1, ROWS), "weight": (2, EXPERTS)})


def in_tiles(costs, tensors, case):
    """Raise Mismatch if x or weight is read more often than tiles of 32 × 32 in each group need."""
    sizes, *_, n = case.shape
    remedy = "compute a tile of the result in each program: what it loads serves a whole row, or column, of it"
    names = list(tensors)
    for name, others in (("x", n), ("weight", max(sizes))):
        nbytes, whole = costs.read[names.index(name)], size(tensors[name])
        moved("read", name, nbytes, whole, math.ceil(others / products.SMALLEST_TILE), SLACK * whole, remedy)


test_values = values(4, "grouped_matmul returns the products of whole tiles in float32", FORWARD, PLAIN | ROUNDS)
test_groups = values(1.25, "grouped_matmul is right for groups that no tile fits, of 1 to 256 experts", FORWARD, GROUPS)
test_empty = values(0.5, "grouped_matmul is right where groups are empty, or one has every row", FORWARD, EMPTY_GROUPS)
test_behind = values(0.5, "grouped_matmul returns zeros in rows behind the last group", FORWARD, BEHIND)
test_ragged = values(0.75, "grouped_matmul is right for every k and n from 1", FORWARD, RAGGED)
test_precision = values(
    0.5,
    "grouped_matmul keeps at least the 10 bits of TF32: integers of 9 come out right",
    FORWARD,
    built([whole_numbers]),
)
test_16_bit = values(
    1.25,
    "grouped_matmul takes bfloat16 and float16, sums in float32 and returns the dtype of x",
    FORWARD,
    in_dtypes(TILES | built([sums_that_cancel]), LOW_PRECISION),
)
test_strides = values(
    0.5,
    "grouped_matmul reads its inputs through their strides: weight may be a transposed view",
    FORWARD,
    laid_out(STRIDED, strides("x", "weight")),
)
test_offsets = values(
    0.5,
    "grouped_matmul has 64-bit offsets, for x and weight that reach over 2³¹ elements",
    FORWARD,
    laid_out(STRIDED, OFFSETS),
)
test_contract = contract(
    0.25,
    "grouped_matmul leaves inputs and earlier results alone, and has the sizes of each call; no rows give no rows",
    FORWARD,
    built_by(in_any_order(factors), CALLS),
)
test_mistakes = mistakes(
    0.25,
    "grouped_matmul raises ValueError for inputs that do not fit together",
    FORWARD,
    ([10, 14], 0, 16, 40),
    MISTAKES,
)
test_traffic = traffic(
    1,
    "grouped_matmul reads x and weight in tiles of 32 or more, and writes y once",
    FORWARD,
    in_dtypes(COSTLY, DTYPES),
    read=[],
    written=["y"],
    beyond=in_tiles,
)
test_backward_values = values(
    4, "grouped_matmul_backward returns both gradients of whole tiles in float32", BACKWARD, PLAIN
)
test_backward_groups = values(
    1, "grouped_matmul_backward is right for groups and sizes that no tile fits", BACKWARD, GROUPS | RAGGED
)
test_backward_empty = values(
    0.75,
    "grouped_matmul_backward returns zeros where groups are empty, and in rows behind the last",
    BACKWARD,
    EMPTY_GROUPS | BEHIND,
)
test_backward_16_bit = values(
    0.75,
    "grouped_matmul_backward takes bfloat16 and float16, and sums in float32",
    BACKWARD,
    in_dtypes(TILES | built([sums_of_grad_x_that_cancel, sums_of_grad_weight_that_cancel]), LOW_PRECISION),
)
test_backward_strides = values(
    0.25,
    "grouped_matmul_backward reads its inputs through their strides",
    BACKWARD,
    laid_out(STRIDED, strides("grad_y", "x", "weight")),
)
test_backward_offsets = values(
    0.25,
    "grouped_matmul_backward has 64-bit offsets, for inputs that reach over 2³¹ elements",
    BACKWARD,
    laid_out(STRIDED, OFFSETS_BACKWARD),
)
test_backward_contract = contract(
    0.5,
    "grouped_matmul_backward leaves inputs and earlier results alone, and has the sizes of each call",
    BACKWARD,
    built_by(in_any_order(backward_inputs), CALLS),
)
test_compiles = compiles(
    0.5,
    "grouped_matmul's kernels compile and fit on A100, H100 and B200, and those of its backward pass",
    [FORWARD, BACKWARD],
    in_dtypes(COMPILED, DTYPES),
)
test_speed = speed(
    0.75,
    "grouped_matmul computes as fast as a loop of cuBLAS's products",
    RACED,
    against="cublas_loop",
    reach=1.0,
)
