"""What is known about the values of one session: the labels of all memory, and what has computed the labelled."""

from dataclasses import replace

import numpy as np
import torch

from .labels import FIRST_INPUT, FIRST_SOURCE, FOREIGN, FRESH, INPUT, LAST_SOURCE, NEXT_CALL, HostOperation, Memory


class KnownValues:
    """The labels of each storage, and the operation that each label of a source stands for."""

    def __init__(self) -> None:
        self._memories: dict[int, Memory] = {}  # by address of the storage's implementation
        self.sources: list[HostOperation] = []
        self._numbers: dict[HostOperation, int] = {}  # of the sources
        self._is_unplayed = np.zeros(256, bool)  # by label: whether an operation that is not played took part
        self.is_unwritten = np.arange(256) == FRESH  # by label: whether values depend on unwritten memory

    def age(self) -> None:
        """Make stale what was known: a call begins."""
        self._memories = {key: memory for key, memory in self._memories.items() if not memory.reference.expired()}
        for memory in self._memories.values():
            memory.age()
        self.sources = [_aged(source) for source in self.sources]
        self._numbers = {source: len(self.sources) - 1 - i for i, source in enumerate(reversed(self.sources))}

    def made(self, tensor: torch.Tensor, label: int) -> Memory:
        """Add a new storage."""
        memory = self._memories[tensor.untyped_storage()._cdata] = Memory(tensor, label, self.is_unwritten)
        return memory

    def forget(self, address: int) -> None:
        """Forget the storage with this implementation, unless something else holds it."""
        if address in self._memories and self._memories[address].reference.expired():
            del self._memories[address]

    def knows(self, tensor: torch.Tensor) -> bool:
        """Return whether the tensor's storage has labels, or no elements that could."""
        found = self._memories.get(tensor.untyped_storage()._cdata)
        return not tensor.numel() or (found is not None and found.is_of(tensor.untyped_storage()))

    def memory(self, tensor: torch.Tensor) -> Memory | None:
        """Return the labels of a tensor's storage; None if it has no elements.

        A storage of unknown origin is foreign.
        """
        if not tensor.numel():
            return None
        return self._memories[tensor.untyped_storage()._cdata] if self.knows(tensor) else self.made(tensor, FOREIGN)

    def stands_for(self, label: int) -> frozenset[int]:
        """Return what a doubt's values were before; of any other label, the label itself."""
        found = self.sources[label - FIRST_SOURCE].stands_for if label >= FIRST_SOURCE else None
        return found or frozenset([INPUT if FIRST_INPUT <= label < FIRST_SOURCE else label])

    def counts(self, tensor: torch.Tensor) -> np.ndarray:
        """Return how many elements of a tensor have each label."""
        memory = self.memory(tensor)
        return memory.counts(tensor) if memory else np.zeros(256, np.int64)

    def are_unwritten(self, labels: torch.Tensor) -> torch.Tensor:
        """Return for each label whether its values depend on unwritten memory."""
        return torch.from_numpy(self.is_unwritten)[labels.long()]

    def depth(self, label: int) -> int:
        """Return how often a doubt's values were cleaned up; 0 for any other label."""
        return self.sources[label - FIRST_SOURCE].depth if label >= FIRST_SOURCE else 0

    def label_for(self, source: HostOperation) -> int:
        """Return the label for what this source computes; if there are too many, the last one."""
        if source not in self._numbers:
            if len(self.sources) == LAST_SOURCE - FIRST_SOURCE:
                self.sources.append(replace(source, stands_for=frozenset()))
            if len(self.sources) > LAST_SOURCE - FIRST_SOURCE:
                return LAST_SOURCE
            self._numbers[source] = len(self.sources)
            self.sources.append(source)
        label = FIRST_SOURCE + self._numbers[source]
        self.is_unwritten[label] = FRESH in source.stands_for
        self._is_unplayed[label] = source.is_unplayed
        return label


def _aged(source: HostOperation) -> HostOperation:
    """Return what an earlier call computed."""
    return replace(source, stands_for=frozenset(int(NEXT_CALL[label]) for label in source.stands_for))
