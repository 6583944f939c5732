"""Scripts of the specification, run where a submission is imported: what they say is advice, and decides nothing.

Host code runs as in a process of one's own, in the simulator and with torch.compile. Its kernels get tensors of the
CPU, which bodies of operators take for those of a GPU.
"""

import importlib.util
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import torch

from assignment.host.submitted import ImportedSubmission, reply_to
from assignment.protocol.replies import Loaded, Ok, Reply, told
from assignment.protocol.requests import Load, Script
from assignment.pytorch_private import FakeTensor
from assignment.simulator import bodies
from assignment.simulator.cuda import CudaOnCpu
from assignment.simulator.kernel_values import Grid, LaunchArgument
from assignment.simulator.one_gpu import answer_questions
from assignment.simulator.properties import H100
from assignment.simulator.triton_private import JITCallable


class ScriptSession:
    """A submission, and what scripts say of it."""

    def __init__(self, folder: Path) -> None:
        self._submission = ImportedSubmission(folder)
        answer_questions(H100)
        library = torch.library
        library.triton_op, library.wrap_triton = _as_one_box, Wrapped  # type: ignore[assignment]

    def answer(self, request: Load | Script, tensors: list[torch.Tensor]) -> tuple[Reply, list[torch.Tensor]]:
        """Answer a request: to import the submission, or to run a script's `advice`."""
        try:
            if isinstance(request, Load):
                self._submission.isolated = request.isolated
                with bodies.everywhere([CudaOnCpu()]):
                    self._submission.load()
                return Loaded(self._submission.import_error), []
            script = _imported(request.source)
            return Ok((), bare=False, notes=told(script.advice(self._function_of(request)))), []
        except BaseException as error:
            return reply_to(error, self._submission.folder), []

    def _function_of(self, request: Script) -> Callable[[str], Callable]:
        def function(name: str) -> Callable:
            with bodies.everywhere([CudaOnCpu()]):
                return self._submission.function(name, request.about["file"])

        return function


def _imported(source: str) -> ModuleType:
    """Return a script as a module with a file of its own, which torch.compile asks for."""
    path = Path(tempfile.mkdtemp(), "script.py")
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[path.stem] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Wrapped:
    """What torch.library.wrap_triton gives: a kernel, whose launch on tensors without data is none."""

    def __init__(self, kernel: JITCallable) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: Grid) -> Callable[..., None]:
        def launch(*args: LaunchArgument, **kwargs: LaunchArgument) -> None:
            if not any(isinstance(given, FakeTensor) for given in (*args, *kwargs.values())):
                self._kernel[grid](*args, **kwargs)

        return launch


def _as_one_box(
    name: str, body: Callable | None = None, /, *, mutates_args: str | Sequence[str], schema: str | None = None
) -> Callable:
    """Stand in for torch.library.triton_op, whose kernels nothing compiles here: an operator that stays whole."""

    def defined(body: Callable) -> Callable:
        operator = torch.library.custom_op(name, body, mutates_args=mutates_args, schema=schema)
        operator.register_fake(body)
        return operator

    return defined(body) if body else defined
