"""The player on a GPU, as far as it can be seen without one: what it does with operations and failures."""

import os
from pathlib import Path

import pytest
import torch

from assignment.player import gpu_player
from assignment.player.play import InKernel
from assignment.protocol.program import HostLine, Inputs, Operation, Program, View
from assignment.protocol.replies import Failed, Raised
from assignment.protocol.said import Said
from assignment.tests.forked import python

X = torch.arange(6.0).view(2, 3)


@pytest.fixture
def player(monkeypatch):
    monkeypatch.setattr(gpu_player, "DEVICE", "cpu")
    return gpu_player.GpuPlayer({})


def program(operation, args, result, **kwargs):
    """One operation on X, whose result is this view of storage 1."""
    dtype, offset, sizes, strides = result
    return Program(
        views=[View(0, "float32", 0, (2, 3), (3, 1)), View(1, dtype, offset, tuple(sizes), tuple(strides))],
        storages={0: 24, 1: 64},
        operations=[operation],
        lines=[HostLine()],
        steps=[Inputs([0]), Operation(0, args, kwargs, [1], 0)],
        results=[[1]],
        bare=True,
    )


def test_operations_are_played(player):
    ((found,),) = player.play(program("aten::mul.Tensor", [{"t": 0}, 2.0], ["float32", 0, [2, 3], [3, 1]]), [X])
    assert torch.equal(found, 2 * X)


def test_results_lie_in_memory_as_they_were_recorded(player):
    """Which strides an operation chooses depends on the device"""
    ((found,),) = player.play(program("aten::clone.", [{"t": 0}], ["float32", 1, [2, 3], [1, 4]]), [X])
    assert torch.equal(found, X)
    assert (found.stride(), found.storage_offset()) == ((1, 4), 1)


def test_a_shape_that_depends_on_values_is_refused(player):
    with pytest.raises(gpu_player.CannotFollow, match="a shape depends on values"):
        player.play(program("aten::nonzero.", [{"t": 0}], ["int64", 0, [6, 2], [1, 6]]), [X])


def test_fresh_memory_is_nan(player):
    size = ["float32", 0, [2, 3], [3, 1]]
    ((found,),) = player.play(program("aten::empty.memory_format", [[2, 3]], size, dtype={"dtype": "float32"}), [X])
    assert found.isnan().all()


def test_outputs_get_a_copy_of_what_is_made_without_them(player):
    """PyTorch writes this one as if its output were contiguous, over what a kernel may have stored between"""
    flat, grad = View(1, "float32", 0, (6, 1), (2, 1)), View(0, "float32", 0, (6, 1), (1, 1))
    whole = program("aten::zeros.", [[12]], ["float32", 0, [12], [1]], dtype={"dtype": "float32"})
    whole.views += [flat, grad]
    whole.operations.append("aten::_log_softmax_backward_data.out")
    whole.steps.append(Operation(1, [{"t": 3}, {"t": 3}, 1, {"dtype": "float32"}], {"out": {"t": 2}}, [2], 0))
    ((found,),) = player.play(whole, [X])
    assert found[::2].any()
    assert not found[1::2].any()


def test_want_of_memory_is_told_from_other_failures():
    no_room = torch.OutOfMemoryError("CUDA out of memory")
    in_kernel = gpu_player.failed(InKernel(no_room, Said("")))
    assert gpu_player.failed(no_room) == in_kernel == Failed(str(no_room), fits=False)
    assert isinstance(gpu_player.failed(InKernel(ValueError("num_warps"), Said("  at a.py:1"))), Raised)
    assert gpu_player.failed(gpu_player.CannotFollow("others")).message == "others"
    assert "KeyError" in gpu_player.failed(KeyError("x")).message


TIMED = """weighted_sum_forward weighted_sum_backward rmsnorm_forward rmsnorm_backward flash_forward_triton
    flash_backward_triton"""


def test_what_is_timed_computes_what_the_functions_compute():
    """Recorded, warmed up, tuned, prepared and run on two slots, in the simulator"""
    root = Path(__file__).resolve().parents[2]
    program = root / "assignment/tests/data/player/timed.py"
    done = python(program, root / "assignment/reference", cwd=root, env={**os.environ, "PYTHONPATH": str(root)})
    assert done.returncode == 0, done.stderr
    right = [f"{function} True [] [] 7" for function in TIMED.split()]
    tuned = "tuned True [16.0] ['Hold', 'Warm', 'Tune', 'Tune', 'Tune', 'Prepare', 'TakeTurns']"
    assert done.stdout.splitlines() == [*right, tuned, "[] []"]
