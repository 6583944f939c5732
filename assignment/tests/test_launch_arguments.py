"""Arguments of launches: what Triton's own launcher takes arrives in the player with the same type, the rest is told.

Triton's launcher is asked without a GPU, as for a compilation.
"""

import collections
import enum
import fractions
import struct
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime.jit import TensorWrapper, create_function_from_signature
from triton.tools.tensor_descriptor import TensorDescriptor

from assignment.judge.replies import Ok, Raised
from assignment.player.arguments import of_launch
from assignment.player.values import Unknown, Values
from assignment.recorder.kernels import Described
from assignment.recorder.launches import Launcher, grid_sizes
from assignment.simulator.dtypes import PYTORCH, TRITON
from assignment.tests.pairs import IMPORTS, F, X, result_of

BACKEND = CUDABackend(GPUTarget("cuda", 90, 32))


class Whole(enum.IntEnum):
    SIXTEEN = 16


class Flag(enum.IntFlag):
    ON = 2


class Mode(enum.StrEnum):
    RELU = "relu"


class Other(enum.Enum):
    ONE = 1


class Int(int): ...


class Float(float): ...


class Indexed:
    def __index__(self):
        return 3


Pair = collections.namedtuple("Pair", "a b")
TENSOR = torch.ones(16, 16)
TAKEN = [dtype for name, dtype in PYTORCH.items() if name in TRITON]
VALUES = {
    "bool": True, "int": 5, "one": 1, "sixteen": 16, "2^31": 2**31, "2^63": 2**63, "2^64": 2**64, "-2^63": -(2**63),
    "-2^63-1": -(2**63) - 1, "float": 1.5, "negative zero": -0.0, "inf": float("inf"), "None": None, "str": "s",
    "list": [1], "tuple": (1, 2.5), "empty tuple": (), "nested tuple": ((1, 2), (3, None)), "namedtuple": Pair(1, 2),
    "tuple of float64": (np.float64(2),), "tuple of int64": (np.int64(2),), "tuple of str": ("a",),
    "tuple of enum": (Whole.SIXTEEN,), "tuple of tensors": (TENSOR, 1), "tuple of constants": (tl.constexpr(3), 2),
    "torch.Size": torch.Size([3, 4]), "tensor": TENSOR, "no dimension": torch.tensor(1.5),
    **{f"tensor of {dtype}": torch.empty(16, 16, dtype=dtype) for dtype in TAKEN},
    **{f"as {dtype!r}": triton.reinterpret(TENSOR, dtype) for dtype in [*TRITON.values(), *TAKEN, "fp16"]},
    "as no type": triton.reinterpret(TENSOR, "fp17"), "as a complex one": triton.reinterpret(TENSOR, torch.complex64),
    "parameter": torch.nn.Parameter(torch.ones(2)), "other dtype": triton.reinterpret(TENSOR, torch.int32),
    "descriptor": TensorDescriptor(TENSOR, [16, 16], [16, 1], [16, 16]), "torch.dtype": torch.float32,
    "tl.dtype": tl.float32, "pointer type": tl.pointer_type(tl.float32), "tl.sum": tl.sum, "tl.maximum": tl.maximum,
    "lambda": lambda x: x, "constexpr": tl.constexpr(5), "constexpr of float64": tl.constexpr(np.float64(2)),
    "constexpr of a string": tl.constexpr("s"), "IntEnum": Whole.SIXTEEN, "IntFlag": Flag.ON, "StrEnum": Mode.RELU,
    "Enum": Other.ONE, "subclass of int": Int(5), "subclass of float": Float(1.5), "indexed": Indexed(),
    "Fraction": fractions.Fraction(1, 2), "complex": 1j, "device": torch.device("cpu"), "bytes": b"a", "dict": {},
    "range": range(3), "array": np.ones(2),
    **{name: np.dtype(name).type(3) for name in ["bool", "int8", "int64", "uint64", "float16", "float32", "float64"]},
    "longdouble": np.longdouble(3),
}  # fmt: skip
NOT_AS_CONSTANTS = {  # objects that a kernel cannot compute with, or that say more than their value
    "list", "lambda", "Enum", "indexed", "Fraction", "complex", "device", "bytes", "dict", "range", "array",
    "longdouble", "2^64", "as no type", "as a complex one",
}  # fmt: skip
KINDS = {"plain": "", "constant": ": tl.constexpr", "fp32": ": tl.float32", "i64": ": tl.int64"}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """Kernels of one parameter, by how it is annotated; they stand in a file, as Triton demands."""
    file = tmp_path_factory.mktemp("kernels") / "kernels.py"
    texts = [f"@triton.jit\ndef {name}(x{annotation}):\n    pass\n" for name, annotation in KINDS.items()]
    file.write_text("import triton\nimport triton.language as tl\n\n\n" + "\n\n".join(texts))
    found: dict = {}
    exec(compile(file.read_text(), file, "exec"), found)
    return found


class Tape:
    """Numbers tensors, and takes all of them."""

    is_strict, faults = False, None

    def __init__(self):
        self.tensors = []

    def view(self, tensor):
        self.tensors.append(tensor)
        return len(self.tensors) - 1


def specialized(kernel, value):
    """What Triton's launcher takes the argument for; a parameter that is annotated as a float takes what C does."""
    if kernel.params[0].annotation_type == "fp32":
        struct.pack("d", value)
    bind = create_function_from_signature(kernel.signature, kernel.params, BACKEND)
    return bind(value)[1]


def arrived(kernel, value, tmp_path):
    """The argument as a player gets it."""
    tape: Any = Tape()
    launcher = Launcher(tape, Described(tmp_path))
    told = launcher._described(kernel, {"x": value}, {})[0]["x"]
    known: Any = SimpleNamespace(constant=Values(lambda number: None).value)
    return of_launch(told, lambda view: tape.tensors[view], known)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", VALUES)
def test_what_triton_takes_arrives_with_its_type(kernels, tmp_path, name, kind):
    value, kernel = VALUES[name], kernels[kind]
    try:
        expected = specialized(kernel, value)
    except (TypeError, OverflowError, RuntimeError, KeyError, struct.error):
        expected = None
    if expected is None or (kind == "constant" and name in NOT_AS_CONSTANTS):
        with pytest.raises((TypeError, OverflowError, Unknown), match=r"argument x|constants are|64 bits|longer"):
            arrived(kernel, value, tmp_path)
        return
    came = arrived(kernel, value, tmp_path)
    if kind != "constant":
        assert specialized(kernel, came) == expected
        return
    value = value.value if isinstance(value, tl.constexpr) else value
    came = came.value if isinstance(came, tl.constexpr) else came
    assert came is value or came == value or isinstance(value, TensorDescriptor | TensorWrapper)
    assert isinstance(value, (type(came), Pair, np.generic))  # a number of NumPy's comes as Python's
    assert not isinstance(came, np.generic)


CALLS = {
    "by position": ("", "x, y, n, {value}, 64"),
    "by keyword": ("", "x, y, n, scale={value}, SIZE=64"),
    "as default": ("={value}", "x, y, n, SIZE=64"),
}
READ_AS = [
    "triton.reinterpret(t.view(torch.int32), tl.float32)", "triton.reinterpret(t.view(torch.int32), torch.float32)",
    "triton.reinterpret(t.view(torch.uint8), 'fp32')", "triton.reinterpret(t.view(torch.int64), tl.uint32)",
    "triton.reinterpret(triton.reinterpret(t, tl.int8), tl.int32)", "t.view(torch.uint32)",
]  # fmt: skip


@pytest.mark.parametrize("how", READ_AS)
def test_memory_is_read_as_what_the_launch_says(at, how):
    at.take(f"def {F}(x):\n    y = torch.empty_like(x)\n    a, b = [{how} for t in (x, y)]\n"
            "    _copy[(4,)](a, b, 200, 64)\n    return y\n")  # fmt: skip
    assert torch.equal(result_of(at), X)


def test_a_type_that_triton_lacks_is_told(at):
    reply = at.run(f"def {F}(x):\n    _copy[(4,)](triton.reinterpret(x, 'fp17'), x, 200, 64)\n    return x\n", X)
    assert "argument x_ptr: Triton has no type fp17" in reply.message


SCALED = """
import enum
import numpy as np

class Whole(enum.IntEnum):
    TWO = 2

@triton.jit
def _scaled(x_ptr, y_ptr, n, scale{default}, SIZE: tl.constexpr = 64):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y_ptr + at, scale * tl.load(x_ptr + at, mask=at < n, other=0.0), mask=at < n)

def weighted_sum_forward(x):
    y = torch.empty_like(x)
    n = x.numel()
    _scaled[(triton.cdiv(n, 64),)]({call})
    return y
"""


@pytest.mark.parametrize("value", ["4 / np.sqrt(4)", "np.float64(2)", "Whole.TWO", "2", "tl.constexpr(2.0)"])
@pytest.mark.parametrize("call", CALLS)
def test_a_scale_is_played(at, value, call):
    default, passed = (part.format(value=value) for part in CALLS[call])
    at.take(SCALED.replace("{default}", default).replace("{call}", passed))
    assert torch.equal(result_of(at), 2 * X)


@pytest.mark.parametrize("value", ["np.float32(2)", "np.int64(2)", "np.bool_(True)", "'2'", "tl.float32", "[2]"])
def test_what_triton_refuses_is_told_with_what_to_write(at, value):
    reply = at.run(SCALED.replace("{default}", "").replace("{call}", f"x, y, n, {value}"), X)
    assert not isinstance(reply, Ok)
    assert "argument scale" in reply.message
    assert any(word in reply.message for word in ("pass ", "write ")), reply.message


CONSTANT = f"""{IMPORTS}
import numpy as np

@triton.jit
def _filled(x_ptr, y_ptr, HOW: tl.constexpr):
    at = tl.arange(0, 256)
    x = tl.load(x_ptr + at, mask=at < 200, other=0.0)
    {{line}}
    tl.store(y_ptr + at, y, mask=at < 200)

def {F}(x):
    y = torch.empty_like(x)
    _filled[(1,)](x, y, {{value}})
    return y
"""


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("y = x * (1.0 + HOW)", "np.int64(1)"),
        ("y = x * 2 if HOW > 1 else x", "np.float32(2)"),
        ("y = HOW(x, x) * 2", "tl.maximum"),
        ("y = x * 2 if HOW == torch.float32 else x", "x.dtype"),
        ("y = (x.to(HOW) * 2).to(tl.float32)", "tl.float32"),
    ],
)
def test_a_constant_of_any_kind_is_played(at, line, value):
    at.take(CONSTANT.format(line=line, value=value))
    assert torch.equal(result_of(at), 2 * X)


FIELDS = f"""{IMPORTS}
from typing import NamedTuple
import numpy as np

class Sizes(NamedTuple):
    append: float
    count: float
    dot: float
    fn: float
    repeat: float
    shape: float
    sort: float

C = np.int64(7)
N = 7
L = tl.constexpr([1.0])

@triton.constexpr_function
def computed(sizes, c, items):
    {{inside}}

@triton.jit
def _filled(x_ptr, y_ptr, sizes, SIZES: tl.constexpr, HOW: tl.constexpr):
    at = tl.arange(0, 256)
    x = tl.load(x_ptr + at, mask=at < 200, other=0.0)
    {{line}}
    tl.store(y_ptr + at, y, mask=at < 200)

def {F}(x):
    y = torch.empty_like(x)
    sizes = Sizes(*[1.0] * 7)
    _filled[(1,)](x, y, sizes, sizes, np.float32(1))
    return y
"""
COMPUTED = "y = x * computed(SIZES, HOW, L)"


@pytest.mark.parametrize(
    ("line", "inside"),
    [
        ("y = x * (sizes.append + sizes.sort * sizes.fn)", "return 1"),
        ("y = x * (sizes.count * sizes.dot + SIZES.repeat)", "return 1"),
        ("y = x * (SIZES.shape + getattr(SIZES, 'append'))", "return 1"),
        ("y = x * (sizes.repeat + getattr(sizes, 'fn', 3.0))", "return 1"),
        (COMPUTED, "return sizes.append + getattr(sizes, 'fn') * sizes.sort"),
        (COMPUTED, "return sizes.count + getattr(c, 'repeat', 1.0)"),
    ],
)
def test_fields_may_have_the_names_of_methods(at, line, inside):
    at.take(FIELDS.format(line=line, inside=inside))
    assert torch.equal(result_of(at), 2 * X)


@pytest.mark.parametrize(
    ("line", "inside"),
    [
        ("y = x + HOW.repeat(2)", ""),
        ("y = x\n    L.append(1.0)", ""),
        ("y = x\n    L.value.append(1.0)", ""),
        ("y = x\n    L.sort()", ""),
        ("y = x\n    getattr(L, 'append')(1.0)", ""),
        ("y = x + x_ptr.fn", ""),
        ("y = x + SIZES.dot.repeat", ""),
        ("y = x\n    computed.fn(1, 2, 3)", ""),
        (COMPUTED, "return c.repeat(2)"),
        (COMPUTED, "return C.repeat(2)"),
        (COMPUTED, "return len([items.append(1)])"),
        (COMPUTED, "return len([getattr(items, 'append')])"),
        (COMPUTED, "return len([v.append for v in [items]])"),
    ],
)
def test_a_field_is_one_of_its_own_tuple_alone(at, line, inside):
    reply = at.run(FIELDS.format(line=line, inside=inside or "return 1"), X)
    assert not isinstance(reply, Ok)
    assert "a kernel cannot use the attribute ." in reply.message


def test_a_function_that_triton_cannot_follow_is_the_submissions_fault(at):
    reply = at.run(FIELDS.format(line=COMPUTED, inside="return N.bit_length()"), X)
    assert isinstance(reply, Raised)
    assert "Unsupported function referenced" in reply.message


@pytest.mark.parametrize("grid", [(np.int64(2),), [2], torch.Size([2]), np.array([2, 1]), (2, 1, 1, 1), (True,)])
def test_grids_that_triton_takes(grid):
    assert grid_sizes(grid, {})[1:] == [1, 1]


@pytest.mark.parametrize("grid", [2, (), (2.0,), (np.float64(2),), None, "2"])
def test_grids_that_triton_refuses(grid):
    with pytest.raises(TypeError, match="expected a grid of one to three integers"):
        grid_sizes(grid, {})
