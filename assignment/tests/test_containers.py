"""What is handed in may be anything: it is read and staged, or refused in a sentence, and nothing is left behind."""

import io
import os
import random
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from assignment.judge.pool import Pool
from assignment.sandbox import stage, worker_client
from assignment.submission import Submission, UnusableSubmission, read
from assignment.system import here

ROOT = Path(__file__).resolve().parents[2]
SEED = 18
MUTATIONS = 4_000
LISTINGS = 500  # of names
FILES = {
    "cs336_kernels/__init__.py": b"from cs336_kernels.rmsnorm import *\n" * 9,
    "cs336_kernels/rmsnorm.py": b"def rmsnorm(x, weight, eps=1e-5):\n    return x\n" * 9,
    "cs336_kernels/more/util.py": b"x = 1\n",
}
TWO_KINDS = {"cs336_kernels/a.py": b"", "cs336_kernels/a.py/b.py": b""}
EXTREMES = (0, 1, 6, 8, 9, 12, 14, 93, 99, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF)
PIECES = [
    "cs336_kernels", "cs336_kernels", "cs336_kernels/", "a", "a.py", "b.py", "..", ".", "", "a" * 300 + ".py",
    "x\0.py", "x\n.py", "\ud800.py", "\udcff.py", "é.py", "a/" * 600, "__MACOSX", "._a.py", "c:\\d.py",
]  # fmt: skip


def zipped(files, method=zipfile.ZIP_DEFLATED, above=""):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(above + name, content)
    return buffer.getvalue()


def tarred(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


ARCHIVES = [
    *(zipped(FILES, method) for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)),
    zipped(FILES, zipfile.ZIP_LZMA), zipped(FILES, above="my-work/"), tarred(FILES),
]  # fmt: skip


def mutated(chance, data):
    """The bytes with a few of them changed, most often in a header, where they mean the most."""
    data = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        headers = [i for i in range(len(data) - 4) if data[i : i + 2] == b"PK"] or [0]
        at = chance.choice(headers) + chance.randrange(48) if chance.random() < 0.7 else chance.randrange(len(data) + 1)
        kind = chance.randrange(6)
        if kind == 0:
            data[at : at + 1] = chance.randbytes(1)
        elif kind == 1:
            data[at : at + 2] = struct.pack("<H", chance.choice(EXTREMES) & 0xFFFF)
        elif kind == 2:
            data[at : at + 4] = struct.pack("<I", chance.choice(EXTREMES))
        elif kind == 3:
            del data[at : at + chance.randrange(1, 9)]
        elif kind == 4:
            data[at:at] = chance.randbytes(chance.randrange(1, 9))
        else:
            del data[chance.randrange(len(data) + 1) :]
    return bytes(data)


def used(path, folder):
    """Whether what is at path can be read and staged; it is refused in a sentence otherwise."""
    said = ""
    try:
        read(path).stage(folder)
    except UnusableSubmission as error:
        said = str(error)
    stage.remove(folder)
    assert not said or is_a_sentence(said), said
    return not said


def is_a_sentence(text):
    return text and "\n" not in text and "Traceback" not in text and "expected" in text


@pytest.mark.slow
def test_any_mutated_archive_is_used_or_refused(tmp_path):
    chance = random.Random(SEED)
    path, outcomes = tmp_path / "handed-in.zip", {True: 0, False: 0}
    for _ in range(MUTATIONS):
        path.write_bytes(mutated(chance, chance.choice(ARCHIVES)))
        outcomes[used(path, tmp_path / "staged")] += 1
    assert min(outcomes.values()) > MUTATIONS / 20, outcomes
    assert [*tmp_path.iterdir()] == [path]


class AnyName(zipfile.ZipInfo):
    """An entry of that very name, which ZipInfo would shorten and encode."""

    def __init__(self, name):
        super().__init__("x")
        self.filename = name

    def _encodeFilenameFlags(self):  # noqa: N802
        return self.filename.encode(errors="surrogatepass"), self.flag_bits | 0x800


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_any_names_are_used_or_refused(tmp_path):
    chance = random.Random(SEED)
    path, outcomes = tmp_path / "handed-in.zip", {True: 0, False: 0}
    for _ in range(LISTINGS):
        with zipfile.ZipFile(path, "w") as archive:
            for _ in range(chance.randint(1, 4)):
                name = "/".join(chance.choices(PIECES, k=chance.randint(0, 2)))
                archive.writestr(AnyName(chance.choice(["cs336_kernels/", ""]) + name), b"")
        outcomes[used(path, tmp_path / "staged")] += 1
    assert min(outcomes.values()) > LISTINGS / 20, outcomes


def refusal(path):
    with pytest.raises(UnusableSubmission) as refused:
        read(path)
    assert is_a_sentence(str(refused.value)), refused.value
    return str(refused.value)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        pytest.param(
            {"cs336_kernels/a.py": b"", "cs336_kernels/a.py/b.py": b""}, "a file and a folder", id="two kinds"
        ),
        pytest.param({f"cs336_kernels/{'a' * 300}.py": b""}, "too long", id="a name of 300 characters"),
        pytest.param({f"cs336_kernels/{'é' * 127}.py": b""}, "too long", id="a name of 257 bytes"),
        pytest.param({f"cs336_kernels/{'a/' * 300}b.py": b""}, "too long", id="too deep"),
        pytest.param({"cs336_kernels/a.py": b"x = '\xe9'"}, "not UTF-8", id="no text"),
        pytest.param({"cs336_kernels/a.py": b"x = 1\0"}, "not UTF-8", id="a zero byte"),
        pytest.param({f"{a}/cs336_kernels/a.py": b"" for a in "ab"}, "more than one", id="two enclosing folders"),
    ],
)
def test_names_and_contents_that_cannot_be_staged(tmp_path, files, words):
    (tmp_path / "handed-in.zip").write_bytes(zipped(files))
    assert words in refusal(tmp_path / "handed-in.zip")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_compression_that_would_expand_without_bound(tmp_path, method):
    """Their decompressors take a mebibyte at once, and make gigabytes of it"""
    (tmp_path / "handed-in.zip").write_bytes(zipped(FILES, method))
    assert "compressed" in refusal(tmp_path / "handed-in.zip")


def test_what_a_mac_adds_is_left_out(tmp_path):
    """AppleDouble files have the names of Python files, and are none"""
    junk = {"__MACOSX/cs336_kernels/._rmsnorm.py": b"\0\x05\x16\x07", "cs336_kernels/._rmsnorm.py": b"\0\x05\x16\x07"}
    (tmp_path / "handed-in.zip").write_bytes(zipped(FILES | junk))
    assert read(tmp_path / "handed-in.zip").files == FILES
    Submission(FILES | junk).stage(tmp_path / "work")
    assert read(tmp_path / "work").files == FILES


def test_the_package_at_the_top_goes_before_one_in_a_folder(tmp_path):
    (tmp_path / "handed-in.zip").write_bytes(zipped(FILES | {"old/cs336_kernels/rmsnorm.py": b""}))
    assert read(tmp_path / "handed-in.zip").files == FILES


@pytest.mark.parametrize("name", [b"\xff.py", b"a\xed\xa0\x80.py"])
def test_a_folder_with_a_name_that_is_not_utf_8(tmp_path, name):
    Submission(FILES).stage(tmp_path)
    Path(os.fsdecode(os.fsencode(tmp_path / "cs336_kernels") + b"/" + name)).write_bytes(b"")
    assert "not UTF-8" in refusal(tmp_path)


def test_only_regular_files_of_a_folder_are_taken(tmp_path):
    """A pipe would be read for ever"""
    Submission(FILES).stage(tmp_path)
    os.mkfifo(tmp_path / "cs336_kernels" / "pipe.py")
    (tmp_path / "cs336_kernels" / "folder.py").mkdir()
    assert read(tmp_path).files == FILES


@pytest.fixture
def deep(tmp_path):
    """A folder with others inside, deeper than a path may be long."""
    Submission(FILES).stage(tmp_path)
    inside = os.open(tmp_path / "cs336_kernels", os.O_RDONLY)
    for _ in range(1_200):
        os.mkdir("dddd", dir_fd=inside)
        inside, before = os.open("dddd", os.O_RDONLY, dir_fd=inside), inside
        os.close(before)
    os.close(inside)
    yield tmp_path
    stage.remove(tmp_path / "cs336_kernels")  # pytest could not


def test_a_folder_deeper_than_any_path(deep):
    assert "cannot be read" in refusal(deep)


@pytest.mark.parametrize("name", ["a" * 300, "/dev/null", "pipe"])
def test_a_path_that_is_neither_a_folder_nor_a_zip(tmp_path, name):
    os.mkfifo(tmp_path / "pipe")
    refusal(tmp_path / name)


def handed_in(tmp_path, files):
    """What grade.py says of an archive, which leaves nothing in the temporary folder: exit status and errors."""
    (tmp_path / "handed-in.zip").write_bytes(files if isinstance(files, bytes) else zipped(files))
    (tmp_path / "temporary").mkdir()
    command = [sys.executable, ROOT / "grade.py", tmp_path / "handed-in.zip", "--fail-under", "1"]
    env = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert not [*(tmp_path / "temporary").iterdir()]
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "files",
    [
        pytest.param(TWO_KINDS, id="a file and a folder of one name"),
        pytest.param(zipped(FILES).replace(b"\x08\x00", b"\x0e\x00"), id="said to be LZMA"),
        pytest.param(tarred(FILES), id="a tar"),
    ],
)
def test_the_program_refuses_in_a_sentence(tmp_path, files):
    status, error = handed_in(tmp_path, files)
    assert (status, error.count("\n")) == (2, 1), error
    assert error.startswith("grade.py: ")
    assert is_a_sentence(error.strip())


def test_a_pack_that_cannot_be_written(tmp_path):
    Submission(FILES).stage(tmp_path)
    (tmp_path / "submission.zip").mkdir()
    command = [sys.executable, str(ROOT / "grade.py"), "--pack"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "grade.py: submission.zip: cannot be written here: Is a directory\n")


@pytest.mark.parametrize("make", [stage.Stage, lambda submission: Pool(submission, "cpu", 1, 1)])
def test_what_cannot_be_staged_leaves_nothing(tmp_path, monkeypatch, make):
    monkeypatch.setattr(stage.tempfile, "tempdir", str(tmp_path))
    with pytest.raises(UnusableSubmission) as refused:
        make(Submission(TWO_KINDS))
    assert is_a_sentence(str(refused.value))
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "that_start",
    [0, pytest.param(1, marks=pytest.mark.slow), 3],
    ids=["none", "a recorder alone", "a pair and a recorder"],
)
def test_a_pool_without_workers_leaves_nothing(tmp_path, monkeypatch, that_start):
    started: list[worker_client.Worker] = []

    def start(*arguments):
        if len(started) == that_start:
            raise OSError("no more processes")
        started.append(worker_client.Worker(*arguments))
        return started[-1]

    monkeypatch.setattr(stage.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("assignment.judge.pair.Worker", start)
    with pytest.raises(OSError, match="no more processes"):
        Pool(Submission(FILES), "cpu", 1, 2)
    assert not [*tmp_path.iterdir()]
    assert all(here.has_ended(worker._pid.value, 0) for worker in started)
