"""The tables of grades beside the results, made anew whenever a report or a decision has changed.

tables.json says what they are made of: who has handed in what, and which options of
`classroom grade` they follow.
"""

import datetime
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assignment.classroom import decisions, grades, results
from assignment.classroom.decisions import Decision
from assignment.classroom.handed_in import Handed
from assignment.commands.files import replace
from assignment.submission import UnusableSubmission

FILE = "tables.json"


@dataclass(frozen=True)
class Form:
    """What the tables are made of, beside the reports.

    Attributes:
        handed: the submissions of the class.
        pick: which of several of a student counts, a key of grades.PICKED.
        due: when late days begin.
        assignment: its name in Canvas's form.
    """

    handed: tuple[Handed, ...]
    pick: str = "best"
    due: datetime.datetime | None = None
    assignment: str = "CS336 kernels"

    def as_json(self) -> bytes:
        """Return it as JSON."""
        due = self.due.isoformat() if self.due else ""
        handed = [results.as_data(one) for one in self.handed]
        told = {"pick": self.pick, "due": due, "assignment": self.assignment, "handed": handed}
        return json.dumps(told, indent=1).encode()


def form_of(folder: Path) -> Form:
    """Return what the tables of a folder of results were made of; raises UnusableSubmission."""
    path = folder / FILE
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        due = datetime.datetime.fromisoformat(told["due"]) if told["due"] else None
        handed = tuple(map(results.from_data, told["handed"]))
        pick = {name: name for name in grades.PICKED}[told["pick"]]
        return Form(handed, pick, due, told["assignment"])
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        results.known(folder)  # says so where these are no results at all
        wanted = "run `classroom grade` again, which writes it"
        raise UnusableSubmission(f"{path} cannot be read: {error}; {wanted}") from error


def reports(folder: Path, form: Form) -> dict[str, dict[str, Any]]:
    """Return the reports of the class by the submission's name, as they were graded."""
    kept = results.Results(folder, results.known(folder))
    found = ((one.name, kept.of(one)) for one in form.handed)
    return {name: report for name, report in found if report is not None}


def decided(reports: dict[str, dict[str, Any]], made: list[Decision]) -> dict[str, dict[str, Any]]:
    """Return the reports with what was decided."""
    about = {name: decisions.about(made, name, report) for name, report in reports.items()}
    return {name: decisions.applied(report, about[name]) for name, report in reports.items()}


def write(folder: Path, form: Form) -> None:
    """Write the tables; where decisions cannot be read raises UnusableSubmission, and leaves them."""
    replace(folder / FILE, form.as_json())
    found = decided(reports(folder, form), decisions.read(folder))
    graded = [(one, found[one.name]) for one in form.handed if one.name in found]
    table = grades.rows(graded, form.pick, form.due)
    replace(folder / "grades.csv", grades.as_csv(table))
    replace(folder / "gradescope.csv", grades.gradescope(table))
    replace(folder / "canvas.csv", grades.canvas(table, form.assignment))
