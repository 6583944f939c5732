"""Compares the stand-in for Triton's compiled part with the real one, on drawn arguments."""

import os
import random
from collections import namedtuple
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton._C import libtriton as real
from triton.backends.amd.compiler import HIPBackend
from triton.backends.compiler import BaseBackend
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime.jit import MockTensor
from triton.tools.tensor_descriptor import TensorDescriptor

from assignment.simulator import libtriton as ours

BACKENDS = (BaseBackend, CUDABackend, HIPBackend)
DRAWS = 10_000
DTYPES = (
    torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.complex64,
)  # fmt: skip
Pair = namedtuple("Pair", "first second")
TEXTS = (
    "1",
    "0",
    "on",
    "ON",
    "off",
    "true",
    "True",
    "false",
    "y",
    "Y",
    "n",
    "yes",
    "YES",
    "no",
    "t",
    "",
    " 1",
    "2",
    "é",
)
VARIABLE = "ASSIGNMENT_STANDING_IN"


class Whole(int):
    """An integer of another class."""


class Pointer:
    """What a launch takes for a pointer: something with an address and a type."""

    def __init__(self, address: int, dtype: object) -> None:
        self.address, self.dtype = address, dtype

    def data_ptr(self) -> int:
        return self.address


@triton.jit
def a_kernel(x_ptr):
    tl.store(x_ptr, 1)


@triton.constexpr_function
def a_constant(x):
    return x


def differences(draws: int = DRAWS, seed: int = 0) -> list[str]:
    """Return what the stand-in has otherwise than the installed Triton: its names and what its functions return."""
    draw = random.Random(seed)
    compared = {
        "native_specialize_impl": (lambda: specialized(draw), draws),
        "getenv": (lambda: of_environment(draw), draws // 10),
        "getenv_bool": (lambda: of_environment(draw), draws // 10),
        "ir.deduce_scale_factor": (lambda: scaled(draw), draws),
    }
    found = [*of_names(real, ours, "")]
    for name, (arguments, count) in compared.items():
        found += of_function(name, arguments, count)
    return found


def of_names(theirs: Any, own: Any, prefix: str) -> Iterator[str]:
    """Yield what our module names and theirs does not, and enumerations and constants that differ."""
    for name, member in vars(own).items():
        known = getattr(theirs, name, None)
        if isinstance(member, ours.LibraryModule):
            yield from of_names(known, member, f"{prefix}{name}.")
        elif isinstance(member, type) and issubclass(member, Enum) and member is not Enum:
            members = {word: (one.value, str(one)) for word, one in getattr(known, "__members__", {}).items()}
            if members != {word: (one.value, str(one)) for word, one in member.__members__.items()}:
                yield f"{prefix}{name}: {members}"
        elif isinstance(member, type) and issubclass(member, ours.OfCompiler) and member is not ours.OfCompiler:
            if known is None:
                yield f"{prefix}{name} is gone"
        elif prefix and name.isupper() and known != member:
            yield f"{prefix}{name}: {known}"


def of_function(name: str, arguments: Callable[[], tuple[Any, ...]], draws: int) -> list[str]:
    """Return the first drawn call whose results differ; nothing if none does."""
    for _ in range(draws):
        given = arguments()
        theirs, own = (came_of(module, name, given) for module in (real, ours))
        if theirs != own:
            return [f"{name}{given!r}: {theirs}, here {own}"]
    return []


def came_of(module: Any, name: str, given: tuple[Any, ...]) -> str:
    """Return what a call returns, with its types, or raises; members of enumerations become the module's."""
    function = module
    for part in name.split("."):
        function = getattr(function, part)
    try:
        result = function(*(module.ir.ScaleDotElemTypeTY[one.name] if isinstance(one, Enum) else one for one in given))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return f"{result!r} {types(result)}"


def types(result: Any) -> Any:
    return (type(result), *map(types, result)) if isinstance(result, tuple) else type(result)


def specialized(draw: random.Random) -> tuple[Any, ...]:
    """Draw arguments of native_specialize_impl."""
    flags = (draw.random() < 0.5 for _ in range(3))
    return draw.choice(BACKENDS), an_argument(draw), *flags


def an_argument(draw: random.Random, depth: int = 0) -> Any:
    """Draw an argument of a launch, of any kind, some of them wrong."""
    kinds: list[Callable[[random.Random], Any]] = [a_number, a_number, a_tensor, a_tensor, a_pointer, something]
    if depth < 2:
        kinds.append(lambda draw: a_tuple(draw, depth + 1))
    return draw.choice(kinds)(draw)


def a_number(draw: random.Random) -> Any:
    near = draw.choice((-1, 1)) * 2 ** draw.choice((0, 1, 4, 5, 30, 31, 32, 62, 63, 64, 65)) + draw.randint(-2, 2)
    drawn = draw.randint(-(2 ** draw.randint(1, 66)), 2 ** draw.randint(1, 66))
    value = draw.choice((near, drawn, 16 * drawn, draw.randint(0, 3), 16 * draw.randint(0, 9)))
    return draw.choice((value, value, Whole(value), float(value), np.float64(value), bool(value)))


def a_tensor(draw: random.Random) -> Any:
    tensor = torch.zeros(256, dtype=draw.choice(DTYPES))[draw.choice((0, 0, 1, 2, 3, 4, 8, 16)) :]
    wrapped = triton.reinterpret(tensor, draw.choice((tl.float32, tl.int8, tl.bfloat16)))
    return draw.choice((tensor, tensor, wrapped, MockTensor(tl.float16), a_descriptor(draw)))


def a_descriptor(draw: random.Random) -> TensorDescriptor:
    base = torch.zeros(64, 64, dtype=draw.choice(DTYPES))
    block = draw.choice(([16, 32], (64, 8), [1, 16]))
    return TensorDescriptor(base, [64, 64], [64, 1], block)


def a_pointer(draw: random.Random) -> Pointer:
    dtype = draw.choice((*DTYPES, tl.float32, tl.int1, "float32", "unknown", None))
    return Pointer(draw.choice((0, 1, 8, 16, 2**40, 2**63 + 16, 2**64 - 1)), dtype)


def a_tuple(draw: random.Random, depth: int) -> tuple:
    elements = [an_argument(draw, depth) for _ in range(draw.randint(0, 3))]
    return Pair(*elements) if len(elements) == 2 and draw.random() < 0.5 else tuple(elements)


def something(draw: random.Random) -> Any:
    wrong: tuple[Any, ...] = (
        [1, 2],
        "text",
        {},
        1j,
        object,
        range(3),
        np.int32(16),
        np.float32(1),
        np.bool_(True),
        tl.float32,
        None,
    )
    return draw.choice((None, tl.constexpr(3), tl.constexpr(None), a_kernel, a_constant, *wrong))


def of_environment(draw: random.Random) -> tuple[str, object]:
    """Draw a default, and the value of a variable, which is set or removed."""
    if draw.random() < 0.2:
        os.environ.pop(VARIABLE, None)
    else:
        os.environ[VARIABLE] = draw.choice(TEXTS)
    return VARIABLE, draw.choice((None, True, False, "text", 5))


def scaled(draw: random.Random) -> tuple[Any, ...]:
    """Draw shapes of operands of tl.dot_scaled and of their scales, most of which fit."""
    batch = [draw.randint(1, 4)] * draw.randint(0, 1)
    k = 2 ** draw.randint(5, 9)
    given: list[Any] = []
    for rows_first in (True, False):
        form, is_packed = draw.choice([*ours.ir.ScaleDotElemTypeTY]), draw.random() < 0.7
        stored = k // 2 if form.name == "E2M1" and is_packed else k
        scale = [*batch, 64, max(1, k // draw.choice((8, 16, 16, 32, 32, 32, 64)))] if draw.random() < 0.7 else None
        given += [[*batch, *([64, stored] if rows_first else [stored, 64])], scale, form, is_packed]
    return tuple(given)
