"""Calls that are recorded for several GPUs: one that does what another has done is not played."""

import pytest
import torch

from assignment.compiling.targets import TARGETS
from assignment.judge.replies import Compiled, Ok
from assignment.protocol import program
from assignment.tests.pairs import F, X, defined, desk, request

BEFORE = "kept = []\n"
OTHER = "def weighted_sum_backward(x):\n    return x + 1\n"
ASKS = "n = torch.cuda.get_device_properties(0).multi_processor_count"


class Compiler:
    """A worker that compiles nothing, and notes for which targets it has which program."""

    def __init__(self):
        self.programs = []

    def ask(self, asked, programs):
        self.programs.append(asked.programs)
        return {"status": "compiled", "kernels": [], "stopped": {}, "refused": {}}, []


@pytest.fixture(scope="module")
def at():
    with desk() as held:
        yield held


@pytest.fixture
def played(at, monkeypatch):
    """The numbers of launches of the programs that are played."""
    noted = []
    ask = at.pair._player.ask

    def watched(asked, tensors):
        launches = program.read(tensors[-1]).launches()
        noted.extend([len(launches)] * bool(launches))
        return ask(asked, tensors)

    monkeypatch.setattr(at.pair._player, "ask", watched)
    return noted


@pytest.mark.parametrize(
    ("lines", "programs", "launches"),
    [
        (["return copied(x)"], [0, 0, 0], [1]),
        ([ASKS, "return copied(x)"], [0, 0, 0], [1]),
        ([ASKS, "return copied(x) if n > 120 else copied(x + 0)"], [0, 1, 1], [1, 1]),
        ([ASKS, "y = copied(x)", "kept.append(copied(y))", "return y"], [0, 1, 2], [2, 2, 2]),
    ],
    ids=["not asked", "alike for all", "other steps for one", "memory that lives on"],
)
def test_a_call_that_is_alike_for_several_gpus_is_played_once(at, played, lines, programs, launches, cache):
    """And again where memory that it used is still there: the next call may need it"""
    at.take(defined(*lines, before=BEFORE) + OTHER)
    at.ask("weighted_sum_backward", X)  # what is made at import is made in the first call's program
    judged, compiler = [], Compiler()
    at.pair.compiler = lambda: compiler
    asked = request(F, "call", {}), [X], lambda reply, results: judged.append(results[0]), [*TARGETS], 1
    assert isinstance(at.pair.compile(*asked), Compiled)
    assert all(torch.equal(result, X) for result in judged)
    assert len(judged) == max(programs) + 1
    assert compiler.programs == [dict(zip(TARGETS, programs, strict=True))]
    assert isinstance(at.ask(F, X)[0], Ok)
    assert played[:-1] == launches


@pytest.fixture
def cache(at, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    yield
    at.pair.compiler = None
