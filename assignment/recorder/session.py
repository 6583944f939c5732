"""A submission in the recorder: imported and called on decoys, with its actions on the tape."""

import contextlib
import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from assignment.calling import requests
from assignment.compiling.targets import TARGETS
from assignment.host.submitted import ImportedSubmission, reply_to
from assignment.protocol.messages import Reply, Request, Value
from assignment.protocol.wire import DTYPES
from assignment.simulator.properties import Properties
from assignment.simulator.triton_private import GPUTarget

from . import bodies, device, stubs
from .kernels import Described
from .launches import Launcher
from .tape import Tape, fill, has_storage, lies_in_memory
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

    def answer(self, header: Request, tensors: list[torch.Tensor]) -> Answer:
        """Answer a request of the judge: to import the submission, or to call a function of it."""
        if header["kind"] == "load":
            return self._load(header)
        is_call = header["kind"] != "sweep"
        if is_call and self._answer_as(header.get("target", TARGET), header.get("multiprocessors", 0)):
            self._import()
        self._called = None
        self._launcher.figures = header.get("figures", {})
        self._launcher.choose(header.get("configurations", 0), header.get("drawn"))
        tensors = tensors or [stand_in(*made) for made in header.get("made", ())]
        groups: list[list[torch.Tensor]] = []
        reply: Reply = {"status": "ok"}
        bare = False
        try:
            with self._recorded():
                groups, bare = self._call(header, tensors)
        except BaseException as error:
            self._faults.note(error)
            reply = {**reply_to(error, self._folder), "in_kernel": False, "is_stub": stubs.is_stub(self._called)}
            with contextlib.suppress(Exception):  # of a class that lets nothing be set
                error.__traceback__ = None
        if said := self._faults.take():
            reply = {"status": "broken", "message": said}
        elif not all(has_storage(tensor) and lies_in_memory(tensor) for group in groups for tensor in group):
            message = "returned a tensor without memory of its own, expected a strided one"
            reply, groups = {"status": "failed", "message": message}, []
        program = self._tape.take(self._new_kernels(), groups, bare)
        reply["asked"] = bool(self._launcher.asked)
        return reply, [program.encoded()]

    def _load(self, header: Request) -> Answer:
        self._launcher.install()
        self._submission.isolated = header["isolated"]
        self._answer_as(TARGET, 0)
        self._import()
        return {"status": "ok", "import_error": self._submission.import_error}, []

    def _import(self) -> None:
        self._launcher.asked.clear()
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
        may_keep_others = not changed.isdisjoint(self._launcher.asked)
        self._target, self._properties, self._launcher.target = target, properties, target
        major, minor, warp_size = (int(properties[name]) for name in ("major", "minor", "warp_size"))
        asked = {*self._launcher.asked}
        answers = device.Answers(properties, self._launcher.asked)
        device.install(self._tape, GPUTarget("cuda", 10 * major + minor, warp_size), answers)
        self._launcher.asked &= asked  # what was asked meanwhile was asked by no submission
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

    def _call(self, header: Request, tensors: list[torch.Tensor]) -> tuple[list[list[torch.Tensor]], bool]:
        if header["kind"] == "sweep":  # tells of memory that is gone
            return [], False
        function = self._called = self._submission.function(header["function"], header["about"]["file"])
        self._tape.is_strict = header["about"]["in_triton"]
        self._tape.inputs(tensors, is_on_gpu=True)
        return HANDLERS[header["kind"]](function, header, tensors, self)

    def begin_again(self) -> None:
        """Record that the judge's handler calls the function a second time."""
        self._tape.begin_again()


def stand_in(dtype: str, shape: list[int]) -> torch.Tensor:
    """Return a large input with arbitrary values."""
    made = torch.empty(shape, dtype=DTYPES[dtype])
    fill(made)
    return made


def forward(
    function: Callable, header: Request, tensors: list[torch.Tensor], session: RecorderSession
) -> tuple[list[list[torch.Tensor]], bool]:
    """Make a differentiable call, and keep its graph for the next request."""
    inputs = [tensor.requires_grad_() for tensor in tensors]
    output = requests.differentiable(function, header, inputs)
    session.graph = output, inputs
    gc.collect()  # what only a cycle holds is not kept
    return [[output]], True


def backward(
    function: Callable, header: Request, tensors: list[torch.Tensor], session: RecorderSession
) -> tuple[list[list[torch.Tensor]], bool]:
    """Return the gradients of the sum of what was returned last."""
    assert session.graph is not None
    output, inputs = session.graph
    session.graph = None
    return [list(torch.autograd.grad(output, inputs, torch.ones_like(output)))], False  # theirs


HANDLERS: dict[str, Callable[..., tuple[list[list[torch.Tensor]], bool]]] = {
    "call": requests.call,
    "gradients": requests.gradients,
    "again": requests.again,
    "forward": forward,
    "backward": backward,
}
