"""Floats of 8 and of 4 bits, from the judge's tensors to the results of a submission's kernels."""

import pytest
import torch

from assignment.judge.replies import Ok
from assignment.protocol import wire
from assignment.tests.constructs.scaled_dots import defined, e8m0, stored
from assignment.tests.pairs import names

F = "weighted_sum_forward"
PRODUCT = f"""
@triton.jit
def _product(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, y_ptr,
    A: tl.constexpr, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    K_BYTES: tl.constexpr,
):
    m, n = tl.arange(0, M), tl.arange(0, N)
    groups = tl.arange(0, K // 32)
    a = tl.load(a_ptr + m[:, None] * K + tl.arange(0, K)[None, :])
    b = tl.load(b_ptr + tl.arange(0, K_BYTES)[:, None] * N + n[None, :])
    a_scale = tl.load(a_scale_ptr + m[:, None] * (K // 32) + groups[None, :])
    b_scale = tl.load(b_scale_ptr + n[:, None] * (K // 32) + groups[None, :])
    y = tl.dot_scaled(a, a_scale, A, b, b_scale, B)
    tl.store(y_ptr + m[:, None] * N + n[None, :], y)

NAMES = {{torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2", torch.uint8: "e2m1"}}

def {F}(a, a_scale, b, b_scale):
    (m, k), (k_bytes, n) = a.shape, b.shape
    y = torch.empty(m, n, device=a.device)
    a_scale, b_scale = a_scale.view(torch.uint8), b_scale.view(torch.uint8)
    formats = NAMES[a.dtype], NAMES[b.dtype]
    _product[(1,)](a, a_scale, b, b_scale, y, *formats, m, n, k, k_bytes)
    return y
"""
CAST = f"""
@triton.jit
def _cast(x_ptr, y_ptr, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, x.to(y_ptr.dtype.element_ty), mask=at < n)

def {F}(x, like):
    y = torch.empty(x.shape, dtype=like.dtype, device=x.device)
    _cast[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), 64)
    return y
"""


def result_of(at, *tensors):
    reply, results = at.ask(F, *tensors)
    assert isinstance(reply, Ok), reply
    assert not reply.evidence, reply
    return results[0]


@pytest.mark.parametrize("formats", [("e4m3", "e2m1"), ("e5m2", "e4m3")], ids=" by ".join)
@pytest.mark.parametrize("scales", [torch.uint8, torch.float8_e8m0fnu], ids=str)
def test_a_scaled_product_is_played(at, formats, scales):
    """tl.dot_scaled is a function that kernels may call, on tensors of every type that it takes"""
    at.take(PRODUCT)
    a = stored(formats[0], 32, 64, seed=1)
    b = stored(formats[1], 32 if formats[1] == "e2m1" else 64, 16, seed=2)
    a_scale, b_scale = e8m0(32, 2, seed=3), e8m0(16, 2, seed=4)
    zeros = torch.zeros(32, 16)
    expected = defined(a[None], b[None], zeros, formats, a_scale[None], b_scale[None])
    got = result_of(at, a, a_scale.view(scales), b, b_scale.view(scales))
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("wide", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_a_kernel_reads_and_writes_8_bit_floats(at, dtype, wide):
    at.take(CAST)
    x = torch.randn(5, 40, generator=torch.Generator().manual_seed(5)).to(wide)
    like, of_wide = torch.zeros(1).to(dtype), torch.zeros(1).to(wide)
    stored_as = result_of(at, x, like)
    assert stored_as.dtype == dtype
    assert torch.equal(stored_as.view(torch.uint8), x.to(dtype).view(torch.uint8))
    assert torch.equal(result_of(at, stored_as, of_wide), stored_as.to(wide))


def test_host_code_may_cast_to_8_bits(at):
    cast = "x.to(torch.float8_e5m2).view(torch.uint8)"
    code = f"def {F}(x):\n    return copied({cast}).view(torch.float8_e5m2)"
    x = torch.randn(4, 50, generator=torch.Generator().manual_seed(6))
    assert "launch" in names(at.steps(code, x))
    expected = x.to(torch.float8_e5m2).view(torch.uint8)
    assert torch.equal(result_of(at, x).view(torch.uint8), expected)


FLOAT8 = torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_what_lies_beside_an_8_bit_float_is_nan(dtype):
    """As it is beside every float that a worker is given"""
    specs, storages, payload = wire.encode([torch.ones(8).to(dtype)])
    (received,) = wire.decode(specs, storages, bytearray(payload), guard=64)
    around = received.as_strided((136,), (1,), 0)
    assert int(around.isnan().sum()) == 128
    assert not received.isnan().any()
