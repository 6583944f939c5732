"""Causes of an access out of bounds: each is told by its own lanes, and a mask that is missing by none of them."""

import numpy as np
import pytest

from assignment.simulator.layout import Layout
from assignment.simulator.suspects import SuspectAccess, likely

Q, K = Layout((3, 50, 64), (50 * 64, 64, 1), 4), Layout((3, 77, 64), (77 * 64, 64, 1), 4)
PADDED = Layout((3, 77, 64), (80 * 72, 72, 1), 4)
LOAD = "k = tl.load(k_ptrs, mask=k_mask, other=0.0)"


def block(strides, batch, rows, cols=64):
    """Offsets of a block of rows and columns in a batch."""
    at = batch * strides[0] + np.array(rows)[:, None] * strides[1] + np.arange(cols) * strides[2]
    return at.ravel().astype(np.int64)


def access(offsets, layout=K, others=(("q_ptr", Q),), program=(1, 2, 0), grid=(3, 5, 1), line=LOAD):
    return SuspectAccess("k_ptr", layout, offsets, others, program, grid, line)


def test_strides_of_another_tensor():
    said = likely(
        access(block(PADDED.strides, 2, range(45, 77)), others=[("q_ptr", Q), ("v_ptr", PADDED)], program=(2, 0, 0))
    )
    assert "strides 5760 along axis 0 and 72 along axis 1 (those of v_ptr) in place of 4928 and 64" in said


def test_one_stride_of_another_tensor():
    larger = Layout((3, 150, 64), (150 * 64, 64, 1), 4)
    offsets = block((larger.strides[0], 64, 1), 2, range(32))
    said = likely(access(offsets, others=[("q_ptr", larger)], program=(2, 0, 0)))
    assert "strides 9600 along axis 0 (those of q_ptr) in place of 4928" in said


def test_the_stride_of_another_vector():
    """Elements of its own past the end are put down to no stride"""
    x, y = Layout((4096,), (2,), 4), Layout((4096,), (3,), 4)
    said = likely(access(np.arange(1024, 2048) * 2, y, [("x_ptr", x)]))
    assert "strides 2 along axis 0 (those of x_ptr) in place of 3" in said
    assert likely(access(np.arange(4000, 5024) * 3, y, [("x_ptr", x)])) == ""


def test_strides_of_a_contiguous_tensor():
    expanded = Layout((3, 77, 64), (0, 64, 1), 4)
    said = likely(access(block(K.strides, 2, range(32)), expanded, program=(2, 0, 0)))
    assert "(those of a contiguous tensor) in place of 0" in said


def test_strides_that_are_swapped():
    said = likely(access(block((64, K.strides[0], 1), 0, range(32)), others=[], program=(0, 0, 0)))
    assert "strides 4928 along axis 1 in place of 64" in said


@pytest.mark.parametrize(("layout", "batch"), [(K, 2), (PADDED, 0), (PADDED, 1), (PADDED, 2)])
@pytest.mark.parametrize("first", [64, 96])
def test_rows_past_the_end_are_put_down_to_no_strides(layout, batch, first):
    others = [("q_ptr", Q), ("v_ptr", K), ("o_ptr", PADDED), ("x_ptr", Layout((3, 190, 64), (190 * 64, 64, 1), 4))]
    offsets = block(layout.strides, batch, range(first, first + 64))
    assert likely(access(offsets, layout, others, (batch, first // 64, 0))) == ""


@pytest.mark.parametrize("n_lanes", [1, 8])
def test_a_few_lanes_prove_nothing(n_lanes):
    assert likely(access(np.arange(n_lanes) * 72 + 3 * 4928)) == ""


def test_axes_of_the_grid_that_are_swapped():
    said = likely(access(block(K.strides, 4, range(32)), program=(4, 1, 0), grid=(5, 3, 1)))
    assert "program_id(0) = 4 is taken for an index along axis 0 of k_ptr, which is 3 long" in said
    assert "the grid is (5, 3, 1): are its axes swapped?" in said


def test_a_grid_that_is_too_large_has_no_swapped_axes():
    assert likely(access(block(K.strides, 4, range(32)), program=(4, 1, 0), grid=(5, 5, 1))) == ""


@pytest.mark.parametrize("d", [1, 40])
def test_a_mask_that_is_missing_along_the_rows(d):
    layout = Layout((3, 77, d), (77 * d, d, 1), 4)
    offsets = block(layout.strides, 2, range(64, 77))
    assert f"row of the block is 64 wide, and axis 2 of k_ptr ends after {d}: a mask" in likely(access(offsets, layout))
    assert "mask" not in likely(access(block(layout.strides, 2, range(64, 96), cols=d), layout))
    assert "mask" not in likely(access(np.arange(64 * 70, 64 * 80), Layout((77, 64), (64, 1), 4)))


def test_a_boundary_that_is_checked_along_one_axis():
    narrow = Layout((64, 40), (40, 1), 4)
    offsets = block((0, 40, 1), 0, range(32, 64))
    line = "x = tl.load(x_block, boundary_check=(0,), padding_option='zero')"
    said = likely(access(offsets, narrow, line=line))
    assert "boundary_check=(0,) looks at axis 0 of the block alone" in said
    assert "axis 1 of k_ptr, 40 long, ends within a tile: boundary_check=(0, 1)" in said
    assert "boundary_check" not in likely(access(offsets, narrow, line=line.replace("(0,)", "(0, 1)")))
    assert likely(access(offsets, Layout((50, 64), (64, 1), 4), line=line)) == ""


def test_a_boundary_of_a_vector_is_no_matrix():
    rows = Layout((3, 50), (50, 1), 4)
    line = "lse = tl.load(lse_block, boundary_check=(0,))"
    assert likely(access(np.arange(128, 192), rows, line=line)) == ""
