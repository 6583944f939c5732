"""Compiling for GPUs that are not there: what is told of kernels, right and wrong ones."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assignment.compiling import advice, agreement, calls, kernel, machine_code, parallel
from assignment.compiling.kernel import Kernel
from assignment.compiling.targets import TARGETS
from assignment.tests.forked import python

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


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_compiler_refuses_is_told_at_its_line(told, name):
    """One text for all targets: the compiler's words, the line, also where a helper was called, and what to do"""
    (text,) = told["problems"][name]
    message, remedy = REFUSED[name]
    assert text.startswith(f"{name}, compiled for A100, H100 and B200: does not compile: ")
    for part in (message, line_in(name), remedy):
        assert part in text


def test_a_tile_below_the_least_of_tl_dot(told):
    """The inner dimension of a product has at least 16 elements: the K of 8 is refused, M of 16 is not"""
    (small, *_) = [text for text in told["problems"]["products"] if "K >= 16" in text]
    assert "tl.dot takes tiles of a least size" in small
    assert line_in("products") in small


def test_what_does_not_fit_is_told_with_what_is_there(told):
    """Shared memory is told for each target that has too little, with the kernel's place and a remedy"""
    (text,) = [text for text in told["problems"]["products"] if "shared memory" in text]
    assert text.startswith("products, compiled for B200: needs 256 KB of shared memory; a program has 227 KB there\n")
    assert f"\n  at {SOURCE}:" in text
    assert "smaller tiles need less; so do fewer stages (num_stages=3 now)" in text


def test_one_fitting_configuration_is_enough(told, kernels):
    """All configurations are reported; those of which one fits are no problem, and need not all be compiled"""
    own = [one for one in kernels if one.name == "tuned"]
    assert len(own) == 9
    assert {one.config for one in own if not one.fits} == {"M=128, K=256, num_warps=4, num_stages=3"}
    assert told["problems"]["tuned"] == []
    assert [config.split(",")[0] for config in told["enough"]] == 3 * ["M=128"] + 3 * ["M=16"]


@pytest.mark.parametrize("name", ["with_descriptors", "with_block_pointers"])
def test_other_ways_to_address_memory_compile(told, name):
    assert told["problems"][name] == []


def test_the_instruction_of_each_target(kernels):
    """bfloat16 tiles of 64 rows are multiplied by the target's best instruction, without a remark"""
    found = {one.target: one for one in reversed(kernels) if one.name == "products" and not one.error}
    assert {name: one.instructions for name, one in found.items()} == {
        name: (target.best,) for name, target in TARGETS.items()
    }


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


def test_alignment_does_not_decide_the_instruction(kernels):
    """A pointer to the second element of a tensor costs the copies ahead of time, and not the instruction"""
    kinds = [one for one in kernels if one.name == "products" and one.constants == "M=64, K=64, PRECISION=tf32"]
    for name, target in TARGETS.items():
        aligned, odd, *_ = [one for one in kinds if one.target == name and one.warps == 4]
        assert (odd.shared, odd.registers) != (aligned.shared, aligned.registers)
        assert odd.instructions == aligned.instructions == (target.best,)


def test_registers_and_spills_are_those_that_cuobjdump_tells(told):
    """On each target, of a kernel that spills on two of them"""
    assert len(told["resources"]) == 3
    for registers, spills, *expected in told["resources"]:
        assert [registers, spills] == expected
        assert registers > 100
    assert sum(spills > 0 for _, spills, *_ in told["resources"]) == 2


def test_spills_are_told_with_the_line(told):
    assert "registers of each thread live in memory, most of them here:\n  at " in told["spills"]
    assert f"{SOURCE}:" in told["spills"]


def test_kernels_that_are_none():
    """A kernel read from data has every field, of its type and no larger than ours are"""
    good = Kernel("k", "a.py:1", "h100", instructions=("wgmma",)).as_json()
    assert kernel.read(good) == Kernel("k", "a.py:1", "h100", instructions=("wgmma",))
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


def made(**given):
    values = {"name": "k", "place": "a.py:7", "target": "a100", "stages": 2, **given}
    form = "".join(str(values.get(name)) for name in ("place", "constants", "config", "stages"))
    return Kernel(**{"form": form, **values})


def test_tensor_memory_that_does_not_fit():
    (text,) = advice.problems([made(target="b200", tensor_memory=1024)])
    assert text.startswith("k, compiled for B200: needs 1024 columns of tensor memory; a program has 512\n  at a.py:7")


def test_threads_that_a_program_has_not():
    (text,) = advice.problems([made(warps=64)])
    assert "needs 2048 threads (num_warps=64); a program has 1024\n  at a.py:7\n  take fewer warps" in text


def test_a_tuned_kernel_none_of_whose_configurations_fits():
    """The one that comes closest is told: what compiles before what does not"""
    own = [
        made(tuning=1, config="M=1", error="no"),
        made(tuning=1, config="M=2", shared=300 * KB),
        made(tuning=1, config="M=3", shared=200 * KB),
    ]
    (text,) = advice.problems(own)
    assert "none of 3 configurations fits; the smallest (M=3) needs 200 KB of shared memory; a program has 163" in text
    assert len(advice.problems([*own, made(tuning=2, shared=1), made(tuning=1, target="h100")])) == 1


PASS = "PassManager::run failed\n  at a.py:9: for start in tl.range(0, n, warp_specialize=True):"


def test_a_crash_of_the_compiler_costs_nothing_where_the_kernel_fits():
    """As it is compiled for another GPU; what would be too large for this one is told as ever"""
    crashed = made(target="b200", error=PASS, is_crash=True)
    fitting = [made(shared=100 * KB), made(target="h100", shared=100 * KB), crashed]
    assert (advice.problems(fitting), advice.unknown(fitting)) == ([], [])
    (text,) = advice.not_judged(fitting)
    assert text.startswith(
        "k, compiled for B200: Triton's own compiler crashed there: it is not judged, and costs nothing"
    )
    assert text.endswith(PASS)
    too_large = [made(target="h100", shared=200 * KB), made(error=PASS, is_crash=True)]
    assert len(advice.problems(too_large)) == 1
    assert advice.not_judged(too_large) == advice.unknown(too_large) == []


def test_a_kernel_is_told_which_gpu_it_is_compiled_for(tmp_path):
    """Each build has its own target's answer, though all launches are noted down before"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, str(SOURCE.with_name("asks.py"))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.stdout == "[True, False]\n", done.stderr


OTHERS = [{"error": PASS, "is_crash": True}, {"constants": "TILE=16"}, {"stages": 1}, {"place": "decoy.py:1"}]


@pytest.mark.parametrize("other", OTHERS)
def test_a_crash_that_nothing_is_compared_with_is_for_staff(other):
    """For all GPUs, or where another tile is taken for each"""
    kernels = [made(target="b200", error=PASS, is_crash=True), made(target="h100", **other)]
    assert advice.problems(kernels) == advice.not_judged(kernels) == []
    assert all("staff will look at it" in text for text in advice.unknown(kernels))
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


def work(item):
    if item == "die":
        os._exit(3)
    if item == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    return [item, os.getpid()]


def test_work_in_processes():
    """Results come in their order; a process that dies costs what it was at, and the rest is done all the same"""
    items = ["a", "die", *map(str, range(50)), "crash", "b" * 100_000]
    found = parallel.results(work, items, lambda item, how: [item, how], 3)
    assert [result[0] for result in found] == items
    assert found[1][1] == "exit status 3"
    assert found[52][1] == "SIGKILL"
    assert all(
        isinstance(result[1], int) and result[1] != os.getpid() for i, result in enumerate(found) if i not in (1, 52)
    )


def test_no_work_needs_no_process():
    assert parallel.results(work, [], lambda item, how: None, 3) == []


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


def test_the_side_that_needs_no_gpu(tmp_path, monkeypatch):
    """A row for each launch of each call, also those that are compiled once for several"""
    package = tmp_path / "cs336_kernels"
    package.mkdir()
    (package / "__init__.py").write_text(SMALL)
    rows = agreement.side("compiled", tmp_path, TARGETS["h100"]) or []
    assert [one["kernel"] for one in rows].count("add_one") == len(list(calls.of_submission()))
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
        ("add_one[(1,)](x, y, 100, N=100)\n", 1, "arange's range must be a power of 2"),
        ("add_one[(1,)](x, y, 100, N=128, num_warps=3)\n", 1, "num_warps must be a power of 2"),
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
    titles = [call.title for call in calls.of_submission() if call.function not in to_do]
    assert all(title in graded or title in larger for title in titles)
    assert "flash_forward_triton, bfloat16, d 256, causal" in larger
    assert out.count("add_one") == len(titles)
    assert "flash_backward" not in out


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
