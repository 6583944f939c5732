"""Hostile submissions in every sandbox that works here: refused or harmless, and nothing of them stays."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from assignment.grading import rungs, stage
from assignment.grading.sandbox import Worker, WorkerDied
from assignment.grading.submission import Submission

ROOT = Path(__file__).resolve().parents[2]
MODULES = "os, resource, socket, subprocess, sys, tempfile, threading, time, torch"


def rungs_that_work(names: tuple[str, ...], device: str = "cpu") -> list[Any]:
    """The rungs as parameters; those beside the best that works here are for thorough runs."""
    reasons = {name: rungs.problem(name, device) for name in names}
    best = next((name for name, why in reasons.items() if not why), "")
    slow = {name: [] if name == best else [pytest.mark.slow] for name in names}
    return [
        pytest.param(name, marks=[pytest.mark.skipif(bool(why), reason=why), *slow[name]])
        for name, why in reasons.items()
    ]


@dataclass
class Box:
    """One warm worker, for one submission after the other."""

    rung: str
    stage: stage.Stage
    worker: Worker

    def load(self, code: str) -> None:
        """Take a submission whose weighted_sum_forward(x) has this body."""
        body = textwrap.indent(textwrap.dedent(code), "    ")
        text = f"import {MODULES}\n\ndef weighted_sum_forward(x):\n{body}\n"
        self.worker.restart()
        self.stage.replace(Submission({"cs336_kernels/weighted_sum.py": text.encode()}))

    def call(self) -> torch.Tensor:
        request = {"kind": "call", "function": "weighted_sum_forward", "options": {}}
        reply, results = self.worker.ask(request, [torch.ones(3)])
        assert reply["status"] == "ok", reply
        return results[0]

    def run(self, code: str) -> torch.Tensor:
        self.load(code)
        return self.call()

    def that_work(self, attempts: dict[str, str]) -> set[str]:
        """The names of the expressions that raise nothing when the submission evaluates them.

        Each must do no harm where a sandbox lets it through: this is run on people's machines.
        """
        result = self.run(f"""
            import ctypes, fcntl
            libc = ctypes.CDLL(None, use_errno=True)
            def checked(value):
                if value < 0:
                    raise OSError(ctypes.get_errno(), "refused")
                return value
            worked = []
            for attempt in {list(attempts.values())!r}:
                try:
                    eval(attempt)
                    worked.append(1.0)
                except (OSError, ValueError):
                    worked.append(0.0)
            return torch.tensor(worked)
        """)
        return {name for name, worked in zip(attempts, result.tolist(), strict=True) if worked}


@contextlib.contextmanager
def open_box(rung: str, device: str) -> Iterator[Box]:
    held = stage.Stage(Submission({"cs336_kernels/weighted_sum.py": b""}), device)
    worker = Worker(held, device, rung)
    try:
        yield Box(rung, held, worker)
    finally:
        worker.close()
        held.close()


@pytest.fixture(scope="module", params=rungs_that_work(rungs.RUNGS))
def box(request):
    with open_box(request.param, "cpu") as opened:
        yield opened


@pytest.fixture(scope="module")
def closed_box(box):
    """A sandbox that hides files, network and processes."""
    if box.rung in rungs.UNSAFE:
        pytest.skip("limits alone hide nothing")
    return box


@pytest.fixture
def marked():
    """An argument for `sleep` by which our processes are told from all others; none is left at the end."""
    seconds = f"{100_000 + os.getpid() % 10_000}.{time.monotonic_ns() % 10**6}"
    yield seconds
    assert not process_ids(seconds)


def process_ids(word: str) -> list[int]:
    """Of the processes with this word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [int(path.parent.name)] if word.encode() in path.read_bytes() else []
    return found


def test_other_files_cannot_be_read(closed_box, tmp_path):
    (tmp_path / "other.py").write_text("somebody else's submission")
    secret = Path.home() / f".secret-{os.getpid()}"
    secret.write_text("of the user")
    files = {
        "the reference": ROOT / "assignment/reference/cs336_kernels/rmsnorm.py",
        "the oracle": ROOT / "tests/oracle.py",
        "the grader": ROOT / "assignment/grading/score.py",
        "another submission": tmp_path / "other.py",
        "the home folder": secret,
        "passwords": "/etc/shadow",
        "the grader's environment": f"/proc/{os.getpid()}/environ",
        "the grader's memory": f"/proc/{os.getpid()}/mem",
        "the kernel's log": "/dev/kmsg",
    }
    attempts = {name: f"open({str(path)!r}, 'rb').read(1)" for name, path in files.items()}
    attempts |= {
        "the supervisor's environment": "open(f'/proc/{os.getppid()}/environ').read()",
        "the supervisor's memory": "open(f'/proc/{os.getppid()}/mem', 'rb')",
        "the supervisor's files": "os.readlink(f'/proc/{os.getppid()}/fd/0')",
    }
    try:
        assert closed_box.that_work(attempts) == set()
    finally:
        secret.unlink()


def test_folders_show_nothing_of_others(closed_box):
    """What can be listed at all is what leads to Python"""
    below_tmp = {Path(file).parts[2] for file in rungs.readable("cpu") if file.startswith("/tmp/")}
    strangers = closed_box.run(f"""
        listed = []
        for folder in ({str(ROOT)!r}, {str(Path.home())!r}, "/tmp", "/proc", "/"):
            try:
                listed.append(set(os.listdir(folder)))
            except OSError:
                listed.append(set())
        repository, home, temporary, processes, top = listed
        numbers = {{name for name in processes if name.isdigit()}}
        hidden = {{".bashrc", ".cache", ".config", ".profile"}}
        others = (repository - {{".venv"}}, home & hidden, temporary - {below_tmp | {""}}, top & {{"boot"}})
        return torch.tensor([len(numbers - {{"1", str(os.getpid())}}), *map(len, others)])
    """)
    assert strangers.tolist() == [0] * 5


def test_nothing_can_be_written_outside_of_scratch(closed_box, tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("as it was")
    folders = [tmp_path, ROOT, Path.home(), "/", "/usr", "/etc", "/dev/shm", "/var/tmp"]
    attempts = {f"a file in {folder}": f"tempfile.TemporaryFile(dir='{folder}')" for folder in folders}
    attempts |= {
        "the submission": "open(__file__, 'a')",
        "the worker": "open(sys.modules['assignment.grading'].__file__, 'a')",
        "Python": "open(os.__file__, 'a')",
        "PyTorch": "open(torch.__file__, 'a')",
        "truncate": f"os.truncate({str(kept)!r}, 0)",
        "unlink": f"os.unlink({str(kept)!r})",
        "rename": f"os.rename({str(kept)!r}, 'mine')",
        "link": f"os.link({str(kept)!r}, 'mine')",
        "chmod": f"os.chmod({str(kept)!r}, 0)",
        "chmod of Python": "os.chmod(sys.executable, os.stat(sys.executable).st_mode)",
        "utime": f"os.utime({str(kept)!r}, (0, 0))",
        "chown": f"os.chown({str(kept)!r}, 1, 1)",
        "xattr": f"os.setxattr({str(kept)!r}, 'user.mark', b'x')",
        "a kernel setting": "open('/proc/sys/kernel/hostname', 'r+')",
        "the kernel's magic keys": "open('/proc/sysrq-trigger', 'w')",
    }
    assert closed_box.that_work(attempts) == set()
    assert closed_box.that_work({"scratch": "open('file', 'w').write('x')", "TMPDIR": "os.mkdir('folder')"})
    assert kept.read_text() == "as it was"
    assert kept.stat().st_mode & 0o777 == 0o644


def test_there_is_no_network(closed_box):
    with socket_on_loopback() as port, abstract_socket() as name:
        attempts = {
            "TCP": f"socket.create_connection(('127.0.0.1', {port}), 5)",
            "TCP over IPv6": "socket.socket(socket.AF_INET6)",
            "UDP": f"socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))",
            "listening": "socket.socket().bind(('127.0.0.1', 0))",
            "raw": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
            "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
            "an abstract Unix socket": f"socket.socket(socket.AF_UNIX).connect('\\0{name}')",
            "datagrams over a pair": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
        }
        assert closed_box.that_work(attempts) == set()
        assert closed_box.that_work({"a pair of its own": "socket.socketpair()"})


@contextlib.contextmanager
def socket_on_loopback():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@contextlib.contextmanager
def abstract_socket():
    with socket.socket(socket.AF_UNIX) as server:
        name = f"sandbox-test-{os.getpid()}"
        server.bind(f"\0{name}")
        server.listen()
        yield name


def test_other_processes_cannot_be_touched(closed_box):
    """The grader, the supervisor; signal 0 stands for all, and asks only for the permission"""
    attempts: dict[str, str] = {}
    for name, pid in {"the grader": str(os.getpid()), "the supervisor": "os.getppid()"}.items():
        attempts |= {
            f"kill {name}": f"os.kill({pid}, 0)",
            f"queue a signal to {name}": f"checked(libc.syscall(129, {pid}, 0, bytes(128)))",
            f"a thread's signal to {name}": f"checked(libc.syscall(234, {pid}, {pid}, 0))",
            f"a signal by descriptor to {name}": f"os.pidfd_open({pid})",
            f"a signal by way of a file to {name}": f"fcntl.fcntl(0, fcntl.F_SETOWN, {pid})",
            f"ptrace {name}": f"checked(libc.ptrace(16, {pid}, 0, 0))",
            f"read the memory of {name}": f"checked(libc.process_vm_readv({pid}, 0, 0, 0, 0, 0))",
            f"the limits of {name}": f"resource.prlimit({pid}, resource.RLIMIT_CPU)",
            f"the priority of {name}": f"os.setpriority(0, {pid}, os.getpriority(0, {pid}))",
            f"the processors of {name}": f"os.sched_setaffinity({pid}, os.sched_getaffinity(0))",
        }
    attempts |= {
        "its whole group": "os.killpg(0, 0)",
        "everyone": "os.kill(-1, 0)",
        "outlive the supervisor": "checked(libc.prctl(1, 0, 0, 0, 0))",
        "name spaces": "checked(libc.unshare(0x10000000))",
        "shared memory that stays": "libc.shmctl(checked(libc.shmget(0, 4096, 0o1600)), 0, 0)",
        "io_uring": "checked(libc.syscall(425, 8, bytes(120)))",
        "bpf": "checked(libc.syscall(321, 0, bytes(72), 72))",
        "userfaultfd": "checked(libc.syscall(323, 1))",
        "fork": "os.fork() or os._exit(0)",
        "a program": "subprocess.run(['true'])",
        "higher limits": "resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))",
    }
    assert closed_box.that_work(attempts) == set()


def test_a_program_that_may_not_be_started_is_not_found(closed_box):
    """Code that asks for nvidia-smi is prepared for that error, not for another"""
    assert closed_box.run("""
        try:
            subprocess.run(["true"], capture_output=True)
        except FileNotFoundError:
            return x.sum()
    """)


def test_no_descriptor_is_inherited(box):
    with (ROOT / "pyproject.toml").open() as file:
        os.set_inheritable(file.fileno(), True)
        ends = box.run("""
            kept = []
            for name in os.listdir("/proc/self/fd"):
                try:
                    kept.append(os.readlink(f"/proc/self/fd/{name}"))
                except FileNotFoundError:
                    pass
            files = [end for end in kept if not end.startswith(("pipe:", "socket:", "/dev/"))]
            return torch.tensor([len([end for end in kept if end.startswith("socket:")]), len(files)]).float()
        """)
    assert ends.tolist() == [1, 0]


def test_a_fork_bomb_is_stopped(box):
    """Either no process can be started at all, or all of them are ended"""
    began = time.monotonic()
    code = "try:\n    while True:\n        os.fork()\nexcept FileNotFoundError:\n    return x.sum()"
    if box.rung in rungs.UNSAFE:
        with pytest.raises(WorkerDied, match=r"more than 64 processes|was killed"):
            box.run(code)
    else:
        assert box.run(code) == 3
    assert time.monotonic() - began < 60
    assert box.run("return x.sum()") == 3


@pytest.mark.parametrize(
    ("code", "words"),
    [
        pytest.param(
            "threading.Thread(target=time.sleep, args=(99,), name='later').start()", "a thread running: later", id="one"
        ),
        pytest.param("threading.Thread(target=time.sleep, args=(99,), daemon=True).start()", "a thread", id="a daemon"),
        pytest.param("import _thread\n_thread.start_new_thread(time.sleep, (99,))", "without a name", id="unnamed"),
        pytest.param(
            """
            import ctypes, mmap
            loop = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
            loop.write(b"\\xeb\\xfe" if os.uname().machine == "x86_64" else bytes([0, 0, 0, 0x14]))  # jump to itself
            globals()["kept"] = loop
            start = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(loop)))
            assert ctypes.CDLL(None).pthread_create(ctypes.byref(ctypes.c_ulong()), None, start, None) == 0
            """,
            "a native one",
            id="a native one",
        ),
    ],
)
def test_a_thread_left_behind_ends_the_call(box, code, words):
    with pytest.raises(WorkerDied, match=words) as caught:
        box.run(f"{textwrap.dedent(code)}\nreturn x.sum()")
    assert caught.value.status == "crashed"
    assert "left a thread running" in str(caught.value)


@pytest.mark.parametrize(
    "code",
    [
        "thread = threading.Thread(target=time.sleep, args=(0.1,))\nthread.start()\nthread.join()",
        "threading.Thread(target=time.sleep, args=(0.2,)).start()",
        "torch.set_num_threads(4)\na = torch.ones(512, 512)\nfor _ in range(20):\n    a = a @ a / 512",
        "y = torch.ones(9, requires_grad=True)\n(y * y).sum().backward()",
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor() as pool:\n    pool.submit(print)",
    ],
    ids=["joined", "about to end", "PyTorch's pool", "autograd", "a pool that is shut down"],
)
def test_threads_that_are_over_or_pytorchs_own_cost_nothing(box, code):
    assert box.run(f"{code}\nreturn x.sum()") == 3
    assert box.call() == 3


DAEMON = """
if not os.fork():
    os.setsid()
    os.fork() or os.execlp("sleep", "sleep", "{0}")
    os._exit(0)
"""


@pytest.mark.parametrize("code", ["subprocess.Popen(['sleep', '{0}'])", DAEMON], ids=["a child", "a daemon"])
def test_a_process_left_behind_ends_the_call(box, marked, code):
    """Where it can be started at all"""
    attempt = (
        f"try:\n{textwrap.indent(code.format(marked), '    ')}\nexcept FileNotFoundError:\n    pass\nreturn x.sum()"
    )
    if box.rung in rungs.UNSAFE:
        with pytest.raises(WorkerDied, match="left a process running"):
            box.run(attempt)
    else:
        assert box.run(attempt) == 3
    assert not process_ids(marked)


def test_a_worker_whose_supervisor_is_killed_is_replaced(box):
    """Where it can be: elsewhere the signal is refused"""
    code = "try:\n    os.kill(os.getppid(), 9)\nexcept PermissionError:\n    return x.sum()\ntime.sleep(99)"
    if box.rung in rungs.UNSAFE:
        with pytest.raises(WorkerDied, match="was killed"):
            box.run(code)
    else:
        assert box.run(code) == 3
    assert box.run("return x.sum()") == 3


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(
            "for i in range(8):\n    open(f'{i}', 'wb').truncate(0)\n    with open(f'{i}', 'wb') as file:\n"
            "        for _ in range(200):\n            file.write(bytes(1 << 20))",
            id="in large files",
        ),
        pytest.param("for i in range(50_000):\n    open(f'{i}', 'w').close()", id="in many files"),
        pytest.param(
            "kept = []\nfor i in range(8):\n    kept.append(os.memfd_create('x'))\n    for _ in range(200):\n"
            "        os.write(kept[-1], bytes(1 << 20))",
            id="in files without a name",
        ),
    ],
)
def test_scratch_space_has_a_limit(box, code):
    with pytest.raises(WorkerDied, match="scratch space"):
        box.run(f"{code}\ntime.sleep(20)\nreturn x.sum()")
    assert box.run("return torch.tensor(float(len(os.listdir('.'))))") == 0


def test_one_file_has_a_limit(box):
    code = "with open('one', 'wb') as file:\n    for _ in range(300):\n        file.write(bytes(1 << 20))"
    assert box.run(f"try:\n{textwrap.indent(code, '    ')}\nexcept OSError:\n    return x.sum()") == 3


def test_memory_has_a_limit(box):
    assert box.run("try:\n    torch.empty(4 << 30)\nexcept RuntimeError:\n    return x.sum()") == 3


def test_nothing_is_handed_on_to_the_next_submission(box):
    """Not even by folders that resist removal"""
    box.run("""
        os.makedirs("closed/inner")
        open("closed/inner/note", "w").write("for the next one")
        for _ in range(300):
            os.mkdir("d" * 200)
            os.chdir("d" * 200)
        return x.sum()
    """)
    assert box.run("return torch.tensor(float(len(os.listdir(os.environ['TMPDIR']))))") == 0


def test_caches_are_named_by_the_submission(box):
    code = "return torch.tensor(list(os.environ['TRITON_CACHE_DIR'].encode()))"
    first, again, other = (bytes(box.run(text).tolist()) for text in (code, code, f"{code}  # another"))
    assert first == again
    assert first != other


def test_when_the_submissions_time_is_over_calls_end_at_once(box):
    assert box.run("return x.sum()") == 3
    box.stage.deadline = time.monotonic()
    began = time.monotonic()
    with pytest.raises(WorkerDied, match="time for the whole submission is over") as caught:
        box.call()
    assert (caught.value.status, caught.value.ran) == ("timeout", False)
    assert time.monotonic() - began < 0.5


def test_a_call_is_stopped_when_the_submissions_time_is_over(box):
    box.load("time.sleep(99)")
    box.stage.deadline = time.monotonic() + 3
    with pytest.raises(WorkerDied, match="in weighted_sum_forward") as caught:
        box.call()
    assert caught.value.status == "timeout"


def grade(tmp_path: Path, submission: Path, *arguments: str) -> tuple[subprocess.CompletedProcess, dict[str, Any]]:
    """A grade with a folder for temporary files of its own, in which nothing may be left."""
    temporary, file = tmp_path / "temporary", tmp_path / "report.json"
    temporary.mkdir(exist_ok=True)
    command = [sys.executable, str(ROOT / "grade.py"), str(submission), "--json", str(file), *arguments]
    env = os.environ | {"TMPDIR": str(temporary)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert not process_ids(str(temporary))
    assert list(temporary.iterdir()) == []
    return done, json.loads(file.read_text()) if file.exists() else {}


@pytest.mark.parametrize("rung", rungs_that_work(rungs.RUNGS))
def test_a_hostile_submission_is_graded_to_its_end(rung, tmp_path, marked):
    """One function that attacks all it can, on the way to a right result of another"""
    work = tmp_path / "work" / "cs336_kernels"
    work.mkdir(parents=True)
    (work / "weighted_sum.py").write_text(
        (ROOT / "assignment/reference/cs336_kernels/weighted_sum.py").read_text()
        + textwrap.dedent(f"""
            import os, signal, subprocess, threading

            SUPERVISOR = os.getppid()

            def weighted_sum_backward(*arguments):
                threading.Thread(target=threading.Event().wait, daemon=True).start()
                for _ in range(3):
                    try:
                        subprocess.Popen(["setsid", "sleep", "{marked}"], close_fds=False)
                        os.fork() or os.setsid() or os.execlp("sleep", "sleep", "{marked}")
                    except OSError:
                        pass
                os.mkdir("closed", 0o300)
                os.kill(SUPERVISOR, signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGSTOP)
        """)
    )
    names = ["test_weighted_sum.py::test_forward_values", "test_weighted_sum.py::test_backward_values"]
    done, report = grade(tmp_path, work.parent, "--sandbox", rung, "--only", *names)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert report["sandbox"] == rung
    assert rung in done.stdout
    assert ("NO SANDBOX" in done.stdout) == (rung == rungs.RLIMITS)
    statuses = {check["name"]: check["status"] for problem in report["problems"] for check in problem["checks"]}
    assert statuses[names[0]] == "ok"
    assert statuses[names[1]] in ("crashed", "FAIL")


@pytest.mark.parametrize("rung", rungs_that_work(rungs.RUNGS))
def test_the_reference_loses_nothing(rung, tmp_path):
    """Gradients, asked for several times, and views over gigabytes"""
    checks = ["test_rmsnorm.py::test_gradients", "test_weighted_sum.py::test_forward_strides"]
    done, report = grade(tmp_path, ROOT / "assignment/reference", "--sandbox", rung, "--only", *checks)
    assert done.returncode == 0, done.stderr
    assert {c["status"] for problem in report["problems"] for c in problem["checks"]} <= {"ok", "not graded"}


def test_a_rung_that_does_not_work_here_is_said_to(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    done, report = grade(tmp_path, ROOT / "assignment/reference", "--sandbox", "bubblewrap")
    assert done.returncode == 2
    assert done.stderr.startswith("grade.py: --sandbox bubblewrap: bwrap is not installed")
    assert "what works here: " in done.stderr
    assert not report


def test_the_best_rung_is_taken_and_a_worse_one_explained(monkeypatch):
    problems = {"bubblewrap": "no user name spaces", "landlock": "", "rlimits": ""}
    monkeypatch.setattr(rungs, "problem", lambda rung, device: problems[rung])
    assert rungs.choose("auto", "cpu") == "landlock"
    assert rungs.announcement("landlock", "cpu") == "Sandbox: landlock (bubblewrap: no user name spaces)\n"
    problems["landlock"] = "an old kernel"
    assert rungs.choose("auto", "cpu") == "rlimits"
    assert "NO SANDBOX" in rungs.announcement("rlimits", "cpu")
    assert "landlock: an old kernel" in rungs.announcement("rlimits", "cpu")
    problems["bubblewrap"] = problems["landlock"] = ""
    assert [rungs.choose("auto", device) for device in ("cpu", "cuda")] == ["bubblewrap", "landlock"]


def test_of_a_folder_around_the_repository_all_else_is_shown(tmp_path, monkeypatch):
    for name in ("opt/lib", "opt/course/.venv/bin", "opt/course/tests", "opt/share"):
        (tmp_path / name).mkdir(parents=True)
    repository = tmp_path / "opt/course"
    assert set(rungs.without(repository, tmp_path / "opt")) == {tmp_path / "opt/lib", tmp_path / "opt/share"}
    assert list(rungs.without(repository, repository / ".venv")) == [repository / ".venv"]
    assert list(rungs.without(repository, repository)) == []
    monkeypatch.setattr(rungs, "ROOT", repository)
    monkeypatch.setattr(sys, "prefix", str(repository / ".venv"))
    shown = rungs.readable("cpu")
    assert str(repository / ".venv") in shown
    assert not any(Path(path) in (repository, *repository.parents) for path in shown)


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
        if rung == rungs.BUBBLEWRAP or os.getuid():  # root's processes are not counted: see the handbook
            with pytest.raises(WorkerDied, match=r"more than 64 processes|was killed"):
                box.run("while True:\n    os.fork()")


@pytest.mark.parametrize(("file", "is_hidden"), [("/tmp/checkout/.venv", False), ("/usr", True)])
def test_a_checkout_in_the_temporary_folder_keeps_its_python(monkeypatch, file, is_hidden):
    """In bubblewrap /tmp is the scratch space, unless what the worker must read lies there"""
    monkeypatch.setattr(rungs, "readable", lambda device: [file])
    words = rungs.command(rungs.BUBBLEWRAP, "cpu", rungs.Folders("/a", "/b", "/c"), 3, {})
    assert ("/tmp" in words) == is_hidden
