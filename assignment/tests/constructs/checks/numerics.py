"""Numbers as a GPU has them: conversions, products, reductions, atomics."""

# mypy: disable-error-code="attr-defined"
# (in a kernel a loop variable is a tensor)

import math
from fractions import Fraction

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from assignment.simulator import calls
from assignment.simulator.faults import Endless
from assignment.simulator.triton_private import VERSION
from assignment.tests.constructs.checks.common import cast_kernel, converted, raised, says


def check_all_16_bit_patterns() -> None:
    """Every bf16 and fp16 number goes to float32 and back unchanged, every NaN becomes the GPU's."""
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    for dtype in (torch.bfloat16, torch.float16):
        x = every.view(dtype)
        wide = converted(x, torch.float32)
        assert torch.equal(wide.nan_to_num(7.0), x.float().nan_to_num(7.0))
        back = converted(wide, dtype).view(torch.int16)
        assert torch.equal(back, torch.where(x.isnan(), 0x7FFF, every).to(torch.int16))


def check_8_bit_floats() -> None:
    """All 256 of either kind go to float32, bf16 and fp16 as what they are, and back; bytes are copied as they are."""
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        every = torch.arange(256, dtype=torch.uint8).view(dtype)
        number = ~every.isnan()
        for wide in (torch.float32, torch.bfloat16, torch.float16):
            result = converted(every, wide)
            assert torch.equal(result[number], every.to(wide)[number])
            assert result[~number].isnan().all()
            back = converted(result, dtype).view(torch.uint8)
            assert back[~number].eq(0x7F).all()
            finite = number & every.float().isfinite()
            assert torch.equal(back[finite], every.view(torch.uint8)[finite])
        assert torch.equal(converted(every, dtype).view(torch.uint8), every.view(torch.uint8))


def check_rounding_to_8_bits() -> None:
    """To nearest even; what is too large, infinity included, becomes the largest finite number."""
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        every = torch.arange(256, dtype=torch.uint8).view(dtype).float()
        every = every[every.isfinite()].sort().values
        between = torch.cat([every, (every[1:] + every[:-1]) / 2, every * (1 + 2**-12)])
        inside = between[between.abs() <= torch.finfo(dtype).max]
        for wide in (torch.float32, torch.float16):
            values = inside.to(wide)
            assert torch.equal(converted(values, dtype).float(), values.to(dtype).float())
        huge = torch.tensor([1e6, -1e6, torch.inf, -torch.inf])
        limit = torch.finfo(dtype).max
        assert converted(huge, dtype).float().tolist() == [limit, -limit, limit, -limit]


def check_tensors_that_triton_has_no_type_for() -> None:
    """Scales of microscaling formats go to a kernel as bytes, and it is said so."""
    for dtype, words in ((torch.float8_e8m0fnu, "float8_e8m0fnu: pass x.view(torch.uint8)"), (torch.complex64, "64")):
        x = torch.ones(4).to(dtype)
        assert str(raised(TypeError, cast_kernel[(1,)], x, x, 4, SIZE=4)).endswith(words)


@triton.jit
def rtz_kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(y_ptr + at, tl.load(x_ptr + at).to(y_ptr.dtype.element_ty, fp_downcast_rounding="rtz"))


def check_rounding_to_8_bits_towards_zero() -> None:
    """Triton cuts fp8e5 out of an fp16, and has no such conversion to fp8e4nv."""
    x = torch.tensor([1.0, 1.2499, -1.2499, 1.9, 57344.0, 1e30, torch.inf, torch.nan])
    y = torch.empty(8, dtype=torch.float8_e5m2)
    rtz_kernel[(1,)](x, y, 8)
    assert y.float().tolist()[:-1] == [1.0, 1.0, -1.0, 1.75, 57344.0, 57344.0, torch.inf]
    assert y[-1].isnan()
    assert "rtz" in str(raised(ValueError, rtz_kernel[(1,)], x, torch.empty(8, dtype=torch.float8_e4m3fn), 8))


@triton.jit
def chosen_kernel(x_ptr, y_ptr, USE: tl.constexpr):
    at = tl.arange(0, 4)
    x = tl.load(x_ptr + at, mask=at < 3, other=0.0)
    if USE == "max":
        y = tl.maximum(x, tl.zeros((4,), x.dtype))
    elif USE == "add":
        y = x + x
    else:
        y = x < x
    tl.store(y_ptr + at, y.to(tl.float32))


def check_8_bit_floats_are_not_computed_with() -> None:
    """The larger of two is found by their values; the compiler adds and compares none."""
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        x, y = torch.tensor([-2.0, 3.0, -0.5, 7.0]).to(dtype), torch.empty(4)
        chosen_kernel[(1,)](x, y, "max")
        assert y.tolist() == [0, 3, 0, 0]
        for use in ("add", "less"):
            assert "convert to float32" in str(raised(ValueError, chosen_kernel[(1,)], x, y, use))


@triton.jit
def scaled_kernel(
    a_ptr, s_ptr, y_ptr, FORMAT: tl.constexpr, GROUPS: tl.constexpr, K_PACK: tl.constexpr, OUT: tl.constexpr
):
    i = tl.arange(0, 64)
    a = tl.load(a_ptr + i[:, None] * 64 + i[None, :])
    s = tl.load(s_ptr + i[:, None] * GROUPS + tl.arange(0, GROUPS)[None, :])
    y = tl.dot_scaled(a, s, FORMAT, a, None, "e4m3", lhs_k_pack=K_PACK, out_dtype=OUT)
    tl.store(y_ptr + i[:, None] * 64 + i[None, :], y)


def check_scaled_products_that_are_refused() -> None:
    """In Triton's words, where Triton has some."""

    def refused(error: type[Exception], a=torch.float8_e4m3fn, s=torch.uint8, *given, y=torch.float32) -> str:
        given = (*given, *("e4m3", 2, True, tl.float32)[len(given) :])
        tensors = torch.zeros(64, 64).to(a), torch.zeros(64, 4).to(s), torch.empty(64, 64, dtype=y)
        return str(raised(error, scaled_kernel[(1,)], *tensors, *given))

    fp8, byte = torch.float8_e4m3fn, torch.uint8
    assert "Invalid float format: e9m9" in refused(ValueError, fp8, byte, "e9m9")
    assert "NYI: lhs_format e3m2" in refused(AssertionError, fp8, byte, "e3m2")
    assert "e2m1 format must be packed as uint8. Got fp8e4nv" in refused(AssertionError, fp8, byte, "e2m1")
    assert "Unexpected dtype for bf16. Got fp8e4nv" in refused(AssertionError, fp8, byte, "bf16")
    assert "Unexpected dtype for e4m3. Got int8" in refused(AssertionError, torch.int8)
    if VERSION < (3, 8):  # a group of 16 is for scales in fp8e4nv
        assert "64, 2]. Got ['64', '4']" in refused(AssertionError, fp8, byte, "e4m3", 4)
    assert "64" in refused(Exception, fp8, byte, "e4m3", 8)
    assert "only mxfp4 inputs can be packed" in refused(AssertionError, fp8, byte, "e4m3", 2, False)
    assert "Only float32 is supported" in refused(AssertionError, fp8, byte, "e4m3", 2, True, tl.float16)
    assert "must be e8m0 in uint8, or fp8e4nv, got int32" in refused(ValueError, fp8, torch.int32)
    assert "must be e8m0 in uint8, or fp8e4nv, got fp32" in refused(ValueError, fp8, torch.float32)


@triton.jit
def scaled_batch_kernel(a_ptr, b_ptr, s_ptr, y_ptr, A: tl.constexpr, B: tl.constexpr, HAS_BATCH: tl.constexpr):
    i = tl.arange(0, 32)
    a = tl.load(a_ptr + tl.arange(0, A)[:, None, None] * 1024 + i[None, :, None] * 32 + i[None, None, :])
    b = tl.load(b_ptr + tl.arange(0, B)[:, None, None] * 1024 + i[None, :, None] * 32 + i[None, None, :])
    s = tl.load(s_ptr + i[:, None])
    if HAS_BATCH:
        s = tl.load(s_ptr + tl.arange(0, A)[:, None, None] * 32 + i[None, :, None])
    y = tl.dot_scaled(a, s, "e4m3", b, None, "e4m3")
    tl.store(y_ptr + tl.arange(0, A)[:, None, None] * 1024 + i[None, :, None] * 32 + i[None, None, :], y)


def check_scaled_batches() -> None:
    """Operands and their scales have the same batches: nothing is broadcast. Before Triton 3.7 scales had none."""
    if triton.__version__ < "3.7":
        return
    a, s, y = torch.zeros(4, 32, 32).to(torch.float8_e4m3fn), torch.zeros(4, 32).byte(), torch.empty(4, 32, 32)
    scaled_batch_kernel[(1,)](a, a, s, y, 4, 4, True)
    assert y.eq(0).all()
    assert "[4, 32, 1], got [32, 1]" in str(raised(ValueError, scaled_batch_kernel[(1,)], a, a, s, y, 4, 4, False))
    assert "batches (4,) and (1,)" in str(raised(ValueError, scaled_batch_kernel[(1,)], a, a, s, y, 4, 1, True))


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
def accumulate_kernel(x_ptr, y_ptr, old_ptr, BINS: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    old = tl.atomic_add(y_ptr + at % BINS, tl.load(x_ptr + at), mask=at != 3)
    tl.store(old_ptr + at, tl.where(at != 3, old, 0.0).to(old.dtype))


def check_atomics_one_by_one() -> None:
    """Lanes that share an address add one after the other, in a drawn order, each rounding, and see the sum before."""
    lanes = [i for i in range(16) if i != 3]
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int32, torch.int64):
        x = (torch.randn(16) * 40).to(dtype)
        y, old = torch.ones(4, dtype=dtype), torch.ones(16, dtype=dtype)
        accumulate_kernel[(1,)](x, y, old, 4, 16)
        expected, seen = torch.ones(4, dtype=dtype), torch.zeros(16, dtype=dtype)
        for i in (lanes[at] for at in calls.current().draws.order(len(lanes))):
            seen[i] = expected[i % 4]
            expected[i % 4] += x[i]
        assert torch.equal(y, expected)
        assert torch.equal(old, seen)


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
def fma_kernel(x_ptr, y_ptr, z_ptr, out_ptr, LIBRARY: tl.constexpr):
    at = tl.arange(0, 8)
    x, y, z = tl.load(x_ptr + at), tl.load(y_ptr + at), tl.load(z_ptr + at)
    if LIBRARY:
        tl.store(out_ptr + at, libdevice.fma(x, y, z))
    else:
        tl.store(out_ptr + at, tl.fma(x, y, z))


def check_fma_rounds_once() -> None:
    """The exact x · y + z is rounded to nearest even: a sum in float64 that is rounded again is not."""
    for dtype, e in ((torch.float32, 2.0**-23), (torch.float64, 2.0**-52), (torch.float16, 2.0**-10)):
        one, big = [1 + e, 1 + e, 1 - e, -1 - e], [2 / e + 2, -2 / e - 2, 2 / e + 2, 2 / e - 2]
        x = torch.tensor([*one, 0.0, -0.0, math.inf, 1 + e], dtype=dtype)
        y = torch.tensor([1 - e, 1 - e, 1 - e, 1 - e, -1.0, 0.0, 1.0, 1 + e], dtype=dtype)
        z = torch.tensor([*big, 0.0, -0.0, -math.inf, -1 - 2 * e], dtype=dtype)
        exact = [Fraction(a) * Fraction(b) + Fraction(c) for a, b, c in zip(*map(_finite, (x, y, z)), strict=True)]
        expected = torch.tensor([_nearest(value, dtype) for value in exact], dtype=dtype)
        for library in (False, True) if dtype != torch.float16 else (False,):
            out = torch.empty(8, dtype=dtype)
            fma_kernel[(1,)](x, y, z, out, LIBRARY=library)
            assert out[6].isnan()
            assert out[5].item() == 0
            assert math.copysign(1, out[5].item()) == -1
            assert torch.equal(out[[0, 1, 2, 3, 4, 7]], expected[[0, 1, 2, 3, 4, 7]]), (dtype, out, expected)


def _finite(values: torch.Tensor) -> list[float]:
    return values.double().nan_to_num(posinf=0, neginf=0).tolist()


def _nearest(exact: Fraction, dtype: torch.dtype) -> float:
    """The nearest number of a type; of two that are as near, the even one."""
    bits = {torch.float16: torch.int16, torch.float32: torch.int32, torch.float64: torch.int64}[dtype]
    about = torch.tensor(float(exact), dtype=dtype)
    near = [about, *(torch.nextafter(about, torch.tensor(to, dtype=dtype)) for to in (math.inf, -math.inf))]
    return min(near, key=lambda x: (abs(Fraction(x.item()) - exact), int(x.view(bits)) & 1)).item()


@triton.jit
def minus_kernel(x_ptr, y_ptr):
    tl.store(y_ptr, -tl.load(x_ptr))


def check_minus_of_zero() -> None:
    """-(+0) is -0 since Triton 3.8, and 0 - (+0), which is +0, before."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        y = torch.empty(1, dtype=dtype)
        minus_kernel[(1,)](torch.zeros(1, dtype=dtype), y)
        assert math.copysign(1, y.item()) == (-1 if VERSION >= (3, 8) else 1)


@triton.jit
def alike_kernel(x_ptr, n_ptr, infinite_ptr, half_ptr, whole_ptr):
    x, n = tl.load(x_ptr), tl.load(n_ptr)
    tl.store(infinite_ptr, 1 / (x * 0.0))
    tl.store(infinite_ptr + 1, 1 / (x * -0.0))
    tl.store(half_ptr, (n * 1 + 0.5) * 1.0)
    tl.store(whole_ptr, (n * 1.0).to(tl.int32) // 2)
    tl.static_assert((n + 1).dtype == tl.int32)
    tl.static_assert((n + 1.0).dtype == tl.float32)
    tl.static_assert((n.to(tl.int64) + 1).dtype == tl.int64)
    tl.static_assert((n > 1).dtype == tl.int1)


def check_numbers_that_python_takes_for_equal() -> None:
    """0.0 and -0.0, and 1 and 1.0, are numbers of their own beside a tensor, each time that a launch meets them."""
    for _ in range(2):
        infinite, half, whole = torch.empty(2), torch.empty(1), torch.empty(1, dtype=torch.int32)
        alike_kernel[(1,)](torch.ones(1), torch.tensor([3], dtype=torch.int32), infinite, half, whole)
        assert infinite.tolist() == [math.inf, -math.inf]
        assert half.item() == 3.5
        assert whole.item() == 1


@triton.jit
def turns_kernel(x_ptr, y_ptr, first, last, step, HOW: tl.constexpr):
    n = 0
    if HOW == "from True":
        for i in range(True, last):
            tl.store(y_ptr + n, i)
            n += 1
    elif HOW == "to what is loaded":
        for i in range(first, tl.load(x_ptr)):
            tl.store(y_ptr + n, i)
            n += 1
    elif HOW == "from there":
        for i in range(tl.load(x_ptr), last):
            tl.store(y_ptr + n, i)
            n += 1
    elif HOW == "in its type":
        for i in range(tl.load(x_ptr) - tl.load(x_ptr), tl.load(x_ptr)):
            tl.store(y_ptr + n, i)
            n += 1
    elif HOW == "down":
        for i in range(first, last, -2):
            tl.store(y_ptr + n, i)
            n += 1
    else:
        for i in range(first, last, step):
            tl.store(y_ptr + n, i)
            n += 1


def check_bounds_of_loops() -> None:
    """As TTIR has them: extended by the sign of the loop's type (extsi, extui), and compared as signed numbers."""
    of = {dtype: torch.tensor([value], dtype=dtype) for dtype, value in ((torch.uint8, 200), (torch.uint32, 3))}
    for how, dtype, bounds, values, told in (
        ("from True", torch.uint8, (0, 2, 1), [-1, 0, 1], "True counts as -1"),
        ("from there", torch.uint8, (0, -53, 1), [-56, -55, -54], "200 in uint8 counts as -56"),
        ("in its type", torch.uint8, (0, 0, 1), [], "200 in uint8 counts as -56"),
        ("in its type", torch.uint32, (0, 0, 1), [0, 1, 2], ""),
        ("to what is loaded", torch.uint32, (-2, 0, 1), [-2, -1, 0, 1, 2], ""),
        ("down", torch.uint8, (5, 0, 1), [5, 3, 1], ""),
        ("by a step", torch.uint8, (5, 0, -2), [], "no turn is taken"),
        ("by a step", torch.uint8, (0, 5, 2), [0, 2, 4], ""),
    ):
        y = torch.full((8,), 99, dtype=torch.int32)
        with calls.Call() as call:
            turns_kernel[(1,)](of[dtype], y, *bounds, how)
        assert y[y != 99].tolist() == values, how
        assert [text.startswith(told) for text in call.warnings] == [True] * bool(told), call.warnings
    with calls.Call():
        fault = raised(Endless, turns_kernel[(1,)], of[torch.uint8], y, 0, 5, -2, "by a step")
    says(fault, "it goes from 0 to 5 by -2")


@triton.jit
def difference_kernel(x_ptr, y_ptr):
    at = tl.arange(0, 4)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, x - x * 1.0)
    tl.store(y_ptr + 4 + at, x * 1.0 - x)


def check_a_difference_that_is_0() -> None:
    """It is +0, also where a product is subtracted: fma(-x, y, z)."""
    x, y = torch.tensor([0.0, 1.0, -2.0, 3.0]), torch.empty(8)
    difference_kernel[(1,)](x, y)
    assert y.view(torch.int32).tolist() == [0] * 8
