"""What host code reads of a kernel that is not compiled yet: registers, spills, shared memory."""

import hashlib
import json

from assignment.protocol.messages import Value
from assignment.protocol.program import Arguments, WarmUp
from assignment.simulator.properties import Properties
from assignment.simulator.triton_private import JITFunction

from .kernels import Described
from .tape import Tape


class HeardOf:
    """The GPU that host code hears of, and what it asks of it."""

    def __init__(self, tape: Tape, kernels: Described) -> None:
        self.tape, self.kernels = tape, kernels
        self.figures: dict[str, dict[str, int]] = {}  # of compiled kernels, by key: what the judge has told
        self.target: str | Properties = ""
        self.asked = set[str]()  # since host code was imported


class Wanted:
    """A request for the resources of a kernel, compiled for one launch: the judge has it compiled.

    In the first recording of the call, figures are those of an ordinary kernel.
    """

    def __init__(self, gpu: HeardOf, kernel: JITFunction, described: tuple[Arguments, Arguments] | None) -> None:
        self._gpu, self._kernel, self._chunk = gpu, kernel, gpu.tape.chunk
        self._described, self._key = described, ""

    def __getitem__(self, name: str) -> int:
        self._gpu.asked.add(FIGURES)
        is_of_now = self._chunk == self._gpu.tape.chunk  # else its views have other numbers
        if self._described and not self._key and is_of_now:
            self._key = self._identity(*self._described)
            if self._key not in self._gpu.figures:
                self._ask_for(*self._described)
        return self._gpu.figures.get(self._key, {}).get(name, USUAL[name])

    def _ask_for(self, arguments: Arguments, options: Arguments) -> None:
        """Tell the judge that the call depends on figures of this kernel that are not known yet."""
        tape, number = self._gpu.tape, self._gpu.kernels.number(self._kernel)
        tape.step(WarmUp(number, [1, 1, 1], arguments, options, self._key, tape.line()))

    def _identity(self, arguments: Arguments, options: Arguments) -> str:
        """Return a hash that is equal in another process, and for calls that compile alike."""
        constant = {param.name for param in self._kernel.params if param.is_constexpr}
        given = {name: value if name in constant else self._kind(value) for name, value in arguments.items()}
        code = self._kernel.fn.__code__
        text = json.dumps([code.co_filename, code.co_firstlineno, given, options, self._gpu.target], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _kind(self, value: Value) -> Value:
        """Return views as dtypes, and integers as the kinds that Triton specialises on."""
        if isinstance(value, dict):
            view = value.get("t", value.get("descriptor"))
            known = {"t": self._gpu.tape.dtype(view)} if isinstance(view, int) else {}
            return {**{name: self._kind(inner) for name, inner in value.items() if inner is not view}, **known}
        if isinstance(value, list):
            return [self._kind(item) for item in value]
        return [value == 1, value % 16 == 0] if type(value) is int else str(type(value))


FIGURES = "figures of compiled kernels"  # which every GPU has its own of
# of an ordinary kernel
USUAL = {"registers": 128, "spills": 0, "shared": 49_152, "warps": 4, "stages": 2}
