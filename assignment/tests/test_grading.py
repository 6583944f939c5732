"""Whole submissions, right, broken and hostile, through `grade.py`: what each costs, and what is said of it."""

import os
import re

import pytest

from assignment.tests.forked import python
from assignment.tests.graded import QUICK, ROOT, append, grade


@pytest.mark.slow
def test_a_function_that_ends_the_process_costs_only_its_own_points(submission):
    """Segmentation fault, os._exit, SystemExit and 100 MB of output in one function each"""
    crash = "def weighted_sum_backward(*args):\n    import ctypes\n    ctypes.string_at(0)"
    leave = "def rmsnorm_backward(*args):\n    import os\n    os._exit(0)"
    end = "def flash_backward_pytorch(*args, **kwargs):\n    raise SystemExit(0)"
    talk = "right = flash_forward_pytorch\ndef flash_forward_pytorch(*args, **kwargs):\n    print('x' * 100_000_000)"
    append(submission, "weighted_sum.py", crash)
    append(submission, "rmsnorm.py", leave)
    append(submission, "flash_attention.py", f"{end}\n\n{talk}\n    return right(*args, **kwargs)")
    got = grade(submission)
    assert got.status == 0, got.err
    assert "Traceback" not in got.out + got.err
    own = {
        "test_weighted_sum.py": ("test_backward", "test_gradients", "test_compiles"),
        "test_rmsnorm.py": ("test_backward", "test_gradients", "test_compiles"),
        "test_flash_backward.py": ("test_pytorch",),
        "test_flash_forward.py": (),
    }
    for name in got.lost() - {"speed"}:
        file, _, function = name.partition("::")
        assert function.startswith(own[file]), f"{name}: {got.check(name)['message']}"
    assert got.check("test_weighted_sum.py::test_backward_values")["status"] == "crashed"
    crash = got.check("test_weighted_sum.py::test_backward_values")["message"]
    assert "SIGSEGV" in crash
    assert "at cs336_kernels/weighted_sum.py:" in crash
    assert "exit status 0" in got.check("test_rmsnorm.py::test_backward_values")["message"]
    assert "SystemExit" in got.check("test_flash_backward.py::test_pytorch_values")["message"]
    assert got.check("test_flash_forward.py::test_pytorch_values")["status"] == "ok"


@pytest.mark.slow
def test_a_loop_that_never_ends_is_told_at_once(submission):
    """Where its variables repeat, in every check that meets it: nothing waits for a deadline"""
    path = submission / "cs336_kernels" / "weighted_sum.py"
    text = path.read_text()
    walk = "    for start in range(0, d, D_TILE_SIZE):\n"
    assert text.count(walk) == 1
    path.write_text(text.replace(walk, "    start = 0\n    while start < d:\n"))
    got = grade(submission, "--only", "weighted_sum_forward", "weighted_sum_backward")
    failed = [got.check(name) for name in got.lost() - {"speed"}]
    assert {check["status"] for check in failed} == {"FAIL"}
    assert all("while start < d:\n  it went round 101 times" in check["message"] for check in failed), failed
    assert len(failed) >= 8


NEXT_IN_A_HURRY = """
import sys
from assignment.commands import cli
from assignment.judge import pool
from assignment.sandbox import worker_client

worker_client.CALL_TIMEOUT_S["play"], pool.LONG_S = 8.0, 1.0
close = pool.Pool.close
pool.Pool.close = lambda self: (print("seconds spent:", self.stage._spent_s.value), close(self))
sys.exit(cli.main())
"""


@pytest.mark.slow
def test_next_waits_for_one_deadline_only(submission):
    """A loop whose variable changes for ever: of two judges that meet it the later waits, and is not needed then"""
    path = submission / "cs336_kernels" / "weighted_sum.py"
    text = path.read_text()
    walk = "    for start in range(0, d, D_TILE_SIZE):\n"
    assert text.count(walk) == 1
    path.write_text(text.replace(walk, "    start = 1\n    while start != 0:\n        start = start % 999 + 1\n"))
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = python("-c", NEXT_IN_A_HURRY, submission, "--next", "--jobs", "2", env=env)
    assert "test_weighted_sum.py::test_forward_values: timeout" in done.stdout, done.stderr
    assert "of `while start != 0`, with start = " in done.stdout
    assert 8.0 < float(re.findall("seconds spent: (.*)", done.stdout)[0]) < 16.0  # two deadlines


@pytest.mark.slow
def test_a_function_that_hangs_is_stopped_once_a_check(submission):
    append(submission, "weighted_sum.py", "def weighted_sum_forward(*args):\n    while True:\n        pass")
    got = grade(submission, "--only", "test_forward_values", "test_forward_ragged", "test_backward_values")
    assert got.status == 0, got.err
    assert got.check("test_rmsnorm.py::test_forward_values")["status"] == "ok"
    assert got.check("test_weighted_sum.py::test_forward_values")["status"] == "timeout"
    assert "in weighted_sum_forward" in got.check("test_weighted_sum.py::test_forward_values")["message"]
    assert got.check("test_weighted_sum.py::test_forward_ragged")["status"] == "timeout"
    assert got.check("test_weighted_sum.py::test_backward_values")["status"] == "ok"


@pytest.mark.parametrize(
    ("file", "code"),
    [
        pytest.param("rmsnorm.py", "def rmsnorm_forward(:", id="a syntax error"),
        pytest.param("rmsnorm.py", None, id="a missing file", marks=pytest.mark.slow),
        pytest.param("rmsnorm.py", "import os\nos._exit(1)", id="a file that ends the process", marks=pytest.mark.slow),
        pytest.param("rmsnorm.py", "import a_module_that_nobody_has", id="a missing module", marks=pytest.mark.slow),
    ],
)
def test_a_broken_file_costs_only_its_own_points(submission, file, code):
    if code is None:
        (submission / "cs336_kernels" / file).unlink()
    else:
        append(submission, file, code)
    got = grade(submission, "--only", *(f"test_{name}.py::test_forward_values" for name in ("weighted_sum", "rmsnorm")))
    assert got.status == 0, got.err
    assert "Traceback" not in got.out + got.err
    assert got.check("test_weighted_sum.py::test_forward_values")["status"] == "ok"
    broken = got.check("test_rmsnorm.py::test_forward_values")
    assert broken["status"] in ("FAIL", "crashed")
    assert broken["message"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "words"),
    [
        pytest.param("del rmsnorm_forward", "has no function rmsnorm_forward", id="a missing function"),
        pytest.param("def rmsnorm_forward(*a, **k):\n    pass", "returned None", id="no result"),
        pytest.param(
            "def rmsnorm_forward(x, *a, **k):\n    return x * 1", "expected 2 tensors (y, rstd)", id="one of two"
        ),
        pytest.param("def rmsnorm_forward(x, *a, **k):\n    return [[x], x]", "returned list in a tuple", id="a list"),
        pytest.param(
            "import torch\ndef rmsnorm_forward(x, *a, **k):\n    return torch.nn.Parameter(x), x",
            "returned Parameter in a tuple",
            id="a subclass",
        ),
        pytest.param("def rmsnorm_forward():\n    pass", "takes 0 positional arguments", id="no parameters"),
        pytest.param("rmsnorm_forward = 3", "is a int, expected a function", id="no function"),
        pytest.param(
            "def rmsnorm_forward(x, *a, **k):\n    return (x * 1).to('meta'), x + 1",
            "returned a tensor on meta",
            id="on another device",
        ),
        pytest.param(
            "import torch\ndef rmsnorm_forward(x, *a, **k):\n    return x.to(torch.complex32), x.clone()",
            "returned a tensor of torch.complex32",
            id="in a dtype that nobody sends",
        ),
        pytest.param(
            "import sys\ndef rmsnorm_forward(*a, **k):\n    sys.stdout.close()", "returned None", id="closes stdout"
        ),
    ],
)
def test_what_is_wrong_with_a_function_is_said_in_a_sentence(submission, code, words):
    (submission / "cs336_kernels" / "__init__.py").unlink()
    append(submission, "rmsnorm.py", code)
    got = grade(submission, "--only", "test_rmsnorm.py::test_forward_values")
    assert got.status == 0, got.err
    assert words in got.check("test_rmsnorm.py::test_forward_values")["message"]
    assert got.check("test_rmsnorm.py::test_forward_values")["status"] == "FAIL"


@pytest.mark.slow
def test_the_module_and_function_of_one_name(submission):
    """Where the package's `rmsnorm` is the module, its function is meant"""
    (submission / "cs336_kernels" / "__init__.py").write_text("from cs336_kernels import rmsnorm\n")
    got = grade(submission, "--only", "test_rmsnorm.py::test_value")
    assert got.check("test_rmsnorm.py::test_value")["status"] == "ok"


def test_a_failure_says_what_and_where(submission):
    """A planted bug: the last row of every result is left out"""
    code = "right = rmsnorm_forward\ndef rmsnorm_forward(x, weight, eps=1e-5):\n    y, rstd = right(x, weight, eps)\n"
    append(submission, "rmsnorm.py", code + "    y[..., -1, :] = float('nan')\n    return y, rstd")
    got = grade(submission, "--only", "test_rmsnorm.py::test_forward_values", "--seed", "3")
    message = got.check("test_rmsnorm.py::test_forward_values")["message"]
    assert "rmsnorm_forward(float32 (" in message
    assert "row" in message
    assert "NaN" in message
    assert (
        f"uv run grade.py {submission}{' '.join(('', *QUICK))} --seed 3 --only test_rmsnorm.py::test_forward_values"
        in got.out
    )


SDPA = """
import torch

def flash_forward_triton(q, k, v, is_causal=False):
    _right(q, k, v, is_causal)
    s = q @ k.mT / q.shape[-1] ** 0.5
    if is_causal:
        s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), float("-inf"))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal), s.logsumexp(-1)
"""


@pytest.mark.slow
def test_the_line_that_makes_a_nan_is_quoted(submission):
    """Before the map, which may be cut"""
    path = submission / "cs336_kernels" / "flash_attention.py"
    source = path.read_text()
    assert source.count("tl.exp2(row_max - new_max)") == 1
    path.write_text(source.replace("tl.exp2(row_max - new_max)", "tl.exp2(new_max - row_max)"))
    message = grade(submission, "--only", "test_triton_values").check("test_flash_forward.py::test_triton_values")[
        "message"
    ]
    assert "a kernel makes a NaN of numbers" in message
    assert "in _attend: row_sum = rescale * row_sum + tl.sum(p, axis=1)" in message


@pytest.mark.slow
def test_a_line_that_reads_a_value_is_quoted(submission):
    """Once, and not that of a launch with a table that host code has made"""
    code = "_right = weighted_sum_forward\n\ndef weighted_sum_forward(x, weight):\n"
    code += "    scale = weight[0].item()\n"
    code += "    table = torch.tensor([scale] * x.shape[-1], device=x.device, dtype=x.dtype)\n"
    code += "    return _right(x, table)\n"
    append(submission, "weighted_sum.py", code)
    only = "test_weighted_sum.py::test_forward_values"
    message = grade(submission, "--only", only).check(only)["message"]
    assert "host code runs on other values" in message
    lines = [line for line in message.splitlines() if line.strip().startswith("at ")]
    assert ["weight[0].item()" in line for line in lines] == [True]


@pytest.mark.slow
def test_a_decoy_kernel_fails_its_problem(submission):
    """PyTorch's attention behind a kernel whose result is thrown away: every check, with the line that computed"""
    append(submission, "flash_attention.py", f"_right = flash_forward_triton\n{SDPA}")
    got = grade(
        submission, "--only", "flash_forward_triton", "flash_forward_pytorch", "test_triton_values", "--seed", "1"
    )
    assert got.report, got.err
    scores = {problem["name"]: problem["score"] for problem in got.report["problems"]}
    assert scores["flash_forward_triton"] == 0
    assert scores["flash_forward_pytorch"] == 10
    assert scores["flash_backward_triton"] > 0
    message = got.check("test_flash_forward.py::test_triton_values")["message"]
    assert "not computed by your kernels" in message
    assert "scaled_dot_product_attention(q, k, v, is_causal=is_causal)" in message
    mistakes = got.check("test_flash_forward.py::test_triton_mistakes")
    assert mistakes["status"] == "FAIL"
    assert "the problem earns no points" in mistakes["message"]


@pytest.mark.slow
def test_what_staff_must_judge_keeps_its_points(submission):
    code = "import torch\n_right = rmsnorm_forward\ndef rmsnorm_forward(x, weight, eps=1e-5):\n"
    code += "    y, rstd = _right(x, weight, eps)\n    return torch.nan_to_num(y), rstd"
    append(submission, "rmsnorm.py", code)
    got = grade(submission, "--only", "rmsnorm")
    check = got.check("test_rmsnorm.py::test_forward_values")
    assert (check["status"], check["score"]) == ("needs review", check["max_score"])
    assert "aten::nan_to_num" in check["message"]
    assert "needs review" in got.out


ACROSS_ROWS = """

@triton.jit
def _across_kernel(x_ptr, w_ptr, y_ptr, n, d, SIZE: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, SIZE)
    x = tl.load(x_ptr + row * d + cols, mask=(row * d + cols < n){mask}, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=cols < d, other=0.0).to(tl.float32)
    tl.store(y_ptr + row, tl.sum(x * w))

_right = weighted_sum_forward
def weighted_sum_forward(x, weight):
    _right(x, weight)
    y, d = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device), x.shape[-1]
    if y.numel():
        size = triton.next_power_of_2(d)
        _across_kernel[(y.numel(),)](x.contiguous(), weight.contiguous(), y, x.numel(), d, SIZE=size)
    return y
"""


@pytest.mark.parametrize("is_masked", [True, False])
def test_a_row_that_reads_the_next_is_warned(submission, is_masked):
    """It multiplies by zero: right for numbers, so that it costs nothing."""
    append(submission, "weighted_sum.py", ACROSS_ROWS.replace("{mask}", " & (cols < d)" if is_masked else ""))
    got = grade(submission, "--only", "test_weighted_sum.py::test_forward_contract")
    check = got.check("test_weighted_sum.py::test_forward_contract")
    assert (check["status"], check["score"]) == ("ok", check["max_score"])
    assert ["infinite or NaN" in note for note in check["notes"]] == [True] * (not is_masked)


@pytest.mark.slow
def test_inputs_that_are_written_to_and_results_that_are_shared(submission):
    code = "def rmsnorm_forward(x, weight, eps=1e-5):\n    y, rstd = _right(x, weight, eps)\n"
    append(submission, "rmsnorm.py", f"_right = rmsnorm_forward\n{code}    x.mul_(2)\n    return y, rstd")
    got = grade(submission, "--only", "test_rmsnorm.py::test_forward_contract")
    assert "was written to" in got.check("test_rmsnorm.py::test_forward_contract")["message"]

    append(submission, "rmsnorm.py", f"{code}    x.mul_(0.5)\n    return x.copy_(y), rstd")
    got = grade(submission, "--only", "test_rmsnorm.py::test_forward_contract")
    assert got.check("test_rmsnorm.py::test_forward_contract")["status"] == "FAIL"

    cache = "_kept = {}\ndef weighted_sum_forward(x, weight):\n    key = (x.data_ptr(), x.shape)\n"
    use = "    if key not in _kept:\n        _kept[key] = _right(x, weight)\n    return _kept[key]"
    append(submission, "weighted_sum.py", f"_right = weighted_sum_forward\n{cache}{use}")
    got = grade(submission, "--only", "test_weighted_sum.py::test_forward_contract")
    assert got.check("test_weighted_sum.py::test_forward_contract")["status"] == "FAIL"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "check"),
    [
        pytest.param(
            "session.requests.gradients = lambda *arguments: ([[]], False)",
            "test_gradients",
            id="no gradients",
        ),
        pytest.param(
            "session.requests.again = lambda *arguments: ([[], []], True)",
            "test_forward_contract",
            id="two groups",
        ),
        pytest.param("session.reply_to = lambda *arguments: {}", "test_forward_mistakes", id="no description"),
        pytest.param(
            "session.RecorderSession._call = lambda *a: ([[], []], True)", "test_attention_memory", id="no number"
        ),
    ],
)
def test_a_forged_reply_earns_nothing_and_does_not_stop_the_grader(submission, code, check):
    append(submission, "__init__.py", f"from assignment.recorder import session\n{code}")
    got = grade(submission, "--only", check)
    assert got.status == 0, got.err
    assert got.report
    assert {entry["status"] for problem in got.report["problems"] for entry in problem["checks"]} <= {"crashed", "FAIL"}


@pytest.mark.slow
def test_a_function_that_keeps_its_inputs_keeps_its_points(submission):
    """However large the views that it was sent"""
    keep = "_kept = []\nright = weighted_sum_forward\ndef weighted_sum_forward(*args):\n    _kept.append(args)"
    append(submission, "weighted_sum.py", f"{keep}\n    return right(*args)")
    got = grade(submission, "--only", "test_weighted_sum.py::test_forward_strides", "--jobs", "1")
    assert got.check("test_weighted_sum.py::test_forward_strides")["status"] == "ok"


@pytest.mark.slow
def test_a_second_result_of_another_form_is_said(submission):
    twice = "right = weighted_sum_forward\n_calls = []\ndef weighted_sum_forward(*args):\n    _calls.append(0)"
    append(submission, "weighted_sum.py", f"{twice}\n    return right(*args) if len(_calls) % 2 else ()")
    got = grade(submission, "--only", "test_weighted_sum.py::test_forward_contract", "--jobs", "1")
    assert got.status == 0, got.err
    assert "another number of tensors" in got.check("test_weighted_sum.py::test_forward_contract")["message"]


@pytest.mark.slow
def test_a_seed_replays_a_run(submission):
    """The same seed gives the same margins, whatever the number of processes; another seed gives others"""
    only = ("--only", "test_weighted_sum.py::test_forward_values")
    margins = [
        grade(submission, *only, *more).check(only[1])["margin"]
        for more in (("--seed", "1", "--jobs", "1"), ("--seed", "1", "--jobs", "2"), ("--seed", "2"))
    ]
    assert margins[0] == margins[1] != margins[2]


@pytest.mark.slow
def test_a_kernel_that_is_still_a_stub_is_to_do(submission):
    code = "import triton\n@triton.jit\ndef _stub(x_ptr):\n    raise NotImplementedError('write the kernel')\n"
    append(submission, "rmsnorm.py", code + "def rmsnorm_forward(x, weight, eps=1e-5):\n    _stub[(1,)](x)")
    got = grade(submission, "--only", "test_rmsnorm.py::test_forward_values")
    assert got.check("test_rmsnorm.py::test_forward_values")["status"] == "todo"
    assert got.check("test_rmsnorm.py::test_forward_values")["message"] == "write the kernel"
