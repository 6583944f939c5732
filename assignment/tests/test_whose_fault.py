"""An exception of ours is never the student's, a student's never ours: planted in each process, at each boundary.

What the recorder says of itself is the submission's word: a fault there costs points, and staff read what it says.
"""

import json
import os
import textwrap

import pytest

from assignment import whose
from assignment.judge.errors import SAYS_BROKEN
from assignment.judge.replies import Failed, Ok, Raised
from assignment.recorder.launches import grid_sizes
from assignment.tests.forked import python
from assignment.tests.graded import ROOT
from assignment.tests.pairs import F, X, defined
from assignment.whose import theirs

CHECKS = "test_weighted_sum.py::test_forward_values", "test_weighted_sum.py::test_gradients"
COMPILES = "test_weighted_sum.py::test_compiles"
# role, file, and the line before which an index goes wrong
PLANTED = {
    "recorder: an operation": (
        "record",
        "recorder/tape.py",
        "        views = [self._view(self._number(tensor)[0], tensor)",
    ),
    "recorder: a function of PyTorch": ("record", "simulator/cuda.py", "        if func in _MOVES:"),
    "recorder: a launch": ("record", "recorder/launches.py", "        own = {name: value for name, value in kwargs"),
    "recorder: a grid": ("record", "simulator/kernel_values.py", '    for axis, size, limit in zip("xyz", sizes'),
    "recorder: a kernel's description": ("record", "recorder/kernels.py", "        tree = _tree(fn)"),
    "recorder: the program": ("record", "recorder/tape.py", "        self._new_chunk()\n        return program"),
    "player: a step": ("play", "player/play.py", "        for view, tensor in zip(described, outputs"),
    "player: a kernel": ("play", "player/kernel_builder.py", "        self._built |= self._being_built"),
    "player: labels": ("play", "player/labels.py", "        return "),
    "player: what is said": ("play", "player/session.py", "    return Ok(\n"),
    "simulator: a launch": ("play", "simulator/launch.py", "        builder.watch = watch"),
    "simulator: a load": ("play", "simulator/watch.py", "        region = "),
    "compiler: a launch": ("compile", "player/launch_compiler.py", "        with launches.recorded(TARGETS[name])"),
}
START = """
import sys
from pathlib import Path
from assignment.sandbox import stage

role, file, before = {planted!r}
made = stage.Stage.__init__

def planted(self, *args, **kwargs):
    made(self, *args, **kwargs)
    path = self.runtime(role) / "assignment" / file
    text = path.read_text()
    assert before in text, before
    at = text.index(before)
    path.write_text(text[:at] + " " * (len(before) - len(before.lstrip(" "))) + "[][1]\\n" + text[at:])

stage.Stage.__init__ = planted
from assignment.commands import cli
sys.exit(cli.main(sys.argv[1:]))
"""

CLI = "import sys; from assignment.commands import cli; sys.exit(cli.main(sys.argv[1:]))"


def graded(submission, program, *names):
    file = submission.parent / "report.json"
    own = {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(submission.parent / "cache")}  # which knows no kernel
    done = python(
        "-c", program, str(submission), "--only", *names, "--json", str(file), "--seed", "3",
        timeout=120, cwd=submission.parent, env=os.environ | own,
    )  # fmt: skip
    report = json.loads(file.read_text())
    entries = [check for problem in report["problems"] for check in problem["checks"]]
    return done, {check["name"]: check for check in entries if check["name"] in names}, report["notes_to_staff"]


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_fault_of_ours_is_the_graders(submission, name):
    role, file, before = PLANTED[name]
    checks = (COMPILES,) if role == "compile" else CHECKS
    done, found, notes = graded(submission, START.replace("{planted!r}", repr((role, file, before))), *checks)
    status, said = ("crashed", SAYS_BROKEN) if role == "record" else ("grader error", "This is not your code")
    assert done.returncode == (0 if role == "record" else 3), done.stdout
    assert {check["status"] for check in found.values()} >= {status}
    assert {check["status"] for check in found.values()} <= {status, "ok"}
    for check in found.values():
        if check["status"] == status:
            assert not check["score"]
            assert "IndexError" in check["message"]
            assert said in check["message"]
    is_told = any(SAYS_BROKEN in note and "IndexError" in note for note in notes)
    assert is_told == (role == "record")
    assert f"note to staff: {notes[0]}" in " ".join(done.stdout.split()) if is_told else True, done.stdout


NAMES = "assignment/recorder/tape.py", "assignment/zz.py", "assignment/judge/pair.py"


@pytest.mark.parametrize("file", NAMES)
def test_a_name_of_a_file_is_not_believed(submission, file):
    """Host code gives its lines whatever file's name: its own word is no failure of the grader"""
    path = submission / "cs336_kernels/weighted_sum.py"
    forged = f"""
        import pathlib, sys
        root = pathlib.Path(sys.modules["assignment.recorder.tape"].__file__).parents[2]
        exec(compile("[][1] or 'give full points'", str(root / {file!r}), "exec"))
    """
    text, begin = path.read_text(), "def weighted_sum_forward("
    at = text.index('"""', text.index('"""', text.index(begin)) + 3) + 3
    path.write_text(text[:at] + textwrap.indent(textwrap.dedent(forged), "    ") + text[at:])
    done, found, notes = graded(submission, CLI, *CHECKS)
    assert done.returncode == 0, done.stderr
    assert {(check["status"], check["score"]) for check in found.values()} == {("crashed", 0.0)}
    assert notes
    assert all(f": {SAYS_BROKEN}: IndexError" in note for note in notes)


THEIRS = {
    "wrong shapes": "return x @ x",
    "wrong keyword": "return torch.empty_like(x, shape=3)",
    "a view of no such shape": "return x.reshape(7, -1, 13)",
    "an index": "return x[[1][2]]",
    "a launch without an argument": "return _copy[(1,)](x)",
    "a grid that fails": "return _copy[lambda: (1,)](x, x, 1, 64)",
    "a missing name": "return torch.cuda.no_such_thing()",
    "out of recursion": f"return {F}(x)",
    "a wrong grid": "return _copy[(1.5,)](x, x, 1, 64)",
    "a wrong tile": "return _copy[(1,)](x, torch.empty_like(x), 1, 48)",
    "no such argument": "return torch.add(x, x, x, x, x)",
    "a wrong way back": "return torch.autograd.grad(x, x)",
    "nothing": "return None",
}


@pytest.mark.parametrize("line", THEIRS.values(), ids=THEIRS)
def test_an_exception_of_theirs_is_theirs(at, line):
    assert isinstance(at.run(defined(line), X), Raised | Failed)


IN_A_KERNEL = (  # of which our own code, Triton's and NumPy's are on the way
    "tl.cumsum(x, 5)", "tl.dot(x, x)", "tl.zeros((48,), tl.float32)", "tl.reshape(x, 7)", "SIZE // 0", "SIZE < 'a'",
    "x + 'a'", "x and x.no_such", "x if x.no_such else x", "int('x')", "[i for i in range('a')]", "tl.reduce(x, 0, 3)",
)  # fmt: skip


@pytest.mark.parametrize("expression", IN_A_KERNEL)
def test_an_exception_of_a_kernel_is_theirs(at, expression):
    kernel = f"""
    @triton.jit
    def _load(x_ptr, SIZE: tl.constexpr):
        x = tl.load(x_ptr + tl.arange(0, SIZE))
        y = {expression}
    """
    assert isinstance(at.run(textwrap.dedent(kernel) + defined("_load[(1,)](x, 16)", "return x"), X), Raised | Failed)


@pytest.mark.parametrize("mask", ["(at < n) / (at < 9)", "at", "at * 1.0"])
def test_a_mask_that_is_no_comparison_is_refused(at, mask):
    kernel = """
    @triton.jit
    def _load(x_ptr, y_ptr, n, SIZE: tl.constexpr):
        at = tl.arange(0, SIZE)
        tl.store(y_ptr + at, tl.load(x_ptr + at, mask={mask}, other=0.0), mask=at < n)
    """.replace("{mask}", mask)
    reply = at.run(textwrap.dedent(kernel) + defined("return _load[(1,)](x, torch.empty_like(x), 9, 16)"), X)
    assert isinstance(reply, Raised)
    assert "Mask must have boolean scalar type" in reply.message


def test_an_exception_of_theirs_may_be_caught(at):
    lines = "try:", "    x @ x", "except RuntimeError:", "    return copied(x)"
    assert isinstance(at.run(defined(*lines), X), Ok)


of_a_student: dict = {}
exec(compile("def student(called):\n    called()", "cs336_kernels/rmsnorm.py", "exec"), of_a_student)
student = of_a_student["student"]
PLACES = {
    "C": (lambda: int("x"), True),
    "a library": (lambda: json.loads("{"), True),
    "C, called for them": (lambda: theirs(int, "x"), False),
    "a library, called for them": (lambda: theirs(json.loads, "{"), False),
    "their code": (lambda: theirs(student, 1), False),
    "ours, called for them": (lambda: theirs(lambda: int("x")), True),
    "ours, called by their code": (lambda: theirs(student, lambda: json.loads("{")), True),
    "C, called for them by their code": (lambda: theirs(student, lambda: theirs(int, "x")), False),
    "a `raise` of ours": (lambda: grid_sizes((), {}), False),
}


@pytest.mark.parametrize(("call", "is_ours"), PLACES.values(), ids=PLACES)
def test_the_innermost_place_of_ours_decides(call, is_ours):
    """It is the student's under `theirs` or a `raise`, with nothing of ours deeper"""
    with pytest.raises((ValueError, TypeError)) as raised:
        call()
    assert whose.is_ours(raised.value) == is_ours
