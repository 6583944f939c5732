"""The grader's end of a worker: starts it, asks it, enforces deadlines, replaces it if it dies."""

import json
import os
import select
import signal
import socket
import statistics
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from assignment import text
from assignment.confined.supervisor import HERE, Answer, descendants
from assignment.protocol import forms
from assignment.protocol.messages import Header
from assignment.protocol.requests import Load, Request, written
from assignment.protocol.said import Said, Telling
from assignment.sandbox import rungs, stopped
from assignment.sandbox.slowness import slowness
from assignment.sandbox.stage import GIVE_UP, WAIT, Stage, remove
from assignment.system import here
from assignment.system.interface import ON_GPU, Folders, NotStarted, WorkerEnds

if TYPE_CHECKING:
    from torch import Tensor

WAKE_EVERY_S = 2.0
PIPE = 1 << 20  # bytes that can be printed before they are read
MAX_STARTS = 5  # of a worker that is killed each time before it is ready
START_TIMEOUT_S = 180.0  # PyTorch from a cold disk
SUPERVISOR_TIMEOUT_S = 20.0  # it answers within milliseconds, and ends a fork bomb within seconds
# usual: 2 s
CALL_TIMEOUT_S = {"record": 30.0, "play": 30.0, "compile": 120.0, "script": 60.0, "gpu": 120.0, "cuda": 120.0}
WITHOUT_HOST_CODE = ("play", "compile", "gpu")  # roles
WALL_TIMES = 20  # so much longer may a call take by the clock, where others keep the machine busy
LOOK_EVERY_S = 0.5
SAMPLES = 4  # of the machine's slowness, until a call's deadline without it
END_TIMEOUT_S = 5.0
TELL_TIMEOUT_S = 3.0  # for a player, at its deadline, to say where it is
PATIENCE_S = 0.5  # for a child that only closed its connection
LESS = ", a fifth of the limit, since two checks of this function have ended in one place"
MAX_ANSWER = 64 << 10  # bytes
MAX_OUTPUT = 64 << 10  # bytes of what a submission prints; earlier ones are dropped
PASSED_ON = ("LANG", "LD_LIBRARY_PATH", "TZ")
FOR_CUDA = ("PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "CC")  # and a compiler


_nursery = here.worker_starter()  # of this process and of those that it forks


class WorkerDied(Telling):
    """The submission ended the worker, or had to be stopped."""

    def __init__(self, status: str, *parts: str | Said, ran: bool = True) -> None:
        super().__init__(*parts)
        self.status = status  # "crashed" or "timeout"
        self.ran = ran  # False: the submission's time was over before


class WorkerUnavailable(Exception):
    """No worker can be started: the grader's fault, not the submission's."""


class Worker:
    """One worker process and the conversation with it.

    Both are one class, because any step of the conversation may find the process gone, and starts it anew.
    """

    def __init__(self, stage: Stage, device: str, rung: str | None = None, packages: Sequence[str] = ()) -> None:
        """Start the process, in the best sandbox or this one; it loads its libraries meanwhile.

        Args:
            packages: folders of more packages that it may import.
        """
        self._stage, self._device, self._rung = (stage, device, rungs.choose(rung or rungs.AUTO, device))
        self._packages = tuple(packages)
        self._channel: socket.socket | None = None
        self._isolated = False
        # of the call that is waited for: in all, and doing nothing
        self._spent_s = self._idle_s = 0.0
        # what kept the package from being imported: its files are, one by one
        self.import_error = ""
        self._printed: deque[bytes] = deque()
        self._printed_size = 0
        # of its first process, shared with forked processes
        self._pid = here.CONTEXT.RawValue("i", 0)
        # Popen warns when a process that did not start it drops it
        self._processes: list[subprocess.Popen] = []
        self.is_over = lambda: False  # whether nobody needs the answer that is waited for
        self._last_words = ""  # what a process printed that never got to its first child
        self._start()

    def _start(self) -> None:
        # the process that waits for the worker; its forks only talk to it
        self._owner = os.getpid()
        self._control, theirs = here.socketpair()
        self._output, write_end = os.pipe()
        here.widen(write_end, PIPE)
        self._has_had_child = False
        self._scratch = self._stage.new_scratch()
        try:
            self._start_process(theirs.fileno(), write_end)
        except BaseException:
            self._control.close()
            os.close(self._output)
            raise
        finally:
            theirs.close()
            os.close(write_end)

    def _start_process(self, control: int, output: int) -> None:
        stage, role = self._stage, self._device
        folders = Folders(
            str(stage.runtime(role)), str(stage.seen_by(role)), str(self._scratch), stage.compiled(role), self._packages
        )
        env = self._environment(here.seen(self._rung, folders).scratch)
        self._pid.value = 0  # until it is known
        try:
            started = _nursery.start(self._rung, role, folders, env, WorkerEnds(control, output, stage.living))
        except NotStarted as error:
            said = tail(self._output).strip() or "it was killed"
            raise WorkerUnavailable(f"{error.program} did not start: {said}; {error.instead}") from None
        self._pid.value = started.pid
        self._processes += started.processes

    def _environment(self, scratch: str) -> dict[str, str]:
        names = PASSED_ON + (FOR_CUDA if self._device in ON_GPU else ())
        env = {name: os.environ[name] for name in names if name in os.environ}
        env |= {"HOME": scratch, "TMPDIR": scratch, "PYTHONHASHSEED": "0", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        if self._device not in ON_GPU:
            env |= {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
            env |= {"TORCH_COMPILE_DISABLE": str(int(self._device != "script")), "CUDA_VISIBLE_DEVICES": ""}
        return env

    @property
    def is_connected(self) -> bool:
        """Whether there is a child with which the last exchange went well."""
        return self._channel is not None

    @property
    def grown(self) -> int:
        """The bytes that the child has mapped since it was forked; 0 if there is none."""
        return self._supervisor("used").get("grown", 0) if self.is_connected else 0

    def ask(self, request: Request, tensors: list["Tensor"]) -> tuple[Header, list["Tensor"]]:
        """Send a request and return its reply; raises WorkerDied, and the next call restarts."""
        if self._stage.is_over:
            raise WorkerDied("timeout", "not run: the time for the whole submission is over", ran=False)
        if self._channel is None:
            self._connect()
        return self._exchange(request, tensors)

    def _exchange(self, request: Request, tensors: list["Tensor"]) -> tuple[Header, list["Tensor"]]:
        from assignment.protocol import wire  # loads PyTorch, which a worker's start must not wait for

        assert self._channel is not None
        timeout_s = CALL_TIMEOUT_S[self._device] * (self._stage.patience() if self._device == "record" else 1.0)
        began = time.monotonic()
        try:
            until = began + WALL_TIMES * timeout_s
            number = wire.ask(self._channel, written(request), tensors, until)
            self._await_reply(timeout_s)
            until = min(until, time.monotonic() + timeout_s)  # which has begun to come
            header, results = wire.answer_to(number, self._channel, until)
        except wire.DeadlineExceeded:
            where = self._interrupt()
            self._reap(patience_s=0)
            why = "" if timeout_s == CALL_TIMEOUT_S[self._device] else LESS
            stopped_for = f"no answer within {timeout_s:.0f} s{why}; the call was stopped"
            raise WorkerDied("timeout", stopped_for, where) from None
        except wire.ConnectionLost:
            raise WorkerDied("crashed", self._reap(), self._place(self.output())) from None
        except wire.ProtocolError as error:
            self._reap(patience_s=0)
            raise WorkerDied("crashed", f"the result cannot be read: {error}") from None
        finally:
            self._stage.spend(self._spent_s or time.monotonic() - began)
            self._spent_s = 0.0
        self._refuse_leftovers()
        # an error of the GPU's, with which every later call of this child would fail
        if header.pop("sticks", False):
            self.end_child()
            if isinstance(request, Load):
                raise WorkerDied("crashed", "the GPU was left unusable when it was imported")
        return header, results

    def _await_reply(self, timeout_s: float) -> None:
        """Wait for a reply's first byte; raises DeadlineExceeded.

        The deadline counts the child's processor time, and time in which it is idle, and grows with the machine's
        slowness, the median of several moments of the call, so that a busy machine changes no verdict.
        """
        from assignment.protocol import wire  # loads PyTorch

        channel = self._channel
        assert channel is not None
        ends: list[socket.socket | int] = [channel, self._output]
        began = last = time.monotonic()
        samples: list[float] = []
        before: float | None = None
        while channel not in (ready := select.select(ends, [], [], LOOK_EVERY_S)[0]):
            now = time.monotonic()
            if ready:
                self._catch_up()
                if now - last < LOOK_EVERY_S:
                    continue
            used = self._supervisor("used")
            if not used:  # the first process is gone, and its child with it
                raise wire.ConnectionLost
            processor_s = used.get("processor_s", 0.0)
            before = max(0.0, processor_s - (now - began)) if before is None else before
            idle_s = now - last if self._device in ON_GPU or used.get("is_idle", True) else 0.0
            self._idle_s, last = self._idle_s + idle_s, now
            self._spent_s = max(processor_s - before, 0.0) + self._idle_s
            if self._spent_s > timeout_s * (len(samples) + 1) / SAMPLES:
                samples.append(slowness())
            is_over = self._spent_s > timeout_s * statistics.median(samples or [1.0])
            if is_over or self.is_over() or now - began > WALL_TIMES * timeout_s:
                self._idle_s = 0.0
                raise wire.DeadlineExceeded
            if self._await_turn():
                last = time.monotonic()
        self._idle_s = 0.0

    def _await_turn(self) -> bool:
        """Stop the child until it may go on, and return whether it had to wait, which takes none of its time.

        Raises WorkerDied where the answer is not needed any more.
        """
        is_held = (turn := self._stage.turn(self._spent_s)) == WAIT
        if is_held:
            self._supervisor("hold")
            while (turn := self._stage.turn(self._spent_s)) == WAIT:
                time.sleep(LOOK_EVERY_S)
            self._supervisor("release")
        if turn == GIVE_UP:
            self._idle_s = 0.0
            self._reap(patience_s=0)
            raise WorkerDied("timeout", "not run to its end: nobody needs its answer any more", ran=False)
        return is_held

    def _refuse_leftovers(self) -> None:
        """Raise WorkerDied if a process of the call goes on after it has returned."""
        if self._device in WITHOUT_HOST_CODE:  # nothing of a submission's runs there but kernels
            return
        strays = self._supervisor("strays").get("strays", ["the worker's own, which was killed"])
        if not strays:
            return
        self._reap(patience_s=0)
        left = f"left a process running: {str(strays[0])[:80]}"
        raise WorkerDied("crashed", f"{left}; end every process before the function returns")

    def _connect(self) -> None:
        """Fork a new child of the worker, with the submission imported.

        If __init__.py kills it, the submission is imported without it.
        """
        self._fork_child()
        try:
            sources = self._stage.sources if self._device in WITHOUT_HOST_CODE else {}
            header, _ = self._exchange(Load(isolated=self._isolated, sources=sources), [])
        except WorkerDied as error:
            if self._isolated:
                raise
            self._isolated, self.import_error = True, text.clean(str(error))
            self._connect()
        else:
            self.import_error = self.import_error or import_error_in(header)

    def _fork_child(self) -> None:
        for attempt in range(1, MAX_STARTS + 1):
            ours, theirs = socket.socketpair()
            with theirs:
                started = self._supervisor("fork", START_TIMEOUT_S, [theirs.fileno()], caches=self._stage.caches)
            if started:
                break
            ours.close()
            # it says why: another will say the same
            if attempt == MAX_STARTS or (attempt > 1 and self._last_words):
                raise WorkerUnavailable(f"the worker process did not start: {self._last_words or 'it was killed'}")
        self._channel = ours
        self._has_had_child = True

    def _supervisor(
        self, do: str, timeout_s: float = SUPERVISOR_TIMEOUT_S, descriptors: Sequence[int] = (), **more: float | str
    ) -> Answer:
        """Return the answer of the worker's first process.

        If it is gone or stopped, return {} and start a new one.
        """
        try:
            self._control.settimeout(timeout_s)
            number = time.monotonic_ns()
            here.send(self._control, json.dumps({"do": do, "number": number, **more}).encode(), descriptors)
            return self._answer_to(number, timeout_s)
        except (OSError, ValueError) as error:  # no answer at all is no JSON
            if isinstance(error, TimeoutError) and not self._pid.value:  # it was never born
                _nursery.close()
            self._end_process()
            self._start()
            return {}

    def _answer_to(self, number: int, timeout_s: float) -> Answer:
        """Return the answer of this number.

        Earlier ones are skipped: a judge that was killed may have left them unread.
        """
        answer: Answer = {}
        while answer.get("number") != number:
            self._await_answer(timeout_s)
            answer = json.loads(here.receive(self._control, MAX_ANSWER)[0])
            self._pid.value = answer.get("supervisor", self._pid.value)
        return answer

    def _await_answer(self, timeout_s: float) -> None:
        """Wait for the first process, continuing it if it was stopped; raises TimeoutError."""
        until = time.monotonic() + timeout_s
        while not select.select([self._control], [], [], WAKE_EVERY_S)[0]:
            if time.monotonic() > until:
                raise TimeoutError
            _nursery.wake()
            for pid in (self._pid.value, *descendants(self._pid.value)) if self._pid.value else ():
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGCONT)

    def _reap(self, patience_s: float = PATIENCE_S) -> str:
        """End the current child, and return how it had ended."""
        assert self._channel is not None
        self._channel.close()
        self._channel = None
        end = self._supervisor("end", patience_s=patience_s)
        if (status := end.get("status")) is None:
            return "the worker process was killed"
        return end["why"] or describe_end(status)

    def _interrupt(self) -> Said:
        """Return where the child is, at its deadline; what it prints of that is no output of the submission."""
        before = self.output().encode()
        self._supervisor("interrupt")
        until = time.monotonic() + (TELL_TIMEOUT_S if self._device in ("play", "record") else 0)
        while self.output().count(HERE) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        told = self.output().encode()[len(before) :].decode(errors="replace").split(HERE)
        stack = self.output()  # where the process could not tell, that of faulthandler, which may not know the line
        self._printed, self._printed_size = deque([before]), len(before)
        if len(told) > 2 and told[1]:
            if self._device != "play":
                stack = told[1]
            with suppress(ValueError, forms.Misformed):
                if self._device == "play" and (where := forms.read(Said, json.loads(told[1]))).text:
                    return where
        self._stage.hung(stopped.alike(stack, self._stage.sources))
        return self._place(stack)

    def _place(self, stack: str) -> Said:
        """Return where the submission is in the stack printed last, if any."""
        return stopped.place(stack.rpartition("most recent call first")[2], self._stage.sources)

    def _catch_up(self) -> None:
        """Read what has been printed: a child prints before it answers."""
        with suppress(OSError, ValueError):  # it is closed
            while select.select([self._output], [], [], 0)[0] and (data := os.read(self._output, PIPE)):
                self._printed.append(data)
                self._printed_size += len(data)
                while self._printed_size - len(self._printed[0]) > MAX_OUTPUT:
                    self._printed_size -= len(self._printed.popleft())

    def forget_output(self) -> None:
        """Discard what was printed so far."""
        self._catch_up()
        self._printed.clear()
        self._printed_size = 0

    def output(self) -> str:
        """Return what the submission has printed since then, as far as it was kept."""
        self._catch_up()
        return b"".join(self._printed).decode(errors="replace")

    def _end_process(self) -> None:
        """End the worker and all that it started, through its first process if possible."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        if not here.has_ended(self._pid.value, END_TIMEOUT_S):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid.value, signal.SIGKILL)
        if self._owner == os.getpid() and self._processes:
            self._processes[-1].kill()
            self._processes[-1].wait()
        self._last_words = "" if self._has_had_child else tail(self._output)
        self._catch_up()
        os.close(self._output)
        remove(self._scratch)

    def restart(self) -> None:
        """End the child and clear the scratch space; the next call forks a new child."""
        self.end_child()
        self._isolated, self.import_error = False, ""
        self._supervisor("wipe", START_TIMEOUT_S)

    def end_child(self) -> None:
        """End the child; the next call forks a new one that shares nothing with it."""
        if self._channel is not None:
            self._reap(patience_s=0)

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self._end_process()


def import_error_in(header: Header) -> str:
    """Return the package's import error from a reply, safe to show; "" if there is none."""
    said = header.get("import_error")
    return text.clean(said) if isinstance(said, str) else ""


def tail(output: int) -> str:
    """Return what is left to read in a pipe."""
    os.set_blocking(output, False)
    with suppress(BlockingIOError):
        return os.read(output, MAX_OUTPUT).decode(errors="replace")
    return ""


def describe_end(status: int) -> str:
    """Return a wait status in words."""
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
