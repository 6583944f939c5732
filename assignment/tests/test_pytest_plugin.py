"""`pytest -p assignment.simulator.pytest_plugin`: anybody's Triton tests in the simulator, and what becomes of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from assignment.simulator.calls import Call
from assignment.simulator.unstored import UnstoredReads
from assignment.tests.forked import python

pytestmark = pytest.mark.long_file

ROOT = Path(__file__).parents[2]
PLUGIN = "assignment.simulator.pytest_plugin"
KERNELS = """
import pytest
import torch
import triton
import triton.language as tl

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

@triton.jit
def add_one_kernel(x_ptr, y_ptr, n, SIZE: tl.constexpr, MASKED: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    if MASKED:
        tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n, other=0.0) + 1, mask=at < n)
    else:
        tl.store(y_ptr + at, tl.load(x_ptr + at) + 1)

@triton.jit
def first_kernel(x_ptr):
    tl.store(x_ptr, tl.program_id(0).to(tl.float32))

def add_one(x, masked=True, programs=4):
    y = torch.empty_like(x)
    add_one_kernel[(programs,)](x, y, x.numel(), SIZE=256, MASKED=masked)
    return y
"""
TESTS = f"""{KERNELS}
@pytest.fixture
def device():
    torch.cuda.manual_seed(0)
    return "cuda"

@pytest.fixture(scope="module")
def short():
    return add_one(torch.zeros(1000, device="cuda"), programs=3)

@pytest.fixture(scope="module")
def broken():
    return add_one(torch.zeros(1000, device="cuda"), masked=False)

@pytest.mark.parametrize("n", [1000, 1024])
@pytest.mark.parametrize("masked", [True, False])
def test_values(device, n, masked):
    x = torch.randn(n, device=device)
    assert x.is_cuda and torch.cuda.get_device_capability() >= (8, 0)
    assert torch.equal(add_one(x, masked), x + 1)  # assert_close loads torch.distributed

def test_caught():
    with pytest.raises(Exception):
        add_one(torch.zeros(1000, device="cuda"), masked=False)

def test_after_a_fault():
    assert add_one(torch.zeros(1000, device="cuda")).sum() == 1000

@pytest.mark.xfail(strict=True)
def test_expected():
    add_one(torch.zeros(1000, device="cuda"), masked=False)

@pytest.mark.xfail(strict=True)
def test_expected_though_caught():
    test_caught()

def test_of_what_is_stored(short):
    assert short[767] == 1

def test_of_what_is_not(short):
    short.sum()

def test_of_what_is_not_either(short):
    short.tolist()

def test_with_broken(broken):
    pass

def test_race():
    first_kernel[(2,)](torch.zeros(2, device="cuda"))

def test_wrong_value():
    assert add_one(torch.zeros(8, device="cuda"))[0] == 2

def test_skipped():
    add_one(torch.zeros(8, device="cuda"), programs=1)
    pytest.skip("not today")

def test_of_the_host():
    assert 1 == 2
"""
FAULTY = f"""{KERNELS}
try:
    add_one(torch.zeros(1000, device="cuda"), masked=False)
except Exception:
    pass

def test_nothing():
    pass
"""
CONFTEST = """
import triton

@triton.jit
def unused_kernel(x_ptr):
    pass
"""
Done = subprocess.CompletedProcess[str]


def _pytest(folder: Path, *options: str) -> Done:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "250", "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("TRITON_INTERPRET", None)
    command = "-W", "error", "-m", "pytest", "-p", "no:cacheprovider", "-rA", *options
    return python(*command, cwd=folder, env=environment, timeout=200, is_merged=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("theirs")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_theirs.py").write_text(TESTS)
    return folder


@pytest.fixture(scope="module")
def failing(folder: Path) -> Done:
    return _pytest(folder, "-p", PLUGIN, "test_theirs.py")


@pytest.fixture(scope="module")
def reporting(folder: Path) -> Done:
    return _pytest(folder, "-p", PLUGIN, "--simulate=report", "test_theirs.py")


def _outcomes(done: Done) -> dict[str, str]:
    """The tests of the short summary, and what became of each."""
    lines = [line.split() for line in done.stdout.partition("short test summary")[2].splitlines()]
    return {words[1].rpartition("::")[2]: words[0] for words in lines if len(words) > 1 and "::" in words[1]}


OUTCOMES = {
    "test_values[True-1000]": "PASSED",
    "test_values[True-1024]": "PASSED",
    "test_values[False-1024]": "PASSED",
    "test_values[False-1000]": "FAILED",
    "test_caught": "FAILED",
    "test_after_a_fault": "PASSED",
    "test_expected": "XFAIL",
    "test_expected_though_caught": "XFAIL",
    "test_of_what_is_stored": "PASSED",
    "test_of_what_is_not": "FAILED",
    "test_of_what_is_not_either": "PASSED",  # each output is told once
    "test_with_broken": "ERROR",
    "test_race": "FAILED",
    "test_wrong_value": "FAILED",
    "test_of_the_host": "FAILED",
}


def test_findings_fail_the_test_that_launched(failing: Done) -> None:
    assert failing.returncode == 1
    assert _outcomes(failing) == OUTCOMES
    assert "SKIPPED [1] test_theirs.py" in failing.stdout


WORDS = {  # the test, and what stands in its report, as `python -m assignment.simulator` says it
    "test_values[False-1000]": (
        "out of bounds: program (3, 0, 0) of add_one_kernel loads x_ptr[1000]",
        "  at test_theirs.py:15 in add_one_kernel: tl.store(y_ptr + at, tl.load(x_ptr + at) + 1)",
        "  launched at test_theirs.py:23 in add_one: add_one_kernel[(programs,)](",
    ),
    "test_caught": ("out of bounds: program (3, 0, 0)", "  launched at test_theirs.py:23 in add_one: "),
    "test_of_what_is_not": (
        "never stored: y_ptr has 232 of 1000 elements that no kernel wrote, the first y_ptr[768]",
        "  read at test_theirs.py:65 in test_of_what_is_not: short.sum()",
    ),
    "test_with_broken": ("out of bounds: program (3, 0, 0)", "  launched at test_theirs.py:23 in add_one: "),
    "test_race": ("race: programs (0, 0, 0) and (1, 0, 0) of first_kernel", "  launched at test_theirs.py:"),
}


def _report(done: Done, test: str) -> str:
    """What is told of a test that failed."""
    return done.stdout.split(f" {test} _")[1].split("\n____")[0]


@pytest.mark.parametrize("test", WORDS)
def test_findings_are_told_as_of_a_script(test: str, failing: Done) -> None:
    told = _report(failing, test)
    assert not [words for words in WORDS[test] if words not in told], told
    assert "assignment/simulator/" not in told


def test_reports_tell_findings_at_the_end(reporting: Done) -> None:
    """They fail no test; what fails by itself does"""
    outcomes = _outcomes(reporting)
    assert {test for test, outcome in outcomes.items() if outcome in ("FAILED", "ERROR")} == {
        "test_wrong_value",
        "test_of_the_host",
    }
    section = reporting.stdout.partition("= simulator =")[2].partition("short test summary")[0]
    assert section.count("out of bounds: ") == 1  # the same of several tests
    assert "  in test_theirs.py::test_values[False-1000] and 4 more" in section
    assert section.count("race: programs") == section.count("never stored: ") == 1
    assert "  launched at test_theirs.py:23 in add_one: " in section


def test_reports_end_with_status_0(folder: Path) -> None:
    done = _pytest(
        folder, "-p", PLUGIN, "--simulate=report", "test_theirs.py", "-k", "race or is_not or values or caught"
    )
    assert done.returncode == 0, done.stdout
    assert "= simulator =" in done.stdout


def test_findings_at_import_are_errors(tmp_path: Path) -> None:
    (tmp_path / "test_faulty.py").write_text(FAULTY)
    done = _pytest(tmp_path, "-p", PLUGIN)
    assert done.returncode == 2
    assert "ERROR collecting test_faulty.py" in done.stdout
    assert "out of bounds: program (3, 0, 0) of add_one_kernel" in done.stdout
    done = _pytest(tmp_path, "-p", PLUGIN, "--simulate=report")
    assert done.returncode == 0, done.stdout
    assert "  in test_faulty.py" in done.stdout


def test_nothing_changes_unless_asked(folder: Path) -> None:
    done = _pytest(folder, "test_theirs.py")
    assert "simulator" not in done.stdout
    assert "= 16 skipped in" in done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize("also", [(), ("-p", PLUGIN)], ids=["by itself", "with the other"])
def test_graders_plugin_takes_the_option(also: tuple[str, ...], folder: Path) -> None:
    """Tests of a submission are judged as ever, others run in the simulator"""
    options = ("--simulate", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-m", "", "--jobs", "1")
    chosen = (
        str(ROOT / "tests" / "weighted_sum"),
        str(folder / "test_theirs.py"),
        "-k",
        "test_values or test_value or test_race",
    )
    done = _pytest(ROOT, *also, *options, *chosen)
    outcomes = _outcomes(done)
    assert outcomes["test_values[False-1000]"] == outcomes["test_race"] == "FAILED"
    assert [name for name, outcome in outcomes.items() if outcome != "PASSED"] == [
        "test_values[False-1000]",
        "test_race",
    ]
    assert "tests/weighted_sum/test_weighted_sum.py::test_value[" in done.stdout


def test_triton_that_is_there_already_is_refused(folder: Path, tmp_path: Path) -> None:
    """A sentence, where another plugin has imported Triton for a GPU"""
    (tmp_path / "early.py").write_text("import triton.language\n")
    done = _pytest(tmp_path, "-p", "early", "-p", PLUGIN)
    assert done.returncode == 4
    assert "ERROR: the simulator cannot begin here: install() must run before triton is imported" in done.stdout


def test_many_entries_leave_nothing_behind() -> None:
    """Neither wrappers of methods nor outputs that are gone"""
    methods = torch.Tensor.tolist, torch.Tensor.__repr__
    reads = UnstoredReads()
    for _ in range(sys.getrecursionlimit() + 10):
        call = Call()
        with reads.during(call):
            assert call.on_store
            call.on_store("y_ptr", torch.empty(4))
    with reads.during(Call()):
        assert torch.ones(2).tolist() == [1, 1]
        assert not reads._outputs
    assert methods == (torch.Tensor.tolist, torch.Tensor.__repr__)
