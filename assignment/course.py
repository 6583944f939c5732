"""The course: its name, its problems with their points, its dates; read from course.toml in the grader's own tree.

What the file does not say is as in `Course`, whose values are those of the course that this repository gives.
"""

import functools
import math
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from assignment import text
from tests import operators

ROOT = Path(__file__).resolve().parents[1]
FILE = "course.toml"
SPEED = "speed"  # the problem that needs a GPU
WORDS = PRACTICE, OFF = "practice", "off"


class CourseError(Exception):
    """course.toml cannot be used; the message has file, line, what was expected and what came."""


@dataclass(frozen=True)
class LateRule:
    """What a late submission is worth.

    Attributes:
        grace_minutes: after the date, that cost nothing.
        credit_days: that each student may be late without a loss.
        share_a_day: of the points, that each further day begun costs, from 0 to 1.
        cut_off_days: after the date and its credit, from which a submission is worth nothing.
    """

    grace_minutes: float = 0.0
    credit_days: int = 0
    share_a_day: float = 0.1
    cut_off_days: int = 5

    @property
    def told(self) -> str:
        """What students are told of it."""
        grace, credit, free = self.grace_minutes, self.credit_days, self.credit_days + self.cut_off_days
        told = [f"Being up to {grace:g} minutes late costs nothing."] if grace else []
        told += [f"You may be {_days(credit)} late without a loss."] if credit else []
        if self.cut_off_days and self.share_a_day:
            each = "Each further day begun" if credit else "Each day late, begun ones too,"
            told.append(f"{each} costs {100 * self.share_a_day:g} % of the points.")
        told.append(f"What is more than {_days(free)} late is worth nothing." if free else "Later it is worth nothing.")
        return " ".join(told)


def _days(count: int) -> str:
    return f"{count} day{'s' * (count != 1)}"


def _in_words(when: datetime) -> str:
    """Return a date as "30 November 2026, 23:59 (UTC+01:00)"."""
    seconds = ":%S" if when.second else ""
    return f"{when.day} {when:%B %Y, %H:%M{seconds}} ({when:%Z})"


@dataclass(frozen=True)
class Course:
    """A course.

    Attributes:
        title, institution, term: that head pages, handout and tables.
        pages: where the handout's pages are shown, "https://…", without a slash at the end; "" for nowhere.
        repository: where students get the assignment, likewise.
        logo: a picture for the head of the handout's pages, a file below the root.
        due: when it has to be handed in, with its time zone; None without a date.
        late: what happens then.
        points: of problems by name, in the order of the course; speed's are shared among the timed checks. Or
            PRACTICE or OFF. What is not named is as its operator's record says, and has its checks' weights.
    """

    title: str = "CS336 kernels"
    institution: str = ""
    term: str = ""
    pages: str = ""
    repository: str = ""
    logo: str = ""
    due: datetime | None = None
    late: LateRule = field(default_factory=LateRule)
    points: dict[str, float | str] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """What stands above pages: title, institution and term."""
        return ", ".join(filter(None, (self.title, self.institution, self.term)))

    def told_dates(self, due: datetime | None = None) -> str:
        """Return what students are told of this date, or the course's, and of lateness; "" where there is no date."""
        when = due or self.due
        return f"Hand in by {_in_words(when)}. {self.late.told}" if when else ""


@functools.cache
def course(root: Path | None = None) -> Course:
    """Return the course of the grader's tree; raises CourseError."""
    try:
        said = ((root or ROOT) / FILE).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return Course()
    except (OSError, UnicodeDecodeError) as error:
        raise CourseError(f"{FILE}: expected a text file in UTF-8, got {error}") from None
    try:
        found = tomllib.loads(said)
    except tomllib.TOMLDecodeError as error:
        raise CourseError(f"{FILE}: {error}") from None
    return _Reader(root or ROOT, said, found).course()


class _Reader:
    """A file's text and what TOML makes of it, which tells no lines."""

    def __init__(self, root: Path, said: str, found: dict[str, Any]) -> None:
        self._root, self._lines, self._found = root, said.splitlines(), found

    def course(self) -> Course:
        self._known(self._found, "", ["course", "late", "points"])
        own = [one.name for one in fields(Course) if one.name not in ("late", "points")]
        said = {name: self._said("course", name) for name in self._known(self._table("course"), "course", own)}
        for name in ("pages", "repository"):
            said[name] = self._address(name, said.get(name, ""))
        return Course(**said, late=self._late(), points=self._problems())

    def _table(self, name: str) -> dict[str, Any]:
        found = self._found.get(name, {})
        if not isinstance(found, dict):
            raise self._error("", name, f"expected a table, [{name}], got {found!r}")
        return found

    def _known(self, table: dict[str, Any], heading: str, names: Iterable[str]) -> list[str]:
        """Return a table's keys, which must be among these names."""
        for key in table:
            if key not in names:
                near = text.nearest(key, names)
                meant = f"did you mean {' or '.join(near)}?" if near else f"expected one of {', '.join(names)}"
                raise self._error(heading, key, f"unknown: {meant}")
        return list(table)

    def _error(self, heading: str, key: str, what: str) -> CourseError:
        return CourseError(f"{FILE}, line {self._line(heading, key)}: {key}: {what}")

    def _line(self, heading: str, key: str) -> int:
        """Return the number of the line that sets a key below a heading, or that is the heading; 1 if none is found."""
        below = ""
        for number, line in enumerate(self._lines, start=1):
            if begun := re.match(r"\s*\[\s*([\w-]+)\s*\]", line):
                below = begun[1]
            if (below == heading and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line)) or (
                not heading and below == key
            ):
                return number
        return 1

    def _said(self, heading: str, name: str) -> Any:
        value = self._found[heading][name]
        if name == "due":
            if not isinstance(value, datetime) or value.tzinfo is None:
                raise self._error(
                    heading, name, f"expected a date and time with its zone, 2026-11-30T23:59:00+01:00, got {value}"
                )
        elif not isinstance(value, str) or "\n" in value:
            raise self._error(heading, name, f"expected a line of text in quotes, got {value!r}")
        elif name == "logo" and value and not (self._root / value).is_file():
            raise self._error(heading, name, f"expected a file below {self._root}, and there is no {value}")
        return value

    def _address(self, name: str, value: str) -> str:
        if value and not re.match(r"https?://\S+$", value):
            raise self._error("course", name, f'expected an address, "https://…", got {value!r}')
        return value.rstrip("/")

    def _late(self) -> LateRule:
        table = self._table("late")
        most = {"share_a_day": 1.0}
        for name in self._known(table, "late", [one.name for one in fields(LateRule)]):
            value, whole = table[name], name.endswith("days")
            is_fit = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
            if not is_fit or not 0 <= value <= most.get(name, math.inf) or math.isinf(value):
                kind = "a whole number" if whole else "a number"
                until = f" from 0 to {most[name]:g}" if name in most else " that is not below 0"
                raise self._error("late", name, f"expected {kind}{until}, got {value!r}")
        return LateRule(**table)

    def _problems(self) -> dict[str, float | str]:
        """Return what is said of problems, in the order of the file."""
        table = self._table("points")
        self._known(table, "points", [*operators.problems(), SPEED])
        for name, value in table.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            words = (OFF,) if name == SPEED else WORDS
            if not (value in words or (is_number and 0 <= value < math.inf and _is_whole(100 * value))):
                expected = " or ".join(
                    ["points, in whole hundredths and not below 0,", *(f'"{word}"' for word in words)]
                )
                raise self._error("points", name, f"expected {expected}, got {value!r}")
        return {name: value if isinstance(value, str) else float(value) for name, value in table.items()}


def _is_whole(number: float) -> bool:
    return math.isclose(number, round(number), abs_tol=1e-6)
