"""What a compiler knows of the elements of a block of integers or addresses: the rules of two operands.

See alignment.py; the rules are those of Triton's `lib/Analysis/AxisInfo.cpp`.
"""

from collections.abc import Callable
from typing import NamedTuple

from .faults import Place

ALL = 1 << 30
Sizes = tuple[int, ...]


class KnownAxes(NamedTuple):
    """What is known when a block is compiled; all but `constant` are powers of 2, one for each axis."""

    contiguity: Sizes
    divisibility: Sizes  # of the first of each contiguous group; of addresses in bytes
    constancy: Sizes
    constant: int | None = None
    promised: Place | None = None  # where, by a hint that does not hold here

    def each(self, function: Callable[[Sizes], Sizes]) -> "KnownAxes":
        """Return the same of other axes."""
        contiguity, divisibility, constancy = map(function, self[:3])
        return KnownAxes(contiguity, divisibility, constancy, self.constant, self.promised)


def nothing(ndim: int) -> KnownAxes:
    return KnownAxes((1,) * ndim, (1,) * ndim, (1,) * ndim)


def power(number: int) -> int:
    """Return the largest power of 2 that divides a number."""
    return min(number & -number, ALL) if number else ALL


def least(a: Sizes, *others: Sizes) -> Sizes:
    return tuple(map(min, a, *others)) if others else a


def _most(a: Sizes, b: Sizes) -> Sizes:
    return tuple(map(max, a, b))


# rules: of two operands in one shape


def _sum(a: KnownAxes, b: KnownAxes) -> KnownAxes:
    contiguity = _most(least(a.constancy, b.contiguity), least(a.contiguity, b.constancy))
    return KnownAxes(contiguity, least(a.divisibility, b.divisibility), least(a.constancy, b.constancy))


def _difference(a: KnownAxes, b: KnownAxes) -> KnownAxes:
    return _sum(a, b)._replace(contiguity=least(a.contiguity, b.constancy))


def _product(a: KnownAxes, b: KnownAxes) -> KnownAxes:
    for one, other in ((a, b), (b, a)):
        if one.constant == 1:
            return other
    ones = (1,) * len(a.contiguity)
    of_all = [tuple(1 if c > 1 else d for c, d in zip(x.contiguity, x.divisibility, strict=True)) for x in (a, b)]
    divisibility = tuple(min(m * n, ALL) for m, n in zip(*of_all, strict=True))
    return KnownAxes(ones, divisibility, least(a.constancy, b.constancy))


def _quotient(a: KnownAxes, b: KnownAxes) -> KnownAxes:
    if b.constant == 1:
        return a
    groups = least(a.contiguity, a.divisibility, b.divisibility, b.constancy)
    return nothing(len(groups))._replace(constancy=_most(least(a.constancy, b.constancy), groups))


def _rest(a: KnownAxes, b: KnownAxes) -> KnownAxes:
    contiguity = least(a.contiguity, a.divisibility, b.divisibility, b.constancy)
    return KnownAxes(contiguity, least(a.divisibility, b.divisibility), least(a.constancy, b.constancy))


def _shifted(a: KnownAxes, b: KnownAxes) -> KnownAxes:
    axes = len(a.contiguity)
    return _product(a, nothing(axes)._replace(divisibility=(1 << min(b.constant or 0, 29),) * axes))


def either(a: KnownAxes, b: KnownAxes) -> KnownAxes:
    return KnownAxes(
        least(a.contiguity, b.contiguity), least(a.divisibility, b.divisibility), least(a.constancy, b.constancy)
    )


def _equal(a: KnownAxes, b: KnownAxes) -> KnownAxes:
    return nothing(len(a.contiguity))._replace(constancy=least(a.constancy, b.constancy))


def _below(a: KnownAxes, b: KnownAxes) -> KnownAxes:
    """Compare what counts up with what stays: it changes at a multiple of what divides both."""
    groups = least(a.contiguity, a.divisibility, b.divisibility, b.constancy)
    return _equal(a, b)._replace(constancy=_most(least(a.constancy, b.constancy), groups))


def spread(own: KnownAxes, sizes: Sizes, shape: Sizes) -> KnownAxes:
    """Return what is known of a value of these sizes that is broadcast to a shape."""
    more = len(shape) - len(sizes)
    grown = [more > i or (sizes[i - more] == 1 and n > 1) for i, n in enumerate(shape)]
    padded = [(1,) * more + part for part in own[:3]]
    contiguity = tuple(1 if new else n for new, n in zip(grown, padded[0], strict=True))
    divisibility = tuple(own.divisibility[0] if more > i else padded[1][i] for i in range(len(shape)))
    constancy = tuple(size if new else n for new, n, size in zip(grown, padded[2], shape, strict=True))
    return own._replace(contiguity=contiguity, divisibility=divisibility, constancy=constancy)


Rule = Callable[[KnownAxes, KnownAxes], KnownAxes]
OF_TWO: dict[str, Rule] = {
    **dict.fromkeys(("add",), _sum),
    **dict.fromkeys(("sub",), _difference),
    **dict.fromkeys(("mul",), _product),
    **dict.fromkeys(("sdiv", "udiv"), _quotient),
    **dict.fromkeys(("srem", "urem"), _rest),
    **dict.fromkeys(("shl",), _shifted),
    **dict.fromkeys(("minsi", "minui", "maxsi", "maxui"), either),
    **dict.fromkeys(("and", "or", "xor", "icmpEQ", "icmpNE"), _equal),
    **dict.fromkeys(("icmpSLT", "icmpULT", "icmpSGE", "icmpUGE"), _below),
    **dict.fromkeys(("icmpSGT", "icmpUGT", "icmpSLE", "icmpULE"), lambda a, b: _below(b, a)),
}
