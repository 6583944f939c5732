"""Several ranks in one process: right kernels pass on every seed, and mistakes are told by rank and line."""
# mypy: disable-error-code="attr-defined"

from collections.abc import Callable
from functools import partial

import torch
import triton
import triton.language as tl

from assignment.simulator.calls import Call
from assignment.simulator.faults import MemoryFault
from assignment.simulator.ranks import World
from assignment.tests.constructs.checks.common import raised, says

SEEDS = range(20)
ROWS, BLOCK = 24, 16  # elements of a rank's shard, and of a program's block


class One:
    """What host code of one rank has."""

    def __init__(self, number: int, n_ranks: int) -> None:
        self.number, self.n_ranks = number, n_ranks
        self.shard = torch.zeros(ROWS)
        self.buffer, self.signals = torch.empty(ROWS), torch.zeros(64, dtype=torch.int32)
        self.out = torch.zeros(n_ranks, ROWS)
        self.buffers, self.pads = torch.zeros(2, n_ranks, dtype=torch.int64)
        self.call = 0


Host = Callable[[One], None]  # code of a rank
N_CALLS = 3


def world(n_ranks: int, seed: int) -> tuple[World, list[One]]:
    """Return ranks with a buffer and signals on the heap."""
    ranks = [One(number, n_ranks) for number in range(n_ranks)]
    made = World([Call(inputs=[one.shard, one.buffers, one.pads], seed=seed) for one in ranks])
    for one in ranks:
        made.share(one.number, "buffer", one.buffer)
        made.share(one.number, "signals", one.signals)
        one.buffers.copy_(torch.tensor([other.buffer.data_ptr() for other in ranks]))
        one.pads.copy_(torch.tensor([other.signals.data_ptr() for other in ranks]))
    return made, ranks


def play(host: Host, n_ranks: int, seed: int) -> World:
    """Gather the shards of all ranks, again and again on the same buffers."""
    made, ranks = world(n_ranks, seed)
    for call in range(1, N_CALLS + 1):
        for one in ranks:
            one.shard.copy_(torch.arange(ROWS) + 100 * one.number + 1000 * call)
            one.call = call
        made.play([partial(host, one) for one in ranks])
        for one in ranks:
            assert torch.equal(one.out, torch.stack([other.shard for other in ranks])), (n_ranks, seed, call)
    return made


def passes(host: Host) -> None:
    """A right kernel passes on all seeds, with any number of ranks."""
    for n_ranks in (1, 2, 3, 4):
        for seed in SEEDS:
            play(host, n_ranks, seed)


def told(host: Host, *parts: str, n_ranks: int = 2) -> None:
    """A mistake is told on all seeds, in these words and with the rank."""
    for seed in SEEDS:
        fault = raised(MemoryFault, play, host, n_ranks, seed)
        says(fault, "on rank", *parts)
        assert fault.rank in range(n_ranks)


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
    elif HOW == "wait at the scope of the GPU":
        while tl.atomic_add(signals + number, 0, sem="acquire", scope="gpu") < count:
            pass
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
def pull_kernel(buffers, out, n, BLOCK: tl.constexpr, HOW: tl.constexpr):
    r, at = tl.program_id(1), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n + (HOW == "out of bounds")
    source = tl.load(buffers + r).to(tl.pointer_type(tl.float32))
    tl.store(out + r * n + at, tl.load(source + at, mask=mask), mask=at < n)


def pull(one: One, how: str = "") -> None:
    """Copy to the own buffer, meet, copy from all buffers, and meet before the buffer is used again."""
    n, grid = one.n_ranks, (triton.cdiv(ROWS, BLOCK),)
    copy_kernel[grid](one.shard, one.buffer, ROWS, BLOCK)
    if how != "no barrier":
        barrier_kernel[1,](one.signals, one.pads, 0, one.number, n, one.call, how)
    pull_kernel[*grid, n](one.buffers, one.out, ROWS, BLOCK, how)
    if how != "no barrier at the end":
        barrier_kernel[1,](one.signals, one.pads, n, one.number, n, one.call, "")


def check_pulling():
    """Pulling between two barriers of signals passes."""
    passes(pull)


def check_pull_mistakes():
    """What is missing at a barrier is told."""
    for how in ("no barrier", "no wait"):
        told(partial(pull, how=how), "race", "rank 1", "has not waited for a signal")
    told(partial(pull, how="no barrier at the end"), "race", "it is used again before it was read")
