"""A submission: found in a folder or a zip, checked, copied to a stage, and packed to hand in."""

import hashlib
import io
import os
import stat
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from assignment import text

PACKAGE = "cs336_kernels"
REFERENCE = Path(__file__).resolve().parent / "reference"  # the staff's: links to the operators' solutions
MAX_BYTES = 1 << 20
MAX_FILES = 100
MAX_ENTRIES = 10_000
MAX_NAME, MAX_PATH = 255, 500  # bytes; a file system takes no longer names
MAX_REASON = 120  # characters
BOUNDED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # what expands no further than it is read
WANTED = f"expected a folder, or a zip as `uv run grade.py --pack` makes it, with {PACKAGE}/ in it"


class UnusableSubmission(Exception):
    """There is nothing to grade; the message says what was expected, what came, what to do."""


@dataclass(frozen=True)
class Submission:
    """The files of a submission by their path, such as cs336_kernels/rmsnorm.py, as `canonical` has them."""

    files: dict[str, bytes]

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", {name: canonical(content) for name, content in self.files.items()})

    @property
    def sha256(self) -> str:
        digest = hashlib.sha256()
        for name, content in sorted(self.files.items()):
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()

    @property
    def sources(self) -> dict[str, str]:
        """Return the files as text; those that are not UTF-8 are empty."""
        return {name: content.decode() if _is_utf_8(content) else "" for name, content in self.files.items()}

    def stage(self, folder: Path) -> None:
        """Write the files below a folder; raises UnusableSubmission."""
        try:
            for name, content in self.files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        except (OSError, ValueError) as error:
            why = f"cannot be copied to the temporary folder: {_reason(error)}"
            raise refusal(
                name, why, "expected to write files there: make room, or name another one in TMPDIR"
            ) from error


def canonical(content: bytes) -> bytes:
    """Return a file as every process hashes, parses and shows it: Python's text, in UTF-8.

    Line ends are those that Python's universal newlines make of them, a byte-order mark is gone. What is not UTF-8
    stays as it is.
    """
    if not _is_utf_8(content):
        return content
    text = content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    return text.encode()


def refusal(path: Path | str, came: str, wanted: str = WANTED) -> UnusableSubmission:
    shown = str(path) if len(str(path)) <= MAX_PATH else f"{str(path)[:MAX_NAME]}…"
    return UnusableSubmission(text.line(f"{shown}: {came}; {wanted}"))


def _reason(error: Exception) -> str:
    said = str(getattr(error, "strerror", None) or error)
    return text.clean(said, max_lines=1, max_line=MAX_REASON) or type(error).__name__


def read(path: Path) -> Submission:
    """Return the submission at path, a folder or a zip that holds cs336_kernels/.

    Raises UnusableSubmission.
    """
    try:
        if not path.exists():
            raise refusal(path, "no such folder or zip")
        files = _from_folder(path) if path.is_dir() else _from_zip(path)
    except OSError as error:
        raise refusal(error.filename or path, f"cannot be read: {_reason(error)}") from error
    return checked(path, files)


def checked(path: Path, files: dict[str, bytes]) -> Submission:
    """Return files that came from a path as a submission; raises UnusableSubmission where they cannot be graded."""
    if not files:
        raise refusal(path, f"holds no {PACKAGE}/*.py")
    if len(files) > MAX_FILES or sum(map(len, files.values())) > MAX_BYTES:
        raise _too_large(path)
    for name in files:
        if wrong := _what_is_wrong(name, files):
            raise refusal(path, *wrong)
    return Submission(files)


def _too_large(path: Path) -> UnusableSubmission:
    wanted = f"expected no more than {MAX_FILES} files and 1 MiB in all: remove the rest"
    return refusal(path, f"{PACKAGE}/ holds over {MAX_FILES} files or 1 MiB of Python", wanted)


def _what_is_wrong(name: str, files: dict[str, bytes]) -> tuple[str, str] | None:
    """Return what keeps a file from being staged, and what was expected; None if nothing does."""
    encoded = os.fsencode(name) if _is_encodable(name) else b""
    if not encoded or "\0" in name:
        return f"the name {name!r} is not UTF-8", "expected letters and digits: rename it"
    if len(encoded) > MAX_PATH or any(len(part) > MAX_NAME for part in encoded.split(b"/")):
        shown = name if len(name) < MAX_NAME else f"{name[:40]}…"
        return (
            f"the name {shown} is too long",
            f"expected up to {MAX_NAME} bytes, {MAX_PATH} with its folders: rename it",
        )
    if any(str(parent) in files for parent in PurePosixPath(name).parents):
        return (
            f"{name} is in a folder that has a file's name, a file and a folder at once",
            "expected one: rename one",
        )
    if not _is_text(files[name]):
        return f"{name} is not UTF-8 text", "expected Python source: save it as UTF-8, or remove it"
    return None


def _is_encodable(name: str) -> bool:
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False


def _is_text(content: bytes) -> bool:
    return _is_utf_8(content) and b"\0" not in content


def _is_utf_8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_source(name: str) -> bool:
    """Return whether a file is to be staged; a Mac's ._ files hold file-system metadata."""
    return name.endswith(".py") and not name.startswith("._")


def _from_folder(path: Path) -> dict[str, bytes]:
    is_ours = _is_reference(path)
    if path.resolve().name == PACKAGE and not (path / PACKAGE).is_dir():
        path = path.resolve().parent
    root = path / PACKAGE
    if root.is_symlink():
        raise refusal(root, "a symbolic link", "expected a folder: copy the files to it")
    files: dict[str, bytes] = {}
    total = 0
    for file in sorted(_sources(root, through_links=is_ours)):
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        total += len(content)
        if total > MAX_BYTES or len(files) > MAX_FILES:
            raise _too_large(path)
        files[file.relative_to(path).as_posix()] = content
    return files


def _is_reference(path: Path) -> bool:
    """Return whether a path names the reference by its own name: a submission may have a link to it."""
    path = Path(os.path.abspath(path))  # noqa: PTH100  resolve() would follow links
    named = path.parent if path.name == PACKAGE else path
    last = (path, named, named.parent)
    return named.resolve() == REFERENCE and named.name == REFERENCE.name and not any(part.is_symlink() for part in last)


def _sources(root: Path, through_links: bool) -> Iterator[Path]:
    """Yield the regular files of a folder, however deep, and where asked for those that symbolic links lead to."""
    folders = [root] if root.is_dir() else []
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                elif entry.is_file(follow_symlinks=through_links) and _is_source(entry.name):
                    yield Path(entry.path)


def _from_zip(path: Path) -> dict[str, bytes]:
    if not path.is_file():
        raise refusal(path, "neither a folder nor a file")
    try:
        with zipfile.ZipFile(path) as archive:
            return _entries(path, archive)
    except UnusableSubmission:
        raise
    except Exception as error:  # a broken zip makes zipfile raise whatever there is: zlib.error, struct.error, …
        raise refusal(path, f"this zip cannot be read: {_reason(error)}") from error


def _entries(path: Path, archive: zipfile.ZipFile) -> dict[str, bytes]:
    """Return cs336_kernels/**/*.py of the archive, at its top or in its one enclosing folder."""
    if len(archive.infolist()) > MAX_ENTRIES:
        raise refusal(path, f"over {MAX_ENTRIES} entries")
    packages: dict[str, list[tuple[str, zipfile.ZipInfo]]] = {}
    for info in archive.infolist():
        if place := _place(info):
            packages.setdefault(place[0], []).append((place[1], info))
    if len(packages) > 1 and "" not in packages:
        raise refusal(path, f"holds more than one {PACKAGE}/, in {' and '.join(sorted(packages)[:2])}")
    chosen = packages.get("") or next(iter(packages.values()), [])
    return _contents(path, archive, chosen)


def _contents(path: Path, archive: zipfile.ZipFile, chosen: list[tuple[str, zipfile.ZipInfo]]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    total = 0
    for name, info in chosen:
        if name in files:
            raise refusal(path, f"holds {name} twice")
        if info.compress_type not in BOUNDED:
            raise refusal(path, f"this zip cannot be read: {name} is compressed in an unusual way")
        with archive.open(info) as stream:
            content = stream.read(MAX_BYTES + 1)
        total += len(content)
        if total > MAX_BYTES:
            raise _too_large(path)
        files[name] = content
    return files


def _place(info: zipfile.ZipInfo) -> tuple[str, str] | None:
    """Return the folder that encloses the package, "" at the top, and the file's path in it.

    None if the file is not to be staged.
    """
    parts = PurePosixPath(info.filename).parts
    if PACKAGE not in parts[:2] or ".." in parts or parts[0] == "__MACOSX" or not _is_source(parts[-1]):
        return None
    if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG) or info.is_dir():
        return None
    depth = parts.index(PACKAGE)
    return "/".join(parts[:depth]), "/".join(parts[depth:])


def pack(submission: Submission) -> bytes:
    """Return a zip to hand in; the same files give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(submission.files.items()):
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()
