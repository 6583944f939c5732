"""What a kernel's hints make the compiler believe, in kernels that have some.

The compiler knows of a block along each axis how many neighbours follow one another, by what the first one of each
such group can be divided, and how many neighbours are equal (Triton's `lib/Analysis/AxisInfo.cpp`). From that it
chooses how many elements a thread loads or stores at once, at most 16 bytes. `tl.multiple_of`, `tl.max_contiguous` and
`tl.max_constancy` replace what it knows. Where such a promise does not hold, an access is made in the vectors that
follow from it, with a warning; one at a misaligned address is a fault. If the vectors are what the kernel says, as
where libraries' rows wrap between two, nothing is told. Known limit: what a loop carries is known here as it is in
each turn, and to the compiler as in all of them.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import triton.language as tl

from .builder import Builder, array_of
from .elementwise import Handle
from .faults import LEFT_OPEN, FalseHint, at, place
from .kernel_values import KernelValue
from .known import ALL, OF_TWO, KnownAxes, Rule, Sizes, either, least, nothing, power, spread
from .numerics import ADDRESS
from .triton_private import ir

_spread_before = lru_cache(maxsize=1024)(spread)
HINTS = ("multiple_of", "max_contiguous", "max_constancy")
_WIDEST = 16  # bytes of a vector
Mask: TypeAlias = Handle | np.ndarray | None


def known(value: Handle) -> KnownAxes:
    found = getattr(value, "known", None)
    return found if found and len(found.contiguity) == value.data.ndim else nothing(value.data.ndim)


def _spread(value: Handle, shape: Sizes) -> KnownAxes:
    """Return what is known of a value that is broadcast to a shape."""
    own = known(value)
    return own if value.data.shape == shape else _spread_before(own, value.data.shape, shape)


class _Compiled(NamedTuple):
    """An access in vectors, whose first lane says where and whether."""

    ptrs: Handle
    mask: Handle | None
    is_aligned: bool
    is_right: bool  # it is what the kernel says


class _Parameter(Handle):
    """What a device function was given: a hint on it is lost when the compiler puts the function in its place."""

    __slots__ = ()


class Believing(Builder):
    """The builder of kernels with hints: it follows what the compiler knows of integers and addresses."""

    def create_make_range(self, ret_ty: tl.dtype, start: int, stop: int) -> Handle:
        made = super().create_make_range(ret_ty, start, stop)
        return _knowing(made, KnownAxes((power(stop - start),), (power(start),), (1,)))

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
        made = super().cast_impl(src, dst_type)
        return _knowing(made, known(src)) if src.data.dtype.kind in "iu" and made.data.dtype.kind in "iu" else made

    def create_addptr(self, ptr: Handle, offset: Handle) -> Handle:
        width = _width(ptr)
        made = super().create_addptr(ptr, offset)
        by, to = _spread(offset, made.data.shape), _spread(ptr, made.data.shape)
        by = by._replace(divisibility=tuple(min(n * width, ALL) for n in by.divisibility))
        return _knowing(made, OF_TWO["add"](to, by)._replace(promised=to.promised or by.promised))

    def create_select(self, cond: Handle, lhs: Handle, rhs: Handle) -> Handle:
        made = super().create_select(cond, lhs, rhs)
        on, a, b = (_spread(x, made.data.shape) for x in (cond, lhs, rhs))
        both = either(a, b).each(lambda part: least(part, on.constancy))
        return _knowing(made, both._replace(promised=on.promised or a.promised or b.promised))

    def load(self, ptrs: Handle, mask: Mask, other: Handle | None, is_volatile: bool) -> Handle:
        return super().load(*self._believed("loads", ptrs, mask), other, is_volatile)

    def store(self, ptrs: Handle, value: Handle, mask: Mask) -> None:
        ptrs, mask = self._believed("stores to", ptrs, mask)
        super().store(ptrs, value, mask)

    def create_atomic_rmw(
        self, op: ir.ATOMIC_OP, ptr: Handle, val: Handle, mask: Handle, sem: ir.MEM_SEMANTIC, scope: ir.MEM_SYNC_SCOPE
    ) -> Handle:
        """Add floats in vectors too, as GPUs from the H100 on do."""
        if op.name == "FADD" and val.data.itemsize <= 4:
            ptr, compiled = self._believed("updates", ptr, mask)
            assert isinstance(compiled, Handle)
            mask = compiled
        return super().create_atomic_rmw(op, ptr, val, mask, sem, scope)

    def _believed(self, action: str, ptrs: Handle, mask: Mask) -> tuple[Handle, Mask]:
        """Return the access as it is compiled."""
        told = getattr(mask, "known", None)
        promised = known(ptrs).promised or (told.promised if told else None)
        if promised is None:
            return ptrs, mask
        axis, size = self._vector(ptrs)
        compiled = self._in_vectors(ptrs, mask, axis, size)
        if size == 1 or compiled.is_right:
            return ptrs, mask
        self.watch.false_hint(promised)
        size = min(size, max(ptrs.data.size // (32 * self.options.num_warps), 1), self._like(mask, ptrs, axis))
        if size <= 1:
            return ptrs, mask
        compiled = self._in_vectors(ptrs, mask, axis, size)
        if not compiled.is_aligned:
            raise FalseHint(
                f"{FalseHint.kind}: program {self.grid_idx} of {self.watch.kernel} {action} a misaligned address, in "
                f"vectors of {size} elements",
                at(place()),
                f"  the compiler takes them for it believes the hint, which does not hold {LEFT_OPEN}",
                at(promised, "    "),
            )
        return compiled.ptrs, compiled.mask

    def _vector(self, ptrs: Handle) -> tuple[int, int]:
        """Return the axis of the vectors, and their size as far as addresses say."""
        own, shape, width = known(ptrs), ptrs.data.shape, _width(ptrs)
        axis = max(range(len(shape)), key=lambda dim: (own.contiguity[dim], dim))
        return axis, max(min(_WIDEST // width, own.contiguity[axis], own.divisibility[axis] // width, shape[axis]), 1)

    def _in_vectors(self, ptrs: Handle, mask: Mask, axis: int, size: int) -> "_Compiled":
        """Return an access in vectors of this size."""
        data, width, given = ptrs.data, _width(ptrs), array_of(mask)
        lanes = np.broadcast_to(True if given is None else given, data.shape)
        active = _first_of(lanes, axis, min(size, self._like(mask, ptrs, axis)))
        firsts = _first_of(data, axis, size)
        along = np.arange(data.shape[axis], dtype=np.uint64) % np.uint64(size) * np.uint64(width)
        addresses = firsts + along.reshape([-1 if dim == axis else 1 for dim in range(firsts.ndim)])
        is_aligned = not ((firsts & ADDRESS) % np.uint64(size * width))[active].any()
        is_right = is_aligned and np.array_equal(active, lanes) and bool((addresses == data)[lanes].all())
        as_given = None if given is None else Handle(active, tl.int1)
        return _Compiled(Handle(addresses, ptrs.dtype), as_given, is_aligned, is_right)

    def _like(self, mask: Mask, ptrs: Handle, axis: int) -> int:
        """Return how many neighbours have one mask, as far as is known."""
        return _spread(mask, ptrs.data.shape).constancy[axis] if isinstance(mask, Handle) else ALL

    def entering(self, value: KernelValue) -> KernelValue:
        """Return a device function's argument."""
        if not (isinstance(value, tl.tensor) and isinstance(value.handle, Handle)):  # a block pointer's is another
            return super().entering(value)
        given = _knowing(_Parameter(value.handle.data, value.handle.dtype), known(value.handle))
        return tl.tensor(given, value.type)

    def believe(self, hint: str, value: Handle, sizes: Sizes) -> None:
        """Believe a hint of the kernel's, and note where it does not hold."""
        if isinstance(value, _Parameter):
            return
        if value.dtype.is_ptr():  # the CPU's allocator promises less than CUDA's
            sizes = tuple(min(size, _WIDEST) for size in sizes) if hint == "multiple_of" else sizes
        promise = _PROMISES[hint](known(value), tuple(map(power, sizes)))
        width = _width(value) if value.dtype.is_ptr() else 1
        data = (value.data & ADDRESS if value.dtype.is_ptr() else value.data).astype(np.int64)
        if not all(_HOLDS[hint](np.moveaxis(data, axis, 0), width, size) for axis, size in enumerate(sizes)):
            promise = promise._replace(promised=place())
        _knowing(value, promise)


def _of_two(name: str, rule: Rule) -> Callable[[Believing, Handle, Handle], Handle]:
    def create(self: Believing, lhs: Handle, rhs: Handle) -> Handle:
        made = getattr(Builder, f"create_{name}")(self, lhs, rhs)
        a, b = (_spread(x, made.data.shape) for x in (lhs, rhs))
        return _knowing(made, rule(a, b)._replace(promised=a.promised or b.promised))

    rule = lru_cache(maxsize=1024)(rule)
    return create


for _name, _rule in OF_TWO.items():
    setattr(Believing, f"create_{_name}", _of_two(_name, _rule))


def _constant(name: str) -> Callable[[Believing, int], Handle]:
    def get(self: Believing, value: int) -> Handle:
        return _knowing(getattr(Builder, name)(self, value), KnownAxes((1,), (power(value),), (1,), value))

    return get


for _bits in (8, 16, 32, 64):
    for _kind in ("int", "uint"):
        setattr(Believing, f"get_{_kind}{_bits}", _constant(f"get_{_kind}{_bits}"))


def admit(argument: tl.tensor, specialize: bool) -> None:
    """Note what the compiler knows of an argument: whether 16 divides it."""
    number = int(argument.handle.data.item()) if argument.handle.data.dtype.kind in "iu" else 1
    _knowing(argument.handle, KnownAxes((1,), (16 if specialize and number % 16 == 0 else 1,), (1,)))


def _width(ptrs: Handle) -> int:
    """Return the bytes of an element."""
    return max(ptrs.get_element_ty().primitive_bitwidth // 8, 1)


def _knowing(value: Handle, what: KnownAxes) -> Handle:
    value.known = what
    return value


def _is_multiple(data: np.ndarray, width: int, size: int) -> bool:
    """Return whether a number divides the first element of each run of neighbours."""
    return not (data[~_rises(data, width)] % size).any()


def _is_contiguous(data: np.ndarray, width: int, size: int) -> bool:
    return _in_groups(_rises(data, width), size)


def _is_constant(data: np.ndarray, width: int, size: int) -> bool:
    return _in_groups(_rises(data, 0), size)


_PROMISES: dict[str, Callable[[KnownAxes, Sizes], KnownAxes]] = {
    "multiple_of": lambda own, sizes: own._replace(divisibility=sizes),
    "max_contiguous": lambda own, sizes: own._replace(contiguity=sizes),
    "max_constancy": lambda own, sizes: own._replace(constancy=sizes),
}
_HOLDS = dict(zip(HINTS, (_is_multiple, _is_contiguous, _is_constant), strict=True))


def _rises(data: np.ndarray, by: int) -> np.ndarray:
    """Return which elements are so much more than the one before on the first axis."""
    return np.concatenate([np.zeros((1, *data.shape[1:]), bool), np.diff(data, axis=0) == by])


def _first_of(lanes: np.ndarray, axis: int, size: int) -> np.ndarray:
    """Return the first of each group of lanes along an axis, in the place of each of them."""
    return np.take(lanes, np.arange(lanes.shape[axis]) // size * size, axis)


def _in_groups(holds: np.ndarray, size: int) -> bool:
    """Return whether something holds for all but the first element of each group on the first axis."""
    return bool(holds.reshape(-1, min(power(size), len(holds)), *holds.shape[1:])[:, 1:].all())
