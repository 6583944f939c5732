"""A submission in the recorder: imported and called on decoys, with its actions on the tape."""

import contextlib
import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import assert_never

import torch

from assignment.calling import requests
from assignment.compiling.targets import TARGETS
from assignment.host.submitted import ImportedSubmission, reply_to
from assignment.protocol.messages import Value
from assignment.protocol.replies import Broken, Failed, Loaded, Ok, Raised, Reply
from assignment.protocol.requests import Again, Backward, Call, Forward, Gradients, Load, Recordable, Sweep, Traced
from assignment.protocol.wire import DTYPES
from assignment.pytorch_private import has_storage
from assignment.simulator import bodies
from assignment.simulator.properties import Properties
from assignment.simulator.triton_private import GPUTarget
from assignment.whose import theirs

from . import device, stubs
from .kernels import Described
from .launches import Launcher
from .tape import Tape, fill, lies_in_memory
from .traces import traced
from .wanted import FIGURES

TARGET = "h100"  # the GPU that host code hears of, unless another is asked for
Answer = tuple[Reply, list[torch.Tensor]]

Graph = tuple[torch.Tensor, list[torch.Tensor]]  # a result, and the inputs that it came of


class RecorderSession:
    """One submission, from its import on."""

    def __init__(self, folder: Path) -> None:
        self._submission = ImportedSubmission(folder)
        self._folder = folder
        self._tape = Tape(f"{folder}/")
        self._tape.modes.append(device.OnGpu(self._tape))
        self._kernels = Described(folder)
        self._launcher = Launcher(self._tape, self._kernels)
        self._target: str | Properties = ""  # the GPU that host code hears of, and its properties
        self._properties: Properties = {}
        self._called: Callable | None = None  # the function of the submission that was called last
        self.graph: Graph | None = None  # of the differentiable call before
        self._faults = self._tape.faults
        self._told = 0  # descriptions of kernels that the judge has
        self._heap: dict[int, torch.Tensor] = {}  # what calls on a rank share, by place: one tensor, as on a GPU

    def answer(self, request: Load | Recordable | Traced, tensors: list[torch.Tensor]) -> Answer:
        """Answer a request of the judge: to import the submission, or to call a function of it."""
        if isinstance(request, Load):
            return self._load(request)
        is_call = not isinstance(request, Sweep)
        if is_call and self._answer_as(request.target or TARGET, request.multiprocessors):
            self._import()
        self._called = None
        self._launcher.gpu.figures = request.figures
        self._launcher.choose(request.configurations, request.drawn)
        tensors = self._on_one_heap(request, tensors or [stand_in(*made) for made in request.made])
        groups: list[list[torch.Tensor]] = []
        reply: Reply = Ok((), bare=False)
        bare = False
        try:
            with self._recorded():
                groups, bare = self._call(request, tensors)
        except BaseException as error:
            self._faults.note(error)
            reply = reply_to(error, self._folder)
            if isinstance(reply, Raised):
                reply = replace(reply, is_stub=stubs.is_stub(self._called))
            with contextlib.suppress(Exception):  # of a class that lets nothing be set
                error.__traceback__ = None
        if said := self._faults.take():
            reply = Broken(said)
        elif not all(has_storage(tensor) and lies_in_memory(tensor) for group in groups for tensor in group):
            reply, groups = Failed("returned a tensor without memory of its own, expected a strided one"), []
        program = self._tape.take(self._new_kernels(), groups, bare)
        return replace(reply, asked=bool(self._launcher.gpu.asked)), [program.encoded()]

    def _on_one_heap(self, request: Recordable | Traced, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the inputs of a call, its heap and tables those of this rank's first call."""
        if request.options.get("call", 1) == 1:
            self._heap = {}
        shared = {*request.about["heap"].values(), *(table for table, _ in request.about["tables"])}
        return [self._heap.setdefault(i, x) if i in shared else x for i, x in enumerate(tensors)]

    def _load(self, request: Load) -> Answer:
        self._launcher.install()
        self._submission.isolated = request.isolated
        self._answer_as(TARGET, 0)
        self._import()
        return Loaded(self._submission.import_error), []

    def _import(self) -> None:
        self._launcher.gpu.asked.clear()
        bodies.forget()
        self._kernels.forget()
        with self._recorded():
            self._submission.load()

    def _answer_as(self, target: str | Properties, multiprocessors: int) -> bool:
        """Stand in for a GPU; returns whether host code was told other things of the one before, and may keep them.

        Args:
            target: its name, or the properties of a GPU that is here.
            multiprocessors: how many it has; 0: as many as the real one.
        """
        properties = TARGETS[target].properties if isinstance(target, str) else target
        if multiprocessors:
            properties = {**properties, "multi_processor_count": multiprocessors}
        if (target, properties) == (self._target, self._properties):
            return False
        changed = {name for name, value in properties.items() if self._properties.get(name) != value}
        changed |= {FIGURES} if target != self._target else set()
        may_keep_others = not changed.isdisjoint(self._launcher.gpu.asked)
        self._target, self._properties, self._launcher.gpu.target = target, properties, target
        major, minor, warp_size = (int(properties[name]) for name in ("major", "minor", "warp_size"))
        asked = {*self._launcher.gpu.asked}
        answers = device.Answers(properties, self._launcher.gpu.asked)
        device.install(self._tape, GPUTarget("cuda", 10 * major + minor, warp_size), answers)
        self._launcher.gpu.asked &= asked  # what was asked meanwhile was asked by no submission
        return may_keep_others

    def _new_kernels(self) -> list[dict[str, Value]]:
        new = self._kernels.entries[self._told :]
        self._told = len(self._kernels.entries)
        return new

    @contextlib.contextmanager
    def _recorded(self) -> Iterator[None]:
        """Record everything inside on the tape."""
        with bodies.everywhere(self._tape.modes):
            yield

    def _call(self, request: Recordable | Traced, tensors: list[torch.Tensor]) -> tuple[list[list[torch.Tensor]], bool]:
        if isinstance(request, Sweep):  # tells of memory that is gone
            return [], False
        function = self._called = self._submission.function(request.function, request.about["file"])
        self._tape.is_strict = request.about["in_triton"]
        self._tape.inputs(tensors, is_on_gpu=True)
        match request:
            case Call():
                return requests.call(function, request, tensors)
            case Again():
                return requests.again(function, request, tensors, self._tape.begin_again)
            case Traced():
                traced(self._tape, function, request, tensors)
                return [], False
            case Gradients():
                return requests.gradients(function, request, tensors)
            case Forward():
                return [[self._forward(function, request, tensors)]], True
            case Backward():
                return [self._backward()], False
            case _:
                assert_never(request)

    def _forward(self, function: Callable, request: Forward, tensors: list[torch.Tensor]) -> torch.Tensor:
        """Make a differentiable call, and keep its graph for the next request."""
        inputs = [tensor.requires_grad_() for tensor in tensors]
        output = requests.differentiable(function, request.options, inputs)
        self.graph = output, inputs
        gc.collect()  # what only a cycle holds is not kept
        return output

    def _backward(self) -> list[torch.Tensor]:
        """Return the gradients of the sum of what was returned last."""
        assert self.graph is not None
        output, inputs = self.graph
        self.graph = None
        return list(theirs(torch.autograd.grad, output, inputs, torch.ones_like(output)))


def stand_in(dtype: str, shape: list[int], values: list[int] | None) -> torch.Tensor:
    """Return a large input with arbitrary values; or structure, with its own."""
    if values is not None:
        return torch.tensor(values, dtype=DTYPES[dtype]).reshape(shape)
    made = torch.empty(shape, dtype=DTYPES[dtype])
    fill(made)
    return made
