"""A worker that compiles: the compiler works inside, and it is confined too."""

import ast
import os
import re
import shutil
import textwrap

import pytest
import torch

from assignment.grading import rungs, stage
from assignment.grading.sandbox import Worker, WorkerDied
from assignment.grading.submission import Submission
from assignment.tests.sandbox.boxes import ROOT, Box, grade, rungs_that_work, socket_on_loopback


class Compiler(Box):
    """A worker that compiles; what the submission returns comes back in the words of an exception."""

    def call(self):
        request = {"kind": "compile", "function": "weighted_sum_forward", "options": {}, "targets": ["h100"]}
        reply, _ = self.worker.ask({**request, "processes": 1}, [torch.ones(3)])
        (told,) = re.findall(r"RuntimeError: (\[.*?\]|.*)", reply["stopped"]["h100"])
        return torch.tensor(ast.literal_eval(told))

    def load(self, code):
        body = textwrap.indent(textwrap.dedent(code), "    ")
        super().load(f"def answer():\n{body}\nraise RuntimeError(answer().tolist())")


@pytest.fixture(params=rungs_that_work(rungs.RUNGS, "compile"))
def box(request):
    held = stage.Stage(Submission({"cs336_kernels/weighted_sum.py": b""}))
    worker = Worker(held, "compile", request.param)
    yield Compiler(request.param, held, worker)
    worker.close()
    held.close()


@pytest.mark.parametrize("rung", rungs_that_work(rungs.RUNGS, "compile"))
def test_kernels_are_compiled_inside(rung, tmp_path, monkeypatch):
    """And what came of them is remembered by the grader"""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    only = ("--only", "test_weighted_sum_compiles", "--sandbox", rung)
    done, report = grade(tmp_path, ROOT / "assignment/reference", *only)
    assert done.returncode == 0, done.stderr
    assert {c["status"] for problem in report["problems"] for c in problem["checks"]} == {"ok"}
    assert len(list((tmp_path / "cache/cs336-kernels/compiled").glob("*.json"))) == 4


def test_it_is_confined(box, tmp_path):
    if box.rung in rungs.UNSAFE:
        pytest.skip("limits alone hide nothing")
    (tmp_path / "remembered.json").write_text("{}")
    with socket_on_loopback() as port:
        attempts = {
            "the reference": f"open({str(ROOT / 'assignment/reference/cs336_kernels/rmsnorm.py')!r}).read(1)",
            "what is remembered": f"open({str(tmp_path / 'remembered.json')!r}).read(1)",
            "a file elsewhere": f"open({str(tmp_path / 'planted')!r}, 'w')",
            "TCP": f"socket.create_connection(('127.0.0.1', {port}), 5)",
            "Unix sockets": "socket.socket(socket.AF_UNIX)",
            "kill the supervisor": "os.kill(os.getppid(), 0)",
            "kill the grader": f"os.kill({os.getpid()}, 0)",
        }
        assert box.that_work(attempts) == set()


def test_processes_are_started_and_ended(box):
    """As many as a compiler needs, and none that stays"""
    assert box.run("subprocess.run(['true'], check=True)\nreturn x.sum()") == 3
    with pytest.raises(WorkerDied, match="left a process running"):
        box.run("subprocess.Popen(['sleep', '1000'])\nreturn x.sum()")
    with pytest.raises(WorkerDied, match=r"more than 64 processes|was killed"):
        box.run("while True:\n    os.fork()")
    assert box.run("return x.sum()") == 3


SHOWN = """

@triton.jit
def _another_kernel(x_ptr):
    tl.store(x_ptr, 1.0)


_run = weighted_sum_forward


def weighted_sum_forward(x, weight):
    import os
    if os.environ.get("TRITON_INTERPRET") == "1":
        return _run(x, weight)
    {}
    return x[..., 0]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("instead", "status", "words"),
    [
        ("_another_kernel[(1,)](x)", "needs review", "launches _weighted_sum_forward_kernel in the simulator, and not"),
        ("pass", "FAIL", "the call launches no kernel, so there is none to compile"),
        ("os._exit(3)", "crashed", "while it was compiled: the process ended itself with exit status 3"),
    ],
)
def test_other_kernels_for_the_compiler(tmp_path, monkeypatch, instead, status, words):
    """What is compiled must be what runs"""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    reference = ROOT / "assignment" / "reference" / "cs336_kernels"
    shutil.copytree(reference, tmp_path / "work" / "cs336_kernels")
    with (tmp_path / "work" / "cs336_kernels" / "weighted_sum.py").open("a") as file:
        file.write(SHOWN.format(instead))
    only = ("--only", "test_weighted_sum_compiles,test_weighted_sum.py::test_forward_values")
    done, report = grade(tmp_path, tmp_path / "work", *only)
    assert done.returncode == 0, done.stderr
    values, compiled = report["problems"][0]["checks"]
    assert values["status"] == "ok"
    assert compiled["status"] == status
    assert words in compiled["message"]
