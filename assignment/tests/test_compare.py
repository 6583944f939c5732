"""The comparison rule and its explanations."""

import math

import pytest
import torch

from tests import tensor_cores
from tests.compare import PARTS, Expected, Mismatch, expect, where_wrong, worst_margin
from tests.families import compared
from tests.flash_attention import models, properties
from tests.flash_attention import models as attention


def expected(value, allowed=1e-3, dtype=torch.float32):
    return Expected.within(value.double(), torch.full_like(value, allowed, dtype=torch.float64), dtype, value.ndim > 1)


def message(got, **expectations):
    with pytest.raises(Mismatch) as error:
        worst_margin(got, expectations)
    return str(error.value)


VALUE = torch.zeros(2, 128, 64)


def test_a_result_within_the_bound_has_its_margin():
    assert worst_margin(VALUE + 5e-4, {"o": expected(VALUE)}) == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("got", "words"),
    [
        pytest.param(VALUE[:1], "o has shape (1, 128, 64), expected (2, 128, 64)", id="shape"),
        pytest.param(VALUE.double(), "o is float64, expected float32", id="dtype"),
        pytest.param((VALUE, VALUE), "expected one tensor, o; got a tuple of 2 tensors", id="a tuple"),
        pytest.param(VALUE + 1, "16384 of 16384 elements wrong: all of them", id="everything"),
    ],
)
def test_form_comes_first(got, words):
    assert words in message(got, o=expected(VALUE))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_8_bit_floats_are_compared(dtype):
    """Rounded to nearest they are within the bound, one number further they are not; NaN is told"""
    value = torch.linspace(0.25, 6, 64, dtype=torch.float64).repeat(2, 1)
    want = expect(value, [[value]], [], value, dtype, rows=True)
    right = value.to(dtype)
    assert worst_margin(right, {"y": want}) < 1
    wrong, broken = right.clone(), right.clone()
    wrong[1, 3] = 40.0
    broken[1, 3] = math.nan
    assert "1 of 128 elements wrong: row 1 of 2, column 3 of 64" in message(wrong, y=want)
    assert "1 NaN: row 1 of 2, column 3 of 64" in message(broken, y=want)
    assert "y is float32, expected float8_e" in message(value.float(), y=want)


def test_a_missing_output():
    assert "expected 2 tensors (y, rstd), got 1 tensor" in message(VALUE, y=expected(VALUE), rstd=expected(VALUE))


def changed(index, value=1.0):
    got = VALUE.clone()
    got[index] = value
    return got


@pytest.mark.parametrize(
    ("got", "words"),
    [
        pytest.param(changed((slice(None), slice(96, None))), "rows 96–127 of 128 (the last 32)", id="last tile"),
        pytest.param(changed((1,)), "batch 1 of 2", id="one batch"),
        pytest.param(changed((0, 7)), "batch 0 of 2, row 7 of 128", id="one row"),
        pytest.param(changed((..., slice(0, None, 2))), "every 2nd of the columns, from 0", id="every other column"),
        pytest.param(changed((0, 3, 5)), "first one: o[0, 3, 5] = 1, expected 0 ± 0.001", id="one element"),
        pytest.param(changed((0, 0), math.nan), "64 NaN: batch 0 of 2, row 0 of 128", id="NaN"),
        pytest.param(changed((0, 0, 0), math.inf), "1 infinite", id="infinite"),
    ],
)
def test_an_explanation_says_where(got, words):
    assert words in message(got, o=expected(VALUE))


@pytest.mark.parametrize(
    ("got", "heights", "widths", "signs"),
    [
        pytest.param(changed((0, 7)), [7, 1, 120], [64], (".", "#", "."), id="a row"),
        pytest.param(changed((..., 5)), [128], [5, 1, 58], (".#.",), id="a column"),
        pytest.param(
            changed((0, slice(32, 48), slice(16, 64))), [32, 16, 80], [16, 48], ("..", ".#", ".."), id="a tile"
        ),
        pytest.param(changed((0, 7, 3), math.nan), [7, 1, 120], [3, 1, 60], ("...", ".N.", "..."), id="NaN"),
    ],
)
def test_a_map_has_a_part_for_rows_and_columns_that_are_wrong_alike(got, heights, widths, signs):
    with pytest.raises(Mismatch) as caught:
        worst_margin(got, {"o": expected(VALUE)})
    drawn = caught.value.map
    assert drawn
    assert (list(drawn.heights), list(drawn.widths), drawn.signs) == (heights, widths, signs)


def test_a_map_of_luck_has_parts_within_its_limits():
    """Elements that are wrong here and there are joined to tiles, none of which is lost"""
    torch.manual_seed(0)
    got = torch.where(torch.rand(1000, 300) < 0.001, 1.0, 0.0)
    drawn = where_wrong("o", got, got.double() * 5, rows=True)
    assert drawn
    assert (sum(drawn.heights), sum(drawn.widths)) == (1000, 300)
    assert all(len(sizes) <= most for sizes, most in zip((drawn.heights, drawn.widths), PARTS, strict=True))
    parts = [part for rows in got.split(list(drawn.heights)) for part in rows.split(list(drawn.widths), dim=1)]
    assert ["+" if part.any() else "." for part in parts] == list("".join(drawn.signs).replace("#", "+"))


def test_a_worse_part_is_a_part_of_its_own():
    got = torch.zeros(128, 64)
    got[32:64] = 5.0
    got[40:44] = 5000.0
    drawn = where_wrong("o", got, got.double(), rows=True)
    assert drawn
    assert (list(drawn.heights), [over for (over,) in drawn.over]) == ([32, 8, 4, 20, 64], [0, 5, 5000, 5, 0])


def test_nan_where_nan_is_expected_is_still_wrong():
    assert "NaN" in message(VALUE * math.nan, o=expected(VALUE * math.nan))


def test_rank_zero_and_empty_results():
    assert worst_margin(torch.empty(0, 3), {"y": expected(torch.empty(0, 3))}) == 0
    assert "y: 1 of 1 elements wrong" in message(torch.tensor(1.0), y=expected(torch.tensor(0.0)))


def test_the_bound_by_hand():
    """2 · (the roundings' errors per magnitude, added up) · M + 4 ε · largest + ε32 · M"""
    value, magnitude = torch.tensor([[4.0, 1.0]]).double(), torch.tensor([[8.0, 2.0]]).double()
    roundings = [[value + 0.5, value - 1.0], [value + 0.25]]
    want = expect(value, roundings, [], magnitude, torch.float32, rows=True)
    eps = 2.0**-23
    at_once = expect(value, roundings, [value + 2.0], magnitude, torch.float32, rows=True)
    assert at_once.allowed.item() == pytest.approx(2 * (2.0 + 1.0) / 8 * 8 + 4 * eps * 4 + eps * 8, rel=1e-9)
    assert want.allowed.item() == pytest.approx(2 * (1.0 + 0.25) / 8 * 8 + 4 * eps * 4 + eps * 8, rel=1e-9)


def test_models_are_computed_for_who_needs_them():
    """A result within the bound of few models is right; for others the bound is that of all of them"""
    value = torch.tensor([[4.0, 1.0]]).double()
    computed: list[float] = []

    def model(error):
        def compute():
            computed.append(error)
            return value + error

        return compute

    def margin(error, is_exact=False):
        computed.clear()
        roundings = [[model(0.25), model(-1.0)], [model(0.75)]]
        want = expect(value, roundings, [model(0.5)], value, torch.float32, rows=True)
        return worst_margin((value + error).float(), {"y": want}, is_exact)

    assert margin(1e-6) < 1
    assert computed == []
    assert margin(0.9) == pytest.approx(0.9, rel=1e-4)
    assert computed == [0.5]
    assert margin(1.8) == pytest.approx(0.9, rel=1e-4)
    assert computed == [0.5, 0.25, 0.75]
    assert margin(0.9, is_exact=True) == pytest.approx(0.9 / 3.5, rel=1e-4)
    assert sorted(computed) == [-1.0, 0.25, 0.5, 0.75]
    assert margin(3.4) == pytest.approx(3.4 / 3.5, rel=1e-4)
    with pytest.raises(Mismatch, match="wrong"):
        margin(3.6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fewer_models_allow_no_more(dtype):
    rng = torch.Generator().manual_seed(5)
    q, k, v, grad_o = (torch.randn(2, 40, 32, generator=rng).to(dtype) for _ in range(4))
    forward = attention.attention_forward(q, k, v, True)
    o, lse = forward["o"].value.to(dtype), forward["lse"].value.float()
    backward = attention.attention_backward(grad_o, q, k, v, o, lse, True)
    for want in (*forward.values(), *backward.values()):
        for bound in want.bounds:
            assert (bound() <= want.allowed).all()
        assert (want.bounds[-2]() > want.allowed / 4).all()


def test_truncation_and_rounding_to_tf32():
    x = torch.tensor([1 + 2**-10 + 2**-12, -(1 + 2**-11 + 2**-12), 3.0])
    assert tensor_cores.truncate(x).tolist() == [1 + 2**-10, -1.0, 3.0]
    assert tensor_cores.nearest(x).tolist() == [1 + 2**-10, -(1 + 2**-10), 3.0]


@pytest.mark.parametrize("wrong", [(VALUE[0],), (VALUE[0], VALUE[0]), (VALUE[0, :5], VALUE[0, 0])])
def test_a_property_of_a_result_in_the_wrong_form_is_a_mismatch(wrong):
    """Whatever a submission returns, the grader does not fail over it"""
    qkv = (VALUE.float(), VALUE.float(), VALUE.float())
    bounds = models.attention_forward(*qkv)
    change = properties.permuting_keys_and_values_changes_nothing(torch.Generator(), *qkv)
    with pytest.raises(Mismatch):
        compared(wrong, wrong, change, bounds)
