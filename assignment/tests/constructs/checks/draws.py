"""What the language leaves open is drawn by the call's seed, and what does not depend on it stays."""

# mypy: disable-error-code="attr-defined"

import warnings

import torch
import triton
import triton.language as tl
from torch import Tensor

from assignment.simulator.calls import Call
from assignment.simulator.draws import Draws

SEEDS = range(20)
MOVED = next(seed for seed in SEEDS if Draws(seed).moves)
UNMOVED = next(seed for seed in SEEDS if not Draws(seed).moves)


@triton.jit
def mean_of_means(a, b):
    return (a + b) / 2


@triton.jit
def first(a, b):
    return a


@triton.jit
def difference(a, b):
    return a - b


@triton.jit
def total(a, b):
    return a + b


@triton.jit
def halved_if_larger(a, b):
    return a / 2 if a > b else b


@triton.jit
def reduce_kernel(x_ptr, y_ptr, COMBINE: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + 4 * at[:, None] + tl.arange(0, 4)[None, :])
    tl.store(y_ptr + tl.arange(0, 4), tl.reduce(x, 0, COMBINE))


def reduced(x: Tensor, combine, seed: int) -> tuple[Tensor, list[str]]:
    y = torch.empty(4)
    with Call(seed=seed) as call:
        reduce_kernel[(1,)](x, y, combine, len(x))
    return y, call.warnings


def check_what_depends_on_the_tree_is_drawn_and_told() -> None:
    """A mean of means is the mean in some trees only; both results are told, with the line."""
    x = torch.randn(64, 4)
    for combine in (mean_of_means, first, difference):
        results, told = zip(*(reduced(x, combine, seed) for seed in SEEDS), strict=True)
        assert len({tuple(y.tolist()) for y in results}) > 1, combine.__name__
        texts = [text for texts in told for text in texts]
        assert any(f"not associative: {combine.__name__} gives" in text and "tl.reduce(x, 0" in text for text in texts)


def check_a_function_that_branches_is_told_too() -> None:
    """It is called element by element."""
    x = torch.randn(64, 4)
    results = {tuple(reduced(x, halved_if_larger, seed)[0].tolist()) for seed in SEEDS}
    assert len(results) > 1


@triton.jit
def welford(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    n = n_a + n_b
    share = tl.where(n == 0, 0.0, n_b / n)
    apart = mean_b - mean_a
    return mean_a + apart * share, m2_a + m2_b + apart * apart * n_a * share, n


@triton.jit
def log_sum_exp(m_a, s_a, m_b, s_b):
    m = tl.maximum(m_a, m_b)
    return m, s_a * tl.exp(m_a - m) + s_b * tl.exp(m_b - m)


@triton.jit
def largest(x_a, i_a, x_b, i_b):
    is_a = (x_a > x_b) | ((x_a == x_b) & (i_a < i_b))
    return tl.where(is_a, x_a, x_b), tl.where(is_a, i_a, i_b)


@triton.jit
def then(a_1, b_1, a_2, b_2):
    return a_1 * a_2, b_1 * a_2 + b_2


@triton.jit
def honest_kernel(x_ptr, mean_ptr, lse_ptr, at_ptr, linear_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at)
    mean, m2, n = tl.reduce((x, x * 0, x * 0 + 1), 0, welford)
    tl.store(mean_ptr, mean)
    tl.store(mean_ptr + 1, m2 / n)
    m, s = tl.reduce((x, x * 0 + 1), 0, log_sum_exp)
    tl.store(lse_ptr, m + tl.log(s))
    _, index = tl.reduce((tl.abs(x).to(tl.int32), at), 0, largest)
    tl.store(at_ptr, index)
    _, b = tl.associative_scan((x * 0 + 0.5, x), 0, then)
    tl.store(linear_ptr + at, b)


def check_associative_functions_stay_right() -> None:
    """Welford, log-sum-exp, argmax with its ties and a linear recurrence, whose operands keep their order."""
    x = torch.randn(256) * 2 + 1
    expected = torch.zeros(256)
    for i, value in enumerate(x):
        expected[i] = (expected[i - 1] * 0.5 if i else 0.0) + value
    for seed in SEEDS:
        mean, lse, at, linear = torch.empty(2), torch.empty(1), torch.empty(1, dtype=torch.int32), torch.empty(256)
        with Call(seed=seed) as call:
            honest_kernel[(1,)](x, mean, lse, at, linear, 256)
        torch.testing.assert_close(mean, torch.stack([x.mean(), x.var(correction=0)]))
        torch.testing.assert_close(lse[0], x.logsumexp(0))
        assert at.item() == x.abs().to(torch.int32).argmax()
        torch.testing.assert_close(linear, expected)
        assert call.warnings == []


@triton.jit
def ties_kernel(x_ptr, y_ptr, LEFT: tl.constexpr, SIZE: tl.constexpr):
    tl.store(y_ptr, tl.argmax(tl.load(x_ptr + tl.arange(0, SIZE)), 0, tie_break_left=LEFT))


def check_ties_go_to_any_where_none_is_asked_for() -> None:
    """With tie_break_left they go to the first."""
    x, y = torch.tensor([0.0, 1.0, 0.0, 1.0] * 4), torch.empty(1, dtype=torch.int32)
    found: dict[bool, set[float]] = {True: set(), False: set()}
    for seed in SEEDS:
        for left, indices in found.items():
            with Call(seed=seed):
                ties_kernel[(1,)](x, y, left, 16)
            indices.add(y.item())
    assert found == {True: {1}, False: {1, 15}}


@triton.jit
def ticket_kernel(count_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(y_ptr + at, tl.atomic_add(count_ptr + at % 2, 1))


def check_lanes_of_one_access_come_in_any_order() -> None:
    """Each gets a ticket of its own; which one depends on the seed, and a second call repeats it."""
    seen = set()
    for seed in (*SEEDS, *SEEDS):
        count, y = torch.zeros(2, dtype=torch.int32), torch.empty(16, dtype=torch.int32)
        with Call(seed=seed):
            ticket_kernel[(1,)](count, y, 16)
        assert count.tolist() == [8, 8]
        assert sorted(y[::2].tolist()) == sorted(y[1::2].tolist()) == list(range(8))
        seen.add(tuple(y.tolist()))
    assert 10 < len(seen) <= len(SEEDS)


@triton.jit
def count_kernel(count_ptr, y_ptr, OF: tl.constexpr, LANES: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    found = tl.atomic_add(count_ptr + at % OF, 1, mask=at < LANES)
    if LANES == SIZE:
        tl.store(y_ptr + at, found)


def check_tickets_of_lanes_are_told() -> None:
    """With their line, where they are used: not those of different addresses."""
    for of, lanes, is_told in ((2, 16, True), (16, 16, False), (2, 8, False)):
        count, y = torch.zeros(16, dtype=torch.int32), torch.zeros(16, dtype=torch.int32)
        with Call(seed=3) as call:
            count_kernel[(1,)](count, y, of, lanes, 16)
        assert count.sum() == lanes
        told = [text for text in call.warnings if "the order of lanes is left open" in text]
        assert len(call.warnings) == len(told) == is_told
        assert all("found = tl.atomic_add(" in text for text in told)


@triton.jit
def reorder_kernel(x_ptr, y_ptr, ROWS: tl.constexpr, SHAPE: tl.constexpr, REORDER: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, ROWS)[:, None] * 4 + tl.arange(0, 4)[None, :])
    y = tl.ravel(tl.reshape(x, SHAPE, can_reorder=REORDER))
    tl.store(y_ptr + tl.arange(0, 4 * ROWS), y)


@triton.jit
def cat_kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, SIZE))
    tl.store(y_ptr + tl.arange(0, 2 * SIZE), tl.cat(x, x + SIZE, can_reorder=True))


def check_what_may_reorder_does() -> None:
    """But dimensions of 1 come and go, with a warning."""
    x, y = torch.arange(32.0), torch.empty(32)
    for shape, reorder, stays in (((4, 8), True, False), ((4, 8), False, True), ((8, 1, 4), True, True)):
        with Call(seed=3) as call, warnings.catch_warnings(action="ignore"):  # Triton 3.10 will not have it
            reorder_kernel[(1,)](x, y, 8, shape, reorder)
        assert torch.equal(y, x) == stays
        assert torch.equal(y.sort().values, x)
        told = ["may reorder" in text and ("stays" in text) == stays for text in call.warnings]
        assert told == [True] * reorder
    with Call(seed=3), warnings.catch_warnings(action="ignore"):
        cat_kernel[(1,)](x, y, 16)
    assert not torch.equal(y, x)
    assert torch.equal(y.sort().values, x)


@triton.jit
def functions_kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, tl.exp(x))
    tl.store(y_ptr + SIZE + at, tl.log(x))
    tl.store(y_ptr + 2 * SIZE + at, tl.sin(x))
    tl.store(y_ptr + 3 * SIZE + at, 1 / x)
    tl.store(y_ptr + 4 * SIZE + at, tl.rsqrt(x))
    tl.store(y_ptr + 5 * SIZE + at, tl.div_rn(at * 0 + 1.0, x))
    tl.store(y_ptr + 6 * SIZE + at, x * x - x)


def functions(x: Tensor, seed: int) -> Tensor:
    y = torch.empty(7, len(x))
    with Call(seed=seed):
        functions_kernel[(1,)](x, y, len(x))
    return y


def check_the_last_bit_moves_where_a_result_is_not_exact() -> None:
    """To the other side of the exact result, alike for equal operands; correctly rounded results stay."""
    x = torch.rand(256) * 3 + 0.1
    wide = x.double()
    exact = torch.stack([wide.exp(), wide.log(), wide.sin(), 1 / wide, wide.rsqrt(), 1 / wide, wide * wide - wide])
    plain, moved = functions(x, UNMOVED), functions(torch.cat([x[:128], x[:128]]), MOVED)
    assert torch.equal(moved[:, :128], moved[:, 128:])
    plain, moved, exact = plain[:, :128], moved[:, :128], exact[:, :128]
    assert (plain != moved)[:5].float().mean() > 0.98
    assert torch.equal(plain[5], moved[5])
    units = (moved.double() - exact).abs() / 2.0 ** (moved.frexp().exponent - 24)
    assert units[:5].max() <= 2  # NumPy's own are not all rounded correctly
    assert torch.equal(moved[6], exact[6].float())  # the product is not rounded before
    assert not torch.equal(plain[6], moved[6])


def check_exact_results_stay() -> None:
    """A quotient without a rest, exp(0), log(1)."""
    for seed in SEEDS:
        y = functions(torch.full((16,), 0.25), seed)
        assert y[3, 0] == 4
        assert y[4, 0] == 2
        assert functions(torch.zeros(16), seed)[0, 0] == 1
        assert functions(torch.ones(16), seed)[1, 0] == 0


@triton.jit
def random_kernel(y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(y_ptr + at, tl.rand(7, at))
    tl.store(y_ptr + SIZE + at, tl.randn(7, at))


def check_random_numbers_stay() -> None:
    """They are the same on every GPU."""
    drawn = []
    for seed in (MOVED, UNMOVED):
        y = torch.empty(256)
        with Call(seed=seed):
            random_kernel[(1,)](y, 128)
        drawn.append(y)
    assert torch.equal(*drawn)


@triton.jit
def careful(a, b):
    tl.static_assert(a.dtype == tl.float32)
    return a + b


@triton.jit
def fused_kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, SIZE))
    tl.store(y_ptr + tl.arange(0, SIZE), x * x - x)


def check_what_a_combine_function_asks_of_its_types_holds() -> None:
    """It is compared in float64 only where it can be."""
    x = torch.randn(64, 4)
    for seed in SEEDS:
        y, told = reduced(x, careful, seed)
        torch.testing.assert_close(y, x.sum(0))
        assert told == []


def check_products_are_rounded_where_a_launch_says_so() -> None:
    """enable_fp_fusion=False."""
    x = torch.rand(256)
    for seed in SEEDS:
        y = torch.empty(256)
        with Call(seed=seed):
            fused_kernel[(1,)](x, y, 256, enable_fp_fusion=False)
        assert torch.equal(y, x * x - x)
