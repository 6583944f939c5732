"""Records of the accesses to each element of memory in a launch."""

import numpy as np


class Shadow:
    """Marks on each piece of a range of memory: mostly event numbers, 0 for none.

    A piece is `unit` bytes: the smallest element that was accessed so far.
    """

    def __init__(self, n_bytes: int, unit: int) -> None:
        self._n_bytes, self.unit = n_bytes, unit
        self.marks: dict[str, np.ndarray] = {}

    def of(self, action: str) -> np.ndarray:
        """Return the marks of one kind of access, allocated when first asked for."""
        if action not in self.marks:
            self.marks[action] = np.zeros(-(-self._n_bytes // self.unit), np.int32)
        return self.marks[action]

    def pieces(self, offsets: np.ndarray, width: int) -> np.ndarray:
        """Return the pieces of accesses of `width` bytes at these byte offsets, lane by lane."""
        if width < self.unit:
            self.marks = {action: np.repeat(mark, self.unit // width) for action, mark in self.marks.items()}
            self.unit = width
        first = offsets.ravel() // self.unit
        if width == self.unit:
            return first
        return (first[:, None] + np.arange(width // self.unit)).ravel()
