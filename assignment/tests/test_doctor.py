"""`grade.py --doctor`: every finding from facts made up for it, what it finds out by itself, and whole runs."""

import ast
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assignment.commands import cli, doctor
from assignment.commands.doctor import FAIL, OK, WARN, installed, machine, nvidia, packages
from assignment.commands.doctor.facts import LIBRARIES as NAMES
from assignment.commands.doctor.facts import PYTHONS, Facts, Folder, Gpu, Library
from assignment.commands.doctor.resources import GB

ROOT = Path(__file__).resolve().parents[2]
IN_PACKAGES = "/course/.venv/lib/python3.11/site-packages"
H100 = Gpu(
    is_there=True, has_device=True, name="NVIDIA H100", driver="580.65.06", cuda="13.0", capability=(9, 0)
)  # fmt: skip
NO_CUDA = replace(H100, capability=None, problem="RuntimeError: CUDA unknown error")


def found(name: str, version: str, problem: str = "") -> Library:
    return Library(version, problem, f"{IN_PACKAGES}/{name}/__init__.py")


LIBRARIES = {name: found(name, "9.9") for name in NAMES} | {
    "torch": found("torch", "2.13.0+cu130"),
    "triton": found("triton", "3.7.1"),
    "numpy": found("numpy", "2.4.6"),
}
GOOD = Facts(
    python=(3, 11, 7),
    implementation="CPython",
    executable="/course/.venv/bin/python",
    is_projects=True,
    is_managed=False,
    has_uv=True,
    system="Linux",
    machine="x86_64",
    libc=("glibc", "2.36"),
    temporary=Folder("/tmp", 50 * GB),
    cache=Folder("/home/ada/.cache", 50 * GB),
    here=Folder("/course", 50 * GB),
    files=4,
    libraries=LIBRARIES,
    simulator="",
    compiler="/usr/bin/gcc",
    has_headers=True,
    rungs={"bubblewrap": "", "landlock": "", "rlimits": ""},
    memory=8 * GB,
    jobs=4,
    points=80.0,
)
WITH_GPU = replace(GOOD, gpu=H100)


def with_library(name: str, found: Library, **changes: Any) -> Facts:
    return replace(GOOD, libraries={**LIBRARIES, name: found}, **changes)


def with_gpu(gpu: Gpu = H100, **changes: Any) -> Facts:
    return replace(GOOD, gpu=replace(gpu, **changes))


def broken(name: str, problem: str) -> Library:
    return found(name, "1.0", problem)


NOTHING = dict.fromkeys(NAMES, Library(problem="not installed"))
NO_BWRAP = "bwrap is not installed (apt install bubblewrap)"
ONLY_LIMITS = {"bubblewrap": NO_BWRAP, "landlock": "the kernel has no Landlock", "rlimits": ""}
DENIED = {"bubblewrap": "bwrap does not work: Permission denied", "landlock": "an old kernel", "rlimits": ""}
BARE = replace(GOOD, libraries=NOTHING, is_projects=False)

CASES = {  # what is wrong: facts, status, item, and what its two lines say
    "Python 3.10": (replace(GOOD, python=(3, 10, 4)), FAIL, "Python", "3.10.4; expected CPython 3.11 to 3.13"),
    "Python 3.14": (replace(GOOD, python=(3, 14, 0)), FAIL, "Python", "3.14.0.*uv sync --python 3.13"),
    "PyPy": (replace(GOOD, implementation="PyPy"), FAIL, "Python", "PyPy 3.11.7; expected CPython"),
    "Python 3.10, no uv": (
        replace(GOOD, python=(3, 10, 4), is_projects=False, has_uv=False),
        FAIL, "Python", "pip install uv, then uv run grade.py --doctor",
    ),
    "Python 3.10, no uv, and pip refuses": (
        replace(GOOD, python=(3, 10, 4), is_projects=False, has_uv=False, is_managed=True),
        FAIL, "Python", "pipx install uv, then uv run",
    ),
    "macOS": (replace(GOOD, system="Darwin"), FAIL, "system", "macOS, for which there is no Triton.*dev container"),
    "Windows": (replace(GOOD, system="Windows"), FAIL, "system", "Windows, .*WSL 2 works too"),
    "ARM": (replace(GOOD, machine="aarch64"), WARN, "system", "aarch64.*expected x86-64"),
    "POWER": (replace(GOOD, machine="ppc64le"), FAIL, "system", "ppc64le, for which there is no PyTorch"),
    "musl": (replace(GOOD, libc=("", "")), FAIL, "system", "another C library; PyTorch needs glibc 2.28"),
    "old glibc": (replace(GOOD, libc=("glibc", "2.17")), FAIL, "system", "glibc 2.17; PyTorch needs glibc 2.28"),
    "nothing installed": (
        BARE, FAIL, "packages", "not installed: torch, triton, numpy, .*uv run grade.py --doctor",
    ),
    "nothing installed, in uv's environment": (
        replace(GOOD, libraries=NOTHING), FAIL, "packages", "not installed: torch.*: uv sync$",
    ),
    "no triton": (
        with_library("triton", Library(problem="not installed")), FAIL, "packages", "not installed: triton.*uv sync$",
    ),
    "no rich": (with_library("rich", Library(problem="not installed")), FAIL, "packages", "not installed: rich"),
    "old torch": (with_library("torch", found("torch", "2.9.1")), WARN, "torch", "2.9.1 is older.*uv sync$"),
    "new torch": (with_library("torch", found("torch", "2.14.0")), WARN, "torch", "2.14.0 is newer.*2.13.0"),
    "old triton": (with_library("triton", found("triton", "3.5.1")), FAIL, "triton", "3.5.1 cannot run the sim"),
    "new triton": (with_library("triton", found("triton", "3.8.0")), WARN, "triton", "3.8.0 is newer.*3.7.1"),
    "old numpy": (with_library("numpy", found("numpy", "1.26.4")), WARN, "numpy", "1.26.4 is older.*2.1 or newer"),
    "a broken library": (
        with_library("torch", broken("torch", "OSError: libcudart.so.13: cannot open shared object file")),
        FAIL, "torch", "1.0 cannot be imported: OSError: libcudart.*uv sync --reinstall-package torch$",
    ),
    "a broken library, and other libraries first": (
        with_library("torch", broken("torch", "OSError: x.so"), environment={"LD_LIBRARY_PATH": "/opt"}),
        FAIL, "torch", "unset LD_LIBRARY_PATH; .*uv sync --reinstall-package torch$",
    ),
    "a broken library of the system's Python": (
        with_library("torch", broken("torch", "OSError: x.so"), is_projects=False), FAIL, "torch", "uv run grade.py",
    ),
    "a file of a package's name": (
        with_library("triton", Library("3.7.1", "SyntaxError", "/course/triton.py")),
        FAIL, "triton", "/course/triton.py stands in the way.*rename it$",
    ),
    "a small package is broken": (
        with_library("ml_dtypes", broken("ml_dtypes", "ImportError: no")),
        FAIL, "ml_dtypes", "uv sync --reinstall-package ml-dtypes$",
    ),
    "a kernel fails in the simulator": (
        replace(GOOD, simulator="TypeError: x"), FAIL, "simulator", "TypeError: x.*uv sync --reinstall; if it stays",
    ),
    "and a package is too new": (
        with_library("triton", found("triton", "3.9.0"), simulator="TypeError: x"),
        FAIL, "simulator", "TypeError: x install what the class uses: uv sync$",
    ),
    "no bubblewrap, no Landlock": (
        replace(GOOD, rungs=ONLY_LIMITS), WARN, "sandbox", "none but limits.*no Landlock.*apt install bubblewrap$",
    ),
    "no user name spaces": (
        replace(GOOD, rungs=DENIED, forbids_namespaces=True), WARN, "sandbox", "sudo sysctl .*userns=0$",
    ),
    "a container without any": (replace(GOOD, rungs=DENIED), WARN, "sandbox", "start the container, with user name"),
    "little memory": (replace(GOOD, memory=2 * GB), WARN, "memory", "2.0 GB free, .*uv run grade.py --jobs 2$"),
    "too little memory": (replace(GOOD, memory=GB), FAIL, "memory", "1.0 GB free; a grade takes 1.2 GB"),
    "no checks": (replace(GOOD, points=0.0), FAIL, "checks", "there are none.*git checkout -- tests$"),
    "checks that cannot be read": (
        replace(GOOD, points=0.0, points_problem="SyntaxError: x"), FAIL, "checks", "SyntaxError: x",
    ),
    "no temporary folder": (
        replace(GOOD, temporary=Folder("/tmp", problem="No usable temporary directory found")),
        FAIL, "temporary", "No usable temporary directory.*export TMPDIR=",
    ),
    "a full temporary folder": (
        replace(GOOD, temporary=Folder("/tmp", 10**7)), FAIL, "temporary", "0.0 GB free.*export TMPDIR=",
    ),
    "a nearly full temporary folder": (
        replace(GOOD, temporary=Folder("/tmp", GB)), WARN, "temporary", "1.0 GB free",
    ),
    "a disk too small for PyTorch": (
        replace(BARE, here=Folder("/course", 3 * GB)), FAIL, "disk", "3.0 GB free.*PyTorch takes 6 GB",
    ),
    "a full disk": (replace(GOOD, here=Folder("/course", 10**8)), WARN, "disk", "0.1 GB free.*make room"),
    "a folder that is read-only": (
        replace(GOOD, here=Folder("/course", 10**12, "it cannot be written to")), WARN, "disk", "cannot be written to",
    ),
    "a folder that is read-only, and nothing installed": (
        replace(BARE, here=Folder("/course", 10**12, "it cannot be written to")),
        FAIL, "disk", "export UV_PROJECT_ENVIRONMENT=",
    ),
    "a cache that is read-only": (
        replace(GOOD, cache=Folder("/home/ada/.cache", 1, "it cannot be written to")),
        WARN, "cache", "cannot be written to.*export XDG_CACHE_HOME=",
    ),
    "a cache that is read-only, and nothing installed": (
        replace(BARE, cache=Folder("/home/ada/.cache", 1, "it cannot be written to")), FAIL, "cache", "XDG",
    ),
    "nothing to grade": (
        replace(GOOD, submission="/home/ada: holds no cs336_kernels/*.py"),
        FAIL, "submission", "/home/ada: holds no.*uv run grade.py FOLDER$",
    ),
    "a GPU without a driver": (
        with_gpu(Gpu(is_there=True, driver_problem="nvidia-smi is not installed")),
        WARN, "GPU", "an NVIDIA GPU, but no driver for it .nvidia-smi is not installed.*ubuntu-drivers install",
    ),
    "a container without its host's GPU": (
        with_gpu(Gpu(is_there=True, driver="580.65.06", driver_problem="nvidia-smi is not installed")),
        WARN, "GPU", "not to be reached from here, though its driver 580.65.06 is loaded.*--gpus all",
    ),
    "a GPU, and a torch that does not work": (
        replace(with_library("torch", broken("torch", "OSError: x")), gpu=replace(NO_CUDA, cuda=None, problem="")),
        WARN, "GPU", "torch, which would use it, does not work.*first see to torch",
    ),
    "a GPU, and no torch": (
        replace(GOOD, libraries=NOTHING, gpu=replace(NO_CUDA, cuda=None, problem="")),
        WARN, "GPU", "first see to torch",
    ),
    "a torch without CUDA": (
        with_gpu(NO_CUDA, cuda=""), WARN, "GPU", "built without CUDA.*uv sync --reinstall-package torch",
    ),
    "an old driver": (
        with_gpu(NO_CUDA, driver="535.104.05"),
        WARN, "GPU", "its driver is 535.104.05; torch's CUDA 13.0 needs 580 or newer.*nvidia-driver-580",
    ),
    "a hidden GPU": (
        replace(with_gpu(NO_CUDA), environment={"CUDA_VISIBLE_DEVICES": ""}),
        WARN, "GPU", "CUDA_VISIBLE_DEVICES=: unset",
    ),
    "half an update of the driver": (
        with_gpu(NO_CUDA, driver="", driver_problem="Failed to initialize NVML: Driver/library version mismatch"),
        WARN, "GPU", "updated while it ran: restart the machine",
    ),
    "CUDA does not start": (with_gpu(NO_CUDA), WARN, "GPU", "CUDA unknown error.*--gpus all"),
    "a GPU without bf16": (
        with_gpu(name="Tesla T4", capability=(7, 5)), WARN, "GPU", "Tesla T4 has no bf16.*7.5;.*--device cpu$",
    ),
    "a kernel fails on the GPU": (
        with_gpu(kernel_problem="PTXASError"), FAIL, "GPU", "PTXASError.*to the staff.*--device cpu$",
    ),
    "no C compiler": (replace(WITH_GPU, compiler=""), FAIL, "C compiler", "none, .*apt install gcc.*--device cpu$"),
    "no Python.h": (replace(WITH_GPU, has_headers=False), FAIL, "C compiler", "Python.h is missing.*python3-dev"),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "status", "item", "words"), CASES.values(), ids=CASES)
def test_what_is_wrong_is_said_with_what_to_do(facts, status, item, words):
    (finding,) = (finding for finding in doctor.diagnose(facts) if finding.item == item)
    assert finding.status == status
    assert finding.advice
    assert re.search(words, f"{finding.found} {finding.advice}"), finding


@pytest.mark.parametrize(("facts", "status", "item"), [case[:3] for case in CASES.values()], ids=CASES)
def test_whoever_has_one_trouble_hears_of_that_one(facts, status, item):
    """Of others only where they come with it: without any package a GPU cannot be used, and disk is short"""
    others = {finding.item for finding in doctor.diagnose(facts) if finding.status != OK} - {item}
    assert others <= {"packages", "GPU", "torch", "triton"}


def test_where_all_is_well_nothing_is_to_be_done():
    for facts in (GOOD, WITH_GPU, replace(GOOD, libraries={**LIBRARIES, "torch": found("torch", "2.11.0")})):
        findings = doctor.diagnose(facts)
        assert {finding.status for finding in findings} == {OK}
        assert not any(finding.advice for finding in findings)


def test_a_broken_numpy_is_told_once():
    """Not of everything that imports it"""
    bad = {name: broken(name, "ImportError: libopenblas.so") for name in ("torch", "numpy", "ml_dtypes")}
    findings = doctor.diagnose(replace(GOOD, libraries={**LIBRARIES, **bad}))
    assert [finding.item for finding in findings if finding.status != OK] == ["numpy"]


def test_a_broken_package_is_not_listed_among_the_good():
    findings = doctor.diagnose(with_library("rich", broken("rich", "SyntaxError")))
    (good,) = (finding for finding in findings if finding.item == "packages")
    assert (good.status, good.found) == (OK, "einops, jaxtyping, matplotlib, ml_dtypes, pytest, safetensors")


def test_without_numpy_what_imports_it_is_not_broken():
    changes = {
        "numpy": Library(problem="not installed"),
        "ml_dtypes": broken("ml_dtypes", "ModuleNotFoundError: No module named 'numpy'"),
    }
    findings = doctor.diagnose(replace(GOOD, libraries={**LIBRARIES, **changes}))
    assert [finding.found for finding in findings if finding.status != OK] == ["not installed: numpy"]


def test_landlock_is_enough():
    (finding,) = (
        f for f in doctor.diagnose(replace(GOOD, rungs={**ONLY_LIMITS, "landlock": ""})) if f.item == "sandbox"
    )
    assert (finding.status, finding.found) == (OK, f"landlock; not bubblewrap: {NO_BWRAP}")


SENTENCES = {
    "no GPU": (GOOD, "80 of 100 points can be graded here; the last 20 need a GPU."),
    "a GPU": (replace(WITH_GPU, speed=20.0), "100 of 100 points can be graded here, on the GPU."),
    "a GPU that does not work": (
        replace(GOOD, gpu=NO_CUDA, speed=20.0),
        "80 of 100 points can be graded here; the last 20 need a GPU that works: see above.",
    ),
    "a GPU without a compiler": (
        replace(WITH_GPU, compiler=""),
        "80 of 100 points can be graded here, with --device cpu; for the GPU do what stands under C compiler, then "
        "run this again.",
    ),
    "something missing": (
        replace(GOOD, libraries=NOTHING, submission="x"),
        "Nothing can be graded here yet: do what stands under packages, submission, then run this again.",
    ),
}


@pytest.mark.parametrize(("facts", "words"), SENTENCES.values(), ids=SENTENCES)
def test_the_last_line_says_what_can_be_done(facts, words):
    assert doctor.sentence(facts, doctor.diagnose(facts)) == words


@pytest.mark.parametrize(
    ("facts", "status"),
    [(GOOD, 0), (replace(GOOD, rungs=ONLY_LIMITS), 0), (replace(GOOD, libraries=NOTHING), 2)],
    ids=["good", "warnings", "failures"],
)
def test_only_what_prevents_a_grade_shows_in_the_exit_status(monkeypatch, capsys, facts, status):
    monkeypatch.setattr(machine, "gather", lambda path: facts)
    assert doctor.main(Path()) == status
    assert capsys.readouterr().out.count("\n") >= len(doctor.diagnose(facts)) + 2


def test_it_is_printed_without_rich_as_with_it(monkeypatch, capsys):
    """Also what somebody else's program said, in one line"""
    facts = replace(GOOD, libraries=NOTHING, rungs={**ONLY_LIMITS, "landlock": "odd\x1b[31m\nwords"})
    findings = doctor.diagnose(facts)
    doctor.show(findings, "The end.")
    with_rich = capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "rich.console", None)
    doctor.show(findings, "The end.")
    assert capsys.readouterr().out == with_rich
    assert "\x1b" not in with_rich
    assert re.search(r"^  ok    memory      8.0 GB free$", with_rich, re.MULTILINE)
    assert re.search(r"^  FAIL  packages    .*\n        install what the class uses: uv sync$", with_rich, re.MULTILINE)
    assert with_rich.endswith("\n\nThe end.\n")


def test_the_versions_are_those_of_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {re.match(r"[\w-]+", line)[0].replace("-", "_"): line for line in project["dependencies"]}  # type: ignore[index]
    assert sorted(wanted) == sorted(NAMES)
    assert wanted["torch"] == f"torch=={installed.VERSIONS['torch'].ours}"
    assert wanted["triton"] == f"triton=={installed.VERSIONS['triton'].ours}"
    assert wanted["numpy"] == "numpy>={}.{}".format(*installed.VERSIONS["numpy"].oldest)
    (_, oldest), (_, newest) = PYTHONS
    assert project["requires-python"] == f">=3.{oldest},<3.{newest + 1}"


# What it finds out by itself.


def test_how_a_package_fails_is_told(tmp_path, monkeypatch):
    """By the error at its root, or by how Python ended"""
    modules = {
        "einops": "print('{}')",
        "jaxtyping": "try:\n    open('/nowhere')\nexcept OSError as error:\n    raise ImportError('a\\nb') from error",
        "ml_dtypes": "import ctypes\nctypes.string_at(0)",
        "rich": "raise SystemExit",
        "numpy": "import time\ntime.sleep(99)",
    }
    for name, code in modules.items():
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    problems = {name: packages.library(name).problem for name in modules if name != "numpy"}
    monkeypatch.setattr(packages, "IMPORT_TIMEOUT_S", 2)
    problems["numpy"] = packages.library("numpy").problem
    assert problems == {
        "einops": "",
        "jaxtyping": "FileNotFoundError: [Errno 2] No such file or directory: '/nowhere'",
        "ml_dtypes": "Python died of SIGSEGV",
        "rich": "SystemExit",
        "numpy": "no answer within 2 s",
    }
    assert packages.library("rich").file == str(tmp_path / "rich.py")
    assert packages.library("no_such_module") == Library("", "not installed")


def test_the_first_kernel_runs_in_the_simulator_and_says_why_not(monkeypatch, tmp_path):
    assert packages.run_first_kernel("-m", "assignment.simulator") == ""
    wrong = tmp_path / "kernel.py"
    wrong.write_text(packages.FIRST_KERNEL.read_text().replace("x + x", "x"))
    monkeypatch.setattr(packages, "FIRST_KERNEL", wrong)
    assert "wrong result" in packages.run_first_kernel("-m", "assignment.simulator")


SMI = {
    "a GPU": ("echo 'NVIDIA A10, 550.54.15'", ("NVIDIA A10", "550.54.15", "")),
    "no driver": ("echo 'NVIDIA-SMI has failed'; exit 9", ("", "", "NVIDIA-SMI has failed")),
    "nothing": ("true", ("", "", "no answer")),
    "not executable": ("", ("", "", "nvidia-smi is not installed")),
}


@pytest.mark.parametrize(("script", "told"), SMI.values(), ids=SMI)
def test_nvidia_smi_is_asked(tmp_path, monkeypatch, script, told):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755 if script else 0o644)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert nvidia.nvidia_smi() == told


def test_torch_is_asked_of_cuda_where_a_device_and_torch_are_there(monkeypatch):
    told = {"cuda": "13.0", "name": "NVIDIA A10", "capability": [8, 6]}
    monkeypatch.setattr(nvidia, "nvidia_smi", lambda: ("", "580.65.06", ""))
    monkeypatch.setattr(nvidia, "ask", lambda what: (told, "") if what == "cuda" else ({}, ""))
    monkeypatch.setattr(nvidia, "DEVICES", ("/nowhere", "/nowhere"))
    assert not nvidia.nvidia(can_ask_torch=True).works
    monkeypatch.setattr(nvidia, "DEVICES", ("/nowhere", "/dev/null"))
    assert not nvidia.nvidia(can_ask_torch=False).works
    gpu = Gpu(True, True, "NVIDIA A10", "580.65.06", "", "13.0", "", (8, 6))
    assert nvidia.nvidia(can_ask_torch=True) == gpu
    monkeypatch.setattr(nvidia, "ask", lambda what: ({}, "Python died of SIGSEGV"))
    assert nvidia.nvidia(can_ask_torch=True).problem == "Python died of SIGSEGV"


@pytest.mark.parametrize(
    "text",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.104.05  Release Build",
    ],
)
def test_the_kernels_module_tells_its_version(text):
    assert nvidia.driver_by_kernel(text) == "535.104.05"
    assert nvidia.driver_by_kernel("") == ""


def test_a_gpu_without_a_driver_is_found_on_the_bus(tmp_path):
    for name, vendor, kind in (("0", "0x8086", "0x030000"), ("1", "0x10de", "0x040300")):  # another's; its sound
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "class").write_text(f"{kind}\n")
    assert not nvidia.is_on_bus(tmp_path)
    (tmp_path / "1/class").write_text("0x030200\n")
    assert nvidia.is_on_bus(tmp_path)


def test_folders_are_judged_by_the_nearest_that_exists(tmp_path):
    assert machine.folder(tmp_path / "new/newer") == Folder(str(tmp_path / "new/newer"), machine.folder(tmp_path).free)
    (tmp_path / "file").write_text("")
    assert "is no folder" in machine.folder(tmp_path / "file/below").problem


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, 4 << 30),
        ({"memory.max": "max", "memory.current": "5"}, 4 << 30),
        ({"memory.max": str(3 << 30), "memory.current": str(1 << 30)}, 2 << 30),
        ({"memory.limit_in_bytes": str(1 << 30), "memory.usage_in_bytes": str(2 << 30)}, 0),
    ],
    ids=["no container", "no limit", "a limit", "more than the limit"],
)
def test_free_memory_is_that_of_the_container(monkeypatch, files, free):
    told = {"meminfo": "MemTotal: 9 kB\nMemAvailable:    4194304 kB\n", **files}
    monkeypatch.setattr(machine, "contents", lambda path: told.get(Path(path).name, ""))
    assert machine.free_memory() == free


def test_only_linux_and_these_pythons_are_looked_at_further():
    unfit = [replace(GOOD, system="Darwin"), replace(GOOD, python=(3, 10, 0)), replace(GOOD, python=(3, 14, 0))]
    assert [machine.fits(facts) for facts in (GOOD, *unfit)] == [True, False, False, False]


def test_a_machine_without_a_home_or_a_temporary_folder_has_that_for_a_fact(monkeypatch):
    def fails(error):
        def raises(*args, **kwargs):
            raise error

        return raises

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", fails(RuntimeError("Could not determine home directory.")))
    monkeypatch.setattr(tempfile, "gettempdir", fails(FileNotFoundError(2, "No usable temporary directory found")))
    facts = machine.basics()
    assert facts.cache.problem == "Could not determine home directory."
    assert facts.temporary.problem == "No usable temporary directory found"
    assert "No usable" in packages.run_first_kernel()


# Whole runs.


def run(*command: str, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess:
    done = subprocess.run(
        [*command, "--doctor"], cwd=cwd, env={**os.environ, **variables}, capture_output=True, text=True, timeout=300
    )
    assert "Traceback" not in done.stdout + done.stderr
    return done


def test_this_machine_is_fit_for_a_grade():
    done = run(sys.executable, str(ROOT / "grade.py"))
    assert done.returncode == 0, done.stdout
    assert "\x1b" not in done.stdout
    assert {"ok", "warn"} >= {line.split()[0] for line in done.stdout.splitlines() if re.match(r"  \w", line)}
    assert "80 of 100 points can be graded here" in done.stdout.splitlines()[-1]


def test_who_stops_it_sees_no_traceback(monkeypatch, capsys):
    def stopped(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(machine, "gather", stopped)
    assert cli.main(["--doctor"]) == 130
    assert capsys.readouterr().out == ""


def test_what_it_loads_is_ours_and_can_be_read_by_python_3_9():
    """No package, no newer syntax, and no annotation that an older Python cannot evaluate"""
    code = "import sys; import assignment.commands.cli; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    loaded = done.stdout.split()
    assert not set(loaded) & set(NAMES)
    for name in (name for name in loaded if name.startswith("assignment.")):
        path = ROOT / f"{name.replace('.', '/')}.py"
        source = (path if path.exists() else path.with_suffix("") / "__init__.py").read_text()
        tree = ast.parse(source, name, feature_version=(3, 9))
        unions = [n for n in ast.walk(tree) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.BitOr)]
        assert "from __future__ import annotations" in source or not any(names_a_type(union) for union in unions), name


def names_a_type(union: ast.BinOp) -> bool:
    """ "int | bytes" and "Tensor | None", not "READ | WRITE"."""
    return any(
        re.fullmatch(r"None|str|int|float|bytes|[A-Z][a-z]\w*", ast.unparse(n)) for n in (union.left, union.right)
    )


def test_without_torch_it_says_so(tmp_path):
    """A file of that name stands in the way, and there is nothing to grade where it is run"""
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch.so: cannot open shared object file')")
    done = run(sys.executable, str(ROOT / "grade.py"), cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert "ImportError: libtorch.so: cannot open shared object file" in done.stdout
    assert f"{tmp_path}/torch.py stands in the way of the package of that name: rename it" in done.stdout
    assert done.stdout.splitlines()[-1] == (
        "Nothing can be graded here yet: do what stands under torch, submission, then run this again."
    )


def test_a_python_without_any_package_is_told_of_uv():
    """-S leaves site-packages out"""
    done = run(sys.executable, "-S", str(ROOT / "grade.py"))
    assert done.returncode == 2
    assert "FAIL  packages    not installed: torch, triton, numpy" in done.stdout
    graded = subprocess.run([sys.executable, "-S", str(ROOT / "grade.py")], capture_output=True, text=True, timeout=60)
    assert graded.returncode == 2
    assert graded.stderr == "grade.py: cannot start: No module named 'rich'; see python grade.py --doctor\n"
