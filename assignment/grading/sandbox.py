"""The grader's end of a worker: start it, ask it, keep its deadlines, and replace it when it dies."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assignment.grading.submission import Submission

if TYPE_CHECKING:
    from torch import Tensor

RUNTIME = (  # all that a worker may import
    *("__init__.py", "simulator"),
    *("grading/__init__.py", "grading/protocol.py", "grading/probes.py", "grading/requests.py"),
)
START_TIMEOUT_S = 180.0  # PyTorch from a cold disk
CALL_TIMEOUT_S = {"cpu": 30.0, "cuda": 120.0}  # the reference's slowest call takes 2 s; on a GPU it compiles first
LARGE = 1 << 30  # bytes: of the 12 GiB that a child can address, a tensor that it keeps takes too much
MAX_OUTPUT = 64 << 10  # bytes of what a submission prints; earlier ones are dropped
PASSED_ON = ("PATH", "LANG", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "CC", "TZ")


class WorkerDied(Exception):
    """The submission ended the worker, or had to be stopped."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status  # "crashed" or "timeout"


class WorkerUnavailable(Exception):
    """No worker can be started: the grader's fault, not the submission's."""


class Stage:
    """A temporary folder that holds one submission, what a worker may import beside it, and scratch space."""

    def __init__(self, submission: Submission) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="grade-", ignore_cleanup_errors=True)
        root = Path(self._folder.name).resolve()
        self.submission, self.runtime, self.scratch = root / "submission", root / "runtime", root / "scratch"
        submission.stage(self.submission)
        ours = Path(__file__).resolve().parents[1]
        for name in RUNTIME:
            link = self.runtime / ours.name / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(ours / name)
        self.scratch.mkdir()

    def replace(self, submission: Submission) -> None:
        """Hold this submission and no other."""
        shutil.rmtree(self.submission, ignore_errors=True)
        submission.stage(self.submission)

    def close(self) -> None:
        self._folder.cleanup()


class Worker:
    """One worker process and the conversation with it."""

    def __init__(self, stage: Stage, device: str) -> None:
        """Start the process; it loads its libraries while the caller goes on."""
        self._stage, self._device = stage, device
        self._owner = os.getpid()  # the process that waits for the worker; those forked from it only talk to it
        self._channel: socket.socket | None = None
        self._isolated = False
        self._had_large = False  # whether this child was sent a tensor over gigabytes
        self._printed: deque[bytes] = deque()
        self._printed_size = 0
        self._reader: threading.Thread | None = None
        self._next_id = 0
        self._start()

    def _start(self) -> None:
        self._control, theirs = socket.socketpair()
        output, write_end = os.pipe()
        program = Path(__file__).with_name("worker.py")
        arguments = [str(self._stage.runtime), str(self._stage.submission), self._device, str(theirs.fileno())]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                pass_fds=[theirs.fileno()],
                cwd=self._stage.scratch,
                env=self._environment(),
                start_new_session=True,
            )
        finally:
            theirs.close()
            os.close(write_end)
        self._output, self._reader = output, None

    def _environment(self) -> dict[str, str]:
        scratch = str(self._stage.scratch)
        env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        env |= {"HOME": scratch, "TMPDIR": scratch, "TRITON_CACHE_DIR": f"{scratch}/triton", "PYTHONHASHSEED": "0"}
        if self._device == "cpu":
            env |= {"OMP_NUM_THREADS": "1", "TORCH_COMPILE_DISABLE": "1", "CUDA_VISIBLE_DEVICES": ""}
        return env

    def ask(self, request: dict[str, Any], tensors: list["Tensor"]) -> tuple[dict[str, Any], list["Tensor"]]:
        """One request and its reply; raises WorkerDied, and the next call finds a new worker."""
        is_large = any(tensor.untyped_storage().nbytes() > LARGE for tensor in tensors)
        if is_large and self._had_large and self._device == "cpu":
            self._end_child()  # one that keeps what it was sent has no room for another
        self._had_large = is_large or (self._had_large and self._channel is not None)
        if self._channel is None:
            self._connect()
        self._clear_output()
        return self._exchange(request, tensors)

    def _exchange(self, request: dict[str, Any], tensors: list["Tensor"]) -> tuple[dict[str, Any], list["Tensor"]]:
        from assignment.grading import protocol  # loads PyTorch, which a worker's start must not wait for

        assert self._channel is not None
        self._next_id += 1
        timeout_s = CALL_TIMEOUT_S[self._device]
        try:
            protocol.send(self._channel, {**request, "id": self._next_id}, tensors)
            header, results = protocol.receive(self._channel, time.monotonic() + timeout_s)
            if header.get("id") != self._next_id:
                raise protocol.ProtocolError("an answer to another question")
        except protocol.DeadlineExceeded:
            where = self._interrupt()
            self._bury()
            raise WorkerDied("timeout", f"no answer within {timeout_s:.0f} s; the call was stopped{where}") from None
        except protocol.ConnectionLost:
            raise WorkerDied("crashed", self._bury() + self._place()) from None
        except protocol.ProtocolError as error:
            self._kill_child()
            self._bury()
            raise WorkerDied("crashed", f"the result cannot be read: {error}") from None
        return header, results

    def _connect(self) -> None:
        """A new child of the worker, with the submission imported; without __init__.py where that is what kills it."""
        self._fork_child()
        try:
            self._exchange({"kind": "load", "isolated": self._isolated}, [])
        except WorkerDied:
            if self._isolated:
                raise
            self._isolated = True
            self._connect()

    def _fork_child(self) -> None:
        for attempt in (1, 2):
            ours, theirs = socket.socketpair()
            try:
                socket.send_fds(self._control, [b"."], [theirs.fileno()])
                theirs.close()
                self._child: int = self._control_message(START_TIMEOUT_S)["pid"]
                break
            except (OSError, ValueError) as error:
                if attempt == 2:
                    raise WorkerUnavailable(f"the worker process did not start: {self.output()}") from error
                self._end_process()
                self._start()
        self._channel = ours
        if self._reader is None:
            self._reader = threading.Thread(target=self._drain, args=(self._output,), daemon=True)
            self._reader.start()

    def _control_message(self, timeout_s: float) -> dict[str, int]:
        self._control.settimeout(timeout_s)
        line = b""
        while not line.endswith(b"\n"):
            data = self._control.recv(1)
            if not data:
                raise ConnectionError("the worker process ended")
            line += data
        return json.loads(line)

    def _bury(self) -> str:
        """Kill the current child and say how it had ended."""
        assert self._channel is not None
        self._channel.close()
        self._channel = None
        timed_out = threading.Timer(0.5, self._kill_child)  # a child that only closed its connection
        timed_out.start()
        try:
            return describe_end(self._control_message(START_TIMEOUT_S)["status"])
        except (OSError, ValueError):
            self._end_process()
            self._start()
            return "the worker process was killed"
        finally:
            timed_out.cancel()
            self._kill_child()

    def _interrupt(self) -> str:
        """Stop the child at its deadline, and say where it was."""
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self._child, signal.SIGUSR1)
        time.sleep(0.2)
        where = self._place()
        self._kill_child()
        return where

    def _place(self) -> str:
        """The innermost line of the submission in the stack that faulthandler printed last, if it did."""
        stack = self.output().rpartition("most recent call first")[2]
        frame = re.search(r'File "[^"\n]*/(cs336_kernels/[^"\n]+)", line (\d+) in (\w+)', stack)
        return f"\n  at {frame[1]}:{frame[2]} in {frame[3]}" if frame else ""

    def _kill_child(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child, signal.SIGKILL)

    def _drain(self, output: int) -> None:
        with suppress(OSError):
            while data := os.read(output, 1 << 16):
                self._printed.append(data)
                self._printed_size += len(data)
                while self._printed_size - len(self._printed[0]) > MAX_OUTPUT:
                    self._printed_size -= len(self._printed.popleft())
        os.close(output)

    def _clear_output(self) -> None:
        self._printed.clear()
        self._printed_size = 0

    def output(self) -> str:
        """What the submission printed during the last request, as far as it was kept."""
        time.sleep(0.02)  # the reader may still be at it
        return b"".join(self._printed).decode(errors="replace")

    def _end_process(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._control.close()
        if self._reader is None:
            os.close(self._output)

    def restart(self) -> None:
        """End the child; the next call finds a new one, with what the stage then holds."""
        self._end_child()
        self._isolated = False

    def _end_child(self) -> None:
        if self._channel is not None:
            self._kill_child()
            self._bury()

    def close(self) -> None:
        if self._channel is not None:
            self._kill_child()
            self._channel.close()
            self._channel = None
        self._end_process()
        if self._owner == os.getpid():
            self._process.wait()


def describe_end(status: int) -> str:
    """A wait status in words."""
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status))
        meaning = {
            signal.SIGSEGV: "segmentation fault: an address outside of every tensor?",
            signal.SIGKILL: "killed, most likely for its memory",
            signal.SIGABRT: "aborted",
            signal.SIGBUS: "bus error",
        }.get(name, "")
        return f"the process died of {name.name}" + (f" ({meaning})" if meaning else "")
    return f"the process ended itself with exit status {os.WEXITSTATUS(status)} in the middle of the call"
