"""The facts about a kernel that was compiled for a target, as plain data."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from assignment.protocol.messages import Value
from assignment.protocol.replies import AnyReply

from .targets import TARGETS, TENSOR_MEMORY, Target

WARP = 32  # threads
MAX_TEXT = 2_000  # characters
MAX_ITEMS = 8  # of a list
MAX_NUMBER = 1 << 40


@dataclass(frozen=True)
class Kernel:
    """A kernel, specialised for a launch and compiled for a target; or why it was not."""

    name: str
    place: str  # "cs336_kernels/rmsnorm.py:120"
    target: str
    constants: str = ""  # what its tl.constexpr parameters are
    config: str = ""  # of an autotuned kernel
    tuning: int = -1  # those of one call with the same number stand for one another
    warps: int = 0
    stages: int = 0
    form: str = ""  # the same for the same kernel, arguments and options on another target
    error: str = ""  # why there is none, with the student's line
    is_skipped: bool = False  # Triton's tuner goes on to the next configuration after such an error
    is_crash: bool = False  # the compiler broke down over it, and has not refused it
    shared: int = 0  # bytes a program
    tensor_memory: int = 0  # columns a program
    registers: int = 0  # a thread
    spills: int = 0  # registers a thread that live in memory, four bytes each
    spilled_at: str = ""  # the line of most spills
    instructions: tuple[str, ...] = ()  # that multiply matrices
    remarks: tuple[str, ...] = ()  # why not the best ones, with the line

    @property
    def on(self) -> Target:
        return TARGETS[self.target]

    @property
    def fits(self) -> bool:
        return not self.error and self.shared <= self.on.shared_limit and not self.excess

    @property
    def excess(self) -> str:
        """What it uses too much of other than shared memory, and the limit."""
        if self.tensor_memory > TENSOR_MEMORY:
            return f"{self.tensor_memory} columns of tensor memory; a program has {TENSOR_MEMORY}"
        threads = int(self.on.properties["max_threads_per_block"])
        if self.warps * WARP > threads:
            return f"{self.warps * WARP} threads (num_warps={self.warps}); a program has {threads}"
        return ""

    def as_json(self) -> dict[str, Value]:
        return asdict(self)


@dataclass(frozen=True)
class Compiled(AnyReply):
    """A reply: the kernels of a call were compiled, or could not be."""

    kernels: tuple[Kernel, ...]
    stopped: dict[str, str]  # by target, why the call ended before its last launch
    refused: dict[str, str]  # by target, why Triton has refused a launch
    differing: tuple[str, ...] = ()  # where kernels were played with other constants than they are compiled with


def read(data: Value) -> Kernel | None:
    """Return the kernel that as_json() described; None if the data is something else."""
    if not isinstance(data, dict) or data.keys() != {field.name for field in fields(Kernel)}:
        return None
    if not all(_is_right(field.type, data[field.name]) for field in fields(Kernel)) or data["target"] not in TARGETS:
        return None
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    return Kernel(**values)


def _is_right(kind: Any, value: Any) -> bool:
    if kind is str:
        return isinstance(value, str) and len(value) <= MAX_TEXT
    if kind is bool:
        return isinstance(value, bool)
    if kind is int:
        return type(value) is int and -1 <= value <= MAX_NUMBER
    return isinstance(value, list | tuple) and len(value) <= MAX_ITEMS and all(_is_right(str, item) for item in value)
