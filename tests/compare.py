"""One comparison rule, and the explanation of a mismatch.

A result is right when its shape, dtype and finiteness are exact and, with every error measured against float64,

    |error| ≤ 2 · c · M  +  4 ε_out · (the row's largest value)  +  ε_float32 · M

M is the magnitude of the terms summed for the element (Σ|term|; the row's largest), and c is the error per M of an
honest kernel: for each rounding that it may choose (models.py in the operator's folder lists them) the largest error
per M that this rounding alone makes anywhere in this very tensor, all added up, or made at once where that is more.
Fewer models give a bound that is no larger: a result within that is right, and only for others are more of them
computed. Nothing in the bound is tuned by hand. A row is the last dimension of a matrix; of a vector (y, rstd, lse,
grad_weight) each element is a row of its own.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial

import torch
from torch import Tensor

MAP_LINES, MAP_COLUMNS = 8, 64
PARTS = 64, 64  # of a map at most, where rows and columns that are alike are one
LARGEST_OVER = 1e9  # of a map: JSON has no infinity
FLOAT32_EPS = torch.finfo(torch.float32).eps


class Mismatch(AssertionError):
    """A result that differs from the oracle; the message is written for the student.

    margin is the largest error over its bound; infinite where the form is wrong or a value is not finite. got and
    expected are all outputs, if they have the right form; wrong counts what is wrong of the first that is, map tells
    where.
    """

    def __init__(
        self,
        message: str,
        margin: float = math.inf,
        got: Sequence[Tensor] = (),
        expected: dict[str, "Expected"] | None = None,
        drawn: "Map | None" = None,
        wrong: "Wrong | None" = None,
    ) -> None:
        super().__init__("\n".join([message, *(drawn.lines if drawn else ())]))
        self.says = message  # without the map
        self.margin, self.got, self.expected, self.map, self.wrong = margin, got, expected or {}, drawn, wrong


class TooMuchMoved(Mismatch):
    """A call that is right, but moves more bytes than it has to."""


@dataclass(frozen=True)
class Wrong:
    """How much of a result is wrong."""

    name: str
    wrong: int
    nan: int
    elements: int


Model = Tensor | Callable[[], Tensor]  # a result of an honest model, or what computes it


@dataclass(frozen=True)
class Expected:
    """One output of a function: its float64 value, and what tells the largest error allowed to each element.

    The bounds are in the order in which they are computed, from few models on; the last, of all, is the largest.
    """

    value: Tensor
    dtype: torch.dtype
    rows: bool  # whether the last dimension forms rows: not for y, rstd, lse and grad_weight
    bounds: Sequence[Callable[[], Tensor]]

    @classmethod
    def within(cls, value: Tensor, allowed: Tensor, dtype: torch.dtype, rows: bool) -> "Expected":
        """Return an output with an error that is known."""
        return cls(value, dtype, rows, [lambda: allowed])

    def twice(self, part: slice, value: Tensor) -> "Expected":
        """Return a part with twice its bounds, of another value."""
        bounds = [lambda bound=bound: 2 * bound()[part] for bound in self.bounds]
        return Expected(value, self.dtype, self.rows, bounds)

    def of_rows(self, which: Tensor) -> "Expected":
        """Return what is expected of some rows."""
        bounds = [lambda bound=bound: bound()[which] for bound in self.bounds]
        return Expected(self.value[which], self.dtype, self.rows, bounds)

    @cached_property
    def allowed(self) -> Tensor:
        """The largest error allowed to each element."""
        return self.bounds[-1]()


def expect(
    value: Tensor,
    roundings: Sequence[Sequence[Model]],
    together: Sequence[Model],
    magnitude: Tensor,
    dtype: torch.dtype,
    rows: bool,
) -> Expected:
    """Return the value with the bound of the module docstring.

    Args:
        value: the result in float64.
        roundings: for each rounding that a kernel may make, the results of computing with it and no other (several
            where it can be done in several ways); first those of plain float32. The last one, the cast to the output's
            dtype, is added here.
        together: the results of computing with several of the roundings at once, should they do more than add up;
            float32 in another order comes on top.
        magnitude: Σ|term| of each element, in float32 or wider.
        dtype: of the output.
        rows: whether the last dimension forms rows that share one bound.
    """
    row_magnitude = _largest(magnitude, rows)

    @cache
    def worst(*models: Model) -> float:
        results = (model if isinstance(model, Tensor) else model() for model in models)
        return max((_error_per_magnitude(result, value, row_magnitude, rows) for result in results), default=0.0)

    finfo = torch.finfo(dtype)
    rounding = 4 * finfo.eps * _largest(value.abs(), rows) + 4 * finfo.smallest_normal * finfo.eps
    cast = worst(value.to(dtype))

    def bound(per_magnitude: float) -> Tensor:
        allowed = (2 * (per_magnitude + cast) + FLOAT32_EPS) * row_magnitude + rounding
        if not allowed.isfinite().all():
            raise ValueError("these inputs overflow in an honest model: nothing could fail")
        return allowed

    def of_first_ways(n_roundings: int) -> Tensor:
        return bound(sum(worst(*models[:1]) for models in roundings[:n_roundings]))

    def of_all_models() -> Tensor:
        one_by_one = [max(worst(*models[:1]), worst(*models[1:])) for models in roundings]
        return bound(max(sum(one_by_one), worst(*together) + one_by_one[0] - cast))

    least = bound(0.0)
    at_once = [lambda: bound(max(0.0, worst(*together) - cast))] if together else []
    one_more = [partial(of_first_ways, n) for n in range(1, len(roundings) + 1)]
    return Expected(value, dtype, rows, [lambda: least, *at_once, *one_more, of_all_models])


def _error_per_magnitude(model: Tensor, value: Tensor, row_magnitude: Tensor, rows: bool) -> float:
    error = _largest((model.double() - value).abs(), rows)
    return torch.where(row_magnitude > 0, error / row_magnitude, 0.0).max().item() if value.numel() else 0.0


def _largest(x: Tensor, rows: bool) -> Tensor:
    return x.amax(-1, keepdim=True) if rows and x.numel() else x


def worst_margin(got: Tensor | tuple[Tensor, ...], expected: dict[str, Expected], is_exact: bool = False) -> float:
    """Return the largest error over bound of all outputs, at most 1; raises Mismatch with the reason beyond that.

    is_exact: whether all models are computed for a right result, too; otherwise its margin may come out larger.
    """
    outputs = in_form(got, expected)
    margins = [_margin(*pair, is_exact) for pair in zip(outputs, expected.values(), strict=True)]
    for (name, want), output, margin in zip(expected.items(), outputs, margins, strict=True):
        if margin > 1:
            over = _over(output, want, want.allowed)
            drawn = where_wrong(name, output, over, want.rows)
            others = [_said(*other) for other in zip(expected, outputs, margins, strict=True) if other[0] != name]
            message = _explain(name, output, want, others)
            counts = int((over > 1).sum()), int(output.isnan().sum()), output.numel()
            raise Mismatch(message, max(margins), outputs, expected, drawn, Wrong(name, *counts))
    return max(margins)


def _said(name: str, got: Tensor, margin: float) -> str:
    return f"{name} is right" if margin <= 1 else f"{name} has NaN" if got.isnan().any() else f"{name} is wrong"


def in_form(got: Tensor | tuple[Tensor, ...], expected: dict[str, Expected]) -> tuple[Tensor, ...]:
    """Return the outputs, as many as expected, each of the right shape and dtype; raises Mismatch."""
    outputs = got if isinstance(got, tuple) else (got,)
    if len(expected) == 1 and isinstance(got, tuple):
        raise Mismatch(f"expected one tensor, {next(iter(expected))}; got a tuple of {_count(len(got))}")
    if len(outputs) != len(expected):
        raise Mismatch(f"expected {_count(len(expected))} ({', '.join(expected)}), got {_count(len(outputs))}")
    for (name, want), output in zip(expected.items(), outputs, strict=True):
        _check_form(name, output, want)
    return outputs


def _count(n: int) -> str:
    return "1 tensor" if n == 1 else f"{n} tensors"


def _check_form(name: str, got: Tensor, want: Expected) -> None:
    if got.shape != want.value.shape:
        raise Mismatch(f"{name} has shape {tuple(got.shape)}, expected {tuple(want.value.shape)}")
    if got.dtype != want.dtype:
        raise Mismatch(f"{name} is {_name(got.dtype)}, expected {_name(want.dtype)}")


def _margin(got: Tensor, want: Expected, is_exact: bool) -> float:
    """Return the largest error over its bound, that of the fewest models that do; infinite for what is not finite."""
    margin = 0.0
    for bound in want.bounds[-1:] if is_exact else want.bounds:
        over = _over(got, want, bound())
        if (margin := over.max().item() if over.numel() else 0.0) <= 1:
            break
    return margin


def _over(got: Tensor, want: Expected, allowed: Tensor) -> Tensor:
    error = (got.double() - want.value).abs()
    return torch.where(error == 0, 0.0, error / allowed).nan_to_num(nan=math.inf, posinf=math.inf)


def _explain(name: str, got: Tensor, want: Expected, others: list[str]) -> str:
    over = _over(got, want, want.allowed)
    got = got.double()  # of 8-bit floats PyTorch knows little else
    wrong = over > 1
    first = tuple(wrong.nonzero()[0].tolist())
    allowed = want.allowed.expand_as(want.value)
    index = f"[{', '.join(map(str, first))}]" if first else ""
    lines = [
        f"{name}: {wrong.sum()} of {wrong.numel()} elements wrong{_region(wrong, want.rows)}",
        f"  first one: {name}{index} = {in_digits(got[first].item(), want.value[first].item())} "
        f"± {allowed[first].item():.2g}",
    ]
    lines += [f"  the others: {', '.join(others)}"] if others else []
    lines += _about_non_finite(got, want.rows) if not got.isfinite().all() else [_farthest_off(name, got, want, over)]
    return "\n".join(lines)


def in_digits(got: float, want: float) -> str:
    """Both, with as many digits as tell them apart."""
    digits = next((digits for digits in (7, 10, 14) if f"{got:.{digits}g}" != f"{want:.{digits}g}"), 7)
    return f"{got:.{digits}g}, expected {want:.{digits}g}"


@dataclass(frozen=True)
class Map:
    """Where one matrix of a result is wrong, a sign for each tile; a vector is a row."""

    name: str  # "o[1, 0]"
    shape: tuple[int, int]
    tile: tuple[int, int]
    cells: tuple[str, ...]  # . right, + partly wrong, # wrong, N NaN
    heights: tuple[int, ...]  # rows that are alike, as a picture shows them
    widths: tuple[int, ...]  # columns
    signs: tuple[str, ...]  # of these parts
    over: tuple[tuple[float, ...], ...]  # the largest error in each part, in its bounds; at most LARGEST_OVER

    @property
    def lines(self) -> list[str]:
        (n_rows, _), (height, width) = self.shape, self.tile
        of = f"{height} × {width}" if n_rows > 1 else f"{width}"
        return [
            f"  {self.name}, a sign for every {of} elements: . right, + partly wrong, # wrong, N NaN",
            *(f"    {line}" for line in self.cells),
        ]


def where_wrong(name: str, got: Tensor, over: Tensor, rows: bool) -> Map | None:
    """Return the map of the first batch with an error; None where all of it is alike.

    over: the errors in their bounds.
    """
    if over.ndim == 0:
        return None
    inner = min(2 if rows else 1, over.ndim)
    batch = tuple((over > 1).nonzero()[0].tolist())[: over.ndim - inner]
    over, nan = (x[batch].reshape(-1 if inner == 2 else 1, x.shape[-1]) for x in (over, got.isnan()))
    wrong = over > 1
    tile = [_tile(n, most) for n, most in zip(wrong.shape, (MAP_LINES, MAP_COLUMNS), strict=True)]
    cells = _signs(wrong, nan, *(_equal(n, size) for n, size in zip(wrong.shape, tile, strict=True)))
    if len(signs := set("".join(cells))) == 1 or signs == {"+", "#"}:
        return None
    where = f"{name}[{', '.join(map(str, batch))}]" if batch else name
    heights, widths = _alike(wrong, nan, over)
    largest = tuple(
        tuple(round(min(part.max().item(), LARGEST_OVER), 3) for part in rows.split(widths, dim=1))
        for rows in over.split(heights)
    )
    shape, parts = (wrong.shape[0], wrong.shape[1]), _signs(wrong, nan, heights, widths)
    return Map(where, shape, (tile[0], tile[1]), cells, tuple(heights), tuple(widths), parts, largest)


def _alike(wrong: Tensor, nan: Tensor, over: Tensor) -> tuple[list[int], list[int]]:
    """Return how many rows, and how many columns, are wrong alike, one group after the other, for all of a matrix.

    Where that makes more than PARTS, elements are first joined to tiles, as small as will do.
    """
    size = [1, 1]
    while True:
        whole, any_wrong, any_nan = (_pooled(x.double(), size) for x in (~wrong, wrong, nan))
        level = sum((_pooled(over, size) > reach).int() for reach in (10.0, 1000.0))
        kinds = torch.stack([whole, any_wrong, any_nan])
        groups = []
        for axis, n in enumerate(wrong.shape):
            lines = torch.cat([kinds.movedim(axis + 1, 0).flatten(1), level.amax(1 - axis)[:, None]], dim=1)
            changes = (lines[1:] != lines[:-1]).any(1).nonzero().flatten() + 1
            ends = [0, *(changes * size[axis]).tolist(), n]
            groups.append([b - a for a, b in itertools.pairwise(ends)])
        too_many = [len(group) > most for group, most in zip(groups, PARTS, strict=True)]
        if not any(too_many):
            return groups[0], groups[1]
        size = [side * (1 + is_over) for side, is_over in zip(size, too_many, strict=True)]


def _pooled(x: Tensor, size: list[int]) -> Tensor:
    """Return the largest of each tile."""
    return torch.nn.functional.max_pool2d(x[None, None], size, ceil_mode=True)[0, 0]


def _equal(n: int, size: int) -> list[int]:
    return [min(size, n - first) for first in range(0, n, size)]


def _signs(wrong: Tensor, nan: Tensor, heights: list[int], widths: list[int]) -> tuple[str, ...]:
    rows = zip(wrong.split(heights), nan.split(heights), strict=True)
    return tuple("".join(map(_mark, a.split(widths, dim=1), b.split(widths, dim=1))) for a, b in rows)


def _tile(n: int, most: int) -> int:
    """Return the least power of two that cuts n into at most so many."""
    return 1 << max(0, -(-n // most) - 1).bit_length()


def _mark(wrong: Tensor, nan: Tensor) -> str:
    return "N" if nan.any() else "#" if wrong.all() else "+" if wrong.any() else "."


def _farthest_off(name: str, got: Tensor, want: Expected, over: Tensor) -> str:
    worst = torch.unravel_index(over.argmax(), over.shape)
    index = f"[{', '.join(str(int(i)) for i in worst)}]" if worst else ""
    return (
        f"  farthest off: {name}{index}, by {(got.double() - want.value).abs()[worst].item():.3g}, "
        f"{over[worst].item():.3g} times what float32 accumulation and {name}'s dtype explain"
    )


def _about_non_finite(got: Tensor, rows: bool) -> list[str]:
    nan, inf = got.isnan(), got.isinf()
    lines = []
    if nan.any():
        lines.append(
            f"  {nan.sum()} NaN{_region(nan, rows)}: read outside of a tensor or never written, or 0/0, 0 · ∞, ∞ − ∞"
        )
    if inf.any():
        lines.append(
            f"  {inf.sum()} infinite{_region(inf, rows)}: an exponential or a sum overflowed, or a division by 0"
        )
    return lines


def _region(mask: Tensor, rows: bool) -> str:
    """Return where mask is true, in words: ": batch 1 of 2, rows 96–127 of 128"."""
    if mask.ndim == 0 or mask.all():
        return "" if mask.ndim == 0 else ": all of them"
    inner = ["row", "column"] if rows else ["row"]  # a vector has one element for each row
    names = (["batch"] * mask.ndim + inner)[-mask.ndim :]
    parts = []
    for dim, name in enumerate(names):
        others = [other for other in range(mask.ndim) if other != dim]
        hit = mask.any(dim=others) if others else mask
        if not hit.all():
            parts.append(_indices(name, hit))
    return f": {', '.join(parts)}" if parts else ""


def _indices(name: str, hit: Tensor) -> str:
    """Return the true positions of a vector in words: "rows 96–127 of 128 (the last 32)"."""
    where = hit.nonzero().flatten().tolist()
    plural = {"batch": "batches"}.get(name, f"{name}s")
    if len(where) == 1:
        return f"{name} {where[0]} of {len(hit)}"
    steps = {b - a for a, b in itertools.pairwise(where)}
    if steps == {1}:
        tail = f" (the last {len(where)})" if where[-1] == len(hit) - 1 else ""
        return f"{plural} {where[0]}–{where[-1]} of {len(hit)}{tail}"
    if len(steps) == 1 and len(where) > 2:
        step = steps.pop()
        return f"every {step}{ {2: 'nd', 3: 'rd'}.get(step, 'th') } of the {plural}, from {where[0]}"
    return f"{len(where)} of {len(hit)} {plural}, {where[0]}–{where[-1]}"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
