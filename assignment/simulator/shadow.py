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


class SparseShadow(Shadow):
    """Marks on the bytes of a huge range that were accessed so far, numbered as they came."""

    def __init__(self) -> None:
        super().__init__(0, 1)
        self._known, self._numbers = np.zeros(0, np.int64), np.zeros(0, np.int64)  # pieces, rising, and theirs

    def of(self, action: str) -> np.ndarray:
        """Return the marks of one kind of access, as many as there are pieces."""
        marks = self.marks.get(action, np.zeros(0, np.int32))
        if marks.size < self._known.size:
            marks = self.marks[action] = np.append(marks, np.zeros(self._known.size - marks.size, np.int32))
        return marks

    def pieces(self, offsets: np.ndarray, width: int) -> np.ndarray:
        """Return the numbers of the pieces of these accesses."""
        places = (offsets.ravel()[:, None] + np.arange(width)).ravel()
        new = np.setdiff1d(places, self._known)
        if new.size:
            numbers = np.concatenate([self._numbers, self._known.size + np.arange(new.size)])
            known = np.concatenate([self._known, new])
            order = np.argsort(known)
            self._known, self._numbers = known[order], numbers[order]
            for action in list(self.marks):
                self.of(action)
        return self._numbers[np.searchsorted(self._known, places)]
