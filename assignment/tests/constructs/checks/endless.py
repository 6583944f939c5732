"""Loops that never end, and those of which nothing proves that."""

# mypy: disable-error-code="attr-defined"

import torch
import triton
import triton.language as tl

from assignment.simulator.faults import Endless
from assignment.tests.constructs.checks.common import raised, says


@triton.jit
def idle_kernel(x_ptr, y_ptr, n, SIZE: tl.constexpr):
    start = 0
    total = tl.zeros((SIZE,), tl.float32)
    while start < n:
        total += tl.load(x_ptr + tl.arange(0, SIZE))
    tl.store(y_ptr + tl.arange(0, SIZE), total)


def check_a_variable_that_nobody_moves():
    """The message names the line, what the condition depends on and how often the loop went round."""
    fault = raised(Endless, idle_kernel[(2,)], torch.ones(16), torch.zeros(16), 64, SIZE=16)
    says(fault, "endless loop: program (", "of idle_kernel never leaves it", "in idle_kernel: while start < n:")
    says(fault, "it went round 101 times", "n = 64, start = 0", "assign to it in each turn")


@triton.jit
def step_kernel(y_ptr, n, step):
    start = 0
    width = step * 2
    while start < n:
        nxt = start + tl.maximum(step, 0)
        if start < 5:
            nxt = start + width
        start = nxt
    tl.store(y_ptr, start)


def check_a_step_of_zero():
    """The same loop ends where the step is not zero."""
    says(raised(Endless, step_kernel[(1,)], torch.zeros(1, dtype=torch.int32), 8, 0), "start = 0", "step = 0")
    y = torch.zeros(1, dtype=torch.int32)
    step_kernel[(1,)](y, 500, 1)
    assert y.item() == 500


@triton.jit
def waiting_kernel(flag_ptr, y_ptr, n):
    seen = tl.load(flag_ptr)
    turns = 0
    while seen < n:
        tl.store(flag_ptr, seen + (turns > 150).to(tl.int32))
        turns += 1
        seen = tl.load(flag_ptr)
    tl.store(y_ptr, turns)


def check_what_memory_decides_is_not_proven():
    """For 150 turns nothing changes but a count, on which the condition does depend, by way of memory."""
    y = torch.zeros(1, dtype=torch.int32)
    waiting_kernel[(1,)](torch.zeros(1, dtype=torch.int32), y, 1)
    assert y.item() == 152


@triton.jit
def pausing_kernel(y_ptr, limit):
    i = 0
    turns = 0
    while (i < limit) & (i < 10):
        turns += 1
        i = turns // 150
    tl.store(y_ptr, turns)


def check_a_pause_of_150_turns_is_no_end():
    """A variable on which the condition depends by way of another changes in each turn."""
    y = torch.zeros(1, dtype=torch.int32)
    pausing_kernel[(1,)](y, 2)
    assert y.item() == 300
