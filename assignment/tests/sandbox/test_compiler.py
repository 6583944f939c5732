"""A player and a compiler run no code of a submission's; where it got into one all the same, it would be confined."""

import os
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

from assignment.protocol.requests import Load
from assignment.sandbox import rungs, stage
from assignment.sandbox.worker_client import Worker, WorkerDied
from assignment.submission import Submission
from assignment.tests.sandbox.boxes import MODULES, ROOT, TRY, grade, rungs_that_work, socket_on_loopback

PLANTED = f"""
import {MODULES}
from assignment.protocol.replies import Loaded
{TRY}
def answer(request, tensors):
    said = {{}}
    exec(request.sources.get("code", ""), {{**globals(), "said": said}})
    return Loaded(said), []

class PlayerSession:
    def answer(self, request, tensors):
        return answer(request, tensors)
"""
FILES = {"play": "assignment/player/session.py", "compile": "assignment/player/launch_compiler.py"}


class Planted:
    """A worker of this role whose own program is replaced by one that does what it is told."""

    def __init__(self, role: str, rung: str) -> None:
        self.role, self.rung, self.stage = role, rung, stage.Stage(Submission({"cs336_kernels/weighted_sum.py": b""}))
        (self.stage.runtime(role) / FILES[role]).write_text(PLANTED)
        self.worker = Worker(self.stage, role, rung)

    def run(self, code: str) -> Any:
        return self.worker.ask(Load(sources={"code": textwrap.dedent(code)}), [])[0]["import_error"]


@pytest.fixture(params=FILES)
def role(request) -> str:
    return request.param


@pytest.fixture(params=rungs_that_work(rungs.RUNGS))
def planted(role, request) -> Iterator[Planted]:
    opened = Planted(role, request.param)
    yield opened
    opened.worker.close()
    opened.stage.close()


@pytest.mark.slow
@pytest.mark.parametrize("rung", rungs_that_work(rungs.RUNGS, "compile"))
def test_kernels_are_compiled_inside(rung, tmp_path, monkeypatch):
    """And what came of them is remembered by the grader"""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    only = ("--only", "test_weighted_sum.py::test_compiles", "--sandbox", rung)
    done, report = grade(tmp_path, ROOT / "assignment/reference", *only)
    assert done.returncode == 0, done.stderr
    assert {c["status"] for problem in report["problems"] for c in problem["checks"]} == {"ok"}
    assert len(list((tmp_path / "cache/cs336-kernels/compiled").glob("*.json"))) == 4


def test_it_is_confined(planted, tmp_path):
    if planted.rung in rungs.UNSAFE:
        pytest.skip("limits alone hide nothing")
    (tmp_path / "remembered.json").write_text("{}")
    with socket_on_loopback() as port:
        attempts = {
            "the reference": f"open({str(ROOT / 'assignment/reference/cs336_kernels/rmsnorm.py')!r}).read(1)",
            "the submission": f"open({str(planted.stage.submission / 'cs336_kernels/weighted_sum.py')!r}).read(1)",
            "what is remembered": f"open({str(tmp_path / 'remembered.json')!r}).read(1)",
            "a file elsewhere": f"open({str(tmp_path / 'planted')!r}, 'w')",
            "TCP": f"socket.create_connection(('127.0.0.1', {port}), 5)",
            "Unix sockets": "socket.socket(socket.AF_UNIX)",
            "kill the supervisor": "os.kill(os.getppid(), 0)",
            "kill the grader": f"os.kill({os.getpid()}, 0)",
        }
        attempts |= {"a program": "subprocess.run(['true'])"} if planted.role == "play" else {}
        worked = planted.run(f"said['worked'] = tried({list(attempts.values())!r})")["worked"]
    assert {name for name, did in zip(attempts, worked, strict=True) if did} == set()


@pytest.mark.slow
@pytest.mark.parametrize("role", ["compile"])
def test_processes_are_started_and_ended(planted):
    """As many as a compiler needs, and none that stays"""
    assert planted.run("said['status'] = subprocess.run(['true'], check=True).returncode")["status"] == 0
    with pytest.raises(WorkerDied, match=r"more than 64 processes|was killed"):
        planted.run("while True:\n    os.fork()")
    assert planted.run("said['lives'] = True")["lives"]
