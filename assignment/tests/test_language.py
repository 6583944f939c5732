"""What Triton's compiler refuses, the simulator refuses; what it takes, the simulator takes: constructs/verdicts/."""

import functools
import json
import os
from pathlib import Path

import pytest

from assignment.tests.constructs.verdicts import NEWEST, VERSION, Verdict, kernels
from assignment.tests.forked import python

ROOT = Path(__file__).parents[2]
KERNELS = kernels()


@functools.cache
def verdicts(which: str) -> dict[str, Verdict]:
    """By kernel, None or a message and a line: of the "compiler" or the "simulator"."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    for _ in range(3):  # over what it refuses, Triton's verifier dies now and then
        done = python("-m", "assignment.tests.constructs.verdicts", which, cwd=ROOT, env=environment, timeout=300)
        if done.returncode >= 0:
            break
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Verdict] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_as_the_compiler(name: str) -> None:
    """Both take a kernel, or both refuse it, at the same line and in the words that the table has."""
    kernel, compiler, simulator = KERNELS[name], verdicts("compiler")[name], verdicts("simulator")[name]
    if simulator and simulator[3]:
        assert kernel.finds, simulator
        assert simulator[1] == kernel.finds[0], simulator
        assert kernel.finds[1] in simulator[0]
        simulator = None
    else:
        assert not kernel.finds or compiler, "an older Triton refuses it"
    if kernel.mark in ("laxer", "stricter"):
        assert bool(compiler) is (kernel.mark == "laxer")
        assert bool(simulator) is (kernel.mark == "stricter"), "the simulator has learned it: take away the mark"
    else:
        assert bool(simulator) is bool(compiler), f"simulator: {simulator}, compiler: {compiler}"
    if compiler and simulator and compiler[2]:
        assert (simulator[2] == compiler[2]) is (kernel.mark != "elsewhere"), f"{simulator}, {compiler}"
    if kernel.words:
        assert compiler
        assert kernel.words in compiler[0]
    if kernel.words or kernel.says:
        assert simulator
        assert kernel.words in simulator[0], "what a student reads is what the compiler will say"
        assert kernel.says in simulator[0]
    if VERSION == NEWEST:
        refused = simulator or compiler
        assert kernel.line == (refused and refused[1]), refused
