"""Labels of memory, compared byte by byte with labels that plain loops write."""

import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch

from assignment.player import labels, misuse, operations
from assignment.player.labels import CONSTANT, FIRST_SOURCE, FOREIGN, FRESH, INPUT, KERNEL, SUM, Memory
from assignment.player.storages import CannotFollow
from assignment.player.work import Work
from assignment.protocol.said import Said

BYTES = 96  # of a storage
IS_FRESH = np.arange(256) == FRESH
LABELS = (CONSTANT, FRESH, INPUT, KERNEL, SUM, FIRST_SOURCE)
POINTWISE = ("add", "masked_fill", "mul", "exp", "lerp", "where", "clamp", "tanh", "logical_and")  # of many
WRITING = [  # overloads that change an argument, by name
    func.name()
    for base in sorted({form + end for form in [*operations.PLAYED, *POINTWISE] for end in ("", "_")})
    if (packet := getattr(torch.ops.aten, base, None)) is not None
    for overload in packet.overloads()
    if (func := operations.find(f"aten::{base}.{overload}".removesuffix(".default"))) is not None
    and func._schema.is_mutable
]
ABOUT: Any = {"in_triton": True, "is_backward": True, "sums_rows": False}


def a_view(rng: random.Random, held: torch.Tensor) -> torch.Tensor:
    """Return elements of a storage in a random layout: repeated, overlapping, with gaps, or none of this."""
    last = held.numel() - 1
    while True:
        sizes = [rng.choice([1, 2, 3, 4]) for _ in range(rng.choice([1, 2, 3]))]
        strides = [rng.choice([0, 1, 1, 2, 2, 3, 4, 5]) for _ in sizes]
        reached = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        if reached <= last:
            return held.as_strided(sizes, strides, rng.randint(0, last - reached))


def written(by_byte: list[int], view: torch.Tensor, given: torch.Tensor | int) -> list[int]:
    """Return the labels by byte after a write: plain loops over elements and their bytes."""
    per_element = torch.as_tensor(given).expand(view.shape)
    found: dict[int, set[int]] = {}
    for index in itertools.product(*map(range, view.shape)):
        at = view.storage_offset() + sum(i * stride for i, stride in zip(index, view.stride(), strict=True))
        for byte in range(at * view.itemsize, (at + 1) * view.itemsize):
            found.setdefault(byte, set()).add(int(per_element[index]))
    return [
        by_byte[i] if i not in found else found[i].pop() if len(found[i]) == 1 else FOREIGN for i in range(len(by_byte))
    ]


def held_by(memory: Memory, storage: torch.UntypedStorage) -> list[int]:
    """Return the label of each byte of a storage."""
    return memory.of(torch.empty(0, dtype=torch.uint8).set_(storage)).tolist()


@pytest.mark.parametrize("seed", range(300))
def test_labels_are_written_where_values_are(seed):
    rng = random.Random(seed)
    held = torch.zeros(BYTES, dtype=torch.uint8)
    memory, by_byte = Memory(held, CONSTANT, IS_FRESH), [CONSTANT] * BYTES
    for _ in range(4):
        view = a_view(rng, held.view(rng.choice([torch.uint8, torch.int16, torch.float32, torch.float64])))
        each = torch.tensor([rng.choice(LABELS) for _ in range(view.numel())], dtype=torch.uint8).view(view.shape)
        given = each if rng.random() < 0.5 else rng.choice(LABELS)
        memory.write(view, given)
        by_byte = written(by_byte, view, given)
        assert held_by(memory, held.untyped_storage()) == by_byte


def test_elements_between_are_not_written():
    """More elements than memory, each on an even place."""
    held = torch.zeros(200)
    memory = Memory(held, KERNEL, IS_FRESH)
    memory.write(held.as_strided((64, 36), (2, 2)), CONSTANT)
    assert memory.of(held)[:197].tolist() == [CONSTANT, KERNEL] * 98 + [CONSTANT]


def test_as_many_elements_as_memory_are_not_all_of_it():
    held = torch.zeros(8)
    memory = Memory(held, KERNEL, IS_FRESH)
    memory.write(held.as_strided((2, 2, 2), (3, 2, 2)), CONSTANT)
    assert memory.of(held)[[1, 6]].tolist() == [KERNEL, KERNEL]


def argument(kind: str, like: torch.Tensor) -> Any:
    """Return something that an operation may take as an argument of this type."""
    numbers = {"number": 0.5, "float": 0.5, "int": 0, "bool": False, "List[int]": [0], "str": "sum"}
    if kind == "Tensor":
        return torch.rand(like.shape)
    return [torch.rand(like.shape)] if kind == "List[Tensor]" else numbers.get(kind)


def arguments_of(func: Any, target: torch.Tensor) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments for a call that writes to the target."""
    named: dict[str, Any] = {
        each.name: target
        if each.alias_info is not None and each.alias_info.is_write
        else argument(str(each.type), target)
        for each in func._schema.arguments
        if not each.kwarg_only or (each.alias_info is not None and each.alias_info.is_write)
    }
    chosen = {
        "index": torch.zeros(target.shape, dtype=torch.int64),
        "indices": [torch.zeros(1, dtype=torch.int64)],
        "mask": torch.rand(target.shape) < 0.5,
        "condition": torch.rand(target.shape) < 0.5,
    }
    named |= {name: value for name, value in chosen.items() if name in named and named[name] is not target}
    args = [named[each.name] for each in func._schema.arguments if not each.kwarg_only]
    return args, {each.name: named[each.name] for each in func._schema.arguments if each.kwarg_only and each.is_out}


def tried(name: str, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Call an operation on a view, compare values and labels; return whether the player and PyTorch took it."""
    func, work, held = operations.find(name), Work(), torch.full((256,), 7.25)  # room for what goes astray
    assert func is not None
    work.begin(ABOUT, True, [])
    work.made(held, KERNEL)
    view = a_view(rng, torch.empty(24))
    target = held.as_strided(view.shape, view.stride(), 100 + view.storage_offset())
    args, kwargs = arguments_of(func, target)
    if misuse.out_of_range(func, args, kwargs) or misuse.overlapping(func, args, kwargs):
        return False
    for tensor in (x for x in args if isinstance(x, torch.Tensor) and x is not target):
        work.made(tensor, rng.choice([CONSTANT, INPUT, KERNEL]))
    try:
        operations.call(func, args, kwargs)
    except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError, CannotFollow):
        return False
    if held.numel() != 256:
        return False
    is_changed = (held != 7.25).numpy().repeat(4)  # of each byte
    given: list[tuple[torch.Tensor, Any]] = []
    really = Memory.write

    def noted(memory: Memory, at: torch.Tensor, what: Any) -> None:
        given.append((at, what))
        really(memory, at, what)

    monkeypatch.setattr(Memory, "write", noted)
    work.operation(func, args, kwargs, misuse.written_by(func, args, kwargs), Said("a line"))
    monkeypatch.undo()
    by_byte, is_written = [KERNEL] * held.nbytes, [KERNEL] * held.nbytes
    for at, what in given:
        by_byte, is_written = written(by_byte, at, what), written(is_written, at, INPUT)
    memory = work.memory(held)
    assert memory is not None
    assert held_by(memory, held.untyped_storage()) == by_byte, (name, target.shape, target.stride())
    assert not (is_changed & (np.array(is_written) == KERNEL)).any(), (name, target.shape, target.stride())
    return bool(given)


@pytest.mark.filterwarnings("ignore")  # of what PyTorch says of arguments that nobody would pass
def test_each_operation_that_writes_labels_what_it_writes(monkeypatch):
    rng = random.Random(1)
    counts = {name: sum(tried(name, rng, monkeypatch) for _ in range(15)) for name in WRITING}
    known = {"aten::fill_.Scalar", "aten::zero_", "aten::copy_", "aten::add_.Tensor", "aten::masked_fill_.Scalar"}
    assert known <= {name for name, count in counts.items() if count}
    assert sum(count > 2 for count in counts.values()) > 0.4 * len(WRITING)


def test_of_several_labels_the_worst_is_that_of_two_by_two():
    for pair in itertools.product(range(FIRST_SOURCE + 4), repeat=2):
        one, other = np.array(pair, np.uint8)
        found = labels.worst(torch.tensor(pair, dtype=torch.uint8))
        assert labels._RANK[found] == labels._RANK[labels._worse(one, other)]
    assert labels.worst(torch.tensor([INPUT, KERNEL])) == INPUT
    assert labels.worst(torch.tensor([CONSTANT, KERNEL])) == KERNEL
    assert labels.worst(torch.tensor([], dtype=torch.uint8)) == CONSTANT
