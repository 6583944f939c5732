"""Host code and kernels in one process: on a GPU, or for a debugger; it grades nothing on a CPU."""

from dataclasses import replace
from pathlib import Path
from typing import assert_never

from assignment.calling import requests, sticky, timed
from assignment.host.submitted import ImportedSubmission, reply_to
from assignment.protocol.replies import Failed, Loaded, Ok, Reply
from assignment.protocol.requests import Called, Direct, Load, OnSlots, Ranks, Timeable


class DirectSession:
    """One submission's calls."""

    def __init__(self, folder: Path, device: str) -> None:
        self.submission, self._device = ImportedSubmission(folder), device

    def answer(self, request: Load | Direct | Timeable, tensors: list) -> tuple[Reply, list]:
        """Answer a request once the GPU is idle; a reply that "sticks" is this process's last."""
        try:
            reply, results = self.let_raise(request, tensors)
        except BaseException as raised:
            reply, results = reply_to(raised, self.submission.folder), []
        if (error := sticky.error()) is None:
            return reply, results
        if isinstance(reply, Ok | Loaded):  # the kernel at fault was still running
            reply = reply_to(error, self.submission.folder)
        return replace(reply, sticks=True), []

    def let_raise(self, request: Load | Direct | Ranks | Timeable, tensors: list) -> tuple[Reply, list]:
        """Answer a request; the submission's exceptions are not caught."""
        if isinstance(request, Load):
            self.submission.isolated = request.isolated
            self.submission.load()
            return Loaded(self.submission.import_error), []
        function = self.submission.function(request.function, request.about["file"])
        match request:
            case OnSlots():
                return timed.answer(function, request)
            case Ranks() if self._device == "cuda":
                return Failed("calls on several ranks run in the simulator: leave --device cuda out"), []
            case Ranks():
                return requests.on_ranks(function, request, tensors, self.submission.folder)
            case Called():
                return requests.answer(function, request, tensors, self._device, self.submission.folder)
            case _:
                assert_never(request)
