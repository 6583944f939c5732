"""A submission: found in a folder or a zip, checked, copied to a stage, and packed to hand in."""

import hashlib
import io
import os
import stat
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

from assignment import text

PACKAGE = "cs336_kernels"
STUBS = Path(__file__).resolve().parents[1] / PACKAGE
REFERENCE = Path(__file__).resolve().parent / "reference"  # the staff's: links to the operators' solutions
MAX_BYTES = 1 << 20
MAX_FILES = 100
MAX_ENTRIES = 10_000
ENCLOSING = 2  # folders around the package, such as those of a repository's zip in a folder of the student's
MAX_NAME, MAX_PATH = 255, 500  # bytes; a file system takes no longer names
MAX_REASON = 120  # characters
BOUNDED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # what expands no further than it is read
WANTED = f"expected a folder, or a zip as `uv run grade.py --pack` makes it, with {PACKAGE}/ in it"
File = TypeVar("File")


class UnusableSubmission(Exception):
    """There is nothing to grade; the message says what was expected, what came, what to do."""


class NoPackage(UnusableSubmission):
    """There is no package; there may be its files."""


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
        files = _from_folder(path) if path.is_dir() else _from_zip(path, _entries)
    except OSError as error:
        raise refusal(error.filename or path, f"cannot be read: {_reason(error)}") from error
    return checked(path, files)


def checked(path: Path, files: dict[str, bytes]) -> Submission:
    """Return files that came from a path as a submission; raises UnusableSubmission where they cannot be graded."""
    if not files:
        raise NoPackage(str(refusal(path, f"holds no {PACKAGE}/*.py")))
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
        wanted = f"expected up to {MAX_NAME} bytes, {MAX_PATH} with its folders: rename it"
        return f"the name {shown} is too long", wanted
    if any(str(parent) in files for parent in PurePosixPath(name).parents):
        came = f"{name} is in a folder that has a file's name, a file and a folder at once"
        return came, "expected one: rename one"
    if not _is_utf_8(files[name]) or b"\0" in files[name]:
        return f"{name} is not UTF-8 text", "expected Python source: save it as UTF-8, or remove it"
    return None


def _is_encodable(name: str) -> bool:
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False


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
    path = _enclosing(path)
    root = path / PACKAGE
    if root.is_symlink():
        raise refusal(root, "a symbolic link", "expected a folder: copy the files to it")
    files: dict[str, bytes] = {}
    total = 0
    sources = sorted(_sources(root, through_links=is_ours))
    for name, file in _undoubled((file.relative_to(path).as_posix(), file) for file in sources):
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        total += len(content)
        if total > MAX_BYTES or len(files) > MAX_FILES:
            raise _too_large(path)
        files[name] = content
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


def _from_zip(path: Path, entries: Callable[[Path, zipfile.ZipFile], dict[str, bytes]]) -> dict[str, bytes]:
    if not path.is_file():
        raise refusal(path, "neither a folder nor a file")
    try:
        with zipfile.ZipFile(path) as archive:
            return entries(path, archive)
    except UnusableSubmission:
        raise
    except Exception as error:  # a broken zip makes zipfile raise whatever there is: zlib.error, struct.error, …
        raise refusal(path, f"this zip cannot be read: {_reason(error)}") from error


def _entries(path: Path, archive: zipfile.ZipFile) -> dict[str, bytes]:
    """Return cs336_kernels/**/*.py of the archive."""
    if len(archive.infolist()) > MAX_ENTRIES:
        raise refusal(path, f"over {MAX_ENTRIES} entries")
    packages: dict[str, list[tuple[str, zipfile.ZipInfo]]] = {}
    for info in archive.infolist():
        if _is_file(info) and (place := place_of(info.filename)):
            packages.setdefault(place[0], []).append((place[1], info))
    return _contents(path, archive, in_package(path, packages))


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


def place_of(name: str) -> tuple[str, str] | None:
    """Return the folders that enclose the package, "" at the top, and a file's path in it.

    None if the file is not to be staged.
    """
    parts = PurePosixPath(name).parts
    if PACKAGE not in parts[: ENCLOSING + 1] or ".." in parts or parts[0] == "__MACOSX" or not _is_source(parts[-1]):
        return None
    depth = parts.index(PACKAGE)
    return "/".join(parts[:depth]), "/".join(parts[depth:])


def outermost(path: Path, enclosing: Iterable[str]) -> str:
    """Return the folder in which the package is least deep; raises UnusableSubmission if there are several."""
    depths = {place: len(PurePosixPath(place).parts) for place in enclosing}
    least = sorted(place for place, depth in depths.items() if depth == min(depths.values()))
    if len(least) > 1:
        raise refusal(path, f"holds more than one {PACKAGE}/, in {' and '.join(least[:2])}")
    return least[0] if least else ""


def in_package(path: Path, packages: dict[str, list[tuple[str, File]]]) -> list[tuple[str, File]]:
    """Return the files of the package that is least deep, of packages by the folder that encloses each."""
    return _undoubled(packages.get(outermost(path, packages), []))


def _undoubled(files: Iterable[tuple[str, File]]) -> list[tuple[str, File]]:
    """Return a package's files by their path; those of the one in it where it is but a folder that encloses that.

    It is the package itself where it holds a file of a stub's name.
    """
    files, own = [*files], {f"{PACKAGE}/{stub.name}" for stub in STUBS.glob("*.py") if stub.stem != "__init__"}
    inner = [(name.removeprefix(f"{PACKAGE}/"), x) for name, x in files if name.startswith(f"{PACKAGE}/{PACKAGE}/")]
    return files if own & {name for name, _ in files} else inner or files


def _enclosing(folder: Path) -> Path:
    """Return the folder that holds the package, this one or one in it; raises UnusableSubmission if there are several.

    A link to a package is one, so that it is refused as such.
    """
    folders = [folder]
    for _ in range(ENCLOSING + 1):
        found = [place for place in folders if (place / PACKAGE).is_dir() or (place / PACKAGE).is_symlink()]
        if found:
            return folder / outermost(folder, [place.relative_to(folder).as_posix() for place in found])
        folders = [inner for place in folders[:MAX_FILES] for inner in _inner(place)]
    return folder


def _inner(folder: Path) -> list[Path]:
    """Return the folders of a folder, without hidden ones, which are tools', and without links."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        inner = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
    return sorted(Path(entry.path) for entry in inner if not entry.name.startswith((".", "__")))


def uploaded(path: Path) -> Submission:
    """Return what somebody has handed in: a package, or its files alone at the top of a folder or a zip.

    The package's __init__.py is that of the stubs where none came with the files. Raises UnusableSubmission.
    """
    try:
        return read(path)
    except NoPackage:
        files = _loose_in_folder(path) if path.is_dir() else _from_zip(path, _loose_entries)
        if not files:
            raise
        return loose(path, files)


def loose(path: Path, files: dict[str, bytes]) -> Submission:
    """Return files that came without their package, by name; raises UnusableSubmission."""
    stub = (STUBS / "__init__.py").read_bytes()
    named = {f"{PACKAGE}/{name}": content for name, content in files.items()}
    return checked(path, {f"{PACKAGE}/__init__.py": stub, **named})


def _loose_in_folder(folder: Path) -> dict[str, bytes]:
    files = [path for path in sorted(folder.glob("*.py")) if path.is_file() and not path.is_symlink()]
    return {path.name: _start(path) for path in files[: MAX_FILES + 1] if _is_source(path.name)}


def _start(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise refusal(path, f"cannot be read: {_reason(error)}") from error


def _loose_entries(path: Path, archive: zipfile.ZipFile) -> dict[str, bytes]:
    found = [(info.filename, info) for info in archive.infolist() if _is_file(info) and "/" not in info.filename]
    return _contents(path, archive, [(name, info) for name, info in found if _is_source(name)])


def _is_file(info: zipfile.ZipInfo) -> bool:
    return stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG) and not info.is_dir()


def pack(submission: Submission) -> bytes:
    """Return a zip to hand in; the same files give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(submission.files.items()):
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()
