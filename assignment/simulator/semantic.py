"""Triton's rules for types and shapes, with less bookkeeping than a compiler's.

Triton makes new type objects for every value. Most of a simulated kernel's time would go there, so
equal block types are one object here, and operands are not broadcast before an operation that does
so by itself. What is asked for most, sums and products of one type above all, does not pass through
Triton's layers at all.
"""

import math
from collections.abc import Callable, Sequence

import triton.language as tl

from assignment.whose import theirs

from . import shapes
from .builder import Builder
from .elementwise import Handle
from .kernel_values import KernelValue
from .triton_private import FORMATS_ARE_CONSTANTS, TritonSemantic

MOST_CONSTANTS = 10_000  # of a process


class Semantic(TritonSemantic):
    """What `triton.language` asks of the compiler."""

    def __init__(self, builder: Builder) -> None:
        super().__init__(builder)
        self._operands_of_one_operation = False
        self._broadcast_types: dict[tuple[int, int], tuple[tl.dtype, ...]] = {}
        self._expanded_types: dict[tuple[int, int], tuple[tl.dtype, tl.dtype]] = {}
        self._constants: dict[tuple, tuple[tl.tensor, tl.dtype]] = {}

    def binary_op_type_checking_impl(
        self,
        lhs: KernelValue,
        rhs: KernelValue,
        allow_lhs_ptr: bool = False,
        allow_rhs_ptr: bool = False,
        arithmetic_check: bool = True,
        div_or_mod: bool = False,
    ) -> tuple[tl.tensor, tl.tensor]:
        """Return both operands in one type, for NumPy to broadcast."""
        if (
            not div_or_mod
            and isinstance(lhs, tl.tensor)
            and isinstance(rhs, tl.tensor)
            and lhs.dtype is rhs.dtype
            and not lhs.dtype.is_ptr()
        ):
            return (lhs, rhs) if lhs.type is rhs.type else self._in_one_shape(lhs, rhs)
        flags = (allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)
        if isinstance(lhs, tl.tensor) and _can_be_kept(rhs):
            key = (id(lhs.type), type(rhs), rhs, flags)
            if (kept := self._constants.get(key)) is not None:
                return lhs, kept[0]
            new_lhs, new_rhs = self._in_one_type(lhs, rhs, flags)
            if new_lhs is lhs:  # the number alone became something else
                self._keep(key, new_rhs, lhs.type)
            return new_lhs, new_rhs
        return self._in_one_type(lhs, rhs, flags)

    def _in_one_type(
        self, lhs: KernelValue, rhs: KernelValue, flags: tuple[bool, bool, bool, bool]
    ) -> tuple[tl.tensor, tl.tensor]:
        self._operands_of_one_operation = True
        try:
            return theirs(super().binary_op_type_checking_impl, lhs, rhs, *flags)
        finally:
            self._operands_of_one_operation = False

    def _keep(self, key: tuple, constant: tl.tensor, of_type: tl.dtype) -> None:
        """Keep what a number becomes beside tensors of a type; the type too, so that its id stays its own."""
        if len(self._constants) >= MOST_CONSTANTS:
            self._constants.clear()
        self._constants[key] = (constant, of_type)

    def forget_constants(self) -> None:
        """Make constants anew, by a builder that knows more of them."""
        self._constants.clear()

    def dot_scaled(
        self,
        lhs: tl.tensor,
        lhs_scale: tl.tensor,
        lhs_format: str,
        rhs: tl.tensor,
        rhs_scale: tl.tensor,
        rhs_format: str,
        *more: KernelValue,
    ) -> tl.tensor:
        """Pass the formats as the compiler has them."""
        if FORMATS_ARE_CONSTANTS:
            lhs_format, rhs_format = tl.constexpr(lhs_format), tl.constexpr(rhs_format)
        return theirs(super().dot_scaled, lhs, lhs_scale, lhs_format, rhs, rhs_scale, rhs_format, *more)

    def expand_dims(self, input: tl.tensor, axis: int) -> tl.tensor:
        """Return a tensor with one dimension more, whose type is looked up."""
        key = (id(input.type), axis)
        if (found := self._expanded_types.get(key)) is not None:
            return tl.tensor(builder.create_expand_dims(input.handle, axis), found[0])
        expanded = theirs(super().expand_dims, input, axis)
        if input.type.is_block():
            self._expanded_types[key] = (expanded.type, input.type)  # both, so that ids stay theirs
        return expanded

    def broadcast_impl_value(self, lhs: tl.tensor, rhs: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
        """Return both operands in one shape."""
        if self._operands_of_one_operation:
            return self._in_one_shape(lhs, rhs)
        if _dims(lhs.type) == _dims(rhs.type):
            return lhs, rhs
        return self._broadcast(lhs, rhs)

    def _broadcast(self, lhs: tl.tensor, rhs: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
        """Return what Triton does; what it raises says which axis may be wrong."""
        try:
            return theirs(super().broadcast_impl_value, lhs, rhs)
        except ValueError as error:
            if said := shapes.meant(_sizes(lhs), _sizes(rhs)):
                error.args = (f"{error}: {said}",)
            raise

    def _in_one_shape(self, lhs: tl.tensor, rhs: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
        """Return both operands with the types of one shape; NumPy broadcasts their values."""
        key = (id(lhs.type), id(rhs.type))
        found = self._broadcast_types.get(key)
        if found is None:
            new_lhs, new_rhs = self._broadcast(lhs, rhs)
            # the types are kept, so that their ids stay theirs
            found = self._broadcast_types[key] = (new_lhs.type, new_rhs.type, lhs.type, rhs.type)
        if found[0] is not lhs.type:
            lhs = tl.tensor(lhs.handle, found[0])
        if found[1] is not rhs.type:
            rhs = tl.tensor(rhs.handle, found[1])
        return lhs, rhs

    def met_before(
        self, lhs: tl.tensor, rhs: KernelValue, flags: tuple[bool, bool, bool, bool]
    ) -> tuple[tl.tensor, tl.tensor] | None:
        """Return what binary_op_type_checking_impl would, if these operands are of one type and such have met before.

        `flags` are its own. Operands that meet for the first time, which may be wrong, are left to Triton.
        """
        if isinstance(rhs, tl.tensor):
            return self._tensors_met_before(lhs, rhs)
        number = rhs.value if isinstance(rhs, tl.constexpr) else rhs
        if not _can_be_kept(number):
            return None
        kept = self._constants.get((id(lhs.type), type(number), number, flags))
        return None if kept is None else (lhs, kept[0])

    def _tensors_met_before(self, lhs: tl.tensor, rhs: tl.tensor) -> tuple[tl.tensor, tl.tensor] | None:
        if lhs.dtype is not rhs.dtype and lhs.dtype in _INTEGERS and rhs.dtype in _INTEGERS:
            lhs, rhs = _as_int64(lhs), _as_int64(rhs)
        if rhs.type is lhs.type:
            return lhs, rhs
        is_alike = rhs.dtype is lhs.dtype or _is_address(lhs, rhs)
        is_known = is_alike and (id(lhs.type), id(rhs.type)) in self._broadcast_types
        return self._in_one_shape(lhs, rhs) if is_known else None


builder = Builder()
semantic = Semantic(builder)


def _can_be_kept(number: KernelValue) -> bool:
    """Return whether equal numbers of its type are one number: not 0.0 and −0.0, nor NaN."""
    return type(number) is int or (type(number) is float and number != 0 and number == number)


def _as_int64(x: tl.tensor) -> tl.tensor:
    """Return integers as they are beside wider ones."""
    if x.dtype is tl.int64:
        return x
    return tl.tensor(builder.cast_impl(x.handle, tl.int64), x.type.with_element_ty(tl.int64))


_blocks: dict[tuple, tl.block_type] = {}
_original_init = tl.block_type.__init__


def install() -> None:
    """Make equal block types one object, and a tensor's shape a part of its type."""
    tl.block_type.__new__ = _block_type
    tl.block_type.__init__ = lambda self, element_ty, shape: None
    tl.tensor.__init__ = _init_tensor
    tl.core._unwrap_if_constexpr = _unwrapped
    tl.dtype.__eq__ = lambda self, other: self is other or _equal_types(self, other)


def hasten() -> None:
    """Shorten the way of sums, differences and products of one type; once Triton's operators are bound."""
    for name, flags in _FLAGS.items():
        setattr(tl.tensor, f"__{name}__", _operator(name, flags, getattr(tl.tensor, f"__{name}__")))


_FLAGS = {  # of binary_op_type_checking_impl, as TritonSemantic's method of that name gives them
    "add": (True, True, True, False),
    "sub": (True, False, True, False),
    "mul": (False, False, True, False),
}
_FLOATS = (tl.float16, tl.bfloat16, tl.float32, tl.float64)
_INTEGERS = (tl.int32, tl.int64)


def _operator(name: str, flags: tuple[bool, bool, bool, bool], general: Callable) -> Callable:
    """Return an operator that asks the builder itself wherever it can, and `general` elsewhere."""
    creators = {id(dtype): f"create_f{name}" for dtype in _FLOATS}
    creators |= {id(dtype): f"create_{name}" for dtype in _INTEGERS}

    def operate(lhs: tl.tensor, rhs: KernelValue, **kwargs: KernelValue) -> KernelValue:
        create = creators.get(id(lhs.dtype)) or (name == "add" and _is_address(lhs, rhs) and "create_addptr")
        if create and builder.grid_idx is not None:
            found = semantic.met_before(lhs, rhs, flags)
            if found is not None:
                return tl.tensor(getattr(builder, create)(found[0].handle, found[1].handle), found[0].type)
        return general(lhs, rhs, **kwargs)

    operate.__name__, operate.__doc__ = f"__{name}__", general.__doc__
    return operate


def _is_address(lhs: tl.tensor, rhs: KernelValue) -> bool:
    return lhs.dtype.is_ptr() and isinstance(rhs, tl.tensor) and rhs.dtype in _INTEGERS


_unwrapped_by_triton = tl.core._unwrap_if_constexpr
_equal_types = tl.dtype.__eq__
_NO_CONSTANTS = frozenset([int, float, bool, str, type(None), tl.tensor, tl.dtype, tl.block_type, tl.pointer_type])


def _unwrapped(value: KernelValue) -> KernelValue:
    """Return a value without tl.constexpr around it, or around its items."""
    if type(value) in _NO_CONSTANTS:
        return value
    return value.value if isinstance(value, tl.constexpr) else _unwrapped_by_triton(value)


def _dims(ty: tl.dtype) -> Sequence[int]:
    return ty.dims if ty.is_block() else ()


def _block_type(cls: type, element_ty: tl.dtype, shape: Sequence[int | tl.constexpr] | tl.constexpr) -> tl.block_type:
    if isinstance(shape, tl.constexpr):
        shape = shape.value
    dims = tuple([s.value if isinstance(s, tl.constexpr) else s for s in shape])
    key = (element_ty.name, getattr(element_ty, "address_space", 0), dims)
    block = _blocks.get(key)
    if block is None:
        block = object.__new__(cls)
        theirs(_original_init, block, element_ty, list(dims))
        block.dims = dims  # type: ignore[assignment]
        _blocks[key] = block
    return block


def _init_tensor(self: tl.tensor, handle: Handle, type: tl.dtype) -> None:
    self.handle = handle
    self.type = type
    self.dtype = type.scalar
    try:
        self.shape, self.numel = type.shape_of_tensors
    except AttributeError:
        dims = type.shape if type.is_block() else ()
        type.shape_of_tensors = (tl.tuple([tl.constexpr(s) for s in dims]), tl.constexpr(math.prod(dims)))
        self.shape, self.numel = type.shape_of_tensors


def _sizes(value: tl.tensor) -> list[int]:
    return [int(size) for size in value.shape]
