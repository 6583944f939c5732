"""Hints to the compiler are believed: a false one fails where an access would be compiled wrong by it."""

# mypy: disable-error-code="attr-defined"

import torch
import triton
import triton.language as tl

from assignment.simulator.calls import Call
from assignment.simulator.faults import FalseHint
from assignment.tests.constructs.checks.common import raised, says


def warned(function, *args) -> list[str]:
    """The warnings of a call whose result is right."""
    with Call() as call:
        assert function(*args)
    return call.warnings


@triton.jit
def copy_kernel(x_ptr, y_ptr, shift, n, stride, MULTIPLE: tl.constexpr, CONTIGUOUS: tl.constexpr, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    index = at * stride + shift
    if MULTIPLE > 0:
        index = tl.multiple_of(index, MULTIPLE)
    if CONTIGUOUS > 0:
        tl.max_contiguous(index, CONTIGUOUS)  # it holds for the value, not for what is returned
    tl.store(y_ptr + at, tl.load(x_ptr + index, mask=at < n), mask=at < n)


def copied(shift, n, stride, multiple, contiguous, size=512, dtype=torch.float32, start=0) -> bool:
    """Whether the copy is right."""
    x, y = torch.arange(20_000).to(dtype)[start:], torch.zeros(2 * size, dtype=dtype)
    copy_kernel[(2,)](x, y, shift, n, stride, multiple, contiguous, size)
    return torch.equal(y[:n], x[shift : shift + n * stride : stride])


def check_true_hints_say_nothing() -> None:
    """A multiple is one of the first element of each run of neighbours."""
    for shift, n, stride, multiple, contiguous in (
        (0, 1024, 1, 512, 512), (16, 1024, 1, 16, 512), (3, 1000, 1, 1, 512), (48, 1001, 16, 16, 1), (0, 1000, 2, 2, 1)
    ):  # fmt: skip
        assert warned(copied, shift, n, stride, multiple, contiguous) == []


def check_a_false_hint_fails_where_vectors_follow_from_it() -> None:
    """A misaligned one is a fault; one of other elements gives what they hold."""
    told = raised(FalseHint, copied, 3, 1024, 1, 16, 0)
    says(told, "loads a misaligned address, in vectors of 4 elements", "index = tl.multiple_of(index, MULTIPLE)")
    says(raised(FalseHint, copied, 2, 1024, 1, 8, 0, 1024, torch.float16), "in vectors of 8 elements")
    with Call() as call:
        assert not copied(0, 1024, 2, 8, 8)
    assert "tl.max_contiguous(index" in call.warnings[0]


def check_elsewhere_a_false_hint_is_a_warning() -> None:
    """Each thread has one element, or the mask may change everywhere."""
    for arguments in ((3, 256, 1, 16, 0, 128), (3, 1000, 1, 16, 0)):
        (told,) = warned(copied, *arguments)
        assert told.startswith("false hint: what program")
        assert "index = tl.multiple_of(index, MULTIPLE)" in told
    assert warned(copied, 3, 1024, 1, 16, 0, 512, torch.float32, 1) == []  # an address that is not aligned: no vectors


@triton.jit
def wrapped_kernel(x_ptr, y_ptr, M, stride, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wrapped = tl.max_contiguous(tl.multiple_of(rows % M, BLOCK), BLOCK)
    columns = tl.arange(0, 4)
    x = tl.load(x_ptr + wrapped[:, None] * stride + columns[None, :])
    tl.store(y_ptr + rows[:, None] * 4 + columns[None, :], x, mask=rows[:, None] < M)


def check_rows_that_wrap_as_in_libraries_stay_right() -> None:
    """The hint is false in the last block, and nothing follows from it."""
    for m in (120, 128, 200, 210):
        x, y = torch.randn(m, 4), torch.zeros(m, 4)
        wrapped_kernel[(triton.cdiv(m, 64),)](x, y, m, 4, 64)
        assert torch.equal(x, y)


@triton.jit
def wrapped_columns_kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wrapped = tl.max_contiguous(tl.multiple_of(columns % N, BLOCK), BLOCK)
    tl.store(y_ptr + columns, tl.load(x_ptr + wrapped), mask=columns < N)


def check_a_false_hint_that_changes_no_access_says_nothing() -> None:
    """Columns wrap between two vectors; within one it is a fault."""
    for n in (640, 656, 700):
        x, y = torch.randn(n), torch.zeros(n)
        with Call() as call:
            wrapped_columns_kernel[(2,)](x, y, n, 512)
        assert torch.equal(x, y)
        assert call.warnings == []
    says(raised(FalseHint, wrapped_columns_kernel[(2,)], torch.randn(703), torch.zeros(703), 703, 512), "misaligned")


@triton.jit
def constant_kernel(x_ptr, y_ptr, SAME: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    mask = tl.max_constancy(at % 4 < 2, SAME)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=mask, other=0.0))


def check_a_mask_that_is_not_constant() -> None:
    """Its first lane would decide for all of a vector."""
    x, y = torch.ones(512), torch.empty(512)
    constant_kernel[(1,)](x, y, 2, 512)
    assert y.sum() == 256
    constant_kernel[(1,)](x, y, 4, 512)
    assert y.sum() == 512


def check_a_hint_has_as_many_numbers_as_the_block_has_axes() -> None:
    """As the compiler wants it."""
    x = torch.ones(64, 4)
    says(raised(ValueError, two_numbers_kernel[(1,)], x), "does not match the length of values")


@triton.jit
def two_numbers_kernel(x_ptr):
    at = tl.multiple_of(tl.arange(0, 64), (4, 4))
    tl.store(x_ptr + at, 0.0)


@triton.jit
def hinted(index):
    return tl.multiple_of(index, 16)


@triton.jit
def inner_kernel(x_ptr, y_ptr, shift, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    index = (at << 1) // 2 + shift
    hinted(index)
    tl.store(y_ptr + at, tl.load(x_ptr + index))


def check_a_hint_on_a_parameter_is_lost() -> None:
    """As where the compiler puts the function in its place; a shift is followed."""
    x, y = torch.randn(1024), torch.empty(512)
    with Call() as call:
        inner_kernel[(1,)](x, y, 3, 512)
    assert torch.equal(y, x[3:515])
    assert call.warnings == []


@triton.jit
def add_kernel(y_ptr, shift, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.atomic_add(y_ptr + tl.multiple_of(at + shift, 16), (at * 0 + 1).to(y_ptr.dtype.element_ty), mask=at < SIZE)


def check_atomic_sums_of_floats_are_vectors_too() -> None:
    """From the H100 on; those of integers are not."""
    says(raised(FalseHint, add_kernel[(1,)], torch.zeros(1024), 3, 512), "updates a misaligned address")
    y = torch.zeros(1024, dtype=torch.int32)
    add_kernel[(1,)](y, 3, 512)
    assert y.sum() == 512
