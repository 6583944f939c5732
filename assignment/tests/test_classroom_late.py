"""How late a submission is: where its time comes from, and what is said where none is known."""

import datetime

import pytest

from assignment.classroom import __main__ as classroom
from assignment.classroom import grades
from assignment.classroom.handed_in import Handed
from assignment.classroom.lateness import late
from assignment.classroom.layouts import found
from assignment.course import LateRule
from assignment.tests.test_classroom import DUE, package
from assignment.tests.test_classroom_layouts import METADATA, git, zipped
from assignment.tests.test_classroom_tables import rows

LATER = (DUE + datetime.timedelta(days=2, hours=1)).isoformat()


def late_days(one: Handed, due: datetime.datetime) -> int | str:
    return grades.days_late(one, late(one.submitted, due, LateRule(), is_late=one.is_late_as_told))


def clone(folder, when=LATER):
    package(folder)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one", when=when)


def test_a_clone_has_the_time_of_its_commit(tmp_path):
    """However it is read"""
    clone(tmp_path / "class" / "ada")
    package(tmp_path / "class" / "bo")
    zipped(tmp_path / "class" / "cy.zip", {"cs336_kernels/weighted_sum.py": "\n" * 9})
    for before in (None, DUE + datetime.timedelta(9)):
        days = {one.key: late_days(one, DUE) for one in found(tmp_path / "class", before=before, due=DUE)}
        assert days == {"ada": 3, "bo": "unknown", "cy": "unknown"}
    assert [one.time_from for one in found(tmp_path / "class")] == ["commit", "", ""]


def test_the_table_says_how_late(tmp_path, monkeypatch, capsys):
    clone(tmp_path / "class" / "ada")
    package(tmp_path / "class" / "bo")
    monkeypatch.setattr("assignment.classroom.batch.grade_all", lambda *_: iter(()))
    command = ["grade", str(tmp_path / "class"), "--to", str(tmp_path / "r"), "--due", DUE.isoformat()]
    classroom.main(command)
    assert [row["late"] for row in rows(tmp_path / "r" / "grades.incomplete.csv")] == ["3", "unknown"]
    said = capsys.readouterr().out
    assert "'bo': no time known, taken as in time; --times FILE tells it" in said
    assert "lateness: 1 late, 1 without a known time, taken as in time" in said


def test_a_platform_s_word_counts_where_it_gives_no_time(tmp_path):
    for name in ("doejane_LATE_12_345_work.zip", "roeric_13_346_work.zip"):
        zipped(tmp_path / name, {"cs336_kernels/weighted_sum.py": ""})
    assert [late_days(one, DUE) for one in found(tmp_path, due=DUE)] == ["late", 0]


def test_gradescope_s_times_are_used(tmp_path):
    (tmp_path / "submission_metadata.yml").write_text(METADATA)
    handed = {one.path.name: one for one in found(tmp_path, due=DUE)}
    assert [late_days(handed[f"submission_{n}"], DUE) for n in (11, 12, 13, 14)] == [0, 2, 1, "unknown"]
    assert {one.time_from for one in handed.values()} == {"Gradescope", ""}


@pytest.mark.parametrize("way", ["none", "damaged", "no commit", "no such time"])
def test_a_clone_without_a_commit_s_time_has_none(tmp_path, way):
    """Not that of a repository around it; its files are read as they lie"""
    clone(tmp_path)
    ada = tmp_path / "class" / "ada"
    package(ada)
    if way == "damaged":
        (ada / ".git").mkdir()
    elif way != "none":
        git(ada, "init", "-q")
    if way == "no such time":
        git(ada, "commit", "-q", "--allow-empty", "-m", "one", when="@99999999999999 +0000")
    (one,) = found(tmp_path / "class", due=DUE)
    assert (one.submitted, one.problem) == (None, "")
    assert one.read().files


def test_a_signature_is_not_looked_at(tmp_path):
    """A repository may name the program that does"""
    ada, ran = tmp_path / "class" / "ada", tmp_path / "ran"
    clone(ada)
    evil = tmp_path / "evil"
    # it reads what it is to sign, since git fails where that cannot be written
    said = "echo '[GNUPG:] SIG_CREATED ' >&2\necho '-----BEGIN PGP SIGNATURE-----'\n"
    evil.write_text(f"#!/bin/sh\ntouch {ran}\ncat >/dev/null\n{said}")
    evil.chmod(0o755)
    git(ada, "-c", f"gpg.program={evil}", "commit", "-q", "--allow-empty", "-S", "-m", "signed", when=LATER)
    ran.unlink()
    with (ada / ".git" / "config").open("a") as config:
        config.write(f"[gpg]\n\tprogram = {evil}\n[log]\n\tshowSignature = true\n")
    (one,) = found(tmp_path / "class", due=DUE)
    assert late_days(one, DUE) == 3
    assert not ran.exists()
