"""What keeps programs apart, or does not: locks, counters, flags, lanes that hand over."""
# mypy: disable-error-code="attr-defined"
# (in a kernel a loop variable is a tensor)

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from assignment.simulator import calls
from assignment.simulator.faults import Deadlock, Race
from assignment.simulator.triton_private import VERSION
from assignment.tests.constructs.checks.common import raised, says


@triton.jit
def locked_kernel(lock_ptr, y_ptr, HAS_LOCK: tl.constexpr):
    if HAS_LOCK:
        while tl.atomic_cas(lock_ptr, 0, 1) == 1:
            pass
    y = tl.load(y_ptr + tl.arange(0, 4))
    tl.store(y_ptr + tl.arange(0, 4), y + 1.0)
    if HAS_LOCK:
        tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def last_block_kernel(partial_ptr, counter_ptr, y_ptr, SEM: tl.constexpr, IS_LATE: tl.constexpr):
    program = tl.program_id(0)
    if not IS_LATE:
        tl.store(partial_ptr + program, program + 1.0)
    done = tl.atomic_add(counter_ptr, 1, sem=SEM)
    if IS_LATE:
        tl.store(partial_ptr + program, program + 1.0)
    if done == tl.num_programs(0) - 1:
        tl.store(y_ptr, tl.sum(tl.load(partial_ptr + tl.arange(0, 4))))


def check_locks_and_counters():
    """A lock orders what it guards; a counter orders what came before it, and nothing that comes after."""
    lock, y = torch.zeros(1, dtype=torch.int32), torch.zeros(4)
    locked_kernel[(5,)](lock, y, HAS_LOCK=True)
    assert y.eq(5).all()
    raised(Race, locked_kernel[(5,)], lock, y, HAS_LOCK=False)
    for seed in range(4):
        with calls.Call(seed=seed):
            last_block_kernel[(4,)](torch.zeros(4), torch.zeros_like(lock), y, SEM="acq_rel", IS_LATE=False)
            assert y[0].item() == 10
            raised(Race, last_block_kernel[(4,)], torch.zeros(4), torch.zeros_like(lock), y, "relaxed", False)
            raised(Race, last_block_kernel[(4,)], torch.zeros(4), torch.zeros_like(lock), y, "acq_rel", True)


@triton.jit
def share_kernel(partial_ptr, counter_ptr, y_ptr):
    tl.store(partial_ptr + tl.program_id(0), tl.program_id(0) + 1.0)
    share = (tl.atomic_add(counter_ptr, 1) + 1) / tl.num_programs(0)
    if tl.exp(share - 1.0) == 1.0:
        tl.store(y_ptr, tl.sum(tl.load(partial_ptr + tl.arange(0, 4))))


def check_what_is_computed_of_a_counter_orders_too():
    """By operations whose last bits are drawn."""
    for seed in range(5):
        y = torch.zeros(1)
        with calls.Call(seed=seed):
            share_kernel[(4,)](torch.zeros(4), torch.zeros(1, dtype=torch.int32), y)
        assert y.item() == 10


def check_what_is_no_lock():
    """One without acquire or release, and a sum over a block guard nothing."""

    @triton.jit
    def kernel(lock_ptr, y_ptr, HOW: tl.constexpr):
        if HOW == "block":
            tl.atomic_add(lock_ptr + tl.arange(0, 2), 1)
        elif HOW == "release":
            while tl.atomic_cas(lock_ptr, 0, 1, sem="release") == 1:
                pass
        else:
            while tl.atomic_cas(lock_ptr, 0, 1) == 1:
                pass
        tl.store(y_ptr, tl.load(y_ptr) + 1.0)
        if HOW == "acquire":
            tl.atomic_xchg(lock_ptr, 0, sem="acquire")
        elif HOW != "block":
            tl.atomic_xchg(lock_ptr, 0)

    for how in ("block", "release", "acquire"):
        raised(Race, kernel[(3,)], torch.zeros(2, dtype=torch.int32), torch.zeros(1), HOW=how)
    kernel[(3,)](torch.zeros(2, dtype=torch.int32), torch.zeros(1), HOW="")


@triton.jit
def last_kernel(count_ptr, partial_ptr, y_ptr, N: tl.constexpr, HOW: tl.constexpr):
    program, at = tl.program_id(0), tl.arange(0, N)
    tl.store(partial_ptr + program, program + 1.0)
    is_last = tl.atomic_add(count_ptr, 1) == N - 1
    total = 0.0
    if HOW == "loop":
        for i in range(tl.where(is_last, N, 0)):
            total += tl.load(partial_ptr + i)
    elif HOW == "while":
        i = tl.where(is_last, 0, N)
        while i < N:
            total += tl.load(partial_ptr + i)
            i += 1
    elif HOW == "mask":
        mask = (at < N) & tl.broadcast_to(is_last, (N,))
        total = tl.sum(tl.load(partial_ptr + at, mask=mask, other=0.0))
    tl.store(y_ptr, total, mask=is_last)


def check_looking_at_the_count():
    """A loop or a mask may ask who is last."""
    for how in ("loop", "while", "mask"):
        for seed in range(3):
            with calls.Call(seed=seed):
                y = torch.zeros(1)
                last_kernel[(4,)](torch.zeros(1, dtype=torch.int32), torch.empty(4), y, N=4, HOW=how)
                assert y.item() == 10


def check_looking_by_address():
    """Who follows what an atomic returned finds what was stored before it was put there."""

    @triton.jit
    def kernel(head_ptr, node_ptr, y_ptr):
        program = tl.program_id(0)
        tl.store(node_ptr + program + 1, program + 1.0)
        before = tl.atomic_xchg(head_ptr, program + 1)
        tl.store(y_ptr + program, tl.load(node_ptr + before))

    y = torch.zeros(5)
    kernel[(5,)](torch.zeros(1, dtype=torch.int32), torch.zeros(6), y)
    assert len(set(y.tolist())) == 5


@triton.jit
def layer_norm_kernel(lock_ptr, count_ptr, gw_ptr, SIZE: tl.constexpr, N_GROUPS: tl.constexpr):
    at = tl.arange(0, SIZE)
    group = tl.program_id(0) % N_GROUPS
    gw_ptrs = gw_ptr + group * SIZE + at
    gw = at + 1.0
    while tl.atomic_cas(lock_ptr + group, 0, 1) == 1:
        pass
    count = tl.load(count_ptr + group)
    if count == 0:
        tl.atomic_xchg(count_ptr + group, 1)
    else:
        gw += tl.load(gw_ptrs)
    tl.store(gw_ptrs, gw)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr + group, 0)


def check_the_lock_of_a_tutorial():
    """Triton's tutorial on layer norm adds up by groups, under a lock each, into memory that nobody has filled."""
    gw, locks = torch.empty(3, 8), torch.zeros(6, dtype=torch.int32)
    with calls.Call() as seen:
        layer_norm_kernel[(12,)](locks, locks[3:], gw, SIZE=8, N_GROUPS=3)
    assert torch.equal(gw, 4 * torch.arange(1.0, 9.0).expand(3, 8))
    assert seen.warnings == []


@triton.jit
def reversed_kernel(x_ptr, y_ptr, n, SIZE: tl.constexpr, HOW: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(x_ptr + at, at + 1.0, mask=at < n)
    if HOW == "barrier":
        tl.debug_barrier()
    if HOW == "own lanes":
        tl.store(y_ptr + at, tl.load(x_ptr + at, mask=(at < n) & (at > 1), other=0.0))
    else:
        tl.store(y_ptr + at, tl.load(x_ptr + n - 1 - at, mask=at < n, other=0.0))


def check_lanes_that_hand_over():
    """What one lane stores another may load after a barrier; without one it is worth a warning, once a line."""
    for how in ("reversed", "barrier", "own lanes"):
        with calls.Call() as seen:
            y = torch.empty(2, 8)
            reversed_kernel[(1,)](torch.zeros(8), y[0], 6, SIZE=8, HOW=how)
            reversed_kernel[(1,)](torch.zeros(8), y[1], 6, SIZE=8, HOW=how)
        assert y.eq(
            torch.tensor([0.0, 0, 3, 4, 5, 6, 0, 0] if how == "own lanes" else [6.0, 5, 4, 3, 2, 1, 0, 0])
        ).all()
        assert len(seen.warnings) == (how == "reversed")
        if how == "reversed":
            says(Exception(seen.warnings[0]), "no barrier: program (0, 0, 0) of reversed_kernel loads x_ptr[5]")
            says(Exception(seen.warnings[0]), "tl.store(x_ptr + at, at + 1.0", "say tl.debug_barrier() between the two")


def check_lanes_that_store_together():
    """Lanes that all store one value to one element may all load it, and so may a kernel's next program."""

    @triton.jit
    def kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
        at, program = tl.arange(0, SIZE), tl.program_id(0)
        x_ptrs = x_ptr + program + tl.zeros_like(at)
        tl.store(x_ptrs, program + 3.0 + tl.zeros_like(at))
        tl.store(x_ptrs, program + 3.0 + tl.zeros_like(at), mask=at == 0)
        tl.store(y_ptr + program * SIZE + at, tl.load(x_ptrs))

    y = torch.empty(2, 8)
    with calls.Call() as seen:
        kernel[(2,)](torch.zeros(2), y, SIZE=8)
    assert y.tolist() == [[3] * 8, [4] * 8]
    assert seen.warnings == []


@triton.jit
def wait_for(flag_ptr):
    while tl.atomic_add(flag_ptr, 0) == 0:
        pass


@triton.jit
def wait_and_load(flag_ptr, y_ptr):
    wait_for(flag_ptr)
    return tl.load(y_ptr)


def check_waiting_in_a_helper():
    """The loop may be in a helper's helper, and wait for a program that begins later."""

    @triton.jit
    def kernel(flag_ptr, y_ptr, STEP: tl.constexpr, LAST: tl.constexpr):
        program = tl.program_id(0)
        y = 0.0
        if program != LAST:
            y = wait_and_load(flag_ptr + program + STEP, y_ptr + program + STEP)
        tl.store(y_ptr + program, y + 1.0)
        tl.atomic_xchg(flag_ptr + program, 1)

    y = torch.empty(6)
    kernel[(6,)](torch.zeros(6, dtype=torch.int32), y, STEP=-1, LAST=0)
    assert y.tolist() == [1, 2, 3, 4, 5, 6]
    kernel[(6,)](torch.zeros(6, dtype=torch.int32), y, STEP=1, LAST=5)
    assert y.tolist() == [6, 5, 4, 3, 2, 1]


def check_the_second_reader():
    """A store is a race with every reader that it is not ordered with, not only with the first."""

    @triton.jit
    def kernel(flag_ptr, x_ptr, y_ptr):
        program = tl.program_id(0)
        if program < 2:
            tl.store(y_ptr + program, tl.load(x_ptr))
            if program == 0:
                tl.atomic_xchg(flag_ptr, 1)
        else:
            wait_for(flag_ptr)
            tl.store(x_ptr, 5.0)

    raised(Race, kernel[(3,)], torch.zeros(1, dtype=torch.int32), torch.zeros(1), torch.zeros(3))


def check_addresses_in_memory():
    """A kernel may store addresses for the next one, and subtract them."""

    @triton.jit
    def table_kernel(x_ptr, z_ptr, table_ptr):
        tl.store(table_ptr, x_ptr.to(tl.int64))
        tl.store(table_ptr + 1, z_ptr.to(tl.int64) - x_ptr.to(tl.int64))

    @triton.jit
    def use_kernel(table_ptr, y_ptr):
        x_ptr = tl.load(table_ptr).to(tl.pointer_type(tl.float32))
        tl.store(y_ptr, tl.load(x_ptr + 2))

    x, table, y = torch.arange(8.0), torch.zeros(2, dtype=torch.int64), torch.zeros(1)
    table_kernel[(1,)](x, x[4:], table)
    assert table.tolist() == [x.data_ptr(), 16]
    use_kernel[(1,)](table, y)
    assert y.item() == 2


def check_programs_that_wait():
    """Programs that wait for the one before are run in order, and end."""

    @triton.jit
    def kernel(flag_ptr, y_ptr):
        program = tl.program_id(0)
        while tl.atomic_add(flag_ptr, 0) < program:
            pass
        tl.store(y_ptr, tl.load(y_ptr) * 2.0 + program)
        tl.atomic_add(flag_ptr, 1)

    y = torch.zeros(1)
    kernel[(6,)](torch.zeros(1, dtype=torch.int32), y)
    assert y.item() == 57


def check_flags():
    """Programs may wait for a flag with a compare-and-swap, or with a volatile load."""

    @triton.jit
    def kernel(flag_ptr, y_ptr, IS_VOLATILE: tl.constexpr):
        program = tl.program_id(0)
        y = 0.0
        if program > 0:
            if IS_VOLATILE:
                while tl.load(flag_ptr + program - 1, volatile=True) == 0:
                    pass
            else:
                while tl.atomic_cas(flag_ptr + program - 1, 1, 1) == 0:
                    pass
            y = tl.load(y_ptr + program - 1)
        tl.store(y_ptr + program, y + 1.0)
        tl.atomic_xchg(flag_ptr + program, 1)

    for is_volatile in (True, False):
        y = torch.empty(6)
        kernel[(6,)](torch.zeros(6, dtype=torch.int32), y, IS_VOLATILE=is_volatile)
        assert y.tolist() == [1, 2, 3, 4, 5, 6]


@triton.jit
def handed_on_kernel(flag_ptr, y_ptr, HOW: tl.constexpr, STORE: tl.constexpr, LOAD: tl.constexpr):
    program, at = tl.program_id(0), tl.arange(0, 4)
    if program > 0:
        if HOW == "poll":
            tl.atomic_poll(flag_ptr + program - 1, 1, sem=LOAD)
        elif HOW == "timeout":
            while not tl.atomic_poll(flag_ptr + program - 1, 1, sem=LOAD, timeout_ns=1000):
                pass
        elif HOW == "load":
            while tl.atomic_load(flag_ptr + program - 1, sem=LOAD) == 0:
                pass
        elif HOW == "method":
            while (flag_ptr + program - 1).atomic_load(sem=LOAD) == 0:
                pass
    tl.store(y_ptr + at, tl.load(y_ptr + at) + 1.0)
    tl.atomic_store(flag_ptr + program, 1, sem=STORE)


@triton.jit
def polled_ahead_kernel(flag_ptr, y_ptr, HAS_TIMEOUT: tl.constexpr):
    if HAS_TIMEOUT:
        tl.store(y_ptr, tl.atomic_poll(flag_ptr, 1, timeout_ns=10).to(tl.float32))
    else:
        tl.atomic_poll(flag_ptr, 1)


@triton.jit
def atomic_lanes_kernel(x_ptr, y_ptr, n):
    at = tl.arange(0, 8)
    x = tl.atomic_load(x_ptr + at, mask=at < n)
    tl.atomic_store(y_ptr + at, x, mask=at < n)


def check_atomic_loads_stores_and_polls():
    """Of Triton 3.9: a store that releases hands on to a load or a poll that acquires, and no other does.

    A poll for what nobody stores never ends; one with a timeout returns what it found.
    """
    if VERSION < (3, 9):
        return
    flags: Callable[[], torch.Tensor] = lambda: torch.zeros(4, dtype=torch.int32)  # noqa: E731
    for how in ("poll", "timeout", "load", "method"):
        y = torch.zeros(4)
        handed_on_kernel[(4,)](flags(), y, how, "release", "acquire")
        assert y.eq(4).all()
        raised(Race, handed_on_kernel[(4,)], flags(), torch.zeros(4), how, "relaxed", "acquire")
        raised(Race, handed_on_kernel[(4,)], flags(), torch.zeros(4), how, "release", "relaxed")
    says(raised(Deadlock, polled_ahead_kernel[(1,)], flags(), y, False), "program (0, 0, 0) waits for flag_ptr[0]")
    polled_ahead_kernel[(1,)](flags(), y, True)
    assert y[0].item() == 0
    for dtype in (torch.float32, torch.int64, torch.bfloat16, torch.bool, torch.uint8):
        x, y = torch.ones(5).to(dtype), torch.zeros(8).to(dtype)
        with calls.Call(inputs=[x]):
            atomic_lanes_kernel[(1,)](x, y, 5)
        assert torch.equal(y[:5], x)
        assert not y[5:].any()
