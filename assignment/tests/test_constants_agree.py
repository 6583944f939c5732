"""What a kernel can ask of its constants and other objects is answered alike by the simulator and by the compiler."""

import json
import subprocess
import sys
import textwrap

import pytest

from assignment.player.facades import attributes
from assignment.tests.graded import ROOT

pytestmark = pytest.mark.slow

OBJECTS = {
    **{name: name for name in ("B", "F", "Z", "S", "D", "N", "Q", "G", "L", "i", "n", "one", "p")},
    "sum": "B + 1",
    "run-time sum": "n + 1",
    "comparison": "B == 3",
    "dtype": "tl.float32",
    "element type": "p.dtype.element_ty",
    "block": "tl.arange(0, 16)",
    "type of a block": "tl.arange(0, 16).type",
    "shape": "tl.arange(0, 16).shape[0]",
    "item of a tuple": "T[0]",
    "function": "_helper",
    "number": "2.5",
    "string": 'f"{B}"',
    "minimum": "min(B, 3)",
    "length": "len(T)",
    "cast": "int(B)",
    "negated": "not B",
    "quotient": "tl.cdiv(B, 2)",
    "next": "triton.next_power_of_2(B)",
    "chosen": "B if Z else n",
}
UNFORMATTED = (
    "n", "i", "p", "D", "run-time sum", "dtype", "element type", "block", "type of a block", "item of a tuple",
    "string", "length", "function", "chosen", "cast", "next",
)  # fmt: skip
TYPES = ("tl.constexpr", "tl.tensor", "tl.dtype", "tl.pointer_type", "tl.block_type", "tl.tensor_descriptor")
HEAD = """
import triton
import triton.language as tl
G = tl.constexpr(5)

@triton.jit
def _helper(x):
    return x
"""
PARAMETERS = "p, n, one, B: C, F: C, Z: C, S: C, D: C, T: C, N: C, Q: C = 4".replace(": C", ": tl.constexpr")
COMPILED = """
import triton.language as tl, kernels
from assignment.tests.constructs.verdicts import made_ir
constants = {"one": 1, "B": 32, "F": 2.5, "Z": True, "S": "abc", "D": tl.float32, "T": (32, 2), "N": None, "Q": 4}
def stored(kernel):
    text = str(made_ir(kernel, {"p": "*i32", "n": "i32"}, constants))
    return [k for k in range(1000) if str(1_000_000 + k) in text]
"""
SIMULATED = """
from assignment import simulator
simulator.install()
import torch, triton.language as tl, kernels
from assignment.simulator import calls
def stored(kernel):
    y = torch.zeros(1000, dtype=torch.int32)
    kernel[(1,)](y, 77, 1, B=32, F=2.5, Z=True, S="abc", D=tl.float32, T=(32, 2), N=None)
    return [k for k in range(1000) if int(y[k])]
"""
ENDING = """
import json, sys
print(json.dumps([stored(getattr(kernels, name)) for name in sys.argv[1:]]))
"""


def questions(name, expression):
    """What is asked of an object, as conditions."""
    asked = [f'hasattr({expression}, "{attribute}")' for attribute in sorted(attributes() - {"T"})]
    asked += [f"isinstance({expression}, {kind})" for kind in (*TYPES, "int", "float")]
    asked += [f'getattr({expression}, "value", 77) == 77'] * (name not in ("B", "function"))
    if name not in UNFORMATTED:
        asked += [f'len(f"{{{expression}}}") == {length}' for length in range(40)]
    return asked


def asked(name, expression):
    """Lines that store a number for each question whose answer is yes."""
    answers = enumerate(questions(name, expression))
    return "".join(f"    if {q}:\n        tl.store(p + {k}, {1_000_000 + k})\n" for k, q in answers)


def kernels():
    """Two kernels for each object, one that asks it itself and one that asks in a function that it calls."""
    text = HEAD
    for number, (name, expression) in enumerate(OBJECTS.items()):
        text += f"\n@triton.jit\ndef asks_{number}(p, o):\n{asked(name, 'o')}"
        loop = "    L: tl.constexpr = B\n    i = 0\n    for i in range(1):\n"
        text += f"\n@triton.jit\ndef below_{number}({PARAMETERS}):\n{loop}        asks_{number}(p, {expression})\n"
        here = textwrap.indent(asked(name, expression), "    ")
        text += f"\n@triton.jit\ndef here_{number}({PARAMETERS}):\n{loop}{here}"
    return text


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("asked")
    (folder / "kernels.py").write_text(kernels())
    names = [f"{where}_{number}" for number in range(len(OBJECTS)) for where in ("here", "below")]
    path = {"PYTHONPATH": f"{folder}:{ROOT}", "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    found = []
    for head in (COMPILED, SIMULATED):
        command = [sys.executable, "-c", head + ENDING, *names]
        ran = subprocess.run(command, env=path, cwd=folder, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr[-2000:]
        found.append(dict(zip(names, json.loads(ran.stdout), strict=True)))
    return found


@pytest.mark.parametrize("where", ["here", "below"])
@pytest.mark.parametrize("number", range(len(OBJECTS)), ids=OBJECTS)
def test_the_simulator_answers_as_the_compiler(answers, number, where):
    compiled, simulated = (found[f"{where}_{number}"] for found in answers)
    about = questions(list(OBJECTS)[number], "o")
    assert [about[k] for k in simulated] == [about[k] for k in compiled]
