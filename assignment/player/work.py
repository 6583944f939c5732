"""Which computation made a result: labels for all memory of a program, and reports on foreign work.

free       views, copies, casts, fills, pads, `× a number`, anything computed from shapes and structure alone
backward   sums of what launches of this call stored, and of constants; in the flash backward
           rowsum(A ∘ B)
doubts     data-dependent masks and clamps of what kernels made: for staff to judge
evidence   any other operation on the way from an input to a result, or to what a kernel loads
"""

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from assignment.protocol.said import Said, joined
from assignment.pytorch_private import Argument, Keywords, OpOverload, tensors_of
from assignment.simulator.faults import at, place

from .derivations import Computed, OperationCall, derive, of_unwritten
from .known_values import KnownValues
from .labels import (
    CHOICE,
    CONSTANT,
    DELTA,
    FIRST_INPUT,
    FIRST_SOURCE,
    FOREIGN,
    FRESH,
    INPUT,
    KERNEL,
    PRODUCT,
    STALE,
    SUM,
    HostOperation,
    Memory,
    once,
    worst,
)
from .lines import computed
from .operations import OVERWRITING, form_of, instead_of, outputs_of

if TYPE_CHECKING:
    from tests.operators import About

# results of rowsum(A ∘ B), of the size that a call needs: some requests make several
MAX_DELTAS = 8
PADDED = 256  # rows that padding to tiles may add to each batch
WORDS = {
    FOREIGN: "changed by neither a kernel nor an operation of PyTorch (numpy, a thread, elements that overlap?)",
    INPUT: "copied from the inputs",
    SUM: "summed by PyTorch",
    DELTA: "summed by PyTorch",
    PRODUCT: "multiplied by PyTorch",
    STALE: "kept from an earlier call",
    CHOICE: "compared by PyTorch",
    CONSTANT: "filled in from Python numbers",
}
_NOT_LOADABLE = np.ones(256, bool)  # by label: whether a kernel must not load it
_NOT_LOADABLE[[CONSTANT, INPUT, KERNEL, SUM, DELTA, FRESH, STALE, *range(FIRST_INPUT, FIRST_SOURCE)]] = False
_NOT_LOADABLE_FORWARD = _NOT_LOADABLE.copy()
_NOT_LOADABLE_FORWARD[SUM] = True
_NOT_RETURNABLE = np.ones(256, bool)
_NOT_RETURNABLE[[KERNEL, FRESH]] = False


class Work(KnownValues):
    """The findings of the current call, of what is known about the values of its session."""

    def __init__(self) -> None:
        super().__init__()
        self.evidence: dict[Said, None] = {}
        self.unplayed: dict[Said, None] = {}  # operations that are not played, and took part in what was asked for
        self.doubts: dict[Said, None] = {}
        self._blamed: set[Hashable] = set()
        self.needs_kernels = False
        self._allows_sums = False
        # elements that one result of rowsum(A ∘ B) may have, and that all have
        self._max_delta = self._delta = 0
        self._has_short_rows = False
        self.input_labels: list[int] = []  # of the call's inputs, where these are told apart

    def begin(
        self,
        about: "About",
        has_gradients: bool,
        inputs: Sequence[torch.Tensor],
        tells_inputs: bool = False,
        structure: Collection[int] = (),
    ) -> None:
        """Begin a call on these tensors; what earlier calls left is stale.

        Args:
            about: its function's record, from tests/operators.py.
            has_gradients: whether the call computes them, whatever its function.
            inputs: its tensors.
            tells_inputs: whether labels say which of them a value was copied from.
            structure: the places of those that host code knows: constants, but where another input's memory is.
        """
        self.go_on()
        self.needs_kernels = about["in_triton"]
        self._allows_sums = has_gradients or about["is_backward"]
        self._max_delta = self._delta = 0
        self.age()
        for tensor in inputs:
            self.made(tensor, INPUT)
        labels = [min(FIRST_INPUT + i, FIRST_SOURCE - 1) if tells_inputs else INPUT for i in range(len(inputs))]
        self.input_labels = labels if tells_inputs else []
        told = [(self.memory(tensor), tensor, label) for tensor, label in zip(inputs, labels, strict=True)]
        known = [(*told[i][:2], CONSTANT) for i in structure]
        shared = [held for held, *_ in known]
        others = [one for i, one in enumerate(told) if i not in structure and (tells_inputs or one[0] in shared)]
        for held, tensor, label in known + others:  # of two that share memory the later one has it
            if held:
                held.write(tensor, label)
        if about["sums_rows"] and self._allows_sums and inputs and inputs[0].dim() > 1:
            self._has_short_rows = inputs[0].shape[-1] == 1
            rows = inputs[0].numel() // max(inputs[0].shape[-1], 1)
            self._max_delta = 2 * rows + PADDED * math.prod(inputs[0].shape[:-2])

    def go_on(self) -> None:
        """Continue the previous call with its backward pass."""
        self.evidence, self.doubts, self.unplayed = {}, {}, {}
        self._blamed = set()

    def _is_wrong(self, label: int, wrong: np.ndarray) -> bool:
        """Return whether the table is true for what a label stands for."""
        return bool(wrong[list(self.stands_for(label))].any())

    # what PyTorch does

    def computed(self, name: str, line: Said, targets: Iterable[torch.Tensor], is_unplayed: bool) -> None:
        """Record that an operation has computed these that is not played: it is not known, or is not to be used."""
        label = self.label_for(HostOperation(name, line, is_unplayed=is_unplayed))
        for target in targets:
            self._write(target, label, line)

    def is_known_to_host(self, values: Sequence[torch.Tensor]) -> bool:
        """Return whether all values are constants, which host code has rightly read."""
        held = [(self.memory(tensor), tensor) for tensor in values]
        return bool(held) and all(memory is None or memory.labels_in(tensor) <= {CONSTANT} for memory, tensor in held)

    def took_part(self, values: Argument | Keywords | tuple[Sequence[Argument], Keywords]) -> int | None:
        """Return the label of an operation that is not played and had a part in some of these values; None if none."""
        if not self._is_unplayed.any():
            return None
        memories = [(self.memory(tensor), tensor) for tensor in tensors_of(values)]
        suspect = [(memory, tensor) for memory, tensor in memories if memory and memory.holds_any(self._is_unplayed)]
        labels = {label for memory, tensor in suspect for label in memory.labels_in(tensor)}
        return min((label for label in labels if self._is_unplayed[label]), default=None)

    def tell_unplayed(self, label: int) -> None:
        source = self.sources[label - FIRST_SOURCE]
        self.unplayed[joined([f"{source.what} is not played: {instead_of(source.what)}", source.place])] = None

    def operation(
        self, func: OpOverload, args: Sequence[Argument], kwargs: Keywords, targets: list[torch.Tensor], line: Said
    ) -> None:
        """Work out and record the labels of what an operation is going to write."""
        if not self.needs_kernels:
            self._outline(func, args, kwargs, targets, line)
            return
        if not targets:
            return
        name = form_of(func)
        arguments = {**dict(zip([a.name for a in func._schema.arguments], args, strict=False)), **kwargs}
        arguments = {key: value for key, value in arguments.items() if key not in outputs_of(func)}
        if name == "copy" and func._schema.is_mutable:
            arguments = {"src": arguments["src"]}
        operation = OperationCall(name, arguments, self, targets[0], self._max_delta, self._has_short_rows)
        labels = derive(operation, func, args, kwargs)
        if isinstance(labels, list) and len(labels) != len(targets):
            labels = Computed()
        if (isinstance(labels, int) and labels == DELTA) or (
            isinstance(labels, Computed) and labels.stands_for == {DELTA}
        ):
            self._delta += targets[0].numel()
            labels = labels if self._delta <= MAX_DELTAS * self._max_delta else Computed()
        if isinstance(labels, Computed | int) and (unplayed := self.took_part(arguments)) is not None:
            labels = unplayed
        elif isinstance(labels, Computed | int):
            unwritten = of_unwritten(operation, func, args, kwargs, labels)
            label = labels = self._numbered(labels, func, line)
            if unwritten is not None:
                below = Computed(self.stands_for(label) | {FRESH}, self.depth(label))
                labels = torch.where(unwritten, self._numbered(below, func, line), label).to(torch.uint8)
        for i, target in enumerate(targets):
            self._write(target, labels[i] if isinstance(labels, list) else labels, line)

    def _numbered(self, found: Computed | int, func: OpOverload, line: Said) -> int:
        """Return the label of what an operation computes."""
        if isinstance(found, int):
            return found
        return self.label_for(HostOperation(func._schema.name, line, found.stands_for, found.depth))

    def _outline(
        self, func: OpOverload, args: Sequence[Argument], kwargs: Keywords, targets: list[torch.Tensor], line: Said
    ) -> None:
        """Label PyTorch's work in its own problem, as far as kernel problems may ask later."""
        memories = [self.memory(tensor) for tensor in tensors_of((args, kwargs))]
        is_constant = all(memory is None or memory.is_constant() for memory in memories)
        label = CONSTANT if is_constant else self.label_for(HostOperation(func._schema.name, line))
        overwrites = func._schema.is_mutable and form_of(func) in OVERWRITING
        unplayed = self.took_part((args[1:] if overwrites else args, kwargs))
        for target in targets:
            held = self.memory(target)
            if unplayed is not None or (held and held.holds_any(self._is_unplayed)):
                self._write(target, label if unplayed is None else unplayed, line)
            else:
                self.made(target, label).place = line

    def _write(self, target: torch.Tensor, labels: torch.Tensor | int, line: Said) -> None:
        memory = self.memory(target) if self.knows(target) else self.made(target, FRESH)
        if memory is None:
            return
        memory.place = line
        if isinstance(labels, torch.Tensor):
            fits = labels.dim() <= target.dim() and labels.numel() in (1, target.numel())
            labels = labels.expand(target.shape) if fits else worst(labels)
        memory.write(target, labels)

    # what kernels do: hooks of the simulator's watch

    def admit(self, tensor: torch.Tensor) -> Memory | None:
        """Return the labels of a launch's argument."""
        return self.memory(tensor) if self.needs_kernels else None

    def is_suspect(self, memory: Memory) -> bool:
        """Return whether the memory holds a value that no kernel may load."""
        return memory.holds_any(self._not_loadable())

    def _not_loadable(self) -> np.ndarray:
        return _NOT_LOADABLE if self._allows_sums else _NOT_LOADABLE_FORWARD

    def loaded(
        self, memory: Memory, offsets: np.ndarray, width: int, kernel: str, element: Callable[[int], str]
    ) -> None:
        """Handle a kernel's load of `width` bytes at these offsets, from suspect memory."""
        labels, wrong = memory.at(offsets.ravel(), width), self._not_loadable()
        for label in map(int, np.unique(labels[wrong[labels]])):
            where = place()
            first = element(int(np.flatnonzero(labels == label)[0]))
            how, made_at = self._words(label, memory, wrong)
            what = f"kernel {kernel} loads {first}, which was {how}"
            self._blame(label, joined([what, made_at, at(where)]), wrong, about=(label, where))

    # what the call returns

    def returned(self, results: Sequence[torch.Tensor], where: str = "") -> None:
        """Judge a group of results, "on rank 1" for example: every element must be a kernel's work."""
        if (label := self.took_part(list(results))) is not None:
            self.tell_unplayed(label)
        if not self.needs_kernels:
            return
        for number, result in enumerate(results, start=1):
            if result.numel():
                self._judge(
                    result, f"result {number} of {len(results)}{where}" if len(results) > 1 else f"the result{where}"
                )

    def _judge(self, result: torch.Tensor, name: str) -> None:
        memory = self.memory(result)
        assert memory is not None
        seen = once(result)
        labels = memory.of(seen)
        wrong = _NOT_RETURNABLE.copy()
        wrong[SUM] = not self._allows_sums
        wrong[CONSTANT] = not _is_one_value(seen[labels == CONSTANT])
        present = torch.bincount(labels.flatten(), minlength=256).nonzero().flatten().tolist()
        is_doubt = {label: not self._is_wrong(label, wrong) for label in present if wrong[label]}
        for kind in set(is_doubt.values()):
            found = torch.isin(labels, torch.tensor([label for label in is_doubt if is_doubt[label] == kind]))
            first = found.nonzero()[0].tolist()
            label = int(labels[tuple(first)])
            share = f"{int(found.sum())} of {seen.numel()} elements of {name}"
            how, made_at = self._words(label, memory, wrong)
            self._blame(label, joined([f"{share}, the first at {first}, were {how}", made_at]), wrong)

    # words

    def _words(self, label: int, memory: Memory, wrong: np.ndarray) -> tuple[str, Said]:
        """Return how values with this label were made, of what, and where, if by PyTorch."""
        if label >= FIRST_SOURCE:
            source = self.sources[label - FIRST_SOURCE]
            under = {self._word(each) for each in source.stands_for if wrong[each]}
            of = f" of what was {' and '.join(sorted(under))}" if under else ""
            return f"computed by {source.what}{of}", computed(source.place)
        return WORDS[next(iter(self.stands_for(label)))], Said("") if label == STALE else computed(memory.place)

    def _word(self, label: int) -> str:
        return WORDS[label] if label < FIRST_SOURCE else f"computed by {self.sources[label - FIRST_SOURCE].what}"

    def _blame(self, label: int, said: Said, wrong: np.ndarray, about: Hashable = None) -> None:
        """Add a finding, unless there is one about the same already.

        It is a doubt where the label stands for one that would not be wrong by the table. A sum over
        unwritten memory is none: a value that matters is found by what depends on it.
        """
        if self._is_unplayed[label]:
            self.tell_unplayed(label)
            return
        is_wrong = self._is_wrong(label, wrong)
        if about in self._blamed or not (is_wrong or self.depth(label)):
            return
        if about:
            self._blamed.add(about)
        (self.evidence if is_wrong else self.doubts)[said] = None

    def accuse(self, *parts: str | Said) -> None:
        self.evidence[joined(parts)] = None

    def doubt(self, *parts: str | Said) -> None:
        self.doubts[joined(parts)] = None


def _is_one_value(values: torch.Tensor) -> bool:
    return not values.numel() or bool(((values == values[0]) | ((values != values) & (values[0] != values[0]))).all())
