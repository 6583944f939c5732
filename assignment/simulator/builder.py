"""The operations of Triton's intermediate language on NumPy arrays.

`Builder` takes the place of the MLIR builder in Triton's compiler: `triton.language` calls
`create_fadd(lhs, rhs)` and so on, and the result is computed at once. Values are `Handle`s: an
array and the Triton type of its elements; a scalar is an array of shape (1,).
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np
import triton.language as tl

from assignment.whose import theirs

from . import access, numerics, scaled
from .elementwise import Elementwise, Handle, NoticedResult
from .faults import UNSUPPORTED, place
from .kernel_values import KernelValue
from .libdevice import extern_function, is_exact
from .numerics import BFLOAT16, convert, numpy_type
from .scheduled import Order, exchange_if_equal
from .triton_private import (
    HISTOGRAM_LEAVES_OUT,
    CUDABackend,
    GPUTarget,
    Hint,
    NullAllocator,
    allocator,
    interpreter,
    ir,
)

TARGET = GPUTarget("cuda", 90, 32)


class DoesNotHold(AssertionError):
    """A condition that a kernel asserts, or promises, while it runs."""


class Builder(Elementwise):
    """Triton's interpreter with the numerics of a Hopper GPU."""

    def __init__(self) -> None:
        super().__init__()
        backend: CUDABackend = CUDABackend(TARGET)
        self.options = backend.parse_options({"sanitize_overflow": False, "debug": False})
        self._fuses = self.options.enable_fp_fusion
        functions = backend.get_codegen_implementation(self.options)
        self.codegen_fns["min_dot_size"] = functions["min_dot_size"]
        self.grid_idx: tuple[int, int, int] | None = None  # None while no kernel runs
        self.grid_dim = (0, 0, 0)
        self.compiles: Callable[[], bool] = lambda: False  # whether this launch is the first of its kind
        self._compiling: tuple[int, int, int] | None = None  # the program in which that was asked

    def launched(self, compiles: Callable[[], bool]) -> None:
        """Begin a launch, of which `compiles` says once whether the kernel must be compiled for it."""
        self.compiles, self._compiling = functools.cache(compiles), None

    def is_compiling(self) -> bool:
        """Return whether what runs stands for a compilation: one program of a launch that needs one."""
        self._compiling = self._compiling or self.grid_idx
        return self._compiling == self.grid_idx and not self.watch.is_rehearsal and self.compiles()

    def set_options(self, debug: bool, num_warps: int, fuses: bool | None) -> None:
        """Set whether assertions are compiled in, the warps of a program, whether products are fused with sums."""
        wanted = (debug, num_warps, self._fuses if fuses is None else fuses)
        if wanted != (self.options.debug, self.options.num_warps, self.options.enable_fp_fusion):
            names = ("debug", "num_warps", "enable_fp_fusion")
            self.options = theirs(dataclasses.replace, self.options, **dict(zip(names, wanted, strict=True)))

    def leave(self) -> Callable[[], None]:
        """Let a program of another launch run; returns what goes on with this one."""
        kind, state = type(self), dict(self.__dict__)

        def enter() -> None:
            self.__class__ = kind
            self.__dict__.clear()
            self.__dict__.update(state)

        return enter

    def believe(self, hint: str, value: Handle, sizes: tuple[int, ...]) -> None:
        """Do nothing: where a kernel has hints, alignment.py's builder takes this one's place."""

    def entering(self, value: KernelValue) -> KernelValue:
        """Return a device function's argument, as the function has it.

        That is a constant's value, but for a tuple, of whose elements the compiler knows less than of a tuple's own.
        """
        return value.value if isinstance(value, tl.constexpr) and not isinstance(value.value, tuple) else value

    # shapes

    def create_splat(self, ret_ty: tl.dtype, arg: Handle) -> Handle:
        if not isinstance(arg, Handle):
            raise TypeError(f"expected a value, got {arg}: what stores or prints returns none")
        data = np.empty_like(arg.data, shape=tuple(ret_ty.shape))
        data.fill(arg.data[0])
        return Handle(data, arg.dtype)

    def create_broadcast(self, arg: Handle, shape: Sequence[int]) -> Handle:
        return Handle(np.broadcast_to(arg.data, tuple(shape)), arg.dtype)

    def create_expand_dims(self, arg: Handle, axis: int) -> Handle:
        shape = arg.data.shape
        return Handle(arg.data.reshape((*shape[:axis], 1, *shape[axis:])), arg.dtype)

    def create_reshape(self, arg: Handle, shape: Sequence[int], allow_reorder: bool) -> Handle:
        reshape = self.watch.reordered if allow_reorder else np.reshape
        return Handle(reshape(arg.data, tuple(shape)), arg.dtype.scalar)

    def create_cat(self, lhs: Handle, rhs: Handle) -> Handle:
        """Put two blocks into one, in any order: Triton has no other `tl.cat`."""
        both = np.concatenate([lhs.data, rhs.data])
        return Handle(self.watch.reordered(both, both.shape), lhs.dtype.scalar)

    # matrix product

    def create_dot(
        self, a: Handle, b: Handle, d: Handle, input_precision: ir.INPUT_PRECISION, max_num_imprecise_acc: int
    ) -> Handle:
        lhs, rhs = self._operand(a, input_precision), self._operand(b, input_precision)
        self.watch.dot(lhs, rhs, _operand_type(a, input_precision))
        return Handle((self._product(lhs, rhs) + d.data).astype(d.data.dtype), d.dtype)

    def _product(self, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        """Multiply; a call whose last bits are moved adds in another order."""
        half = lhs.shape[-1] // 2
        if not self.watch.draws.moves or lhs.dtype.kind != "f":
            return np.matmul(lhs, rhs)
        return np.matmul(lhs[..., half:], rhs[..., half:, :]) + np.matmul(lhs[..., :half], rhs[..., :half, :])

    def create_dot_scaled(
        self,
        lhs: Handle,
        lhs_scale: Handle | None,
        lhs_format: ir.ScaleDotElemTypeTY,
        rhs: Handle,
        rhs_scale: Handle | None,
        rhs_format: ir.ScaleDotElemTypeTY,
        fast_math: bool,
        lhs_k_pack: bool,
        rhs_k_pack: bool,
        acc: Handle,
    ) -> Handle:
        """Multiply exactly, then round the sum with `acc` once to float32."""
        e2m1 = ir.ScaleDotElemTypeTY.E2M1
        a = scaled.operand(lhs.data, lhs_scale, lhs_format == e2m1, bool(lhs_k_pack))
        columns = rhs.data.swapaxes(-1, -2)
        b = scaled.operand(columns, rhs_scale, rhs_format == e2m1, bool(rhs_k_pack)).swapaxes(-1, -2)
        if a.shape[:-2] != b.shape[:-2]:
            raise ValueError(f"tl.dot_scaled: the operands have batches {a.shape[:-2]} and {b.shape[:-2]}")
        formats = dict.fromkeys((lhs_format.name.lower(), rhs_format.name.lower()))
        self.watch.dot(a, b, " × ".join(formats))
        return Handle((np.matmul(a, b) + acc.data).astype(acc.data.dtype), acc.dtype)

    def _operand(self, x: Handle, input_precision: ir.INPUT_PRECISION) -> np.ndarray:
        """Return what the tensor core reads of `x`, in a type in which its products are exact."""
        if x.dtype.is_fp8():
            return self.create_fp_to_fp(x, tl.float32, None).data
        if x.data.dtype in (BFLOAT16, np.float16):
            return x.data.astype(np.float32)
        if x.data.dtype.itemsize == 1:
            return x.data.astype(np.int32)
        if x.data.dtype == np.float32 and input_precision == ir.INPUT_PRECISION.TF32:
            return numerics.truncate_to_tf32(x.data)
        return x.data

    # memory

    def load(self, ptrs: Handle, mask: Handle | np.ndarray | None, other: Handle | None, is_volatile: bool) -> Handle:
        ty = _element_type(ptrs)
        fill = None if other is None else other.data
        if isinstance(mask, Handle) and mask.dtype.scalar != tl.int1:  # Triton says so of a store, and fails at a load
            raise ValueError(f"Mask must have boolean scalar type, got {mask.dtype}: write a comparison")
        load = functools.partial(access.load, self.watch, ptrs.data, array_of(mask), fill, numpy_type(ty))
        return Handle(self._poll(ptrs, mask, Order(), load) if is_volatile else load(), ty)

    def _poll(
        self, ptrs: Handle, mask: Handle | np.ndarray | None, order: Order, load: Callable[[], np.ndarray]
    ) -> np.ndarray:
        """Return what a volatile or atomic load gives: a program that finds the same again waits for others."""
        lanes = np.broadcast_to(True if mask is None else array_of(mask), ptrs.data.shape)  # type: ignore[arg-type]
        active = ptrs.data[lanes]
        if active.size:
            self.watch.polls(active, order)
        values = load()
        self.watch.found(active, values[lanes])
        return values

    def store(self, ptrs: Handle, value: Handle, mask: Handle | np.ndarray | None) -> None:
        values = convert(value.data, numpy_type(_element_type(ptrs)))
        access.store(self.watch, ptrs.data, values, array_of(mask))

    def create_descriptor_load(self, desc: interpreter.TensorDescHandle, indices: list[Handle], *hints: Hint) -> Handle:
        ptrs, mask = _block_of(desc, indices)
        ty = ptrs.get_element_ty()
        fill = math.nan if desc.padding == ir.PADDING_OPTION.PAD_NAN else 0
        loaded = self.load(ptrs, mask, Handle(np.array([fill]).astype(numpy_type(ty)), ty), False)
        if getattr(desc, "round_f32_to_tf32", False) and ty == tl.float32:
            return Handle(numerics.round_to_tf32(loaded.data), ty)
        return loaded

    def create_descriptor_store(self, desc: interpreter.TensorDescHandle, value: Handle, indices: list[Handle]) -> None:
        ptrs, mask = _block_of(desc, indices)
        self.store(ptrs, value, mask)

    def create_barrier(self) -> None:
        self.watch.barrier()

    def create_atomic_cas(
        self, ptr: Handle, cmp: Handle, val: Handle, sem: ir.MEM_SEMANTIC, scope: ir.MEM_SYNC_SCOPE
    ) -> Handle:
        types = [ptr.get_element_ty(), cmp.get_element_ty(), val.get_element_ty()]
        if len({(ty.primitive_bitwidth, ty.is_floating()) for ty in types}) > 1:
            raise TypeError(f"tl.atomic_cas on {types[0]} got {types[1]} and {types[2]}: cast them to {types[0]}")
        bits = f"u{val.data.itemsize}"
        new, expected = val.data.view(bits), cmp.data.view(bits)
        order = _order(sem, scope)
        old = access.update(self.watch, ptr.data, None, exchange_if_equal, new, expected, order=order).old
        return Handle(old.view(val.data.dtype), val.dtype)

    def create_atomic_rmw(
        self, op: ir.ATOMIC_OP, ptr: Handle, val: Handle, mask: Handle, sem: ir.MEM_SEMANTIC, scope: ir.MEM_SYNC_SCOPE
    ) -> Handle:
        order = _order(sem, scope)
        old, is_drawn = access.update(self.watch, ptr.data, mask.data, _UPDATES[op.name], val.data, order=order)
        is_told, is_whole = is_drawn and op.name in _TICKETS, mask.data.all()
        if is_whole and not is_told:
            return Handle(old, val.dtype)
        where = place()

        def use() -> np.ndarray:
            if is_told:
                self.watch.tell_tickets(where)
            what = "uses what an atomic returns in masked-out lanes"
            return old if is_whole else self.watch.undefined_result(what, old, ~mask.data, where)

        return NoticedResult(val.dtype, use)

    def create_atomic_load(self, ptr: Handle, mask: Handle, sem: ir.MEM_SEMANTIC, scope: ir.MEM_SYNC_SCOPE) -> Handle:
        ty = ptr.get_element_ty()
        load = functools.partial(access.load, self.watch, ptr.data, mask.data, None, numpy_type(ty))
        return Handle(self._poll(ptr, mask, _order(sem, scope), load), ty)

    def create_atomic_store(
        self, ptr: Handle, val: Handle, mask: Handle, sem: ir.MEM_SEMANTIC, scope: ir.MEM_SYNC_SCOPE
    ) -> None:
        values = convert(val.data, numpy_type(ptr.get_element_ty()))
        access.update(self.watch, ptr.data, mask.data, _exchange, values, order=_order(sem, scope))

    def create_atomic_poll(
        self, ptr: Handle, expected: Handle, timeout_ns: Handle | int, sem: ir.MEM_SEMANTIC, scope: ir.MEM_SYNC_SCOPE
    ) -> Handle:
        """Look again and again until it is there, or with a timeout once."""
        while True:
            self.watch.polls(ptr.data, _order(sem, scope))
            values = access.load(self.watch, ptr.data, None, None, numpy_type(ptr.get_element_ty()))
            is_there = values == expected.data
            if not is_there.all():
                missing = np.flatnonzero(~is_there)[:1]
                self.watch.found(ptr.data.ravel()[missing], values.ravel()[missing])
            if isinstance(timeout_ns, Handle) or is_there.all():
                return Handle(is_there, tl.int1)

    def create_descriptor_reduce(
        self, kind: ir.DESCRIPTOR_REDUCE_KIND, desc: interpreter.TensorDescHandle, value: Handle, indices: list[Handle]
    ) -> None:
        ptrs, mask = _block_of(desc, indices)
        access.update(self.watch, ptrs.data, array_of(mask), _UPDATES[kind.name], value.data)

    def create_make_tensor_descriptor(self, *args: Handle | list[Handle] | bool) -> interpreter.TensorDescHandle:
        # a descriptor made in the kernel lies in memory that the launcher must be able to allocate
        if self.grid_idx is not None and isinstance(allocator(), NullAllocator):
            raise RuntimeError(
                "Kernel requires a runtime memory allocation, but no allocator was set. "
                "Use triton.set_allocator to specify an allocator."
            )
        return theirs(super().create_make_tensor_descriptor, *args)

    # the rest

    def create_histogram(self, data: Handle, bins: int, mask: Handle | None) -> Handle:
        values = data.data if mask is None else data.data[mask.data]
        is_inside = (values >= 0) & (values < bins)
        counts = np.bincount(values[is_inside].astype(np.int64), minlength=bins).astype(np.int32)
        if not HISTOGRAM_LEAVES_OUT and not is_inside.all():
            what = "counts values outside of the bins of tl.histogram"
            counts = self.watch.undefined_result(what, counts, np.ones(bins, bool))
        return Handle(counts, tl.int32)

    def create_gather(self, src: Handle, indices: Handle, axis: int) -> Handle:
        index = indices.data
        is_outside = (index < 0) | (index >= src.data.shape[axis])
        values = np.take_along_axis(src.data, np.where(is_outside, 0, index), axis)
        if is_outside.any():
            values = self.watch.undefined_result("gathers at an index outside of its block", values, is_outside)
        return Handle(values, src.dtype.scalar)

    def create_extern_elementwise(
        self, lib_name: str, lib_path: str, symbol: str, args: list[Handle], ret_type: tl.dtype, is_pure: bool
    ) -> Handle:
        function, operands = extern_function(symbol), [a.data for a in args]
        result = np.asarray(function(*operands) if is_exact(symbol) else self.watch.draws.moved(function, *operands))
        return Handle(result.astype(numpy_type(ret_type)), ret_type.scalar)

    def create_inline_asm(self, asm: str, *args: Handle | str | list[Handle] | bool) -> NoReturn:
        code = " ".join(asm.split())
        code = code if len(code) < 60 else f"{code[:57]}..."
        raise NotImplementedError(
            f'tl.inline_asm_elementwise: inline assembly, "{code}", {UNSUPPORTED}: write it with operations of tl and '
            "libdevice"
        )

    def create_print(
        self, *args: Handle | str | list[Handle] | bool, **kwargs: Handle | str | list[Handle] | bool
    ) -> None:
        if not self.watch.is_rehearsal:
            theirs(super().create_print, *args, **kwargs)

    def create_assert(self, condition: Handle, message: str) -> None:
        if not condition:
            raise DoesNotHold(message)

    def create_assume(self, condition: Handle) -> None:
        if not condition:
            raise DoesNotHold("tl.assume: the condition does not hold")


def _block_of(desc: interpreter.TensorDescHandle, starts: list[Handle]) -> tuple[Handle, np.ndarray | None]:
    """Return the pointers of a descriptor's block, and which of its elements lie inside of the tensor; None: all."""
    element = desc.base.dtype.element_ty.primitive_bitwidth // 8
    first = [start.data.item() for start in starts]
    strides = tuple(element * stride.data.item() for stride in desc.strides)
    assert first[-1] * element % 16 == 0, "block offset start must be 16-byte aligned"
    start = desc.base.data.item() + sum(at * stride for at, stride in zip(first, strides, strict=True))
    ptrs = _offsets(tuple(desc.block_shape), strides) + np.uint64(start % 2**64)
    inside: np.ndarray | None = None
    for dim, (at, size) in enumerate(zip(first, desc.block_shape, strict=True)):
        n = desc.shape[dim].data.item()
        if at < 0 or at + size > n:
            along = np.arange(at, at + size).reshape([-1 if other == dim else 1 for other in range(len(first))])
            within = (along >= 0) & (along < n)
            inside = within if inside is None else inside & within
    mask = None if inside is None else np.broadcast_to(inside, ptrs.shape)
    return Handle(ptrs, desc.base.dtype.scalar), mask


@functools.lru_cache(maxsize=64)
def _offsets(sizes: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """Return how many bytes after the first each element of a block lies, modulo 2⁶⁴."""
    along = [np.arange(n, dtype=np.uint64) * np.uint64(by % 2**64) for n, by in zip(sizes, strides, strict=True)]
    return functools.reduce(np.add.outer, along)


def _element_type(ptrs: Handle) -> tl.dtype:
    """Return the type of what pointers point to."""
    if ptrs.dtype.scalar.element_ty.is_ptr():
        raise NotImplementedError(f"a table of pointers {UNSUPPORTED}: load an int64, and cast it to a pointer")
    return ptrs.get_element_ty()


def array_of(mask: Handle | np.ndarray | None) -> np.ndarray | None:
    """Return the mask's array; Triton's own code passes handles and plain arrays."""
    return mask.data if isinstance(mask, Handle) else mask


def _order(sem: ir.MEM_SEMANTIC, scope: ir.MEM_SYNC_SCOPE) -> Order:
    acquires = sem not in (ir.MEM_SEMANTIC.RELAXED, ir.MEM_SEMANTIC.RELEASE)
    releases = sem not in (ir.MEM_SEMANTIC.RELAXED, ir.MEM_SEMANTIC.ACQUIRE)
    return Order(acquires, releases, _SCOPES[scope.name])


def _operand_type(x: Handle, input_precision: ir.INPUT_PRECISION) -> str:
    """Return "bf16", or for float32 the precision of the product: "tf32", "tf32x3" or "ieee"."""
    return input_precision.name.lower() if x.data.dtype == np.float32 else str(x.dtype.scalar)


def _exchange(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    return new


# by the names of ir.ATOMIC_OP, and of ir.DESCRIPTOR_REDUCE_KIND, which has some of them
_UPDATES: dict[str, Callable[..., np.ndarray]] = {
    **dict.fromkeys(("ADD", "FADD"), np.add),
    **dict.fromkeys(("MIN", "UMIN"), np.minimum),
    **dict.fromkeys(("MAX", "UMAX"), np.maximum),
    "AND": np.bitwise_and,
    "OR": np.bitwise_or,
    "XOR": np.bitwise_xor,
    "XCHG": _exchange,
}
_SCOPES = {"CTA": "cta", "GPU": "gpu", "SYSTEM": "sys"}
_TICKETS = ("ADD", "FADD", "XCHG")  # of which something is told; Triton itself uses what others of floats return
