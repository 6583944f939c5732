"""Vector addition: z = x + y, for practice."""

import torch

from tests import layouts
from tests.families import (
    DTYPES,
    LOW_PRECISION,
    Rounds,
    Subject,
    compiles,
    contract,
    in_dtypes,
    laid_out,
    mistakes,
    shapes,
    traffic,
    values,
)
from tests.inputs import TILE, between, longer, normal
from tests.vector_add import models


def pair(rng, shape, dtype=torch.float32):
    """x, and a y of other sizes, so that one in place of the other shows."""
    return normal(rng, *shape, dtype=dtype), (3 * normal(rng, *shape) + 1).to(dtype)


def expanded_x(tensors):
    """Every element of x is the first, with stride 0."""
    x, y = tensors
    return [x.flatten()[0].expand(x.shape), y]


ADD = Subject("vector_add", pair, models.vector_add)
PLAIN = shapes(
    {
        "a vector": lambda rng: (8 * longer(rng),),
        "a matrix": lambda rng: (longer(rng), 8 * TILE),
        "several tiles in each program": Rounds(lambda n: (n,), first=64 * TILE, tile=64 * TILE, most=1 << 22),
    }
)
RAGGED = shapes(
    {
        "one element": (1,),
        "fewer than a tile": (5,),
        "one more than a tile": (1025,),
        "a prime": (10_007,),
        "three dimensions": (3, 5, 7),
        "no dimension": (),
        "any size": lambda rng: (between(rng, 1, 5000),),
    }
)
SHAPES = shapes({"a vector": (128 * 128,), "a matrix": (128, 128), "three dimensions": (3, 64, 128)})
WAYS = layouts.each({"x expanded": expanded_x, "each its own": layouts.each_its_own})
BATCHES = shapes({"ordinary": (96, 128), "empty": (0, 8)})
OFFSETS = layouts.far({"x": (0, layouts.ELEMENTS), "y": (1, layouts.ELEMENTS)})  # reshape(-1) copies none of them
MISTAKES = {
    "a shorter y": lambda x, y: (x, y[:, :-1]),
    "a y of fewer dimensions": lambda x, y: (x, y[0]),
    "a y of another dtype": lambda x, y: (x, y.bfloat16()),
}

test_vector_add_values = values(4, "vector_add returns x + y in float32", ADD, PLAIN)
test_vector_add_ragged = values(2, "vector_add is right for every shape: no size is a multiple of a tile", ADD, RAGGED)
test_vector_add_16_bit = values(
    0.5,
    "vector_add takes bfloat16 and float16 and returns the dtype of x",
    ADD,
    in_dtypes(shapes({"a matrix": (128, 256)}), LOW_PRECISION),
)
test_vector_add_strides = values(
    1,
    "vector_add reads x and y wherever their strides say that they are",
    ADD,
    laid_out(SHAPES, WAYS),
)
test_vector_add_offsets = values(
    0.5, "vector_add has 64-bit offsets, for inputs that reach over 2³¹ elements", ADD, laid_out(SHAPES, OFFSETS)
)
test_vector_add_contract = contract(
    0.5, "vector_add leaves inputs and earlier results alone; of empty inputs the result is empty", ADD, BATCHES
)
test_vector_add_mistakes = mistakes(
    0.5, "vector_add raises ValueError for shapes or dtypes that differ", ADD, (4, 24), MISTAKES
)
test_vector_add_traffic = traffic(
    0.5,
    "vector_add reads x and y once and writes z once",
    ADD,
    in_dtypes(shapes({"a matrix": (64, 512)}), DTYPES),
    read=["x", "y"],
    written=["z"],
)
test_vector_add_compiles = compiles(
    0.5,
    "vector_add's kernel compiles and fits on A100, H100 and B200",
    [ADD],
    shapes({"a matrix": (128, 512)}),
)
