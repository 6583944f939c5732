"""A recorded program in words."""

from dataclasses import replace

import pytest

from assignment.judge import transcript
from assignment.protocol.program import Constant, Free, HostLine, Inputs, Launch, Operation, Program, Read, Repeat, View

PROGRAM = Program(
    views=[View(0, "float32", 16384, (2, 3), (3, 1)), View(1, "float32", 0, (2,), (1,))],
    operations=["aten::sum.dim_IntList"],
    lines=[HostLine("cs336_kernels/rmsnorm.py", 4, "rmsnorm")],
    steps=[
        Inputs([0]),
        Operation(0, [{"t": 0}, [1], False], {"dtype": {"dtype": "float32"}}, [1], 0),
        Launch(0, [4, 1, 1], {"x_ptr": {"t": 0}, "n": 3}, {"num_warps": 4}, None, False, 0),
        Read("tolist", [], 0),
        Constant(7, "", 0),
        Free([0]),
        Repeat(),
    ],
)
KERNELS = ["sum_kernel"]


def test_each_step_stands_below_its_line():
    place = "cs336_kernels/rmsnorm.py:4 in rmsnorm"
    assert transcript.lines(PROGRAM, KERNELS) == [
        "   1 ",
        "     the inputs are t0 float32 (2, 3)",
        f"   2 {place}",
        "     aten::sum.dim_IntList(t0 float32 (2, 3), [1], False, float32) → t1 float32 (2)",
        f"   3 {place}",
        "     launch sum_kernel[4, 1, 1](x_ptr=t0 float32 (2, 3), n=3, num_warps=4)",
        f"   4 {place}",
        "     tolist reads a value, a stand-in's",
        f"   5 {place}",
        "     t7 is memory that no operation made",
    ]


@pytest.mark.parametrize("n_steps", [transcript.MAX_STEPS, transcript.MAX_STEPS + 1, 1000])
def test_a_long_program_is_told_without_its_middle(n_steps):
    told = transcript.lines(replace(PROGRAM, steps=[Read("item", [], 0)] * n_steps), KERNELS)
    left_out = n_steps - transcript.MAX_STEPS
    assert len(told) == 2 * transcript.MAX_STEPS + (left_out > 0)
    assert (f"     … {left_out} steps more …" in told) == (left_out > 0)
    assert told[-2].startswith(f"{n_steps:>4} ")
