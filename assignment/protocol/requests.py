"""What the judge asks of its workers: a class for each kind of request, and which role serves which.

On the wire a request is a JSON object of its fields, and of its kind: the name of its class in lower case. A new kind
is a class, named under the roles that serve it, and a case in each of these.
"""

from dataclasses import dataclass, field, fields
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from .messages import ConstantsSeen, Header, Options, Place, Value

if TYPE_CHECKING:
    from torch import Tensor

    from tests.operators import About  # not there in a worker


class UnknownRequest(Exception):
    """A header that no request of the judge's has."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """A child's first request: to import the submission, or to take its sources where it is not."""

    isolated: bool = False  # leave the package's __init__ alone
    sources: dict[str, str] = field(default_factory=dict)  # by file


@dataclass(frozen=True, kw_only=True)
class OfFunction:
    """What requests about a function of the submission have in common."""

    function: str
    about: "About"
    options: Options

    def __post_init__(self) -> None:
        """Make tuples of lists: JSON has no tuples."""
        tuples = {name: tuple(value) for name, value in self.options.items() if isinstance(value, list)}
        object.__setattr__(self, "options", self.options | tuples)


@dataclass(frozen=True, kw_only=True)
class Called(OfFunction):
    """What requests to call a function have in common; their tensors are its inputs."""

    order: int = 0  # the seed of the order of the programs of a launch
    target: str | dict[str, int | str] = ""  # the GPU that host code hears of: a name, or properties; "": an H100
    multiprocessors: int = 0  # that it hears of; 0: as many as the target has
    configurations: int | list[int] = 0  # of autotuned kernels
    drawn: int | None = None  # or what draws them
    figures: dict[str, dict[str, int]] = field(default_factory=dict)  # of compiled kernels, by key
    # stand-ins, without tensors: dtype, shape and, of structure, the values
    made: list[tuple[str, list[int], list[int] | None]] = field(default_factory=list)
    notes_constants: bool = False
    keeps_launches: bool = False  # what they do, which KeptLaunches then asks for


class Call(Called):
    """To return the results."""


class Inferred(Call):
    """To return the results under torch.no_grad(), of inputs that want gradients."""


class Traced(Called):
    """To tell which operators a differentiable call and its backward pass make, with data and without; no results."""


class Again(Called):
    """To call, and to call again with a second half of tensors written over the first."""


@dataclass(frozen=True, kw_only=True)
class Gradients(Called):
    """To return gradients for the inputs in `wrt`, as many times as asked."""

    wrt: list[int]
    times: int
    has_grad: bool  # the last tensor is the gradient of the result
    interleaved: bool  # with another forward pass before the backward one
    split: list[int] = field(default_factory=list)  # inputs of which half goes to each of two calls in one graph


class Kept(Called):
    """To return the bytes that live on after a differentiable call, and the gradients of its sum."""


class Costs(Called):
    """To return the results, and what the call moves."""


class Largest(Called):
    """To return the results, and the elements of the largest tensor that is made."""


LANES = ("multiplies", "moves")  # of each rank, in a picture of what ranks do: products, and accesses of others' memory
COLUMNS = 64  # equal parts of the run


@dataclass(frozen=True, kw_only=True)
class Ranks(Called):
    """To play calls on several ranks together; tensors: of each call the inputs of each rank.

    The last group of what comes back has two tensors: bytes that links moved, (2, from, to), of distinct elements and
    as often as asked for; and the steps of each rank, (rank, lane, column).
    """

    ranks: int = 1
    calls: int = 1

    def of_rank(self, tensors: "list[Tensor]", rank: int) -> "list[list[Tensor]]":
        """Return the inputs of a rank, by call."""
        size = len(tensors) // (self.ranks * self.calls)
        starts = [(call * self.ranks + rank) * size for call in range(self.calls)]
        return [tensors[start : start + size] for start in starts]


@dataclass(frozen=True, kw_only=True)
class OnRank(Called):
    """To play the calls of one rank on a GPU, beside processes that play the others; tensors: its inputs by call."""

    ranks: int
    calls: int
    rank: int
    meeting: str  # where they meet: a name in the folder that they share


class Forward(Called):
    """To make a differentiable call, and keep its graph."""


class Backward(Called):
    """To return the gradients of the sum of what Forward returned."""


class Sweep(Called):
    """To tell of memory that host code has let go, or to hear of it: no function is called."""


@dataclass(frozen=True)
class KeptLaunches:
    """To return what the launches of the last call did, as simulator/model.py writes it."""


@dataclass(frozen=True, kw_only=True)
class Script(OfFunction):
    """To run a script of the specification, whose `advice` gets the functions in the file of this one."""

    source: str


@dataclass(frozen=True, kw_only=True)
class Compile:
    """To compile the launches of programs, which are its tensors, for GPUs that are not there."""

    programs: dict[str, int]  # by target
    kernels: list[dict[str, Value]] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)  # by file
    constants: dict[str, ConstantsSeen] = field(default_factory=dict)  # by program, as it was played
    processes: int = 1


class OnSlots(OfFunction):
    """What requests have in common that time calls on slots of the judge's memory."""


@dataclass(frozen=True, kw_only=True)
class Hold(OnSlots):
    """To map the slots, and where results are to be copied."""

    memory: list[int | str]  # of another process, and what lies where
    slots: list[list[Place]]
    outputs: list[list[Place]]


@dataclass(frozen=True, kw_only=True)
class TakeTurns(OnSlots):
    """To call the function once for each slot named, and to time that."""

    turns: list[int]


@dataclass(frozen=True, kw_only=True)
class Give(OnSlots):
    """To copy the results of some calls, by their place in the turns."""

    positions: list[int]


class Release(OnSlots):
    """To let go of the judge's memory."""


class Warm(OnSlots):
    """To play a program, so that its one-time allocations are made."""


class Prepare(OnSlots):
    """To play a program, which is the one that is timed from now on."""


class Tune(OnSlots):
    """To play a program, and time its launches that have alternatives."""


# by host code and kernels in one process
Direct: TypeAlias = Call | Inferred | Again | Gradients | Kept | Costs | Largest
Recordable: TypeAlias = Sweep | Call | Inferred | Again | Gradients | Forward | Backward
Playable: TypeAlias = Recordable | Kept | Costs | Largest
Timeable: TypeAlias = Hold | TakeTurns | Give | Release
Timed: TypeAlias = Timeable | Warm | Prepare | Tune
OnGpu: TypeAlias = Playable | Timed
Request: TypeAlias = Load | OnGpu | Ranks | OnRank | Traced | Compile | KeptLaunches | Script
InPlay: TypeAlias = Playable | Ranks | KeptLaunches
InGpu: TypeAlias = OnGpu | OnRank
SERVED = {
    "record": Recordable | Traced, "play": InPlay, "compile": Compile, "gpu": InGpu, "cuda": Direct | Timeable,
    "script": Script,
}  # fmt: skip
_Called = TypeVar("_Called", bound=Called)


def as_a(kind: type[_Called], request: Called) -> _Called:
    """Return the request to make the same call for another purpose."""
    return kind(**{each.name: getattr(request, each.name) for each in fields(Called)})


def written(request: Request) -> Header:
    """Return a request as it is sent."""
    return {"kind": _name(type(request)), **vars(request)}


def read(header: Header, role: str) -> Request:
    """Return the request that was sent to a role; raises UnknownRequest."""
    kind = next((kind for kind in get_args(Load | SERVED[role]) if _name(kind) == header.get("kind")), None)
    if kind is None:
        raise UnknownRequest(f"{role}: unknown kind {header.get('kind')!r}")
    if wrong := [name for name, types in _types(kind).items() if type(header.get(name, ...)) not in types]:
        raise UnknownRequest(f"{role}: {_name(kind)} without {wrong[0]}, or with another type of it")
    return kind(**{name: header[name] for name in _types(kind)})


def _name(kind: type) -> str:
    return kind.__name__.lower()


@cache
def _types(kind: type) -> dict[str, tuple[type, ...]]:
    """Return the types that JSON has for each field."""
    hints = get_type_hints(kind, localns={"About": dict})
    several = {name: get_args(hint) if isinstance(hint, UnionType) else (hint,) for name, hint in hints.items()}
    return {name: tuple(get_origin(one) or one for one in among) for name, among in several.items()}
