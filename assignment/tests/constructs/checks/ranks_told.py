"""Mistakes between ranks are told by rank and line, on every seed."""
# mypy: disable-error-code="attr-defined"

from functools import partial

import torch
import triton
import triton.language as tl

from assignment.simulator.faults import MemoryFault
from assignment.tests.constructs.checks.common import raised, says
from assignment.tests.constructs.checks.ranks import (
    BLOCK,
    ROWS,
    SEEDS,
    Host,
    One,
    barrier_kernel,
    copy_kernel,
    play,
    pull,
    push,
    returns,
    ring,
    world,
)


def told(host: Host, *parts: str, n_ranks: int = 2) -> None:
    """A mistake is told on all seeds, in these words and with the rank."""
    for seed in SEEDS:
        fault = raised(MemoryFault, play, host, n_ranks, seed)
        says(fault, "on rank", *parts)
        assert fault.rank in range(n_ranks)


def is_wrong(host: Host, seed: int) -> bool:
    """Return whether a mistake is told, or gives something else."""
    try:
        play(host, 2, seed)
    except (MemoryFault, AssertionError):
        return True
    return False


def check_pull_mistakes():
    """What is missing at a barrier is told."""
    for how in ("no barrier", "no wait"):
        told(partial(pull, how=how), "race", "rank 1", "has not waited for a signal")
    told(partial(pull, how="gives up"), "race", "tl.load(source + at, mask=mask, ")
    for how in ("no barrier at the end", "host, no barrier at the end", "volatile, no barrier at the end"):
        told(partial(pull, how=how), "race", "it is used again before it was read")
    told(partial(pull, how="host, no barrier"), "race", "host code of rank", "buffer[")
    told(partial(pull, how="relaxed"), "race", 'signals without sem="release"', 'sem="relaxed", scope="sys"')
    for how in ("relaxed wait", "volatile wait"):
        told(partial(pull, how=how), "race", 'the wait has no sem="acquire" at scope="sys"', "while tl.")
    for how in ("at the scope of the GPU", "wait at the scope of the GPU"):
        told(partial(pull, how=how), "race", 'at scope="gpu"', "a signal between ranks needs scope", "signals[")
    told(partial(pull, how="plain"), "race", "'s signals[")
    told(partial(pull, how="plain wait"), "race", "'s signals[", "look by an atomic")


def check_a_ring_that_does_not_end():
    """Ranks that wait for each other are told, and what for."""
    told(partial(ring, how="never taken"), "deadlock", "2 programs wait (ranks 0, 1)", "signals[33], which stays 1")


def check_out_of_bounds():
    """Beyond another rank's tensor lies nothing, though memory may."""
    told(partial(pull, how="out of bounds"), "out of bounds", "'s buffer[24]", "float32 (24,)")


def check_push_mistakes():
    """A signal that is too early, missing, or not waited for, and a buffer that is used too early, are told."""
    told(partial(push, how="used again"), "race", "it is used again before it was read")
    told(partial(push, how="signal before the last store"), "race", "signal after the last store", "gathered[")
    assert sum(is_wrong(partial(push, how="waits for one too few"), seed) for seed in SEEDS) > 0.9 * len(SEEDS)
    told(
        partial(push, how="no signal"),
        "deadlock",
        "signals[0], which stays 3",
        "of push_kernel on rank 0 has sent it",
    )


@triton.jit
def last_kernel(signals, n):
    if tl.program_id(0) == n - 1:
        tl.atomic_xchg(signals, 1, sem="release", scope="sys")
    else:
        while tl.atomic_add(signals, 0, sem="acquire", scope="sys") < 1:
            pass


def check_who_sends_comes_last():
    """A GPU holds a part of a launch's programs, those that come first."""
    for n, is_whole in ((264, False), (265, True), (265, False)):
        made, [one] = world(1, 0)
        hosts = [partial(returns, one.out, last_kernel[n,], one.signals, n, launch_cooperative_grid=is_whole)]
        if n == 264 or is_whole:
            made.play(hosts)
        else:
            says(
                raised(MemoryFault, made.play, hosts),
                "1 program of last_kernel on rank 0 has not begun",
                "264 programs wait",
            )


@triton.jit
def reach_kernel(x_ptr, addresses, out, RANK: tl.constexpr, N: tl.constexpr):
    source = tl.load(addresses + (RANK + 1) % N).to(tl.pointer_type(tl.float32))
    tl.store(out, tl.load(source))


def check_memory_of_another_rank():
    """What is not on the heap cannot be reached by its address."""
    made, ranks = world(2, 0)
    addresses = torch.tensor([one.shard.data_ptr() for one in ranks])
    launch = lambda one: reach_kernel[1,](one.shard, addresses, one.out, one.number, 2)  # noqa: E731
    hosts = [partial(returns, one.out, launch, one) for one in ranks]
    says(
        raised(MemoryFault, made.play, hosts),
        "out of bounds",
        "a tensor of rank",
        "not on the symmetric heap",
        "tl.load(source)",
    )


@triton.jit
def table_kernel(x_ptr, addresses):
    source = tl.load(addresses.to(tl.pointer_type(tl.pointer_type(tl.float32))))
    tl.store(source, tl.load(x_ptr))


def check_a_table_of_pointers():
    """Addresses come as integers; a pointer that is loaded is refused where it is."""
    made, [one] = world(1, 0)
    host = partial(returns, one.out, table_kernel[1,], one.shard, one.buffers)
    says(raised(NotImplementedError, made.play, [host]), "load an int64, and cast it to a pointer")


@triton.jit
def sum_kernel(buffers, out, n, BLOCK: tl.constexpr, HOW: tl.constexpr):
    source = tl.load(buffers + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, BLOCK)
    x = tl.load(source + at, mask=at < n)
    if HOW == "left out":
        x = tl.where(at < 4, x, 0.0)
    tl.store(out + tl.program_id(0) + tl.arange(0, 1), tl.sum(x))


def check_what_nothing_has_stored():
    """Elements of the heap that nothing has stored are told where they are used, and not where they are left out."""

    def host(one: One, how: str) -> None:
        copy_kernel[1,](one.shard, one.buffer, 4, BLOCK)
        barrier_kernel[1,](one.signals, one.pads, 0, one.number, 2, 1, "")
        sum_kernel[2,](one.buffers, one.out, ROWS, 32, how)

    for how in ("used", "left out"):
        made, ranks = world(2, 0)
        hosts = [partial(returns, one.out, host, one, how) for one in ranks]
        if how == "used":
            says(
                raised(MemoryFault, made.play, hosts),
                "unwritten memory",
                "'s buffer[4], which was never written",
                "x = tl.load(",
            )
        else:
            made.play(hosts)


@triton.jit
def flag_kernel(flag, out):
    if tl.program_id(0) == 0:
        tl.atomic_xchg(flag, 1, sem="release")
    else:
        while tl.atomic_add(flag, 0, sem="acquire") != 1:
            pass
        tl.store(out, 1.0)


def check_a_flag_that_nothing_has_set():
    """A flag is told that a program looks at before another has set it: fresh memory holds anything."""
    n_told = 0
    for seed in SEEDS:
        made, [one] = world(1, seed)
        made.play([partial(returns, one.out, flag_kernel[2,], torch.zeros(1, dtype=torch.int32), one.out)])
        try:
            made.play([partial(returns, one.out, flag_kernel[2,], torch.empty(1, dtype=torch.int32), one.out)])
        except MemoryFault as fault:
            says(fault, "unwritten memory", "flag[0], which was never written", "!= 1")
            n_told += 1
    assert n_told > 0.2 * len(SEEDS)


def check_bytes_between_ranks():
    """What each launch moves over a link is counted: distinct bytes, and those that were asked for."""
    made = play(pull, 2, 0)
    pulled = {(one.n_launch, *one[2:]) for one in made.transfers if one.kernel.startswith("pull_kernel")}
    assert pulled == {(n, origin, 1 - origin, 4 * ROWS, 4 * ROWS) for n in (3, 7, 11) for origin in (0, 1)}
