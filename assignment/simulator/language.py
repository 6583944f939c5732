"""`triton.language` bound to the simulator's builder, once per process.

Compiled Triton passes `_semantic` to every builtin; here each builtin gets it by itself, so that a
kernel can call them as plain Python. Outside a launch they still refuse, as they do on a GPU.
"""

import inspect
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import NoReturn

import triton.language as tl

from assignment.whose import for_them, theirs

from . import control, numerics, reductions
from . import semantic as semantics
from .alignment import HINTS
from .elementwise import Handle
from .faults import UNSUPPORTED
from .kernel_values import KernelFunction, KernelValue, static
from .properties import H100
from .semantic import builder, semantic
from .triton_private import BUILTINS_IN, HAS_BLOCK_POINTERS, NO_BLOCK_POINTERS, interpreter

WITHOUT_BODY = "is not supported by Triton, which gives None: call"


def install() -> None:
    """Patch `triton.language` and the globals of Triton's interpreter."""
    semantics.install()
    interpreter.TensorHandle = Handle
    interpreter._get_np_dtype = numerics.numpy_type
    interpreter.interpreter_builder = builder
    interpreter.interpreter_semantic = semantic
    for ty in (tl.dtype, tl.pointer_type, tl.block_type):
        ty.to_ir = _type_itself
    _patch_special_functions()
    for namespace in BUILTINS_IN:
        _bind_builtins(namespace)
    semantics.hasten()
    _bind_libdevice()
    _bind_hardware()
    if not HAS_BLOCK_POINTERS:
        _patch_block_pointers()
    _patch_tensor()
    _patch_constexpr()
    _patch_ranges()


def _type_itself(self: tl.dtype, builder: semantics.Builder) -> tl.dtype:
    """Return the type itself in place of its IR type; raises ValueError if a GPU lacks it."""
    name, known = self.scalar.name, builder.options.supported_fp8_dtypes
    if name.startswith("fp8") and name not in known:
        raise ValueError(f"type {name} not supported in this architecture. The supported fp8 dtypes are {known}")
    return self


def _bind_builtins(namespace: ModuleType | type) -> None:
    for name, member in list(vars(namespace).items()):
        if _asks_for_semantic(member, is_method=inspect.isclass(namespace)):
            setattr(namespace, name, _bound(name, member))


def _asks_for_semantic(member: KernelFunction | type, is_method: bool) -> bool:
    """Return whether the compiler passes `_semantic`: to builtins, and to methods that take it."""
    if inspect.isclass(member):
        return False
    takes = is_method and inspect.isfunction(member) and "_semantic" in inspect.signature(member).parameters
    return takes or tl.core.is_builtin(member)


def _bound(name: str, member: Callable) -> Callable:
    """Return a builtin that finds the semantic by itself."""
    function = getattr(member, "__wrapped__", member)

    @for_them
    def call(*args: KernelValue, **kwargs: KernelValue) -> KernelValue:
        if builder.grid_idx is None:
            raise ValueError(f"{name} can only be called in a function decorated with @triton.jit")
        kwargs["_semantic"] = semantic
        return function(*args, **kwargs)

    call.__name__, call.__doc__ = name, member.__doc__
    return call


def _patch_special_functions() -> None:
    """Replace functions that ask the compiler for more than an operation of the builder."""
    replacements: dict[str, Callable] = {
        "reduce": reductions.reduce,
        "associative_scan": reductions.associative_scan,
        "map_elementwise": reductions.map_elementwise,
        "static_print": static_print,
        "static_assert": static_assert,
        **{name: _hint(name) for name in HINTS},
    }
    for name, function in replacements.items():
        for namespace in (tl, tl.core):
            setattr(namespace, name, function)
    tl.tensor.reduce = reductions.reduce
    tl.tensor.associative_scan = reductions.associative_scan


def _hint(name: str) -> Callable[..., tl.tensor]:
    """Return what stands in for a hint: the compiler believes it of the value itself, wherever that is used."""

    def hint(input: tl.tensor, values: int | Sequence[int], _semantic: semantics.Semantic | None = None) -> tl.tensor:
        values = static(values)
        sizes: tuple[int, ...] = tuple(map(static, values)) if isinstance(values, Sequence) else (values,)
        if not isinstance(input, tl.tensor):
            raise TypeError(f"tl.{name} takes a tensor, got {input!r}, a constant to the compiler, as a stride of 1 is")
        if len(sizes) != max(1, len(input.shape)):
            raise ValueError(f"Shape of input to {name} does not match the length of values")
        builder.believe(name, input.handle, tuple(max(size, 1) for size in sizes))
        return input

    return hint


def static_print(*values: KernelValue, _semantic: None = None, **kwargs: KernelValue) -> None:
    """Print what is known when a kernel is compiled, once for each compilation."""
    if builder.is_compiling():
        print(*values, **kwargs)  # type: ignore[arg-type]


def smid() -> tl.tensor:
    """Return the number of the multiprocessor that runs the program, as the GPU might have shared them out."""
    assert builder.grid_idx, "called by a kernel"
    (x, y, z), (n_x, n_y, _) = builder.grid_idx, builder.grid_dim
    number = (x + n_x * (y + n_y * z)) % int(H100["multi_processor_count"])
    return semantic.to_tensor(number)


def static_assert(*args: KernelValue, **kwargs: KernelValue) -> None:
    if not 0 < len(args) <= 2 or kwargs:
        raise TypeError("`static_assert` requires one or two positional arguments only")
    passed, message = (getattr(arg, "value", arg) for arg in (*args, "")[:2])
    if not isinstance(passed, bool):
        raise TypeError(
            "Assertion condition could not be determined at compile-time. Make sure that it depends only on "
            "`constexpr` values"
        )
    if not passed:
        raise AssertionError(f"tl.static_assert: {message() if callable(message) else message}")


def _bind_libdevice() -> None:
    """Bind libdevice's functions: they reach the builder as `create_extern_elementwise`."""
    from triton.language.extra import libdevice
    from triton.language.extra.cuda import libdevice as cuda

    _bind_builtins(cuda)
    for name, member in vars(cuda).items():
        if not name.startswith("_") and inspect.isfunction(member):
            setattr(libdevice, name, member)


def _bind_hardware() -> None:
    """Bind the functions of `tl.extra.cuda` that have a meaning here.

    These are the number of threads, and the wait for the previous launch, which is over.
    """
    from triton.language.extra import cuda, hip

    for module in (cuda, hip):
        for name, member in list(vars(module).items()):
            if not tl.core.is_builtin(member):
                continue
            if name in ("num_warps", "num_threads"):
                setattr(module, name, _bound(name, member))
            elif name == "smid":
                setattr(module, name, smid)
            elif name.startswith("gdc_"):
                setattr(module, name, lambda: None)
            else:
                setattr(module, name, _refusing(f"tl.extra.{module.__name__.rpartition('.')[2]}.{name} {UNSUPPORTED}"))


def _refusing(message: str) -> Callable:
    """Return what stands in for a function that a kernel cannot call."""

    def refuse(*args: KernelValue, **kwargs: KernelValue) -> NoReturn:
        raise NotImplementedError(message)

    return refuse


def _patch_block_pointers() -> None:
    """Say of block pointers what takes their place."""
    for name in ("make_block_ptr", "advance"):
        for namespace in (tl, tl.core, tl.tensor):
            if hasattr(namespace, name):
                setattr(namespace, name, _refusing(NO_BLOCK_POINTERS.format(name)))


def _as_index(value: tl.tensor) -> int:
    if value.handle.data.size != 1:
        raise TypeError(f"expected one integer, got a block of shape {value.handle.data.shape}")
    return int(value.handle.data.item())


def _patch_tensor() -> None:
    cls = tl.tensor
    cls.__bool__ = lambda self: True  # Triton's own code asks `if other`, meaning that there is one
    cls.__index__ = _as_index
    cls.__repr__ = cls.__str__ = lambda self: str(self.handle.data)
    cls.T = property(lambda self: theirs(semantic.permute, self, (1, 0)))
    for name, member in list(vars(cls).items()):
        is_own = inspect.isfunction(member) and member.__qualname__ == f"tensor.{name}"
        if is_own and not name.startswith("_") and not tl.core.is_builtin(member):
            # Triton declares it without a body
            setattr(cls, name, _refusing(f"x.{name}() {WITHOUT_BODY} tl.{name}(x)"))


def _patch_constexpr() -> None:
    """Make `constexpr * tensor` call the tensor's operator, as the compiler does."""
    arithmetic = ("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift")
    for name in (*arithmetic, "lt", "le", "gt", "ge", "eq", "ne"):
        method = f"__{name}__"
        setattr(tl.constexpr, method, _unless_tensor(getattr(tl.constexpr, method)))


def _unless_tensor(method: Callable) -> Callable:
    def operator(self: tl.constexpr, other: KernelValue) -> KernelValue:
        return NotImplemented if isinstance(other, tl.tensor) else theirs(method, self, other)

    return operator


def _patch_ranges() -> None:
    """Make `tl.range` give scalar tensors, and `tl.static_range` plain ints."""

    def static_init(
        self: tl.static_range, arg1: KernelValue, arg2: KernelValue = None, step: KernelValue = None
    ) -> None:
        start, stop = (0, arg1) if arg2 is None else (arg1, arg2)
        self.start, self.end, self.step = (_constexpr(x) for x in (start, stop, 1 if step is None else step))

    tl.range.__iter__ = lambda self: control.loop(self.start, self.end, self.step)
    tl.static_range.__init__ = static_init
    tl.static_range.__iter__ = lambda self: iter(range(self.start.value, self.end.value, self.step.value))


def _constexpr(value: KernelValue) -> tl.constexpr:
    if isinstance(value, tl.tensor):
        raise TypeError(f"tl.static_range needs values known at compile time, got {value.type}")
    return tl.constexpr(value)
