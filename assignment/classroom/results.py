"""What has been graded: a folder of reports and logs, one a submission, written whole or not at all.

class.toml         the seed, and what every submission is graded with
reports/NAME.json  as `grade.py --json` writes it, with who handed in what under "classroom"
logs/NAME.txt      what `grade.py` prints
sources/NAME.zip   what was graded
tables.json        who has handed in what, and how the grades are made of it: see tables.py
decisions.toml     what staff have decided: see decisions.py
extensions.csv, times.csv  what staff say of dates: see staff_dates.py
grades.csv         a row a student
"""

import datetime
import functools
import hashlib
import json
import subprocess
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path

from assignment.classroom import COMMAND
from assignment.classroom.handed_in import Handed, Person
from assignment.classroom.kept import GradingEntry, HandedEntry, KeptReport
from assignment.commands.files import replace
from assignment.commands.settings import DEVICES, SANDBOXES, Settings
from assignment.digest import grader_digest
from assignment.judge import seeds
from assignment.submission import Submission, UnusableSubmission, pack
from assignment.verdict import checks

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = "class.toml"
FOLDERS = ("reports", "logs", "sources")


@dataclass(frozen=True)
class ClassSettings:
    """What a class is graded with: a seed that is drawn once and published nowhere, and options of grade.py."""

    seed: int
    device: str = "auto"
    sandbox: str = "auto"
    only: tuple[str, ...] = ()

    @property
    def options(self) -> str:
        """What is chosen of them, as it is given to `grade`."""
        only = f" --only {' '.join(self.only)}" if self.only else ""
        return f"--device {self.device} --sandbox {self.sandbox}{only}"

    @property
    def of_a_grade(self) -> Settings:
        """What grade.py is asked for: a report for others, by one process."""
        to = Path("report.json")
        return Settings(seed=self.seed, device=self.device, sandbox=self.sandbox, only=self.only, jobs=1, json=to)

    def text(self) -> str:
        """Return the settings as TOML."""
        only = ", ".join(json.dumps(name) for name in self.only)
        return (
            "# Who knows the seed knows the inputs: keep it until the grades are final.\n"
            f"seed = {self.seed}\ndevice = {json.dumps(self.device)}\nsandbox = {json.dumps(self.sandbox)}\n"
            f"only = [{only}]\n"
        )


def known(folder: Path) -> ClassSettings:
    """Return the settings of a folder of results; raises UnusableSubmission."""
    path = folder / SETTINGS
    try:
        kept = tomllib.loads(path.read_text(encoding="utf-8"))
        if int(kept["seed"]) < 0 or kept["device"] not in DEVICES or kept["sandbox"] not in SANDBOXES:
            raise ValueError("seed, device or sandbox is none that `grade` takes")
        return ClassSettings(int(kept["seed"]), kept["device"], kept["sandbox"], tuple(kept["only"]))
    except FileNotFoundError:
        wanted = f"expected a folder that `{COMMAND} grade` has made"
        raise UnusableSubmission(f"{folder}: holds no {SETTINGS}; {wanted}") from None
    except (OSError, KeyError, TypeError, ValueError) as error:
        told = f"{path} cannot be read: {error}; mend it, or take a new folder"
        raise UnusableSubmission(told) from error


def opened(folder: Path, device: str, sandbox: str, only: tuple[str, ...]) -> ClassSettings:
    """Return the settings of a folder of results, which is made where there is none.

    Raises:
        UnusableSubmission: the folder holds other things, or results of other options.
    """
    path = folder / SETTINGS
    asked = ClassSettings(seeds.new_seed(), device, sandbox, only)
    if not path.exists():
        if folder.exists() and any(folder.iterdir()):
            raise UnusableSubmission(f"{folder}: not empty, and no results; expected a new folder")
        for name in FOLDERS:
            (folder / name).mkdir(parents=True, exist_ok=True)
        replace(path, asked.text().encode())
        return asked
    kept = known(folder)
    if (kept.device, kept.sandbox, kept.only) != (device, sandbox, only):
        raise UnusableSubmission(f"{path}: these results are of {kept.options}; give the same options, or a new folder")
    return kept


def commit() -> str:
    """Return the grader's commit, with a + where files have changed since; "" outside of a repository."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def key(submission: Submission, settings: ClassSettings) -> str:
    """Return what a report is of: it is graded anew where the submission, the grader or the settings have changed."""
    of = f"{submission.sha256} {grader_digest()} {checks.worth()} --seed {settings.seed} {settings.options}"
    return hashlib.sha256(of.encode()).hexdigest()[:32]


class Results:
    """The reports of a class."""

    def __init__(self, folder: Path, settings: ClassSettings) -> None:
        self.folder, self.settings = folder, settings

    @functools.cached_property
    def _commit(self) -> str:
        return commit()

    def _report(self, handed: Handed) -> Path:
        return self.folder / "reports" / f"{handed.name}.json"

    def of(self, handed: Handed) -> KeptReport | None:
        """Return the report of a submission; None where there is none that can be read."""
        try:
            found: KeptReport = json.loads(self._report(handed).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        is_kept = isinstance(found, dict) and isinstance(found.get("classroom"), dict)
        return found if is_kept else None

    def is_done(self, handed: Handed, of: str) -> bool:
        """Return whether a submission has a report under this key."""
        report = self.of(handed)
        return report is not None and report["classroom"].get("key") == of

    def keep(self, handed: Handed, of: str, report: KeptReport, log: str, submission: Submission | None = None) -> None:
        """Write the report of a submission, after its log and its files."""
        about: GradingEntry = {
            "key": of,
            **as_data(handed),
            "sha256": submission.sha256 if submission else "",
            "grader": self._commit,
            "graded": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        }
        if submission:
            (self.folder / "sources").mkdir(exist_ok=True)
            replace(self.folder / "sources" / f"{handed.name}.zip", pack(submission))
        replace(self.folder / "logs" / f"{handed.name}.txt", log.encode(errors="replace"))
        replace(self._report(handed), json.dumps({**report, "classroom": about}, indent=1).encode())


def as_data(handed: Handed) -> HandedEntry:
    """Return who handed in what, as plain data."""
    return {
        "student": handed.student,
        "attempt": handed.attempt,
        "people": [asdict(person) for person in handed.people],
        "submitted": handed.submitted.isoformat() if handed.submitted else "",
        "time_from": handed.time_from,
        "is_late": handed.is_late,
        "source": str(handed.path),
    }


def from_data(data: HandedEntry) -> Handed:
    """Return what as_data was made of, to be read no more; raises KeyError, TypeError, ValueError."""
    when = data["submitted"]
    return Handed(
        str(data["student"]),
        Path(data["source"]),
        attempt=int(data["attempt"]),
        submitted=datetime.datetime.fromisoformat(when) if when else None,
        time_from=str(data.get("time_from", "")),
        is_late=bool(data["is_late"]),
        people=tuple(Person(**person) for person in data["people"]),
    )


def waiting() -> KeptReport:
    """Return what stands for the report of a submission that has not been graded yet."""
    return {**failed("not graded yet: `grade` was interrupted; give the same command again"), "waiting": True}


def failed(message: str) -> KeptReport:
    """Return the report of a submission that got no grade, shaped as others are."""
    return {"score": None, "max_score": None, "problems": [], "practice": [], "failed": message}
