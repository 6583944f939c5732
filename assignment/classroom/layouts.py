"""The forms in which staff get what a class has handed in.

- Gradescope's export: a folder with `submission_metadata.yml` and a folder for each submission, of one student or of a
  group.
- Canvas's download: files named `name[_LATE]_user_attachment_file`; a submission of several files has several
  attachments, one that was typed in is called `…_text.html`.
- anything else: a folder or a zip for each student, named after them. A folder that is a git repository is read at a
  tag or as it was before a date.
"""

import datetime
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from assignment.classroom import clones, names
from assignment.classroom.handed_in import Handed, Person, named
from assignment.submission import NoPackage, UnusableSubmission, uploaded

METADATA = "submission_metadata.yml"
MAX_METADATA = 64 << 20  # bytes
MAX_FIELD = 320  # characters of what a platform says of a student: no address is longer
# "doejane_LATE_12345_67890_rmsnorm-2.py": the name, the user's and the attachment's numbers, the file
CANVAS = re.compile(
    r"(?:(?P<name>(?!LATE_|anon_).+?)_)?(?P<late>LATE_)?(?P<user>\d+|anon_[^_]+)_"
    r"(?:(?P<number>\d+)_(?P<file>.+)|(?:text|link)\.html)",
    re.DOTALL,
)
AGAIN = re.compile(r"-\d+(?=\.[^.]*$|$)")  # what Canvas appends to the name of a file that is handed in again
ARCHIVES = (".7z", ".bz2", ".gz", ".rar", ".tar", ".tgz", ".xz", ".zst")


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
    inner = _listed(folder)
    if (folder / METADATA).is_file():
        handed = list(_of_gradescope(folder))
    elif sum(bool(CANVAS.fullmatch(path.name)) and path.is_file() for path in inner) > len(inner) / 2:
        handed = list(_of_canvas(inner))
    else:
        handed = list(_of_folders(inner, tag, before))
    if not handed:
        raise UnusableSubmission(f"{folder}: no folder and no zip in it; expected one for each student")
    return named(handed, due)


def _listed(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not _is_beside(path))


def _is_beside(path: Path) -> bool:
    """Return whether a file or folder is a system's or an editor's: hidden, and nobody's package."""
    if not path.name.startswith((".", "__MACOSX")):
        return False
    if not path.is_dir():
        return path.suffix.lower() != ".zip" or path.name.startswith("._")
    try:
        return not uploaded(path).files
    except NoPackage:
        return True
    except UnusableSubmission:
        return False


def _of_gradescope(folder: Path) -> Iterator[Handed]:
    """Yield the submissions of an export: keys are Ruby's symbols, ":submitters" and so on."""
    text = (folder / METADATA).read_bytes()
    try:
        metadata = yaml.safe_load(text) if len(text) <= MAX_METADATA else None
    except (yaml.YAMLError, ValueError, RecursionError):
        metadata = None
    if not isinstance(metadata, dict):
        raise UnusableSubmission(f"{folder / METADATA} cannot be read; expected the file as Gradescope exports it")
    for entry, about in sorted(metadata.items(), key=lambda pair: str(pair[0])):
        about = about if isinstance(about, dict) else {}
        submitters = about.get(":submitters")
        people = tuple(_person(one) for one in submitters if isinstance(one, dict)) if submitters else ()
        path = folder / (Path(str(entry)).name or "-")
        problem = "" if path.is_dir() else f"{path}: no such folder; export the submissions again"
        submitted = _time(about.get(":created_at"))
        key = "+".join(sorted(person.key for person in people if person.key)) or path.name
        time_from = "Gradescope" if submitted else ""
        yield Handed("", path, submitted=submitted, time_from=time_from, people=people, problem=problem, key=key)


def _time(when: Any) -> datetime.datetime | None:
    """Return a time of YAML, which is UTC where it names no zone."""
    if not isinstance(when, datetime.datetime):
        return None
    return when if when.tzinfo else when.replace(tzinfo=datetime.UTC)


def _person(submitter: dict[Any, Any]) -> Person:
    return Person(*(names.bounded(str(submitter.get(key) or ""), MAX_FIELD) for key in (":name", ":sid", ":email")))


def _of_canvas(paths: list[Path]) -> Iterator[Handed]:
    """Yield the submissions of each user, in Canvas's order."""
    users: dict[str, list[tuple[re.Match[str], Path]]] = {}
    for path in paths:
        if match := CANVAS.fullmatch(path.name):
            users.setdefault(match["user"], []).append((match, path))
    for user, files in users.items():
        name = files[0][0]["name"] or ""
        for submission in _attempts(files):
            loose = tuple((_plain(match), path) for match, path in submission if path.suffix == ".py")
            first = submission[0][1]
            is_readable = loose or first.suffix.lower() == ".zip"
            problem = "" if is_readable else f"{first}: neither a zip nor a Python file; expected one of them"
            is_late = bool(submission[0][0]["late"])
            people = (Person(name, canvas=user),)
            key = f"{name}-{user}" if name else user
            path = loose[0][1] if loose else first
            yield Handed("", path, loose, time_from="Canvas", is_late=is_late, people=people, problem=problem, key=key)


def _plain(match: re.Match[str]) -> str:
    return AGAIN.sub("", match["file"] or "")


def _attempts(files: list[tuple[re.Match[str], Path]]) -> Iterator[list[tuple[re.Match[str], Path]]]:
    """Yield the files of each submission of a user.

    A zip is one by itself; other files are one until a name comes again, or one is late and another was not. What is
    neither a zip nor Python is only yielded where there is nothing else.
    """
    in_order = sorted(files, key=lambda one: (int(one[0]["number"] or 0), one[0]["file"] or ""))
    useful = [one for one in in_order if one[1].suffix.lower() in (".zip", ".py")]
    group: list[tuple[re.Match[str], Path]] = []
    for match, path in useful or in_order[-1:]:
        is_new = path.suffix.lower() == ".zip" or bool(group and group[-1][1].suffix.lower() == ".zip")
        is_new |= any(_plain(match) == _plain(other) or match["late"] != other["late"] for other, _ in group)
        if is_new and group:
            yield group
            group = []
        group.append((match, path))
    yield group


def _of_folders(paths: list[Path], tag: str, before: datetime.datetime | None) -> Iterator[Handed]:
    for path in paths:
        suffix = path.suffix.lower()
        key = path.name if path.is_dir() else path.name.removesuffix(path.suffix)
        if path.is_symlink():
            yield Handed("", path, problem=f"{path}: a symbolic link; expected a folder or a zip", key=path.name)
        elif path.is_dir() and (path / ".git").exists():
            yield _clone(path, tag, before)
        elif path.is_dir() or suffix == ".zip":
            yield Handed("", path, key=key)
        elif suffix in ARCHIVES:
            yield Handed("", path, problem=f"{path}: no zip; expected a folder or a zip: unpack it", key=key)


def _clone(path: Path, tag: str, before: datetime.datetime | None) -> Handed:
    """Return what a clone holds at a revision, or its files as they lie; either has the time of the commit."""
    is_at_revision = bool(tag or before)
    try:
        revision, submitted = clones.revision(path, tag, before)
    except UnusableSubmission as error:
        return Handed("", path, problem=str(error) if is_at_revision else "", key=path.name)
    revision = revision if is_at_revision else ""
    return Handed("", path, submitted=submitted, time_from="commit", revision=revision, key=path.name)


def doubts(folder: Path, handed: list[Handed], tag: str = "", before: datetime.datetime | None = None) -> list[str]:
    """Return what a person should know before a class is graded.

    What may be one student, what is nobody's, and what has no revision though one was asked for.
    """
    return [*_students_in_doubt(handed), *_left_out(folder, handed), *_not_at_revision(handed, tag, before)]


def _students_in_doubt(handed: list[Handed]) -> Iterator[str]:
    by_key: dict[str, list[Handed]] = {}
    for one in handed:
        by_key.setdefault(one.key, []).append(one)
    for several in by_key.values():
        if len(several) > 1 and not several[0].people:
            sources = " and ".join(repr(one.source) for one in several)
            yield f"{sources}: taken for {len(several)} submissions of one student; keep one, or rename one"
    for alike in names.look_alike(by_key):
        sources = " and ".join(repr(by_key[key][0].source) for key in alike)
        called = " and ".join(by_key[key][0].student for key in alike)
        yield f"{sources}: taken for {len(alike)} students, {called}; if they are one, give them one name"
    by_sid: dict[str, set[str]] = {}
    for person in (person for one in handed for person in one.people if person.sid):
        by_sid.setdefault(person.sid, set()).add(person.key)
    for sid, keys in by_sid.items():
        if len(keys) > 1:
            yield f"{' and '.join(sorted(keys))}: taken for {len(keys)} students, but both have the number {sid}"


def _left_out(folder: Path, handed: list[Handed]) -> Iterator[str]:
    known = {one.path for one in handed} | {path for one in handed for _, path in one.files} | {folder / METADATA}
    others = [names.shown(path.name) for path in _listed(folder) if path not in known]
    if others:
        yield f"{names.some(list(map(repr, others)))}: nobody's submission; not read"


def _not_at_revision(handed: list[Handed], tag: str, before: datetime.datetime | None) -> Iterator[str]:
    options = " and ".join(name for name, given in (("--tag", tag), ("--before", before)) if given)
    others = [repr(one.source) for one in handed if not one.revision and not one.problem]
    if options and others:
        yield f"{names.some(others)}: no git clone; {options} does not apply, the files are read as they lie"
