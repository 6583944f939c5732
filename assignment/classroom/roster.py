"""A roster: who is in the course, as Canvas's gradebook or Gradescope's roster says it, and what it adds to a class."""

import csv
import io
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from assignment.classroom.handed_in import Handed, Person
from assignment.submission import UnusableSubmission

MAX_BYTES = 16 << 20
WANTED = (
    "expected the CSV of Canvas's gradebook (Student, ID, SIS User ID, …) or of Gradescope's roster (Email, SID, …)"
)
POSSIBLE = "points possible"  # a row of Canvas's that is no student


@dataclass(frozen=True)
class Roster:
    """The students of a course."""

    people: tuple[Person, ...]

    def of(self, person: Person) -> Person | None:
        """Return the one entry that a student is: by number, by address, or else by name."""
        for key in (_numbers, _addresses, _names):
            found = {entry for entry in self.people if key(entry) & key(person)}
            if len(found) == 1:
                return found.pop()
        return None


def _folded(*said: str) -> set[str]:
    return {one.strip().casefold() for one in said} - {""}


def _numbers(person: Person) -> set[str]:
    return {f"canvas {person.canvas}"} - {"canvas "} | _folded(person.sid)


def _addresses(person: Person) -> set[str]:
    return _folded(person.email, person.login)


def _names(person: Person) -> set[str]:
    """Return a name in both orders: Canvas says "Lovelace, Ada"."""
    last, comma, first = person.name.partition(",")
    return _folded(f"{first.strip()} {last.strip()}" if comma else person.name)


def read(path: Path) -> Roster:
    """Return the roster of a file; raises UnusableSubmission."""
    try:
        content = path.read_bytes()[: MAX_BYTES + 1].decode("utf-8-sig")
        rows = list(csv.DictReader(io.StringIO(content, newline="")))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UnusableSubmission(f"{path} cannot be read: {error}; {WANTED}") from error
    people = [_person({(name or "").strip().casefold(): value or "" for name, value in row.items()}) for row in rows]
    known = tuple(person for person in people if person.key and person.name.strip().casefold() != POSSIBLE)
    if not known:
        raise UnusableSubmission(f"{path}: no student in it; {WANTED}")
    return Roster(known)


def _person(row: dict[str, str]) -> Person:
    """Return a row of either platform: Canvas's ID is its own, Gradescope's SID is the school's."""

    def first(*columns: str) -> str:
        return next((str(row[column]).strip() for column in columns if row.get(column)), "")

    name = first("student", "name") or f"{first('first name')} {first('last name')}".strip()
    return Person(
        name=name,
        sid=first("sis user id", "sid", "student id"),
        email=first("email", "email address"),
        canvas=first("id") if "student" in row else "",
        login=first("sis login id"),
        section=first("section", "sections"),
    )


def filled(handed: Iterable[Handed], roster: Roster) -> tuple[list[Handed], list[str]]:
    """Return submissions with what the roster adds to their students, and what is in doubt about these."""
    made, strangers = [], []
    owners: dict[Person, set[str]] = {}
    for one in handed:
        people = []
        for person in one.people or (_by_key(one.key),):
            entry = roster.of(person)
            if entry is None:
                strangers.append(one.student)
            elif not one.people:
                owners.setdefault(entry, set()).add(one.student)
            people.append(_merged(person if one.people else Person(), entry) if entry else person)
        made.append(replace(one, people=tuple(people) if one.people or one.student not in strangers else ()))
    doubts = [f"{', '.join(sorted(set(strangers)))}: not in the roster, or more than once"] if strangers else []
    shared = [(entry.name, sorted(names)) for entry, names in owners.items() if len(names) > 1]
    return made, [*doubts, *(f"{' and '.join(names)}: both are {name} of the roster" for name, names in shared)]


def _by_key(key: str) -> Person:
    """Return who a folder's name may be: a number, an address, a login or a name."""
    return Person(name=key, sid=key, email=key, login=key)


def _merged(person: Person, entry: Person) -> Person:
    """Return a roster's entry, with what only the platform tells."""
    return Person(**{field: known or getattr(person, field) for field, known in asdict(entry).items()})
