"""What a class has handed in: found in the forms in which staff get it.

- Gradescope's export: a folder with `submission_metadata.yml` and a folder for each submission, of one student or of a
  group.
- Canvas's download: files named `name[_LATE]_user_submission_file`, of which a student may have several.
- anything else: a folder or a zip for each student, named after them. A folder that is a git repository is read at a
  tag or as it was before a date.

Nothing in it is trusted: names are bounded and made safe for a file system, and what cannot be read is an entry that
says why.
"""

import datetime
import hashlib
import re
import shutil
import subprocess
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from assignment.submission import MAX_BYTES, PACKAGE, Submission, UnusableSubmission, checked, read

METADATA = "submission_metadata.yml"
MAX_METADATA = 64 << 20  # bytes
MAX_FIELD = 200  # characters of what a platform says of a student
MAX_NAME = 60  # characters of a student's name, as part of a file's
GIT_S = 60.0  # for one command
# "doejane_LATE_12345_67890_rmsnorm-2.py": the name, the user's and the submission's numbers, the file
CANVAS = re.compile(r"(?P<name>[^_]+)_(?P<late>LATE_)?(?P<user>\d+)_(?P<number>\d+)_(?P<file>.+)", re.DOTALL)
AGAIN = re.compile(r"-\d+(?=\.[^.]*$|$)")  # what Canvas appends to the name of a file that is handed in again


@dataclass(frozen=True)
class Person:
    """A student, as far as the platform tells."""

    name: str = ""
    sid: str = ""
    email: str = ""


@dataclass(frozen=True)
class Handed:
    """One submission of one student or group.

    Attributes:
        student: a name for files and tables, unique among students.
        path: of a folder, a zip, or a loose file among several.
        files: where the package's files come loose: their names in the package, and where they lie.
        attempt: 1 for a student's first submission, and so on.
        submitted: when it was handed in, as far as that is known.
        is_late: whether the platform says so.
        people: the student, or those of a group; none where only the name above is known.
        revision: of a git repository.
    """

    student: str
    path: Path
    files: tuple[tuple[str, Path], ...] = ()
    attempt: int = 1
    submitted: datetime.datetime | None = None
    is_late: bool = False
    people: tuple[Person, ...] = ()
    revision: str = ""
    problem: str = ""  # what keeps it from being read

    @property
    def name(self) -> str:
        """The student, and which of several submissions: a file's name."""
        return self.student if self.attempt == 1 else f"{self.student}.{self.attempt}"

    def read(self) -> Submission:
        """Return its files; raises UnusableSubmission."""
        if self.problem:
            raise UnusableSubmission(self.problem)
        if self.revision:
            return _at_revision(self.path, self.revision)
        if self.files:
            return _loose(self.files)
        return read(self.path)


def found(
    folder: Path, tag: str = "", before: datetime.datetime | None = None, due: datetime.datetime | None = None
) -> list[Handed]:
    """Return every submission below a folder, students by name, each one's by time.

    Args:
        folder: Gradescope's export, Canvas's download, or a folder of folders, zips and repositories.
        tag: of a git repository, what to read; the default is its current files.
        before: or its last commit before this time.
        due: what was handed in later is late, where the platform has the time.

    Raises:
        UnusableSubmission: there is no such folder, or nothing in it.
    """
    if not folder.is_dir():
        raise UnusableSubmission(f"{folder}: expected a folder of submissions; unpack what you have downloaded")
    if (folder / METADATA).is_file():
        handed = list(_of_gradescope(folder))
    else:
        inner = sorted(path for path in folder.iterdir() if not _is_beside(path))
        canvas = [match for path in inner if (match := CANVAS.fullmatch(path.name))]
        is_canvas = len(canvas) > len(inner) / 2
        handed = list(_of_canvas(inner) if is_canvas else _of_folders(inner, tag, before))
    if not handed:
        raise UnusableSubmission(f"{folder}: no folder and no zip in it; expected one for each student")
    if due:
        handed = [_timed(one, due) for one in handed]
    return _unique(handed)


def _is_beside(path: Path) -> bool:
    """Return whether a file or folder is a system's or an editor's: hidden, and nobody's package."""
    return path.name.startswith((".", "__MACOSX")) and not (path / PACKAGE).is_dir()


def _timed(one: Handed, due: datetime.datetime) -> Handed:
    is_late = one.is_late or (one.submitted is not None and one.submitted > due)
    return replace(one, is_late=is_late)


def safe(name: str) -> str:
    """Return a name as part of a file's name: letters, digits, dots, dashes; never empty, hidden or long."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    plain = re.sub(r"[^A-Za-z0-9.@+-]+", "_", plain).strip("._-")
    if len(plain) > MAX_NAME or not plain:
        digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:8]
        plain = f"{plain[: MAX_NAME - 9]}-{digest}".lstrip("-")
    return plain


def _unique(handed: list[Handed]) -> list[Handed]:
    """Give students whose safe names are equal, but who are not one, names of their own."""
    owners: dict[str, Any] = {}
    named = []
    for one in handed:
        own = one.people or one.path.name.partition(".")[0]
        student = one.student
        while owners.setdefault(student.casefold(), own) != own:
            student += "_"
        named.append(replace(one, student=student))
    return sorted(named, key=lambda one: (one.student, one.attempt))


def _of_gradescope(folder: Path) -> Iterator[Handed]:
    """Yield the submissions of an export: keys are Ruby's symbols, ":submitters" and so on."""
    text = (folder / METADATA).read_bytes()
    try:
        metadata = yaml.safe_load(text) if len(text) <= MAX_METADATA else None
    except (yaml.YAMLError, ValueError, RecursionError):
        metadata = None
    if not isinstance(metadata, dict):
        raise UnusableSubmission(f"{folder / METADATA} cannot be read; expected the file as Gradescope exports it")
    found = []
    for key, about in sorted(metadata.items(), key=lambda pair: str(pair[0])):
        about = about if isinstance(about, dict) else {}
        submitters = about.get(":submitters")
        people = tuple(_person(one) for one in submitters if isinstance(one, dict)) if submitters else ()
        path = folder / Path(str(key)).name
        problem = "" if path.is_dir() else f"{path}: no such folder; export the submissions again"
        names = [one.email or one.sid or one.name for one in people]
        student = safe("+".join(sorted(name.partition("@")[0] for name in names)) or path.name)
        when = about.get(":created_at")
        submitted = when.astimezone() if isinstance(when, datetime.datetime) else None
        found.append(Handed(student, path, submitted=submitted, people=people, problem=problem))
    yield from _numbered(found)


def _person(submitter: dict[Any, Any]) -> Person:
    return Person(*(str(submitter.get(key) or "")[:MAX_FIELD] for key in (":name", ":sid", ":email")))


def _numbered(found: list[Handed]) -> Iterator[Handed]:
    """Count the submissions of each student, by time."""
    seen: dict[Any, int] = {}
    start = datetime.datetime.min.replace(tzinfo=datetime.UTC)
    for one in sorted(found, key=lambda one: (one.student, one.submitted or start, one.path.name)):
        seen[one.student, one.people] = attempt = seen.get((one.student, one.people), 0) + 1
        yield replace(one, attempt=attempt)


def _of_canvas(paths: list[Path]) -> Iterator[Handed]:
    """Yield a submission for each that Canvas has numbered: a zip, or loose files of the package."""
    parts: dict[tuple[str, str], list[tuple[re.Match[str], Path]]] = {}
    for path in paths:
        if match := CANVAS.fullmatch(path.name):
            parts.setdefault((match["name"], match["user"]), []).append((match, path))
    for (name, user), files in parts.items():
        is_late = any(match["late"] for match, _ in files)
        people = (Person(name, user),)
        by_number = sorted({int(match["number"]) for match, _ in files})
        for attempt, number in enumerate(by_number, start=1):
            own = [(match["file"], path) for match, path in files if int(match["number"]) == number]
            zips = [path for file, path in own if file.lower().endswith(".zip")]
            loose = tuple((AGAIN.sub("", file), path) for file, path in own if file.endswith(".py"))
            problem = "" if zips or loose else "neither a zip nor a Python file was handed in"
            path = zips[-1] if zips else own[0][1]
            yield Handed(
                safe(f"{name}-{user}"), path, () if zips else loose, attempt, None, is_late, people, "", problem
            )


def _of_folders(paths: list[Path], tag: str, before: datetime.datetime | None) -> Iterator[Handed]:
    for path in paths:
        if path.is_symlink():
            yield Handed(safe(path.name), path, problem=f"{path}: a symbolic link, expected a folder or a zip")
        elif path.is_dir() and (path / ".git").exists() and (tag or before):
            revision, submitted, problem = _revision(path, tag, before)
            yield Handed(safe(path.name), path, submitted=submitted, revision=revision, problem=problem)
        elif path.is_dir() or path.suffix.lower() == ".zip":
            yield Handed(safe(path.stem if path.is_file() else path.name), path)


def _git(repository: Path, *command: str) -> bytes:
    """Return what a command of git prints; raises UnusableSubmission. Nothing that the repository configures is run."""
    git = shutil.which("git")
    if git is None:
        raise UnusableSubmission("git is not installed; install it, or hand over plain folders")
    guards = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "protocol.allow=never")
    try:
        done = subprocess.run(
            [git, "--no-pager", *guards, "-C", str(repository), *command], capture_output=True, timeout=GIT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnusableSubmission(f"{repository}: git cannot read it: {type(error).__name__}") from error
    if done.returncode:
        raise UnusableSubmission(f"{repository}: git: {done.stderr.decode(errors='replace').strip()[:300]}")
    return done.stdout


def _revision(
    repository: Path, tag: str, before: datetime.datetime | None
) -> tuple[str, datetime.datetime | None, str]:
    """Return the commit to be read, its time, and what is wrong."""
    which = ["--before", before.isoformat()] if before else []
    try:
        said = _git(
            repository,
            "log",
            "-1",
            "--format=%H %cI",
            *which,
            "--end-of-options",
            f"refs/tags/{tag}" if tag else "HEAD",
        )
    except UnusableSubmission as error:
        return "", None, str(error)
    if not said.strip():
        return "", None, f"{repository}: no commit before {before}"
    commit, when = said.decode().split()
    return commit, datetime.datetime.fromisoformat(when), ""


def _at_revision(repository: Path, commit: str) -> Submission:
    """Return the package's files as a commit has them; raises UnusableSubmission."""
    listed = _git(repository, "ls-tree", "-r", "-l", "-z", commit, "--", f"{PACKAGE}/").split(b"\0")
    files = {}
    for line in filter(None, listed):
        about, _, path = line.partition(b"\t")
        mode, _, blob, size = about.split()
        if mode.startswith(b"100") and path.endswith(b".py"):
            if int(size) > MAX_BYTES:
                raise UnusableSubmission(f"{repository}: {path.decode(errors='replace')} holds over 1 MiB")
            files[path.decode(errors="surrogateescape")] = _git(repository, "cat-file", "blob", blob.decode())
    return checked(repository, files)


def _loose(files: tuple[tuple[str, Path], ...]) -> Submission:
    """Return files that came one by one; the package's __init__.py is that of the stubs where none came."""
    contents = {}
    for name, path in files:
        if path.stat().st_size > MAX_BYTES:
            raise UnusableSubmission(f"{path}: holds over 1 MiB")
        contents[f"{PACKAGE}/{name}"] = path.read_bytes()
    stub = Path(__file__).resolve().parents[2] / PACKAGE / "__init__.py"
    return checked(files[0][1], {f"{PACKAGE}/__init__.py": stub.read_bytes(), **contents})
