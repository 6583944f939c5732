"""An operator is a folder: one that is written into a copy of the repository works, and nothing else is touched."""

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
FILES = {
    "tests/negate/__init__.py": "",
    "tests/negate/record.py": '''"""Negation."""

from tests.operators import Function, Operator, Problem

OPERATOR = Operator(
    name="negate",
    file="cs336_kernels/practice/negate.py",
    position=9,
    is_practice=True,
    problems=(Problem("negate", "Negation", 3.0, "handout/vector_add.md"),),
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
    "assignment/operators/negate/staff/__init__.py": "",
    "assignment/operators/negate/staff/solution.py": SOLUTION,
    "assignment/operators/negate/staff/bugs.py": """from assignment.attacks.bugs import bug

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
    said = python(copy, "-m", "assignment.attacks", "negate", "--quick", "--kept", tmp_path / "kept")
    assert "1 of 1" in said, said


def test_the_student_release_has_it_without_what_is_the_staff_s(copy, tmp_path):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *arguments], cwd=copy, check=True, capture_output=True)
    python(copy, "-m", "assignment.release", "student", "--to", tmp_path / "release")
    assert (tmp_path / "release/tests/negate/test_negate.py").is_file()
    assert (tmp_path / "release/assignment/operators/negate/misconceptions.py").is_file()
    assert not [*(tmp_path / "release").rglob("staff")]
    assert "negate: Negation" in python(tmp_path / "release", "grade.py", "--list")
