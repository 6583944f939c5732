"""What a late submission is worth: functions of dates, the course's rule and a student's extension."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from assignment.course import LateRule

DAY = timedelta(days=1)
DIGITS = 2  # of points


@dataclass(frozen=True)
class Late:
    """How late a submission is, and what that leaves of its points.

    Attributes:
        days: begun after the date and its grace; None where that is not known.
        credit: days of these that the course gives.
        share: of the points that is left; 1 where nothing is known, None where it is known to be late all the same.
    """

    days: int | None
    credit: int
    share: float | None

    def after(self, points: float) -> float | None:
        """Return what is left of points, in hundredths, halves rounded up; None where that is not known."""
        if self.share is None:
            return None
        hundredths = round(points * self.share * 10**DIGITS, 6)
        return math.floor(hundredths + 0.5) / 10**DIGITS


def late(
    submitted: datetime | None,
    due: datetime,
    rule: LateRule,
    extension: datetime | None = None,
    is_late: bool | None = None,
) -> Late:
    """Return how late a submission is.

    Args:
        submitted: when it was handed in; None where that is not known.
        due: the course's date.
        rule: what happens then. Grace moves the date, and so the beginning of each day after it.
        extension: the student's own date, in place of the course's.
        is_late: whether a platform says so that tells no time; None where none says anything.
    """
    if submitted is None:
        return Late(0 if is_late is False else None, 0, None if is_late else 1.0)
    over = submitted - (extension or due) - timedelta(minutes=rule.grace_minutes)
    days = max(0, -(-over // DAY))
    credit = min(days, rule.credit_days)
    charged = days - credit
    share = max(0.0, 1 - rule.share_a_day * charged) if charged <= rule.cut_off_days else 0.0
    return Late(days, credit, round(share, 6))


@dataclass(frozen=True)
class Dates:
    """The dates of a class: the course's, its rule, and the extensions of students by their keys."""

    due: datetime
    rule: LateRule
    extensions: Mapping[str, datetime] = field(default_factory=dict)

    def until(self, key: str) -> datetime:
        """Return a student's date."""
        return self.extensions.get(key, self.due)

    def late(self, key: str, submitted: datetime | None, is_late: bool | None) -> Late:
        """Return how late a student's submission is."""
        return late(submitted, self.due, self.rule, self.extensions.get(key), is_late)


def told(lates: Iterable[Late]) -> str:
    """Return in a line how many are late, and of how many no time is known; "" where there is nothing to say."""
    found = list(lates)
    n_late = sum(bool(one.days) for one in found)
    parts = [
        (n_late, "late"),
        (sum(bool(one.days) and one.share == 1 for one in found), "of these without a loss"),
        (sum(bool(one.days) and one.share == 0 for one in found), "of these worth nothing"),
        (sum(one.share is None for one in found), "late by an unknown time, and without a score after lateness"),
        (sum(one.days is None and one.share == 1 for one in found), "without a known time, taken as in time"),
    ]
    return ", ".join(f"{count} {what}" for count, what in parts if count)
