"""`--inline`: the submission in this very process, in view of a debugger; it decides nothing."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from torch import Tensor

from assignment import worker
from assignment.host import direct
from assignment.judge import replies
from assignment.judge.replies import Reply
from assignment.protocol import wire
from assignment.protocol.replies import written
from assignment.protocol.requests import Direct, Ranks


@contextlib.contextmanager
def _gpu_on_cpu() -> Iterator[None]:
    """Let host code inside hear of a GPU, as it does where it is recorded."""
    from assignment.simulator import bodies  # loads Triton, which the simulator is installed before
    from assignment.simulator.cuda import CudaOnCpu  # likewise

    with bodies.everywhere([CudaOnCpu()]):
        yield


class InlineWorker:
    """A worker's interface on this very process: exceptions of the submission pass through, for a debugger."""

    def __init__(self, folder: Path, device: str) -> None:
        worker.prepare(device)
        self._gpu: Callable[[], AbstractContextManager[None]] = (
            contextlib.nullcontext
        )  # host code hears of one here, too
        if device == "cpu":
            from assignment.simulator import control, cuda  # load Triton

            control.let_stop()
            cuda.patch(cuda.StorageDevices())
            self._gpu = _gpu_on_cpu
        self._session = direct.DirectSession(folder, device)
        self._decode = functools.partial(wire.decode, largest_storage=worker.LARGEST_STORAGE, guard=worker.GUARD)

    def ask(self, request: Direct | Ranks, tensors: list[Tensor]) -> tuple[Reply | None, list[Tensor]]:
        specs, storages, payload = wire.encode(tensors)
        given = self._decode(specs, storages, bytearray(payload))
        with self._gpu():
            came, results = self._session.let_raise(request, given)
        return replies.read(written(came), len(results)), results

    @property
    def import_error(self) -> str:
        return self._session.submission.import_error

    def output(self) -> str:
        return ""

    def forget_output(self) -> None:
        """Do nothing: what is printed is on this process's own output."""

    def restart(self) -> None:
        """Do nothing: an import is for good in this process."""

    def close(self) -> None:
        """Do nothing: there is no process to end."""
