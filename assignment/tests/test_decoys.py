"""Stand-ins for graded inputs: the same layout, and nothing of their values."""

import math

import pytest
import torch

from assignment.judge import decoys
from assignment.protocol import wire
from assignment.tests.specification import oracle

LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.t(),
    "every other row": lambda x: x[::2],
    "an offset": lambda x: x[3:, 5:],
    "expanded": lambda x: x[:1].expand(7, -1),
    "overlapping rows": lambda x: x.flatten().as_strided((9, 16), (8, 1)),
    "empty": lambda x: x[:0],
    "a number": lambda x: x[0, 0],
}


FLOAT8 = torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu


@pytest.mark.parametrize("dtype", wire.DTYPES.values(), ids=str)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_the_layout_is_that_of_the_input(layout, dtype):
    graded = layout(torch.full((12, 16), 77.0, dtype=dtype))
    (decoy,) = decoys.like("weighted_sum", [graded], {})
    for told in ("shape", "dtype", "is_contiguous", "stride", "storage_offset"):
        value, wanted = getattr(decoy, told), getattr(graded, told)
        assert (value() if callable(value) else value) == (wanted() if callable(wanted) else wanted)
    assert decoy.untyped_storage().nbytes() == graded.untyped_storage().nbytes()
    assert decoy.untyped_storage()._cdata != graded.untyped_storage()._cdata


def test_shared_memory_is_shared():
    x = torch.ones(8, 8)
    first, second, other = decoys.like("weighted_sum", [x, x[2:4], torch.ones(8)], {})
    assert first.untyped_storage()._cdata == second.untyped_storage()._cdata != other.untyped_storage()._cdata
    assert torch.equal(first[2:4], second)


@pytest.mark.parametrize(("value", "usual"), [(0.0, 0.0), (math.nan, 1.0), (1.0, 1.0), (3.1, 4.0), (1e30, 4.0**50)])
def test_values_are_normal_numbers_of_the_usual_size(value, usual):
    (decoy,) = decoys.like("weighted_sum", [torch.full((50, 50), value)], {})
    assert abs(decoy.double().mean()) <= 0.2 * usual
    assert 0.9 * usual <= decoy.double().std() <= 1.1 * usual


def test_a_few_are_as_large_as_the_largest():
    """Of the graded ones it shows that there are some, and how large to the nearest power of four; not where"""
    graded = torch.ones(50, 50)
    graded[3, 7] = 5000.0
    (decoy,) = decoys.like("weighted_sum", [graded], {})
    large = decoy.abs() > 100
    assert 0 < large.sum() < 50
    assert set(decoy[large].abs().tolist()) == {4096.0}


def test_a_large_value_is_finite_in_16_bits():
    (decoy,) = decoys.like("weighted_sum", [torch.full((50, 50), 60_000.0, dtype=torch.float16)], {})
    assert decoy.isfinite().all()


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
@pytest.mark.parametrize("value", [1.0, 1e-3, 1e30], ids=str)
def test_8_bit_floats_are_finite(dtype, value):
    graded = torch.full((50, 50), value).to(dtype)
    graded[0, 0] = torch.finfo(dtype).max
    (decoy,) = decoys.like("weighted_sum", [graded], {})
    assert decoy.double().isfinite().all()
    assert len(decoy.view(torch.uint8).unique()) > 2


@pytest.mark.parametrize(
    ("values", "dtype", "low", "high"),
    [
        ([0, 255], torch.uint8, 0, 254),
        ([120, 134], torch.uint8, 0, 254),
        ([3, 9], torch.uint8, 0, 15),
        ([-128, 127], torch.int8, -128, 126),
        ([-3, 2], torch.int8, -4, 3),
        ([5, 700], torch.int64, 0, 1023),
        ([-(2**63), 2**63 - 1], torch.int64, -(2**63), 2**63 - 2),
        ([0, 1], torch.bool, 0, 1),
        ([0, 0], torch.int32, 0, 0),
    ],
    ids=str,
)
def test_integers_have_as_many_bits(values, dtype, low, high):
    """Of the graded ones they show that, and whether some are negative; 255, NaN among scales, does not come up"""
    (decoy,) = decoys.like("weighted_sum", [torch.tensor(values, dtype=dtype).repeat(2000)], {})
    seen = decoy.to(torch.int64).aminmax()
    assert low <= int(seen.min) <= low + (high - low) // 8
    assert high - (high - low) // 8 <= int(seen.max) <= high


def test_values_are_fresh_each_time():
    """Neither the seed of a run nor the state of PyTorch determines them"""
    seen = []
    for _ in range(3):
        torch.manual_seed(7)
        seen.append(decoys.like("weighted_sum", [torch.ones(64)], {})[0])
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])


def test_pytorchs_own_state_stays():
    torch.manual_seed(7)
    state = torch.get_rng_state()
    decoys.like("weighted_sum", [torch.ones(64)], {})
    assert torch.equal(torch.get_rng_state(), state)


def test_memory_between_elements_is_nan():
    """As it is in graded inputs: host code that reads there learns nothing, and cannot tell"""
    x = torch.ones(8, 8)[:, ::2]
    (decoy,) = decoys.like("weighted_sum", [x], {})
    whole = decoy.new_empty(0).set_(decoy.untyped_storage())
    assert int(whole.isnan().sum()) == 32


def test_a_view_over_gigabytes_costs_no_memory():
    graded = torch.empty(0).set_(torch.UntypedStorage(6 << 30), 0, (3, 4), (1 << 29, 1))
    (decoy,) = decoys.like("weighted_sum", [graded], {})
    assert decoy.stride() == graded.stride()
    assert decoy.isfinite().all()


def test_what_a_forward_pass_hands_on_is_consistent():
    x, weight, grad, rstd = torch.ones(5, 8), torch.ones(8), torch.ones(5, 8), torch.full((5,), -3.0)
    _, x, weight, rstd = decoys.like("rmsnorm_backward", [grad, x, weight, rstd], {})
    torch.testing.assert_close(rstd, oracle.rmsnorm_forward(x, weight)[1].to(rstd.dtype))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("function", ["flash_backward_triton", "flash_backward_pytorch"])
def test_o_and_lse_are_those_of_q_k_and_v(function, is_causal):
    tensors = [torch.full((2, 6, 4), 9.0) for _ in range(5)]
    options = {"is_causal": is_causal}
    _, q, k, v, o, lse = decoys.like(function, [*tensors, torch.full((2, 6), 9.0)], options)
    for decoy, right in zip((o, lse), oracle.attention_forward(q, k, v, **options), strict=True):
        torch.testing.assert_close(decoy, right.to(decoy.dtype))


def test_a_callers_mistake_has_decoys_too():
    """Which the function is to refuse: sizes that do not fit, a tensor too few, none at all"""
    for tensors in ([torch.ones(2, 3), torch.ones(5, 8), torch.ones(9), torch.ones(1)], [torch.ones(3)], []):
        made = decoys.like("rmsnorm_backward", tensors, {})
        assert [decoy.shape for decoy in made] == [tensor.shape for tensor in tensors]
