"""The simulator's promises: each is a function check_* in a file of constructs/checks, whose docstring is its claim.

A file is run in a process of its own, for the simulator changes what `triton` is.
"""

import ast
import functools
import json
import os
import subprocess
from pathlib import Path

import pytest

from assignment.tests.forked import python

pytestmark = pytest.mark.long_file

FOLDER = Path(__file__).parent / "constructs" / "checks"
ROOT = Path(__file__).parents[2]
CHECKS = [
    (file.stem, node.name)
    for file in sorted(FOLDER.glob("*.py"))
    for node in ast.parse(file.read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("check_")
]


def _python(*arguments: str, timeout: float = 120, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", **variables}
    return python("-W", "error", *arguments, cwd=ROOT, env=environment, timeout=timeout)


@functools.cache
def results(file: str, n_seeds: int = 5) -> dict[str, str | None]:
    """The traceback, or None, of every check in a file."""
    done = _python("-m", "assignment.tests.constructs.checks", file, timeout=24 * n_seeds, SEEDS=str(n_seeds))
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(("file", "name"), CHECKS)
def test_simulator(file: str, name: str) -> None:
    """Each check of these files holds."""
    traceback = results(file)[name]
    assert traceback is None, traceback


@pytest.mark.slow
@pytest.mark.parametrize("file", ["ranks", "ranks_told"])
def test_ranks_on_many_seeds(file: str) -> None:
    """What holds on five seeds holds on twenty."""
    found = results(file, 20)
    assert not any(found.values()), found


def test_refuses_to_come_late() -> None:
    """install() after a compiled triton.language says what to do."""
    code = "import triton.language; from assignment.simulator import install; install()"
    done = _python("-c", code)
    assert "install() must run before triton is imported" in done.stderr
