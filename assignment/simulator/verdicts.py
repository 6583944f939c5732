"""What is said of a call whose results are not a kernel's work: evidence, or a doubt for staff to judge, in words."""

import sys
from types import CodeType
from typing import Any

from .faults import at
from .origins import DELTA, FIRST_SOURCE, FOREIGN, INPUT, PRODUCT, STALE, SUM, Memory, Origins

_WORDS = {
    FOREIGN: "written by neither a kernel nor an operation of PyTorch (numpy, ctypes, a thread, a Python number?)",
    INPUT: "copied from the inputs",
    SUM: "summed by PyTorch",
    DELTA: "summed by PyTorch",
    PRODUCT: "multiplied by PyTorch",
    STALE: "kept from an earlier call",
}


class Verdicts:
    """Of one call, in order, each once."""

    def __init__(self, origins: Origins, folder: str) -> None:
        """`folder` holds the submission's files: its lines are named."""
        self._origins, self._folder = origins, folder
        self.evidence: dict[str, None] = {}  # what shows that the kernels did not do the work
        self.doubts: dict[str, None] = {}  # what staff should look at
        self._blamed: set[Any] = set()

    def words(self, label: int, memory: Memory) -> str:
        """How values with this label came to be, and where, if PyTorch made them."""
        if label >= FIRST_SOURCE:
            source = self._origins.source(label)
            return f"computed by {source.what}\n{source.place.replace('  at', '  computed at', 1)}"
        where = "" if label in (FOREIGN, STALE) or not memory.line else f"\n{at((memory.line,), '  computed ')}"
        return _WORDS.get(label, "filled in from Python numbers") + where

    def blame(self, label: int, text: str, about: Any = None) -> None:
        """Say it, unless the same was said about the same before."""
        if about in self._blamed:
            return
        if about:
            self._blamed.add(about)
        if self._origins.is_doubt(label):
            self.doubt(text)
        else:
            self.accuse(text)

    def accuse(self, text: str) -> None:
        self.evidence[text] = None

    def accuse_here(self, text: str) -> None:
        """Say it with the line of the submission that runs."""
        self.accuse(f"{text}\n{self.line()}")

    def doubt(self, text: str) -> None:
        self.doubts[text] = None

    def line(self) -> str:
        """ "  at cs336_kernels/rmsnorm.py:42 in rmsnorm: y = x * r", for the submission's line that runs."""
        line = self.frame()
        return at((line,)) if line else "  in PyTorch's own backward pass"

    def frame(self) -> tuple[CodeType, int] | None:
        """The code and line of the submission that runs."""
        frame: Any = sys._getframe(1)
        while frame is not None and not frame.f_code.co_filename.startswith(self._folder):
            frame = frame.f_back
        return (frame.f_code, frame.f_lineno) if frame is not None else None
