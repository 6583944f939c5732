"""What depends on the order in which programs run is seen; what only seems to stays right in every order."""
# mypy: disable-error-code="attr-defined"

from collections.abc import Callable
from unittest import mock

import torch
import triton
import triton.language as tl

from assignment.simulator import calls, programs
from assignment.simulator.faults import Deadlock, MemoryFault
from assignment.tests.constructs.checks.common import raised, says

SEEDS = range(12)  # of which each schedule has some
N = 8


def integers(n: int = 1) -> torch.Tensor:
    return torch.zeros(n, dtype=torch.int32)


def wrong(launch: Callable[..., object], expected: torch.Tensor, *how: object) -> tuple[int, list[str]]:
    """Return with how many seeds a launch gives something else, or a fault, and what is said of its orders."""
    count, said = 0, list[str]()
    for seed in SEEDS:
        y = torch.zeros_like(expected)
        with calls.Call(seed=seed) as seen:
            try:
                launch(y, *how)
            except MemoryFault as fault:
                said.append(str(fault))
        count += not torch.equal(y, expected)
        said += map(str, seen.orders)
    return count, said


@triton.jit
def queue_kernel(count_ptr, y_ptr, IS_ONE_ATOMIC: tl.constexpr):
    if IS_ONE_ATOMIC:
        ticket = tl.atomic_add(count_ptr, 1)
    else:
        ticket = tl.load(count_ptr)
        tl.atomic_add(count_ptr, 1)
    tl.store(y_ptr + ticket, 1.0)


def check_a_queue():
    """Tickets by one atomic are each given once; by a load and an atomic they are not, and who met whom is told."""
    assert wrong(lambda y: queue_kernel[(N,)](integers(), y, True), torch.ones(N)) == (0, [])
    count, said = wrong(lambda y: queue_kernel[(N,)](integers(), y, False), torch.ones(N))
    assert count == len(SEEDS)
    says(Exception(said[0]), "they meet at count_ptr[0]", "loads it", "then program", "updates it")
    says(Exception(said[0]), "ticket = tl.load(count_ptr)", "(handout/programs_meet.md)")


@triton.jit
def sum_kernel(y_ptr, HOW: tl.constexpr):
    if HOW == "exchange":
        tl.atomic_xchg(y_ptr, tl.load(y_ptr) + 1.0)
    elif HOW == "thread block":
        tl.atomic_add(y_ptr, 1.0, scope="cta")
    else:
        tl.atomic_add(y_ptr, 1.0, sem="relaxed")


def check_sums():
    """A load and an exchange lose terms, and an atomic among the threads of one program; a relaxed one does not."""
    ones = torch.full((1,), float(N))
    assert wrong(sum_kernel[(N,)], ones, "relaxed") == (0, [])
    for how in ("exchange", "thread block"):
        assert wrong(sum_kernel[(N,)], ones, how)[0] > len(SEEDS) // 2


@triton.jit
def guarded_kernel(lock_ptr, y_ptr, HOW: tl.constexpr):
    if HOW == "nobody asks":
        tl.atomic_cas(lock_ptr, 0, 1)
    elif HOW == "counted":
        tl.atomic_add(lock_ptr, 1)
    elif HOW == "a bounded spin":
        is_done = 0
        for _ in range(200):
            is_mine = 0
            if is_done == 0:
                is_mine = 1 - tl.atomic_cas(lock_ptr, 0, 1)
            if is_mine == 1:
                tl.store(y_ptr, tl.load(y_ptr) + 1.0)
                tl.atomic_xchg(lock_ptr, 0)
                is_done = 1
    elif HOW != "tried":
        while tl.atomic_cas(lock_ptr, 0, 1) == 1:
            pass
    if HOW == "tried":
        if tl.atomic_cas(lock_ptr, 0, 1) == 0:
            tl.store(y_ptr, tl.load(y_ptr) + 1.0)
            tl.atomic_xchg(lock_ptr, 0)
    elif HOW != "a bounded spin":
        tl.store(y_ptr, tl.load(y_ptr) + 1.0)
        if HOW == "counted":
            tl.atomic_add(lock_ptr, 1)
        else:
            tl.atomic_xchg(lock_ptr, 0)


def check_locks():
    """A lock guards if a program waits for it: not if it is tried once, nor if nobody asks, nor by a counter."""
    run = lambda y, how: guarded_kernel[(N,)](integers(), y, how)  # noqa: E731
    full = torch.full((1,), float(N))
    for how in ("waited for", "a bounded spin"):
        assert wrong(run, full, how) == (0, [])
    for how in ("tried", "nobody asks", "counted"):
        assert wrong(run, full, how)[0] > len(SEEDS) // 2


@triton.jit
def last_kernel(count_ptr, partial_ptr, y_ptr, SIZE: tl.constexpr, HOW: tl.constexpr, SEM: tl.constexpr):
    program, at = tl.program_id(0), tl.arange(0, SIZE)
    if HOW == "added":
        tl.atomic_add(partial_ptr, program + 1.0, sem="relaxed")
    else:
        tl.store(partial_ptr + program, program + 1.0)
    done = tl.atomic_add(count_ptr, 1, sem=SEM)
    if done == SIZE - 1:
        tl.store(y_ptr, tl.sum(tl.load(partial_ptr + at)))
    elif HOW == "nobody asks":
        tl.store(y_ptr + 1 + program, tl.sum(tl.load(partial_ptr + at)))


def check_the_last_program():
    """Who is last finds what all others have added, if the count says so with acquire and release."""
    full = torch.tensor([N * (N + 1) / 2])
    run = lambda y, how, sem: last_kernel[(N,)](integers(), torch.zeros(N), y, N, how, sem)  # noqa: E731
    for how in ("added", "stored"):
        assert wrong(run, full, how, "acq_rel") == (0, [])
    count, said = wrong(run, full, "added", "relaxed")
    assert count > len(SEEDS) // 2
    says(Exception(said[0]), "they meet at partial_ptr[0]", "loads it")


@triton.jit
def reversed_kernel(flag_ptr, y_ptr, n):
    program = tl.program_id(0)
    y = 0.0
    if program < n - 1:
        while tl.atomic_add(flag_ptr + program + 1, 0) == 0:
            pass
        y = tl.load(y_ptr + program + 1)
    tl.store(y_ptr + program, y + 1.0)
    tl.atomic_xchg(flag_ptr + program, 1)


@triton.jit
def barrier_kernel(count_ptr, x_ptr, y_ptr, n):
    program = tl.program_id(0)
    tl.store(x_ptr + program, program + 1.0)
    tl.atomic_add(count_ptr, 1)
    while tl.atomic_add(count_ptr, 0) < n:
        pass
    tl.store(y_ptr + program, tl.load(x_ptr + (program + 1) % n))


def check_waiting_for_later_programs():
    """Programs may wait for those that begin after them, and all for all."""
    later, around = torch.arange(N, 0.0, -1), torch.arange(1.0, 41).roll(-1)
    assert wrong(lambda y: reversed_kernel[(N,)](integers(N), y, N), later) == (0, [])
    assert wrong(lambda y: barrier_kernel[(40,)](integers(), torch.zeros(40), y, 40), around) == (0, [])


def check_a_barrier_of_many():
    """As many again begin where all sleep, so that few look for those that have not begun."""
    n = 100
    around = torch.arange(1.0, n + 1).roll(-1)
    with mock.patch.object(programs, "_TOO_MANY", 30 * n):
        assert wrong(lambda y: barrier_kernel[(n,)](integers(), torch.zeros(n), y, n), around) == (0, [])


def check_deadlocks():
    """Who waits for ever is told where, and for what."""
    n = 3
    fault = raised(Deadlock, reversed_kernel[(n,)], integers(n + 1), torch.zeros(n), n + 1)
    says(fault, "deadlock: 3 programs wait", "program (2, 0, 0) waits for flag_ptr[3]", "while tl.atomic_add(flag_ptr")
    fault = raised(Deadlock, barrier_kernel[(n,)], integers(), torch.zeros(n), torch.zeros(n), n + 1)
    says(fault, "program (0, 0, 0) waits for count_ptr[0]")
    n = 132 * 2 + 1  # of 32 warps a multiprocessor holds two programs
    launch = barrier_kernel[(n,)]
    launch(integers(), torch.zeros(n), torch.zeros(n), n)
    fault = raised(Deadlock, launch, integers(), torch.zeros(n), torch.zeros(n), n, num_warps=32)
    says(fault, "a GPU holds at most 264 at once: 1 more have not begun")


@triton.jit
def watched_kernel(count_ptr, order_ptr, x_ptr, y_ptr, SIZE: tl.constexpr, MANY: tl.constexpr, IS_HONEST: tl.constexpr):
    program, at = tl.program_id(0), tl.arange(0, SIZE)
    tl.store(order_ptr + tl.atomic_add(count_ptr, 1), program)
    tl.atomic_add(count_ptr + 1, 1)
    while tl.atomic_add(count_ptr + 1, 0) < SIZE:
        pass
    y = 1.0
    if IS_HONEST | (tl.sum(tl.abs(tl.load(order_ptr + at) - at)) != 0):
        y = tl.sum(tl.load(x_ptr + tl.arange(0, MANY)))
    tl.store(y_ptr + program, y)


def check_work_that_is_done_in_another_order_alone():
    """Who does less work where programs run one after the other is told to staff, and who does the same is not."""
    for is_honest in (True, False):
        doubts = list[str]()
        for seed in SEEDS:
            with calls.Call(seed=seed) as seen:
                watched_kernel[(N,)](integers(2), integers(N), torch.ones(1024), torch.zeros(N), N, 1024, is_honest)
            doubts += seen.doubts
        assert len(doubts) == 0 if is_honest else len(doubts) > len(SEEDS) // 3, doubts


@triton.jit
def unwritten_kernel(count_ptr, fresh_ptr, y_ptr, n):
    program = tl.program_id(0)
    tl.atomic_add(count_ptr, 1)
    while tl.atomic_add(count_ptr, 0) < n:
        pass
    tl.store(y_ptr + program, 1.0 - (tl.load(fresh_ptr + program) % 2).to(tl.float32))


def check_what_is_unwritten_after_waiting():
    """A program that has slept is not run again alone; what it loads unwritten is something else in the other run."""
    run = lambda y, make: unwritten_kernel[(N,)](integers(), make(N, dtype=torch.int32), y, N)  # noqa: E731
    assert wrong(run, torch.ones(N), torch.zeros)[0] == 0
    assert wrong(run, torch.ones(N), torch.empty)[0] > len(SEEDS) // 3


@triton.jit
def lanes_kernel(count_ptr, y_ptr, SIZE: tl.constexpr):
    lanes = tl.arange(0, SIZE)
    tl.atomic_max(count_ptr + lanes * 0, lanes + tl.program_id(0))
    tl.atomic_max(count_ptr + lanes * 0, lanes * 0)
    if tl.atomic_add(count_ptr + 1, 1) == tl.num_programs(0) - 1:
        tl.store(y_ptr, tl.atomic_add(count_ptr, 0).to(tl.float32))


def check_lanes_at_one_element():
    """Lanes that all update one element, and do not change it, wait for nobody."""
    expected = torch.tensor([N - 1.0 + 15])
    assert wrong(lambda y: lanes_kernel[(N,)](integers(2), y, 16), expected)[0] == 0


@triton.jit
def flags_kernel(flags_ptr, x_ptr, y_ptr, P: tl.constexpr, HOW: tl.constexpr):
    program, lanes = tl.program_id(0), tl.arange(0, P)
    tl.store(x_ptr + program, program + 1.0)
    tl.debug_barrier()
    if HOW == "signals":
        tl.atomic_add(flags_ptr + lanes, 1, sem="release")
        while tl.atomic_add(flags_ptr + program, 0, sem="acquire") < P:
            pass
    else:
        tl.atomic_xchg(flags_ptr + program, 1, sem="release")
        if HOW == "atomics":
            while tl.min(tl.atomic_or(flags_ptr + lanes, 0, sem="acquire")) == 0:
                pass
        else:
            many = tl.arange(0, 4 * P)
            while tl.min(tl.load(flags_ptr + many, mask=many < P, other=1, volatile=True)) == 0:
                pass
    tl.debug_barrier()
    tl.store(y_ptr + program, tl.sum(tl.load(x_ptr + lanes)))


def check_waiting_for_blocks():
    """Programs wait for several flags at once, whose lanes order what comes before and after; no byte is doubted."""
    for how in ("signals", "atomics", "loads"):
        launch = lambda y, how=how: flags_kernel[(N,)](integers(N), torch.empty(N), y, N, how)  # noqa: E731
        assert wrong(launch, torch.full((N,), N * (N + 1) / 2)) == (0, []), how
        with calls.Call() as seen:
            launch(torch.empty(N))
        assert not seen.doubts


@triton.jit
def handed_kernel(flag_ptr, x_ptr, y_ptr):
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    found = 0.0
    if program > 0:
        while tl.atomic_load(flag_ptr + program - 1, sem="relaxed") == 0:
            pass
        tl.atomic_load(flag_ptr + program - 1, sem="acquire")
        tl.debug_barrier()
        found = tl.load(x_ptr + program - 1)
    tl.store(x_ptr + program, found + 1.0)
    tl.debug_barrier()
    tl.atomic_xchg(flag_ptr + program, 1, sem="release")
    tl.store(y_ptr + program, found)


def check_orders_of_loads_stay_their_own():
    """A load that acquires does so too where another program loads in between."""
    if not hasattr(tl, "atomic_load"):  # before Triton 3.9
        return
    launch = lambda y: handed_kernel[(N,)](integers(N), torch.zeros(N), y)  # noqa: E731
    assert wrong(launch, torch.arange(float(N)))[0] == 0


@triton.jit
def signalled_kernel(flag_ptr, x_ptr, y_ptr, EXPECTED: tl.constexpr):
    if tl.program_id(0) == 0:
        tl.store(x_ptr, 3.0)
        tl.atomic_cas(flag_ptr, EXPECTED, 2, sem="release")
        tl.atomic_xchg(flag_ptr, 1, sem="relaxed")
    else:
        while tl.atomic_add(flag_ptr, 0, sem="acquire") != 1:
            pass
        tl.store(y_ptr, tl.load(x_ptr))


def check_a_comparison_that_fails_releases_nothing():
    """A compare-and-swap releases what its program did before where it stores, and only there."""
    launch = lambda y, expected: signalled_kernel[(2,)](integers(), torch.zeros(1), y, expected)  # noqa: E731
    assert wrong(launch, torch.full((1,), 3.0), 0) == (0, [])
    n_wrong, said = wrong(launch, torch.full((1,), 3.0), 7)
    assert n_wrong
    assert said
