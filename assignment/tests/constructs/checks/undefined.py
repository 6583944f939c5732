"""Memory that nobody wrote, values that nobody set, and inputs that are written to."""

# mypy: disable-error-code="attr-defined"
# (in a kernel a loop variable is a tensor)

import math

import torch
import triton
import triton.language as tl

from assignment.simulator import calls
from assignment.simulator.faults import InputWritten, Unwritten
from assignment.simulator.undefined import unwritten_in
from assignment.tests.constructs.checks.bounds import copy_kernel
from assignment.tests.constructs.checks.common import raised, says
from assignment.tests.constructs.checks.races import accumulate_kernel, same_kernel


@triton.jit
def reduce_kernel(x_ptr, y_ptr, n, SIZE: tl.constexpr, HOW: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at)  # the scratch
    if HOW == "masked":
        x = tl.where(at < n, x, 0.0)
    tl.store(y_ptr, tl.max(x) if HOW == "max" else tl.min(x) if HOW == "min" else tl.sum(x))


def check_unwritten_memory():
    """A stored value must not depend on what nobody wrote, not even under max, which ignores NaN."""
    y = torch.zeros(1)
    for how in ("sum", "max", "min"):
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int32):
            x = torch.empty(8, dtype=dtype)
            x[:5] = 1
            fault = raised(Unwritten, reduce_kernel[(1,)], x, y, 5, SIZE=8, HOW=how)
            says(fault, "unwritten memory: program (0, 0, 0) of reduce_kernel loads x_ptr[5]", "# the scratch")


def check_one_program_of_many_uses_it():
    """Most programs throw the unwritten value away; the one that does not is found."""

    @triton.jit
    def kernel(x_ptr, y_ptr):
        program = tl.program_id(0)
        x = tl.load(x_ptr)
        tl.store(y_ptr + program, tl.where(program == 11, x, 0.0))

    for seed in range(4):
        with calls.Call(seed=seed):
            raised(Unwritten, kernel[(16,)], torch.empty(1), torch.zeros(16))


def check_unwritten_and_unused():
    """Reading too much and throwing it away is no fault; nor is memory that a kernel or PyTorch has filled."""
    x, y = torch.empty(8), torch.zeros(1)
    x[:5] = 1
    reduce_kernel[(1,)](x, y, 5, SIZE=8, HOW="masked")
    assert y.item() == 5
    same_kernel[(1,)](x[5:], VALUE=2)
    x[6:].fill_(3)
    reduce_kernel[(1,)](x, y, 8, SIZE=8, HOW="sum")
    assert y.item() == 13


def check_unwritten_and_copied():
    """Moving padding about that nobody has written is no use of it; using the copy is."""
    x, copied, y = torch.empty(8), torch.empty(8), torch.zeros(1)
    x[:5] = 1
    copy_kernel[(1,)](x, copied, 8, 0, SIZE=8)
    reduce_kernel[(1,)](copied, y, 5, SIZE=8, HOW="masked")
    assert y.item() == 5
    assert unwritten_in(copied) == (3, (5,))
    raised(Unwritten, reduce_kernel[(1,)], copied, y, 8, SIZE=8, HOW="sum")


@triton.jit
def flag_kernel(flag_ptr, x_ptr, y_ptr, HOW: tl.constexpr):
    at = tl.arange(0, 4)
    flags = tl.load(flag_ptr + at)
    first, second = tl.load(flag_ptr), tl.load(flag_ptr + 1)
    if HOW == "zero":
        is_good = first != 0
    elif HOW == "one":
        is_good = first != 1
    elif HOW == "all bits":
        is_good = first != -1
    elif HOW == "equal":
        is_good = first == second
    elif HOW == "different":
        is_good = first != second
    elif HOW == "spread":
        is_good = tl.max(flags) - tl.min(flags) == 0
    elif HOW == "itself":
        is_good = (first == tl.load(flag_ptr)) | (first != first)
    else:
        is_good = first < 2147483647
    tl.store(y_ptr, tl.where(is_good, tl.load(x_ptr), 0.0))


def check_any_value_may_lie_in_unwritten_memory():
    """Zero, one, all bits, the largest; two elements may be equal or not, and one is always equal to itself."""
    for how in ("zero", "one", "all bits", "equal", "different", "spread", "largest"):
        raised(Unwritten, flag_kernel[(1,)], torch.empty(4, dtype=torch.int32), torch.ones(1), torch.zeros(1), HOW=how)
    for how in ("zero", "one", "different"):
        raised(Unwritten, flag_kernel[(1,)], torch.empty(4), torch.ones(1), torch.zeros(1), HOW=how)
    for dtype in (torch.int32, torch.float32):
        flag_kernel[(1,)](torch.empty(4, dtype=dtype), torch.ones(1), torch.zeros(1), HOW="itself")


def check_not_a_number_may_equal_another():
    """Two floats that nobody wrote are never equal as the NaN that they are here; on a GPU they may be."""

    @triton.jit
    def kernel(s_ptr, t_ptr, x_ptr, y_ptr):
        s = tl.load(s_ptr)
        t = tl.load(t_ptr)
        tl.store(y_ptr, tl.where(s == t, 0.0, tl.load(x_ptr)))

    raised(Unwritten, kernel[(1,)], torch.empty(1), torch.empty(1), torch.ones(1), torch.zeros(1))


def check_a_trial_ends():
    """A loop over an unwritten number is a use of it, also where it would take hours."""

    @triton.jit
    def kernel(n_ptr, y_ptr, IS_FOR: tl.constexpr):
        n = tl.minimum(tl.load(n_ptr), -2147483647)  # no turn for any but -2147483648
        i = n * 0
        if IS_FOR:
            for _ in range(n, -2147483647):
                i += 1
            for _ in range(0, 2147483647 * (n < -2147483647).to(tl.int32)):
                i += 1
        else:
            while (n < -2147483647) & (i < 2147483647):
                i += 1
        tl.store(y_ptr, i * 0)

    for is_for in (True, False):
        n, y = torch.empty(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
        raised(Unwritten, kernel[(1,)], n, y, IS_FOR=is_for)


def check_unwritten_elements_are_moved_about():
    """In any order, to fresh memory: here too nothing depends on them."""

    @triton.jit
    def kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
        at = tl.arange(0, SIZE)
        x = tl.load(x_ptr + at[:, None] * SIZE + at[None, :])
        tl.store(y_ptr + at[:, None] * SIZE + at[None, :], tl.trans(x))

    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        x, y = torch.empty(16, 16, dtype=dtype), torch.empty(16, 16, dtype=dtype)
        x[:, :9] = 1
        kernel[(1,)](x, y, SIZE=16)
        assert (y[:9] == 1).all()


def check_unwritten_accumulators():
    """Atomics on fresh memory add to garbage; an exchange does not care."""

    @triton.jit
    def kernel(y_ptr, IS_EXCHANGE: tl.constexpr):
        if IS_EXCHANGE:
            tl.atomic_xchg(y_ptr, 1.0)
        else:
            tl.atomic_add(y_ptr, 1.0)

    says(raised(Unwritten, kernel[(1,)], torch.empty(1), IS_EXCHANGE=False), "updates y_ptr[0]")
    kernel[(1,)](torch.empty(1), IS_EXCHANGE=True)


def check_all_16_bit_values_are_values():
    """An integer that happens to look like fresh memory is one all the same."""
    x = torch.empty(2**16, dtype=torch.int16)
    x.copy_(torch.arange(-(2**15), 2**15))
    y = torch.zeros(2**16, dtype=torch.int16)
    copy_kernel[(16,)](x, y, 2**16, 0, SIZE=4096)
    assert torch.equal(x, y)


@triton.jit
def tail_kernel(x_ptr, y_ptr, n, SIZE: tl.constexpr, IS_USED: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    x = tl.load(x_ptr + at, mask=at < n)  # no other
    if not IS_USED:
        x = tl.where(at < n, x, 0.0)
    tl.atomic_add(y_ptr, tl.sum(x))


def check_masked_load_without_other():
    """It is worth a warning where a masked-out lane reaches a stored value; the zeros stay zeros."""
    x, y = torch.ones(100), torch.zeros(1)
    for is_used in (True, False):
        with calls.Call([x]) as seen:
            y.zero_()
            tail_kernel[(7,)](x, y, 100, SIZE=16, IS_USED=is_used)
            assert y.item() == 100
        assert len(seen.warnings) == is_used
        if is_used:
            says(Exception(seen.warnings[0]), "masked load without other=", "# no other", "say other=0.0")


def check_masked_load_of_one_element():
    """Zero is a value of other= like any other."""

    @triton.jit
    def kernel(x_ptr, y_ptr, n, HAS_OTHER: tl.constexpr):
        x = tl.load(x_ptr + n, mask=n < 0, other=0.0) if HAS_OTHER else tl.load(x_ptr + n, mask=n < 0)
        tl.store(y_ptr, x)

    for has_other in (True, False):
        with calls.Call() as seen:
            kernel[(1,)](torch.ones(5), torch.zeros(1), 5, HAS_OTHER=has_other)
        assert len(seen.warnings) == (not has_other)


def check_a_factor_of_zero_hides_nothing():
    """A masked-out lane may hold NaN on a GPU, and 0 · NaN is NaN; a choice between two values does not mind."""

    @triton.jit
    def kernel(x_ptr, y_ptr, n, SIZE: tl.constexpr, IS_FACTOR: tl.constexpr):
        at = tl.arange(0, SIZE)
        x = tl.load(x_ptr + at, mask=at < n)  # no other
        x = x * (at < n).to(tl.float32) if IS_FACTOR else tl.where(at < n, x, 0.0)
        tl.store(y_ptr, tl.sum(x))

    for is_factor in (True, False):
        with calls.Call() as seen:
            kernel[(1,)](torch.ones(5), torch.zeros(1), 5, SIZE=8, IS_FACTOR=is_factor)
        assert len(seen.warnings) == is_factor


def check_where_a_nan_is_made():
    """The line that makes a NaN of numbers is known, not those that hand it on."""

    @triton.jit
    def kernel(x_ptr, y_ptr):
        x = tl.load(x_ptr)
        nothing = x - x  # ∞ − ∞
        tl.store(y_ptr, tl.exp(nothing) * 2.0 + tl.zeros((1,), tl.float32).sum())

    for x, is_made in ((math.inf, True), (math.nan, False), (1.0, False)):
        with calls.Call() as seen:
            kernel[(1,)](torch.tensor([x]), torch.zeros(1))
        assert len(seen.nans) == is_made
        if is_made:
            says(Exception(*seen.nans.values()), "in kernel: nothing = x - x  # ∞ − ∞")


def check_outputs_never_stored():
    """What no kernel wrote of a float tensor is found, also in a copy."""
    y = torch.empty(4, 8)
    copy_kernel[(2,)](torch.ones(16), y, 16, 0, SIZE=8)
    assert unwritten_in(y) == (16, (2, 0))
    assert unwritten_in(y.clone().T) == (16, (0, 2))
    assert unwritten_in(y[:2]) is None


# inputs


def check_inputs_are_not_written():
    """A store or an atomic to memory of the caller is a fault, a store to a copy is none."""
    x = torch.zeros(4)
    with calls.Call([x]):
        says(raised(InputWritten, same_kernel[(1,)], x[2:], VALUE=1), "stores to y_ptr[0]", "argument 0 of the call")
        says(raised(InputWritten, accumulate_kernel[(1,)], x, IS_ATOMIC=True), "updates y_ptr[0]")
        same_kernel[(1,)](x.clone(), VALUE=1)
    assert not x.any()
    same_kernel[(1,)](x, VALUE=1)
