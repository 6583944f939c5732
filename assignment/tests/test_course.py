"""course.toml: read once, followed by everything, and its mistakes told with their line."""

import subprocess
import sys
from dataclasses import replace

import pytest

from assignment import course


def read(tmp_path, text: str) -> course.Course:
    (tmp_path / course.FILE).write_text(text, encoding="utf-8")
    return course.course.__wrapped__(tmp_path)


def test_the_file_says_what_holds_without_it(tmp_path):
    assert replace(course.course(), points={}) == course.course.__wrapped__(tmp_path) == read(tmp_path, "")


def test_a_file_of_another_course(tmp_path):
    text = """\
[course]
title = "GPU kernels"
pages = "https://kernels.example/a/"
due = 2026-11-30T23:59:00+01:00
[late]
share_a_day = 0.25
[points]
weighted_sum = 6
softmax = 4.25
rmsnorm = "practice"
flash_backward_pytorch = "off"
speed = 0
"""
    found = read(tmp_path, text)
    assert (found.title, found.pages, found.institution) == ("GPU kernels", "https://kernels.example/a", "")
    assert found.due is not None
    assert found.due.isoformat() == "2026-11-30T23:59:00+01:00"
    assert (found.late.share_a_day, found.late.cut_off_days) == (0.25, course.LateRule().cut_off_days)
    assert list(found.points.values()) == [6, 4.25, course.PRACTICE, course.OFF, 0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[course]\n\ntitel = 'x'\n", "line 3: titel: unknown: did you mean title?"),
        ("[points]\nrmsnorm = 1\nrmsnrm = 2\n", "line 3: rmsnrm: unknown: did you mean rmsnorm?"),
        ("[points]\nrmsnorm = -1\n", "line 2: rmsnorm: expected points, in whole hundredths and not below 0,"),
        ("[points]\nrmsnorm = 0.125\n", 'or "practice" or "off", got 0.125'),
        ("[points]\nrmsnorm = true\n", "got True"),
        ("[points]\nrmsnorm = 'of'\n", "got 'of'"),
        ("[points]\nspeed = 'practice'\n", "got 'practice'"),
        ("points = 100\n", "line 1: points: expected a table, [points], got 100"),
        ("[people]\n", "line 1: people: unknown: expected one of course, late, points"),
        ("[course]\ndue = 2026-11-30T23:59:00\n", "expected a date and time with its zone"),
        ("[course]\ndue = '2026-11-30'\n", "expected a date and time with its zone"),
        ("[course]\npages = 'kernels.example'\n", 'expected an address, "https://…"'),
        ("[course]\nlogo = 'logo.svg'\n", "line 2: logo: expected a file below"),
        ("[course]\ntitle = 7\n", "expected a line of text in quotes, got 7"),
        ("[late]\nshare_a_day = 10\n", "expected a number from 0 to 1, got 10"),
        ("[late]\ncredit_days = 1.5\n", "expected a whole number that is not below 0, got 1.5"),
        ("[points]\nrmsnorm = \n", "course.toml: Invalid value (at line 2, column 11)"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path, text, says):
    with pytest.raises(course.CourseError) as error:
        read(tmp_path, text)
    assert says in str(error.value)


@pytest.mark.parametrize(
    "command",
    [
        "grade.py --doctor", "-m assignment.bank grade rmsnorm --list", "-m assignment.classroom grade . --to out",
        "-m assignment.handout --to out", "-m assignment.new other --like softmax", "-m assignment.retire softmax",
        "-m assignment.release stubs", "-m pytest -q tests/vector_add",
    ],
)  # fmt: skip
def test_programs_tell_a_mistake_without_a_traceback(broken, command):
    done = subprocess.run([sys.executable, *command.split()], cwd=broken, capture_output=True, text=True, timeout=120)
    assert done.returncode in (2, 3, 4)
    assert "course.toml, line 2: rmsnrm: unknown: did you mean rmsnorm?" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """The repository with a mistake in its course.toml"""
    folder = tmp_path_factory.mktemp("broken") / "repository"
    root = course.ROOT.parents[1]
    subprocess.run(["git", "clone", "--quiet", "--shared", str(root), str(folder)], check=True)
    changed = subprocess.run(["git", "diff", "HEAD", "--binary"], cwd=root, capture_output=True, check=True).stdout
    subprocess.run(["git", "apply", "--allow-empty"], cwd=folder, input=changed, check=True)
    (folder / course.FILE).write_text("[points]\nrmsnrm = 20\n")
    return folder
