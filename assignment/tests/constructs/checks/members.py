"""Every public member of `tl`, `tl.math` and `tl.tensor` of the Triton that is installed: run by test_simulator.py.

Each is used once, on simple arguments; it has to work, or to be refused by its name in a sentence.
"""

import ast
import functools
import importlib.util
import inspect
import tempfile
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.tools.tensor_descriptor import TensorDescriptor

from assignment.simulator.triton_private import HAS_BLOCK_POINTERS, VERSION
from assignment.tests.constructs.checks.common import raised

# x: 16 float32 numbers, n: 16 integers, m: 16 × 16 float32, s: a scalar; at: 0 to 15. Of methods the first is `self`.
GIVEN = """
abs bitonic_merge ceil cos cumprod cumsum erf exp exp2 floor log log2 rsqrt sigmoid sin softmax: x
sort sqrt sqrt_rn zeros_like: x
add div_rn fdiv interleave join maximum minimum mul pair_uniform_to_normal sub: x, x
advance: block_ptr, (1,)
aggregate_replace: Pair(x, x), b=s
arange: 0, 16
argmax argmin expand_dims flip max min sum: x, 0
associative_scan reduce: x, 0, added
assume: s > -100.0
atomic_add atomic_max atomic_min atomic_xchg store: x_ptr + at, x
atomic_and atomic_or atomic_store atomic_xor: n_ptr + at, n
atomic_cas: n_ptr + at, n, n
atomic_load: n_ptr + at
atomic_poll: n_ptr, 0
broadcast: x, m
broadcast_to: x, (16,)
cast to: x, tl.float16
cat: x, x, can_reorder=True
cdiv: n, 3
clamp: x, 0.0, 1.0
debug_barrier:
device_assert: s > -100.0, 'small'
device_print: 's', s
dot: m, m
dot_scaled: m8, scales, 'e5m2', m8, scales, 'e5m2'
expect_zero: x - x, x > 0.0
fma: x, x, x
full: (16,), 2.0, tl.float32
gather: x, n, 0
histogram: n, 16
inline_asm_elementwise: 'mov.b32 $0, $1;', '=r,r', [n], dtype=tl.int32, is_pure=True, pack=1
item: one
load: x_ptr + at
load_tensor_descriptor: x_desc, [0]
logical_and logical_or: n > 0, n > 1
make_block_ptr: x_ptr, (16,), (1,), (0,), (16,), (0,)
make_tensor_descriptor: m_ptr, [16, 16], [16, 1], [16, 16]
map_elementwise: added, x, x
max_constancy max_contiguous multiple_of: n, 1
num_programs program_id: 0
permute: m, (1, 0)
philox: 7, n, n, n, n
philox_impl: n.to(tl.uint32), n.to(tl.uint32), n.to(tl.uint32), n.to(tl.uint32), seed, seed
rand rand4x randint randint4x randn randn4x: 7, n
ravel trans: m
reduce_or xor_sum: n, 0
reshape view: m, (256,)
split: m.reshape((8, 16, 2))
squeeze: m.reshape((256, 1)), 1
static_assert: True
static_print: 'here'
store_tensor_descriptor: x_desc, [0], x
swizzle2d: n, n, 4, 4, 2
to_tensor: 3
topk: x, 4
uint_to_uniform_float: n
umulhi: n, n
unsqueeze: x, 1
where: x > 0.0, x, 0.0
zeros: (16,), tl.float32
"""
ARGUMENTS = {
    name: arguments.strip()
    for names, _, arguments in (line.partition(":") for line in GIVEN.strip().splitlines())
    for name in names.split()
}
# Classes, and what else is no function: a use of the name in a kernel.
USES = {
    "PropagateNan": "tl.maximum(x, x, propagate_nan=tl.PropagateNan.ALL)",
    "T": "m.T",
    "block_type": "tl.block_type(tl.float32, [16])",
    "condition": "while tl.condition(s > 100.0): s -= 1.0",
    "const": "tl.const",
    "constexpr": "tl.constexpr(3)",
    "constexpr_type": "tl.constexpr_type(3)",
    "dtype": "x.to(tl.dtype('fp16'))",
    "pi32_t": "x_ptr.to(tl.pi32_t)",
    "pointer_type": "x_ptr.to(tl.pointer_type(tl.int32))",
    "range": "for i in tl.range(3): x += i",
    "slice": "tl.slice(0, 1, 1)",
    "static_range": "for i in tl.static_range(3): x += i",
    "tensor": "tl.static_assert(isinstance(x, tl.tensor))",
    "tensor_descriptor": "tl.static_assert(not isinstance(x, tl.tensor_descriptor))",
    "tensor_descriptor_type": "tl.static_assert(not isinstance(x, tl.tensor_descriptor_type))",
    "tuple": "tl.tuple((x, x))",
    "tuple_type": "tl.static_assert(not isinstance(x, tl.tuple_type))",
    "void": "tl.void",
}
NOT_FOR_KERNELS = {"str_to_ty", "wraps", "T", "List"}  # Triton's own helpers, T as a name of tl.math
HEAD = """
import triton
import triton.language as tl


@triton.jit
def added(a, b):
    return a + b
"""
if hasattr(tl, "aggregate_replace"):
    HEAD += """

from triton.language.core import _aggregate


@_aggregate
class Pair:
    a: tl.tensor
    b: tl.tensor
"""
KERNEL = """

@triton.jit
def kernel_{number}(x_ptr, n_ptr, m_ptr, x_desc):
    at = tl.arange(0, 16)
    x, n = tl.load(x_ptr + at), tl.load(n_ptr + at)
    m = tl.load(m_ptr + at[:, None] * 16 + at[None, :])
    s, one = tl.sum(x), tl.sum(m).to(tl.int32) + tl.zeros((1,), tl.int32)
    seed = one.to(tl.uint32)
    {before}
    {use}
"""
BEFORE = {
    "block_ptr": "block_ptr = tl.make_block_ptr(x_ptr, (16,), (1,), (0,), (16,), (0,))",
    "m8": "m8, scales = tl.full((32, 32), 1.0, tl.float32).to(tl.float8e5), tl.full((32, 1), 127, tl.uint8)",
}


def members(namespace: Any) -> dict[str, Any]:
    """Its public members, without modules and numbers."""
    found = {name: inspect.getattr_static(namespace, name) for name in dir(namespace) if not name.startswith("_")}
    return {name: member for name, member in found.items() if not isinstance(member, types.ModuleType | int)}


def used(name: str, member: Any, namespace: str) -> str:
    """A statement that uses the member."""
    if name in USES and name not in ARGUMENTS:
        return USES[name]
    if isinstance(member, tl.dtype):
        return f"y = x.to(tl.{name}), tl.zeros((16,), tl.{name}).to(tl.float32)"
    if namespace != "tensor":
        return f"y = {namespace}.{name}({ARGUMENTS[name]})"
    call = ast.parse(f"f({ARGUMENTS[name]})", mode="eval").body
    assert isinstance(call, ast.Call)
    own, *rest = map(ast.unparse, call.args)
    return f"y = ({own}).{name}({', '.join(rest)})"


def all_uses() -> dict[str, str]:
    """A statement for each member, by its full name."""
    found = {}
    for namespace, owner in (("tl", tl), ("tl.math", tl.math), ("tensor", tl.tensor)):
        for name, member in members(owner).items():
            if name not in NOT_FOR_KERNELS or (namespace, name) == ("tensor", "T"):
                found[f"{namespace}.{name}"] = used(name, member, namespace)
    return found


def without_use() -> list[str]:
    """The members that stand in no table above: what a new Triton adds."""
    named = {*ARGUMENTS, *USES}
    spaces = (("tl", tl), ("tl.math", tl.math), ("tensor", tl.tensor))
    found = ((f"{space}.{name}", name, member) for space, owner in spaces for name, member in members(owner).items())
    return [f for f, n, m in found if n not in named and n not in NOT_FOR_KERNELS and not isinstance(m, tl.dtype)]


def made(source: str) -> types.ModuleType:
    """A module of this source; kernels must lie in a file."""
    path = Path(tempfile.mkdtemp()) / "made.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("made", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def launched(uses: dict[str, str]) -> dict[str, Exception | None]:
    """What became of a kernel for each use."""
    source = HEAD
    for number, use in enumerate(uses.values()):
        before = "\n    ".join(line for word, line in BEFORE.items() if word in use)
        source += KERNEL.format(number=number, before=before, use=use)
    module = made(source)
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size))
    return {name: _failure(getattr(module, f"kernel_{number}")) for number, name in enumerate(uses)}


def _failure(kernel: Any) -> Exception | None:
    x = torch.rand(16)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some are deprecated
            kernel[(1,)](x, *_tensors(x))
    except Exception as error:
        return error
    return None


def _tensors(x: torch.Tensor) -> tuple[Any, ...]:
    """The arguments of a kernel after the first."""
    return torch.arange(16, dtype=torch.int32), torch.rand(16, 16), TensorDescriptor.from_tensor(x, [16])


REFUSED = {"tensor.sort", "tl.inline_asm_elementwise", "tl.float8e4b8", "tl.float8e5b16"}
if not HAS_BLOCK_POINTERS:
    REFUSED |= {"tl.make_block_ptr", "tensor.advance"}
    ARGUMENTS["advance"] = "x_ptr, (1,)"


def check_every_member() -> None:
    """Each works, or is refused by its name in a sentence; none crashes, and no other is refused."""
    failures = {name: error for name, error in launched(all_uses()).items() if error is not None}
    assert failures.keys() == REFUSED, {name: failures.get(name) for name in failures.keys() ^ REFUSED}
    for name, error in failures.items():
        short = name.rpartition(".")[2].replace("float", "fp")
        assert isinstance(error, NotImplementedError | ValueError), (name, error)
        assert short in str(error), (name, error)
        assert "not supported" in str(error) or "was removed in Triton" in str(error), (name, error)
        assert "inline" not in name or "run with --device cuda" in str(error)


def check_methods_are_functions() -> None:
    """x.exp() is tl.exp(x), and so is every other method of one block; those of tl.math take 16 bits as well."""
    names = [name for name in members(tl.tensor) if ARGUMENTS.get(name) == "x" and name != "sort"]
    assert {"exp", "log2", "erf", "floor", "sigmoid", "cumsum"} <= set(names)
    # whose methods took 16 bits, unlike the functions, before 3.9
    short = [name for name in names if hasattr(tl.math, name) and name != "sqrt_rn" and VERSION < (3, 9)]
    x = torch.rand(16) * 3
    for x, names in ((x, names), *((x.to(dtype), short) for dtype in (torch.bfloat16, torch.half) if short)):  # noqa: B020
        kernel = made(f"{HEAD}{PAIRS}{''.join(PAIR.format(i * 16, name) for i, name in enumerate(names))}").kernel
        y, z = torch.empty(len(names), 16, dtype=x.dtype), torch.empty(len(names), 16, dtype=x.dtype)
        kernel[(1,)](x, y, z)
        assert torch.equal(y, z), names[int((y != z).any(1).nonzero()[0])]


PAIRS = """

@triton.jit
def kernel(x_ptr, y_ptr, z_ptr):
    at = tl.arange(0, 16)
    x = tl.load(x_ptr + at)
    wide = x.to(tl.float32)
"""
PAIR = """
    tl.store(y_ptr + {0} + at, x.{1}())
    tl.store(z_ptr + {0} + at, tl.{1}(wide))
"""


@triton.jit
def exponential_kernel(x_ptr):
    tl.store(x_ptr, tl.load(x_ptr).exp())


def check_methods_of_integers() -> None:
    """The compiler has no exponential of an integer, and outside of a kernel there is none of anything."""
    error = raised(ValueError, exponential_kernel[(1,)], torch.zeros(1, dtype=torch.int32))
    said = "exp expects floating point numbers, got" if VERSION < (3, 9) else "Expected dtype ['fp32', 'fp64'] but got"
    assert f"{said} int32" in str(error)
    assert "exp can only be called in a function decorated with @triton.jit" in str(
        raised(ValueError, functools.partial(tl.tensor.exp, None))
    )


@triton.jit
def constant_kernel(y_ptr, TYPE: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, 16), tl.full((16,), 1.5, TYPE).to(tl.float32))


def check_constants_of_8_bits() -> None:
    """An 8-bit float that a kernel writes down is that number, where Triton has such constants at all."""
    y = torch.zeros(16)
    for dtype in (tl.float8e5, tl.float8e4nv) if triton.__version__ >= "3.7" else ():
        constant_kernel[(1,)](y.zero_(), dtype)
        assert y.eq(1.5).all()


LIBRARY = {
    "add_rn": ("x, x", lambda x: x + x),
    "sub_rn": ("x, n.to(tl.float32)", lambda x: x - torch.arange(16)),
    "mul_rn": ("x, x", lambda x: x * x),
    "div_rn": ("x, x + 1", lambda x: x / (x + 1)),
    "fma_rn": ("x, x, -x * x", lambda x: (x.double() * x.double() - (x * x).double()).float()),
    "sqrt_rn": ("x", lambda x: torch.from_numpy(np.sqrt(x.numpy()))),
    "rsqrt_rn": ("x", lambda x: x.double().rsqrt().float()),
    "rcp_rn": ("x", lambda x: 1 / x),
    "fast_dividef": ("x, x + 1", lambda x: x / (x + 1)),
    "fast_log2f": ("x", torch.log2),
    "fast_log10f": ("x", torch.log10),
    "fast_exp10f": ("x", lambda x: 10**x),
    "fast_tanf": ("x", torch.tan),
}


def check_functions_of_libdevice() -> None:
    """Those that round to nearest do, in float32 and float64, and the fast ones are what they are called."""
    x = torch.rand(16) + 0.1
    for name, (arguments, expected) in LIBRARY.items():
        use = f"tl.store(x_ptr + at, tl.extra.cuda.libdevice.{name}({arguments}))"
        y = x.clone()
        made(f"{HEAD}{KERNEL.format(number=0, before='', use=use)}").kernel_0[(1,)](y, *_tensors(y))
        assert torch.allclose(y, expected(x), rtol=0 if "_rn" in name else 1e-6, atol=0), name
    wide = made(f"{HEAD}{LIBRARY_IN_DOUBLE}").kernel
    double = x.double()
    wide[(1,)](double)
    exact = x.double().numpy()  # of PyTorch's own square roots the last bit may be off
    assert np.array_equal(double.numpy(), 1 / ((exact * exact) / np.sqrt(exact) - exact))
    use = "libdevice.rcp64h(x.to(tl.float64))"
    kernel = made(f"{HEAD}from triton.language.extra import libdevice\n{KERNEL.format(number=0, before='', use=use)}")
    assert "libdevice.rcp64h is not" in str(raised(NotImplementedError, kernel.kernel_0[(1,)], x, *_tensors(x)))


LIBRARY_IN_DOUBLE = """

@triton.jit
def kernel(x_ptr):
    at = tl.arange(0, 16)
    x = tl.load(x_ptr + at)
    y = tl.extra.cuda.libdevice.div_rn(tl.extra.cuda.libdevice.mul_rn(x, x), tl.extra.cuda.libdevice.sqrt_rn(x))
    tl.store(x_ptr + at, tl.extra.cuda.libdevice.rcp_rn(tl.extra.cuda.libdevice.sub_rn(y, x)))
"""


@triton.jit
def warps_kernel(y_ptr):
    tl.extra.cuda.gdc_wait()
    tl.store(y_ptr, tl.extra.cuda.num_warps())
    tl.store(y_ptr + 1, tl.extra.cuda.num_threads())
    tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def clock_kernel(y_ptr):
    tl.store(y_ptr, tl.extra.cuda.globaltimer())


@triton.jit
def place_kernel(y_ptr):
    tl.store(y_ptr, tl.extra.cuda.smid())


def check_hardware() -> None:
    """A program knows how many warps it has, and its multiprocessor; the clock is refused by name."""
    y = torch.zeros(2, dtype=torch.int32)
    for options, n_warps in (({"num_warps": 8}, 8), ({}, 4)):
        warps_kernel[(1,)](y, **options)
        assert y.tolist() == [n_warps, 32 * n_warps]
    said = str(raised(NotImplementedError, clock_kernel[(1,)], y))
    assert "tl.extra.cuda.globaltimer is not supported by the simulator" in said
    place_kernel[(1,)](y)


@gluon.jit
def gluon_kernel(y_ptr):
    gl.store(y_ptr, 1)


def check_gluon() -> None:
    """Kernels in Gluon are refused in a sentence."""
    text = str(raised(NotImplementedError, gluon_kernel[(1,)], torch.zeros(1)))
    assert text.startswith("gluon_kernel, in Gluon, is not supported by the simulator, run with --device cuda (")
