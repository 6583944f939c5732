"""What a compiler knows of the elements of a block of integers or addresses: the rules of two operands.

See alignment.py; the rules are those of Triton's `lib/Analysis/AxisInfo.cpp`.
"""

from collections.abc import Callable
from typing import NamedTuple

from .faults import Place

ALL = 1 << 30
Sizes = tuple[int, ...]


class Known(NamedTuple):
    """What is known when a block is compiled; all but `constant` are powers of 2, one for each axis."""

    contiguity: Sizes
    divisibility: Sizes  # of the first of each contiguous group; of addresses in bytes
    constancy: Sizes
    constant: int | None = None
    promised: Place | None = None  # where, by a hint that does not hold here

    def each(self, function: Callable[[Sizes], Sizes]) -> "Known":
        """Return the same of other axes."""
        contiguity, divisibility, constancy = map(function, self[:3])
        return Known(contiguity, divisibility, constancy, self.constant, self.promised)


def nothing(ndim: int) -> Known:
    return Known((1,) * ndim, (1,) * ndim, (1,) * ndim)


def power(number: int) -> int:
    """Return the largest power of 2 that divides a number."""
    return min(number & -number, ALL) if number else ALL


def least(a: Sizes, *others: Sizes) -> Sizes:
    return tuple(map(min, a, *others)) if others else a


def _most(a: Sizes, b: Sizes) -> Sizes:
    return tuple(map(max, a, b))


# rules: of two operands in one shape


def _sum(a: Known, b: Known) -> Known:
    contiguity = _most(least(a.constancy, b.contiguity), least(a.contiguity, b.constancy))
    return Known(contiguity, least(a.divisibility, b.divisibility), least(a.constancy, b.constancy))


def _difference(a: Known, b: Known) -> Known:
    return _sum(a, b)._replace(contiguity=least(a.contiguity, b.constancy))


def _product(a: Known, b: Known) -> Known:
    for one, other in ((a, b), (b, a)):
        if one.constant == 1:
            return other
    ones = (1,) * len(a.contiguity)
    of_all = [tuple(1 if c > 1 else d for c, d in zip(x.contiguity, x.divisibility, strict=True)) for x in (a, b)]
    divisibility = tuple(min(m * n, ALL) for m, n in zip(*of_all, strict=True))
    return Known(ones, divisibility, least(a.constancy, b.constancy))


def _quotient(a: Known, b: Known) -> Known:
    if b.constant == 1:
        return a
    groups = least(a.contiguity, a.divisibility, b.divisibility, b.constancy)
    return nothing(len(groups))._replace(constancy=_most(least(a.constancy, b.constancy), groups))


def _rest(a: Known, b: Known) -> Known:
    contiguity = least(a.contiguity, a.divisibility, b.divisibility, b.constancy)
    return Known(contiguity, least(a.divisibility, b.divisibility), least(a.constancy, b.constancy))


def _shifted(a: Known, b: Known) -> Known:
    return _product(a, nothing(len(a.contiguity))._replace(divisibility=(1 << min(b.constant or 0, 29),) * 8))


def either(a: Known, b: Known) -> Known:
    return Known(
        least(a.contiguity, b.contiguity), least(a.divisibility, b.divisibility), least(a.constancy, b.constancy)
    )


def _equal(a: Known, b: Known) -> Known:
    return nothing(len(a.contiguity))._replace(constancy=least(a.constancy, b.constancy))


def _below(a: Known, b: Known) -> Known:
    """Compare what counts up with what stays: it changes at a multiple of what divides both."""
    groups = least(a.contiguity, a.divisibility, b.divisibility, b.constancy)
    return _equal(a, b)._replace(constancy=_most(least(a.constancy, b.constancy), groups))


def _above(a: Known, b: Known) -> Known:
    return _below(b, a)


Rule = Callable[[Known, Known], Known]
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
    **dict.fromkeys(("icmpSGT", "icmpUGT", "icmpSLE", "icmpULE"), _above),
}
