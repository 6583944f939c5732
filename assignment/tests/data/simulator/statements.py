"""What a kernel may say: loops, branches, logic; and how it is told what it may not."""
# mypy: disable-error-code="attr-defined"
# (in a kernel a loop variable is a tensor)

import sys
import traceback

if __name__ == "__main__":
    from assignment.simulator import install

    install()

import torch
import triton
import triton.language as tl
import triton.language.core as core

from assignment.simulator import control
from assignment.tests.data.simulator.common import raised, run_checks

LIMIT = tl.constexpr(3)


@triton.jit
def loop_kernel(y_ptr, n, start, stop, step):
    at = 0
    for i in range(n):
        tl.static_assert(i.dtype == tl.int32)
        tl.store(y_ptr + at, i.to(tl.int64))
        at += 1
    for i in range(start, stop, step):
        tl.static_assert(i.dtype == tl.int64)
        tl.store(y_ptr + at, i)
        at += 1
    for i in range(5, -1, -2):
        tl.store(y_ptr + at, i)
        at += 1
    for i in tl.range(0, n, num_stages=3, flatten=True, disallow_acc_multi_buffer=True, loop_unroll_factor=2):
        tl.store(y_ptr + at, i + 1)
        at += 1
    for i in core.static_range(2, 8, 3):
        tl.store(y_ptr + at, tl.max(tl.arange(0, 2 ** (i + 1)), 0))
        at += 1
    while at < 20:
        tl.store(y_ptr + at, -at)
        at += 1


def check_loops() -> None:
    """Loop variables are scalar tensors, int32 unless a bound is int64; static_range gives constants."""
    y = torch.zeros(20, dtype=torch.int64)
    loop_kernel[(1,)](y, 3, 2**40, 2**40 + 5, 3)
    expected = [0, 1, 2, 2**40, 2**40 + 3, 5, 3, 1, 1, 2, 3, 7, 63]
    assert y.tolist() == expected + [-i for i in range(len(expected), 20)]


@triton.jit
def changing_kernel(x_ptr, n):
    total = tl.load(x_ptr)
    for i in range(n):
        total += tl.load(x_ptr + i).to(tl.float32)
    tl.store(x_ptr, total)


def check_loop_carried_types() -> None:
    """A variable that changes its type in a loop is an error, as it is in the compiler."""
    changing_kernel[(1,)](torch.ones(4), 4)
    error = raised(TypeError, changing_kernel[(1,)], torch.ones(4).half(), 4)
    assert "total has initial type fp16 but is re-assigned to fp32" in str(error)


@triton.jit
def names_again_kernel(x_ptr, y_ptr, n, SIZE: tl.constexpr):
    total = tl.zeros((SIZE,), tl.float32)
    for start in range(0, n, SIZE):
        at = start + tl.arange(0, SIZE)
        x = tl.load(x_ptr + at, mask=at < n, other=0.0)
        total += x.to(tl.float32)
    for start in range(0, n, SIZE):
        at = (start + tl.arange(0, SIZE))[None, :]
        x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
        tl.store(y_ptr + at, x + tl.sum(total, 0), mask=at < n)


def check_names_come_back_in_another_loop() -> None:
    """What only a loop's body binds is forgotten after it: the next loop may give the name another type."""
    x, y = torch.ones(20, dtype=torch.float16), torch.zeros(20)
    names_again_kernel[(1,)](x, y, 20, SIZE=8)
    assert y.tolist() == [21.0] * 20


@triton.jit
def stub_kernel(x_ptr):
    raise NotImplementedError("write me")


def check_a_kernel_that_is_a_stub() -> None:
    """It says so as the wrapper around it would."""
    assert str(raised(NotImplementedError, stub_kernel[(1,)], torch.ones(4))) == "write me"


@triton.jit
def break_kernel(x_ptr, n, STOP: tl.constexpr):
    for i in range(n):
        if STOP:
            break
        tl.store(x_ptr + i, 1.0)


def check_unknown_syntax() -> None:
    """Python that the compiler does not know is an error where it is reached."""
    break_kernel[(1,)](torch.ones(4), 4, False)
    assert "`break`" in str(raised(TypeError, break_kernel[(1,)], torch.ones(4), 4, True))


@triton.jit
def block_truth_kernel(x_ptr):
    x = tl.load(x_ptr + tl.arange(0, 4))
    if x > 0:
        tl.store(x_ptr, 1.0)


def check_block_truth() -> None:
    """`if` on a block says what to write instead, and where."""
    error = raised(TypeError, block_truth_kernel[(1,)], torch.randn(4))
    assert "(4,)" in str(error)
    assert "tl.where" in str(error)
    frames = traceback.extract_tb(error.__traceback__)
    mine = [f for f in frames if f.filename == __file__ and f.name == "block_truth_kernel"]
    assert mine[0].line == "if x > 0:"


@triton.jit
def divide(a, b):
    return tl.no_such_function(a, b)


@triton.jit
def failing_kernel(x_ptr):
    x = tl.load(x_ptr)
    x = (
        x
        + divide(x, 2)
    )  # fmt: skip


def check_traceback() -> None:
    """An error keeps its type, and its traceback names the student's lines, nested functions too."""
    error = raised(AttributeError, failing_kernel[(1,)], torch.randn(4))
    lines = [f.line for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__]
    assert "+ divide(x, 2)" in lines
    assert "return tl.no_such_function(a, b)" in lines


@triton.jit
def logic_kernel(y_ptr, a, b, n, flag):
    both = a > 0 and b > 0
    tl.store(y_ptr, both)
    tl.store(y_ptr + 1, not both or n == 3)
    tl.store(y_ptr + 2, 10 if both else 20)
    tl.store(y_ptr + 3, flag)
    if flag and both:
        tl.store(y_ptr + 4, 1)
    elif flag:
        tl.store(y_ptr + 4, 2)
    else:
        tl.store(y_ptr + 4, 3)
    if n == LIMIT:
        return
    tl.store(y_ptr + 5, max(a, b) + LIMIT * a + min(a, 2))


def check_breakpoint() -> None:
    """A debugger stops in the kernel itself, for every program, where somebody is debugging."""

    def built() -> triton.JITFunction:
        @triton.jit
        def kernel(y_ptr):
            program = tl.program_id(0)
            breakpoint()
            tl.store(y_ptr + program, program)

        return kernel

    stops: list[str] = []

    def stop() -> None:
        stops.append(sys._getframe(1).f_code.co_name)

    hook, sys.breakpointhook = sys.breakpointhook, stop
    try:
        assert "breakpoint() needs a debugger" in str(raised(NameError, built()[(3,)], torch.zeros(3)))
        control.let_stop()
        built()[(3,)](torch.zeros(3))
    finally:
        sys.breakpointhook = hook
        control.DEBUGGED.clear()
    assert stops == ["kernel"] * 3, stops


def check_what_python_has_and_the_compiler_has_not() -> None:
    """As when it is compiled; a global with such a name is another matter."""

    @triton.jit
    def absolute(y_ptr):
        tl.store(y_ptr, abs(tl.load(y_ptr)))

    @triton.jit
    def executed(y_ptr):
        exec("1")
        tl.store(y_ptr, 1.0)

    for kernel, name in ((absolute, "abs"), (executed, "exec")):
        assert f"{name} is not defined" in str(raised(NameError, kernel[(1,)], torch.zeros(1)))


def check_logic() -> None:
    """and, or, not, if else, early return and bool arguments on scalar tensors."""
    y = torch.zeros(6, dtype=torch.int64)
    logic_kernel[(1,)](y, 4, -5, 2, True)
    assert y.tolist() == [0, 1, 20, 1, 2, 4 + 12 + 2]
    y.zero_()
    logic_kernel[(1,)](y, 4, 5, 3, False)
    assert y.tolist() == [1, 1, 10, 0, 3, 0]


if __name__ == "__main__":
    run_checks(globals())
