"""A recorder, its player, and a GPU beside them: whose result counts, and what the GPU is spared."""

import pytest
import torch

from assignment.judge import pair
from assignment.judge.replies import Fault, Ok
from assignment.tests.pairs import F, X, defined, result_of


class Gpu:
    """A player on a GPU, in place of a real one."""

    is_connected = True

    def __init__(self, *replies):
        self.replies, self.asked = list(replies), 0
        self.kinds = []

    def ask(self, request, tensors):
        self.asked += 1
        self.kinds.append(type(request).__name__)
        reply = self.replies.pop(0)
        return reply, [torch.zeros(3)] * sum(reply.get("groups", ()))

    def forget_output(self):
        """It prints nothing."""

    restart = end_child = close = forget_output


PLAYED = {"status": "ok", "groups": [1], "bare": True}


@pytest.fixture
def gpu(at):
    """Has the pair play on this one too."""
    workers = at.pair._workers

    def given(*replies):
        at.pair._workers = [*workers, Gpu(*replies)]
        return at.pair._workers[2]

    yield given
    at.pair._workers = workers


RIGHT = defined("return copied(x)")
OUT_OF_BOUNDS = """
@triton.jit
def _beyond(x_ptr):
    tl.store(x_ptr + 1_000_000, 0.0)
"""


def test_a_gpus_results_count(at, gpu):
    """With what the simulator says of the call: here of what was never stored"""
    at.take(defined("y = copied(x)", "torch.empty(3, device=x.device)", "return y"))
    gpu(PLAYED)
    assert result_of(at).tolist() == [0, 0, 0]
    assert [result.shape for result in at.pair.simulated] == [X.shape]


def test_what_is_measured_is_measured_in_the_simulator(at, gpu):
    """The GPU plays it to keep up: what the calls leave behind is there then"""
    at.take(RIGHT)
    player = gpu(PLAYED, PLAYED)
    reply, results = at.ask(F, X, kind="costs")
    assert player.asked == 2
    assert torch.equal(results[0], X)
    assert reply.groups == (1, 4)


def test_what_faults_in_the_simulator_is_not_launched_on_a_gpu(at, gpu):
    at.take(defined("_beyond[(1,)](x)", "return copied(x)", before=OUT_OF_BOUNDS))
    player = gpu()
    reply, _ = at.ask(F, X)
    assert (type(reply), player.asked) == (Fault, 0)
    assert not at.pair._player.is_connected


def test_what_fails_on_a_gpu_alone_fails(at, gpu):
    at.take(RIGHT)
    gpu({"status": "failed", "message": "out of registers"})
    reply, results = at.ask(F, X)
    assert (reply.message, results) == ("out of registers", [])


def test_what_a_gpu_has_no_room_for_is_judged_in_the_simulator(at, gpu):
    at.take(RIGHT)
    gpu({"status": "failed", "message": "CUDA out of memory", "fits": False})
    reply, (result,) = at.ask(F, X)
    assert torch.equal(result, X)
    assert "no room" in reply.notes[0]


def test_a_large_call_leaves_no_memory_taken(at, gpu, monkeypatch):
    """The GPU hears at once of what host code has let go, while no other judge has a large call there"""
    monkeypatch.setattr(pair, "LARGE", 0)
    at.take(RIGHT)
    player = gpu(PLAYED, {"status": "ok", "groups": [], "bare": False})
    assert isinstance(at.ask(F, X)[0], Ok)
    assert player.kinds == ["Call", "Sweep"]
    assert not at.pair.last.only_frees()


def test_what_the_simulator_has_found_is_the_verdict(at, gpu):
    """Whatever a GPU would say; and all begin anew, since it has not kept up"""
    at.take(defined("x.zero_()", "return copied(x)"))
    player = gpu()
    reply, _ = at.ask(F, X.clone())
    assert ("was written to" in reply.message, player.asked) == (True, 0)
    assert not at.pair._player.is_connected


def test_a_note_more_than_there_may_be_is_none(at, gpu):
    at.take(RIGHT)
    gpu({"status": "failed", "message": "CUDA out of memory", "fits": False})
    played = at.pair._player.ask

    def remarked(*asked):
        reply, results = played(*asked)
        return {**reply, "notes": ["x"] * 4}, results

    at.pair._player.ask = remarked
    try:
        reply, _ = at.ask(F, X)
    finally:
        del at.pair._player.ask
    assert len(reply.notes) == 4
