"""What the grader asks of an operating system, and the data that pass between them."""

import socket
import subprocess
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from multiprocessing.context import ForkContext, SpawnContext
from typing import NotRequired, Protocol, TypedDict, cast

BUBBLEWRAP, LANDLOCK, RLIMITS = RUNGS = ("bubblewrap", "landlock", "rlimits")
ON_GPU = ("gpu", "cuda")  # roles


class NotStarted(Exception):
    """A program that a worker needs does not start."""

    def __init__(self, program: str, instead: str) -> None:
        super().__init__(program)
        self.program, self.instead = program, instead


class Setup(TypedDict):
    """How a worker's process is set up: what it plays, in which sandbox, and its folders."""

    rung: str
    device: str  # the role
    runtime: str
    submission: str
    scratch: str
    compiled: str  # "" where nothing is shared
    packages: Sequence[str]
    readable: Sequence[str]
    control: NotRequired[int]  # the number of a socket
    line: NotRequired[int]  # likewise, of a child that was not forked: its supervisor's


@dataclass(frozen=True)
class Folders:
    """The folders of the stage that a worker uses."""

    runtime: str
    submission: str
    scratch: str
    compiled: str = ""
    packages: tuple[str, ...] = ()  # folders of more packages, for those of ours that time them


def setup(rung: str, device: str, seen: Folders, readable: Sequence[str]) -> Setup:
    """Return a worker's start-up settings, except for its control socket; its folders are named as it sees them."""
    return cast(Setup, {"rung": rung, "device": device, "readable": [*readable, *seen.packages], **asdict(seen)})


@dataclass(frozen=True)
class WorkerEnds:
    """The descriptors that a worker is started with: a socket, a pipe to print to, and one that it only holds open."""

    control: int
    output: int
    living: int


@dataclass(frozen=True)
class Started:
    """The pid of a worker's first process, 0 until it tells it itself, and the processes to be waited for."""

    pid: int
    processes: tuple[subprocess.Popen, ...] = ()


class WorkerStarting(Protocol):
    """Starts workers."""

    def start(self, rung: str, device: str, folders: Folders, env: dict[str, str], ends: WorkerEnds) -> Started:
        """Start a worker; raises NotStarted."""

    def wake(self) -> None:
        """Continue processes that are not known yet, where somebody has stopped them."""

    def close(self) -> None:
        """End what does not answer; the next worker is started without it."""


class ChildStarting(Protocol):
    """Starts the children of a worker's first process, one at a time."""

    def prepare(self) -> None:
        """Begin to load what the next child needs, where that is not done already."""

    def take(self, connection: int, caches: str) -> int:
        """Have a child answer on a connection, which is closed here; returns its pid. Raises OSError."""

    def grown(self) -> int:
        """Return the bytes by which the child has grown since then."""

    def known(self) -> set[int]:
        """Return the pids of what was prepared: no process of a submission's."""


class System(Protocol):
    """An operating system; its modules hold these names."""

    FORKS: bool  # whether a process that has loaded PyTorch may be forked
    WATCH_EVERY_S: float  # between looks at what a submission uses

    @property
    def CONTEXT(self) -> ForkContext | SpawnContext:  # noqa: N802  a constant of a module
        """How processes of ours are started that share numbers."""

    def worker_starter(self) -> WorkerStarting: ...

    def child_starter(self, run: Callable[[socket.socket, str], None], setup: Setup) -> ChildStarting:
        """Return what starts children: `run` takes a socket and a name for caches, and does not return."""

    # the machine

    def cores(self) -> int:
        """Return how many processors this process may use."""

    def use_cores(self, n: int) -> None:
        """Have this process and those that it starts use so many processors at most, where that can be said."""

    def free_memory(self) -> int:
        """Return the bytes that the machine, or the container around us, has left."""

    # the calling process

    def hide(self) -> None:
        """Keep other processes of this user from tracing or reading this one."""

    def adopt_orphans(self) -> None:
        """Make every descendant whose parent ends a child of the calling process, where that is possible."""

    def die_with_parent(self) -> None:
        """Have this process killed when the one that has started it ends."""

    def interrupts_unheard(self) -> AbstractContextManager[None]:
        """Have what is started inside ignore Ctrl-C from its first moment on, where a fork does not see to that."""

    def limits(self, address_space: int) -> dict[int, int]:
        """Return the limits that this system alone has; with 0, none of memory."""

    def memory_limited(self, more: int) -> AbstractContextManager[None]:
        """Have what is done inside raise MemoryError beyond so many bytes more, if that is possible."""

    def join_sandbox(self, setup: Setup) -> None:
        """Give up what a worker's first process got when it joined its sandbox."""

    def confine(self, setup: Setup) -> None:
        """Give up, for good, what the rung can take away. Call it in the process that will run the submission."""

    # other processes

    def children_of(self, pid: int) -> list[int]: ...

    def usage_of(self, pid: int) -> tuple[float, bool] | None:
        """Return the processor time of a process and its reaped children, and whether it sleeps; None if it is gone."""

    def name_of(self, pid: int) -> str: ...

    def unlinked(self, pid: int) -> int:
        """Return the bytes of a process's unnamed files: deleted ones, and those in memory."""

    def is_over_memory(self, pids: Sequence[int], size: int) -> bool:
        """Return whether one of them has more bytes of memory; False where limits() see to that."""

    def tasks_of_this_user(self) -> int: ...

    def has_ended(self, pid: int, timeout_s: float) -> bool:
        """Return whether a process, ours or not, ends in time."""

    # talking to them

    def socketpair(self) -> tuple[socket.socket, socket.socket]:
        """Return two ends of a line over which whole messages go, with descriptors."""

    def send(self, line: socket.socket, message: bytes, descriptors: Sequence[int] = ()) -> None: ...

    def receive(self, line: socket.socket, size: int, n: int = 0) -> tuple[bytes, list[int]]:
        """Return a message of at most so many bytes, b"" where the line is closed, and up to n descriptors."""

    def widen(self, pipe: int, size: int) -> None:
        """Have a pipe hold so many bytes, or the most that this user may have."""

    def taken(self, line: int) -> tuple[socket.socket, str]:
        """Say that this child is ready, and return what it is to answer on, and a name for its caches."""

    # the sandbox

    def problem(self, rung: str, device: str) -> str:
        """Return why a rung does not work here; "" if it does."""

    def remedy(self, problem: str) -> str:
        """Return what helps where bubblewrap has this problem, and no other sandbox works."""

    def seen(self, rung: str, folders: Folders) -> Folders:
        """Return the folders by the names that they have for the worker."""

    def readable(self, device: str) -> list[str]:
        """Return what a worker may read beside its stage: system libraries, Python, packages."""
