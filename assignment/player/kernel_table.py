"""The table of kernels as the recorder sent it: checks its entries, and orders them to be built."""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import Any, get_origin, get_type_hints

from assignment.protocol.messages import Value
from assignment.protocol.program import DescribedKernel, kernels_in

from .source import Refused
from .values import Unknown

_OPTIONS: dict[str, tuple[type, ...]] = {
    "do_not_specialize": (list, type(None)),
    "do_not_specialize_on_alignment": (list, type(None)),
    "debug": (bool, type(None)),
    "noinline": (bool, type(None)),
}
_ENTRY = {name: get_origin(kind) or kind for name, kind in get_type_hints(DescribedKernel).items()}


@dataclass
class KernelTable:
    """Entries by number, none of them trusted."""

    entries: list[Value] = field(default_factory=list)

    def entry(self, number: int) -> DescribedKernel:
        """Return the entry of this number, with every key; raises Refused if it is malformed."""
        if type(number) is not int or not 0 <= number < len(self.entries):
            raise Refused(f"there is no kernel number {str(number)[:20]}\n  at the table of kernels")
        entry = self.entries[number]
        given: Any = (
            {"kind": "jit", "options": {}, "defaults": {}, "names": {}, **entry} if isinstance(entry, dict) else {}
        )
        is_whole = given.keys() == _ENTRY.keys() and all(type(given[key]) is kind for key, kind in _ENTRY.items())
        if not is_whole or not all(isinstance(binding, dict) for binding in given["names"].values()):
            raise Refused(f"kernel number {number} is not described as kernels are\n  at the table of kernels")
        return given

    def reached(self, number: int, built: Container[int]) -> list[int]:
        """Return the numbers of a kernel and of all it refers to that are not built yet.

        Those in default values come first.
        """
        found: dict[int, None] = {}
        todo = [number]
        while todo:
            n = todo.pop()
            if n not in built and n not in found:
                found[n] = None
                entry = self.entry(n)
                todo += kernels_in([*entry["names"].values(), *entry["defaults"].values()])
        return _ordered(found, lambda n: kernels_in([*self.entry(n)["defaults"].values()]))


def options(given: dict[str, Value]) -> dict[str, Value]:
    """Return the checked options of @triton.jit in an entry."""
    for name, value in given.items():
        if not isinstance(value, _OPTIONS.get(name, ())):
            raise Unknown(f"a kernel cannot have the option {name[:50]} of @triton.jit: leave it out")
        if isinstance(value, list) and not all(type(item) in (int, str) for item in value):
            raise Unknown(f"{name} takes names and numbers of parameters")
    return {name: value for name, value in given.items() if value is not None}


def _ordered(numbers: dict[int, None], needs: Callable[[int], Iterable[int]]) -> list[int]:
    """Return the numbers, each after its dependencies as far as possible."""
    ordered: dict[int, None] = {}
    todo = [(n, False) for n in reversed(list(numbers))]
    entered: set[int] = set()
    while todo:
        n, is_done = todo.pop()
        if is_done:
            ordered[n] = None
        elif n not in entered:
            entered.add(n)
            todo += [(n, True), *((m, False) for m in needs(n) if m in numbers)]
    return list(ordered)
