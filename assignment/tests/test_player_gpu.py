"""The player on a GPU, as far as it can be seen without one: what it does with operations and failures."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from assignment.player import gpu_player, gpu_ranks
from assignment.player.play import InKernel
from assignment.protocol.program import HostLine, Inputs, Operation, Program, Step, View
from assignment.protocol.replies import Failed, Raised
from assignment.protocol.requests import Call, OnRank
from assignment.protocol.said import Said
from assignment.pytorch_private import SymmetricHeap
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


class Heap:
    """The heap of two ranks, of which this process has the first."""

    def __init__(self):
        self.met, self.addresses = [], []

    def shared(self, nbytes):
        here = torch.zeros(nbytes, dtype=torch.uint8)
        self.addresses.append([here.data_ptr(), 1 << 40])
        return here, self.addresses[-1]

    def meet(self, where):
        self.met.append(where)


def test_a_rank_plays_its_calls_on_one_heap(player, monkeypatch):
    """Integers are as they were sent, floats NaN; a table has the addresses of what it is of on all ranks"""
    heap = Heap()
    monkeypatch.setattr(gpu_ranks, "_heap", lambda request: heap)
    signals, buffer, table = torch.arange(8, dtype=torch.int32)[2:], torch.zeros(4), torch.zeros(2, dtype=torch.int64)
    given = [X, signals, buffer, table]
    views = [View.of(tensor, number) for number, tensor in enumerate(given)]
    steps: list[Step] = [Inputs([0, 1, 2, 3]), Operation(0, [{"t": 1}, 10], {}, [1], 0)]
    steps += [Operation(1, [{"t": 1 + number}], {}, [4 + number], 0) for number in range(3)]
    names, programs = ["aten::add_.Scalar", "aten::clone."], []
    for x, start in ((0, 4), (10, 7)):  # the storages of the first input, and of those that are made
        made = [view._replace(storage=start + number, offset=0) for number, view in enumerate(views[1:])]
        seen, sizes = [View.of(X, x), *views[1:], *made], dict.fromkeys(range(11), 64)
        programs.append(Program(seen, sizes, names, [HostLine()], steps=steps, results=[[4, 5, 6]]))
    about: Any = {"heap": {"buffer": 2, "signals": 1}, "tables": [[3, 1]]}
    request = OnRank(function="f", about=about, options={}, ranks=2, calls=2, rank=0, meeting="here")
    first, second = gpu_ranks.play(player.turn, "cpu", request, programs, [*given, *(x.clone() for x in given)])
    assert first[0].tolist() == [12, 13, 14, 15, 16, 17]
    assert second[0].tolist() == [22, 23, 24, 25, 26, 27]
    assert second[1].isnan().all()
    assert first[2].tolist() == second[2].tolist() == [address + 2 * 4 for address in heap.addresses[0]]
    assert heap.met == ["filled", "played"]


def test_ranks_meet_by_a_group_of_their_name(tmp_path):
    """By which PyTorch finds where memory is exchanged"""
    distributed = pytest.importorskip("torch._C._distributed_c10d")
    heap = SymmetricHeap("ranks-1", str(tmp_path), 0, 1)
    group = distributed._resolve_process_group("ranks-1")
    assert (group.rank(), group.size(), heap is None) == (0, 1, False)


def test_a_rank_alone_has_its_own_addresses(player):
    """Its tables come empty, and hold the address of its heap on the GPU"""
    buffer, table = torch.zeros(4), torch.zeros(1, dtype=torch.int64)
    views = [View.of(tensor, number) for number, tensor in enumerate([X, buffer, table, table])]
    steps: list[Step] = [Inputs([0, 1, 2]), Operation(0, [{"t": 2}], {}, [3], 0)]
    copied = Program(views, dict.fromkeys(range(4), 64), ["aten::clone."], [HostLine()], steps=steps, results=[[3]])
    about: Any = {"heap": {"buffer": 1}, "tables": [[2, 1]]}
    request, session = Call(function="f", about=about, options={}), gpu_player.GpuSession()
    _, [found] = session._done(player, request, [X, buffer, table, copied.encoded()])
    assert found.tolist() == [buffer.data_ptr()]
