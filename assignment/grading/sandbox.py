"""The grader's end of a worker: start it, ask it, keep its deadlines, and replace it when it dies."""

import json
import os
import re
import select
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from assignment.grading import rungs
from assignment.grading.stage import Stage, remove
from assignment.grading.supervisor import descendants

if TYPE_CHECKING:
    from torch import Tensor

    from assignment.grading.start import Referee

WAKE_EVERY_S = 2.0
CATCH_UP_S = 0.5
MAX_STARTS = 5  # of a worker that is killed each time before it is ready
START_TIMEOUT_S = 180.0  # PyTorch from a cold disk
SUPERVISOR_TIMEOUT_S = 20.0  # it answers within milliseconds, and ends a fork bomb within seconds
CALL_TIMEOUT_S = {"cpu": 30.0, "cuda": 120.0, "compile": 120.0}  # the reference takes 2 s, and as long to compile
END_TIMEOUT_S = 5.0
PATIENCE_S = 0.5  # for a child that only closed its connection
LARGE = 1 << 30  # bytes: of the 12 GiB that a child can address, a tensor that it keeps takes too much
MAX_ANSWER = 64 << 10  # bytes
MAX_OUTPUT = 64 << 10  # bytes of what a submission prints; earlier ones are dropped
PASSED_ON = {
    "cpu": ("LANG", "LD_LIBRARY_PATH", "TZ"),
    "cuda": ("LANG", "LD_LIBRARY_PATH", "TZ", "PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "CC"),  # and a compiler
    "compile": ("LANG", "LD_LIBRARY_PATH", "TZ"),
}


class WorkerDied(Exception):
    """The submission ended the worker, or had to be stopped."""

    def __init__(self, status: str, message: str, ran: bool = True) -> None:
        super().__init__(message)
        self.status = status  # "crashed" or "timeout"
        self.ran = ran  # False: the submission's time was over before


class WorkerUnavailable(Exception):
    """No worker can be started: the grader's fault, not the submission's."""


class Worker:
    """One worker process and the conversation with it."""

    def __init__(self, stage: Stage, device: str, rung: str | None = None) -> None:
        """Start the process, in the best sandbox or this one; it loads its libraries while the caller goes on."""
        self._stage, self._device, self._rung = stage, device, rung or rungs.choose(rungs.AUTO, device)
        self._channel: socket.socket | None = None
        self.seconds = 0.0  # of the last request that was timed, from start to finish, by our clock
        self._isolated = False
        self._had_large = False  # whether this child was sent a tensor over gigabytes
        self._printed: deque[bytes] = deque()
        self._printed_size = 0
        self._reader: threading.Thread | None = None
        self._processes: list[subprocess.Popen] = []  # Popen complains when it is forgotten by who did not start it
        self._last_words = ""  # what a process printed that never got to its first child
        self._start()

    def _start(self) -> None:
        self._owner = os.getpid()  # who waits for the worker; processes forked from this one only talk to it
        self._control, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        self._output, write_end = os.pipe()
        self._reader = None
        self._scratch = self._stage.new_scratch()
        folders = rungs.Folders(str(self._stage.runtime), str(self._stage.submission), str(self._scratch))
        env = self._environment(rungs.seen(self._rung, folders).scratch)
        try:
            self._process = subprocess.Popen(
                rungs.command(self._rung, self._device, folders, theirs.fileno(), env),
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                pass_fds=[theirs.fileno(), self._stage.living],
                cwd=self._scratch,
                env={} if self._rung == rungs.BUBBLEWRAP else env,  # its first process shows bwrap's to the others
                start_new_session=True,
            )
        finally:
            theirs.close()
            os.close(write_end)
        self._processes.append(self._process)

    def _environment(self, scratch: str) -> dict[str, str]:
        env = {name: os.environ[name] for name in PASSED_ON[self._device] if name in os.environ}
        env |= {"HOME": scratch, "TMPDIR": scratch, "PYTHONHASHSEED": "0", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        if self._device != "cuda":
            env |= {
                "PATH": "/usr/bin:/bin",
                "OMP_NUM_THREADS": "1",
                "TORCH_COMPILE_DISABLE": "1",
                "CUDA_VISIBLE_DEVICES": "",
            }
        return env

    def ask(
        self, request: dict[str, Any], tensors: list["Tensor"], referee: "Referee | None" = None
    ) -> tuple[dict[str, Any], list["Tensor"]]:
        """One request and its reply; raises WorkerDied, and the next call finds a new worker.

        With a referee it is timed: see start.py.
        """
        if time.monotonic() > self._stage.deadline:
            raise WorkerDied("timeout", "not run: the time for the whole submission is over", ran=False)
        is_large = any(tensor.untyped_storage().nbytes() > LARGE for tensor in tensors)
        if is_large and self._had_large and self._device != "cuda":
            self.end_child()  # one that keeps what it was sent has no room for another
        self._had_large = is_large or (self._had_large and self._channel is not None)
        if self._channel is None:
            self._connect()
        return self._exchange(request, tensors, referee)

    def _exchange(
        self, request: dict[str, Any], tensors: list["Tensor"], referee: "Referee | None" = None
    ) -> tuple[dict[str, Any], list["Tensor"]]:
        from assignment.grading import protocol, start  # loads PyTorch, which a worker's start must not wait for

        assert self._channel is not None
        timeout_s = max(1.0, min(CALL_TIMEOUT_S[self._device], self._stage.deadline - time.monotonic()))
        results: list[Tensor] = []
        try:
            if referee:
                header, self.seconds = start.exchange(self._channel, request, referee, timeout_s)
            else:
                header, results = protocol.exchange(self._channel, request, tensors, timeout_s)
        except protocol.DeadlineExceeded:
            where = self._interrupt()
            self._bury(patience_s=0)
            raise WorkerDied("timeout", f"no answer within {timeout_s:.0f} s; the call was stopped{where}") from None
        except protocol.ConnectionLost:
            raise WorkerDied("crashed", self._bury() + self._place()) from None
        except protocol.ProtocolError as error:
            self._bury(patience_s=0)
            raise WorkerDied("crashed", f"the result cannot be read: {error}") from None
        left = header.pop("left", "")
        if request["kind"] != "run":  # of what is timed they are looked for when it gives its results
            self._refuse_leftovers(left)
        return header, results

    def _refuse_leftovers(self, thread: Any) -> None:
        """A call must be over when it returns; raises WorkerDied where a thread or a process goes on."""
        strays = self._supervisor("strays").get("strays", ["the worker's own, which was killed"])
        if not thread and not strays:
            return
        left = f"a thread running: {str(thread)[:80]}" if thread else f"a process running: {str(strays[0])[:80]}"
        self._bury(patience_s=0)
        raise WorkerDied("crashed", f"left {left}; end every thread and process before the function returns")

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
        for attempt in range(1, MAX_STARTS + 1):
            ours, theirs = socket.socketpair()
            with theirs:
                started = self._supervisor("fork", START_TIMEOUT_S, [theirs.fileno()], caches=self._stage.caches)
            if started:
                break
            ours.close()
            if attempt == MAX_STARTS or (attempt > 1 and self._last_words):  # it says why: another will say the same
                raise WorkerUnavailable(f"the worker process did not start: {self._last_words or 'it was killed'}")
        self._channel = ours
        if self._reader is None:
            self._reader = threading.Thread(target=self._drain, args=(self._output,), daemon=True)
            self._reader.start()

    def _supervisor(
        self, do: str, timeout_s: float = SUPERVISOR_TIMEOUT_S, descriptors: Sequence[int] = (), **more: Any
    ) -> dict[str, Any]:
        """The answer of the worker's first process; {} if it is gone, or stopped, and there is a new one."""
        try:
            self._control.settimeout(timeout_s)
            number = time.monotonic_ns()
            socket.send_fds(self._control, [json.dumps({"do": do, "number": number, **more}).encode()], descriptors)
            return self._answer_to(number, timeout_s)
        except (OSError, ValueError):  # no answer at all is no JSON
            self._end_process()
            self._start()
            return {}

    def _answer_to(self, number: int, timeout_s: float) -> dict[str, Any]:
        """Passes over what answers somebody else: a judge that was killed before it could read it."""
        answer: dict[str, Any] = {}
        while answer.get("number") != number:
            self._await_answer(timeout_s)
            answer = json.loads(self._control.recv(MAX_ANSWER))
        return answer

    def _await_answer(self, timeout_s: float) -> None:
        """Set the first process going again if somebody has stopped it; raises TimeoutError."""
        until = time.monotonic() + timeout_s
        while not select.select([self._control], [], [], WAKE_EVERY_S)[0]:
            if time.monotonic() > until:
                raise TimeoutError
            for pid in (self._process.pid, *descendants(self._process.pid)):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGCONT)

    def _bury(self, patience_s: float = PATIENCE_S) -> str:
        """End the current child, and say how it had ended."""
        assert self._channel is not None
        self._channel.close()
        self._channel = None
        end = self._supervisor("bury", patience_s=patience_s)
        if end.get("status") is None:
            return "the worker process was killed"
        return end["why"] or describe_end(end["status"])

    def _interrupt(self) -> str:
        """Have the child, at its deadline, print where it is."""
        self._supervisor("interrupt")
        return self._place()

    def _place(self) -> str:
        """The innermost line of the submission in the stack that faulthandler printed last, if it did."""
        stack = self.output().rpartition("most recent call first")[2]
        frame = re.search(r'File "[^"\n]*/(cs336_kernels/[^"\n]+)", line (\d+) in (\w+)', stack)
        return f"\n  at {frame[1]}:{frame[2]} in {frame[3]}" if frame else ""

    def _drain(self, output: int) -> None:
        with suppress(OSError):
            while data := os.read(output, 1 << 16):
                self._printed.append(data)
                self._printed_size += len(data)
                while self._printed_size - len(self._printed[0]) > MAX_OUTPUT:
                    self._printed_size -= len(self._printed.popleft())
        os.close(output)

    def forget_output(self) -> None:
        """What was printed so far belongs to somebody else."""
        self._catch_up()
        self._printed.clear()
        self._printed_size = 0

    def output(self) -> str:
        """What the submission has printed since then, as far as it was kept."""
        self._catch_up()
        return b"".join(self._printed).decode(errors="replace")

    def _catch_up(self) -> None:
        """Wait until the reader has taken what a worker that has answered had printed before."""
        until = time.monotonic() + CATCH_UP_S
        with suppress(OSError, ValueError):  # the reader is through, and has closed it
            while self._reader and select.select([self._output], [], [], 0)[0] and time.monotonic() < until:
                time.sleep(0.001)
        time.sleep(0.005)  # it may have read and not yet put away

    def _end_process(self) -> None:
        """End the worker, and with it all that it started; its first process sees to that if it can."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        if not has_ended(self._process.pid, END_TIMEOUT_S):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        if self._owner == os.getpid():
            self._process.wait()
        if self._reader is None:
            self._last_words = tail(self._output)
            os.close(self._output)
        remove(self._scratch)

    def restart(self) -> None:
        """End the child; the next call finds a new one, with what the stage then holds, and empty scratch space."""
        self.end_child()
        self._isolated = False
        self._supervisor("wipe", START_TIMEOUT_S)

    def end_child(self) -> None:
        """The next call finds a new one, with nothing of what this one held."""
        if self._channel is not None:
            self._bury(patience_s=0)

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self._end_process()


def has_ended(pid: int, timeout_s: float) -> bool:
    """Whether a process, ours or not, ends in time."""
    try:
        process = os.pidfd_open(pid)
    except OSError:  # it is gone already
        return True
    try:
        return bool(select.select([process], [], [], timeout_s)[0])
    finally:
        os.close(process)


def tail(output: int) -> str:
    """What is left to read in a pipe."""
    os.set_blocking(output, False)
    with suppress(BlockingIOError):
        return os.read(output, MAX_OUTPUT).decode(errors="replace")
    return ""


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
