"""`python -m assignment.compiling`, on scripts and submissions, and its agreement with a GPU."""

import os
from pathlib import Path

import pytest

from assignment.compiling import agreement, workload_calls
from assignment.compiling.targets import TARGETS
from assignment.tests.forked import python

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_tuned_kernels_of_several_calls_are_told_apart(command, tmp_path):
    """One that fits in one call does not stand for one that does not in another"""
    (tmp_path / "cs336_kernels").mkdir()
    (tmp_path / "cs336_kernels" / "__init__.py").write_text(TUNED)
    status, out, _ = command(".", "--target", "a100")
    assert status == 1
    assert "none of 2 configurations fits; the smallest (STAGES=3, num_warps=4" in " ".join(out.split())


TUNED = """
import torch, triton, triton.language as tl

@triton.autotune([triton.Config({"STAGES": n}) for n in (3, 4)], key=[])
@triton.jit
def products(x_ptr, n, SIZE: tl.constexpr, STAGES: tl.constexpr):
    at = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    total = tl.zeros((SIZE, SIZE), tl.float32)
    for i in tl.range(0, n, num_stages=STAGES):
        x = tl.load(x_ptr + i * SIZE * SIZE + at)
        y = tl.load(x_ptr + (i + 1) * SIZE * SIZE + at)
        total += tl.dot(x, y)
    tl.store(x_ptr + at, total)

def weighted_sum_forward(x, weight):
    products[(1,)](x, 4, SIZE=128 if x.dtype == torch.float32 else 16)
"""


def row(**changed):
    return {"call": "f, float32", "kernel": "_k", "shared": 512, "registers": 32, "spills": 0, **changed}


@pytest.mark.parametrize("name", agreement.COMPARED)
def test_agreement_with_a_gpu_is_told(capsys, name):
    assert agreement.tell([row(), row()], [row(), row()]) == 0
    assert "2 launches compiled, 2 on the GPU: they agree" in capsys.readouterr().out
    assert agreement.tell([row(), row()], [row(), row(**{name: 77})]) == 1
    said = capsys.readouterr().out.splitlines()
    assert [line.endswith("DIFFERENT") for line in said[2:4]] == [False, True]
    assert agreement.tell([row()], [row(), row()]) == 1


def test_agreement_without_a_gpu_says_so(capsys, monkeypatch):
    monkeypatch.setattr(agreement, "of_gpu", lambda: None)
    assert agreement.main([str(ROOT / "assignment" / "reference")]) == 2
    assert "no GPU here of the kinds A100, H100, B200" in capsys.readouterr().err
    assert agreement.main([str(ROOT / "assignment")]) == 2


@pytest.mark.slow
def test_the_side_that_needs_no_gpu(tmp_path, monkeypatch):
    """A row for each launch of each call, also those that are compiled once for several"""
    package = tmp_path / "cs336_kernels"
    package.mkdir()
    (package / "__init__.py").write_text(SMALL)
    rows = agreement.side("compiled", tmp_path, TARGETS["h100"]) or []
    assert [one["kernel"] for one in rows].count("add_one") == len(list(workload_calls.of_submission()))
    assert all(one["registers"] > 0 and one["spills"] == one["shared"] == 0 for one in rows)


SMALL = """
import torch, triton, triton.language as tl

@triton.jit
def add_one(x_ptr, y_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y_ptr + at, tl.load(x_ptr + at) + 1)

def weighted_sum_forward(x, *others, is_causal=False):
    add_one[(1,)](x, torch.empty_like(x), N=64)

weighted_sum_backward = rmsnorm_forward = rmsnorm_backward = weighted_sum_forward
flash_forward_triton = flash_backward_triton = weighted_sum_forward
"""


@pytest.fixture
def command(tmp_path):
    """Run `python -m assignment.compiling` on a script or a folder; returns its exit status and what it printed."""
    caches = {"TRITON_CACHE_DIR": str(tmp_path / "triton"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **caches}

    def command(*arguments):
        done = python("-m", "assignment.compiling", *arguments, cwd=tmp_path, env=environment, timeout=120)
        assert "Traceback" not in done.stderr
        assert all(len(line) <= 100 for line in done.stdout.splitlines())
        return done.returncode, done.stdout, done.stderr

    return command


SCRIPT = """
import sys, torch, triton, triton.language as tl

@triton.jit
def add_one(x_ptr, y_ptr, n, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)

print("arguments", sys.argv[1:], torch.cuda.get_device_name(), torch.cuda.get_device_capability())
x = torch.randn(100, device="cuda")
y = torch.empty_like(x)
add_one[(1,)](x, y, 100, N=128)
assert y.isnan().all()
"""


def test_a_script_is_compiled(command, tmp_path):
    """Its own arguments stay with it, it prints once, and the listings have its lines"""
    (tmp_path / "add.py").write_text(SCRIPT)
    status, out, err = command("add.py", "--count", "3", "--target", "a100,h100", "--ptx", "out")
    assert (status, err) == (0, "note: cuda tensors are made on the CPU, and kernels are compiled, not run\n")
    assert out.startswith("arguments ['--count', '3'] NVIDIA A100-SXM4-80GB (8, 0)\n  kernel  ")
    assert [line.split()[:2] for line in out.splitlines()[3:5]] == [["add_one", "A100"], ["H100", "yes"]]
    assert "4 files in out" in out
    for name in ("add_one.a100.1.ptx", "add_one.h100.1.sass"):
        text = (tmp_path / "out" / name).read_text()
        assert "\n// add.py:7: tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)\n" in text
    assert "st.global" in (tmp_path / "out" / "add_one.a100.1.ptx").read_text()
    assert "STG" in (tmp_path / "out" / "add_one.h100.1.sass").read_text()


@pytest.mark.parametrize(
    ("ending", "expected", "part"),
    [
        ("assert y.sum() == 7\n", 0, "AssertionError\n    at add.py:14: assert y.sum() == 7"),
        ("y.no_such_method()\n", 1, "AttributeError: 'Tensor' object has no attribute 'no_such_method'"),
        ("sys.exit(3)\n", 0, "add_one"),
        pytest.param(
            "add_one[(1,)](x, y, 100, N=100)\n", 1, "arange's range must be a power of 2", marks=pytest.mark.slow
        ),
        pytest.param(
            "add_one[(1,)](x, y, 100, N=128, num_warps=3)\n",
            1,
            "num_warps must be a power of 2",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_how_a_script_ends(command, tmp_path, ending, expected, part):
    """An assertion about results that are not there is no failure; what a GPU would not take is"""
    (tmp_path / "add.py").write_text(SCRIPT + ending)
    status, out, _ = command("add.py", "--target", "h100")
    assert status == expected, out
    assert part in out


def test_a_script_without_kernels(command, tmp_path):
    (tmp_path / "none.py").write_text("print(1)\n")
    assert command("none.py") == (1, "1\n", "nothing to compile: no kernel was launched\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.py"], "missing.py: no such script or folder"),
        (["."], "expected a script, or a folder that holds cs336_kernels/"),
        (["notes.txt"], "expected a Python script, or a folder that holds cs336_kernels/"),
        (["broken"], "cs336_kernels cannot be imported: SyntaxError"),
        (["broken", "more"], "expected no more than the folder, got more"),
        (["add.py", "--target", "v100"], "expected some of a100, h100, b200, got 'v100'"),
    ],
)
def test_what_cannot_be_used(command, tmp_path, arguments, words):
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "broken" / "cs336_kernels").mkdir(parents=True)
    (tmp_path / "broken" / "cs336_kernels" / "__init__.py").write_text("def (:\n")
    status, out, err = command(*arguments)
    assert (status, out) == (2, "")
    assert words in err


def test_a_submission_is_compiled(command, tmp_path):
    """Every call of the grade, with a row for each kernel and target; larger shapes apart; what is to do left out"""
    package = tmp_path / "cs336_kernels"
    package.mkdir()
    to_do = "def flash_backward_triton(*_, **__):\n    raise NotImplementedError\ndel rmsnorm_backward\n"
    (package / "__init__.py").write_text(SMALL + to_do)
    status, out, _ = command(".", "--target", "b200")
    assert status == 0, out
    graded, _, larger = out.partition("\nLarger shapes, for advice only:\n")
    titles = [call.title for call in workload_calls.of_submission() if call.function not in to_do]
    assert all(title in graded or title in larger for title in titles)
    assert "flash_forward_triton, bfloat16, d 256, causal" in larger
    assert out.count("add_one") == len(titles)
    assert "flash_backward" not in out


@pytest.mark.slow
def test_a_report_is_remembered_until_a_file_changes(command, tmp_path):
    """The one that is remembered reads alike; a failure is not remembered"""
    package = tmp_path / "cs336_kernels"
    package.mkdir()
    (package / "__init__.py").write_text("from .small import *\n")
    (package / "small.py").write_text(SMALL)
    first = command(".", "--target", "b200")
    (remembered,) = (tmp_path / "cache").rglob("*.json")
    assert first[0] == 0
    assert command(".", "--target", "b200") == first
    remembered.write_text('"as before"')
    assert command(".", "--target", "b200") == (0, "as before", "")
    (package / "small.py").write_text(SMALL.replace("tl.load(x_ptr + at)", "no_such_name"))
    assert command(".", "--target", "b200")[0] == 1
    assert list((tmp_path / "cache").rglob("*.json")) == [remembered]


def test_calls_are_those_of_the_grade():
    """The shapes that are told as graded are those of the specification"""
    from assignment.operators.flash_attention import workload as flash_attention
    from assignment.operators.rmsnorm import workload as rmsnorm
    from assignment.operators.weighted_sum import workload as weighted_sum
    from tests import rows
    from tests.flash_attention import inputs

    assert [case.shape for case in rows.COMPILED.values()] == [weighted_sum.COMPILED] == [rmsnorm.COMPILED]
    assert flash_attention.COMPILED == inputs.COMPILED_TOKENS
    assert set(flash_attention.GRADED) == {(case.dtype, case.shape.d) for case in inputs.COMPILED.values()}
