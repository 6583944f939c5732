"""A kernel whose constants differ between the simulator and the compiler is another program there: it is told."""

import json

import pytest

from assignment.compiling.compiled_constants import differing
from assignment.simulator.constants import UNKNOWN
from assignment.tests.forked import python
from assignment.tests.graded import ROOT

KERNELS = """
import triton
import triton.language as tl

G = tl.constexpr(1000)

@triton.jit
def helper(x, WAY: tl.constexpr):
    if WAY == 3:
        return x + 1
    return x

@triton.jit
def honest(p, n, one, B: tl.constexpr, D: tl.constexpr, N: tl.constexpr):
    total = 0.0
    if one == 1 and N is None:  # constants by what the launch is given
        total += 1.0
    for i in tl.static_range(3):
        total = helper(total, i + 1) if i != 1 else total
    for i in range(n):
        if i < 2:  # known to the launch alone
            total += 1.0 if B > 16 else 2.0
    if n > 1000:  # of which no program is
        if B == 32:
            total = 5.0
    kept = [width for width in (16, B) if width > 16]
    if isinstance(p, tl.tensor) and p.dtype.element_ty == tl.float32 and D == tl.float32 and len(kept) == 1:
        tl.store(p, total)
    value: tl.constexpr = B // 3 * 2.5
    tl.store(p + 1, value)

@triton.jit
def an_arm(p):
    if 1000 is 1000:
        tl.store(p, 1.0)

@triton.jit
def an_arm_without_a_body_in_a_helper(p):
    tl.store(p, below(2.0))

@triton.jit
def below(x):
    return x if 1000 is not 1000 else 3.0

@triton.jit
def a_number(p):
    tl.store(p, 2.0 * int(1000 is 1000))

@triton.jit
def a_loop_that_is_not_compiled(p):
    for i in tl.static_range(int(1000 is 1000)):
        if G == 1000:
            tl.store(p, 1.0)
"""
PLAYED = """
from assignment import simulator
simulator.install()
import torch, triton.language as tl, kernels
from assignment.simulator import calls
def noted(kernel, given):
    y = torch.zeros(1000)
    with calls.Call(notes_constants=True) as seen:
        kernel[(2,)](y, **given)
    assert float(y[0]) > 0
    return seen.constants[0]
"""
SEEN = """
import triton.language as tl, kernels
from assignment.compiling import compiled_constants as seen_by
from assignment.tests.constructs.verdicts import made_ir
def noted(kernel, given):
    seen = {}
    with seen_by.noted(seen):
        made_ir(kernel, {"p": "*fp32", "n": "i32"}, {k: v for k, v in given.items() if k != "n"})
    return seen
"""
ENDING = """
import json, sys
given = {"honest": {"n": 7, "one": 1, "B": 32, "D": tl.float32, "N": None}}
found = {name: noted(getattr(kernels, name), given.get(name, {})) for name in sys.argv[1:]}
print(json.dumps({name: {k: sorted(v) for k, v in seen.items()} for name, seen in found.items()}))
"""
TOLD = {
    "an_arm": "this `if` takes its body where it is played; compiled is the other arm alone",
    "an_arm_without_a_body_in_a_helper": "this `if` takes the other arm where it is played; compiled is its body alone",
    "a_number": "a constant is True where it is played and False where it is compiled",
    "a_loop_that_is_not_compiled": "this `if` takes its body where it is played; nothing of it is compiled",
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What the simulator and the compiler see of each kernel's constants."""
    folder = tmp_path_factory.mktemp("constants")
    (folder / "kernels.py").write_text(KERNELS)
    env = {"PYTHONPATH": f"{folder}:{ROOT}", "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    done = [
        python("-W", "ignore", "-c", head + ENDING, "honest", *TOLD, cwd=folder, env=env) for head in (PLAYED, SEEN)
    ]
    for one in done:
        assert one.returncode == 0, one.stderr[-2000:]
    return [json.loads(one.stdout) for one in done]


def test_nothing_is_told_of_an_honest_kernel(seen):
    """Constants of the launch, unrolled loops, helpers, run-time conditions, and arms that no program takes"""
    played, compiled = (found["honest"] for found in seen)
    assert differing(played, compiled) == []
    arms = [where for where in played if where.endswith(":if")]
    assert len(arms) == 8
    assert {*arms} < {where for where in compiled if where.endswith(":if")}
    assert sorted(values for where in arms if len(values := played[where]) > 1) == [["False", "True"]] * 4


@pytest.mark.parametrize("name", TOLD)
def test_a_kernel_that_is_two_programs_is_told_by_its_line(seen, name):
    played, compiled = (found[name] for found in seen)
    told = differing(played, compiled)
    lines = KERNELS.splitlines()
    assert TOLD[name] in [how for _, line, how in told if "1000" in lines[line - 1]]


def test_what_only_the_launch_knows_is_not_compared():
    where = "kernels.py:3:4:Compare"
    assert differing({where: ["True", UNKNOWN]}, {where: ["False"]})
    assert not differing({where: ["True"]}, {where: ["False", UNKNOWN]})
    assert not differing({where: ["True"]}, {})
