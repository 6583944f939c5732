"""What the grader makes of a worker's replies, with workers that say what they are told to."""

# mypy: disable-error-code="arg-type, method-assign"

from types import SimpleNamespace

import pytest
import torch

from assignment import plugin
from assignment.judge import door, replies
from assignment.judge.door import Run, SubmissionError
from assignment.plugin import fixtures
from assignment.protocol.program import Free, Launch, Program, drawn
from assignment.protocol.replies import NOT_IMPORTED, OTHER, Failed
from assignment.sandbox.worker_client import WorkerDied
from assignment.verdict import score
from tests import compare
from tests.door import Costs

RIGHT = {"status": "ok", "groups": [1], "bare": True, "notes": []}
FAULT = {
    "status": "fault",
    "kind": "race",
    "message": "race: programs (0, 0, 0) and (1, 0, 0) of kernel both touch y[0]",
}
RAISED = {"status": "raised", "types": [], "message": "", "text": "", "by_submission": False, "in_kernel": True}


class Scripted:
    """A worker that gives one reply to every request, or dies of it."""

    def __init__(self, reply):
        self.reply, self.asked = reply, 0
        self.last: Program | None = None

    def ask(self, request, tensors):
        self.asked += 1
        if self.reply is None:
            raise WorkerDied(score.TIMEOUT, "no answer")
        results = [torch.ones(3)] * sum(self.reply.get("groups", []))
        return replies.read(self.reply, len(results)), results

    def output(self):
        return ""


def run_on(worker):
    pool = SimpleNamespace(
        device="cpu", workers=[worker], worker_index=0, draws_multiprocessors=False, keeps_launches=False
    )
    ended: dict[str, str] = {}
    pool.shared = SimpleNamespace(given_up=ended.get, died=ended.__setitem__)
    return Run(pool, check="a check")


def test_a_fault_fails_the_call():
    """A reply of status "fault" is the submission's failure, with the simulator's message"""
    worker = Scripted(FAULT)
    with pytest.raises(SubmissionError, match="both touch") as caught:
        run_on(worker)("rmsnorm", torch.ones(3))
    assert caught.value.status == score.FAIL


def test_a_warning_costs_nothing():
    """Whatever comes of its call; a configuration is not drawn for it, for Triton's tuner may drop that"""

    def wrong(results):
        raise compare.Mismatch("wrong")

    for reply, is_right, n_notes in ((RIGHT, lambda results: None, 0), (RIGHT, wrong, 1), (FAULT, wrong, 1)):
        run = run_on(Scripted(reply))
        run.draws = 5
        run.warn_unless(is_right, "rows change others", "rmsnorm", torch.ones(3))
        assert run.notes == ["rmsnorm: rows change others"] * n_notes
        assert (run.draws, run.asked) == (5, None)

    drawing = Scripted(RIGHT)
    drawing.ask = lambda request, tensors: (_ for _ in ()).throw(AssertionError(request.drawn))
    run = run_on(drawing)
    run.draws = 5
    with pytest.raises(AssertionError, match="None"):
        run.warn_unless(wrong, "", "rmsnorm", torch.ones(3))


@pytest.mark.parametrize(("function", "is_refused"), [("rmsnorm", True), ("flash_forward_pytorch", False)])
def test_a_launch_before_the_mistake_is_refused(function, is_refused):
    """Of a function whose work is that of kernels"""
    worker = Scripted({**RAISED, "types": ["ValueError"], "in_kernel": False})
    worker.last = Program(steps=[Free([]), Launch(0, [1, 1, 1], {}, {}, None, False, 0)])
    if is_refused:
        with pytest.raises(SubmissionError, match="before any launch, but a kernel was launched"):
            run_on(worker).raises(ValueError, function, torch.ones(3))
    else:
        run_on(worker).raises(ValueError, function, torch.ones(3))
    worker.last = Program(steps=[Free([])])
    run_on(worker).raises(ValueError, function, torch.ones(3))


def test_an_error_of_the_launch_is_no_check_of_inputs():
    """A ValueError of Triton's, such as that of a tensor on the CPU, is none before a launch"""
    worker = Scripted({**RAISED, "types": ["ValueError"], "message": "ValueError: Pointer argument"})
    with pytest.raises(SubmissionError, match=r"but it raised ValueError: Pointer argument\n  that is an error of the"):
        run_on(worker).raises(ValueError, "rmsnorm", torch.ones(3))


def test_a_fault_where_a_mistake_was_to_be_refused():
    """What the check asks for comes first, then what the launch has done"""
    worker = Scripted(FAULT)
    with pytest.raises(
        SubmissionError, match=r"expected a ValueError before any launch, but a kernel .*\n.*both touch"
    ):
        run_on(worker).raises(ValueError, "rmsnorm", torch.ones(3))


def test_after_a_timeout_the_other_cases_of_a_check_are_not_run():
    """Nor is another check of the function any the worse for it"""
    worker = Scripted(None)
    run = run_on(worker)
    for message in ("no answer", "not run: another case of this check has run out of time"):
        with pytest.raises(SubmissionError, match=message) as caught:
            run("rmsnorm", torch.ones(3))
        assert caught.value.status == score.TIMEOUT
    assert worker.asked == 1
    worker.reply, run._check = RIGHT, "another"
    assert run("rmsnorm", torch.ones(3)).tolist() == [1, 1, 1]


@pytest.mark.parametrize("kind", [NOT_IMPORTED, OTHER])
def test_a_function_that_is_not_there_has_no_rounds_that_pass(kind):
    run = run_on(Scripted(RIGHT))
    ended = Failed("cs336_kernels/rmsnorm.py has no function rmsnorm_forward", kind)
    run._pool.recorder_and_player = lambda: SimpleNamespace(
        unplayed=lambda *asked: (ended, Program()), settle=lambda: None
    )
    with pytest.raises(SubmissionError, match="has no function"):
        run.rounds("rmsnorm_forward", lambda n: [torch.ones(n, 4), torch.ones(4)], first=2, tile=1)


def test_what_hangs_the_compiler_is_not_tried_again():
    asked = []

    def hangs(*arguments):
        asked.append(arguments)
        raise WorkerDied(score.TIMEOUT, "no answer")

    run = run_on(Scripted(RIGHT))
    run._pool.jobs, run._pool.recorder_and_player = 1, lambda: SimpleNamespace(compile=hangs)
    for _ in range(5):
        with pytest.raises(SubmissionError, match=r"compiled|not run") as caught:
            run.compiled("rmsnorm", torch.ones(3))
        assert caught.value.status == score.TIMEOUT
    assert len(asked) == 1


def test_remarks_are_kept_and_shown():
    """Warnings of right calls are gathered, once each, and stand beside the message of a later failure"""
    worker = Scripted({**RIGHT, "notes": ["masked load without other=: a lane …\n  at cs336_kernels/rmsnorm.py:3"]})
    run = run_on(worker)
    for _ in range(2):
        run("rmsnorm", torch.ones(3))
    assert len(run.notes) == 1
    assert "note: masked load without other=" in run.in_context("y: 1 of 3 elements wrong")


def test_a_message_is_the_same_in_the_next_run():
    """Whatever the process printed as it crashed: neither addresses nor this run's, or machine's, folders are told"""
    run = run_on(Scripted(RIGHT))
    run._worker.output = lambda: (
        "Current thread 0x00007f22619e4b80 (most recent call first):\n"
        '  File "/tmp/cs336-grader-x1_y2z3a/grade-nxo0iwjx/submission/cs336_kernels/rmsnorm.py", line 79 in forward\n'
        '  File "/tmp/grade-nxo0iwjx/runtime/record/assignment/recorder/session.py", line 3 in call\n'
        '  File "/home/ada/venv/lib/python3.13/site-packages/torch/autograd/function.py", line 5 in apply\n'
        "/tmp/grade-nxo0iwjx/scratch/tmpab12cd_3/cache at 1/2 of 0x1f in my/assignment/x\n"
    )
    assert run.in_context("<K object at 0x7f22619e4b80>").splitlines() == [
        "<K object at 0x…>",
        "  printed: Current thread 0x… (most recent call first):",
        '  printed:   File "cs336_kernels/rmsnorm.py", line 79 in forward',
        '  printed:   File "assignment/recorder/session.py", line 3 in call',
        '  printed:   File "site-packages/torch/autograd/function.py", line 5 in apply',
        "  printed: cache at 1/2 of 0x1f in my/assignment/x",
    ]


def test_where_host_code_read_values_is_shown_where_results_are_wrong():
    """Once each; a call whose results are right may read what it likes"""
    place = "  at cs336_kernels/rmsnorm.py:3 in rmsnorm: if x.sum() > 0:"
    worker = Scripted({**RIGHT, "reads": [place]})
    run = run_on(worker)
    for _ in range(2):
        run("rmsnorm", torch.ones(3))
    assert run.notes == []
    said = run.in_context("y: 1 of 3 elements wrong")
    assert said.count("host code runs on other values") == said.count(place.strip()) == 1


@pytest.mark.parametrize("notes", ["text", [1], ["x"] * 100])
def test_forged_remarks_are_refused(notes):
    """Notes are a few texts, whatever a submission makes its worker say"""
    worker = Scripted({**RIGHT, "notes": notes})
    with pytest.raises(SubmissionError, match="cannot be read"):
        run_on(worker)("rmsnorm", torch.ones(3))


def test_what_a_call_moves_stands_beside_the_least():
    tensors, y, rstd = (torch.ones(4, 8), torch.ones(8)), torch.ones(4, 8), torch.ones(4)
    moved = door.moved_by("rmsnorm_forward", tensors, (y, rstd), Costs((y, rstd), [256, 128], [1, 1], [128, 16], 0))
    assert [(one["tensor"], one["verb"], one["bytes"], one["least"]) for one in moved] == [
        ("x", "read", 256, 128),
        ("weight", "read", 128, 32),
        ("y", "written", 128, 128),
        ("rstd", "written", 16, 16),
    ]


@pytest.mark.parametrize("rows", [[[1], [1]], [[1], [1], [1, 2]], [[-1], [1], [1]], [[1], [1], [1], [1]]])
def test_forged_costs_are_refused(rows):
    """Figures have a length for each input and result"""
    figures = [torch.tensor(row) for row in rows]
    worker = Scripted({**RIGHT, "groups": [1, len(rows)], "bare": True})
    worker.ask = lambda request, tensors: (replies.read(worker.reply, 1 + len(rows)), [torch.ones(3), *figures])
    with pytest.raises(SubmissionError, match="cannot be read"):
        run_on(worker).costs("rmsnorm", torch.ones(3))


def test_a_configuration_that_was_not_launched_is_seen():
    """A recorder that says it has launched what it was asked for"""
    configurations = [{"SIZE": 16, "num_warps": 4}, {"SIZE": 32, "num_warps": 8}]
    for size, warps, is_as_asked in ((32, 8, True), (16, 4, False), (32, 4, False)):
        launch = Launch(0, [1, 1, 1], {"SIZE": size}, {"num_warps": warps}, configurations, False, 0)
        assert door.configurations.is_as_asked([launch], 1) == is_as_asked
    assert len(door.configurations.among([launch])) == 2
    assert door.configurations.others(["a"] * 3, 1, "case") == [1, 2]
    assert len(door.configurations.others(["a"] * 40, 1, "case")) == 15
    assert 33 in door.configurations.others(["b" if number == 33 else "a" for number in range(40)], 1, "case")


def test_a_drawn_configuration_is_one_of_all_or_of_those_that_differ():
    """By turns, so that many alike hide none, and that none is hidden by another that gives the same values"""
    alike = ["a"] * 40 + ["b"]
    assert {drawn(number, alike) for number in range(1, 200, 2)} == {0, 40}
    assert {drawn(number, alike) for number in range(0, 200, 2)} == {*range(41)}
    draws = {door.configurations.draw(seed, "case") for seed in range(9)}
    assert len(draws) == 9
    assert max(draws) < 1 << 32


def test_a_call_is_launched_as_it_was_drawn():
    """It is told in the message, and a recorder that launches another configuration is seen"""
    configurations = [{"SIZE": 16, "num_warps": 4}, {"SIZE": 32, "num_warps": 8}]
    launch = Launch(0, [1, 1, 1], {"SIZE": 32}, {"num_warps": 8}, configurations, False, 0)
    worker = Scripted(RIGHT)
    worker.last = Program(steps=[launch])
    run = run_on(worker)
    run.draws = 3
    assert run("rmsnorm", torch.ones(3)).tolist() == [1, 1, 1]
    assert "in configuration 2 of those left after pruning" in run.in_context("wrong")
    run.draws = 4
    with pytest.raises(SubmissionError, match="not launched in the configuration asked for"):
        run("rmsnorm", torch.ones(3))
    run.draws = 3
    with pytest.raises(SubmissionError, match="not launched in the configuration asked for"):
        run.costs("rmsnorm", torch.ones(3))  # which are counted in the first


@pytest.mark.parametrize("is_dropped", [True, False])
def test_a_drawn_configuration_that_triton_drops_is_played_in_the_first(monkeypatch, is_dropped):
    """What it was told of is forgotten; another failure stands"""
    played = []
    run = SimpleNamespace(draws=None, notes=["before"], is_dropped=lambda: is_dropped)
    info = SimpleNamespace(argnames=["run"])
    item = SimpleNamespace(config=None, funcargs={"run": run}, _fixtureinfo=info, stash={}, obj=None)
    item.obj = lambda run: played.append(run.draws)
    monkeypatch.setattr(fixtures, "pool_of", lambda config: SimpleNamespace(seed=1))
    monkeypatch.setattr(fixtures, "case_name", lambda item: "case")
    call = plugin.pytest_pyfunc_call(item)
    next(call)
    assert run.draws is not None
    run.notes.append("in the one that was drawn")
    with pytest.raises(StopIteration if is_dropped else ValueError):
        call.throw(ValueError("too large"))
    assert played == ([None] if is_dropped else [])
    assert len(run.notes) == (1 if is_dropped else 2)
