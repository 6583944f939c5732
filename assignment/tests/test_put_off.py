"""Programs that wait for what comes next: they are played if it needs what they make, or does something else."""

import pytest
import torch

from assignment.compiling.targets import TARGETS
from assignment.judge.replies import Compiled, Ok
from assignment.tests.pairs import F, X, defined, desk, request

BEFORE = 'kept = []\ntable = torch.zeros(3, device="cuda")\n'
ASKS = "n = torch.cuda.get_device_properties(0).multi_processor_count"


class Compiler:
    """A worker that compiles nothing, and notes for which targets it has which program."""

    def __init__(self):
        self.programs = []

    def ask(self, asked, programs):
        self.programs.append(asked["programs"])
        return {"status": "compiled", "kernels": [], "stopped": {}}, []


@pytest.fixture(scope="module")
def at():
    with desk() as held:
        yield held


@pytest.fixture
def played(at, monkeypatch):
    """The numbers of launches of the programs that are played."""
    noted = []
    play = at.pair._played

    def watched(asked, tensors, said, program, data):
        noted.extend([len(program.launches())] * bool(program.launches()))
        return play(asked, tensors, said, program, data)

    monkeypatch.setattr(at.pair, "_played", watched)
    return noted


@pytest.mark.parametrize(
    ("lines", "launches"),
    [
        (["return copied(x)"], [1]),
        (["if not kept: kept.append(copied(x.new_ones(x.shape)))", "return copied(x) * kept[0]"], [2, 1]),
        (["y = copied(x)", "kept.append(copied(x))", "return y"], [2, 2]),
        (["kept.append(1)", "return copied(x) if len(kept) > 1 else copied(x + 0)"], [1, 1]),
        (["table.add_(1)", "return copied(x) * (table[0] > 1)"], [1, 1]),
    ],
    ids=["alike, and all is gone", "its memory is needed", "its memory lives on", "other steps", "memory from before"],
)
@pytest.mark.parametrize("kind", ["costs", "kept"])
def test_a_call_before_the_one_that_counts_is_played_where_that_matters(at, played, kind, lines, launches):
    function = "weighted_sum" if kind == "kept" else F
    at.take(defined(*lines, before=BEFORE) + AUTOGRAD)
    at.ask("weighted_sum_backward", X)
    reply, _ = at.ask(function, X, kind=kind)
    assert isinstance(reply, Ok), reply
    assert played == launches
    assert isinstance(at.ask(F, X)[0], Ok)


def test_nothing_is_put_off_by_a_player_that_has_not_begun(at, played):
    """What is recorded next would be recorded in a new process, without the call before it"""
    at.take(defined("return copied(x)"))
    assert isinstance(at.ask(F, X, kind="costs")[0], Ok)
    assert played == [1, 1]


AUTOGRAD = f"""
def weighted_sum_backward(x):
    return x + 1
class Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return {F}(x)

    @staticmethod
    def backward(ctx, grad):
        return grad

weighted_sum = Summed.apply
"""


@pytest.mark.parametrize(
    ("lines", "programs", "launches"),
    [
        (["return copied(x)"], [0, 0, 0], [1]),
        ([ASKS, "return copied(x)"], [0, 0, 0], [1]),
        ([ASKS, "return copied(x) if n > 120 else copied(x + 0)"], [0, 1, 1], [1, 1]),
        ([ASKS, "y = copied(x)", "kept.append(copied(y))", "return y"], [0, 0, 0], [2, 2, 2]),
    ],
    ids=["not asked", "alike for all", "other steps for one", "memory that lives on"],
)
def test_a_call_that_is_alike_for_several_gpus_is_played_once(at, played, lines, programs, launches, cache):
    """And again where what it made is still there: the next call may need it"""
    at.take(defined(*lines, before=BEFORE) + AUTOGRAD)
    at.ask("weighted_sum_backward", X)  # what is made at import is made in the first call's program
    judged, compiler = [], Compiler()
    at.pair.compiler = lambda: compiler
    asked = {**request(F, "compile", {}), "targets": [*TARGETS], "processes": 1}
    assert isinstance(at.pair.compile(asked, [X], lambda reply, results: judged.append(results[0])), Compiled)
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
