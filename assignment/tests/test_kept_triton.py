"""Triton where it has no build: its files are fetched once and kept, and what needs its compiler is not graded."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
import venv
from pathlib import Path

import pytest

from assignment.bank.run import kept as kept_verdicts
from assignment.bank.run import native
from assignment.simulator import kept_triton
from assignment.verdict import checks

ROOT = Path(__file__).resolve().parents[2]
VERSION = next(iter(kept_triton.HASHES))
PACKAGES = kept_triton.packages_of(Path(sys.prefix))
# stands in for uv: notes what it is told, and unpacks this Python's Triton, less its binaries, with some of its own
UV = """
import json, os, shutil, sys
from pathlib import Path
said = sys.argv[1:]
to = Path(said[said.index("--target") + 1])
wanted = Path(said[said.index("-r") + 1]).read_text()
Path(os.environ["SAID"]).write_text(json.dumps([said, wanted, os.environ["TMPDIR"]]))
source = Path({source!r})
binaries = shutil.ignore_patterns("*.so", "bin", "lib", "include", "__pycache__")
for folder in ("triton", "triton-{version}.dist-info"):
    shutil.copytree(source / folder, to / folder, ignore=binaries)
(to / "triton" / "_C").mkdir(exist_ok=True)
(to / "triton" / "_C" / "libtriton.so").write_bytes(b"not for this system")
(to / "bin").mkdir()
(to / "bin" / "proton").write_text("")
{more}
"""


def a_uv(folder: Path, more: str = "") -> str:
    """Return a program in uv's place."""
    code = textwrap.dedent(UV).format(source=str(PACKAGES), version=VERSION, more=more)
    program = folder / "uv"
    program.write_text(f"#!{sys.executable}\n{code}")
    program.chmod(0o755)
    return str(program)


def an_environment(folder: Path) -> Path:
    venv.EnvBuilder(symlinks=True).create(folder)
    return folder


def kept(prefix: Path) -> list[str]:
    folder = prefix / kept_triton.FOLDER
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_python_files_and_what_is_known_of_the_package_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    prefix = an_environment(tmp_path / "environment")
    kept_triton.fetch(prefix, VERSION, a_uv(tmp_path))
    home = prefix / kept_triton.FOLDER / VERSION
    assert kept(prefix) == [VERSION]
    assert {path.name for path in home.iterdir()} == {"triton", f"triton-{VERSION}.dist-info"}
    assert {path.suffix for path in (home / "triton").rglob("*") if path.is_file()} == {".py"}
    assert (home / f"triton-{VERSION}.dist-info" / "entry_points.txt").is_file()
    said, wanted, scratch = json.loads((tmp_path / "said").read_text())
    assert said[:5] == ["pip", "install", "--no-cache", "--require-hashes", "--no-deps"]
    assert "--python-platform aarch64-unknown-linux-gnu" in " ".join(said)
    assert wanted == f"triton=={VERSION} --hash=sha256:{kept_triton.HASHES[VERSION]}\n"
    assert Path(scratch).is_relative_to(prefix)  # what is unpacked there is linked


def test_workers_find_it_without_the_network_or_uv(tmp_path, monkeypatch):
    """`python -I` reads neither variables nor the folder that it is started in"""
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    prefix = an_environment(tmp_path / "environment")
    kept_triton.fetch(prefix, VERSION, a_uv(tmp_path))
    kept_triton.find(prefix, prefix / kept_triton.FOLDER / VERSION)
    code = f"""
        import sys
        sys.path += [{str(ROOT)!r}, {str(PACKAGES)!r}]
        from assignment.simulator import install
        install()
        import importlib.metadata, triton
        from assignment.simulator import kept_triton
        print(triton.__file__, importlib.metadata.version("triton"), kept_triton.has_compiler())
    """
    command = [str(prefix / "bin" / "python"), "-I", "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    file, version, has_compiler = done.stdout.split()
    assert Path(file).is_relative_to(prefix)
    assert (version, has_compiler) == (VERSION, "False"), done.stderr


@pytest.mark.skipif(not shutil.which("uv"), reason="needs uv")
def test_an_exact_sync_leaves_it(tmp_path, monkeypatch):
    """uv removes what belongs to a package that is not asked for, and nothing else"""
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "empty"\nversion = "0"\nrequires-python = ">=3.11"\n[tool.uv]\npackage = false\n'
    )
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    command = ["uv", "sync", "--exact", "--offline", "--python", sys.executable]
    for _ in range(2):
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=100)
        prefix = tmp_path / ".venv"
        if not kept(prefix):
            kept_triton.fetch(prefix, VERSION, a_uv(tmp_path))
            kept_triton.find(prefix, prefix / kept_triton.FOLDER / VERSION)
    assert kept(prefix) == [VERSION]
    found = subprocess.run(
        [prefix / "bin" / "python", "-Ic", "import importlib.util as u; print(u.find_spec('triton').origin)"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert found.stdout == f"{prefix / kept_triton.FOLDER / VERSION / 'triton' / '__init__.py'}\n"


FAILURES = {  # what uv 0.13 has said: why, and what is to be done
    "another file": (
        "error: Failed to download `triton==3.9.0`\n  cause: Hash mismatch for `triton==3.9.0`\n\n  Expected:\n",
        r"not the file that was expected; try again; if it stays, show this line to the staff$",
    ),
    "no network": (
        "error: Request failed after 3 retries in 6.1s\n  cause: Failed to fetch: https://host/simple/triton/\n"
        "  cause: client error (Connect)\n  cause: dns error\n",
        r"uv does not reach it; connect to the network.*later runs need none$",
    ),
    "not allowed": (
        "error: No solution found when resolving dependencies\n\n"
        "hint: Packages were unavailable because the network was disabled.\n",
        r"uv may not use the network; connect",
    ),
    "broken off": (
        "error: Failed to download `triton==3.9.0`\n  cause: error decoding response body\n",
        r"the download broke off; connect",
    ),
    "a full disk": (
        "error: Failed to download `triton==3.9.0`\n  cause: Failed to extract archive: triton.whl\n"
        "  cause: failed to write to file `libtriton.so`: No space left on device (os error 28)\n",
        r"the disk is full; make 1 GB of room",
    ),
    "something else": ("warning: x\nerror: it is Monday\n  cause: y\n", r"once: it is Monday; if it stays, show"),
    "nothing": ("", r"once: uv said nothing; if it stays"),
}


@pytest.mark.parametrize(("said", "words"), FAILURES.values(), ids=FAILURES)
def test_a_failure_is_one_sentence_and_nothing_is_left(tmp_path, monkeypatch, said, words):
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    prefix = an_environment(tmp_path / "environment")
    with pytest.raises(kept_triton.NotFetched, match=words) as caught:
        kept_triton.fetch(prefix, VERSION, a_uv(tmp_path, f"sys.exit({said!r} or 1)"))
    assert "\n" not in str(caught.value)
    assert kept(prefix) == []


def test_where_nothing_can_be_run_or_written_that_is_said(tmp_path):
    prefix = an_environment(tmp_path / "environment")
    with pytest.raises(kept_triton.NotFetched, match=r"No such file.*no-such-uv"):
        kept_triton.fetch(prefix, VERSION, str(tmp_path / "no-such-uv"))
    assert kept(prefix) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(kept_triton.NotFetched, match="Not a directory"):
        kept_triton.fetch(tmp_path / "file", VERSION, a_uv(tmp_path))
    with pytest.raises(kept_triton.NotFetched, match=r"no hash of 3\.99\.0 is known here; update your copy"):
        kept_triton.fetch(prefix, "3.99.0", a_uv(tmp_path))


def test_two_first_runs_at_once_keep_the_same(tmp_path, monkeypatch):
    """The folder that is complete first stays"""
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    prefix = an_environment(tmp_path / "environment")
    home = prefix / kept_triton.FOLDER / VERSION
    kept_triton.fetch(prefix, VERSION, a_uv(tmp_path, f"Path({str(home)!r}).mkdir(); Path({str(home)!r}, 'x').touch()"))
    assert kept(prefix) == [VERSION]
    assert [path.name for path in home.iterdir()] == ["x"]


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """On a system that pyproject.toml asks for no Triton on, in an environment that has none."""
    project = tmp_path / "pyproject.toml"
    text = kept_triton.PROJECT.read_text()
    assert text.count("; sys_platform == 'linux'") == 1
    project.write_text(text.replace("sys_platform == 'linux'", "sys_platform != 'linux'"))
    monkeypatch.setattr(kept_triton, "PROJECT", project)
    monkeypatch.setattr(kept_triton.sys, "prefix", str(an_environment(tmp_path / "environment")))
    monkeypatch.setattr(kept_triton, "origin", lambda name: None)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    return tmp_path


def test_the_first_run_fetches_and_later_ones_do_not(elsewhere, monkeypatch, capsys):
    monkeypatch.setenv("UV", a_uv(elsewhere))
    kept_triton.fetch_if_missing()
    assert capsys.readouterr().err == f"{kept_triton.FETCHES}\n"
    home = Path(sys.prefix, kept_triton.FOLDER, VERSION)
    assert sys.path[-1] == str(home)
    path_file = kept_triton.packages_of(Path(sys.prefix)) / kept_triton.PATH_FILE
    assert path_file.read_text() == f"{home}\n"
    (elsewhere / "said").unlink()
    monkeypatch.delenv("UV")
    sys.path.pop()
    path_file.unlink()  # as after a run that was ended in between
    kept_triton.fetch_if_missing()
    assert (sys.path[-1], path_file.read_text()) == (str(home), f"{home}\n")
    assert not (elsewhere / "said").exists()
    assert capsys.readouterr().err == ""


def test_another_version_is_fetched_where_it_is_asked_for(elsewhere, monkeypatch):
    old = Path(sys.prefix, kept_triton.FOLDER, "3.0.0")
    old.mkdir(parents=True)
    sys.path.append(str(old))
    monkeypatch.setattr(kept_triton, "origin", lambda name: old / "triton" / "__init__.py")
    monkeypatch.setenv("UV", a_uv(elsewhere))
    kept_triton.fetch_if_missing()
    assert str(old) not in sys.path
    assert sys.path[-1] == str(old.with_name(VERSION))


def test_without_uv_it_is_said_what_to_type(elsewhere, monkeypatch):
    monkeypatch.delenv("UV", raising=False)
    with pytest.raises(kept_triton.NotFetched, match=r"not here yet; type uv run grade\.py once.*pip install uv\)$"):
        kept_triton.fetch_if_missing()


def test_nothing_is_fetched_where_uv_installs_triton(elsewhere, monkeypatch):
    """On Linux, where it may be missing all the same, or where somebody has built it"""
    monkeypatch.setenv("UV", "/no/such/program")
    monkeypatch.setattr(kept_triton, "origin", lambda name: Path("/opt/packages/triton/__init__.py"))
    kept_triton.fetch_if_missing()
    monkeypatch.setattr(kept_triton, "origin", lambda name: None)
    monkeypatch.setattr(kept_triton, "PROJECT", ROOT / "pyproject.toml")
    kept_triton.fetch_if_missing()


def test_the_hash_of_the_version_that_is_asked_for_is_known():
    (triton,) = (one for one in kept_triton.requirements() if one.name == "triton")
    assert {kept_triton.pinned(triton)} == {*kept_triton.HASHES}
    assert [str(one.marker) for one in kept_triton.requirements() if one.marker] == ['sys_platform == "linux"']


COMMANDS = {
    "grade.py": ["grade.py"],
    "the doctor": ["grade.py", "--doctor"],
    "pytest": ["-m", "pytest", "tests"],
    "a script": ["-m", "assignment.simulator", "assignment/commands/doctor/first_kernel.py"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_each_first_command_says_in_a_sentence_why_it_cannot_begin(tmp_path, command):
    """Here without uv, by a Python that has all packages but Triton, on a system that uv installs it not on"""
    copy = tmp_path / "copy"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(".venv", ".git", ".bank", "__pycache__"))
    project = copy / "pyproject.toml"
    project.write_text(project.read_text().replace("sys_platform == 'linux'", "sys_platform != 'linux'"))
    hidden = tmp_path / "packages"
    hidden.mkdir()
    for path in PACKAGES.iterdir():
        if not path.name.startswith("triton"):
            (hidden / path.name).symlink_to(path)
    prefix = an_environment(tmp_path / "environment")
    (kept_triton.packages_of(prefix) / "packages.pth").write_text(f"{hidden}\n")
    environment = {name: value for name, value in os.environ.items() if name not in ("UV", "PYTHONPATH")}
    python = [str(prefix / "bin" / "python"), *command]
    done = subprocess.run(python, cwd=copy, env=environment, capture_output=True, text=True, timeout=100)
    said = done.stdout + done.stderr
    assert done.returncode in (2, 4), said
    assert "Traceback" not in said
    assert kept_triton.MISSING[0] in said
    assert kept_triton.MISSING[1] in said


# What is graded without a compiler.


@pytest.fixture(scope="module")
def without_compiler(tmp_path_factory):
    """Return a Python that has this one's packages, and of Triton what a Mac has."""
    return native.environment(tmp_path_factory.mktemp("native") / "environment")


def said_by(python: Path, *command: str) -> str:
    done = subprocess.run([python, *command], cwd=ROOT, capture_output=True, text=True, timeout=200)
    return done.stdout + done.stderr


def test_what_compiles_is_not_graded_and_costs_nothing(without_compiler, tmp_path):
    file, xml, page = tmp_path / "report.json", tmp_path / "report.xml", tmp_path / "report.md"
    files = ("--json", str(file), "--junit", str(xml), "--markdown", str(page))
    said = said_by(without_compiler, "grade.py", "assignment/reference", "--only", "weighted_sum", *files)
    report = json.loads(file.read_text())
    (problem,) = report["problems"]
    assert (report["score"], report["gradable"], report["max_score"]) == (9.75, 9.75, 10.0)
    assert said.splitlines()[-1] == "Score: 9.75/9.75 gradable here, 0.25 need Linux"
    assert "weighted_sum    9.75/10    0.25 need Linux" in said
    statuses = {check["name"]: (check["status"], check["message"]) for check in problem["checks"]}
    assert statuses.pop("test_weighted_sum.py::test_compiles") == ("not graded", "needs Linux")
    assert {*statuses.values()} == {("ok", "")}
    assert 'skipped="1"' in xml.read_text()
    assert "0.25 need Linux" in page.read_text()


def test_a_fresh_copy_is_welcomed_without_a_compiler_too(without_compiler):
    *_, welcome, _, last = [line for line in said_by(without_compiler, "grade.py").splitlines() if line]
    assert last == "Score: 0/78.25 gradable here, 1.75 need Linux, 20 a GPU"
    assert welcome


def test_one_check_that_compiles_is_explained_by_what_it_needs(without_compiler):
    name = "test_weighted_sum.py::test_compiles"
    said = said_by(without_compiler, "grade.py", "assignment/reference", "--explain", name)
    assert said.splitlines()[-1] == "It needs Linux, for which Triton has its compiler: not graded here."
    said = said_by(
        without_compiler, "-m", "pytest", "-m", "", "-rs", "-p", "no:cacheprovider", f"tests/weighted_sum/{name}"
    )
    assert "needs Linux" in said
    assert "2 skipped" in said


def test_all_checks_but_those_are_finished_for_next(without_compiler):
    said = said_by(without_compiler, "grade.py", "assignment/reference", "--next", "--only", "weighted_sum")
    assert said.splitlines()[-1] == "All right: 19 checks. For the others, leave out --only."


def test_kernels_are_compiled_on_linux_alone(without_compiler):
    said = said_by(without_compiler, "-m", "assignment.compiling", "assignment/reference")
    told = "compiling needs Linux, for which Triton has its compiler; kernels run in the simulator here"
    assert said == f"assignment/reference: {told}\n"


@pytest.mark.slow
def test_the_doctor_counts_what_needs_linux(without_compiler):
    said = said_by(without_compiler, "grade.py", "--doctor")
    assert "compiler    needs Linux" in said
    assert said.splitlines()[-1] == "78.25 of 100 points can be graded here; 1.75 need Linux, 20 a GPU."


def test_checks_that_compile_are_known_by_their_names():
    """`compiles` of tests/families.py makes them"""
    made = {check.name for check in checks.in_tests() if check.is_compiled}
    named = {name for file in checks.TESTS.rglob("test_*.py") for name in checks_that_call_compiles(file)}
    assert named <= made
    graded = [check for check in checks.without_practice(checks.declared()) if check.is_compiled]
    assert sum(check.points for check in graded) == 1.75


def checks_that_call_compiles(file: Path) -> list[str]:
    lines = [line for line in file.read_text().splitlines() if line.startswith("test_") and "= compiles(" in line]
    return [f"{file.name}::{line.partition(' =')[0]}" for line in lines]


@pytest.mark.slow
def test_verdicts_are_those_of_the_compilers_environment(capfd):
    """A bug and a right variant; the whole is `python -m assignment.bank native`"""
    assert native.main(["bugs/vector_add/stored"], True, None, 0, "1/1", 1) == 0
    assert "0 of them different" in capfd.readouterr().out


@pytest.mark.slow
def test_kept_verdicts_are_those_of_today(monkeypatch, tmp_path, capsys):
    """A bug's; the whole is `python -m assignment.bank kept`"""
    whole = json.loads(kept_verdicts.KEPT.read_text())
    name = "bugs/rmsnorm/forward-the-weight-forgotten"
    assert "reference" in whole["verdicts"]
    assert all(whole["verdicts"].values())
    file = tmp_path / "kept.json"
    file.write_text(json.dumps({"seed": whole["seed"], "verdicts": {name: whole["verdicts"][name]}}))
    monkeypatch.setattr(kept_verdicts, "KEPT", file)
    assert kept_verdicts.main(False, 1) == 0
    file.write_text(file.read_text().replace('"FAIL"', '"ok"'))
    assert kept_verdicts.main(False, 1) == 1
    assert "kept  ['ok', 0.0" in capsys.readouterr().out
