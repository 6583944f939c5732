"""What a class has handed in: found in every layout, each student once, under a name that nobody else has."""

import datetime
import itertools
import subprocess
import unicodedata
import zipfile

import pytest
import yaml

from assignment.classroom import layouts, names
from assignment.classroom.layouts import doubts, found
from assignment.classroom.names import safe
from assignment.submission import UnusableSubmission
from assignment.tests.test_classroom import DUE, KERNEL, package

METADATA = """---
submission_11:
  :submitters:
  - :name: Ada Lovelace
    :sid: '77'
    :email: ada@uni.example
  :created_at: 2026-11-20 10:00:00.000000000 Z
submission_12:
  :submitters:
  - :name: Ada Lovelace
    :sid: '77'
    :email: ada@uni.example
  :created_at: 2026-11-22 10:00:00.000000000 Z
submission_13:
  :submitters:
  - :name: Grace
    :email: grace@uni.example
  - :name: Alan
    :email: alan@uni.example
  :created_at: 2026-11-21 10:00:00.000000000 Z
submission_14:
  :submitters: []
"""


def test_an_export_of_gradescope(tmp_path):
    (tmp_path / "submission_metadata.yml").write_text(METADATA)
    for number in (11, 12, 13):
        package(tmp_path / f"submission_{number}")
    ada, again, group, without = sorted(found(tmp_path, due=DUE), key=lambda one: one.path.name)
    assert [one.name for one in (ada, again, group)] == [
        "ada@uni.example",
        "ada@uni.example.2",
        "alan@uni.example+grace@uni.example",
    ]
    assert [one.is_late for one in (ada, again, group)] == [False, True, True]
    assert [person.name for person in group.people] == ["Grace", "Alan"]
    assert ada.read().sources["cs336_kernels/weighted_sum.py"] == KERNEL
    with pytest.raises(UnusableSubmission, match="no such folder"):
        without.read()


@pytest.mark.parametrize("text", ["", "- a list", "a: &x [*x", "? " * 5000, "!!python/object/apply:os.system [ls]"])
def test_metadata_that_cannot_be_read(tmp_path, text):
    (tmp_path / "submission_metadata.yml").write_text(text)
    with pytest.raises(UnusableSubmission, match=r"submission_metadata.yml|no folder"):
        found(tmp_path)


def test_a_download_of_canvas(tmp_path):
    with zipfile.ZipFile(tmp_path / "doejane_LATE_12_345_work.zip", "w") as archive:
        archive.writestr("cs336_kernels/weighted_sum.py", KERNEL)
    (tmp_path / "roeric_13_346_weighted_sum-2.py").write_text(KERNEL)
    (tmp_path / "roeric_13_346_rmsnorm.py").write_text("x = 1\n")
    (tmp_path / "poemax_14_347_essay.pdf").write_bytes(b"%PDF")
    jane, max_, eric = found(tmp_path)
    assert (jane.student, jane.is_late, jane.people[0].canvas) == ("doejane-12", True, "12")
    assert set(jane.read().files) == {"cs336_kernels/weighted_sum.py"}
    assert {"cs336_kernels/weighted_sum.py", "cs336_kernels/rmsnorm.py"} < set(eric.read().files)
    with pytest.raises(UnusableSubmission, match="neither a zip nor a Python file"):
        max_.read()


def git(folder, *command, when="2026-11-20T12:00:00+00:00"):
    names = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    dates = {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
    subprocess.run(
        ["git", *command], cwd=folder, check=True, capture_output=True, env={"PATH": "/usr/bin:/bin"} | names | dates
    )


def test_repositories_are_read_at_a_tag_or_before_a_time(tmp_path):
    """And nothing that they configure is run"""
    work = tmp_path / "class" / "ada"
    package(work)
    git(work, "init", "-q")
    git(work, "add", ".")
    git(work, "commit", "-qm", "first")
    git(work, "tag", "handed-in")
    (work / "cs336_kernels" / "weighted_sum.py").write_text("late = 1\n")
    git(work, "commit", "-qam", "late", when="2026-11-25T12:00:00+00:00")
    (work / "cs336_kernels" / "weighted_sum.py").write_text("never committed\n")
    with (work / ".git" / "config").open("a") as config:
        config.write(f"[core]\n\tfsmonitor = touch {tmp_path}/ran\n\tpager = touch {tmp_path}/ran\n")
    name = "cs336_kernels/weighted_sum.py"

    def text(**options):
        (one,) = found(tmp_path / "class", **options)
        return one.read().sources[name]

    assert text(tag="handed-in") == KERNEL
    assert text(before=DUE) == KERNEL
    assert text(before=DUE + datetime.timedelta(days=9)) == "late = 1\n"
    assert text() == "never committed\n"
    with pytest.raises(UnusableSubmission, match="git"):
        text(tag="--output=x")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "name", ["../../etc", "a/b", ".", "", "x" * 300, "a\nb", "=1+1", "Zoë", "名前", "-rf", "\udcff"]
)
def test_a_name_is_safe(name):
    made = safe(name)
    assert 0 < len(made) <= names.MAX_NAME
    assert len(made.encode()) <= names.MAX_BYTES
    assert not set(made) & set("/\\\0\n=")
    assert made[0] not in ".-"


def test_a_hidden_folder_is_a_student_if_there_is_a_package_in_it(tmp_path):
    package(tmp_path / "..ada")
    package(tmp_path / "bo")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".DS_Store").write_bytes(b"")
    assert [one.key for one in found(tmp_path)] == ["..ada", "bo"]


def zipped(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


NAMES = [
    "ada", "Ada", "ADA", "m.müller", "m.muller", "Zoë", unicodedata.normalize("NFD", "Zoë"), "李雷", "Jane Doe",
    "Jane  Doe", "Jane_Doe", " jane", "jane", "a.b", "ab", "a..b", "ada.2", "ada.2.2", "..hidden", "...",
    "-rf", "=cmd()|' calc'!A0",
    "+1", "@sum", "$(touch x)", "%2e%2e", "..\\up", "con", "x" * 200, "x" * 201, "a\nb", "a\tb", "\u202egnp", "O'Brien",
    "<b>", "a;b", "a,b", "ß", "ss", "ﬁ", "fi", "é" * 90, "\udcff", "\udcfe", "x-1234abcd", names.safe("m;m"), "m;m",
]  # fmt: skip


def test_names_are_made_of_their_key_alone():
    """Each key has one, in whatever order and company, but for case; no two are the same to any file system"""
    made = names.of_keys(NAMES)
    assert made == names.of_keys(reversed(NAMES))
    folded = {unicodedata.normalize("NFC", name.casefold()) for name in made.values()}
    assert len(folded) == len(NAMES)
    alone = {key: names.of_keys([key])[key] for key in NAMES}
    assert {key for key in NAMES if alone[key] != made[key]} <= {"ada", "Ada", "ADA", "ß", "ss", "ﬁ", "fi"}
    attempts = [name if i == 1 else f"{name}.{i}" for name in made.values() for i in (1, 2, 3)]
    assert len({name.casefold() for name in attempts}) == len(attempts)
    assert made["李雷"] == "李雷"


def members(folder):
    return {(one.key, one.attempt): one for one in found(folder)}


@pytest.mark.parametrize("form", ["folder", "zip", "clone"])
def test_every_name_is_a_row_in_every_form(tmp_path, form):
    kept = [name for name in NAMES if len(name.encode("utf-8", "surrogateescape")) < 250 and name.strip(".")]
    for name in kept:
        if form == "zip":
            zipped(tmp_path / f"{name}.zip", {"cs336_kernels/weighted_sum.py": f"name = {name!a}"})
        else:
            package(tmp_path / name, f"name = {name!a}")
    if form == "clone":
        for name in kept:
            git(tmp_path / name, "init", "-q")
            git(tmp_path / name, "add", ".")
            git(tmp_path / name, "commit", "-qm", "one")
    handed = found(tmp_path, before=DUE if form == "clone" else None)
    assert sorted(one.key for one in handed) == sorted(kept)
    for one in handed:
        assert one.read().sources["cs336_kernels/weighted_sum.py"] == f"name = {one.key!a}"
        assert one.source == names.shown(f"{one.key}.zip" if form == "zip" else one.key)


def test_every_name_is_a_row_of_gradescope_s_export(tmp_path):
    """Also where the metadata names a place outside"""
    kept = [*(name for name in NAMES if name.isprintable()), "y" * 400, "y" * 401]
    metadata = {
        f"submission_{i}": {":submitters": [{":name": name}], ":created_at": DUE} for i, name in enumerate(kept)
    }
    for i, name in enumerate(kept):
        package(tmp_path / "export" / f"submission_{i}", f"name = {name!a}")
    package(tmp_path / "outside")
    metadata["../outside"] = {":submitters": [{":name": "mallory"}]}
    (tmp_path / "export" / "submission_metadata.yml").write_text(yaml.safe_dump(metadata))
    handed = {one.key: one for one in found(tmp_path / "export")}
    assert "no such folder" in handed.pop("mallory").problem
    assert sorted(handed) == sorted(names.bounded(name, layouts.MAX_FIELD) for name in kept)
    for name in kept:
        one = handed[names.bounded(name, layouts.MAX_FIELD)]
        assert one.read().sources["cs336_kernels/weighted_sum.py"] == f"name = {name!a}"
        assert [person.name for person in one.people] == [one.key]
    assert len({one.name.casefold() for one in handed.values()}) == len(kept)


def test_every_name_is_a_row_of_canvas_s_download(tmp_path):
    """Two of one name are told apart by their numbers"""
    kept = [
        name for name in ("ada", "Ada", "müller", "muller", "李雷", "o_brien", "zoë", "late", "1", "") for _ in "ab"
    ]
    for i, name in enumerate(kept):
        start = f"{name}_" if name else "anon_"
        (tmp_path / f"{start}{100 + i}_{i}_weighted_sum.py").write_text(f"n = {i}\n")
    handed = found(tmp_path)
    assert len(handed) == len({one.name.casefold() for one in handed}) == len(kept)
    for one in handed:
        i = int(one.people[0].canvas.removeprefix("anon_")) - 100
        assert one.read().sources["cs336_kernels/weighted_sum.py"] == f"n = {i}\n"
        assert one.people[0].name == kept[i]


@pytest.mark.parametrize("path", ["../cs336_kernels/a.py", "a/../../cs336_kernels/a.py", "a/b/c/cs336_kernels/a.py"])
def test_a_zip_with_a_path_that_leads_out_or_too_deep_is_a_row_with_a_reason(tmp_path, path):
    zipped(tmp_path / "ada.zip", {path: KERNEL})
    (one,) = found(tmp_path)
    with pytest.raises(UnusableSubmission, match="holds no cs336_kernels"):
        one.read()


def test_a_zip_that_somebody_has_unpacked_is_a_second_attempt(tmp_path):
    """In the same order every time, and it is told"""
    package(tmp_path / "Jane Doe", "old = 1\n")
    zipped(tmp_path / "Jane Doe.zip", {"cs336_kernels/weighted_sum.py": "new = 1\n"})
    package(tmp_path / "bo")
    first, second, bo = sorted(found(tmp_path), key=lambda one: (one.key, one.name))
    assert [one.name for one in (first, second, bo)] == ["Jane Doe", "Jane Doe.2", "bo"]
    assert [one.source for one in (first, second)] == ["Jane Doe", "Jane Doe.zip"]
    (doubt,) = doubts(tmp_path, found(tmp_path))
    assert "'Jane Doe' and 'Jane Doe.zip': taken for 2 submissions of one student" in doubt


@pytest.mark.parametrize(
    ("one", "other"),
    [("m.müller", "m.muller"), ("Zoë", unicodedata.normalize("NFD", "Zoë")), ("ada", "Ada"), ("jane doe", "jane_doe")],
)
def test_names_that_a_person_takes_for_one_are_told(tmp_path, one, other):
    zipped(tmp_path / f"{one}.zip", {"cs336_kernels/a.py": ""})
    zipped(tmp_path / f"{other}.zip", {"cs336_kernels/a.py": ""})
    assert len({handed.name.casefold() for handed in found(tmp_path)}) == 2
    (doubt,) = doubts(tmp_path, found(tmp_path))
    assert "taken for 2 students" in doubt
    assert f"'{one}.zip'" in doubt
    assert f"'{other}.zip'" in doubt


def test_one_number_under_two_addresses_is_told(tmp_path):
    text = METADATA.replace("ada@uni.example", "ada@home.example", 1)
    (tmp_path / "submission_metadata.yml").write_text(text)
    (doubt,) = doubts(tmp_path, found(tmp_path))
    assert doubt == "ada@home.example and ada@uni.example: taken for 2 students, but both have the number 77"


def test_what_is_nobody_s_is_told_and_an_archive_is_a_row(tmp_path):
    package(tmp_path / "ada")
    for name in ("bo.tar.gz", "cy.RAR", "roster.csv", "._ada.zip", ".DS_Store"):
        (tmp_path / name).write_bytes(b"?")
    zipped(tmp_path / "..di.zip", {"cs336_kernels/a.py": ""})
    handed = found(tmp_path)
    assert sorted(one.source for one in handed) == ["..di.zip", "ada", "bo.tar.gz", "cy.RAR"]
    assert [bool(one.problem) for one in sorted(handed, key=lambda one: one.source)] == [False, False, True, True]
    assert doubts(tmp_path, handed) == ["'roster.csv': nobody's submission; not read"]


def test_what_tag_and_before_do_not_apply_to_is_told(tmp_path):
    package(tmp_path / "ada")
    git(tmp_path / "ada", "init", "-q")
    git(tmp_path / "ada", "add", ".")
    git(tmp_path / "ada", "commit", "-qm", "one")
    package(tmp_path / "bo")
    assert not doubts(tmp_path, found(tmp_path))
    (doubt,) = doubts(tmp_path, found(tmp_path, before=DUE), before=DUE)
    assert doubt.startswith("'bo': no git clone; --before does not apply")


def test_a_submission_of_several_attachments_is_one(tmp_path):
    """As Canvas has it: each file has a number of its own; a late attempt does not make one in time late"""
    for name in ("weighted_sum", "rmsnorm", "flash_attention"):
        number = 100 + len(name)
        (tmp_path / f"doejane_12_{number}_{name}.py").write_text("x = 1\n")
    (tmp_path / "doejane_LATE_12_345_rmsnorm-1.py").write_text("x = 2\n")
    (tmp_path / "doejane_12_99_notes.txt").write_text("")
    (tmp_path / "O_Brien_13_50_work.zip").write_bytes(b"")
    (tmp_path / "poemax_14_text.html").write_text("<p>")
    (tmp_path / "anon_x7Kq_51_work.zip").write_bytes(b"")
    (tmp_path / "LATE_anon_y7Kq_51_work.zip").write_bytes(b"")
    handed = members(tmp_path)
    first, second = handed["doejane-12", 1], handed["doejane-12", 2]
    assert len(first.read().files) == 4
    assert (first.is_late, second.is_late) == (False, True)
    assert second.read().sources["cs336_kernels/rmsnorm.py"] == "x = 2\n"
    assert {key for key, _ in handed} == {"doejane-12", "O_Brien-13", "poemax-14", "anon_x7Kq", "anon_y7Kq"}
    assert handed["anon_y7Kq", 1].is_late
    assert "neither a zip nor a Python file" in handed["poemax-14", 1].problem


FORMS = {
    "package": "cs336_kernels/rmsnorm.py",
    "one enclosing folder": "proj-main/cs336_kernels/rmsnorm.py",
    "two enclosing folders": "work/proj-main/cs336_kernels/rmsnorm.py",
    "a folder of its own name": "proj-main/cs336_kernels/cs336_kernels/rmsnorm.py",
    "the file alone": "rmsnorm.py",
}


@pytest.mark.parametrize("path", FORMS.values(), ids=FORMS.keys())
@pytest.mark.parametrize("form", ["folder", "zip", "clone"])
def test_what_the_autograder_takes_is_taken_of_a_class(tmp_path, path, form):
    if form == "zip":
        zipped(tmp_path / "ada.zip", {path: KERNEL, "notes/other.txt": ""})
    else:
        file = tmp_path / "ada" / path
        file.parent.mkdir(parents=True)
        file.write_text(KERNEL)
        (tmp_path / "ada" / "notes").mkdir()
    if form == "clone":
        git(tmp_path / "ada", "init", "-q")
        git(tmp_path / "ada", "add", ".")
        git(tmp_path / "ada", "commit", "-qm", "one")
    (one,) = found(tmp_path, before=DUE if form == "clone" else None)
    assert one.read().sources["cs336_kernels/rmsnorm.py"] == KERNEL


def test_of_two_packages_none_is_taken(tmp_path):
    for name in ("old", "new"):
        package(tmp_path / "ada" / name)
    with pytest.raises(UnusableSubmission, match="more than one"):
        found(tmp_path)[0].read()


def test_300_submissions_are_300_rows(tmp_path):
    """Of every layout and name, without a false row: each holds its own source"""
    kept = [name for name in NAMES if len(name.encode("utf-8", "surrogateescape")) < 200 and name.strip(".")]
    wanted = {}
    for i, (prefix, name) in enumerate(itertools.product("abcdefg", kept)):
        key, text = f"{prefix}{name}", f"n = {i}\n"
        if i % 3:
            path = ("", "proj/", "a/proj/")[i % 9 // 3] + "cs336_kernels/weighted_sum.py"
            zipped(tmp_path / f"{key}.zip", {path: text})
        else:
            package(tmp_path / key, text)
        wanted[key] = text
    handed = found(tmp_path)
    assert len(wanted) >= 300
    assert {one.key: one.read().sources["cs336_kernels/weighted_sum.py"] for one in handed} == wanted
    assert len({one.name.casefold() for one in handed}) == len(wanted)
