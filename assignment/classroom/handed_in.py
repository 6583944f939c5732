"""What a class has handed in: found in the forms in which staff get it.

Nothing in it is trusted: names are bounded and made safe for a file system, and what cannot be read is an entry that
says why. A student is known by what the source calls them (an address, a number, a folder's name), which is never
shortened: names.py makes of it what is shown and what files are called.
"""

import datetime
from dataclasses import dataclass, replace
from pathlib import Path

from assignment.classroom import clones, names
from assignment.submission import MAX_BYTES, Submission, UnusableSubmission, loose, uploaded

START = datetime.datetime.min.replace(tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Person:
    """A student, as far as the platform tells."""

    name: str = ""
    sid: str = ""  # the school's number
    email: str = ""
    canvas: str = ""  # Canvas's own number
    login: str = ""
    section: str = ""

    @property
    def key(self) -> str:
        """What they are known by: "" where nothing is told."""
        return self.email or self.sid or self.canvas or self.login or self.name


@dataclass(frozen=True)
class Handed:
    """One submission of one student or group.

    Attributes:
        student: a name for files and tables, unique among students.
        path: of a folder, a zip, or a loose file among several.
        files: where the package's files come loose: their names in the package, and where they lie.
        attempt: 1 for a student's first submission, and so on.
        submitted: when it was handed in, as far as that is known.
        time_from: who says so: "Gradescope", "Canvas", which tells no time but whether it is late by its own date,
            "commit", whose author can set it, "staff", or "".
        is_late: whether the platform says so.
        people: the student, or those of a group; none where only the name above is known.
        revision: of a git repository.
        problem: what keeps it from being read.
        key: what the source calls the student.
    """

    student: str
    path: Path
    files: tuple[tuple[str, Path], ...] = ()
    attempt: int = 1
    submitted: datetime.datetime | None = None
    time_from: str = ""
    is_late: bool = False
    people: tuple[Person, ...] = ()
    revision: str = ""
    problem: str = ""
    key: str = ""

    @property
    def name(self) -> str:
        """The student, and which of several submissions: a file's name."""
        return self.student if self.attempt == 1 else f"{self.student}.{self.attempt}"

    @property
    def is_late_as_told(self) -> bool | None:
        """Whether a platform says that it is late; None where none says anything."""
        return self.is_late or (False if self.time_from else None)

    def key_of(self, person: Person) -> str:
        """Return what one of its students is known by; where no platform tells, by the name for files."""
        return person.key.casefold() or f"\0{self.student}"

    @property
    def source(self) -> str:
        """What the folder or file is called that was handed in."""
        return names.shown(self.path.name)

    def read(self) -> Submission:
        """Return its files; raises UnusableSubmission."""
        if self.problem:
            raise UnusableSubmission(self.problem)
        if self.revision:
            return clones.at_revision(self.path, self.revision)
        if self.files:
            return _loose(self.files)
        return uploaded(self.path)


def _loose(files: tuple[tuple[str, Path], ...]) -> Submission:
    contents = {}
    for name, path in files:
        if path.stat().st_size > MAX_BYTES:
            raise UnusableSubmission(f"{path}: holds over 1 MiB; expected the kernels' source alone")
        contents[name] = path.read_bytes()
    return loose(files[0][1], contents)


def named(handed: list[Handed], due: datetime.datetime | None = None) -> list[Handed]:
    """Give each student a name, and each of their submissions a number, by time; students by name.

    Args:
        handed: submissions, each student's in order as far as their times are not known; `student` is not set.
        due: what was handed in later is late, where the platform has the time.
    """
    own, seen = names.of_keys(one.key for one in handed), dict[str, int]()
    numbered = []
    for one in sorted(handed, key=lambda one: (own[one.key], one.submitted or START)):
        seen[one.key] = seen.get(one.key, 0) + 1
        is_late = one.is_late or bool(due and one.submitted and one.submitted > due)
        numbered.append(replace(one, student=own[one.key], attempt=seen[one.key], is_late=is_late))
    twice = [one.name for one in numbered if sum(one.name == other.name for other in numbered) > 1]
    if twice:
        raise UnusableSubmission(f"{twice[0]}: two students have this name; expected one: rename one of the folders")
    return numbered
