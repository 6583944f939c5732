"""The simulator's promises. They are checked in a process of their own, for it changes what `triton` is."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKS = Path(__file__).parent / "data" / "simulated.py"
ROOT = Path(__file__).parents[2]
NAMES = [node.name for node in ast.parse(CHECKS.read_text()).body if isinstance(node, ast.FunctionDef)]


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="session")
def results() -> dict[str, str | None]:
    """Every check's traceback, or None."""
    done = _python(str(CHECKS))
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("check_")])
def test_simulator(name: str, results: dict[str, str | None]) -> None:
    """Each check of data/simulated.py holds."""
    assert results[name] is None, results[name]


def test_refuses_to_come_late() -> None:
    """install() after a compiled triton.language says what to do."""
    code = "import triton.language; from assignment.simulator import install; install()"
    done = _python("-c", code)
    assert "install() must run before triton is imported" in done.stderr
