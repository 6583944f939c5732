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
from assignment.simulator.gpu import Properties
from assignment.simulator.triton_private import GPUTarget

from . import bodies, device, stubs
from .kernels import Described
from .launches import Launcher
from .tape import Tape, fill, has_storage, lies_in_memory

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
        self._answers: device.Answers
        self._target: str | Properties = ""
        self._asks_at_import = False
        self._called: Callable | None = None  # the function of the submission that was called last
        self.graph: Graph | None = None  # of the differentiable call before
        self._faults = self._tape.faults
        self._told = 0  # descriptions of kernels that the judge has

    def answer(self, header: Request, tensors: list[torch.Tensor]) -> Answer:
        """Answer a request of the judge: to import the submission, or to call a function of it."""
        if header["kind"] == "load":
            return self._load(header)
        # a name, or the properties of a GPU that is here
        if (target := header.get("target", TARGET)) != self._target:
            self._answer_as(target)
            if self._asks_at_import:
                self._import()
        self._called = None
        self._answers.were_asked = self._launcher.were_asked = False
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
        reply["asked"] = self._asks_at_import or self._answers.were_asked or self._launcher.were_asked
        return reply, [program.encoded()]

    def _load(self, header: Request) -> Answer:
        self._launcher.install()
        self._submission.isolated = header["isolated"]
        self._answer_as(TARGET)
        self._import()
        return {"status": "ok", "import_error": self._submission.import_error}, []

    def _import(self) -> None:
        with self._recorded():
            self._submission.load()
        self._asks_at_import = self._answers.were_asked or self._launcher.were_asked

    def _answer_as(self, target: str | Properties) -> None:
        """Stand in for another GPU; reimport a submission that asked for the GPU on import."""
        properties = TARGETS[target].properties if isinstance(target, str) else target
        major, minor, warp_size = (int(properties[name]) for name in ("major", "minor", "warp_size"))
        gpu = GPUTarget("cuda", 10 * major + minor, warp_size)
        self._target = target
        self._answers = device.install(self._tape, gpu, properties)
        self._launcher.target = target

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
