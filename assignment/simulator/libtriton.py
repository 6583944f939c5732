"""Stands in for Triton's compiled part, where there is none: what the language needs of it, without a compiler.

`stand_in()` makes it `triton._C.libtriton`, for the VERSIONS whose it was compared with: kept_triton.py
has this called. A name that is missing here raises AttributeError, and what only a compiler has raises
NeedsCompiler when it is used. `python -m assignment.tests.upgrade` compares all this with the real one.
"""

import os
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn, TypeAlias, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

    from .kernel_values import LaunchArgument
    from .triton_private import CUDABackend, TensorWrapper

    Pointer: TypeAlias = Tensor | TensorWrapper

Types: TypeAlias = "str | tuple[Types, ...]"
Values: TypeAlias = "LaunchArgument | tuple[Values, ...]"
Default = TypeVar("Default")
VERSIONS = ("3.9.0",)
ONES = ("1", "on", "true", "y", "yes")  # values of environment variables
NOT_HERE = "{} is in Triton's compiled part, which is not installed here: it needs Linux"
SCALE_FACTORS = (16, 32)
INT32, INT64, UINT64 = range(-(2**31), 2**31), range(-(2**63), 2**63), range(2**64)


class NeedsCompiler(RuntimeError):
    """Something of Triton's compiler was used where there is none."""


class LibraryModule(ModuleType):
    """A module of the compiled part."""

    def __getattr__(self, name: str) -> NoReturn:
        raise missing(self.__name__, name)


class OfCompiler:
    """A class or function of the compiler's, which is imported where it is not called."""

    def __init__(self, *_, **__) -> None:
        raise NeedsCompiler(NOT_HERE.format(type(self).__name__))


def missing(module: str, name: str) -> AttributeError:
    return AttributeError(NOT_HERE.format(f"{module}.{name}"))


def __getattr__(name: str) -> NoReturn:
    raise missing("triton._C.libtriton", name)


def of_compiler(*names: str) -> dict[str, type[OfCompiler]]:
    return {name: type(name, (OfCompiler,), {}) for name in names}


def enumeration(name: str, words: str, first: int = 0) -> type[Enum]:
    """Return one whose members have numbers in a row, but for those that are said as WORD=NUMBER."""
    members, number = {}, first
    for word, _, said in (text.partition("=") for text in words.split()):
        number = int(said or number)
        members[word], number = number, number + 1
    return Enum(name, members)  # type: ignore[return-value]


def enumerations(words: dict[str, str]) -> dict[str, type[Enum]]:
    return {name: enumeration(name, members) for name, members in words.items()}


def part(name: str, **members: type | Callable | int) -> LibraryModule:
    module = LibraryModule(f"triton._C.libtriton.{name}")
    module.__dict__.update(members)
    return module


def deduce_scale_factor(
    lhs: Sequence[int],
    lhs_scale: Sequence[int] | None,
    lhs_format: Enum,
    lhs_k_pack: bool,
    rhs: Sequence[int],
    rhs_scale: Sequence[int] | None,
    rhs_format: Enum,
    rhs_k_pack: bool,
) -> int:
    """Return how many elements of K share a scale; the arguments are shapes of operands and scales."""
    of_lhs = _scale_factor(lhs[-1], lhs_scale, lhs_format, lhs_k_pack)
    of_rhs = _scale_factor(rhs[-2], rhs_scale, rhs_format, rhs_k_pack)
    if of_lhs and of_rhs and of_lhs != of_rhs:
        raise RuntimeError(f"Operands must have the same scale factor; (lhs: {of_lhs} vs rhs: {of_rhs})")
    return of_lhs or of_rhs or max(SCALE_FACTORS)


def _scale_factor(k: int, scale: Sequence[int] | None, form: Enum, is_packed: bool) -> int:
    if scale is None:
        return 0
    found = k * (2 if form.name == "E2M1" and is_packed else 1) // scale[-1]
    if found not in SCALE_FACTORS:
        raise RuntimeError(f"scale factor must be 16 or 32. Got {found}")
    return found


ir = part(
    "ir",
    **enumerations(
        {
            "ATOMIC_OP": "ADD=4 FADD AND=1 OR XOR XCHG=10 MAX=6 MIN UMIN=9 UMAX=8",
            "CACHE_MODIFIER": "NONE=1 CA CG WB CS WT CV",
            "DESCRIPTOR_REDUCE_KIND": "ADD=1 AND=6 OR XOR MAX=3 MIN=2 INC=4 DEC",
            "EVICTION_POLICY": "NORMAL=1 EVICT_FIRST EVICT_LAST",
            "INPUT_PRECISION": "TF32 TF32x3 IEEE BF16x3 BF16x6",
            "MEM_SEMANTIC": "ACQUIRE_RELEASE=4 ACQUIRE=2 RELEASE RELAXED=1",
            "MEM_SYNC_SCOPE": "GPU=1 CTA SYSTEM",
            "PADDING_OPTION": "PAD_ZERO=1 PAD_NAN",
            "PROPAGATE_NAN": "NONE ALL=65535",
            "ROUNDING_MODE": "RTZ RTNE",
            "ScaleDotElemTypeTY": "E4M3 E5M2 E2M3 E3M2 E2M1 BF16 FP16",
        }
    ),
    **of_compiler("value", "type", "builder"),
    deduce_scale_factor=deduce_scale_factor,
)
interpreter = part(
    "interpreter",
    **enumerations(
        {
            "MEM_SEMANTIC": "ACQUIRE_RELEASE ACQUIRE RELEASE RELAXED",
            "RMW_OP": "ADD FADD AND OR XOR XCHG MAX MIN UMIN UMAX",
        }
    ),
)
linear_layout = part("linear_layout", **of_compiler("LinearLayout"))
_GLUONS = "compute_amd_efficient_padded_shared_layout get_amd_mfma_scale_layout get_amd_wmma_scale_layout"
gluon_ir = part("gluon_ir", **of_compiler("GluonOpBuilder", "compute_tmem_reg_layout", *_GLUONS.split()))
passes, llvm, nvidia, amd, proton = map(part, ("passes", "llvm", "nvidia", "amd", "proton"))
gsan_testing = part("gsan_testing", PER_DEVICE_STATE_STRIDE_BYTES=2**30)


vars().update(of_compiler("get_cache_invalidating_env_vars", "make_tensordesc_args"))


def getenv(name: str, default: Default | None = None) -> str | Default | None:
    """Return what the environment has now."""
    if not isinstance(name, str):
        raise TypeError("name must be a string")
    return os.environ.get(name, default)


def getenv_bool(name: str, default: Default) -> bool | Default:
    value = os.environ.get(name)
    return default if value is None else value.lower() in ONES


def native_specialize_impl(
    backend: "type[CUDABackend]", arg: "LaunchArgument", is_const: bool, specialize_value: bool, align: bool
) -> tuple[Types, Values]:
    """Return the type of a launch's argument, and what is compiled in of its value."""
    from .triton_private import JITCallable, TensorDescriptor, tl  # load Triton, which loads this module

    match arg:
        case None | tl.constexpr():
            return "constexpr", arg
        case bool():
            return "u1", None
        case int():
            return _of_integer(arg, specialize_value, align)
        case float():
            return "fp32", None
        case tuple():
            return _of_tuple(backend, arg)
        case JITCallable():
            return "constexpr", arg.cache_key
        case TensorDescriptor():
            return f"tensordesc<{_dtype(arg.base)}{list(arg.block_shape)}>", None
    if hasattr(arg, "data_ptr"):
        return _of_pointer(backend, arg, is_const, specialize_value, align)
    raise _unknown(arg)


def _unknown(arg: "LaunchArgument") -> TypeError:
    return TypeError(f"failed to specialize argument of type: {type(arg).__name__}")


def _of_integer(arg: int, specialize_value: bool, align: bool) -> tuple[str, int | str | None]:
    value, kinds = int(arg), (("i32", INT32), ("i64", INT64), ("u64", UINT64))
    if (kind := next((name for name, numbers in kinds if value in numbers), None)) is None:
        raise OverflowError("integer to be specialized too large to represent")
    if not specialize_value:
        return kind, None
    return ("constexpr", arg) if value == 1 else (kind, "D" if align and value % 16 == 0 else "")


def _of_tuple(backend: "type[CUDABackend]", arg: tuple) -> tuple[tuple, tuple]:
    """Return types and values of a tuple's elements, as tuples of its kind where their elements have names."""
    try:
        found = [native_specialize_impl(backend, one, False, True, True) for one in arg]
    except TypeError:
        raise _unknown(arg) from None
    parts = [one[0] for one in found], [one[1] for one in found]
    types, values = (type(arg)(*part) if hasattr(arg, "_fields") else tuple(part) for part in parts)
    return types, values


def _of_pointer(
    backend: "type[CUDABackend]", arg: "Pointer", is_const: bool, specialize_value: bool, align: bool
) -> tuple[str, str | None]:
    kind = f"*{'k' if is_const else ''}{_dtype(arg)}"
    if not specialize_value:
        return kind, None
    if not backend.supports_native_tensor_specialization:
        return kind, backend.get_tensor_specialization(arg, align=align)
    return kind, "D" if align and arg.data_ptr() % 16 == 0 else ""


def _dtype(arg: "Pointer") -> str:
    from .triton_private import type_canonicalisation_dict  # loads Triton, which loads this module

    return type_canonicalisation_dict[str(arg.dtype).rpartition(".")[2]]


def stand_in() -> None:
    """Make this module `triton._C.libtriton`; raises ImportError for a Triton that it does not know."""
    version = sys.modules["triton"].__version__
    if version not in VERSIONS:
        raise ImportError(f"expected Triton {' or '.join(VERSIONS)} where its compiled part is missing, got {version}")
    here = sys.modules[__name__]
    sys.modules["triton._C.libtriton"] = here
    sys.modules |= {one.__name__: one for one in vars(here).values() if isinstance(one, LibraryModule)}
