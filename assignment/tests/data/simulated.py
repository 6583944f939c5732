"""Checks that need the simulator: run by test_simulator.py in a process of their own.

    python assignment/tests/data/simulated.py        # prints one JSON object: check → traceback, or null

Each check is a function named check_*, whose docstring is its claim.
"""

# mypy: disable-error-code="attr-defined"
# (in a kernel a loop variable is a tensor)

import json
import sys
import traceback
import warnings

if __name__ == "__main__":
    from assignment.simulator import install

    install()

import torch
import triton
import triton.language as tl
import triton.language.core as core
from torch import Tensor
from triton import language as aliased
from triton.language import arange, load, store
from triton.tools.tensor_descriptor import TensorDescriptor

from assignment.simulator import control

LIMIT = tl.constexpr(3)
plain_global = 5


def raised(error: type[Exception], function, *args, **kwargs) -> Exception:
    """The exception of type `error` that the call raises."""
    try:
        function(*args, **kwargs)
    except error as caught:
        return caught
    raise AssertionError(f"{error.__name__} was not raised")


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, x.to(y_ptr.dtype.element_ty), mask=at < n)


def converted(x: Tensor, dtype: torch.dtype) -> Tensor:
    y = torch.empty(x.shape, dtype=dtype)
    copy_kernel[lambda meta: (triton.cdiv(x.numel(), meta["SIZE"]),)](x, y, x.numel(), SIZE=4096)
    return y


def check_all_16_bit_patterns() -> None:
    """Every bf16 and fp16 number goes to float32 and back unchanged, every NaN becomes the GPU's."""
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    for dtype in (torch.bfloat16, torch.float16):
        x = every.view(dtype)
        wide = converted(x, torch.float32)
        assert torch.equal(wide.nan_to_num(7.0), x.float().nan_to_num(7.0))
        back = converted(wide, dtype).view(torch.int16)
        assert torch.equal(back, torch.where(x.isnan(), 0x7FFF, every).to(torch.int16))


def check_rounding_to_16_bits() -> None:
    """float32 and float64 round to the nearest even 16-bit number, once."""
    bits = torch.randint(-(2**31), 2**31 - 1, (2**16,), generator=torch.Generator().manual_seed(0))
    x = bits.to(torch.int32).view(torch.float32)
    for dtype in (torch.bfloat16, torch.float16):
        got, expected = converted(x, dtype), x.to(dtype)
        assert torch.equal(got.nan_to_num(7.0), expected.nan_to_num(7.0))
    halfway = torch.tensor([1 + 2**-8, 1 + 2**-8 + 2**-40, 1 + 3 * 2**-8 - 2**-40, 1 + 3 * 2**-8], dtype=torch.float64)
    assert converted(halfway, torch.bfloat16).tolist() == [1.0, 1 + 2**-7, 1 + 2**-7, 1 + 2**-6]


def check_integers_round_once() -> None:
    """An integer too long for a 16-bit float is rounded once, not by way of float32 or float64."""
    x = torch.tensor([2**24 + 2**16 + 1, -(2**24 + 2**16 + 1), 2**61 + 2**53 + 1, -(2**61 + 2**53 + 1), 2**24 + 2**16])
    expected = [2**24 + 2**17, -(2**24 + 2**17), 2**61 + 2**54, -(2**61 + 2**54), 2**24]
    assert converted(x, torch.bfloat16).tolist() == expected
    assert converted(torch.tensor([65519, 65520, -65519, 2**40]), torch.float16).tolist() == [
        65504.0,
        float("inf"),
        -65504.0,
        float("inf"),
    ]


@triton.jit
def dot_kernel(a_ptr, b_ptr, y_ptr, PRECISION: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(y_ptr + at, tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at), input_precision=PRECISION))


def check_tf32_truncates() -> None:
    """tl.dot drops 13 mantissa bits of float32 operands unless it is told otherwise."""
    a, b = torch.randn(32, 32), torch.randn(32, 32)
    cut = lambda x: (x.view(torch.int32) & -8192).view(torch.float32).double()  # noqa: E731
    y = torch.empty(32, 32)
    for precision in (None, "tf32"):
        dot_kernel[(1,)](a, b, y, precision, 32)
        assert (y - cut(a) @ cut(b)).abs().max() < 1e-5
    dot_kernel[(1,)](a, b, y, "ieee", 32)
    assert (y - a.double() @ b.double()).abs().max() < 1e-5


def check_bf16_dot() -> None:
    """bf16 products are exact and summed in float32."""
    a, b = torch.randn(32, 32).bfloat16(), torch.randn(32, 32).bfloat16()
    y = torch.empty(32, 32)
    dot_kernel[(1,)](a, b, y, None, 32)
    assert (y - a.double() @ b.double()).abs().max() < 1e-5


def check_smallest_tile() -> None:
    """A tile that the GPU's tl.dot refuses is refused."""
    a = torch.randn(8, 8).half()
    raised(AssertionError, dot_kernel[(1,)], a, a, torch.empty(8, 8), None, 8)


@triton.jit
def typed_kernel(x_ptr, y_ptr, scale, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at)
    tl.static_assert((x * 2.0).dtype == tl.bfloat16)
    tl.static_assert((x * scale).dtype == tl.float32)
    tl.static_assert((x + x.to(tl.float32)).dtype == tl.float32)
    tl.static_assert(tl.sum(x, 0).dtype == tl.bfloat16)
    tl.static_assert((x / x).dtype == tl.float32)
    tl.store(y_ptr + at, x * 1.1)


def check_bf16_types() -> None:
    """bf16 meets Python numbers as bf16, float arguments as float32."""
    x = torch.randn(64).bfloat16()
    y = torch.empty(64)
    typed_kernel[(1,)](x, y, 0.5, 64)
    assert torch.equal(y, (x.float() * torch.tensor(1.1).bfloat16().float()).bfloat16().float())


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
def _divide(a, b):
    return tl.no_such_function(a, b)


@triton.jit
def failing_kernel(x_ptr):
    x = tl.load(x_ptr)
    x = (
        x
        + _divide(x, 2)
    )  # fmt: skip


def check_traceback() -> None:
    """An error keeps its type, and its traceback names the student's lines, nested functions too."""
    error = raised(AttributeError, failing_kernel[(1,)], torch.randn(4))
    lines = [f.line for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__]
    assert "+ _divide(x, 2)" in lines
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

    @triton.jit
    def kernel(y_ptr):
        program = tl.program_id(0)
        breakpoint()
        tl.store(y_ptr + program, program)

    stops: list[str] = []

    def stop() -> None:
        stops.append(sys._getframe(1).f_code.co_name)

    forbidden, hook, sys.breakpointhook = control.stop, sys.breakpointhook, stop
    try:
        assert "breakpoint is not defined" in str(raised(NameError, kernel[(3,)], torch.zeros(3)))
        control.let_stop()
        kernel[(3,)](torch.zeros(3))
    finally:
        sys.breakpointhook, control.stop = hook, forbidden
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
    assert "'int' object has no attribute 'to'" in str(raised(AttributeError, constant_one_kernel[(1,)], y, 1))
    unspecialized_kernel[(1,)](y, 1)
    annotated_kernel[(1,)](y, 1, 1)
    assert y.item() == 1


@triton.jit
def global_kernel(y_ptr):
    tl.store(y_ptr, plain_global)


def check_globals() -> None:
    """A kernel may read a global only if it is a constexpr."""
    assert "plain_global" in str(raised(NameError, global_kernel[(1,)], torch.zeros(1)))


def check_host_calls() -> None:
    """Outside a kernel tl's functions refuse to work, as on a GPU."""
    raised(RuntimeError, tl.cdiv, 7, 2)
    raised(ValueError, tl.arange, 0, 4)
    raised(RuntimeError, _divide, 1, 2)
    assert triton.cdiv(7, 2) == 4


def check_grids() -> None:
    """A grid may be a tuple, a list or a function; one with a zero runs nothing; huge y is refused."""
    x, y = torch.randn(10), torch.zeros(10)
    copy_kernel[(0,)](x, y, 10, SIZE=16)
    copy_kernel[(1, 0)](x, y, 10, SIZE=16)
    assert y.abs().max() == 0
    copy_kernel[[1]](x, y, 10, SIZE=16, num_warps=2, num_stages=4)
    assert torch.equal(x, y)
    raised(RuntimeError, copy_kernel[(1, 70000)], x, y, 10, SIZE=16)
    raised(TypeError, copy_kernel[(1,)], x, y, SIZE=16)
    raised(KeyError, copy_kernel[(1,)], x, y, 10, SIZE=16, num_warp=2)
    copy_kernel[(1,)](x[:0], y[:0], 0, SIZE=16)
    assert copy_kernel.warmup(x, y, 10, SIZE=16, grid=(1,)) is None


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
def accumulate_kernel(x_ptr, y_ptr, old_ptr, BINS: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    old = tl.atomic_add(y_ptr + at % BINS, tl.load(x_ptr + at), mask=at != 3)
    tl.store(old_ptr + at, old)


def check_atomics_in_order() -> None:
    """Lanes that share an address add one after the other, each rounding, and see the sum before them."""
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int32, torch.int64):
        x = (torch.randn(16) * 40).to(dtype)
        y, old = torch.ones(4, dtype=dtype), torch.ones(16, dtype=dtype)
        accumulate_kernel[(1,)](x, y, old, 4, 16)
        expected, seen = torch.ones(4, dtype=dtype), torch.zeros(16, dtype=dtype)
        for i in range(16):
            if i != 3:
                seen[i] = expected[i % 4]
                expected[i % 4] += x[i]
        assert torch.equal(y, expected)
        assert torch.equal(old, seen)


@triton.jit
def _farther_from_zero(a, b):
    if tl.abs(a) > tl.abs(b):
        return a
    return b


@triton.jit
def reductions_kernel(x_ptr, y_ptr, R: tl.constexpr, C: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :])
    at = tl.arange(0, R)
    tl.store(y_ptr + at, tl.reduce(x, 1, _farther_from_zero))
    tl.store(y_ptr + R + at, tl.max(x, 1))
    tl.store(y_ptr + 2 * R + at, tl.argmin(x, -1))
    tl.store(y_ptr + 3 * R + at, tl.sum(x, axis=1, keep_dims=True).reshape(R))
    tl.store(y_ptr + 4 * R + tl.arange(0, 2), tl.join(tl.sum(x), tl.max(x)))


def check_reductions() -> None:
    """Reductions with branching functions; max skips NaN, sum does not."""
    x = torch.randn(8, 16)
    x[2, 3] = float("nan")
    y = torch.empty(5 * 8)
    reductions_kernel[(1,)](x, y, 8, 16)
    rows = y[:32].reshape(4, 8)
    for r in range(8):
        if r != 2:
            assert rows[0, r] == x[r][x[r].abs().argmax()]
            assert rows[2, r] == x[r].argmin()
    assert torch.equal(rows[1], x.nan_to_num(-99).amax(1))
    assert rows[3].isnan().tolist() == [r == 2 for r in range(8)]
    assert y[33] == x.nan_to_num(-99).max()


@triton.jit
def sum_kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
    tl.store(y_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, SIZE)), 0))


def check_bf16_sum_rounds() -> None:
    """A sum of bf16 rounds at every step of a tree."""
    x = torch.full((256,), 1.0, dtype=torch.bfloat16)
    y = torch.empty(1)
    sum_kernel[(1,)](x, y, 256)
    assert y.item() == 256.0  # exact in a tree; adding one by one stays at 256 too, but at 512 it would not grow
    x = torch.full((1024,), 1.0, dtype=torch.bfloat16)
    sum_kernel[(1,)](x, y, 1024)
    assert y.item() == 1024.0
    x = torch.randn(256).bfloat16()
    sum_kernel[(1,)](x, y, 256)
    assert y.item() == y.bfloat16().item()


@triton.jit
def _selu(x, alpha):
    if x > 0:
        return x
    else:
        return alpha * (tl.exp(x) - 1)


@triton.jit
def map_kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(y_ptr + at, tl.map_elementwise(_selu, tl.load(x_ptr + at), tl.full((SIZE,), 2.0, tl.float32)))


def check_map_elementwise() -> None:
    """tl.map_elementwise with branches."""
    x, y = torch.randn(16), torch.empty(16)
    map_kernel[(1,)](x, y, 16)
    assert torch.allclose(y, torch.where(x > 0, x, 2 * (x.exp() - 1)))


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
def assembly_kernel(x_ptr):
    x = tl.load(x_ptr)
    tl.store(x_ptr, tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=tl.int32, is_pure=True, pack=1))


@triton.jit
def bessel_kernel(x_ptr):
    tl.store(x_ptr, tl.extra.cuda.libdevice.j0(tl.load(x_ptr)))


def check_unsupported() -> None:
    """What the simulator cannot do says so, and what to do."""
    error = raised(NotImplementedError, assembly_kernel[(1,)], torch.zeros(1, dtype=torch.int32))
    assert "--device cuda" in str(error)
    error = raised(NotImplementedError, bessel_kernel[(1,)], torch.zeros(1))
    assert "j0" in str(error)


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


def check_no_warnings() -> None:
    """Divisions by zero, overflows and NaN in a kernel warn nobody."""
    x = torch.tensor([0.0, float("nan"), float("inf"), 1e38, -1.0, 0.0, 3.0, 1e-40])
    y = torch.empty(8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        aliases_kernel[(1,)](x, y)
        converted(x, torch.float16)
        converted(x, torch.int32)


def run_checks(checks) -> None:
    """Print, as JSON, each check's traceback, or null if it holds."""
    results: dict[str, str | None] = {}
    for name, check in list(checks.items()):
        if name.startswith("check_"):
            torch.manual_seed(0)
            try:
                check()
                results[name] = None
            except BaseException:
                results[name] = traceback.format_exc()
    sys.stdout.write("\n" + json.dumps(results))


if __name__ == "__main__":
    run_checks(globals())
