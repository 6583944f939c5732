"""What a recorder writes down of launches: tuned ones, heuristics, warm-ups, and those that cannot be."""

import pytest
import torch

from assignment.judge.replies import Raised
from assignment.tests.pairs import defined, names

X = torch.arange(12.0).view(3, 4)
TUNED = """
@triton.autotune([triton.Config({{"SIZE": 64}}{hook}), triton.Config({{"SIZE": 128}}, num_warps=8)], key=["n"]{more})
@triton.jit
def tuned(x_ptr, y_ptr, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)

def weighted_sum_forward(x):
    y = torch.empty_like(x)
    for _ in range(2):
        tuned[lambda meta: (triton.cdiv(12, meta["SIZE"]),)](x, y, 12)
    return y
"""


def launches(told):
    return [(launch.arguments, launch.options, launch.configurations) for launch in told.launches()]


def test_autotuned_kernels_bring_all_configurations(at):
    """And run once more for a new key, as the tuner's trial"""
    told = at.steps(TUNED.format(hook="", more=""), X)
    assert len(launches(told)) == 3
    for given, _, others in launches(told):
        assert given["SIZE"] == 64
        assert [other["SIZE"] for other in others] == [64, 128]
        assert others[1]["num_warps"] == 8


@pytest.mark.parametrize(("draws", "size"), [(1, 64), (3, 128), (0, 64), (2, 128)])
def test_a_call_is_recorded_in_the_configuration_that_is_drawn(at, draws, size):
    told = at.steps(TUNED.format(hook="", more=""), X, drawn=draws)
    assert {given["SIZE"] for given, _, _ in launches(told)} == {size}


def test_pruned_configurations_are_none(at):
    prune = ", prune_configs_by={'early_config_prune': lambda configs, named, **_: configs[1:]}"
    told = at.steps(TUNED.format(hook="", more=prune), X)
    assert [len(others) for _, _, others in launches(told)] == [1] * 3
    assert all(given["SIZE"] == 128 for given, _, _ in launches(told))


@pytest.mark.parametrize("option", ["num_warps", "num_stages"])
def test_what_configurations_have_is_not_given_twice(at, option):
    """As Triton's tuner passes both on; without the launch's own there is nothing wrong"""
    at.take(TUNED.format(hook="", more="").replace("(x, y, 12)", f"(x, y, 12, {option}=4)"))
    said, _ = at.record("weighted_sum_forward", X)
    assert isinstance(said.ended, Raised)
    assert f"TypeError: tuned got multiple values for keyword argument '{option}'" in said.ended.message


def test_hooks_of_tuning_are_steps(at):
    """reset_to_zero before and after a trial alone; a configuration's pre_hook before each launch"""
    told = at.steps(TUNED.format(hook="", more=", reset_to_zero=['y_ptr']"), X)
    assert names(told) == ["empty_like", "zero_", "launch", "zero_", "launch", "launch"]
    hook = ", pre_hook=lambda given: given['y_ptr'].fill_(3.0)"
    told = at.steps(TUNED.format(hook=hook, more=""), X)
    assert names(told)[1:] == ["fill_", "launch", "fill_", "launch", "fill_", "launch"]


def test_heuristics_give_constants(at):
    code = """
@triton.heuristics({"SIZE": lambda given: triton.next_power_of_2(given["n"])})
@triton.jit
def heuristic(x_ptr, y_ptr, n, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)

def weighted_sum_forward(x):
    y = torch.empty_like(x)
    heuristic[(1,)](x, y, 12)
    return y
"""
    ((given, _, _),) = launches(at.steps(code, X))
    assert given["SIZE"] == 16


def test_a_warmups_stand_in_has_figures_and_can_be_launched(at):
    code = """
def weighted_sum_forward(x):
    y = torch.empty_like(x)
    compiled = _copy.warmup(x, y, 12, SIZE=64, grid=(1,))
    compiled._init_handles()
    assert compiled.n_regs > 0 and compiled.n_spills == 0 and compiled.metadata.shared > 0
    compiled[(1, 1, 1)](x, y, 12)
    return y
"""
    told = at.steps(code, X)
    assert names(told) == ["empty_like", "launch"]
    ((given, _, _),) = launches(told)
    assert (given["n"], given["SIZE"]) == (12, 64)


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        ("_copy[(1,)](x, y, 12, 64, num_wraps=4)", "num_wraps was specified but unrecognised"),
        ("_copy[(1, 70000)](x, y, 12, 64)", "grid y is 70000"),
        ("_copy[(1.5,)](x, y, 12, 64)", "expected a grid of one to three integers"),
        ("_copy[(1,)](x, y, [12], 64)", "does not take a list: pass a tuple"),
        ("_copy[(1,)](x, y)", "'n': the kernel has 4 parameters, the launch passes 2 by position, the last for y_ptr"),
        ("_copy[(1,)](x, y, 12, 64, 1)", "arguments: the kernel has 4 parameters, the launch passes 5 by"),
        ("_copy[(-1,)](x, y, 12, 64)", "expected a grid of sizes that are 0 or more, got (-1, 1, 1)"),
        ("_copy[torch.tensor(1).numpy()](x, y, 12, 64)", "expected a grid of one to three integers"),
        ("torch.vmap(lambda row: _copy[(1,)](row, y, 12, 64))(x)", "needs the memory of a tensor"),
        ("_copy.run(x, y, 12, 64, grid=(1,))", "missing 1 required keyword-only argument: 'warmup'"),
    ],
)
def test_launches_that_cannot_be_are_refused(at, launch, words):
    at.take(defined("y = torch.empty_like(x)", launch, "return y"))
    said, told = at.record("weighted_sum_forward", X)
    assert (type(said.ended), names(told)) == (Raised, ["empty_like"])
    assert words in said.ended.message
