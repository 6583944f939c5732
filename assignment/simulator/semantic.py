"""Triton's rules for types and shapes, with less bookkeeping than a compiler's.

Triton makes new type objects for every value. Most of a simulated kernel's time would go there, so
equal block types are one object here, and operands are not broadcast before an operation that does
so by itself.
"""

import math
from collections.abc import Sequence

import triton.language as tl

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
            return super().binary_op_type_checking_impl(lhs, rhs, *flags)
        finally:
            self._operands_of_one_operation = False

    def _keep(self, key: tuple, constant: tl.tensor, of_type: tl.dtype) -> None:
        """Keep what a number becomes beside tensors of a type; the type too, so that its id stays its own."""
        if len(self._constants) >= MOST_CONSTANTS:
            self._constants.clear()
        self._constants[key] = (constant, of_type)

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
        return super().dot_scaled(lhs, lhs_scale, lhs_format, rhs, rhs_scale, rhs_format, *more)

    def broadcast_impl_value(self, lhs: tl.tensor, rhs: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
        """Return both operands in one shape."""
        if not self._operands_of_one_operation:
            return super().broadcast_impl_value(lhs, rhs)
        return self._in_one_shape(lhs, rhs)

    def _in_one_shape(self, lhs: tl.tensor, rhs: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
        """Return both operands with the types of one shape; NumPy broadcasts their values."""
        key = (id(lhs.type), id(rhs.type))
        found = self._broadcast_types.get(key)
        if found is None:
            new_lhs, new_rhs = super().broadcast_impl_value(lhs, rhs)
            # the types are kept, so that their ids stay theirs
            found = self._broadcast_types[key] = (new_lhs.type, new_rhs.type, lhs.type, rhs.type)
        if found[0] is not lhs.type:
            lhs = tl.tensor(lhs.handle, found[0])
        if found[1] is not rhs.type:
            rhs = tl.tensor(rhs.handle, found[1])
        return lhs, rhs


builder = Builder()
semantic = Semantic(builder)


def _can_be_kept(number: KernelValue) -> bool:
    """Return whether equal numbers of its type are one number: not 0.0 and −0.0, nor NaN."""
    return type(number) is int or (type(number) is float and number != 0 and number == number)


_blocks: dict[tuple, tl.block_type] = {}
_original_init = tl.block_type.__init__


def install() -> None:
    """Make equal block types one object, and a tensor's shape a part of its type."""
    tl.block_type.__new__ = _block_type
    tl.block_type.__init__ = lambda self, element_ty, shape: None
    tl.tensor.__init__ = _init_tensor


def _block_type(cls: type, element_ty: tl.dtype, shape: Sequence[int | tl.constexpr] | tl.constexpr) -> tl.block_type:
    if isinstance(shape, tl.constexpr):
        shape = shape.value
    dims = tuple([s.value if isinstance(s, tl.constexpr) else s for s in shape])
    key = (element_ty.name, getattr(element_ty, "address_space", 0), dims)
    block = _blocks.get(key)
    if block is None:
        block = object.__new__(cls)
        _original_init(block, element_ty, list(dims))
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
