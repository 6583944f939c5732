"""Races between programs, and the order in which these run."""
# mypy: disable-error-code="attr-defined"
# (in a kernel a loop variable is a tensor)

import torch
import triton
import triton.language as tl

from assignment.simulator import calls
from assignment.simulator.faults import OutOfBounds, Race
from assignment.tests.constructs.checks.bounds import copy_kernel
from assignment.tests.constructs.checks.common import raised, says


@triton.jit
def accumulate_kernel(y_ptr, IS_ATOMIC: tl.constexpr):
    if IS_ATOMIC:
        tl.atomic_add(y_ptr, 1.0)
    else:
        old = tl.load(y_ptr)
        tl.store(y_ptr, old + 1.0)


@triton.jit
def same_kernel(y_ptr, VALUE: tl.constexpr):
    tl.store(y_ptr, tl.program_id(0) if VALUE < 0 else VALUE)


def check_two_programs_store():
    """Both programs and both lines are named; one identical value is only worth a warning."""
    fault = raised(Race, same_kernel[(2,)], torch.zeros(1), VALUE=-1)
    says(fault, "of same_kernel both touch y_ptr[0]", "(0, 0, 0)", "(1, 0, 0)", "in same_kernel: tl.store(y_ptr")
    with calls.Call() as seen:
        same_kernel[(5,)](torch.zeros(1), VALUE=7)
    assert len(seen.warnings) == 1
    says(Exception(seen.warnings[0]), "same value stored: programs", "in same_kernel")


def check_out_of_bounds_before_a_race():
    """One missing bound leaves the last row's tensor, and lets all other rows race; whichever program comes first."""

    @triton.jit
    def kernel(x_ptr, y_ptr, n_cols, SIZE: tl.constexpr):
        row, cols = tl.program_id(0), tl.arange(0, SIZE)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        tl.store(y_ptr + row * n_cols + cols, x + row)  # no mask

    for seed in range(5):
        with calls.Call(seed=seed):
            fault = raised(OutOfBounds, kernel[(8,)], torch.ones(8, 10), torch.zeros(8, 10), 10, SIZE=16)
            says(fault, "program (7, 0, 0) of kernel stores to y_ptr[8, 0]", "# no mask")
    raised(Race, kernel[(7,)], torch.ones(8, 10), torch.zeros(8, 10), 10, SIZE=16)


def check_an_empty_grid_is_remembered():
    """A grid of n // SIZE programs, where n is smaller."""
    with calls.Call() as seen:
        copy_kernel[(10 // 64,)](torch.ones(10), torch.zeros(10), 10, 0, SIZE=64)
    assert seen.idle == ["copy_kernel was launched with the grid (0, 1, 1), which is 0 programs"]


def check_storing_what_is_there():
    """A store that changes nothing is no race with a load, whoever comes first."""

    @triton.jit
    def kernel(x_ptr, y_ptr, VALUE: tl.constexpr):
        if tl.program_id(0) == 0:
            tl.store(x_ptr, VALUE)
        else:
            tl.store(y_ptr + tl.program_id(0), tl.load(x_ptr))

    for seed in range(8):
        with calls.Call(seed=seed) as seen:
            kernel[(4,)](torch.zeros(1), torch.zeros(4), VALUE=0.0)
            assert len(seen.warnings) == 1
            raised(Race, kernel[(4,)], torch.zeros(1), torch.zeros(4), VALUE=1.0)


def check_load_add_store():
    """Adding to another program's sum is a race unless it is atomic."""
    y = torch.zeros(1)
    says(raised(Race, accumulate_kernel[(2,)], y, IS_ATOMIC=False), "loads it", "stored to it")
    y.zero_()
    accumulate_kernel[(100,)](y, IS_ATOMIC=True)
    assert y.item() == 100
    accumulate_kernel[(1,)](y, IS_ATOMIC=False)


def check_plain_store_beside_atomics():
    """A store by one program and atomics by others are a race, in any order."""

    @triton.jit
    def kernel(y_ptr):
        if tl.program_id(0) == 1:
            tl.store(y_ptr, 0.0)
        else:
            tl.atomic_add(y_ptr, 1.0)

    for seed in range(8):
        with calls.Call(seed=seed):
            raised(Race, kernel[(3,)], torch.zeros(1))


def check_reading_a_neighbour():
    """Updating in place what the next program reads is a race, whoever comes first."""

    @triton.jit
    def kernel(y_ptr):
        at = tl.program_id(0)
        y = tl.load(y_ptr + at) + tl.load(y_ptr + at + 1)
        tl.store(y_ptr + at, y)

    for seed in range(8):
        with calls.Call(seed=seed):
            raised(Race, kernel[(2,)], torch.arange(3.0))
    kernel[(1,)](torch.arange(3.0))


def check_one_tensor_under_two_names():
    """A race through two arguments that are the same memory."""

    @triton.jit
    def kernel(a_ptr, b_ptr):
        at = tl.program_id(0)
        tl.store(a_ptr + at, tl.load(b_ptr + 1 - at) + 1.0)

    y = torch.zeros(2)
    raised(Race, kernel[(2,)], y, y)


def check_order_is_shuffled():
    """Programs run in an order that depends on the seed alone."""

    @triton.jit
    def kernel(counter_ptr, order_ptr):
        tl.store(order_ptr + tl.atomic_add(counter_ptr, 1), tl.program_id(0))

    def order(seed: int) -> list[int]:
        counter, ids = torch.zeros(1, dtype=torch.int32), torch.zeros(20, dtype=torch.int32)
        with calls.Call(seed=seed):
            kernel[(20,)](counter, ids)
        return ids.tolist()

    assert order(1) == order(1) != order(2)
    assert sorted(order(1)) == list(range(20)) != order(1)


def check_two_views_of_one_huge_storage():
    """What two views reach together is one memory, however large it is."""

    @triton.jit
    def kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
        at = tl.arange(0, SIZE)
        if tl.program_id(0) == 0:
            tl.store(x_ptr + 2 * at, 1.0)
        else:
            tl.store(y_ptr + at, 2.0)

    huge = torch.zeros((1 << 24) + 64)
    raised(Race, kernel[(2,)], huge[::2], huge[:64], SIZE=16)
    kernel[(2,)](huge[::2], huge[1 << 20 :], SIZE=16)
