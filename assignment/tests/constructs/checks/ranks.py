"""Several ranks in one process: right kernels pass on every seed (what is told of wrong ones: ranks_told.py)."""
# mypy: disable-error-code="attr-defined"

import os
from collections.abc import Callable, Sequence
from functools import partial

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from assignment.simulator.calls import Call
from assignment.simulator.ranks import World

SEEDS = range(int(os.environ.get("SEEDS", "5")))
ROWS, BLOCK = 24, 16  # elements of a rank's shard, and of a program's block


class One:
    """What host code of one rank has."""

    def __init__(self, number: int, n_ranks: int) -> None:
        self.number, self.n_ranks = number, n_ranks
        self.shard = torch.zeros(ROWS)
        self.buffer, self.signals = torch.empty(ROWS), torch.zeros(64, dtype=torch.int32)
        self.out = torch.zeros(n_ranks, ROWS)
        self.buffers, self.pads = torch.zeros(2, n_ranks, dtype=torch.int64)
        self.gathered, self.all = torch.empty(n_ranks, ROWS), torch.zeros(n_ranks, dtype=torch.int64)
        self.call = 0


Host = Callable[[One], None]  # code of a rank


def world(n_ranks: int, seed: int) -> tuple[World, list[One]]:
    """Return ranks with a buffer and signals on the heap."""
    ranks = [One(number, n_ranks) for number in range(n_ranks)]
    made = World([Call(inputs=[one.shard, one.buffers, one.pads], seed=seed) for one in ranks])
    for one in ranks:
        made.share(one.number, "buffer", one.buffer)
        made.share(one.number, "signals", one.signals)
        made.share(one.number, "gathered", one.gathered)
        one.buffers.copy_(torch.tensor([other.buffer.data_ptr() for other in ranks]))
        one.all.copy_(torch.tensor([other.gathered.data_ptr() for other in ranks]))
        one.pads.copy_(torch.tensor([other.signals.data_ptr() for other in ranks]))
    return made, ranks


def returns(
    out: torch.Tensor, host: Callable, *given: One | int | str | torch.Tensor, **named: bool
) -> list[torch.Tensor]:
    """Run host code of a rank; returns its result."""
    host(*given, **named)
    return [out]


def play(host: Host, n_ranks: int, seed: int, n_calls: int = 3) -> World:
    """Gather the shards of all ranks, again and again on the same buffers."""
    made, ranks = world(n_ranks, seed)
    for call in range(1, n_calls + 1):
        for one in ranks:
            one.shard.copy_(torch.arange(ROWS) + 100 * one.number + 1000 * call)
            one.call = call
        made.play([partial(returns, one.out, host, one) for one in ranks])
        for one in ranks:
            assert torch.equal(one.out, torch.stack([other.shard for other in ranks])), (n_ranks, seed, call)
    return made


def passes(host: Host, seeds: Sequence[int] = SEEDS) -> None:
    """A right kernel passes on all seeds, with any number of ranks."""
    for n_ranks in (1, 2, 3, 4):
        for seed in seeds:
            play(host, n_ranks, seed, 2)


@triton.jit
def signal(pads, rank, number, HOW: tl.constexpr = ""):
    """Count one up on another rank."""
    pad = tl.load(pads + rank).to(tl.pointer_type(tl.int32)) + number
    if HOW == "at the scope of the GPU":
        tl.atomic_add(pad, 1, sem="release", scope="gpu")
    elif HOW == "relaxed":
        tl.atomic_add(pad, 1, sem="relaxed", scope="sys")
    elif HOW == "plain":
        tl.store(pad, tl.load(pad) + 1)
    else:
        tl.atomic_add(pad, 1, sem="release", scope="sys")


@triton.jit
def wait(signals, number, count, HOW: tl.constexpr = ""):
    """Wait until so many were counted."""
    if HOW == "relaxed wait":
        while tl.atomic_add(signals + number, 0, sem="relaxed", scope="sys") < count:
            pass
    elif HOW == "volatile wait":
        while tl.load(signals + number, volatile=True) < count:
            pass
    elif HOW == "plain wait":
        while tl.load(signals + number) < count:
            pass
    elif HOW == "wait at the scope of the GPU":
        while tl.atomic_add(signals + number, 0, sem="acquire", scope="gpu") < count:
            pass
    elif HOW == "gives up":
        turns = 0
        while (tl.atomic_add(signals + number, 0, sem="acquire", scope="sys") < count) & (turns < 500):
            turns += 1
    elif HOW != "no wait":
        while tl.atomic_add(signals + number, 0, sem="acquire", scope="sys") < count:
            pass


@triton.jit
def barrier_kernel(signals, pads, FIRST: tl.constexpr, RANK: tl.constexpr, N: tl.constexpr, call, HOW: tl.constexpr):
    for r in tl.static_range(N):
        signal(pads, r, FIRST + RANK, HOW)
    for r in tl.static_range(N):
        wait(signals, FIRST + r, call, HOW)


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


@triton.jit
def copy_tiles_kernel(x_tiles, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, x_tiles.load([tl.program_id(0) * BLOCK]), mask=at < n)


@triton.jit
def pull_kernel(buffers, buffer, out, n, rank, BLOCK: tl.constexpr, HOW: tl.constexpr):
    r, at = tl.program_id(1), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n + (HOW == "out of bounds")
    source = tl.load(buffers + r).to(tl.pointer_type(tl.float32))
    if HOW == "distance":
        source = buffer + (tl.load(buffers + r) - tl.load(buffers + rank)) // 4
    tl.store(out + r * n + at, tl.load(source + at, mask=mask, volatile=HOW[:8] == "volatile"), mask=at < n)


def pull(one: One, how: str = "") -> None:
    """Copy to the own buffer, meet, copy from all buffers, and meet before the buffer is used again."""
    n, grid = one.n_ranks, (triton.cdiv(ROWS, BLOCK),)
    if how.startswith("host"):
        one.buffer.copy_(one.shard)
    elif how == "tiles":
        copy_tiles_kernel[grid](TensorDescriptor.from_tensor(one.shard, [BLOCK]), one.buffer, ROWS, BLOCK)
    else:
        copy_kernel[grid](one.shard, one.buffer, ROWS, BLOCK)
    if not how.endswith("no barrier"):
        barrier_kernel[1,](one.signals, one.pads, 0, one.number, n, one.call, how)
    pull_kernel[*grid, n](one.buffers, one.buffer, one.out, ROWS, one.number, BLOCK, how)
    if not how.endswith("no barrier at the end"):
        barrier_kernel[1,](one.signals, one.pads, n, one.number, n, one.call, "")


def check_pulling():
    """Pulling between two barriers of signals passes, and so where PyTorch has copied the shard, or a descriptor.

    And by the distance of two ranks' addresses.
    """
    passes(pull)
    passes(partial(pull, how="distance"), SEEDS[:4])
    passes(partial(pull, how="host"), SEEDS[:4])
    passes(partial(pull, how="tiles"), SEEDS[:4])


@triton.jit
def push_kernel(
    x_ptr, buffers, signals, pads, n, call, RANK: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr, HOW: tl.constexpr
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    for r in tl.static_range(N):
        # that rank has read what the call before has pushed
        if HOW != "used again":
            wait(signals, N + r, (call - 1) * N)
        target = tl.load(buffers + r).to(tl.pointer_type(tl.float32)) + RANK * n
        if HOW == "signal before the last store":
            tl.store(target + at, x, mask=at < n - 4)
            signal(pads, r, RANK)
            tl.store(target + at, x, mask=(at < n) & (at >= n - 4))
        else:
            tl.store(target + at, x, mask=at < n)
            if HOW != "no signal" or RANK > 0 or tl.program_id(0) > 0 or call < 2:
                signal(pads, r, RANK)


@triton.jit
def read_kernel(buffer, signals, pads, out, n, call, count, RANK: tl.constexpr, BLOCK: tl.constexpr, HOW: tl.constexpr):
    r = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    wait(signals, r, call * count - (HOW == "waits for one too few"))
    tl.store(out + r * n + at, tl.load(buffer + r * n + at, mask=at < n), mask=at < n)
    # N programs of a rank tell each rank that they have read
    for q in range(tl.num_programs(0)):
        signal(pads, q, tl.num_programs(0) + RANK)


def push(one: One, how: str = "") -> None:
    """Push the own shard to all ranks with a signal from each program; signals count up over the calls."""
    n, count = one.n_ranks, triton.cdiv(ROWS, BLOCK)
    push_kernel[count,](one.shard, one.all, one.signals, one.pads, ROWS, one.call, one.number, n, BLOCK, how)
    read_kernel[n,](one.gathered, one.signals, one.pads, one.out, ROWS, one.call, count, one.number, 32, how)


def check_pushing():
    """Pushing with signals that count up passes."""
    passes(push)


@triton.jit
def put(pad):
    """Wait until a signal was taken, and set it."""
    while tl.atomic_cas(pad, 0, 1, sem="release", scope="sys") != 0:
        pass


@triton.jit
def take(pad):
    """Wait until a signal is set, and take it."""
    while tl.atomic_cas(pad, 1, 0, sem="acquire", scope="sys") != 1:
        pass


@triton.jit
def ring_kernel(
    x_ptr,
    buffers,
    gathered,
    signals,
    pads,
    out,
    n,
    RANK: tl.constexpr,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
    HOW: tl.constexpr,
):
    at = tl.arange(0, BLOCK)
    mask = at < n
    left, right = (RANK + N - 1) % N, (RANK + 1) % N
    x = tl.load(x_ptr + at, mask=mask)
    tl.store(out + RANK * n + at, x, mask=mask)
    target = tl.load(buffers + right).to(tl.pointer_type(tl.float32))
    theirs = tl.load(pads + right).to(tl.pointer_type(tl.int32))
    back = tl.load(pads + left).to(tl.pointer_type(tl.int32)) + 32
    for step in range(1, N):
        tl.store(target + step * n + at, x, mask=mask)
        put(theirs + step)
        take(signals + step)
        x = tl.load(gathered + step * n + at, mask=mask)
        tl.store(out + (RANK + N - step) % N * n + at, x, mask=mask)
        put(back + step)
        if HOW == "never taken":
            put(back + step)
        take(signals + 32 + step)


def ring(one: One, how: str = "") -> None:
    """Pass shards round, one step at a time."""
    arguments = one.shard, one.all, one.gathered, one.signals, one.pads, one.out
    ring_kernel[1,](*arguments, ROWS, one.number, one.n_ranks, 32, how)


def check_a_ring():
    """Signals that are put and taken by compare-and-swap pass, as in PyTorch's symmetric memory."""
    passes(ring)


@triton.jit
def own_copy_kernel(x_ptr, buffer, out, n, RANK: tl.constexpr, BLOCK: tl.constexpr):
    """Every program stores all rows, and loads some of them."""
    at = tl.arange(0, 32)
    tl.store(buffer + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)
    tl.debug_barrier()
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + RANK * n + at, tl.load(buffer + at, mask=at < n), mask=at < n)


def copy_again(one: One) -> None:
    """Pull, where several programs have copied the same rows to the own buffer."""
    own_copy_kernel[4,](one.shard, one.buffer, one.out, ROWS, one.number, 8)
    pull(one)


def check_the_same_values_stored_by_many():
    """A program may load what it has stored itself, though others have stored the same."""
    passes(copy_again, SEEDS[:4])


@triton.jit
def push_together_kernel(x_ptr, buffers, pads, count_ptr, n, RANK: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    for r in tl.static_range(N):
        tl.store(tl.load(buffers + r).to(tl.pointer_type(tl.float32)) + RANK * n + at, x, mask=at < n)
    if tl.atomic_add(count_ptr, 1, sem="acq_rel") == tl.num_programs(0) - 1:
        ranks = tl.arange(0, 4)
        all_pads = tl.load(pads + ranks, mask=ranks < N, other=0).to(tl.pointer_type(tl.int32))
        tl.atomic_add(all_pads + RANK, 1, mask=ranks < N, sem="release", scope="sys")


def push_together(one: One) -> None:
    """Push with one signal for each rank, by the last program, which knows of the others by a counter of the rank."""
    n, count = one.n_ranks, triton.cdiv(ROWS, BLOCK)
    zero = torch.zeros(1, dtype=torch.int32)
    push_together_kernel[count,](one.shard, one.all, one.pads, zero, ROWS, one.number, n, BLOCK)
    read_kernel[n,](one.gathered, one.signals, one.pads, one.out, ROWS, one.call, 1, one.number, 32, "")
    barrier_kernel[1,](one.signals, one.pads, 32, one.number, n, one.call, "")


def check_pushing_together():
    """A signal at scope="sys" passes on what programs of the rank have told each other at the scope of the GPU."""
    passes(push_together, SEEDS[:8])
