"""`triton.language` bound to the simulator's builder, once per process.

Compiled Triton passes `_semantic` to every builtin; here each builtin gets it by itself, so that a kernel can call
them as plain Python. Outside a launch they still refuse, as they do on a GPU.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

from . import numerics
from . import semantic as semantics
from .builder import Builder
from .elementwise import Handle

builder = Builder()
semantic: Any = semantics.Semantic(builder)


def install() -> None:
    """Patch `triton.language` and the globals of Triton's interpreter."""
    semantics.install()
    interpreter.TensorHandle = Handle
    interpreter._get_np_dtype = numerics.numpy_type
    interpreter.interpreter_builder = builder
    interpreter.interpreter_semantic = semantic
    for ty in (tl.dtype, tl.pointer_type, tl.block_type):
        ty.to_ir = lambda self, builder: self
    _patch_special_functions()
    for namespace in (tl, tl.core, tl.math, tl.tensor, tl.core.tensor_descriptor_base, tl.core.tensor_descriptor):
        _bind_builtins(namespace)
    _bind_libdevice()
    _patch_tensor()
    _patch_constexpr()
    _patch_ranges()


def _bind_builtins(namespace: Any) -> None:
    for name, member in list(vars(namespace).items()):
        if tl.core.is_builtin(member) and not inspect.isclass(member):
            setattr(namespace, name, _bound(member))


def _bound(member: Callable) -> Callable:
    """A builtin that finds the semantic by itself."""
    function = getattr(member, "__wrapped__", member)

    def call(*args: Any, **kwargs: Any) -> Any:
        if builder.grid_idx is None:
            raise ValueError(f"{member.__name__} can only be called in a function decorated with @triton.jit")
        kwargs["_semantic"] = semantic
        return function(*args, **kwargs)

    call.__name__ = member.__name__
    call.__doc__ = member.__doc__
    return call


def _patch_special_functions() -> None:
    """Functions that ask the compiler for more than an operation of the builder."""
    from . import reductions

    replacements: dict[str, Callable] = {
        "reduce": reductions.reduce,
        "associative_scan": reductions.associative_scan,
        "map_elementwise": reductions.map_elementwise,
        "static_print": lambda *values, _semantic=None, **kwargs: print(*values, **kwargs),
        "static_assert": _static_assert,
        "multiple_of": _hint,
        "max_contiguous": _hint,
        "max_constancy": _hint,
    }
    for name, function in replacements.items():
        for namespace in (tl, tl.core):
            setattr(namespace, name, function)
    tl.tensor.reduce = reductions.reduce
    tl.tensor.associative_scan = reductions.associative_scan


def _hint(input: Any, values: Any, _semantic: Any = None) -> Any:
    return input


def _static_assert(cond: Any, msg: Any = "", _semantic: Any = None) -> None:
    if not cond:
        raise AssertionError(f"tl.static_assert: {msg}")


def _bind_libdevice() -> None:
    """libdevice's names reach the builder as `create_extern_elementwise`."""
    from triton.language.extra import libdevice
    from triton.language.extra.cuda import libdevice as cuda

    _bind_builtins(cuda)
    for name, member in vars(cuda).items():
        if not name.startswith("_") and inspect.isfunction(member):
            setattr(libdevice, name, member)


def _patch_tensor() -> None:
    cls = tl.tensor
    cls.__bool__ = _truth
    cls.__index__ = lambda self: int(self.handle.data.item())
    cls.__repr__ = cls.__str__ = lambda self: str(self.handle.data)
    cls.T = property(lambda self: semantic.permute(self, (1, 0)))


def _truth(self: Any) -> bool:
    """Triton's own code asks `if mask`, meaning whether there is one. Kernels ask `control.truth`."""
    data = self.handle.data
    return bool(data.item()) if data.size == 1 else True


def _patch_constexpr() -> None:
    """`constexpr * tensor` is left to the tensor, as the compiler does."""
    arithmetic = ("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift")
    for name in (*arithmetic, "lt", "le", "gt", "ge", "eq", "ne"):
        method = f"__{name}__"
        setattr(tl.constexpr, method, _unless_tensor(getattr(tl.constexpr, method)))


def _unless_tensor(method: Callable) -> Callable:
    def operator(self: Any, other: Any) -> Any:
        return NotImplemented if isinstance(other, tl.tensor) else method(self, other)

    return operator


def _patch_ranges() -> None:
    """`tl.range` gives scalar tensors; `tl.static_range` plain ints."""
    from . import control

    def iterate(self: Any) -> Iterator[Any]:
        return control.loop(self.start, self.end, self.step)

    def static_init(self: Any, arg1: Any, arg2: Any = None, step: Any = None) -> None:
        start, stop = (0, arg1) if arg2 is None else (arg1, arg2)
        self.start, self.end, self.step = (_constexpr(x) for x in (start, stop, 1 if step is None else step))

    def static_iterate(self: Any) -> Iterator[int]:
        return iter(range(self.start.value, self.end.value, self.step.value))

    tl.range.__iter__ = iterate
    tl.static_range.__init__ = static_init
    tl.static_range.__iter__ = static_iterate


def _constexpr(value: Any) -> Any:
    if isinstance(value, tl.tensor):
        raise TypeError(f"tl.static_range needs values known at compile time, got {value.type}")
    return tl.constexpr(value)
