"""Vector addition: z = x + y, for practice."""

import pytest
import torch

from tests import inputs, layouts, precision
from tests.compare import Mismatch, worst_margin
from tests.inputs import TILE, between, drawn, longer, normal
from tests.vector_add.models import vector_add

pytestmark = pytest.mark.problem("vector_add")

PLAIN = {"a vector": lambda rng: (8 * longer(rng),), "a matrix": lambda rng: (longer(rng), 8 * TILE)}
RAGGED = {
    "one element": (1,),
    "fewer than a tile": (5,),
    "one more than a tile": (1025,),
    "a prime": (10_007,),
    "three dimensions": (3, 5, 7),
    "no dimension": (),
    "any size": lambda rng: (between(rng, 1, 5000),),
}
SHAPES = pytest.mark.parametrize(
    "shape", [pytest.param((3, 64, 128), id="three dimensions"), pytest.param((128, 128), id="a matrix")]
)
LAYOUTS = layouts.parametrize({"x expanded": lambda tensors: [*layouts.expanded_x(tensors[:1]), *tensors[1:]]})
SLACK = 0.05  # of a tensor's size


def pair(rng, shape, dtype=torch.float32):
    """x, and a y of other sizes, so that one in place of the other shows."""
    shape = drawn(shape, rng)
    return normal(rng, *shape, dtype=dtype), (3 * normal(rng, *shape) + 1).to(dtype)


@pytest.mark.points(4)
@inputs.cases(PLAIN)
def test_vector_add_values(check, rng, shape):
    """vector_add returns x + y in float32"""
    x, y = pair(rng, shape)
    check("vector_add", x, y, expected=lambda: vector_add(x, y))


@pytest.mark.points(2)
@inputs.cases(RAGGED)
def test_vector_add_ragged(check, rng, shape):
    """vector_add is right for every shape: no size is a multiple of a tile"""
    x, y = pair(rng, shape)
    check("vector_add", x, y, expected=lambda: vector_add(x, y))


@pytest.mark.points(0.5)
@precision.LOW_PRECISION
def test_vector_add_16_bit(check, rng, dtype):
    """vector_add takes bfloat16 and float16 and returns the dtype of x"""
    x, y = pair(rng, (128, 256), dtype)
    check("vector_add", x, y, expected=lambda: vector_add(x, y))


@pytest.mark.points(1)
@LAYOUTS
@SHAPES
def test_vector_add_strides(check, rng, shape, layout):
    """vector_add reads x and y wherever their strides say that they are"""
    x, y = layout(pair(rng, shape))
    check("vector_add", x, y, expected=lambda: vector_add(x, y))


@pytest.mark.points(0.5)
@layouts.offsets({"x": (0, layouts.ROWS), "y": (1, layouts.ROWS)})
@SHAPES
def test_vector_add_offsets(check, rng, memory_bytes, shape, layout):
    """vector_add has 64-bit offsets, for inputs that reach over 2³¹ elements"""
    x, y = layout(pair(rng, shape), memory_bytes)
    check("vector_add", x, y, expected=lambda: vector_add(x, y))


@pytest.mark.points(0.5)
@pytest.mark.parametrize("shape", [pytest.param((96, 128), id="ordinary"), pytest.param((0, 8), id="empty")])
def test_vector_add_contract(check_contract, rng, shape):
    """vector_add leaves inputs and earlier results alone; of empty inputs the result is empty"""
    first, second = pair(rng, shape), pair(rng, shape)
    check_contract("vector_add", first, second, vector_add(*first), vector_add(*second))


@pytest.mark.points(0.5)
def test_vector_add_mistakes(run, rng):
    """vector_add raises ValueError for shapes or dtypes that differ"""
    x, y = pair(rng, (4, 24))
    run.raises(ValueError, "vector_add", x, y[:, :23])
    run.raises(ValueError, "vector_add", x, y[0])
    run.raises(ValueError, "vector_add", x, y.bfloat16())


@pytest.mark.points(0.5)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_vector_add_traffic(run, rng, record_property, dtype):
    """vector_add reads x and y once and writes z once"""
    x, y = pair(rng, (64, 512), dtype)
    costs = run.costs("vector_add", x, y)
    record_property("margin", worst_margin(costs.results, vector_add(x, y)))
    size = x.numel() * x.itemsize
    for name, nbytes in (("x", costs.read[0]), ("y", costs.read[1]), ("z", costs.written[0])):
        if abs(nbytes - size) > SLACK * size:
            raise Mismatch(f"{nbytes:,} bytes of {name} are moved, of {size:,}: expected each of them once")


@pytest.mark.points(0.5)
def test_vector_add_compiles(run, rng, record_property):
    """vector_add's kernel compiles and fits on A100, H100 and B200"""
    x, y = pair(rng, (128, 512))

    def right(results):
        record_property("margin", worst_margin(results, vector_add(x, y)))

    if problems := run.compiled("vector_add", x, y, right=right):
        raise Mismatch("\n".join(problems))
