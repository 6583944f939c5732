"""What the grader makes of compiled kernels, and what it remembers of them."""

# mypy: disable-error-code="arg-type, assignment"

import contextlib
import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from assignment import digest
from assignment.compiling import cache
from assignment.compiling.kernel import Kernel
from assignment.compiling.targets import TARGETS
from assignment.judge import compiled
from assignment.judge.door import Run, SubmissionError
from assignment.judge.pair import RecorderAndPlayer
from assignment.judge.replies import Compiled
from assignment.protocol.program import HostLine, Launch, Program, View
from assignment.sandbox.worker_client import WorkerDied
from assignment.verdict import score


def says(text, *places):
    """What a worker says, with lines"""
    return {"text": text, "places": [*places]}


KERNELS = [Kernel("_copy_kernel", "cs336_kernels/x.py", 3, name, shared=512) for name in TARGETS]
REPLY = {"status": "compiled", "kernels": [kernel.as_json() for kernel in KERNELS], "stopped": {}, "refused": {}}
LINE = {"says": "at cs336_kernels/x.py:9", "path": "cs336_kernels/x.py", "line": 9}
SAID = {"status": "ok", "asked": False}
SEEN = {"cs336_kernels/x.py:3:4:if": ["True"]}
PLAYED = {"status": "ok", "groups": [1], "bare": True, "constants": [SEEN], "constants_of": [0]}
TO_DO = {"status": "raised", "types": ["NotImplementedError"], "message": "", "text": "x.py: f, handout/x.md",
         "by_submission": True, "in_kernel": False}  # fmt: skip


PROGRAM = Program()


class Scripted:
    """A worker that gives one reply to every request."""

    def __init__(self, reply, results=()):
        self.reply, self.results, self.requests = reply, list(results), []

    is_connected = True

    def ask(self, request, tensors):
        self.requests.append(request)
        if self.reply is None:
            raise WorkerDied(score.TIMEOUT, "no answer within 120 s")
        return dict(self.reply), self.results

    @property
    def asked(self):
        return len(self.requests)


class ScriptedPair(RecorderAndPlayer):
    """Of a recorder that says so, with the same program for every target, and of a player that plays it."""

    def __init__(self, said, compiler, program):
        data = program.encoded()
        scripted: Any = Scripted(said, [data]), Scripted(PLAYED, [torch.zeros(3)])
        self.recorder, self._player = self._workers = scripted
        self.kernels, self._figures, self._stubs, self._gpu = [], {}, {}, None
        self.compiler = lambda: compiler
        self._n_asked = self._n_compiled = 0
        self._unplayed = []
        self._stage: Any = SimpleNamespace(spend=lambda seconds: None, sources={})


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Where things are remembered."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cs336-kernels" / "compiled"


def run_with(reply, said=SAID, program=PROGRAM):
    compiler = Scripted(reply)
    pair = ScriptedPair(said, compiler, program)
    pool = SimpleNamespace(workers=[pair], worker_index=0, jobs=1)
    pool.stage = SimpleNamespace(sources={})
    pool.recorder_and_player = lambda: pair
    pool.shared = SimpleNamespace(given_up=lambda check: None, died=lambda check, status: None)
    return Run(pool), compiler


def test_kernels_that_fit_are_no_problem():
    run, _ = run_with(REPLY)
    assert run.compiled("f", torch.ones(3)) == []
    assert run.doubts == []


def test_kernels_are_compiled_for_the_targets_that_a_check_names():
    run, compiler = run_with(REPLY)
    run.compiled("f", torch.ones(3), targets=("h100", "b200"))
    assert [*compiler.requests[0].programs] == ["h100", "b200"]


def test_wrong_results_are_not_compiled():
    run, compiler = run_with(REPLY)

    def right(results):
        assert torch.equal(results, torch.zeros(3))
        raise ArithmeticError

    for _ in range(2):  # nothing is remembered
        with pytest.raises(ArithmeticError):
            run.compiled("f", torch.ones(3), right=right)
    assert not compiler.asked


@pytest.mark.parametrize("said", ["evidence", "doubts", "notes"])
def test_what_a_player_says_is_heard_every_time(said, monkeypatch):
    text = "computed by aten::sum"
    monkeypatch.setitem(PLAYED, said, [text if said == "notes" else says(text)])
    for _ in range(2):  # nothing is remembered
        run, _ = run_with(REPLY)
        assert run.compiled("weighted_sum_forward", torch.ones(3)) == []
        assert "computed by aten::sum" in str((run.evidence, run.doubts, run.notes))


@pytest.mark.parametrize(("said", "asked"), [(SAID, 1), (TO_DO, 0)], ids=["right", "to do"])
def test_the_compiler_is_started_where_there_is_something_to_compile(said, asked):
    """It takes a second to load; what the same launches came to is remembered"""
    run, compiler = run_with(REPLY, said)
    started = iter([compiler] * 9)
    run._worker.compiler = lambda: next(started)
    for _ in range(2):
        with contextlib.suppress(SubmissionError):
            run.compiled("f", torch.ones(3))
    assert not run.is_dropped()
    assert len([*started]) == 9 - asked


@pytest.mark.parametrize(
    ("changed", "decides"),
    [("assignment/judge/door.py", True), ("assignment/simulator/watch.py", True), ("tests/rows.py", True),
     ("assignment/bank/operators/rmsnorm/bugs.py", False), ("assignment/commands/report.py", False)],
)  # fmt: skip
def test_what_a_grader_of_other_rules_remembers_is_not_recalled(changed, decides, monkeypatch, tmp_path):
    monkeypatch.setattr(digest, "ROOT", tmp_path)

    def key(text):
        (tmp_path / changed).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / changed).write_text(text)
        digest.grader_digest.cache_clear()
        cache.versions.cache_clear()
        return cache.key("f")

    try:
        assert key("a") == key("a")
        assert (key("a") != key("b")) == decides
    finally:
        digest.grader_digest.cache_clear()
        cache.versions.cache_clear()


def test_kernels_that_do_not_fit_are():
    large = Kernel("_copy_kernel", "cs336_kernels/x.py", 3, "a100", shared=300 << 10)
    run, _ = run_with({**REPLY, "kernels": [*REPLY["kernels"], large.as_json()]})
    (text,) = run.compiled("f", torch.ones(3))
    assert text.startswith("_copy_kernel, compiled for A100: needs 300 KB of shared memory; a program has 163 KB there")


def test_what_the_compiler_crashes_over_is_not_judged():
    """Where the kernel is compiled for another GPU, and fits; otherwise staff look at it"""
    crashed = {**KERNELS[-1].as_json(), "error": "PassManager::run failed", "is_crash": True}
    run, _ = run_with({**REPLY, "kernels": [*(kernel.as_json() for kernel in KERNELS[:-1]), crashed]})
    assert run.compiled("f", torch.ones(3)) == []
    assert "_copy_kernel, compiled for B200: Triton's own compiler crashed" in run.notes[0]
    assert run.doubts == []
    run, _ = run_with({**REPLY, "kernels": [crashed]})
    assert run.compiled("f", torch.ones(3)) == []
    assert "staff will look at it" in run.doubts[0].text


def test_what_is_not_written_yet_needs_no_compiler():
    run, compiler = run_with(REPLY, said=TO_DO)
    with pytest.raises(SubmissionError, match=r"handout/x\.md") as caught:
        run.compiled("f", torch.ones(3))
    assert (caught.value.status, compiler.asked) == (score.TO_DO, 0)


def test_a_call_is_recorded_once_unless_host_code_asks_about_the_gpu(monkeypatch):
    """Where it does, it is for each target; those that are alike are compiled as one"""
    for asked, n in ((False, 1), (True, 3)):
        monkeypatch.setattr(cache, "versions", lambda n=n: [str(n)])
        run, compiler = run_with(REPLY, said={**SAID, "asked": asked})
        run.compiled("f", torch.ones(3))
        assert compiler.requests[0].programs == dict.fromkeys(TARGETS, 0)
        recorder = run._pool.recorder_and_player().recorder
        assert [request.target for request in recorder.requests if request.target] == list(TARGETS)[:n]


def test_a_call_that_stops_is_told():
    """And is not doubted for what it did not come to"""
    stopped = dict.fromkeys(TARGETS, says("ValueError: NaN\n  at cs336_kernels/x.py:9", LINE))
    run, _ = run_with({**REPLY, "kernels": [], "stopped": stopped})
    (text,) = run.compiled("f", torch.ones(3))
    assert "stopped before its last launch, compiled for A100, H100 and B200: ValueError: NaN\n  at cs336" in text
    assert [(place.path, place.line) for said in run.problems for place in said.places] == [("cs336_kernels/x.py", 9)]
    assert "what they would store is NaN" in text
    assert run.doubts == []


def test_a_launch_that_triton_refuses_is_told():
    refused = dict.fromkeys(TARGETS, says("AssertionError: num_warps\n  at cs336_kernels/x.py:9"))
    run, _ = run_with({**REPLY, "kernels": [], "refused": refused})
    (text,) = run.compiled("f", torch.ones(3))
    assert (
        text == "Triton refuses a launch for A100, H100 and B200: AssertionError: num_warps\n  at cs336_kernels/x.py:9"
    )


def test_a_call_without_kernels_is_a_problem():
    run, _ = run_with({**REPLY, "kernels": []})
    assert run.compiled("f", torch.ones(3)) == ["the call launches no kernel, so there is none to compile"]


def test_a_kernel_that_is_compiled_otherwise_than_it_was_played_is_told():
    """The player's constants go to the compiler, which compares; what differs is not remembered"""
    for _ in range(2):
        run, compiler = run_with({**REPLY, "differing": [says("this `if` takes its body\n  at cs336_kernels/x.py:3")]})
        (text,) = run.compiled("f", torch.ones(3))
        assert text.startswith("the kernel that was graded is not the kernel that is compiled: this `if` takes")
        assert compiler.asked == 1
    assert compiler.requests[0].constants == {"0": {"seen": [SEEN], "of": [0]}}


@pytest.mark.parametrize("reply", [None, {"status": "compiled"}, {**REPLY, "kernels": [None]}, PLAYED])
def test_a_worker_that_gives_no_such_reply(reply):
    run, _ = run_with(reply)
    with pytest.raises(SubmissionError) as caught:
        run.compiled("f", torch.ones(3))
    assert caught.value.status in (score.TIMEOUT, score.CRASHED)


CRASHED = Kernel("k", "cs336_kernels/x.py", 3, "a100", error="the compiler itself crashed (SIGKILL)")


@pytest.mark.parametrize("failed", [{"kernels": [CRASHED.as_json()]}, {"stopped": {"a100": says("MemoryError")}}])
def test_failures_are_not_remembered(folder, failed):
    """They may be those of a machine that is short of memory"""
    run, _ = run_with({**REPLY, **failed})
    assert run.compiled("f", torch.ones(3)) != []
    assert list(folder.iterdir()) == []


def asked(program=PROGRAM):
    """Return how often the compiler is asked by a run; its call is recorded and played each time."""
    run, compiler = run_with(REPLY, program=program)
    assert run.compiled("f", torch.ones(3)) == []
    assert run._pool.recorder_and_player().recorder.asked == 1
    return compiler.asked


def launching(size=64, warps=4, dtype="float32", offset=0):
    """Return a program that launches a kernel."""
    arguments: Any = {"x": {"t": 0}, "SIZE": size}
    launch = Launch(0, [1, 1, 1], arguments, {"num_warps": warps}, None, False, 0)
    views = [View(0, dtype, offset, (3,), (1,))]
    return Program(views, {0: 64}, lines=[HostLine("cs336_kernels/x.py", 3, "f")], steps=[launch])


def test_what_was_compiled_is_remembered_by_all_that_is_compiled(monkeypatch):
    """A submission may draw what it launches: nothing is remembered of its text alone"""
    changed = [launching(), launching(size=128), launching(warps=8), launching(dtype="bfloat16"), launching(offset=1)]
    assert [asked(program) for program in (*changed, *changed)] == [1] * 5 + [0] * 5
    monkeypatch.setitem(PLAYED, "constants", [{}])
    assert asked(changed[0]) == 1
    monkeypatch.setattr(cache, "versions", lambda: ["triton 9"])
    assert asked(changed[0]) == 1


def test_a_lucky_draw_is_not_remembered_for_the_next():
    large = Kernel("_copy_kernel", "cs336_kernels/x.py", 3, "a100", shared=300 << 10)
    for program, reply, fits in (
        (launching(64), REPLY, True),
        (launching(4096), {**REPLY, "kernels": [large.as_json()]}, False),
    ):
        run, _ = run_with(reply, program=program)
        assert (run.compiled("f", torch.ones(3)) == []) == fits


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"status": "ok"}', "[" * 100_000, json.dumps(TO_DO), "\0" * (2 << 20)]
)
def test_a_damaged_file_is_no_file(folder, content):
    assert asked() == 1
    for file in folder.iterdir():
        file.write_text(content)
    assert asked() == 1
    assert asked() == 0


def test_failures_of_the_worker_are_not_remembered(folder):
    run, _ = run_with(None)
    with pytest.raises(SubmissionError):
        run.compiled("f", torch.ones(3))
    assert list(folder.iterdir()) == []
    assert asked() == 1


def test_without_a_folder_nothing_is_remembered(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert (asked(), asked()) == (1, 1)


def test_the_folder_does_not_grow_for_ever(folder, monkeypatch):
    monkeypatch.setattr(cache, "MAX_FILES", 3)
    for size in range(5):
        asked(launching(size))
    assert len(list(folder.iterdir())) == 3
    assert asked(launching(4)) == 0
    assert asked(launching(0)) == 1


def test_a_kernel_that_asks_for_its_gpu_is_for_staff():
    """It may be an empty one where nobody runs it"""
    (doubt,) = compiled.unknown(
        Compiled((), {}, {}), {"cs336_kernels/a.py": "tl.target_info.is_cuda()", "cs336_kernels/b.py": ""}
    )
    assert doubt.text.startswith("cs336_kernels/a.py asks which GPU")
