"""What each element of memory has met in a launch."""

import numpy as np


class Shadow:
    """Marks on each piece of a stretch of memory: mostly numbers of events, 0 for none.

    A piece is `unit` bytes: the smallest element that was accessed so far.
    """

    def __init__(self, n_bytes: int, unit: int) -> None:
        self._n_bytes, self.unit = n_bytes, unit
        self.marks: dict[str, np.ndarray] = {}

    def of(self, action: str) -> np.ndarray:
        """The mark that one kind of access leaves; memory for it is taken when it is first asked for."""
        if action not in self.marks:
            self.marks[action] = np.zeros(-(-self._n_bytes // self.unit), np.int32)
        return self.marks[action]

    def pieces(self, offsets: np.ndarray, width: int) -> np.ndarray:
        """The pieces of accesses of `width` bytes at these byte offsets, lane by lane."""
        if width < self.unit:
            self.marks = {action: np.repeat(mark, self.unit // width) for action, mark in self.marks.items()}
            self.unit = width
        first = offsets.ravel() // self.unit
        if width == self.unit:
            return first
        return (first[:, None] + np.arange(width // self.unit)).ravel()
