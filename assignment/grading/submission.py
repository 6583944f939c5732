"""A submission: found in a folder or a zip, checked, and copied to a stage of its own; and packed to be handed in."""

import hashlib
import io
import stat
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

PACKAGE = "cs336_kernels"
MAX_BYTES = 1 << 20
MAX_FILES = 100
MAX_ENTRIES = 10_000


class UnusableSubmission(Exception):
    """There is nothing to grade; the message says what was expected, what came and what to do."""


@dataclass(frozen=True)
class Submission:
    """The files of a submission by their path, such as cs336_kernels/rmsnorm.py."""

    files: dict[str, bytes]

    @property
    def sha256(self) -> str:
        digest = hashlib.sha256()
        for name, content in sorted(self.files.items()):
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()

    def stage(self, folder: Path) -> None:
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def read(path: Path) -> Submission:
    """The submission at path, a folder or a zip that holds cs336_kernels/; raises UnusableSubmission."""
    if not path.exists():
        raise UnusableSubmission(f"{path}: no such folder or zip")
    try:
        files = _from_folder(path) if path.is_dir() else _from_zip(path)
    except OSError as error:
        raise UnusableSubmission(f"{path}: cannot be read: {error.strerror or error}") from error
    if not files:
        raise UnusableSubmission(f"{path}: holds no {PACKAGE}/*.py; expected a folder or a zip with {PACKAGE}/ in it")
    if len(files) > MAX_FILES or sum(map(len, files.values())) > MAX_BYTES:
        raise UnusableSubmission(f"{path}: {PACKAGE}/ holds over {MAX_FILES} files or 1 MiB of Python; remove the rest")
    return Submission(files)


def _from_folder(path: Path) -> dict[str, bytes]:
    if path.resolve().name == PACKAGE and not (path / PACKAGE).is_dir():
        path = path.resolve().parent
    root = path / PACKAGE
    if root.is_symlink():
        raise UnusableSubmission(f"{root}: a symbolic link; expected a folder")
    files: dict[str, bytes] = {}
    total = 0
    for file in sorted(root.rglob("*.py")):
        if file.is_symlink() or not file.is_file() or any(parent.is_symlink() for parent in _inside(file, root)):
            continue
        total += file.stat().st_size
        if total > MAX_BYTES or len(files) > MAX_FILES:
            raise UnusableSubmission(f"{path}: {PACKAGE}/ holds over {MAX_FILES} files or 1 MiB of Python")
        files[file.relative_to(path).as_posix()] = file.read_bytes()
    return files


def _inside(file: Path, root: Path) -> list[Path]:
    return [parent for parent in file.parents if parent.is_relative_to(root) and parent != root]


def _from_zip(path: Path) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(path) as archive:
            return _entries(path, archive)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise UnusableSubmission(f"{path}: expected a folder or a zip, and this zip cannot be read: {error}") from error


def _entries(path: Path, archive: zipfile.ZipFile) -> dict[str, bytes]:
    """cs336_kernels/**/*.py of the archive, below at most one enclosing folder."""
    if len(archive.infolist()) > MAX_ENTRIES:
        raise UnusableSubmission(f"{path}: over {MAX_ENTRIES} entries; pack it with `uv run grade.py --pack`")
    files: dict[str, bytes] = {}
    total = 0
    for info in archive.infolist():
        name = _name_in_package(info)
        if name is None:
            continue
        if name in files:
            raise UnusableSubmission(f"{path}: holds {name} twice")
        with archive.open(info) as stream:
            content = stream.read(MAX_BYTES + 1)
        total += len(content)
        if total > MAX_BYTES:
            raise UnusableSubmission(f"{path}: {PACKAGE}/ holds over 1 MiB of Python; remove the rest")
        files[name] = content
    return files


def _name_in_package(info: zipfile.ZipInfo) -> str | None:
    parts = PurePosixPath(info.filename).parts
    if PACKAGE in parts[:2]:
        parts = parts[parts.index(PACKAGE) :]
    is_link = stat.S_ISLNK(info.external_attr >> 16)
    if parts[:1] != (PACKAGE,) or ".." in parts or not info.filename.endswith(".py") or is_link:
        return None
    return "/".join(parts)


def pack(submission: Submission) -> bytes:
    """A zip to hand in; the same files give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(submission.files.items()):
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()
