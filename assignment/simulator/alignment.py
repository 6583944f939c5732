"""What a kernel's hints make the compiler believe, in kernels that have some.

The compiler knows of a block along each axis how many neighbours follow one another, by what the first one of each
such group can be divided, and how many neighbours are equal (Triton's `lib/Analysis/AxisInfo.cpp`). From that it
chooses how many elements a thread loads or stores at once, at most 16 bytes. `tl.multiple_of`, `tl.max_contiguous` and
`tl.max_constancy` replace what it knows. Where such a promise does not hold, and the vectors that follow from it touch
other elements or a misaligned address, the launch is wrong; where none follow, it is a warning.
"""

from collections.abc import Callable, Sequence

import numpy as np
import triton.language as tl

from .builder import Builder, array_of
from .elementwise import Handle
from .faults import LEFT_OPEN, FalseHint, at, place
from .known import ALL, OF_TWO, Known, Rule, Sizes, either, least, nothing, power
from .numerics import ADDRESS

HINTS = ("multiple_of", "max_contiguous", "max_constancy")
_WIDEST = 16  # bytes of a vector


def known(value: Handle) -> Known:
    found = getattr(value, "known", None)
    return found if found and len(found.contiguity) == value.data.ndim else nothing(value.data.ndim)


def _spread(value: Handle, shape: Sizes) -> Known:
    """Return what is known of a value that is broadcast to a shape."""
    own, sizes = known(value), value.data.shape
    more = len(shape) - len(sizes)
    grown = [more > i or (sizes[i - more] == 1 and n > 1) for i, n in enumerate(shape)]
    padded = [(1,) * more + part for part in own[:3]]
    contiguity = tuple(1 if new else n for new, n in zip(grown, padded[0], strict=True))
    divisibility = tuple(own.divisibility[0] if more > i else padded[1][i] for i in range(len(shape)))
    constancy = tuple(size if new else n for new, n, size in zip(grown, padded[2], shape, strict=True))
    return own._replace(contiguity=contiguity, divisibility=divisibility, constancy=constancy)


class Believing(Builder):
    """The builder of kernels with hints: it follows what the compiler knows of integers and addresses."""

    def create_make_range(self, ret_ty: tl.dtype, start: int, stop: int) -> Handle:
        made = super().create_make_range(ret_ty, start, stop)
        return _knowing(made, Known((power(stop - start),), (power(start),), (1,)))

    def create_splat(self, ret_ty: tl.dtype, arg: Handle) -> Handle:
        return _knowing(super().create_splat(ret_ty, arg), _spread(arg, tuple(ret_ty.shape)))

    def create_broadcast(self, arg: Handle, shape: Sequence[int]) -> Handle:
        return _knowing(super().create_broadcast(arg, shape), _spread(arg, tuple(shape)))

    def create_expand_dims(self, arg: Handle, axis: int) -> Handle:
        before = known(arg)
        own = before.each(lambda part: (*part[:axis], 1, *part[axis:]))
        of_first = min(1 if n > 1 else by for n, by in zip(before.contiguity, before.divisibility, strict=True))
        divisibility = (*own.divisibility[:axis], of_first, *own.divisibility[axis + 1 :])
        return _knowing(super().create_expand_dims(arg, axis), own._replace(divisibility=divisibility))

    def create_trans(self, arg: Handle, perm: Sequence[int]) -> Handle:
        own = known(arg)
        return _knowing(super().create_trans(arg, perm), own.each(lambda part: tuple(part[i] for i in perm)))

    def cast_impl(self, src: Handle, dst_type: tl.dtype) -> Handle:
        return _knowing(super().cast_impl(src, dst_type), known(src))

    def create_addptr(self, ptr: Handle, offset: Handle) -> Handle:
        width = max(ptr.get_element_ty().primitive_bitwidth // 8, 1)
        made = super().create_addptr(ptr, offset)
        by, to = _spread(offset, made.data.shape), _spread(ptr, made.data.shape)
        by = by._replace(divisibility=tuple(min(n * width, ALL) for n in by.divisibility))
        return _knowing(made, OF_TWO["add"](to, by)._replace(promised=to.promised or by.promised))

    def create_select(self, cond: Handle, lhs: Handle, rhs: Handle) -> Handle:
        made = super().create_select(cond, lhs, rhs)
        on, a, b = (_spread(x, made.data.shape) for x in (cond, lhs, rhs))
        both = either(a, b).each(lambda part: least(part, on.constancy))
        return _knowing(made, both._replace(promised=on.promised or a.promised or b.promised))

    def load(self, ptrs: Handle, mask: Handle | np.ndarray | None, other: Handle | None, is_volatile: bool) -> Handle:
        self._believe("loads", ptrs, mask)
        return super().load(ptrs, mask, other, is_volatile)

    def store(self, ptrs: Handle, value: Handle, mask: Handle | np.ndarray | None) -> None:
        self._believe("stores to", ptrs, mask)
        super().store(ptrs, value, mask)

    def _believe(self, action: str, ptrs: Handle, mask: Handle | np.ndarray | None) -> None:
        """Refuse an access that a promise makes wrong."""
        told = getattr(mask, "known", None)
        promised = known(ptrs).promised or (told.promised if told else None)
        if promised is None:
            return
        addresses = ptrs.data & ADDRESS
        active_lanes = array_of(mask)
        lanes = np.broadcast_to(np.True_ if active_lanes is None else active_lanes, addresses.shape)
        width = max(ptrs.get_element_ty().primitive_bitwidth // 8, 1)
        own, dims = known(ptrs), range(addresses.ndim)
        axis = max(dims, key=lambda dim: (own.contiguity[dim], dim))
        of_mask = _spread(mask, addresses.shape).constancy[axis] if isinstance(mask, Handle) else ALL
        of_thread = max(addresses.size // (32 * self.options.num_warps), 1)
        of_address = min(own.contiguity[axis], max(own.divisibility[axis] // width, 1), addresses.shape[axis])
        size = min(_WIDEST // width, of_address, of_mask, of_thread)
        if size <= 1:
            return
        rows = np.moveaxis(addresses, axis, -1).reshape(-1, size)
        active = np.moveaxis(lanes, axis, -1).reshape(-1, size)
        is_apart = (rows != rows[:, :1] + np.arange(size, dtype=np.uint64) * np.uint64(width)).any(1)
        is_apart |= active.any(1) != active.all(1)
        is_wrong = (is_apart | (rows[:, 0] % np.uint64(size * width) != 0)) & active.any(1)
        if is_wrong.any():
            what = "elements that do not follow one another" if is_apart[is_wrong][0] else "a misaligned address"
            raise FalseHint(
                f"{FalseHint.kind}: program {self.grid_idx} of {self.watch.kernel} {action} {what}, in vectors of "
                f"{size} elements\n{at(place())}\n  the compiler takes them for it believes the hint, which does not "
                f"hold {LEFT_OPEN}\n{at(promised, '    ')}"
            )

    def believe(self, hint: str, value: Handle, sizes: Sizes) -> None:
        """Believe a hint of the kernel's; tell where it does not hold."""
        promise = _PROMISES[hint](known(value), tuple(map(power, sizes)))
        width = max(value.get_element_ty().primitive_bitwidth // 8, 1) if value.dtype.is_ptr() else 1
        data = (value.data & ADDRESS if value.dtype.is_ptr() else value.data).astype(np.int64)
        if not all(_HOLDS[hint](np.moveaxis(data, axis, 0), width, size) for axis, size in enumerate(sizes)):
            self.watch.false_hint(f"tl.{hint}({', '.join(map(str, sizes))})")
            promise = promise._replace(promised=place())
        _knowing(value, promise)


def _of_two(name: str, rule: Rule) -> Callable[[Believing, Handle, Handle], Handle]:
    def create(self: Believing, lhs: Handle, rhs: Handle) -> Handle:
        made = getattr(Builder, f"create_{name}")(self, lhs, rhs)
        a, b = (_spread(x, made.data.shape) for x in (lhs, rhs))
        return _knowing(made, rule(a, b)._replace(promised=a.promised or b.promised))

    return create


for _name, _rule in OF_TWO.items():
    setattr(Believing, f"create_{_name}", _of_two(_name, _rule))


def _constant(name: str) -> Callable[[Believing, int], Handle]:
    def get(self: Believing, value: int) -> Handle:
        return _knowing(getattr(Builder, name)(self, value), Known((1,), (power(value),), (1,), value))

    return get


for _bits in (8, 16, 32, 64):
    for _kind in ("int", "uint"):
        setattr(Believing, f"get_{_kind}{_bits}", _constant(f"get_{_kind}{_bits}"))


def admit(argument: tl.tensor, specialize: bool) -> None:
    """Note what the compiler knows of an argument: whether 16 divides it."""
    number = int(argument.handle.data.item()) if argument.handle.data.dtype.kind in "iu" else 1
    _knowing(argument.handle, Known((1,), (16 if specialize and number % 16 == 0 else 1,), (1,)))


def _knowing(value: Handle, what: Known) -> Handle:
    value.known = what
    return value


def _is_multiple(data: np.ndarray, width: int, size: int) -> bool:
    """Return whether a number divides the first element of each run of neighbours."""
    return not (data[~_rises(data, width)] % size).any()


def _is_contiguous(data: np.ndarray, width: int, size: int) -> bool:
    return _in_groups(_rises(data, width), size)


def _is_constant(data: np.ndarray, width: int, size: int) -> bool:
    return _in_groups(_rises(data, 0), size)


_PROMISES: dict[str, Callable[[Known, Sizes], Known]] = {
    "multiple_of": lambda own, sizes: own._replace(divisibility=sizes),
    "max_contiguous": lambda own, sizes: own._replace(contiguity=sizes),
    "max_constancy": lambda own, sizes: own._replace(constancy=sizes),
}
_HOLDS = dict(zip(HINTS, (_is_multiple, _is_contiguous, _is_constant), strict=True))


def _rises(data: np.ndarray, by: int) -> np.ndarray:
    """Return which elements are so much more than the one before on the first axis."""
    return np.concatenate([np.zeros((1, *data.shape[1:]), bool), np.diff(data, axis=0) == by])


def _in_groups(holds: np.ndarray, size: int) -> bool:
    """Return whether something holds for all but the first element of each group on the first axis."""
    return bool(holds.reshape(-1, min(power(size), len(holds)), *holds.shape[1:])[:, 1:].all())
