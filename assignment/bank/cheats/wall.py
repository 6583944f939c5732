"""Kernels that try to reach Python where they are played: by what stands in them, or by what names are bound to."""

import dataclasses

from assignment.bank.cheats import Cheat
from assignment.bank.cheats.programs import FORGE

EVIDENCE = (
    r"a kernel cannot|cannot use|reserved|expected|wrong|changed after|there is no|not described|Triton's own|"
    r"written out|can only be called|in an annotation|too large|not supported|a constant cannot be"
)
ONLY = ("test_weighted_sum.py::test_forward_values",)
SLOW = {"walrus", "lambda_in_a_kernel", "star_arguments", "hash_of_another_file", "import_in_a_kernel"}
LAUNCH = """
def weighted_sum_forward(x, weight):
    y = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
    _kernel[(1,)](y, x, weight{more})
    return y
"""
KERNEL = """
@triton.jit
def _kernel(y_ptr, x_ptr, w_ptr{parameters}):
{body}
    tl.store(y_ptr, 0.0)
"""
NAMED = """
import collections
import numpy as np

Names = collections.namedtuple("Names", "append repeat resize tofile")
SCALAR, LIST = np.int64(7), tl.constexpr([])


@triton.constexpr_function
def made(n):
    array = SCALAR.repeat(n)
    seen = array[:]
    array.resize(1, refcheck=False)
    return int(seen[n - 1])
"""
TABLE = """
from assignment.recorder import kernels as described

content = described.Described._content
described.Described._content = lambda self, kernel: {{
    **content(self, kernel),
    **({{{entry}}} if kernel.fn.__name__ == "_kernel" else {{}}),
}}
"""


def kernel(name: str, body: str, parameters: str = "", more: str = "", before: str = "") -> Cheat:
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    source = before + LAUNCH.format(more=more) + KERNEL.format(parameters=parameters, body=lines)
    return Cheat(name, "weighted_sum", source, evidence=EVIDENCE, only=ONLY)


def table(name: str, entry: str, body: str = "tl.store(y_ptr, helper)") -> Cheat:
    """What the recorder says of the kernel's names."""
    return kernel(name, body, before="helper = 1.0\n" + TABLE.format(entry=entry))


def of_numpy(name: str, body: str) -> Cheat:
    """What has methods of NumPy's and Python's objects, whose names are those of a tuple's fields."""
    cheat = kernel(name, body, ", names, c: tl.constexpr", ", Names(1, 2, 3, 4), np.float32(1.5)", NAMED)
    return dataclasses.replace(cheat, evidence="a kernel cannot use the attribute")


CHEATS = [
    kernel("import_in_a_kernel", "import os\nos.getpid()"),
    kernel("lambda_in_a_kernel", "f = lambda: 0\nf()"),
    kernel("walrus", "print(a := 5)"),
    kernel("class_of_a_class", "a = ().__class__.__base__.__subclasses__()"),
    kernel("globals_of_a_function", "a = tl.cdiv.fn.__globals__"),
    kernel("getattr_of_a_made_name", "a = getattr(tl, '__' + 'builtins__')"),
    kernel("getattr_under_another_name", "f = getattr\na = f(tl, '__dict__')"),
    kernel("format_of_an_attribute", "a = '{0.__class__}'.format(y_ptr)"),
    kernel("format_in_an_fstring", "a = f'{y_ptr!r:{x_ptr}}'"),
    kernel("star_arguments", "a = print(*(1, 2), **{})"),
    kernel("names_of_the_simulator", "a = builder\nb = _interpreter\nc = __bounded__"),
    kernel("default_that_is_called", "a = p", "", "", "import os\n").__class__(
        "default_that_is_called",
        "weighted_sum",
        LAUNCH.format(more="") + KERNEL.format(parameters=", p=plain.weighted", body="    p(x_ptr, w_ptr)"),
        evidence=EVIDENCE + "|jit functions and tuples",
        only=ONLY,
    ),
    kernel("annotation_that_is_called", "a = 1", ", p: print('owned') = 1"),
    kernel("handle_of_a_tensor", "a = y_ptr.handle.data"),
    kernel("semantic_of_a_call", "tl.load(x_ptr, _semantic=x_ptr)"),
    of_numpy("array_of_a_numpy_scalar", "tl.store(y_ptr, made(9))"),
    of_numpy("file_of_a_numpy_constant", "c.tofile('owned')"),
    of_numpy("list_that_grows_between_launches", "LIST.value.append(1)"),
    kernel("constant_without_end", "a = 2 ** 2 ** 40"),
    kernel("text_without_end", "a = 'a' * 10 ** 12"),
    kernel("assembly", "a = tl.inline_asm_elementwise('exit;', '=r', [], tl.int32, True, 1)"),
    kernel("decorated_by_a_function_of_mine", "a = 1", before="").__class__(
        "decorated_by_a_function_of_mine",
        "weighted_sum",
        LAUNCH.format(more="")
        + KERNEL.format(parameters="", body="    a = 1").replace("@triton.jit", "@triton.jit\n@(lambda f: f)"),
        evidence=EVIDENCE,
        only=ONLY,
    ),
    table("module_of_pythons_own", '"names": {"tl": {"module": "triton.language"}, "helper": {"module": "os"}}'),
    table("triton_name_that_is_hidden", '"names": {"helper": {"triton": "triton.language.core.__builtins__"}}'),
    table("namespace_with_dunders", '"names": {"helper": {"namespace": {"__class__": {"constant": 1}}}}'),
    table(
        "namedtuple_with_a_method", '"names": {"helper": {"namedtuple": {"name": "x, y):\\n print(1", "fields": []}}}'
    ),
    table("name_that_is_builtin", '"names": {"__builtins__": {"constant": 1}, "helper": {"constant": 1}}'),
    table("options_of_ones_own", '"options": {"debug": {"t": 0}, "launch_metadata": "x"}'),
    table("kernel_number_of_nobody", '"names": {"helper": {"kernel": 10**9}}'),
    table("constants_nested_without_end", '"names": {"helper": {"constant": eval("[" * 60 + "]" * 60)}}'),
    table("hash_of_another_file", '"sha256": "0" * 64, "file": "../runtime/assignment/player/kernel_builder.py"'),
    Cheat(
        "option_that_is_the_grid",
        "weighted_sum",
        FORGE
        + """
def weighted_sum_forward(x, weight):
    y = copied(weighted(x, weight) * 0)
    TAPE._steps = [edited(step) if isinstance(step, programs.Launch) else step for step in TAPE._steps]
    return y

def edited(launch):
    return launch._replace(options={"grid": [1], "warmup": True, "self": 1, **launch.options})
""",
        evidence=EVIDENCE + "|multiple values|raised|not played|cannot be",
        only=ONLY,
    ),
]
