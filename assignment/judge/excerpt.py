"""What a compiler needs of programs: their launches, and the kernels and files of these, numbered anew.

Who asks the same has the same excerpt, whatever else a submission holds and has called before.
"""

from collections.abc import Sequence

from torch import Tensor

from assignment.protocol.messages import Value
from assignment.protocol.program import Program


class _Numbers(dict[int, int]):
    """New numbers by old ones, in the order in which they are asked for; what does not exist has one number."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.order: list[int] = []  # of the old ones
        self._n = n

    def __missing__(self, old: int) -> int:
        if not 0 <= old < self._n:
            return self._n
        self[old] = len(self.order)
        self.order.append(old)
        return self[old]


def of(
    programs: Sequence[Program], kernels: Sequence[dict[str, Value]], sources: dict[str, str]
) -> tuple[list[dict[str, Value]], dict[str, str], list[Tensor]]:
    """Return the kernels and files that the launches of programs need, and the programs; raises RecursionError."""
    numbers = _Numbers(len(kernels))
    parts = [_launches(program, numbers) for program in programs]
    entries: list[dict[str, Value]] = []
    for old in numbers.order:  # which grows: each may refer to more
        entry = kernels[old]
        entries.append({**entry, **{key: _each(entry.get(key), {"kernel": numbers}) for key in ("names", "defaults")}})
    files = {str(entry.get("file")) for entry in entries} | {line.path for part in parts for line in part.lines}
    needed = {path: sources[path] for path in sorted(files & sources.keys())}
    return entries, needed, [part.encoded() for part in parts]


def _launches(program: Program, kernels: _Numbers) -> Program:
    """Return a program of the launches alone, with tables of what these name."""
    views, lines = _Numbers(len(program.views)), _Numbers(len(program.lines))
    numbers = {"t": views, "descriptor": views, "kernel": kernels}
    steps = [
        launch._replace(
            kernel=kernels[launch.kernel],
            arguments=_each(launch.arguments, numbers),
            options=_each(launch.options, numbers),
            configurations=launch.configurations and [_each(one, numbers) for one in launch.configurations],
            line=lines[launch.line],
        )
        for launch in program.launches()
    ]
    named = Program(views=[program.views[old] for old in views.order])
    return Program(views=named.likeness().views, lines=[program.lines[old] for old in lines.order], steps=steps)


def _each(values: Value, numbers: dict[str, _Numbers]) -> dict[str, Value]:
    """Return values by names that may be any, that of a reference among them."""
    return {name: _anew(value, numbers) for name, value in values.items()} if isinstance(values, dict) else {}


def _anew(value: Value, numbers: dict[str, _Numbers]) -> Value:
    """Return a value with what it refers to by number, named by a key of `numbers`, under its new number."""
    if isinstance(value, list):
        return [_anew(item, numbers) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: numbers[name][inner] if name in numbers and type(inner) is int else _anew(inner, numbers)
        for name, inner in value.items()
    }
