"""Results that the language leaves undefined: told where what a program stores depends on them, and only there."""

# mypy: disable-error-code="attr-defined"

import torch
import triton
import triton.language as tl

from assignment.simulator import calls
from assignment.simulator.faults import UndefinedResult
from assignment.simulator.triton_private import HISTOGRAM_LEAVES_OUT
from assignment.tests.constructs.checks.common import raised, says


@triton.jit
def integer_kernel(a_ptr, b_ptr, y_ptr, HOW: tl.constexpr, DROPS: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    a, b = tl.load(a_ptr + at), tl.load(b_ptr + at)
    if HOW == "divide":
        y = a // b  # the result
    elif HOW == "remainder":
        y = a % b  # the result
    elif HOW == "left":
        y = a << b  # the result
    elif HOW == "right":
        y = a >> b  # the result
    elif HOW == "gather":
        y = tl.gather(a, b, 0)  # the result
    is_good = (b >= 1) & (b < SIZE)
    if DROPS == "where":
        y = tl.where(is_good, y, 7)
    elif DROPS == "factor":
        y = y * is_good.to(y.dtype) + 7 * (1 - is_good.to(y.dtype))
    if DROPS == "mask":
        tl.store(y_ptr + at, y, mask=is_good)
    else:
        tl.store(y_ptr + at, y)


def expected(how: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the right results, with 7 where there are none."""
    is_good = (b >= 1) & (b < len(b))
    b = torch.where(is_good, b, 1)
    by_name = {
        "divide": lambda: torch.div(a, b, rounding_mode="trunc"),
        "remainder": lambda: torch.fmod(a, b),
        "left": lambda: a << b,
        "right": lambda: a >> b,
        "gather": lambda: a[b.long()],
    }
    return torch.where(is_good, by_name[how](), 7)


WRONG = {"divide": 0, "remainder": 0, "left": 64, "right": -1, "gather": -8}


def check_integers():
    """Division by 0, shifts by the width, a gather outside: only where they are kept."""
    for how, wrong in WRONG.items():
        for dtype in (torch.int32, torch.int64, torch.int16, torch.uint8) if how != "right" else (torch.int32,):
            a, b = torch.arange(40, 48).to(dtype), torch.tensor([1, 2, wrong, 3, 1, wrong, 2, 1]).to(dtype)
            if how == "gather":
                b = b.to(torch.int32)
            for drops in ("where", "mask", "factor"):
                y = torch.full((8,), 7, dtype=dtype)
                integer_kernel[(1,)](a, b, y, HOW=how, DROPS=drops, SIZE=8)
                assert torch.equal(y, expected(how, a, b)), (how, dtype, drops, y)
            fault = raised(UndefinedResult, integer_kernel[(1,)], a, b, torch.empty_like(a), HOW=how, DROPS="", SIZE=8)
            says(fault, "undefined result: program (0, 0, 0) of integer_kernel", "in 2 of 8 lanes", "# the result")
            integer_kernel[(1,)](a, b.clamp(1, 3), torch.empty_like(a), HOW=how, DROPS="", SIZE=8)


def check_the_lowest_by_minus_one():
    """It has no quotient either."""
    a, b = torch.tensor([-(2**31), 5]).int(), torch.tensor([-1, -1]).int()
    says(raised(UndefinedResult, integer_kernel[(1,)], a, b, b.clone(), HOW="divide", DROPS="", SIZE=2), "in 1 of 2")
    integer_kernel[(1,)](a[1:], b, b.clone(), HOW="divide", DROPS="", SIZE=1)


def check_any_value_may_come_of_it():
    """Zero as well, as here, and different ones in different lanes; in whichever program of a launch."""

    @triton.jit
    def kernel(n, x_ptr, y_ptr, HOW: tl.constexpr):
        program = tl.program_id(0)
        tl.store(y_ptr + program, 0.0)
        if program == 5:
            q = (tl.arange(0, 4) + n) // (n - n)
            is_good = tl.sum((q == 0).to(tl.int32)) == 4 if HOW == "zero" else tl.max(q) == tl.min(q)
            tl.store(y_ptr + program, tl.where(is_good, tl.load(x_ptr), 2.0))

    for how in ("zero", "alike"):
        raised(UndefinedResult, kernel[(8,)], 5, torch.ones(1), torch.empty(8), HOW=how)


@triton.jit
def atomic_kernel(count_ptr, y_ptr, n, HOW: tl.constexpr):
    at = tl.arange(0, 8)
    old = tl.atomic_add(count_ptr + at, 1, mask=at < n)  # the atomic
    if HOW == "used":
        tl.store(y_ptr + at, old)
    elif HOW == "masked":
        tl.store(y_ptr + at, old, mask=at < n)
    elif HOW == "dropped":
        tl.store(y_ptr + at, tl.where(at < n, old, 3))


def check_masked_atomics():
    """What an atomic returns where its mask is false is anything; mostly nobody looks."""
    for how in ("unused", "masked", "dropped"):
        y = torch.full((8,), 3, dtype=torch.int32)
        atomic_kernel[(1,)](torch.full((8,), 3, dtype=torch.int32), y, 5, HOW=how)
        assert y.tolist() == [3] * 8
    ints = torch.zeros(8, dtype=torch.int32)
    fault = raised(UndefinedResult, atomic_kernel[(1,)], ints, ints.clone(), 5, HOW="used")
    says(fault, "what an atomic returns in masked-out lanes, in 3 of 8 lanes", "# the atomic")
    atomic_kernel[(1,)](ints, ints.clone(), 8, HOW="used")


def check_atomic_maxima_of_floats():
    """Triton makes two atomics of one, for either sign, and chooses: nothing is undefined but masked-out lanes."""

    @triton.jit
    def kernel(m_ptr, x_ptr, y_ptr, n, IS_USED: tl.constexpr):
        at = tl.arange(0, 8)
        old = tl.atomic_max(m_ptr + at, tl.load(x_ptr + at), mask=at < n)
        if IS_USED:
            tl.store(y_ptr + at, old)

    x = torch.tensor([-1.0, 2, -3, 4, 5, 6, 7, 8])
    for n in (8, 5):
        m, y = torch.zeros(8), torch.empty(8)
        kernel[(1,)](m, x, y, n, IS_USED=False)
        assert torch.equal(m[:n], x[:n].clamp(min=0))
    kernel[(1,)](torch.zeros(8), x, torch.empty(8), 8, IS_USED=True)
    raised(UndefinedResult, kernel[(1,)], torch.zeros(8), x, torch.empty(8), 5, IS_USED=True)


def check_histograms():
    """A value outside of the bins is left out; before Triton 3.9 it may be counted anywhere, unless masked out."""

    @triton.jit
    def kernel(x_ptr, y_ptr, n, HAS_MASK: tl.constexpr, IS_USED: tl.constexpr):
        at = tl.arange(0, 8)
        x = tl.load(x_ptr + at)
        counts = tl.histogram(x, 4, mask=at < n) if HAS_MASK else tl.histogram(x, 4)
        tl.store(y_ptr + tl.arange(0, 4), counts if IS_USED else counts * 0)

    x, y = torch.tensor([0, 1, 1, 3, 3, 3, 9, -2]).int(), torch.empty(4, dtype=torch.int32)
    kernel[(1,)](x, y, 6, HAS_MASK=True, IS_USED=True)
    assert y.tolist() == [1, 2, 0, 3]
    kernel[(1,)](x, y, 6, HAS_MASK=False, IS_USED=False)
    for has_mask in (True, False):
        if HISTOGRAM_LEAVES_OUT:
            kernel[(1,)](x, y, 7, HAS_MASK=has_mask, IS_USED=True)
            assert y.tolist() == [1, 2, 0, 3]
        else:
            says(raised(UndefinedResult, kernel[(1,)], x, y, 7, HAS_MASK=has_mask, IS_USED=True), "of tl.histogram")


def check_other_operands_are_defined():
    """Quotients, remainders and shifts as most kernels have them."""

    @triton.jit
    def kernel(x_ptr, y_ptr, n, d, SIZE: tl.constexpr):
        at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
        rows, cols = at // d, at % d
        x = tl.load(x_ptr + rows * d + cols, mask=at < n, other=0.0)
        tl.store(y_ptr + (at >> 1 << 1) + at % 2, x, mask=at < n)

    x = torch.arange(20.0)
    y = torch.empty(20)
    with calls.Call([x]) as seen:
        kernel[(3,)](x, y, 20, 5, SIZE=8)
    assert torch.equal(x, y)
    assert not seen.warnings
