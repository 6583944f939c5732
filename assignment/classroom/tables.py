"""The tables of grades beside the results, made anew whenever a report or a decision has changed.

tables.json says what they are made of: who has handed in what, and which options of
`classroom grade` they follow.
"""

import datetime
import json
from dataclasses import dataclass, field, replace
from pathlib import Path

from assignment.classroom import COMMAND, decisions, grades, lateness, results, staff_dates
from assignment.classroom.handed_in import Handed
from assignment.classroom.kept import Decision, KeptReport
from assignment.commands import files
from assignment.course import course
from assignment.submission import UnusableSubmission

FILE = "tables.json"
INCOMPLETE = ".incomplete.csv"  # the end of a table's name while submissions wait


@dataclass(frozen=True)
class Form:
    """What the tables are made of, beside the reports.

    Attributes:
        handed: the submissions of the class.
        pick: which of several of a student counts, a key of grades.PICKED.
        due: when late days begin; None: at the course's date, if it has one.
        assignment: its name in Canvas's form.
        waiting: names of submissions that have not been graded yet, whatever report of earlier ones there is.
    """

    handed: tuple[Handed, ...]
    pick: str = "best"
    due: datetime.datetime | None = None
    assignment: str = field(default_factory=lambda: course().title)
    waiting: tuple[str, ...] = ()

    def as_json(self) -> bytes:
        """Return it as JSON."""
        due = self.due.isoformat() if self.due else ""
        handed = [results.as_data(one) for one in self.handed]
        told = {"pick": self.pick, "due": due, "assignment": self.assignment, "waiting": self.waiting}
        return json.dumps({**told, "handed": handed}, indent=1).encode()


def form_of(folder: Path) -> Form:
    """Return what the tables of a folder of results were made of; raises UnusableSubmission."""
    path = folder / FILE
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        due = datetime.datetime.fromisoformat(told["due"]) if told["due"] else None
        handed = tuple(map(results.from_data, told["handed"]))
        pick = {name: name for name in grades.PICKED}[told["pick"]]
        return Form(handed, pick, due, told["assignment"], tuple(map(str, told["waiting"])))
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        results.known(folder)  # says so where these are no results at all
        wanted = f"run `{COMMAND} grade` again, which writes it"
        raise UnusableSubmission(f"{path} cannot be read: {error}; {wanted}") from error


def report_paths(folder: Path) -> list[Path]:
    """Return the reports of the last run, since earlier ones may have left some; all where it is not known."""
    paths = sorted((folder / "reports").glob("*.json"))
    try:
        known = {one.name for one in form_of(folder).handed}
    except UnusableSubmission:
        return paths
    return [path for path in paths if path.stem in known]


def reports(folder: Path, form: Form) -> dict[str, KeptReport]:
    """Return the reports of the class by the submission's name, as they were graded."""
    kept = results.Results(folder, results.known(folder))
    found = ((one.name, kept.of(one)) for one in form.handed if one.name not in form.waiting)
    return {name: report for name, report in found if report is not None}


def decided(reports: dict[str, KeptReport], made: list[Decision]) -> dict[str, KeptReport]:
    """Return the reports with what was decided."""
    about = {name: decisions.about(made, name, report) for name, report in reports.items()}
    return {name: decisions.applied(report, about[name]) for name, report in reports.items()}


@dataclass(frozen=True)
class Class:
    """A folder of results, read once.

    Attributes:
        folder: where it is.
        form: what its tables are made of.
        reports: as they were graded, by the submission's name.
        made: the decisions, void ones too.
        shown: the reports with what was decided.
        students: by the submission that counts for them.
        dates: None where none is set.
    """

    folder: Path
    form: Form
    reports: dict[str, KeptReport]
    made: list[Decision]
    shown: dict[str, KeptReport]
    students: dict[str, list[grades.Counted]]
    dates: lateness.Dates | None

    @property
    def counted(self) -> list[grades.Graded]:
        """The submissions that count for anybody, with the report shown."""
        return [(own[0].handed, own[0].report) for own in self.students.values()]


def read(folder: Path) -> Class:
    """Return a folder of results; raises UnusableSubmission."""
    form = form_of(folder)
    kept, made = reports(folder, form), decisions.read(folder)
    shown = decided(kept, made)
    known = course()
    said = folder / staff_dates.EXTENSIONS, folder / staff_dates.TIMES
    dated = staff_dates.dated(form.handed, form.due or known.due, known.late, *said)
    form = replace(form, handed=dated.handed)
    graded = [(one, shown[one.name]) for one in form.handed if one.name in shown]
    students: dict[str, list[grades.Counted]] = {}
    for one in grades.by_person(graded, form.pick, dated.dates):
        students.setdefault(one.handed.name, []).append(one)
    return Class(folder, form, kept, made, shown, students, dated.dates)


@dataclass(frozen=True)
class Written:
    """What the tables lack: submissions without a report or a whole grade, students whom the import forms leave out.

    And what they say of lateness, in a line.
    """

    n_handed: int
    waiting: tuple[str, ...]
    failed: dict[str, KeptReport]
    left_out: tuple[str, ...]
    grades: Path
    lateness: str


def write(folder: Path, form: Form) -> Written:
    """Write the tables, under names that say so where they are not complete.

    Where decisions cannot be read raises UnusableSubmission, and leaves them.
    """
    files.replace(folder / FILE, form.as_json())
    whole = read(folder)
    waiting = tuple(one.name for one in form.handed if one.name not in whole.shown)
    graded = [(one, whole.shown.get(one.name) or results.waiting()) for one in whole.form.handed]
    counted = grades.by_person(graded, form.pick, whole.dates)
    students, left_out = grades.importable(counted)
    made = {
        "grades": grades.as_csv(grades.rows(counted)),
        "gradescope": grades.gradescope(students, whole.dates is not None),
        "canvas": grades.canvas(students, form.assignment),
    }
    kept, stale = (INCOMPLETE, ".csv") if waiting else (".csv", INCOMPLETE)
    for name, content in made.items():
        files.replace(folder / f"{name}{kept}", content)
        (folder / f"{name}{stale}").unlink(missing_ok=True)
    failed = {name: report for name, report in whole.reports.items() if "failed" in report}
    late = lateness.told(one.late for one in counted if one.late)
    return Written(len(form.handed), waiting, failed, tuple(dict.fromkeys(left_out)), folder / f"grades{kept}", late)
