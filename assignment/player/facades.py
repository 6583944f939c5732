"""Triton's modules as kernels see them: modules with listed public members and nothing else.

They contain functions, types, dtypes and other facades only: no `tl.core.os`, no `tl.core.builtin`.
"""

import functools
import math
from types import FunctionType, ModuleType
from typing import TypeAlias

import triton
import triton.language as tl
from triton.language import core, random, standard
from triton.language.extra import cuda
from triton.language.extra.cuda import libdevice

from assignment.simulator.kernel_values import KernelFunction
from assignment.simulator.triton_private import InterpretedFunction, JITCallable

Facade: TypeAlias = KernelFunction | type | float  # what a module shows to kernels


_LIBDEVICE = "triton.language.extra.cuda.libdevice"
_MATH = """acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh degrees e erf erfc exp exp2 expm1 fabs
    floor fmod gamma hypot inf isclose isfinite isinf isnan lgamma log log10 log1p log2 nan pi pow radians remainder sin
    sinh sqrt tan tanh tau trunc"""
_OF_VALUES = """shape dtype type value numel scalar element_ty itemsize primitive_bitwidth name int_bitwidth
    int_signedness fp_mantissa_width exponent_bias address_space block_shape strides T start end stop step fields types
    ALL NONE SIGNED UNSIGNED BOOLEAN INTEGRAL FLOATING is_ptr is_block get_block_shapes"""
OF_PYTHON = frozenset(("bit_length", "startswith", "endswith", "upper", "lower"))  # methods of strings and numbers
_NOT_FOR_KERNELS = {"to_ir", "mangle", "cache_key_part", "codegen_name", "handle", "with_element_ty"}


def _is_jit(value: Facade) -> bool:
    return isinstance(value, (JITCallable, InterpretedFunction))


def _listed(module: ModuleType) -> dict[str, Facade]:
    """Return the public members of one of Triton's modules that kernels may use."""
    listed = {name: value for name, value in vars(module).items() if name in tl.__all__ or _is_jit(value)}
    return {name: v for name, v in listed.items() if not name.startswith("_") and not isinstance(v, ModuleType)}


def _functions(module: ModuleType) -> dict[str, Facade]:
    """Return the public functions that are written in a module or a module below it."""
    written = {name: v for name, v in vars(module).items() if _is_jit(v) or isinstance(v, FunctionType)}
    taken = ("wraps", "constexpr_function")  # from elsewhere
    return {name: v for name, v in written.items() if not name.startswith("_") and name not in taken}


@functools.cache
def facades() -> dict[str, ModuleType]:
    """Return the facades by the names of the modules that they stand for."""
    members: dict[str, dict[str, Facade]] = {
        "math": {name: getattr(math, name) for name in _MATH.split() if hasattr(math, name)},
        "triton": {name: getattr(triton, name) for name in ("cdiv", "next_power_of_2")},
        "triton.language": _listed(tl),
        "triton.language.math": _listed(tl.math),
        "triton.language.core": _listed(core),
        "triton.language.standard": _listed(standard),
        "triton.language.random": _listed(random),
        "triton.language.extra": {},
        "triton.language.extra.cuda": _functions(cuda),
        _LIBDEVICE: _functions(libdevice),
    }
    if target_info := getattr(tl, "target_info", None):
        members["triton.language.target_info"] = _functions(target_info)
    made = {name: ModuleType(name) for name in members}
    for name, module in made.items():
        parent, _, last = name.rpartition(".")
        if parent:
            vars(made[parent])[last] = module
        vars(module).update(members[name])
    # whose functions say nothing but `...`
    made["triton.language.extra.libdevice"] = made[_LIBDEVICE]
    vars(made["triton.language.extra"])["libdevice"] = made[_LIBDEVICE]
    return made


def resolved(dotted: str) -> Facade:
    """Return the member of a facade by its dotted name; raises KeyError if there is none."""
    module, _, name = dotted.rpartition(".")
    if name.startswith("_"):
        raise KeyError(dotted)
    return vars(facades()[module])[name]


@functools.cache
def attributes() -> frozenset[str]:
    """Return the attributes that kernels can use, on any object."""
    types = (tl.tensor, tl.dtype, tl.constexpr, tl.pointer_type, tl.block_type, tl.tensor_descriptor, tl.tuple)
    names = {*OF_PYTHON, *_OF_VALUES.split(), *(name for cls in types for name in dir(cls))}
    names |= {name for facade in facades().values() for name in vars(facade)}
    return frozenset(name for name in names - _NOT_FOR_KERNELS if not name.startswith("_"))
