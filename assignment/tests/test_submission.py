"""Finding and packing submissions."""

import io
import zipfile
from pathlib import Path

import pytest

from assignment.submission import MAX_BYTES, REFERENCE, Submission, UnusableSubmission, pack, read, uploaded
from tests import operators

ROOT = Path(__file__).parents[2]
FILES = {"cs336_kernels/__init__.py": b"", "cs336_kernels/rmsnorm.py": b"x = 1\n", "cs336_kernels/more/util.py": b""}


@pytest.fixture
def folder(tmp_path):
    Submission(FILES).stage(tmp_path)
    for name in ("conftest.py", "cs336_kernels/notes.txt", "pyproject.toml"):
        (tmp_path / name).write_text("not ours")
    return tmp_path


def zipped(tmp_path, files):
    path = tmp_path / "handed-in.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def test_only_the_packages_python_files_are_taken(folder):
    assert read(folder).files == FILES


def test_the_package_itself_may_be_named(folder):
    assert read(folder / "cs336_kernels").files == FILES


def test_a_zip_with_and_without_an_enclosing_folder(tmp_path):
    inside = {f"my-work/{name}": content for name, content in FILES.items()}
    junk = {"__MACOSX/cs336_kernels/._rmsnorm.txt": b"", "tests/test_rmsnorm.py": b"assert True"}
    assert read(zipped(tmp_path, FILES | junk)).files == FILES
    assert read(zipped(tmp_path, inside)).files == FILES


@pytest.mark.parametrize("around", [{}, {"grade.py": b"", "__init__.py": b""}, {"tests/test_rmsnorm.py": b""}], ids=str)
@pytest.mark.parametrize("before", ["", "alice/"])
def test_a_package_in_a_folder_of_its_own_name(tmp_path, before, around):
    """As unpacking a zip into a folder of its name makes one"""
    outer = f"{before}cs336_kernels"
    given = {f"{outer}/{name}": content for name, content in (FILES | around).items()}
    assert read(zipped(tmp_path, given)).files == FILES
    Submission(given).stage(tmp_path / "folder")
    assert read(tmp_path / "folder").files == uploaded(tmp_path / "folder" / outer).files == FILES


def test_a_copy_inside_a_copy_is_not_the_package(tmp_path):
    given = FILES | {f"cs336_kernels/{name}": b"old = 1" for name in FILES}
    Submission(given).stage(tmp_path / "folder")
    assert read(tmp_path / "folder").files == read(zipped(tmp_path, given)).files == given


def test_symbolic_links_are_left_out(folder):
    (folder / "cs336_kernels/secret.py").symlink_to(__file__)
    (folder / "cs336_kernels/linked").symlink_to(folder / "cs336_kernels/more")
    assert read(folder).files == FILES


@pytest.mark.parametrize(
    "target", sorted(ROOT.glob("assignment/bank/operators/*/solution.py")), ids=lambda path: path.parts[-3]
)
def test_nothing_of_the_staff_s_is_reached_by_a_link(folder, target):
    """Neither by one to a solution, nor by one to the reference's own link, its package or the folder that holds it"""
    links = {path.resolve(): path for path in REFERENCE.rglob("*.py") if path.is_symlink()}
    (folder / "cs336_kernels/to_the_solution.py").symlink_to(target)
    (folder / "cs336_kernels/to_the_link.py").symlink_to(links[target])
    (folder / "cs336_kernels/reference").symlink_to(REFERENCE / "cs336_kernels")
    (folder / "cs336_kernels/staff").symlink_to(target.parent)
    assert read(folder).files == FILES
    assert read(folder / "cs336_kernels").files == FILES


@pytest.mark.parametrize("inside", ["", "cs336_kernels"])
def test_a_link_to_the_reference_is_not_the_reference(tmp_path, inside):
    (tmp_path / "mine").symlink_to(REFERENCE / inside)
    solutions = {path.read_bytes() for path in ROOT.glob("assignment/bank/operators/*/solution.py")}
    assert len(solutions) >= 4
    assert not solutions & set(read(tmp_path / "mine").files.values())


def test_a_path_through_a_link_is_not_the_reference(tmp_path):
    """Whichever part of it is the link"""
    (tmp_path / "alice").mkdir()
    (tmp_path / "alice" / "cs336_kernels").symlink_to(REFERENCE / "cs336_kernels")
    (tmp_path / "a").symlink_to(REFERENCE.parent)
    (tmp_path / "reference").symlink_to(REFERENCE)
    solutions = {path.read_bytes() for path in ROOT.glob("assignment/bank/operators/*/solution.py")}
    for path in ("alice/cs336_kernels", "a/reference", "a/reference/cs336_kernels", "reference"):
        assert not solutions & set(read(tmp_path / path).files.values()), path


@pytest.mark.parametrize("path", [REFERENCE, REFERENCE / "cs336_kernels", REFERENCE / ".." / "reference"])
def test_the_reference_holds_every_solution(path):
    files = read(path).files
    for operator in operators.operators():
        solution = ROOT / "assignment/bank/operators" / operator.name / "solution.py"
        assert files[operator.file] == solution.read_bytes()


def test_a_path_out_of_the_archive_is_left_out(tmp_path):
    assert read(zipped(tmp_path, FILES | {"cs336_kernels/../../evil.py": b""})).files == FILES


def test_packing_is_deterministic_and_reads_back(tmp_path, folder):
    packed = pack(read(folder))
    assert packed == pack(read(folder))
    (tmp_path / "submission.zip").write_bytes(packed)
    assert read(tmp_path / "submission.zip").sha256 == read(folder).sha256


def test_the_hash_depends_on_names_and_contents():
    assert Submission({"a": b"bc"}).sha256 != Submission({"ab": b"c"}).sha256


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "no such folder", id="nothing there"),
        pytest.param(b"PK not a zip", "cannot be read", id="a broken zip"),
        pytest.param(b"", "cannot be read", id="an empty file"),
    ],
)
def test_what_is_no_submission(tmp_path, content, message):
    path = tmp_path / "submission.zip"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UnusableSubmission, match=message):
        read(path)


def test_an_empty_folder(tmp_path):
    with pytest.raises(UnusableSubmission, match="holds no cs336_kernels"):
        read(tmp_path)


@pytest.mark.parametrize("how", ["folder", "zip"])
def test_more_python_than_anyone_writes(tmp_path, how):
    big = {"cs336_kernels/big.py": b"#" * (MAX_BYTES + 1)}
    path = zipped(tmp_path, big) if how == "zip" else tmp_path
    Submission(big).stage(tmp_path)
    with pytest.raises(UnusableSubmission, match="1 MiB"):
        read(path)


def test_a_zip_bomb(tmp_path):
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("cs336_kernels/bomb.py", b"\0" * (64 << 20))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(UnusableSubmission, match="1 MiB"):
        read(path)


def test_an_encrypted_zip(tmp_path):
    buffer = io.BytesIO(pack(Submission(FILES)))
    data = bytearray(buffer.getvalue())
    data[6] |= 1  # the flag of encryption, in the first local header and in the directory
    data[data.find(b"PK\x01\x02") + 8] |= 1
    path = tmp_path / "locked.zip"
    path.write_bytes(data)
    with pytest.raises(UnusableSubmission, match="cannot be read"):
        read(path)


def test_one_name_twice(tmp_path):
    path = tmp_path / "twice.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("cs336_kernels/rmsnorm.py", b"")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("cs336_kernels/rmsnorm.py", b"")
    with pytest.raises(UnusableSubmission, match="twice"):
        read(path)
