"""Compiling for GPUs that are not there: what is told of kernels, right and wrong ones."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assignment.compiling import compiler_pool, kernel, machine_code
from assignment.compiling.kernel import Kernel
from assignment.compiling.targets import TARGETS
from assignment.simulator.triton_private import HAS_BLOCK_POINTERS

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).parent / "data" / "compiled.py"
KB = 1024


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What data/compiled.py prints."""
    caches = tmp_path_factory.mktemp("triton")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(caches), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, str(SOURCE)], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def kernels(told):
    return [kernel.read(data) for data in told["kernels"]]


def line_in(function):
    """The number of the line of data/compiled.py that is marked for a function, and its source."""
    lines = SOURCE.read_text(encoding="utf-8").splitlines()
    other = [i for i, line in enumerate(lines) if line.endswith(f"# HERE for {function}")]
    start = lines.index(next(line for line in lines if line.startswith(f"def {function}(")))
    found = other or [i for i, line in enumerate(lines) if i > start and line.endswith("# HERE")]
    return f"{SOURCE}:{found[0] + 1}: {lines[found[0]].strip()}"


REFUSED = {
    "range_not_constexpr": ("arguments must be of type tl.constexpr", "declare the parameter as `NAME: tl.constexpr`"),
    "shape_not_constexpr": ("Shape element 0 must have type", "declare the parameter as `NAME: tl.constexpr`"),
    "no_power_of_two": ("range must be a power of 2", "take triton.next_power_of_2(n)"),
    "global_variable": ("Cannot access global variable SIZE", "make the global a tl.constexpr"),
    "type_changes_in_the_loop": ("Loop-carried variable total has initial type int32", "keeps its type"),
    "refused_by_an_assertion": ("static_assert failed: N is too small", ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_what_the_compiler_refuses_is_told_at_its_line(told, name):
    """One text for all targets: the compiler's words, the line, also where a helper was called, and what to do"""
    (text,) = told["problems"][name]
    message, remedy = REFUSED[name]
    assert text.startswith(f"{name}, compiled for A100, H100 and B200: does not compile: ")
    for part in (message, line_in(name), remedy):
        assert part in text


@pytest.mark.slow
def test_a_tile_below_the_least_of_tl_dot(told):
    """The inner dimension of a product has at least 16 elements: the K of 8 is refused, M of 16 is not"""
    (small, *_) = [text for text in told["problems"]["products"] if "K >= 16" in text]
    assert "tl.dot takes tiles of a least size" in small
    assert line_in("products") in small


@pytest.mark.slow
def test_what_does_not_fit_is_told_with_what_is_there(told):
    """Shared memory is told for each target that has too little, with the kernel's place and a remedy"""
    (text,) = [text for text in told["problems"]["products"] if "shared memory" in text]
    assert text.startswith("products, compiled for B200: needs 256 KB of shared memory; a program has 227 KB there\n")
    assert f"\n  at {SOURCE}:" in text
    assert "smaller tiles need less; so do fewer stages (num_stages=3 now)" in text


@pytest.mark.slow
def test_one_fitting_configuration_is_enough(told, kernels):
    """All configurations are reported; those of which one fits are no problem, and need not all be compiled"""
    own = [one for one in kernels if one.name == "tuned"]
    assert len(own) == 9
    assert {one.config for one in own if not one.fits} == {"M=128, K=256, num_warps=4, num_stages=3"}
    assert told["problems"]["tuned"] == []
    assert [config.split(",")[0] for config in told["enough"]] == 3 * ["M=128"] + 3 * ["M=16"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["with_descriptors", "with_block_pointers"])
def test_other_ways_to_address_memory_compile(told, name):
    """Block pointers where Triton has them; where it has not, that is told, with what takes their place."""
    problems = told["problems"][name]
    if name == "with_block_pointers" and not HAS_BLOCK_POINTERS:
        assert "tl.make_block_ptr was removed in Triton 3.9" in problems[0]
    else:
        assert problems == []


@pytest.mark.slow
def test_the_instruction_of_each_target(kernels):
    """bfloat16 tiles of 64 rows are multiplied by the target's best instruction, without a remark"""
    found = {one.target: one for one in reversed(kernels) if one.name == "products" and not one.error}
    assert {name: one.instructions for name, one in found.items()} == {
        name: (target.best,) for name, target in TARGETS.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "targets"),
    [
        ("wgmma takes 64 rows of the left operand at once; the tile has 16", {"h100"}),
        ("tcgen05 takes 64 rows of the left operand at once; the tile has 16", {"b200"}),
        ("four warps issue a wgmma together; num_warps is 2", {"h100"}),
        ("Triton uses tcgen05 with 4 or 8 warps; num_warps is 2", {"b200"}),
        ("by fma: tensor cores have no IEEE float32", {"a100", "h100", "b200"}),
    ],
)
def test_why_not_the_best_instruction(kernels, part, targets):
    found = {one.target: remark for one in kernels for remark in one.remarks if part in remark}
    assert found.keys() == targets
    assert any(line_in("products") in remark for one in kernels for remark in one.remarks if part in remark)


@pytest.mark.slow
def test_alignment_does_not_decide_the_instruction(kernels):
    """A pointer to the second element of a tensor costs the copies ahead of time, and not the instruction"""
    kinds = [one for one in kernels if one.name == "products" and one.constants == "M=64, K=64, PRECISION=tf32"]
    for name, target in TARGETS.items():
        aligned, odd, *_ = [one for one in kinds if one.target == name and one.warps == 4]
        assert (odd.shared, odd.registers) != (aligned.shared, aligned.registers)
        assert odd.instructions == aligned.instructions == (target.best,)


@pytest.mark.slow
def test_registers_and_spills_are_those_that_cuobjdump_tells(told):
    """On each target, of a kernel that spills on two of them"""
    assert len(told["resources"]) == 3
    for registers, spills, *expected in told["resources"]:
        assert [registers, spills] == expected
        assert registers > 100
    assert sum(spills > 0 for _, spills, *_ in told["resources"]) == 2


@pytest.mark.slow
def test_spills_are_told_with_the_line(told):
    assert "registers of each thread live in memory, most of them here:\n  at " in told["spills"]
    assert f"{SOURCE}:" in told["spills"]


def test_kernels_that_are_none():
    """A kernel read from data has every field, of its type and no larger than ours are"""
    good = Kernel("k", "a.py", 1, "h100", instructions=("wgmma",)).as_json()
    assert kernel.read(good) == Kernel("k", "a.py", 1, "h100", instructions=("wgmma",))
    assert kernel.read(json.loads(json.dumps(good))) == kernel.read(good)
    values: list[Any] = [None, 1.5, {}, [[]], "x" * 3000, -2, 1 << 50, ["x"] * 9]
    wrong: list[Any] = [{**good, name: value} for name in good for value in values]
    wrong += [{key: value for key, value in good.items() if key != name} for name in good]
    wrong += [{**good, "more": 1}, {**good, "target": "v100"}, {**good, "shared": True}, [], None, "k"]
    assert [data for data in wrong if kernel.read(data) is not None] == []


def test_limits_are_those_of_the_programming_guide():
    """163 KB for 8.0, 227 KB for 9.0 and 10.0"""
    limits = {name: (target.capability, target.shared_limit) for name, target in TARGETS.items()}
    assert limits == {"a100": (80, 163 * KB), "h100": (90, 227 * KB), "b200": (100, 227 * KB)}


def work(item):
    if item == "die":
        os._exit(3)
    if item == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    return [item, os.getpid()]


def test_work_in_processes():
    """Results come in their order; a process that dies costs what it was at, and the rest is done all the same"""
    items = ["a", "die", *map(str, range(50)), "crash", "b" * 100_000]
    found = compiler_pool.results(work, items, lambda item, how: [item, how], 3)
    assert [result[0] for result in found] == items
    assert found[1][1] == "exit status 3"
    assert found[52][1] == "SIGKILL"
    assert all(
        isinstance(result[1], int) and result[1] != os.getpid() for i, result in enumerate(found) if i not in (1, 52)
    )


def test_no_work_needs_no_process():
    assert compiler_pool.results(work, [], lambda item, how: None, 3) == []


def test_the_line_of_most_spills():
    assembly = """
	//## File "/a.py", line 3
        /*0000*/                   STL [R1], R2 ;
	//## File "/a.py", line 5
        /*0010*/                   LDL R2, [R1] ;
        /*0020*/                   STL.64 [R1+0x8], R2 ;
        /*0030*/                   LDG.E R2, [R4] ;
"""
    assert machine_code.most_spilled(assembly) == ("/a.py", 5)
    assert machine_code.most_spilled("") is None
