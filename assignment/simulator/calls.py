"""What the simulator knows about the call in which kernels are launched, and what it says about it afterwards."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .faults import MemoryFault, Place
from .trace import LaunchCost

if TYPE_CHECKING:
    from .provenance import Provenance


@dataclass
class Call:
    """A call of host code that launches kernels."""

    inputs: Sequence[Any] = ()  # tensors of the caller: kernels must not store to them, nor reach what lies between
    seed: int = 0  # of the order in which programs run
    is_traced: bool = False
    launches: list[LaunchCost] = field(default_factory=list)  # if traced
    faults: list[MemoryFault] = field(default_factory=list)  # also those that host code caught
    warnings: list[str] = field(default_factory=list)
    nans: dict[Place, str] = field(default_factory=dict)  # where an operation of a kernel made a NaN of numbers
    n_launches: int = 0
    kernels: set[str] = field(default_factory=set)  # the names of those launched
    provenance: "Provenance | None" = None  # hears of launches and of what they load and store
    is_dry: bool = False  # kernels do nothing
    on_store: Callable[[str, Any], None] | None = None  # hears of each store: the argument's name and the tensor

    def __post_init__(self) -> None:
        self._warned: set[Any] = set()
        self.storages: dict[int, list[Any]] = {}
        for tensor in self.inputs:
            self.storages.setdefault(tensor.untyped_storage().data_ptr(), []).append(tensor)

    def position(self, tensor: Any) -> int:
        """Of the first input that shares its storage with the tensor."""
        storage = tensor.untyped_storage().data_ptr()
        return [t.untyped_storage().data_ptr() for t in self.inputs].index(storage)

    def warn(self, text: str, about: Any) -> None:
        """Say it, unless something was said about the same before."""
        if about not in self._warned:
            self._warned.add(about)
            self.warnings.append(text)


_current = Call()


def current() -> Call:
    """The call that runs; outside of one, a call without inputs."""
    return _current


@contextlib.contextmanager
def call(
    inputs: Sequence[Any] = (), seed: int = 0, is_traced: bool = False, provenance: "Provenance | None" = None
) -> Iterator[Call]:
    """Launches inside belong to this call.

    with call(inputs=[x, weight]) as seen:
        y = rmsnorm(x, weight)
    print(seen.warnings)
    """
    global _current
    before, _current = _current, Call(inputs, seed, is_traced, provenance=provenance)
    try:
        yield _current
    finally:
        _current = before
