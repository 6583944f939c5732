"""Grades a class on this machine: several submissions at once, each in a process of its own."""

import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, NoReturn

from assignment.classroom import scratch
from assignment.classroom.handed_in import Handed
from assignment.classroom.kept import GraderAnswer
from assignment.classroom.results import ClassSettings
from assignment.sandbox.stage import remove
from assignment.submission import Submission
from assignment.system import here

ROOT = Path(__file__).resolve().parents[2]
MEMORY_OF_A_JOB = 3 << 30  # bytes: a judge, a recorder, a player, and what compiles
START_S = 300.0  # for a grader to load
LIMIT_S = 1800.0  # for one submission
MAX_LINE = 256 << 20  # bytes of an answer
GRACE_S = 30.0  # for a grader to report what it has graded until its limit
TIDY_S = 20.0  # for a grader to end its processes and remove its folder, on a busy machine
FOLDER = "cs336-grader-"  # of its temporary files: the beginning of the name
TAIL = 2000  # bytes of what a grader said last


class Lost(Exception):
    """A grader crashed or took too long over a submission; the message says which."""


@dataclass(frozen=True)
class Job:
    """A submission to be graded, and what it is graded as."""

    handed: Handed
    submission: Submission
    key: str


class Grader:
    """A process that grades one submission after the other: see grading_process.py."""

    def __init__(self, settings: ClassSettings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: scratch.Folder | None = None  # of its temporary files: who is killed cannot remove them
        self._kept = self._errors = b""  # an answer that has begun; the end of what was said to stderr

    def grade(self, job: Job, limit_s: float) -> GraderAnswer:
        """Return the report of a submission and its log; raises Lost."""
        process = self._process or self._start()
        files = {name: content.decode() for name, content in job.submission.files.items()}
        asked = {"name": str(job.handed.path.absolute()), "files": files, "limit_s": limit_s}
        self._tell(process, json.dumps(asked))
        return self._answer(process, limit_s, GRACE_S)

    def start(self) -> None:
        """Have the process loaded; raises Lost."""
        if self._process is None:
            self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "assignment.classroom.grading_process"]
        self._kept = self._errors = b""
        self._folder = scratch.new(FOLDER)
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {"TMPDIR": str(self._folder.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the process that reports
        )
        self._process = process
        self._tell(process, json.dumps(asdict(self._settings)))
        self._answer(process, START_S)
        return process

    def _tell(self, process: "subprocess.Popen[bytes]", line: str) -> None:
        try:
            assert process.stdin is not None
            process.stdin.write(line.encode() + b"\n")
            process.stdin.flush()
        except OSError:
            self._lose("the grader was gone")

    def _answer(self, process: "subprocess.Popen[bytes]", limit_s: float, grace_s: float = 0.0) -> GraderAnswer:
        """Return the next line, as data; raises Lost."""
        out, errors = process.stdout, process.stderr
        assert out is not None
        assert errors is not None
        until, pipes = time.monotonic() + limit_s + grace_s, [out, errors]
        while b"\n" not in self._kept:
            if (left := until - time.monotonic()) <= 0:
                self._lose(f"no report within {limit_s:.0f} s")
            for pipe in select.select(pipes, [], [], left)[0]:
                data = os.read(pipe.fileno(), 1 << 16)
                if pipe is out:
                    self._kept += data
                    if not data or len(self._kept) > MAX_LINE:
                        self._lose("the grader ended" if not data else "the report is too long")
                elif data:
                    self._errors = (self._errors + data)[-TAIL:]
                else:
                    pipes.remove(errors)
        line, _, self._kept = self._kept.partition(b"\n")
        try:
            answer: GraderAnswer = json.loads(line)
        except ValueError:
            self._lose("the report cannot be read")
        return answer

    def _lose(self, why: str) -> NoReturn:
        process, self._process = self._process, None
        status = ""
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                status = f", with exit status {process.wait(0.5)}"
            self._errors = (self._errors + _rest(process.stderr))[-TAIL:]
            _end(process)
            self._tidy()
        raise Lost(f"{why}{status}\n{self._errors.decode(errors='replace')}".strip())

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            _end(process)
            self._tidy()

    def _tidy(self) -> None:
        """Remove what the process has left, once those that it has started have ended too."""
        until, folder, self._folder = time.monotonic() + TIDY_S, self._folder, None
        if folder is None:
            return
        while folder.path.exists() and time.monotonic() < until:
            remove(folder.path)
            time.sleep(0.0 if not folder.path.exists() else 0.2)
        folder.release()


def _rest(pipe: IO[bytes] | None) -> bytes:
    """Return what has been written to a pipe and not been read yet."""
    if pipe is None:
        return b""
    os.set_blocking(pipe.fileno(), False)
    return pipe.read(TAIL) or b""


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a grader: it is asked to, and if it does not, killed with all of its session."""
    with suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(0.5)  # of one that waits for a job
    for number, patience_s in ((signal.SIGTERM, TIDY_S), (signal.SIGKILL, 5.0)):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def at_once(asked: int | None) -> int:
    """Return how many submissions are graded at once."""
    if asked:
        return asked
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(here.cores(), memory // MEMORY_OF_A_JOB))


Answer = GraderAnswer | Exception


def grade_all(
    jobs: list[Job],
    settings: ClassSettings,
    processes: int,
    limit_s: float = LIMIT_S,
    new: Callable[[ClassSettings], Grader] = Grader,
) -> Iterator[tuple[Job, Answer]]:
    """Yield each job with its answer, or with what kept it from one.

    A job that has lost its grader is tried once more, alone, when all others are through.
    """
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[Job, Answer]] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    stopped = threading.Event()
    graders = [new(settings) for _ in range(min(processes, len(jobs)))]

    def serve(grader: Grader) -> None:
        with suppress(queue.Empty):
            while not stopped.is_set():
                job = waiting.get_nowait()
                done.put((job, _asked(grader, job, limit_s)))
        grader.close()

    def alone(job: Job) -> tuple[Job, Answer]:
        for thread in threads:
            thread.join()  # each closes its grader at the end
        return job, _asked(graders[0], job, limit_s)

    threads = [threading.Thread(target=serve, args=(grader,), daemon=True) for grader in graders]
    try:
        for thread in threads:
            thread.start()
        first = (done.get() for _ in jobs)
        yield from lost_once_more(first, alone)
    finally:
        stopped.set()
        for grader in graders:
            grader.close()


def lost_once_more(
    first: Iterable[tuple[Job, Answer]], alone: Callable[[Job], tuple[Job, Answer]]
) -> Iterator[tuple[Job, Answer]]:
    """Yield the answers as they come; when all others are through, those of lost jobs, from a second attempt.

    Of a job whose second attempt says nothing, the part that was graded in the first.
    """
    lost = []
    for job, answer in first:
        if isinstance(answer, Exception) or "failed" in answer["report"]:
            lost.append((job, answer))
        else:
            yield job, answer
    for job, before in lost:
        _, answer = alone(job)
        yield job, before if isinstance(answer, Exception) else answer


def _asked(grader: Grader, job: Job, limit_s: float) -> Answer:
    try:
        return grader.grade(job, limit_s)
    except Exception as error:  # nothing that a submission does to its grader may end the others
        return error
