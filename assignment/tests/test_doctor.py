"""`grade.py --doctor`: what it says of each thing that a pinned environment can still meet, and whole runs."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from assignment.commands import doctor
from assignment.commands.doctor import machine
from assignment.commands.doctor.machine import FAIL, OK, WARN, MachineFinding
from assignment.judge import pool
from assignment.sandbox import rungs
from assignment.system import here
from assignment.system.linux import bubblewrap, processes

ROOT = Path(__file__).resolve().parents[2]
GB = machine.GB
IN_PACKAGES = Path(sys.prefix, "lib/python3.11/site-packages")


def assert_says(finding: MachineFinding, status: str, words: str) -> None:
    """What is not ok comes with advice, and only that."""
    assert finding.status == status
    assert bool(finding.advice) == (status != OK)
    assert re.search(words, f"{finding.found} {finding.advice}"), finding


# Packages.


ORIGINS = {
    "all": ({}, OK, "torch, triton, numpy, "),
    "one missing": ({"triton": None}, FAIL, "not installed: triton run it by uv.*uv run grade.py"),
    "a file of that name": ({"torch": Path("/course/torch.py")}, FAIL, "/course/torch.py stands in the way.*rename it"),
}


@pytest.mark.parametrize(("other", "status", "words"), ORIGINS.values(), ids=ORIGINS)
def test_packages_are_installed_and_not_hidden(monkeypatch, other, status, words):
    monkeypatch.setattr(doctor, "origin", lambda name: other.get(name, IN_PACKAGES / name / "__init__.py"))
    assert_says(doctor.packages(), status, words)


def test_what_triton_lacks_is_told_with_what_to_type(monkeypatch):
    def fetch() -> None:
        raise doctor.kept_triton.NotFetched("not here yet", "type uv run grade.py once")

    monkeypatch.setattr(doctor.kept_triton, "fetch_if_missing", fetch)
    assert_says(doctor.packages(), FAIL, "^not here yet type uv run grade.py once$")


def test_triton_without_a_compiler_stands_in_nothings_way(monkeypatch):
    home = Path(sys.prefix, doctor.kept_triton.FOLDER, "3.9.0", "triton", "__init__.py")
    installed = {"triton": home}
    monkeypatch.setattr(doctor, "origin", lambda name: installed.get(name, IN_PACKAGES / name / "__init__.py"))
    assert_says(doctor.packages(), OK, "triton")
    monkeypatch.setattr(doctor, "has_compiler", lambda: False)
    assert_says(doctor.compiler(), OK, "needs Linux: whether kernels compile for GPUs is not graded here")


def test_a_package_of_another_python_and_one_of_another_version_are_named(monkeypatch):
    files = {"torch": Path("/opt/other/site-packages/torch/__init__.py")}
    monkeypatch.setattr(doctor, "origin", lambda name: files.get(name, IN_PACKAGES / name / "__init__.py"))
    found = doctor.wanted() | {"torch": f"{doctor.wanted()['torch']}+cu130", "triton": "3.6.0"}
    monkeypatch.setattr(doctor.importlib.metadata, "version", found.__getitem__)
    told = {finding.item: finding for finding in doctor.versions()}
    torch, triton = told["torch"], told["triton"]
    assert_says(torch, WARN, "of another Python: /opt/other/site-packages/torch unset PYTHONPATH, or run it by uv")
    assert_says(triton, WARN, f"^3.6.0; the class uses {doctor.wanted()['triton']}.*uv run")
    files["torch"], found["triton"] = IN_PACKAGES / "torch/__init__.py", doctor.wanted()["triton"]
    assert {finding.status for finding in doctor.versions()} == {OK}  # CUDA's build is no other version


@pytest.mark.parametrize("look", [doctor.simulator, doctor.compiler])
def test_a_kernel_that_fails_is_told_with_what_may_mend_it(monkeypatch, look):
    monkeypatch.setattr(machine, "first_kernel", lambda *by: "OSError: libcudart.so.13")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert_says(look(), FAIL, "fails: OSError: libcudart.so.13 install the packages again: uv sync --reinstall")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/cuda")
    assert_says(look(), FAIL, "unset LD_LIBRARY_PATH; .*uv sync --reinstall")
    monkeypatch.setattr(machine, "first_kernel", lambda *by: "")
    assert_says(look(), OK, "kernel")


@pytest.mark.slow
def test_the_first_kernel_runs_and_says_why_not(monkeypatch, tmp_path):
    assert machine.first_kernel("-m", "assignment.simulator") == ""
    wrong = tmp_path / "kernel.py"
    wrong.write_text(machine.FIRST_KERNEL.read_text().replace("x + x", "x"))
    monkeypatch.setattr(machine, "FIRST_KERNEL", wrong)
    assert "wrong result" in machine.first_kernel("-m", "assignment.simulator")


@pytest.mark.slow
def test_a_compiler_that_cannot_be_started_is_named(monkeypatch):
    monkeypatch.setenv("TRITON_PTXAS_PATH", "/etc/passwd")
    assert_says(doctor.compiler(), FAIL, "PermissionError: .*'/etc/passwd'")


ENDS = {
    "well": ("print('yes')", ("yes\n", "")),
    "an exception": ("print('yes'); raise OSError('no')", ("yes\n", "OSError: no")),
    "a report": ("import sys; sys.stderr.write('note: x'); print('no'); sys.exit(1)", ("no\n", "no")),
    "a status": ("raise SystemExit(3)", ("", "Python ended with status 3")),
    "a crash": ("import ctypes; ctypes.string_at(0)", ("", "Python died of SIGSEGV")),
    "never": ("import time; time.sleep(99)", ("", "no answer within 2 s")),
}


@pytest.mark.parametrize(("code", "told"), ENDS.values(), ids=ENDS)
def test_how_a_process_ends_is_told(monkeypatch, code, told):
    monkeypatch.setattr(machine, "TIMEOUT_S", 2)
    assert machine.python("-c", code) == told


# The machine.


@pytest.mark.parametrize(
    ("name", "kind", "status", "words"),
    [
        ("Linux", "x86_64", OK, r"Linux, Python 3\.\d+"),
        ("Darwin 14.7.1", "arm64", OK, r"macOS 14\.7\.1 on arm64, Python 3\.\d+"),
        ("Darwin 26.0", "arm64", OK, "macOS 26.0 on arm64"),
        ("Darwin 13.6", "arm64", FAIL, "macOS 13.6 on arm64, .*no PyTorch: it needs macOS 14 on.*dev container"),
        ("Darwin 15.1", "x86_64", FAIL, "macOS 15.1 on x86_64, for which there is no PyTorch.*dev container"),
        ("Windows", "AMD64", FAIL, "Windows, for which there is no Triton.*WSL 2 works too"),
    ],
)
def test_the_system_is_linux_or_a_mac(monkeypatch, name, kind, status, words):
    monkeypatch.setattr(machine.platform, "system", lambda: name.partition(" ")[0])
    monkeypatch.setattr(machine.platform, "mac_ver", lambda: (name.partition(" ")[2], ("", "", ""), kind))
    monkeypatch.setattr(machine.platform, "machine", lambda: kind)
    assert_says(machine.system(), status, words)


@pytest.mark.parametrize(
    ("free", "status", "words"),
    [
        (50 * GB, OK, "/tmp: 50.0 GB free"),
        (GB, WARN, "1.0 GB free make room there, or name"),
        (10**7, FAIL, "0.0 GB free.*export TMPDIR="),
        (None, FAIL, "No usable temporary directory found name a folder of yours: export TMPDIR="),
    ],
)
def test_there_is_room_for_temporary_files(monkeypatch, free, status, words):
    def folder():
        if free is None:
            raise FileNotFoundError(2, "No usable temporary directory found")
        return "/tmp"

    monkeypatch.setattr(tempfile, "gettempdir", folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    assert_says(machine.temporary(), status, words)


NO_BWRAP = "bwrap is not installed (apt install bubblewrap)"
RUNGS = {
    "bubblewrap": ({}, "0", OK, "^bubblewrap $"),
    "landlock": ({rungs.BUBBLEWRAP: NO_BWRAP}, "0", OK, "^landlock; not bubblewrap: bwrap is not installed"),
    "neither": ({rungs.BUBBLEWRAP: NO_BWRAP, rungs.LANDLOCK: "old"}, "1", WARN, "k: old.*apt install bubblewrap$"),
    "no name spaces": ({rungs.BUBBLEWRAP: "denied", rungs.LANDLOCK: "old"}, "1", WARN, "sudo sysctl .*_userns=0$"),
    "a container": ({rungs.BUBBLEWRAP: "denied", rungs.LANDLOCK: "old"}, "0", WARN, "start the container, with"),
}  # fmt: skip


@pytest.mark.parametrize(("problems", "setting", "status", "words"), RUNGS.values(), ids=RUNGS)
def test_the_sandbox_is_the_best_that_works(monkeypatch, problems, setting, status, words):
    monkeypatch.setattr(rungs, "problem", lambda rung, device: problems.get(rung, ""))
    monkeypatch.setattr(bubblewrap, "contents", lambda path: f"{setting}\n")
    assert_says(machine.sandbox(), status, words)


@pytest.mark.parametrize(
    ("free", "status", "words"),
    [
        (8 * GB, OK, "8.0 GB free, for 4 cores"),
        (2 * GB, WARN, "2.0 GB free, .*uv run grade.py --jobs 2$"),
        (GB, FAIL, "1.0 GB free, for 4 cores; a grade takes 1.2 GB"),
    ],
)
def test_memory_is_enough_for_every_core(monkeypatch, free, status, words):
    monkeypatch.setattr(here, "free_memory", lambda: free)
    monkeypatch.setattr(pool, "default_jobs", lambda device: 4)
    assert_says(machine.memory(), status, words)


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
    monkeypatch.setattr(processes, "contents", lambda path: told.get(Path(path).name, ""))
    assert here.free_memory() == free


# The GPU.


SMI = {
    "a GPU": ("echo 'NVIDIA A10, 550.54.15'", ("NVIDIA A10, driver 550.54.15", "")),
    "no driver": ("echo 'NVIDIA-SMI has failed'; exit 9", ("", "NVIDIA-SMI has failed")),
    "nothing": ("true", ("", "no answer")),
    "not executable": ("", ("", "nvidia-smi is not installed")),
}


@pytest.mark.parametrize(("script", "told"), SMI.values(), ids=SMI)
def test_nvidia_smi_is_asked(tmp_path, monkeypatch, script, told):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755 if script else 0o644)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert doctor.nvidia_smi() == told


H100, MISMATCH = ("NVIDIA H100, driver 580.65.06", ""), ("", "Failed to initialize NVML: version mismatch")
TOLD = "a line of a package's own\nNVIDIA H100\n9\n0\n13.0\n"
OLD_DRIVER = "RuntimeError: The NVIDIA driver on your system is too old"
GPUS = {  # what nvidia-smi says, whether a device is there, what PyTorch says, why a kernel fails: status, words
    "none": (("", "not installed"), False, ("", ""), "", OK, "none, and none is needed"),
    "one that works": (H100, True, (TOLD, ""), "", OK, "^NVIDIA H100, compute capability 9.0, CUDA 13.0"),
    "no device": (H100, False, ("", ""), "", WARN, "H100, driver 580.65.06, but no /dev/nvidiactl.*--gpus all"),
    "an old driver": (H100, True, ("", OLD_DRIVER), "", WARN, "PyTorch cannot use it: .*too old .*580 or newer"),
    "half an update": (MISMATCH, True, ("", "CUDA error"), "", WARN, "a driver, but .*CUDA error; .*mismatch.*restart"),
    "no bf16": (H100, True, ("Tesla T4\n7\n5\n13.0", ""), "", WARN, "Tesla T4 has no bf16.*7.5;.*--device cpu$"),
    "a kernel fails": (H100, True, (TOLD, ""), "PTXASError", FAIL, "on it: PTXASError.*to the staff.*--device cpu$"),
}


@pytest.mark.parametrize(("smi", "device", "torch", "kernel", "status", "words"), GPUS.values(), ids=GPUS)
def test_the_gpu_is_looked_at(monkeypatch, smi, device, torch, kernel, status, words):
    monkeypatch.setattr(doctor, "nvidia_smi", lambda: smi)
    monkeypatch.setattr(doctor, "DEVICES", ("/dev/nvidiactl", "/dev/null" if device else "/nowhere"))
    monkeypatch.setattr(machine, "python", lambda *command: torch)
    monkeypatch.setattr(machine, "first_kernel", lambda: kernel)
    monkeypatch.setattr(doctor, "cure", lambda: "show this line to the staff")
    assert_says(doctor.gpu(), status, words)


def test_a_hidden_gpu_is_told_by_what_hides_it(monkeypatch):
    monkeypatch.setattr(doctor, "nvidia_smi", lambda: H100)
    monkeypatch.setattr(doctor, "DEVICES", ("/dev/null",))
    monkeypatch.setattr(machine, "python", lambda *command: ("", "RuntimeError: No CUDA GPUs are available"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert_says(doctor.gpu(), WARN, "No CUDA GPUs.*CUDA_VISIBLE_DEVICES= may hide it: unset it")


def test_what_a_gpus_launcher_is_built_with_may_be_missing(monkeypatch, tmp_path):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if name == "clang" else None)
    monkeypatch.setattr(doctor.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    assert "apt install python3-dev" in doctor.cure()
    (tmp_path / "Python.h").write_text("")
    assert doctor.cure() == "show this line to the staff"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "apt install gcc" in doctor.cure()


# What is said of it all.


GOOD = MachineFinding(OK, "memory", "8 GB free")
WORKS = MachineFinding(OK, doctor.GPU, "NVIDIA H100")
SENTENCES = {
    "no GPU": ([GOOD, doctor.NO_GPU], "80 of 100 points can be graded here; the last 20 need a GPU."),
    "a GPU": ([GOOD, WORKS], "100 of 100 points can be graded here, on the GPU."),
    "a GPU that is not used": (
        [MachineFinding(WARN, "memory", "little", "x"), MachineFinding(WARN, doctor.GPU, "an old driver", "x")],
        "80 of 100 points can be graded here; the last 20 need a GPU that works.",
    ),
    "a GPU that fails": (
        [GOOD, MachineFinding(FAIL, doctor.GPU, "a kernel fails", "x")],
        "80 of 100 points can be graded here, with --device cpu; for the GPU do what stands under GPU, then run this "
        "again.",
    ),
    "something missing": (
        [GOOD, MachineFinding(FAIL, "simulator", "x", "x"), MachineFinding(FAIL, "compiler", "x", "x"), doctor.NO_GPU],
        "Nothing can be graded here yet: do what stands under simulator, compiler, then run this again.",
    ),
}


@pytest.mark.parametrize(("found", "words"), SENTENCES.values(), ids=SENTENCES)
def test_the_last_line_and_the_exit_status_say_what_can_be_done(monkeypatch, capsys, found, words):
    monkeypatch.setattr(doctor, "findings", lambda: iter(found))
    assert doctor.main() == (2 if any(finding.status == FAIL for finding in found) else 0)
    assert capsys.readouterr().out.endswith(f"\n\n{words}\n")


def test_without_a_compiler_what_needs_linux_is_counted(monkeypatch):
    monkeypatch.setattr(doctor, "has_compiler", lambda: False)
    told = "78.25 of 100 points can be graded here; 1.75 need Linux, 20 a GPU."
    assert doctor.sentence([GOOD, doctor.NO_GPU]) == told


def test_what_others_programs_said_stays_in_its_line():
    odd = MachineFinding(WARN, "sandbox", "odd\x1b[31m\nwords", "do this")
    assert list(doctor.rows(odd)) == ["  warn  sandbox     odd�[31m�words", "        do this"]


def test_nothing_is_looked_at_behind_what_breaks_it(monkeypatch):
    monkeypatch.setattr(doctor, "origin", lambda name: None)
    assert [(finding.item, finding.status) for finding in doctor.findings()] == [("system", OK), ("packages", FAIL)]


# Whole runs.


def run(*arguments: str, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess:
    command, env = [sys.executable, *arguments], {**os.environ, **variables}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
    assert "Traceback" not in done.stdout + done.stderr
    return done


@pytest.mark.slow
def test_this_machine_is_fit_for_a_grade():
    done = run("grade.py", "--doctor")
    assert done.returncode == 0, done.stdout
    assert {"ok", "warn"} >= {line.split()[0] for line in done.stdout.splitlines() if re.match(r"  \w", line)}
    assert "80 of 100 points can be graded here" in done.stdout.splitlines()[-1]


def test_a_file_in_torchs_way_is_named(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError")
    done = run(str(ROOT / "grade.py"), "--doctor", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert f"{tmp_path}/torch.py stands in the way of the package torch" in done.stdout


def test_a_python_without_any_package_is_told_of_uv():
    """-S leaves site-packages out"""
    done = run("-S", "grade.py", "--doctor")
    assert done.returncode == 2
    assert "FAIL  packages    not installed: torch, triton, numpy" in done.stdout
    graded = run("-S", "grade.py")
    assert graded.returncode == 2
    assert graded.stderr == "grade.py: cannot start: No module named 'rich'; see python grade.py --doctor\n"


@pytest.mark.parametrize("version", [(3, 10), (3, 15)])
def test_another_python_is_told_of_uv_before_anything_is_loaded(version):
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    assert requires == ">=3.11,<3.15"
    code = f"import sys, runpy; sys.version_info = ({version[0]}, {version[1]}, 0); runpy.run_path('grade.py')"
    done = run("-c", code)
    assert (done.returncode, done.stdout) == (2, "")
    said = f"expected Python 3.11 to 3.14, got 3.{version[1]}; uv brings the right one: uv run grade.py"
    assert done.stderr == f"grade.py: {said}\n"
