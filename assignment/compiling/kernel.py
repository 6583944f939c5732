"""The facts about a kernel that was compiled for a target, as plain data."""

from dataclasses import asdict, dataclass

from assignment.protocol import forms
from assignment.protocol.messages import Value
from assignment.protocol.replies import AnyReply
from assignment.protocol.said import Places, Said

from .targets import TARGETS, TENSOR_MEMORY, Target

WARP = 32  # threads
MAX_TEXT = 2_000  # characters
MAX_ITEMS = 8  # of a list
MAX_NUMBER = 1 << 40


@dataclass(frozen=True)
class Kernel:
    """A kernel, specialised for a launch and compiled for a target; or why it was not."""

    name: str
    path: str  # "cs336_kernels/rmsnorm.py"
    line: int  # of its `def`
    target: str
    constants: str = ""  # what its tl.constexpr parameters are
    config: str = ""  # of an autotuned kernel
    tuning: int = -1  # those of one call with the same number stand for one another
    warps: int = 0
    stages: int = 0
    form: str = ""  # the same for the same kernel, arguments and options on another target
    error: str = ""  # why there is none, with the student's line
    error_at: Places = ()  # the same line
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
    stopped: dict[str, Said]  # by target, why the call ended before its last launch
    refused: dict[str, Said]  # by target, why Triton has refused a launch
    differing: tuple[Said, ...] = ()  # where kernels were played with other constants than they are compiled with


def read(data: Value) -> Kernel | None:
    """Return the kernel that as_json() described; None if the data is something else."""
    try:
        kernel = forms.read(Kernel, data)
    except forms.Misformed:
        return None
    return kernel if is_sound(kernel) else None


def is_sound(kernel: Kernel) -> bool:
    """Return whether all of it has a bounded size, and its target is known."""
    values = [*vars(kernel).values(), *kernel.instructions, *kernel.remarks]
    return kernel.target in TARGETS and all(_is_bounded(value) for value in values)


def _is_bounded(value: str | bool | int | tuple[str, ...] | Places) -> bool:
    if isinstance(value, int):
        return -1 <= value <= MAX_NUMBER
    return len(value) <= (MAX_TEXT if isinstance(value, str) else MAX_ITEMS)
