"""The simulator's block of a descriptor, beside that of Triton's interpreter."""

import random

import numpy as np
import pytest
import triton.language as tl
from triton.runtime.interpreter import TensorDescHandle

from assignment.simulator.builder import _block_of
from assignment.simulator.elementwise import Handle

DTYPES = [tl.bfloat16, tl.float32, tl.int8, tl.int64]


def number(value, dtype=tl.int32):
    return Handle(np.array([value], dtype=f"int{dtype.primitive_bitwidth}"), dtype)


def described(rng, dtype):
    """A descriptor of one to four dimensions, and where a block of it begins: inside, across an edge or outside."""
    element = dtype.primitive_bitwidth // 8
    block = [rng.choice([1, 2, 8]) for _ in range(rng.randint(0, 3))] + [rng.choice([16, 32])]
    shape = [rng.randint(1, 40) for _ in block]
    strides = [rng.randint(1, 9) * 16 for _ in block[1:]] + [1]
    base = Handle(np.array([(5 << 48) + 16 * rng.randint(0, 99)], dtype=np.uint64), tl.pointer_type(dtype))
    numbers = [number(n) for n in shape], [number(n, tl.int64) for n in strides]
    starts = [rng.randint(-9, 40) for _ in block[1:]] + [rng.randint(-3, 3) * 16 // element]
    return TensorDescHandle(base, *numbers, block, None), [number(n) for n in starts]


@pytest.mark.parametrize("seed", range(200))
def test_a_block_has_the_pointers_and_the_mask_of_tritons(seed):
    rng = random.Random(seed)
    desc, starts = described(rng, rng.choice(DTYPES))
    theirs, mask = desc.materialize_pointers(starts)
    ptrs, inside = _block_of(desc, starts)
    assert np.array_equal(ptrs.data, theirs.data)
    assert ptrs.data.dtype == theirs.data.dtype
    assert np.array_equal(mask.data, np.ones(mask.data.shape, bool) if inside is None else inside)
