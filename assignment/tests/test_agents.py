"""AGENTS.md, which tells coding assistants how to help a student: that it is shipped, and that it says what is true."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from assignment import release
from assignment.commands import explain, handout
from assignment.tests.pages import DOCUMENTS, commands
from assignment.verdict import checks

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "AGENTS.md"
MAX_LINES = 60
EXPLAINED = [
    shlex.split(command)[shlex.split(command).index("--explain") + 1]
    for document in DOCUMENTS
    for command in commands(document)
    if "--explain" in command
]


@pytest.fixture(scope="module")
def shipped():
    """The page as students get it."""
    return release.student_tree(
        {path: release.File((ROOT / path).read_bytes()) for path in ("AGENTS.md", release.REFERENCE + "rmsnorm.py")}
    )["AGENTS.md"].data.decode()


def test_students_get_it_without_what_is_for_staff(shipped):
    assert shipped.startswith("# For coding assistants\n")
    assert "STAFF" not in shipped
    assert "This page speaks to the assistants of students" not in shipped
    assert len(shipped.splitlines()) <= MAX_LINES


def test_it_is_tracked_and_so_in_a_release():
    """Releases are cut from commits"""
    done = subprocess.run(["git", "ls-files", "AGENTS.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "AGENTS.md\n"


def test_it_says_what_is_not_done(shipped):
    text = " ".join(shipped.split())
    assert "Write, complete, rewrite or translate a function or a kernel in `cs336_kernels/`" in text
    assert "Just give me the code" in text


def test_its_commands_are_known_to_the_tests_of_documents():
    """Their form is tested there"""
    assert PAGE in DOCUMENTS
    assert len(commands(PAGE)) >= 5


@pytest.mark.parametrize("name", EXPLAINED)
def test_what_is_to_be_explained_exists(name):
    assert explain.named(name, checks.declared())


def test_its_files_and_sections_exist(shipped):
    for path in re.findall(r"`((?:tests|assignment|cs336_kernels)/[\w./]*)`", shipped):
        assert (ROOT / path).exists(), path
    for _, target in re.findall(r"\[([^\]]*)\]\(([^)]*)\)", shipped):
        assert handout.section(target), target


@pytest.mark.parametrize(
    "command", [command for command in commands(PAGE) if command.startswith("uv run grade.py --list")]
)
def test_a_command_runs(command):
    arguments = shlex.split(command, comments=True)[3:]
    done = subprocess.run([sys.executable, "grade.py", *arguments], cwd=ROOT, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
