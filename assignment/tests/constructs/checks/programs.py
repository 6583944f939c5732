"""What a kernel sees of its arguments and of names around it, how it is launched, and where it stops."""
# mypy: disable-error-code="attr-defined"
# (in a kernel a loop variable is a tensor)

import sys
import traceback

import torch
import triton
import triton.language as tl
from triton import language as aliased
from triton.language import arange, load, store
from triton.tools.tensor_descriptor import TensorDescriptor

from assignment.simulator import control
from assignment.tests.constructs.checks.common import cast_kernel, raised


@triton.jit
def constant_one_kernel(y_ptr, stride):
    tl.store(y_ptr, stride.to(tl.int64))


@triton.jit(do_not_specialize=["stride"])
def unspecialized_kernel(y_ptr, stride):
    tl.store(y_ptr, stride.to(tl.int64))


@triton.jit
def annotated_kernel(y_ptr, stride: tl.int64, scale: tl.float64):
    tl.static_assert(stride.dtype == tl.int64)
    tl.static_assert(scale.dtype == tl.float64)
    tl.store(y_ptr, stride)


def check_argument_one() -> None:
    """The argument 1 is a constant, as in the compiler, unless the kernel says otherwise."""
    y = torch.zeros(1, dtype=torch.int64)
    constant_one_kernel[(1,)](y, 2)
    raised(AttributeError, constant_one_kernel[(1,)], y, 1)
    unspecialized_kernel[(1,)](y, 1)
    annotated_kernel[(1,)](y, 1, 1)
    assert y.item() == 1


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


def check_host_calls() -> None:
    """Outside a kernel tl's functions refuse to work, as on a GPU."""
    raised(RuntimeError, tl.cdiv, 7, 2)
    raised(ValueError, tl.arange, 0, 4)
    raised(RuntimeError, divide, 1, 2)
    assert triton.cdiv(7, 2) == 4


def check_grids() -> None:
    """A grid may be a tuple, a list or a function; one with a zero runs nothing; huge y is refused."""
    x, y = torch.randn(10), torch.zeros(10)
    cast_kernel[(0,)](x, y, 10, SIZE=16)
    cast_kernel[(1, 0)](x, y, 10, SIZE=16)
    assert y.abs().max() == 0
    cast_kernel[[1]](x, y, 10, SIZE=16, num_warps=2, num_stages=4)
    assert torch.equal(x, y)
    raised(RuntimeError, cast_kernel[(1, 70000)], x, y, 10, SIZE=16)
    raised(TypeError, cast_kernel[(1,)], x, y, SIZE=16)
    raised(KeyError, cast_kernel[(1,)], x, y, 10, SIZE=16, num_warp=2)
    cast_kernel[(1,)](x[:0], y[:0], 0, SIZE=16)
    y.zero_()
    warm = cast_kernel.warmup(x, y, 10, SIZE=16, grid=(1,))
    assert y.abs().max() == 0
    warm[(1,)](x, y, 10, 16)
    assert torch.equal(x, y)


def make_kernel(width: int):
    scale = tl.constexpr(width)

    @triton.jit
    def kernel(x_ptr, SIZE: tl.constexpr):
        at = tl.arange(0, SIZE)
        for i in range(scale):
            tl.store(x_ptr + at, tl.load(x_ptr + at) + i)

    return kernel


def check_closures() -> None:
    """Kernels made in functions."""
    x = torch.zeros(8)
    make_kernel(4)[(1,)](x, 8)
    assert (x == 6).all()


@triton.jit
def aliases_kernel(x_ptr, y_ptr):
    at = arange(0, 8)
    x = load(x_ptr + at)
    x = aliased.maximum(x, 0.0) + tl.abs(x) + tl.math.exp(x) + tl.exp2(x)
    store(y_ptr + at, x)


def check_aliases() -> None:
    """triton.language under any name, and names imported from it."""
    x, y = torch.randn(8), torch.empty(8)
    aliases_kernel[(1,)](x, y)
    assert torch.allclose(y, x.relu() + x.abs() + x.exp() + x.exp2())


tuning_log: list[str] = []


@triton.autotune(
    configs=[
        triton.Config({"SIZE": 999}),
        triton.Config({"SIZE": 16}, num_warps=8, pre_hook=lambda args: tuning_log.append(f"pre {args['n']}")),
    ],
    key=["n"],
    prune_configs_by={
        "early_config_prune": lambda configs, args, **kwargs: [c for c in configs if c.kwargs["SIZE"] < 99]
    },
    reset_to_zero=["y_ptr"],
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["SIZE"] == 0})
@triton.jit
def tuned_kernel(x_ptr, y_ptr, n, SIZE: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.static_assert((SIZE == 8) == EVEN)
    tl.atomic_add(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


@triton.autotune(configs=[triton.Config({}, num_warps=4), triton.Config({}, num_warps=8)], key=["n"])
@triton.jit
def forgetful_kernel(y_ptr, n):
    tl.store(y_ptr, tl.load(y_ptr) + 1)


def check_autotune() -> None:
    """The first configuration that survives pruning runs, with its hooks; the first call has a trial run."""
    x, y = torch.randn(24), torch.zeros(24)
    for _ in range(2):
        y.zero_()
        tuned_kernel[lambda meta: (triton.cdiv(24, meta["SIZE"]),)](x, y, 24)
        assert torch.equal(x, y)
    assert tuning_log == ["pre 24"] * 3
    assert tuned_kernel.best_config.kwargs == {"SIZE": 16}
    y = torch.zeros(1)
    forgetful_kernel[(1,)](y, 5)
    assert y.item() == 2  # the trial and the call
    forgetful_kernel[(1,)](y, 5)
    assert y.item() == 3


def check_device() -> None:
    """Host code that asks about the GPU hears of an H100."""
    properties = torch.cuda.get_device_properties(0)
    assert (properties.multi_processor_count, properties.major, properties.minor) == (132, 9, 0)
    assert torch.cuda.get_device_capability() == (9, 0)
    assert not torch.cuda.is_available()
    driver = triton.runtime.driver.active
    assert driver.get_current_target().arch == 90
    assert driver.utils.get_device_properties(driver.get_current_device())["multiprocessor_count"] == 132
    assert driver.utils.get_device_properties(0)["max_shared_mem"] == 232448
    with torch.cuda.device(torch.device("cpu")), torch.cuda.device_of(torch.zeros(1)):
        torch.cuda.synchronize()


def check_fresh_memory() -> None:
    """Memory that nobody has written is NaN."""
    x = torch.zeros(3, 4)
    fresh = [torch.empty(3), torch.empty_like(x), x.new_empty(3), torch.empty_strided((2, 2), (1, 2))]
    fresh += [torch.empty(0).resize_(4), torch.empty(3, dtype=torch.bfloat16), torch.empty(3, dtype=torch.float16)]
    assert all(t.isnan().all() for t in fresh)
    index = torch.tensor([0, 0, 1])
    x.index_add_(0, index, torch.ones(3, 4)).scatter_add_(0, index[:, None], torch.ones(3, 1))
    x[index] = 1.0
    assert x.cumsum(0).isfinite().all()


@triton.jit
def descriptor_kernel(x_ptr, y_desc, n, d, R: tl.constexpr, C: tl.constexpr):
    x_desc = tl.make_tensor_descriptor(x_ptr, [n, d], [d, 1], [R, C], padding_option="zero")
    row = tl.program_id(0) * R
    for col in range(0, d, C):
        y_desc.store([row, col], x_desc.load([row, col]) + 1)


def check_descriptors() -> None:
    """Descriptors of both kinds; one made in a kernel needs an allocator."""
    x, y = torch.randn(20, 24).half(), torch.zeros(20, 24).half()
    launch = lambda: descriptor_kernel[(2,)](x, TensorDescriptor.from_tensor(y, [16, 16]), 20, 24, 16, 16)  # noqa: E731
    raised(RuntimeError, launch)
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda"))
    launch()
    assert torch.equal(y, x + 1)


@triton.jit
def assert_kernel(x_ptr, n):
    assert n > 5, "n is small"
    tl.device_assert(n > 5, "n is small")
    tl.store(x_ptr, n)


def check_asserts() -> None:
    """assert and tl.device_assert are compiled away unless the launch says debug=True."""
    x = torch.zeros(1)
    assert_kernel[(1,)](x, 3)
    raised(AssertionError, assert_kernel[(1,)], x, 3, debug=True)
    assert_kernel[(1,)](x, 9, debug=True)
    assert x.item() == 9
