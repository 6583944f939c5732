"""The call of host code in which kernels are launched, and what the simulator reports about it."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from .clocks import RankRaces
from .draws import Draws
from .faults import MemoryFault, Place, Program, Said
from .programs import Programs
from .regions import FollowedMemory, HeapTensor, Region
from .streams import Raised
from .trace import LaunchCost

if TYPE_CHECKING:
    from .recording import Recording


class Follower(Protocol):
    """An observer of launches that tracks where values in memory come from (player.work)."""

    def admit(self, tensor: torch.Tensor) -> FollowedMemory | None:
        """Return the argument's memory; None if untracked."""

    def is_suspect(self, memory: Any) -> bool:
        """Return whether the memory holds a value that no kernel may load."""

    def loaded(self, memory: Any, offsets: np.ndarray, width: int, kernel: str, element: Callable[[int], str]) -> None:
        """Handle a kernel's load of suspect memory, of elements at these offsets in bytes."""


class Rank(Protocol):
    """A rank of several, whose launches run together (ranks.World)."""

    number: int
    races: RankRaces  # of all ranks
    programs: Programs
    heap: Sequence[HeapTensor]

    def run(self, ids: Sequence[Program], run_one: Callable[[Program], None], is_whole: bool) -> None:
        """Run all programs of a launch to their end, while others run; `is_whole`: a GPU begins all or none."""

    def found(self, fault: MemoryFault) -> None:
        """Raise a fault when all has ended, unless another one tells its cause."""

    def owns(self, tensor: torch.Tensor) -> None:
        """Note an argument of a launch: other ranks cannot reach it."""

    def whose(self, storage: int) -> str:
        """Return "rank 1" for a storage of another rank, that is not on the heap."""

    def operates(self, loaded: Sequence[torch.Tensor], written: Sequence[torch.Tensor], line: Said) -> None:
        """Check what an operation of host code loads, before it does."""

    def does(self, what: str) -> None:
        """Note a step, for a picture: one of LANES."""

    def moves(self, region: Region, action: str, pieces: np.ndarray, unit: int, requested: int) -> None:
        """Count what a program moves over the link to another rank, but for integers: they are signals."""


@dataclass
class Call:
    """A call of host code: the launches inside belong to it.

    with Call(inputs=[x, weight]) as seen:
        y = rmsnorm(x, weight)
    print(seen.warnings)
    """

    # tensors of the caller: kernels must not store to them, nor reach what lies between
    inputs: Sequence[torch.Tensor] = ()
    seed: int = 0  # of the order in which programs run, and of what else the language leaves open
    is_traced: bool = False
    n_arguments: int = 0  # of each call, where the inputs are those of several
    keeps_accesses: bool = False  # of traced launches, one by one
    notes_constants: bool = False
    constants: list[dict[str, set[str]]] = field(default_factory=list)  # of each launch, if they are noted
    launches: list[LaunchCost] = field(default_factory=list)  # if traced
    faults: list[MemoryFault] = field(default_factory=list)  # also those that host code caught
    warnings: list[str] = field(default_factory=list)
    # where an operation of a kernel made a NaN of numbers
    nans: dict[Place, Said] = field(default_factory=dict)
    orders: list[Said] = field(default_factory=list)  # in which programs met, where it matters, in words
    doubts: list[str] = field(default_factory=list)  # what staff should look at
    idle: list[str] = field(default_factory=list)  # launches that stored nothing, in words
    n_launches: int = 0
    follower: Follower | None = None
    # hears of each store: the argument's name and the tensor
    on_store: Callable[[str, torch.Tensor], None] | None = None
    raises_as_compiler: bool = False  # what the compiler would refuse is a triton.CompilationError
    # says why a tensor must not be an argument of a launch, or ""
    refuses: Callable[[torch.Tensor], str] | None = None
    recording: "Recording | None" = None  # keeps what launches do, for a page (recording.Recording)
    rank: Rank | None = None  # of a world of several (ranks.World)

    def __post_init__(self) -> None:
        self._warned: set[Hashable] = set()
        self.compared: set[Place] = set()  # reductions whose trees were compared
        self.storages: dict[int, list[torch.Tensor]] = {}
        for tensor in self.inputs:
            self.storages.setdefault(tensor.untyped_storage().data_ptr(), []).append(tensor)

    def __enter__(self) -> "Call":
        _calls.append(self)
        return self

    def __exit__(self, *_: Raised) -> None:
        _calls.pop()

    @cached_property
    def draws(self) -> Draws:
        """What the language leaves open, as this call has it."""
        return Draws(self.seed)

    def begin_again(self) -> None:
        """Prepare for a second call of the function: its programs run in the order of the first."""
        self.n_launches = 0

    def position(self, tensor: torch.Tensor) -> int:
        """Return the position of the first input that shares its storage with the tensor."""
        storage = tensor.untyped_storage().data_ptr()
        found = [t.untyped_storage().data_ptr() for t in self.inputs].index(storage)
        return found % self.n_arguments if self.n_arguments else found

    def warn(self, text: str, about: Hashable) -> None:
        """Add a warning, unless there is one about the same already."""
        if about not in self._warned:
            self._warned.add(about)
            self.warnings.append(text)
            if self.recording:
                self.recording.warned(text, about)


_calls = [Call()]  # the running ones, the innermost last


def switch_to(call: Call) -> None:
    """Let a call run in the place of the running one."""
    _calls[-1] = call


def current() -> Call:
    """Return the running call; outside of one, a call without inputs."""
    return _calls[-1]
