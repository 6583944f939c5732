"""A GPU's worker: CUDA and a compiler work inside, and it is confined too."""

import os

import pytest
import torch

from assignment.sandbox import rungs
from assignment.sandbox.worker_client import WorkerDied
from assignment.tests.sandbox.boxes import ROOT, grade, open_box, rungs_that_work, socket_on_loopback

needs_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@needs_a_gpu
@pytest.mark.parametrize("rung", rungs_that_work(rungs.RUNGS, "cuda"))
def test_cuda_and_tritons_compiler_work_inside(rung, tmp_path):
    done, report = grade(
        tmp_path, ROOT / "assignment/reference", "--device", "cuda", "--sandbox", rung, "--only", "rmsnorm"
    )
    assert done.returncode == 0, done.stderr
    assert {c["status"] for problem in report["problems"] for c in problem["checks"]} == {"ok"}


@needs_a_gpu
@pytest.mark.parametrize("rung", rungs_that_work((rungs.LANDLOCK, rungs.RLIMITS), "cuda"))
def test_cuda_buffers_can_be_shared(rung):
    """A buffer of this process, filled by a worker"""
    buffer = torch.zeros(1024, device="cuda")
    handle = buffer.untyped_storage()._share_cuda_()
    with open_box(rung, "cuda") as box:
        box.run(f"""
            torch.cuda.init()
            storage = torch.UntypedStorage._new_shared_cuda(*{handle!r})
            torch.tensor([], device="cuda").set_(storage, {handle[3] // 4}, (1024,), (1,)).fill_(7)
            torch.cuda.synchronize()
            return x.sum()
        """)
        torch.cuda.synchronize()
        assert buffer.eq(7).all()


@needs_a_gpu
@pytest.mark.parametrize("rung", rungs_that_work((rungs.BUBBLEWRAP, rungs.LANDLOCK), "cuda"))
def test_a_gpus_worker_is_confined_too(rung, tmp_path, marked):
    (tmp_path / "secret").write_text("x")
    with open_box(rung, "cuda") as box, socket_on_loopback() as port:
        attempts = {
            "the reference": f"open({str(ROOT / 'assignment/reference/cs336_kernels/rmsnorm.py')!r}).read(1)",
            "another file": f"open({str(tmp_path / 'secret')!r}).read(1)",
            "a file elsewhere": f"open({str(tmp_path / 'planted')!r}, 'w')",
            "TCP": f"socket.create_connection(('127.0.0.1', {port}), 5)",
            "kill the supervisor": "os.kill(os.getppid(), 0)",
            "kill the grader": f"os.kill({os.getpid()}, 0)",
            "kill everyone": "os.kill(-1, 0)",
            "the grader's memory": f"open('/proc/{os.getpid()}/mem', 'rb')",
            "a kernel setting": "open('/proc/sys/kernel/hostname', 'r+')",
        }
        assert box.that_work(attempts) == set()
        assert box.run("subprocess.run(['true'], check=True)\nreturn x.sum()") == 3
        with pytest.raises(WorkerDied, match="left a process running"):
            box.run(f"subprocess.Popen(['sleep', '{marked}'])\nreturn x.sum()")
        with pytest.raises(WorkerDied, match=r"more than 64 processes|was killed"):
            box.run("while True:\n    os.fork()")
