"""The commands of every page work, in the order of the page, in one folder, each where those before it have left it.

Those of students run in a student release, those of staff in a repository with the files of this one; `uv run` is left
out, as the packages are there. What grades everything grades ONE check here: .ci/run grades the stubs, the reference
and both releases by the very commands. What does not run has its reason in NOT_HERE.
"""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assignment import release
from assignment.submission import pack, read
from assignment.tests.forked import python
from assignment.tests.pages import DOCUMENTS, HANDOUT, ROOT, SCRIPTS, blocks, commands

pytestmark = pytest.mark.slow

HANDBOOK = ROOT / "assignment" / "README.md"
STUDENTS = [page for page in DOCUMENTS if page != HANDBOOK and commands(page)]
FIRST, ONE = "vector_add", "test_weighted_sum.py::test_value"
ELSEWHERE = "the releases and their updates: test_release.py, and .ci/run"
GPU = "needs a GPU"
LONG = "takes minutes"
NOT_HERE = {  # the beginnings of commands, and why they are not run
    "pip install": "needs the network",
    "apt install": "needs the network",
    "git ": ELSEWHERE,
    "ray start": "needs Ray, and a port of the machine: test_cluster.py starts one of its own",
    "python -m assignment.classroom grade SUBMISSIONS --to RESULTS --ray": "needs Ray: test_cluster.py",
    "python -m assignment.bank devices": GPU,
    "python -m assignment.bank races": GPU,
    "python -m assignment.bank gpu_memory": GPU,
    "python assignment/tests/data/counters.py": GPU,
    "python -m assignment.bank.operators.matmul_block_scaled.accumulators": GPU,
    "torchrun": f"{GPU}, or two",
    "python -m assignment.bank engines": f"{LONG}, or {GPU}",
    "python -m assignment.compiling.agreement": GPU,
    "python -m assignment.classroom leaderboard": "needs what a GPU has timed",
    "python -m assignment.bank rules": LONG,
    "python -m assignment.bank hostile_operations": f"{LONG}: test_operations.py",
    "python -m assignment.bank signals": f"{LONG}: test_faults.py",
    "python -m assignment.bank load": f"{LONG}: test_load.py",
    "python -m assignment.bank kills": f"{LONG}: test_faults.py",
    "python -m assignment.bank peak_memory": f"{LONG}: test_peak_memory.py",
    "python -m assignment.bank waiting": f"{LONG}: test_waiting.py",
    "python -m assignment.bank cpu_time": f"{LONG}: test_cpu_time.py",
    "python -m pytest -p assignment.simulator.pytest_plugin": "the folder is another project's: test_pytest_plugin.py",
    "python -m assignment.bank suites": f"{LONG}, and checkouts: test_suites.py",
    "python -m assignment.simulator --report experts.py": "a student's script: test_simulator_script.py has one",
    "python -m assignment.bank native": f"{LONG}: test_kept_triton.py",
    "python -m assignment.bank kept": LONG,
    "python -m assignment.simulator --l2": "the script is the student's: test_l2.py has one",
    "python -m assignment.bank.operators.flash_attention.benchmark": LONG,
    "python -m assignment.compiling match.py --target h100": "test_handout.py compares what it says, and its listings",
    "python -m assignment.compiling assignment/reference": f"{LONG}: test_compiling_command.py",
}
STATUSES = {  # of commands that say something by it
    "--doctor": {0, 2},  # 2: this machine lacks something
    "--sandbox bubblewrap": {0, 2},
    "review": {0, 1},
    "compare": {0, 1},
    "assignment.simulator": {0, 1},  # 1: it has found something
    "assignment.compiling": {0, 1},  # 1: something does not run on such a GPU
    "tests.upgrade --version": {0, 1},  # 1: another Triton than the installed one has other signatures
}
PLACEHOLDERS = {  # of the handbook, and what stands for them here
    "OWNER/NAME@COMMIT": "acme/kernels@" + "0a" * 20,
    " results": " RESULTS",
    " new ": " NEW ",
    "<name>": "ada",
    "NAME.json": "ada.json",
    "release student --to NEW": "release student --to NEWEST",  # NEW has other results by then
    "--decide NAME PROBLEM POINTS": "--decide ada weighted_sum 1",
    "assignment.new NAME --like OTHER": "assignment.new soft_cap --like vector_add",
    "assignment.retire NAME": "assignment.retire soft_cap",
    "<check>": "test_weighted_sum.py::test_value",
    "--check CHECK": "--check test_weighted_sum.py::test_value",
}


def command_of(line: str) -> str:
    """Return a line of a page as it is run: without uv, its remark and its placeholders."""
    for placeholder, value in PLACEHOLDERS.items():
        line = line.replace(placeholder, value)
    line = re.sub(r"^uv run (--extra \w+ )?", "", re.sub(r" {2,}# .*", "", line).strip())
    return f"python -m {line}" if line.startswith("pytest") else re.sub(r"^(?=grade\.py)", "python ", line)


def narrowed(command: str) -> str:
    """Return a command that takes seconds: of those that grade or attack everything it takes ONE, or the list."""
    if command.startswith("python -m assignment.bank grade"):
        return "python -m assignment.bank grade --list"
    if re.match(r"python -m assignment.classroom (grade|reproduce) ", command):
        return command if " --check " in command else f"{command} --only {ONE} --jobs 1 --device cpu"
    if command.startswith("python -m pytest") and " tests" not in command:
        return f"{command} --jobs 1 tests/weighted_sum -k test_value"
    if not command.startswith("python grade.py"):
        return command
    does_little = re.search(r" --(only|explain|next|list|doctor|pack)\b", command)
    return f"{command} --jobs 1" if does_little else f"{command} --jobs 1 --only {ONE}"


def run(command: str, folder: Path) -> str:
    """Run a command in a folder and return what it prints; it must end as it should, and without a traceback."""
    first, *words = shlex.split(command)
    env = os.environ | {"XDG_CACHE_HOME": str(folder / ".cache"), "TRITON_CACHE_DIR": str(folder / ".triton")}
    if "--watch" in words:
        return watched(words, folder, env)
    if first != "python":
        subprocess.run(command, shell=True, cwd=folder, check=True)
        return ""
    with solved(folder) if words[-1] == "cmp.py" else contextlib.nullcontext():
        done = python(*words, cwd=folder, env=env, timeout=200, is_merged=True)
    (statuses,) = [some for part, some in STATUSES.items() if part in command] or [{0}]
    assert done.returncode in statuses, f"{command}\n{done.stdout}"
    assert "Traceback" not in done.stdout, f"{command}\n{done.stdout}"
    return done.stdout


@contextlib.contextmanager
def solved(folder: Path) -> Iterator[None]:
    """Have the reader's attention written, which a script calls."""
    file = folder / "cs336_kernels" / "flash_attention.py"
    stub = file.read_bytes()
    shutil.copyfile(ROOT / "assignment" / "reference" / "cs336_kernels" / file.name, file)
    yield
    file.write_bytes(stub)


def watched(words: list[str], folder: Path, env: dict[str, str]) -> str:
    """Return what a command prints until it watches; Ctrl-C must end it then."""
    with (folder / ".watched").open("w+") as out:
        process = subprocess.Popen([sys.executable, *words], cwd=folder, env=env, stdout=out, stderr=out)
        try:
            until = time.monotonic() + 200
            while "Watching:" not in (said := (folder / ".watched").read_text()) and time.monotonic() < until:
                time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130, said
        finally:
            process.kill()
    return said


HAVE_RUN: set[str] = set()  # what stands on several pages runs for the first


def runs(page: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """Run the commands of a page; yield each with what it printed, those that were run before without."""
    for line in commands(page):
        command = command_of(line)
        if not any(command.startswith(beginning) for beginning in NOT_HERE):
            is_new = (asked := narrowed(command)) not in HAVE_RUN or "assignment.simulator" in command
            HAVE_RUN.add(asked)
            yield command, run(asked, folder) if is_new else ""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A fresh copy of the student release, in which the pages are read one after the other."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tree = {path: release.File((ROOT / path).read_bytes()) for path in listed.splitlines() if (ROOT / path).is_file()}
    folder = tmp_path_factory.mktemp("copy")
    release.write_folder(release.student_tree(tree), folder)
    return folder


@pytest.mark.parametrize("page", STUDENTS, ids=lambda path: path.name)
def test_commands_of_students(page, copy):
    """In the order of the page; what was mended stays so"""
    for name, script in SCRIPTS.items():
        (copy / name).write_text(script.content, encoding="utf-8")
    if page == HANDOUT[0]:  # whose first kernel is written before anything is graded
        (first,) = (block for block in blocks(page) if block.language == "python")
        (copy / "cs336_kernels" / "practice" / "vector_add.py").write_text(first.content, encoding="utf-8")
    is_mended = False
    for command, said in runs(copy / page.relative_to(ROOT), copy):  # without what is for staff
        is_mended |= command.startswith("sed")
        if page == HANDOUT[0] and command.endswith(f"--only {FIRST}"):
            assert len(re.findall(r"^  FAIL ", said, re.MULTILINE)) == 3, said  # as the page says
        if is_mended and "assignment.simulator" in command:
            assert "launched at" not in said, said
        if "--report" in command:
            assert re.search(r"kernel +.*[0-9]", said), said
        if "assignment.simulator --html" in command:
            assert (copy / shlex.split(command)[shlex.split(command).index("--html") + 1]).stat().st_size > 1000, said


@pytest.fixture
def repository(tmp_path):
    """A repository with the files of this one, a class's submissions, and the results of another class."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for path in listed.splitlines():
        if os.path.lexists(ROOT / path):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, tmp_path / path, follow_symlinks=False)
    for words in ("init --quiet", "add .", "-c user.name=A -c user.email=a@a.example commit --quiet -m All"):
        subprocess.run(["git", *shlex.split(words)], cwd=tmp_path, check=True)
    exclude = tmp_path / ".git" / "info" / "exclude"
    exclude.write_text("/*\n")  # what the commands leave behind makes no dirty tree
    for name in ("ada", "bo"):
        shutil.copytree(ROOT / "cs336_kernels", tmp_path / "SUBMISSIONS" / name / "cs336_kernels")
    (tmp_path / "submission.zip").write_bytes(pack(read(tmp_path)))
    return tmp_path


def test_commands_of_staff(repository):
    """In the order of the handbook"""
    assert len(list(runs(HANDBOOK, repository))) > 30


def test_what_does_not_run_is_on_a_page():
    """A reason for a command that no page has is out of date"""
    asked = [command_of(line) for page in DOCUMENTS for line in commands(page)]
    assert [beginning for beginning in NOT_HERE if not any(one.startswith(beginning) for one in asked)] == []
