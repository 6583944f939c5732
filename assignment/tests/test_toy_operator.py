"""An operator is a folder: those that are written into a copy of the repository work, and nothing else is touched.

negate has one function; grow, y = eˣ, a backward pass that gets the forward one's result and none of its inputs.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow

SOLUTION = '''"""Negation: y = −x."""

import torch
import triton
import triton.language as tl
from torch import Tensor


def negate(x: Tensor) -> Tensor:
    """y = −x, of x's dtype."""
    # BEGIN SOLUTION handout/vector_add.md
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _kernel[(triton.cdiv(x.numel(), 64),)](x.contiguous(), y, x.numel())
    return y
    # END SOLUTION


# BEGIN SOLUTION
@triton.jit
def _kernel(x_ptr, y_ptr, n):
    at = tl.program_id(0) * 64 + tl.arange(0, 64)
    tl.store(y_ptr + at, -tl.load(x_ptr + at, mask=at < n), mask=at < n)


# END SOLUTION
'''
GROW = '''"""Growth: y = eˣ; grad_x = grad_y · y."""

import torch
import triton
import triton.language as tl
from torch import Tensor


def grow_forward(x: Tensor) -> Tensor:
    """y = eˣ, of x's dtype."""
    # BEGIN SOLUTION handout/vector_add.md
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _grow[(triton.cdiv(x.numel(), 64),)](x.contiguous(), y, x.numel())
    return y
    # END SOLUTION


def grow_backward(grad_y: Tensor, y: Tensor) -> Tensor:
    """grad_x = grad_y · y."""
    # BEGIN SOLUTION handout/vector_add.md
    grad_x = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    _shrink[(triton.cdiv(y.numel(), 64),)](grad_y.contiguous(), y.contiguous(), grad_x, y.numel())
    return grad_x
    # END SOLUTION


def grow(x: Tensor) -> Tensor:
    """y, differentiable."""
    # BEGIN SOLUTION handout/vector_add.md
    return _Grow.apply(x)
    # END SOLUTION


# BEGIN SOLUTION
class _Grow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = grow_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_y):
        return grow_backward(grad_y, *ctx.saved_tensors)


@triton.jit
def _grow(x_ptr, y_ptr, n):
    at = tl.program_id(0) * 64 + tl.arange(0, 64)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y_ptr + at, tl.exp(x).to(y_ptr.dtype.element_ty), mask=at < n)


@triton.jit
def _shrink(grad_ptr, y_ptr, out_ptr, n):
    at = tl.program_id(0) * 64 + tl.arange(0, 64)
    grad, y = tl.load(grad_ptr + at, mask=at < n, other=0.0), tl.load(y_ptr + at, mask=at < n, other=0.0)
    tl.store(out_ptr + at, grad * y, mask=at < n)


# END SOLUTION
'''
FILES = {
    "tests/grow/__init__.py": "",
    "tests/grow/record.py": '''"""Growth."""

from tests.operators import Function, Operator, Problem

OPERATOR = Operator(
    name="grow",
    file="cs336_kernels/practice/grow.py",
    position=10,
    follows="",
    problems=(Problem("grow", "Growth", "handout/vector_add.md"),),
    functions=(
        Function("grow_forward", "grow", inputs=("x",), outputs=("y",), oracle="grow_forward"),
        Function(
            "grow_backward",
            "grow",
            inputs=("grad_y", "y"),
            outputs=("grad_x",),
            oracle="grow_backward",
            is_backward=True,
            forward="grow_forward",
            unseen=(("x", "y"),),
        ),
        Function(
            "grow",
            "grow",
            inputs=("x",),
            outputs=("y",),
            oracle="grow_forward",
            forward="grow_forward",
            gradients="grow_backward",
        ),
    ),
)
''',
    "tests/grow/oracle.py": """def grow_forward(x):
    return x.double().exp()


def grow_backward(grad_y, y):
    return grad_y.double() * y.double()
""",
    "tests/grow/models.py": """from tests.compare import expect
from tests.grow import oracle


def grow_forward(x):
    value = oracle.grow_forward(x)
    return {"y": expect(value, [[x.exp()]], [], 4 * value, x.dtype, rows=False)}


def grow_backward(grad_y, y):
    value = oracle.grow_backward(grad_y, y)
    return {"grad_x": expect(value, [[grad_y * y]], [], 4 * value.abs(), y.dtype, rows=False)}
""",
    "tests/grow/test_grow.py": """from tests.families import Subject, shapes, values
from tests.grow import models, oracle
from tests.inputs import normal

FORWARD = Subject("grow_forward", lambda rng, shape, dtype: [normal(rng, *shape, dtype=dtype)], models.grow_forward)


def after_forward(rng, shape, dtype):
    y = oracle.grow_forward(normal(rng, *shape, dtype=dtype)).to(dtype)
    return [normal(rng, *shape, dtype=dtype), y]


BACKWARD = Subject("grow_backward", after_forward, models.grow_backward)
SHAPES = shapes({"64": (64,), "100": (100,)})

test_grow_values = values(1, "grow_forward returns eˣ", FORWARD, SHAPES)
test_grow_backward_values = values(1, "grow_backward returns grad_y · y", BACKWARD, SHAPES)
test_grow_gradients = values(1, "grow returns the y of grow_forward",
                             Subject("grow", FORWARD.build, models.grow_forward), SHAPES)
""",
    "assignment/operators/grow/__init__.py": "",
    "assignment/operators/grow/misconceptions.py": """
from assignment.operators.misconception import Misconception, Models

LEFT_OUT = Misconception("y-left-out", "Your grad_x equals grad_y", "What is it multiplied with?",
                         "handout/vector_add.md#algorithm", lambda call: iter([[call.tensors[0].double()]]))
WRONG = "handout/vector_add.md#what-goes-wrong"
MODELS = {"grow_forward": Models([], WRONG, n_inner=0), "grow_backward": Models([LEFT_OUT], WRONG, n_inner=0)}
""",
    "assignment/bank/operators/grow/__init__.py": "",
    "assignment/bank/operators/grow/solution.py": GROW,
    "tests/negate/__init__.py": "",
    "tests/negate/record.py": '''"""Negation."""

from tests.operators import Function, Operator, Problem

OPERATOR = Operator(
    name="negate",
    file="cs336_kernels/practice/negate.py",
    position=9,
    follows="",
    problems=(Problem("negate", "Negation", "handout/vector_add.md"),),
    functions=(Function("negate", "negate", inputs=("x",), outputs=("y",), oracle="negate"),),
)
''',
    "tests/negate/oracle.py": "def negate(x):\n    return -x.double()\n",
    "tests/negate/models.py": """from tests.compare import expect
from tests.negate import oracle


def negate(x):
    value = oracle.negate(x)
    return {"y": expect(value, [[-x]], [], value.abs(), x.dtype, rows=False)}
""",
    "tests/negate/test_negate.py": """from tests.families import Subject, shapes, values
from tests.inputs import normal
from tests.negate import models

NEGATE = Subject("negate", lambda rng, shape, dtype: [normal(rng, *shape, dtype=dtype)], models.negate)

test_negate_values = values(3, "negate returns −x", NEGATE, shapes({"64": (64,), "100": (100,)}))
""",
    "assignment/operators/negate/__init__.py": "",
    "assignment/operators/negate/misconceptions.py": """
from assignment.operators.misconception import Misconception, Models

COPY = Misconception("a-copy", "Your result equals x", "What becomes of its sign?", "handout/vector_add.md#algorithm",
                     lambda call: iter([[call.tensors[0].double()]]))
MODELS = {"negate": Models([COPY], "handout/vector_add.md#what-goes-wrong", n_inner=0)}
""",
    "assignment/bank/operators/negate/__init__.py": "",
    "assignment/bank/operators/negate/solution.py": SOLUTION,
    "assignment/bank/operators/negate/bugs.py": """from assignment.bank.operators.edits import bug

PROBLEM = "negate"
FILES = ("practice/negate.py",)
BUGS = [bug("the sign kept", "test_negate_values", "-tl.load(x_ptr → tl.load(x_ptr", named="a-copy")]
""",
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The repository as it is committed or worked on, with one more operator."""
    folder = tmp_path_factory.mktemp("copy")
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    for name in filter(None, listed.stdout.splitlines()):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    python(folder, "-m", "assignment.release", "stubs")
    return folder


def python(folder: Path, *arguments: object, status: int = 0) -> str:
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def submitted(folder: Path, *edits: tuple[str, str]) -> Path:
    """A submission that is the solution with these edits."""
    source = SOLUTION
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    target = folder / "submitted" / "cs336_kernels"
    shutil.copytree(folder / "cs336_kernels", target, dirs_exist_ok=True)
    (target / "practice" / "negate.py").write_text(source)
    return target.parent


def test_it_is_listed_and_has_a_stub(copy):
    assert "negate: Negation, 3 points of practice" in python(copy, "grade.py", "--list")
    stub = (copy / "cs336_kernels/practice/negate.py").read_text()
    assert 'NotImplementedError("cs336_kernels/practice/negate.py: negate, handout/vector_add.md")' in stub
    assert "def _kernel" not in stub


def test_a_right_submission_has_its_points_and_none_of_the_100(copy, tmp_path):
    file = tmp_path / "report.json"
    python(copy, "grade.py", submitted(copy), "--only", "negate", "--json", file)
    report = json.loads(file.read_text())
    assert [(p["name"], p["score"]) for p in report["practice"]] == [("negate", 3.0)]
    assert (report["score"], report["problems"]) == (0, [])


def test_the_reference_has_it_too(copy, tmp_path):
    file = tmp_path / "report.json"
    assert (copy / "assignment/reference/cs336_kernels/practice/negate.py").is_symlink()
    python(copy, "grade.py", "assignment/reference", "--only", "negate", "--json", file)
    assert [(p["name"], p["score"]) for p in json.loads(file.read_text())["practice"]] == [("negate", 3.0)]


def test_a_wrong_one_is_told_why(copy):
    wrong = submitted(copy, ("-tl.load", "tl.load"))
    assert "Your result equals x" in python(copy, "grade.py", wrong, "--only", "negate")
    assert "Your result equals x" in python(copy, "grade.py", wrong, "--explain", "test_negate_values")
    assert "test_negate.py::test_negate_values: FAIL" in python(copy, "grade.py", wrong, "--next", "--only", "negate")


def test_its_planted_bug_is_caught_and_told(copy, tmp_path):
    said = python(copy, "-m", "assignment.bank", "grade", "negate", "--quick", "--kept", tmp_path / "kept")
    assert "1 of 1" in said, said


def test_the_student_release_has_it_without_what_is_the_staff_s(copy, tmp_path):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *arguments], cwd=copy, check=True, capture_output=True)
    python(copy, "-m", "assignment.release", "student", "--to", tmp_path / "release")
    assert (tmp_path / "release/tests/negate/test_negate.py").is_file()
    assert (tmp_path / "release/assignment/operators/negate/misconceptions.py").is_file()
    assert not [*(tmp_path / "release").rglob("bank")]
    assert "negate: Negation" in python(tmp_path / "release", "grade.py", "--list")


def test_decoys_of_a_backward_pass_are_what_the_forward_pass_leaves(copy):
    """Though it does not get the forward pass's input: eˣ is above 0"""
    decoys = "decoys.like('grow_backward', [torch.randn(99), torch.rand(99)], {})"
    said = python(copy, "-c", f"import torch\nfrom assignment.judge import decoys\nprint({decoys}[1].min().item() > 0)")
    assert said == "True\n"


def test_a_backward_pass_that_gets_the_forward_result_alone(copy, tmp_path):
    """It is graded, its gradients asked for by autograd are told of by their models, those of another graph too"""
    file = tmp_path / "report.json"
    python(copy, "grade.py", "assignment/reference", "--only", "grow", "--json", file)
    assert [(p["name"], p["score"]) for p in json.loads(file.read_text())["practice"]] == [("grow", 3.0)]
    asked = """
import torch
from assignment.verdict.diagnosis import candidates
from assignment.protocol.requests import Gradients
from tests.operators import called
x, grad = torch.randn(9), torch.randn(9)
how = {**called("grow"), "options": {}, "has_grad": True, "wrt": [0], "times": 1}
(call,) = candidates.calls(Gradients(**how, interleaved=False), [x, grad])
print(len(call.tensors), bool((call.tensors[1] - x.exp()).abs().max() < 1e-6))
(other,) = candidates.calls(Gradients(**how, interleaved=True), [x, grad])
found = [grad_x for (grad_x,) in candidates.of_another_graph("grow_backward", other)]
print(all((grad_x - grad * (x / 2).exp()).abs().max() < 1e-6 for grad_x in found), len(found) > 0)
print(next(candidates.possible("grow_backward", call)).explanation.says)
"""
    assert python(copy, "-c", asked) == "2 True\nTrue True\nYour grad_x equals grad_y\n"
