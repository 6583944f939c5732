"""Dates that staff give in CSV files beside the results: extensions, and when submissions were handed in.

    extensions.csv   a student and a new date, or a number of days: ada@uni.example,2
    times.csv        a submission and its time, where no platform tells it: ada,2026-11-30T22:10+01:00

A first line of headings is passed over, and so is what stands in further columns. A student is an address, a number, a
login or a folder's name; a submission is that, too, or its name in the tables, or what its file is called.
"""

import csv
import datetime
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from assignment import text
from assignment.classroom.handed_in import Handed, Person
from assignment.classroom.lateness import Dates
from assignment.classroom.names import some
from assignment.commands.files import replace as write
from assignment.course import LateRule
from assignment.submission import UnusableSubmission

EXTENSIONS, TIMES = "extensions.csv", "times.csv"
MAX_BYTES = 1 << 20
MAX_DAYS = 366
MAX_TOLD = 20  # bad lines
HEADINGS = ("login", "student", "email", "sid", "id", "name", "submission", "source")
KNOWN = "expected an address, a number, a login of --roster, or what a folder or file is called"
STAFF = "staff"  # where a time comes from
ZONED = "2026-11-30T23:59+01:00"
When = Callable[[str], datetime.datetime]


@dataclass(frozen=True)
class DateLine:
    """A line of a file: its number, who or what it is about, and a date."""

    number: int
    about: str
    when: datetime.datetime


@dataclass(frozen=True)
class Dated:
    """A class with its dates.

    Attributes:
        handed: the submissions, with the times that staff give.
        dates: None where no date is set.
        doubts: what a person should know before the class is graded.
    """

    handed: tuple[Handed, ...]
    dates: Dates | None
    doubts: list[str]


def dated(
    handed: Iterable[Handed], due: datetime.datetime | None, rule: LateRule, extensions: Path, times: Path
) -> Dated:
    """Return a class with what its staff say of dates; raises UnusableSubmission, with all bad lines of a file."""
    known = tuple(handed)
    said = lines(times, _time, f"a submission and its time with the zone, such as ada,{ZONED}")
    found, strangers = bound(said, _submissions(known), times)
    known = tuple(
        replace(one, submitted=found[one.name], time_from=STAFF) if one.name in found else one for one in known
    )
    if due is None:
        return Dated(known, None, strangers)
    expected = f"a student and days or a new date, such as ada,2 or ada,2026-12-02 or ada,{ZONED}"
    of_students, more = bound(lines(extensions, extended(due), expected), _students(known), extensions)
    return Dated(known, Dates(due, rule, of_students), [*strangers, *more, *_untimed(known)])


def _untimed(handed: tuple[Handed, ...]) -> list[str]:
    """Return what is said of submissions without a known time."""
    late = [repr(one.source) for one in handed if one.submitted is None and one.is_late]
    others = [repr(one.source) for one in handed if one.submitted is None and one.is_late_as_told is None]
    no_score = "late by an unknown time, and no score after lateness until --times FILE tells it"
    in_time = "no time known, taken as in time; --times FILE tells it"
    return [f"{some(named)}: {what}" for named, what in ((late, no_score), (others, in_time)) if named]


def extended(due: datetime.datetime) -> When:
    """Return a function that reads an extension of this date; it raises ValueError.

    A day without an hour ends at the hour of the course's date.
    """

    def read(said: str) -> datetime.datetime:
        if said.isascii() and said.isdigit() and len(said) < 4 and int(said) <= MAX_DAYS:
            return due + datetime.timedelta(days=int(said))
        is_day = len(said) == len("2026-12-02")
        found = datetime.datetime.fromisoformat(said)
        found = datetime.datetime.combine(found.date(), due.timetz()) if is_day else found
        if found.tzinfo is None:
            raise ValueError("it names no zone")
        if found < due:
            raise ValueError(f"that is before the course's date, {due.isoformat()}")
        return found

    return read


def _time(said: str) -> datetime.datetime:
    found = datetime.datetime.fromisoformat(said)
    if found.tzinfo is None:
        raise ValueError("it names no zone")
    return found


def lines(path: Path, when: When, expected: str) -> list[DateLine]:
    """Return the lines of a file, none where there is no file; raises UnusableSubmission over all that are bad."""
    try:
        content = path.read_bytes()[: MAX_BYTES + 1].decode("utf-8-sig")
        delimiter = next((char for char in content if char in ",;\t"), ",")
        reader = csv.reader(io.StringIO(content, newline=""), delimiter=delimiter)
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UnusableSubmission(f"{path} cannot be read: {error}; expected lines with {expected}") from error
    found, bad = list[DateLine](), list[str]()
    for number, row in rows:
        about, said = [*row, "", ""][:2]
        if not any(row) or (row is rows[0][1] and about.casefold() in HEADINGS):
            continue
        try:
            if not about:
                raise ValueError("its first column is empty")
            found.append(DateLine(number, about, when(said)))
        except (ValueError, OverflowError) as error:
            why = f" ({error})" if "isoformat" not in str(error) else ""
            bad.append(f"line {number}: expected {expected}, got {text.line(delimiter.join(row))!r}{why}")
    _refuse(path, bad)
    return found


def _refuse(path: Path, bad: list[str]) -> None:
    if bad:
        more = [f"and {len(bad) - MAX_TOLD} more"] if len(bad) > MAX_TOLD else []
        raise UnusableSubmission("\n  ".join([f"{path} cannot be used:", *bad[:MAX_TOLD], *more]))


def bound(
    said: Iterable[DateLine], owners: dict[str, list[str]], path: Path
) -> tuple[dict[str, datetime.datetime], list[str]]:
    """Return the dates by what they are about, and what is said of lines that are about nobody.

    Args:
        said: the lines.
        owners: what may stand in a line, in small letters, and whose it is: one has to be meant.
        path: of the file, to tell its bad lines; they raise UnusableSubmission.
    """
    first, found, bad, strangers = dict[str, DateLine](), dict[str, datetime.datetime](), list[str](), list[str]()
    for line in said:
        own = owners.get(line.about.casefold(), [])
        if not own:
            strangers.append(f"{line.about!r} (line {line.number})")
        elif len(own) > 1:
            meant = some(own, 10)
            bad.append(f"line {line.number}: {line.about!r} may be any of {meant}; expected what is one's alone")
        elif own[0] in first:
            bad.append(
                f"line {line.number}: {line.about!r} is in line {first[own[0]].number} already; expected one line"
            )
        else:
            first[own[0]], found[own[0]] = line, line.when
    _refuse(path, bad)
    doubts = [f"{path.name}: {some(strangers, 20)}: nobody of this class; {KNOWN}"] if strangers else []
    return found, doubts


def _called(handed: Handed, person: Person) -> set[str]:
    """Return what a student of a submission may be called."""
    told = {person.email, person.sid, person.canvas, person.login, person.name}
    alone = {handed.student, handed.source, handed.path.stem} if len(handed.people) < 2 else set()
    return {one.casefold() for one in told | alone} - {""}


def _owners(pairs: Iterable[tuple[set[str], str]]) -> dict[str, list[str]]:
    owners: dict[str, dict[str, None]] = {}
    for called, own in pairs:
        for name in called:
            owners.setdefault(name, {})[own] = None
    return {name: list(own) for name, own in owners.items()}


def _students(handed: Iterable[Handed]) -> dict[str, list[str]]:
    """Return the keys of students by what these may be called."""
    return _owners((_called(one, who), one.key_of(who)) for one in handed for who in one.people or (Person(),))


def _submissions(handed: Iterable[Handed]) -> dict[str, list[str]]:
    """Return the names of submissions by what these, or their students, may be called."""
    pairs = ((one, who) for one in handed for who in one.people or (Person(),))
    return _owners((_called(one, who) | {one.name.casefold(), one.student.casefold()}, one.name) for one, who in pairs)


def keep(folder: Path, extensions: Path | None, times: Path | None) -> None:
    """Copy the files that are given beside the results, where later commands read them."""
    for given, name in ((extensions, EXTENSIONS), (times, TIMES)):
        if given is not None:
            write(folder / name, given.read_bytes())
