"""Kernels that are right are built: those of every corpus, and every style of Triton."""

import ast
import functools
import json
import os
from pathlib import Path

import pytest

from assignment.bank import bugs, corpus
from assignment.submission import Submission, read
from assignment.tests.forked import python

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).parent / "data" / "player"
BASE = bugs.base()


def run(script, *arguments, **environment):
    """What a script of data/player prints, as JSON."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", **environment}
    warnings = ["-W", "error", "-W", "ignore::DeprecationWarning"]  # torch has some of its own
    done = python(*warnings, DATA / script, *arguments, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def variants() -> dict[str, bytes]:
    """The correct variants of one file and the styles of all operators, each a module."""
    found = {}
    for entry in corpus.entries():
        own = {path: content for path, content in entry.submission.files.items() if BASE.get(path) != content}
        paths = [path for path in own if not path.endswith("__init__.py")]
        if entry.kind == corpus.VARIANT and len(paths) == 1:
            found[f"{entry.name.removeprefix('variants/')}.py"] = own[paths[0]]
    return found


def styles() -> dict[str, bytes]:
    """Modules with kernels that right styles edit, in a folder for each."""
    right = [entry for entry in corpus.entries() if entry.kind == corpus.VARIANT and entry.name != "variants/reference"]
    edited = {f"{entry.name.split('/')[1]}/{path}": content for entry in right for path, content in own(entry)}
    return {path: content for path, content in edited.items() if b"@triton.jit" in content}


def own(entry: corpus.Entry) -> list[tuple[str, bytes]]:
    """The files that the base has, too, and with other contents."""
    base = bugs.base()
    return [(path, content) for path, content in entry.submission.files.items() if base.get(path, content) != content]


CORPORA = {
    "reference": lambda: read(ROOT / "assignment/reference").files,
    "variants": variants,
    "styles": styles,
    "base": bugs.base,
}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["simulated", "compiled"])
@pytest.mark.parametrize("files", CORPORA.values(), ids=CORPORA)
def test_every_kernel_that_is_right_is_described_and_built(files, way, tmp_path):
    Submission(files()).stage(tmp_path)
    told = run("every.py", way, tmp_path)
    assert told["refused"] == []
    assert told["built"] >= 7


@functools.cache
def told_of_styles():
    return run("styles.py")


STYLES = [
    node.name
    for node in ast.parse((DATA / "styles.py").read_text(encoding="utf-8")).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("check_")
]


@pytest.mark.parametrize("name", STYLES)
def test_in_the_simulator(name):
    assert told_of_styles()[name] is None, told_of_styles()[name]


def test_a_kernel_compiles_as_the_decorated_one_does():
    told = run("compiles.py")
    assert told["ours"] == told["theirs"]
    assert told["lines"]
    assert {name for name, error in told["bombs"].items() if "too large" in error or "cannot format" in error} == {
        *told["bombs"]
    }
