"""What is said of kernels that do not compile, do not fit, or that crash the compiler."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from assignment.compiling import advice
from assignment.compiling.kernel import Kernel

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).parent / "data" / "compiled.py"
KB = 1024


def made(**given):
    values = {"name": "k", "path": "a.py", "line": 7, "target": "a100", "stages": 2, **given}
    form = "".join(str(values.get(name)) for name in ("path", "constants", "config", "stages"))
    return Kernel(**{"form": form, **values})


def only(found):
    (said,) = found
    return said.text


def test_tensor_memory_that_does_not_fit():
    text = only(advice.problems([made(target="b200", tensor_memory=1024)]))
    assert text.startswith("k, compiled for B200: needs 1024 columns of tensor memory; a program has 512\n  at a.py:7")


def test_threads_that_a_program_has_not():
    text = only(advice.problems([made(warps=64)]))
    assert "needs 2048 threads (num_warps=64); a program has 1024\n  at a.py:7\n  take fewer warps" in text


def test_a_tuned_kernel_none_of_whose_configurations_fits():
    """The one that comes closest is told: what compiles before what does not"""
    own = [
        made(tuning=1, config="M=1", error="no"),
        made(tuning=1, config="M=2", shared=300 * KB),
        made(tuning=1, config="M=3", shared=200 * KB),
    ]
    text = only(advice.problems(own))
    assert "none of 3 configurations fits; the smallest (M=3) needs 200 KB of shared memory; a program has 163" in text
    assert len(advice.problems([*own, made(tuning=2, shared=1), made(tuning=1, target="h100")])) == 1


PASS = "PassManager::run failed\n  at a.py:9: for start in tl.range(0, n, warp_specialize=True):"


def test_a_crash_of_the_compiler_costs_nothing_where_the_kernel_fits():
    """As it is compiled for another GPU; what would be too large for this one is told as ever"""
    crashed = made(target="b200", error=PASS, is_crash=True)
    fitting = [made(shared=100 * KB), made(target="h100", shared=100 * KB), crashed]
    assert (advice.problems(fitting), advice.unknown(fitting)) == ([], [])
    text = only(advice.not_judged(fitting))
    assert text.startswith(
        "k, compiled for B200: Triton's own compiler crashed there: it is not judged, and costs nothing"
    )
    assert text.endswith(PASS)
    too_large = [made(target="h100", shared=200 * KB), made(error=PASS, is_crash=True)]
    assert len(advice.problems(too_large)) == 1
    assert advice.not_judged(too_large) == advice.unknown(too_large) == []


@pytest.mark.slow
def test_a_kernel_is_told_which_gpu_it_is_compiled_for(tmp_path):
    """Each build has its own target's answer, though all launches are noted down before"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, str(SOURCE.with_name("asks.py"))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.stdout == "[True, False]\n", done.stderr


OTHERS = [{"error": PASS, "is_crash": True}, {"constants": "TILE=16"}, {"stages": 1}, {"path": "decoy.py"}]


@pytest.mark.parametrize("other", OTHERS)
def test_a_crash_that_nothing_is_compared_with_is_for_staff(other):
    """For all GPUs, or where another tile is taken for each"""
    kernels = [made(target="b200", error=PASS, is_crash=True), made(target="h100", **other)]
    assert advice.problems(kernels) == advice.not_judged(kernels) == []
    assert all("staff will look at it" in said.text for said in advice.unknown(kernels))
    assert len(advice.unknown(kernels)) == 1


def test_a_crash_is_compared_with_all_that_is_alike():
    """One that fits does not speak for another that does not"""
    alike = [
        made(target="h100", shared=100 * KB),
        made(target="b200", shared=200 * KB),
        made(error=PASS, is_crash=True),
    ]
    assert advice.not_judged(alike) == []
    assert len(advice.problems(alike)) == 1


def test_a_crash_hides_no_refusal():
    """Of another GPU, or of another configuration of a tuned kernel"""
    crashed = made(target="b200", error=PASS, is_crash=True, tuning=1)
    assert len(advice.problems([crashed, made(error="no")])) == 1
    assert len(advice.problems([crashed, replace(crashed, error="no", is_crash=False)])) == 1
