"""A recorded program as types: what host code did, in numbered steps over tables.

The recorder writes it, the judge checks it when it arrives, the player repeats it. On the wire it is
one JSON object, each step a list that begins with its kind. A field's annotation says what may stand
in it; whether the steps make sense the player finds out by playing them. Dataclasses and these checks
stand in place of a library: what reads hostile bytes is loaded by every process, on machines too that
install nothing.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, NamedTuple, TypeAlias, TypedDict, TypeGuard, get_type_hints

import torch
from torch import Tensor

from .messages import Value
from .wire import DTYPES, MAX_DIMENSIONS, MAX_NUMBER, ProtocolError, is_natural, parse

MAX_VALUES = 2_000_000  # numbers, texts and lists: a hundred bytes each, once they are read
MAX_TEXT = 300  # characters of a name or a line
MAX_CONFIGURATIONS = 1_000  # of an autotuned kernel
MAX_KEY = 64  # characters: those of a hash
MAX_STORAGE = 1 << 40  # bytes
MAX_DEPTH = 12  # of nested arguments
VIEWS = ("t", "descriptor")  # what names a view in an argument
MAX_STRING = 2_000  # characters in an argument
MOST = {"views": 2_000_000, "storages": 2_000_000, "kernels": 1_000, "steps": 500_000}  # entries of a table
OPERATION = re.compile(r"[A-Za-z_][\w]*::[A-Za-z_][\w]*\.\w*")


class DescribedKernel(TypedDict):
    """How the recorder describes a kernel: where it stands, and what the names in it are bound to."""

    file: str
    line: int
    name: str
    sha256: str
    kind: str
    options: dict[str, "Value"]
    defaults: dict[str, "Value"]
    names: dict[str, dict[str, "Value"]]


# Of arguments, views are {"t": number} or {"descriptor": number, …}; the player's arguments.py and values.py list all.
Check: TypeAlias = "Callable[[Program, Value], bool]"


class Unreadable(Exception):
    """The bytes are no program: nothing that the recorder's own code would have written."""


def is_text(value: Value, n_characters: int = MAX_TEXT) -> TypeGuard[str]:
    return isinstance(value, str) and len(value) <= n_characters


def _is_index_of(table: str) -> "Check":
    return lambda program, value: type(value) is int and 0 <= value < len(getattr(program, table))


def _is_list_of(check: "Check") -> "Check":
    return lambda program, value: isinstance(value, list) and all(check(program, item) for item in value)


def _is_value(program: "Program", value: Value, depth: int = 0) -> bool:
    """Return whether this is an argument: numbers and short texts, views by number, nested a few levels."""
    if depth > MAX_DEPTH:
        return False
    if isinstance(value, dict):
        for name, inner in value.items():
            if len(name) > MAX_TEXT or (name in VIEWS and not _IS_VIEW(program, inner)):
                return False
        value = list(value.values())
    if isinstance(value, list):
        return all(_is_value(program, item, depth + 1) for item in value)
    return not isinstance(value, str) or len(value) <= MAX_STRING


def _is_mapping(program: "Program", value: Value) -> bool:
    """Return whether these are arguments by name: a parameter may have any, that of a tag among them."""
    return isinstance(value, dict) and all(
        len(name) <= MAX_TEXT and _is_value(program, inner, depth=1) for name, inner in value.items()
    )


def _is_form(value: Value) -> bool:
    """Return whether this is a tensor's dtype, sizes and strides."""
    match value:
        case [str(dtype), list(sizes), list(strides)] if dtype in DTYPES and len(sizes) == len(strides):
            return all(map(is_natural, [*sizes, *strides]))
    return False


def _are_configurations(program: "Program", value: Value) -> bool:
    if not isinstance(value, list) or len(value) > MAX_CONFIGURATIONS:
        return False
    return all(_is_mapping(program, configuration) for configuration in value)


_IS_VIEW = _is_index_of("views")
Number: TypeAlias = Annotated[int, lambda _, value: is_natural(value)]
ViewNumbers: TypeAlias = Annotated[list[int], _is_list_of(_IS_VIEW)]
Line: TypeAlias = Annotated[int, _is_index_of("lines")]
Name: TypeAlias = Annotated[str, lambda _, value: is_text(value)]
Flag: TypeAlias = Annotated[bool, lambda _, value: isinstance(value, bool)]
Grid: TypeAlias = Annotated[
    list[int], lambda _, value: isinstance(value, list) and len(value) == 3 and all(map(is_natural, value))
]
Arguments: TypeAlias = Annotated[dict[str, Value], _is_mapping]


class View(NamedTuple):
    """A tensor as a view of a storage: the storage's number, dtype, offset, sizes, strides (in elements)."""

    storage: int
    dtype: str
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Tensor, storage: int = -1) -> "View":
        """Return the view that a tensor is, of a storage of this number."""
        dtype = str(tensor.dtype).removeprefix("torch.")
        return cls(storage, dtype, int(tensor.storage_offset()), tuple(tensor.shape), tuple(tensor.stride()))


class HostLine(NamedTuple):
    """A line of host code; without a file where it is PyTorch's own."""

    path: str = ""  # "cs336_kernels/rmsnorm.py"
    number: int = 0
    function: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.number} in {self.function}" if self.path else ""


class Operation(NamedTuple):
    """A call of an operation of PyTorch, and the views that it returned."""

    operation: Annotated[int, _is_index_of("operations")]
    args: Annotated[list[Value], lambda program, value: isinstance(value, list) and _is_value(program, value)]
    kwargs: Arguments
    made: ViewNumbers
    line: Line


class Launch(NamedTuple):
    """A launch of a kernel: its arguments by parameter, and its options."""

    kernel: Number
    grid: Grid
    arguments: Arguments
    options: Arguments
    # of an autotuned kernel: those left after pruning; None of another
    configurations: Annotated[
        list[dict[str, Value]] | None, lambda program, value: value is None or _are_configurations(program, value)
    ]
    has_allocator: Flag  # whether triton.set_allocator was called
    line: Line

    @property
    def is_tuned(self) -> bool:
        """Whether there was a choice."""
        return len(self.configurations or ()) > 1


def given(configuration: Arguments, names: Iterable[str]) -> str:
    """Return what a configuration gives to a kernel with parameters of these names, without options of the launch."""
    return str(sorted((name, repr(configuration[name])) for name in names if name in configuration))


def drawn(number: int, given: Sequence[str]) -> int:
    """Return the number of one of the configurations of a kernel, of which each gives it these values, as text.

    By turns it is one of all, and one of those that give it other values: many alike hide none.
    """
    among = [n for n, values in enumerate(given) if number % 2 == 0 or given.index(values) == n]
    return among[number // 2 % len(among)]


class WarmUp(NamedTuple):
    """A question of host code: what a kernel takes of a GPU once it is compiled."""

    kernel: Number
    grid: Grid
    arguments: Arguments
    options: Arguments
    key: Annotated[str, lambda _, value: is_text(value, MAX_KEY)]  # by which the answer is found
    line: Line

    @property
    def launch(self) -> Launch:
        """The launch that the question is about."""
        return Launch(self.kernel, self.grid, self.arguments, self.options, None, False, self.line)


class Constant(NamedTuple):
    """Memory that no operation was seen to make, with its content in base64."""

    storage: Number
    content: Annotated[str, lambda _, value: isinstance(value, str)]
    line: Line


class Foreign(NamedTuple):
    """Memory that no operation was seen to make, too large to be sent or changed since."""

    storage: Number
    line: Line


class Read(NamedTuple):
    """A value that host code read, by this operation, of these tensors."""

    operation: Name
    views: ViewNumbers
    line: Line


class Inputs(NamedTuple):
    """The beginning of a call, with these tensors."""

    views: ViewNumbers


class Free(NamedTuple):
    """Storages that nothing refers to any more."""

    storages: Annotated[list[int], _is_list_of(lambda _, value: is_natural(value))]


class OperatorCall(NamedTuple):
    """A call of an operator that host code has defined, noted where it is traced."""

    schema: Annotated[str, lambda _, value: is_text(value, MAX_STRING)]
    returned: Annotated[list[list[Value]], lambda _, value: isinstance(value, list) and all(map(_is_form, value))]
    line: Line


class Repeat(NamedTuple):
    """The point at which the judge's handler calls the function a second time."""


Step = Operation | OperatorCall | Launch | WarmUp | Constant | Foreign | Read | Inputs | Free | Repeat
KINDS: dict[str, type] = {
    "op": Operation,
    "operator": OperatorCall,
    "launch": Launch,
    "warmup": WarmUp,
    "constant": Constant,
    "foreign": Foreign,
    "read": Read,
    "inputs": Inputs,
    "free": Free,
    "again": Repeat,
}
_NAMES = {kind: name for name, kind in KINDS.items()}


def _checks(kind: type) -> list[tuple[str, Check]]:
    """Return the name and the check of each field of a step."""
    return [(name, hint.__metadata__[0]) for name, hint in get_type_hints(kind, include_extras=True).items()]


_CHECKS = {kind: _checks(kind) for kind in KINDS.values()}


@dataclass
class Program:
    """Tables, and the steps that refer to them by number."""

    views: Sequence[View] = ()
    storages: dict[int, int] = field(default_factory=dict)  # bytes, by number
    operations: Sequence[str] = ()  # "aten::add.Tensor"
    lines: Sequence[HostLine] = ()
    kernels: Sequence[dict[str, Value]] = ()  # described since the program before
    steps: Sequence[Step] = ()
    results: Sequence[Sequence[int]] = ()  # groups of views
    bare: bool = False  # whether a single result was no tuple

    def encoded(self) -> Tensor:
        """Return the program as bytes, as it is sent."""
        tables = {each.name: getattr(self, each.name) for each in fields(self)}
        tables["storages"] = list(self.storages.items())
        tables["steps"] = [(_NAMES[type(step)], *step) for step in self.steps]
        text = json.dumps(tables, separators=(",", ":")).encode()
        return torch.frombuffer(bytearray(text), dtype=torch.uint8)

    def part(self, launches: Sequence[Launch]) -> "Program":
        """Return a program of these launches alone."""
        return Program(views=self.views, lines=self.lines, steps=launches)

    def launches(self) -> list[Launch]:
        return [step for step in self.steps if isinstance(step, Launch)]

    def questions(self) -> list[WarmUp]:
        return [step for step in self.steps if isinstance(step, WarmUp)]

    def only_frees(self) -> bool:
        """Return whether nothing but memory that is gone is told."""
        return all(isinstance(step, Free) for step in self.steps)

    def gone(self) -> set[int]:
        """Return the numbers of the storages that are gone."""
        return {number for step in self.steps if isinstance(step, Free) for number in step.storages}

    def in_place_of(self, unplayed: "Sequence[Program]") -> "Program":
        """Return what is told in place of this program and those before it: new kernels, and memory that is gone."""
        those = [*unplayed, self]
        gone = set[int]().union(*(one.gone() for one in those))
        return Program(kernels=[kernel for one in those for kernel in one.kernels], steps=[Free(sorted(gone))])

    def used(self) -> set[int]:
        """Return the numbers of all storages that are used."""
        return {view.storage for view in self.views}

    def likeness(self) -> "Program":
        """Return a program that is the same for all that do the same, whatever numbers their storages have."""
        numbers: dict[int, int] = {}
        views = [view._replace(storage=numbers.setdefault(view.storage, len(numbers))) for view in self.views]
        sizes = {number: self.storages.get(old, 0) for old, number in numbers.items()}
        steps = [step for step in self.steps if not isinstance(step, Free)]
        return replace(self, views=views, storages=sizes, kernels=(), steps=steps)

    def result_storages(self) -> set[int]:
        """Return the numbers of the storages that results lie in."""
        return {self.views[number].storage for group in self.results for number in group}


def read(data: Tensor) -> Program:
    """Return the program in these bytes, checked; raises Unreadable."""
    try:
        return _program(parse(bytearray(data.numpy())))
    except Unreadable:
        raise
    except (ProtocolError, ValueError, TypeError, KeyError, IndexError, RecursionError, UnicodeDecodeError) as error:
        raise Unreadable("a malformed program") from error


def _program(tables: dict[str, Any]) -> Program:
    if tables.keys() != {each.name for each in fields(Program)} or not isinstance(tables["bare"], bool):
        raise Unreadable("malformed program: a table is missing, or one too many")
    for name, at_most in MOST.items():
        if not isinstance(tables[name], list) or len(tables[name]) > at_most:
            raise Unreadable(f"the call has more than {at_most:,} {name}: use larger tiles, or fewer operations")
    _expect("operations", tables["operations"], lambda name: is_text(name) and bool(OPERATION.fullmatch(name)))
    _expect("lines", tables["lines"], _is_line)
    _expect("kernels", tables["kernels"], lambda entry: isinstance(entry, dict))
    _expect("storages", tables["storages"], _is_storage)
    program = Program(**{**tables, "steps": (), "storages": dict(map(tuple, tables["storages"]))})
    program.lines = [HostLine(*line) for line in tables["lines"]]
    program.views = [_view(number, view) for number, view in enumerate(tables["views"])]
    _expect("results", tables["results"], lambda group: _is_list_of(_IS_VIEW)(program, group))
    program.steps = [_step(program, number, step) for number, step in enumerate(tables["steps"])]
    return program


def _expect(table: str, entries: Value, check: Callable[[Value], bool]) -> None:
    if not isinstance(entries, list):
        raise Unreadable(f"malformed program: expected a list of {table}")
    for number, entry in enumerate(entries):
        if not check(entry):
            raise Unreadable(f"malformed program: entry {number} of its {table}: {_shown(entry)}")


def _is_storage(pair: Value) -> bool:
    if not isinstance(pair, list) or len(pair) != 2:
        return False
    return is_natural(pair[0]) and is_natural(pair[1]) and pair[1] <= MAX_STORAGE


def _is_line(line: Value) -> bool:
    return isinstance(line, list) and list(map(type, line)) == [str, int, str] and all(map(is_text, line[::2]))


def _view(number: int, view: Any) -> View:
    if not isinstance(view, list) or len(view) != 5:
        raise Unreadable(f"malformed program: view {number}: {_shown(view)}")
    storage, dtype, offset, sizes, strides = view
    is_shape = isinstance(sizes, list) and isinstance(strides, list) and len(sizes) == len(strides) <= MAX_DIMENSIONS
    is_readable = is_shape and dtype in DTYPES and all(map(is_natural, [storage, offset, *sizes, *strides]))
    if not is_readable or math.prod(n or 1 for n in sizes) > MAX_NUMBER:
        raise Unreadable("a tensor that kernels cannot be given: expected floats, integers or bools, of up to 64 bits")
    return View(storage, dtype, offset, tuple(sizes), tuple(strides))


def _step(program: Program, number: int, step: Value) -> Step:
    name, *values = step if isinstance(step, list) and step else [None]
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise Unreadable(f"malformed program: step {number}: unknown kind {_shown(name)}")
    checks = _CHECKS[kind]
    if len(values) != len(checks):
        raise Unreadable(f"malformed program: step {number}: {name} has {len(checks)} fields, got {len(values)}")
    for (field_name, check), value in zip(checks, values, strict=True):
        if not check(program, value):
            raise Unreadable(f"malformed program: step {number}: {field_name} of {name}: {_shown(value)}")
    return kind(*values)


def _shown(value: Value) -> str:
    """Return the beginning of a value that a submission may have written, on one line."""
    return repr(value)[:40] if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"


def views_in(value: Value) -> Iterator[int]:
    """Yield the numbers of all views in nested arguments."""
    if isinstance(value, dict):
        yield from (number for name in VIEWS if isinstance(number := value.get(name), int))
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from views_in(item)


def kernels_in(value: Value) -> Iterator[int]:
    """Yield the numbers of the jit functions that a binding or value refers to."""
    todo = [value]
    while todo:
        match todo.pop():
            case {"kernel": int(number)}:
                yield number
            case dict() as members:
                todo += members.values()
            case list() as items:
                todo += items
