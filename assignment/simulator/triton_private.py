"""What is used of Triton beyond its documentation: the one module to open when Triton is upgraded.

Private names are imported from here alone, and what versions do differently is settled here, by
VERSION or by a constant that is named for the difference. `python -m assignment.tests.upgrade`
compares all that is imported here with the Triton that is installed, and the parameters of what is
called or replaced with those in tests/data/of_triton.py.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

# said aloud, or 3.9 warns at each compilation; 3.10 will no longer fuse by itself
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import triton
import triton.language as tl
from triton import knobs
from triton._C.libtriton import ir
from triton._utils import type_canonicalisation_dict
from triton.backends import nvidia
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.backends.nvidia.compiler import CUDABackend, CUDAOptions
from triton.compiler import ASTSource, CompiledKernel, compile
from triton.compiler.code_generator import CodeGenerator
from triton.compiler.compiler import make_backend
from triton.compiler.errors import CompilationError, CompileTimeAssertionFailure
from triton.language.semantic import IncompatibleTypeErrorImpl, TritonSemantic
from triton.runtime import driver, interpreter
from triton.runtime._allocation import NullAllocator, _allocator
from triton.runtime.autotuner import Autotuner
from triton.runtime.cache import get_cache_manager
from triton.runtime.errors import PTXASError
from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder
from triton.runtime.jit import (
    ConstexprFunction,
    JITCallable,
    JITFunction,
    KernelParam,
    TensorWrapper,
    create_function_from_signature,
    mangle_type,
)
from triton.tools.tensor_descriptor import TensorDescriptor

CHECKED = ("3.6.0", "3.7.1", "3.8.0", "3.9.0")  # with all that stands here
TOOLS = Path(nvidia.__file__).parent / "bin"  # ptxas, cuobjdump, nvdisasm
VERSION = tuple(int(part) for part in triton.__version__.split(".")[:2])

# what the language has, by version
HAS_BLOCK_POINTERS = VERSION < (3, 9)
# (x := f(y)); nested unpacking; * parameters; `v: tl.constexpr` on a line of its own, a promise for the next assignment
IS_CLOSE_TO_PYTHON = VERSION >= (3, 8)
# chained comparisons; unpacking with exact counts; tuple targets and `if` in lists; `while` on numbers; keyword-only
# parameters
IS_CLOSER_TO_PYTHON = VERSION >= (3, 9)

# what tl.histogram does with values outside of its bins: of 3.9 compiled code and tests leave them out
HISTOGRAM_LEAVES_OUT = VERSION >= (3, 9)
HAS_RETURN_TYPES = VERSION >= (3, 7)  # functions give back values with types alone, no elements of constant tuples
FORMATS_ARE_CONSTANTS = VERSION < (3, 8)  # of the semantic's dot_scaled(): strings wrapped in tl.constexpr

_CLASSES = (tl.tensor, tl.core.tensor_descriptor_base, tl.core.tensor_descriptor, getattr(tl.core, "_block_ptr", None))
BUILTINS_IN = (tl, tl.core, tl.math, *filter(None, _CLASSES))  # 3.8 alone has block pointers as a class

NO_BLOCK_POINTERS = (
    "tl.{} was removed in Triton 3.9: write pointers and masks, or a tensor descriptor; handout/faq.md, Block "
    "pointers, shows how to translate it"
)
COMPILERS_NO_BLOCK_POINTERS = "Block pointers have been removed"  # how the compiler's own message begins


def allocator() -> Callable[[int, int, int | None], TensorWrapper]:
    """Return the function that was given to triton.set_allocator, a NullAllocator without one."""
    return _allocator.get()


Hint: TypeAlias = ir.CACHE_MODIFIER | ir.EVICTION_POLICY | None  # to the caches: those of a launch, or no policy


class AnyVersionBuilder(InterpreterBuilder):
    """Triton's interpreter, whose memory operations are those of every version.

    What a launch says of caches is dropped. A subclass defines load() and store().
    """

    def load(
        self,
        ptrs: interpreter.TensorHandle,
        mask: interpreter.TensorHandle | None,
        other: interpreter.TensorHandle | None,
        is_volatile: bool,
    ) -> interpreter.TensorHandle:
        raise NotImplementedError

    def store(
        self, ptrs: interpreter.TensorHandle, value: interpreter.TensorHandle, mask: interpreter.TensorHandle | None
    ) -> None:
        raise NotImplementedError

    # `hints` are a cache modifier and an eviction policy, since 3.9 one cache policy

    def get_cache_policy(self, *hints: Hint) -> None:
        """Return nothing: there are no caches."""

    def create_load(
        self, ptr: interpreter.TensorHandle, *hints_and_is_volatile: Hint | bool
    ) -> interpreter.TensorHandle:
        return self.load(ptr, None, None, hints_and_is_volatile[-1])  # type: ignore[arg-type]

    def create_masked_load(
        self,
        ptrs: interpreter.TensorHandle,
        mask: interpreter.TensorHandle | None,
        other: interpreter.TensorHandle | None,
        *hints_and_is_volatile: Hint | bool,
    ) -> interpreter.TensorHandle:
        return self.load(ptrs, mask, other, hints_and_is_volatile[-1])  # type: ignore[arg-type]

    def create_store(self, ptr: interpreter.TensorHandle, val: interpreter.TensorHandle, *hints: Hint) -> None:
        self.store(ptr, val, None)

    def create_masked_store(
        self,
        ptrs: interpreter.TensorHandle,
        value: interpreter.TensorHandle,
        mask: interpreter.TensorHandle | None,
        *hints: Hint,
    ) -> None:
        self.store(ptrs, value, mask)
