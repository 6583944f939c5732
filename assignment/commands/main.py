"""What `grade.py` is asked to do: a grade, the next check, a list, a pack, a bench; its exit status."""

import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from rich.console import Console
from rich.text import Text

from assignment import failure, text
from assignment.commands import doctor, modes, report
from assignment.commands.run import GRADED, INTERRUPTED, UNUSABLE, device_name
from assignment.commands.settings import Settings
from assignment.course import CourseError
from assignment.judge.pool import pick_device
from assignment.sandbox import rungs
from assignment.sandbox.stage import Stage
from assignment.submission import Submission, UnusableSubmission, pack, read
from assignment.verdict import checks, practice

PACKED = "submission.zip"
PRACTICE = "Practice, in no sum: graded by name, or with --practice what has been begun"


def main(settings: Settings) -> int:
    """Do what the command line asks for; return the exit status."""
    console = report.Screen(highlight=False, soft_wrap=True)
    try:
        selected = checks.select(checks.declared(), settings.only) if settings.only else checks.declared()
    except ValueError as error:
        near = text.nearest(str(error), checks.names_of(checks.declared()))
        hint = f"did you mean {' or '.join(near)}?" if near else "see --list"
        print(f"grade.py: --only {error}: no such problem or check; {hint}", file=sys.stderr)
        return UNUSABLE
    except CourseError as error:
        return failure.tell([str(error)])
    if settings.list:
        print_list(console, selected)
        return GRADED
    try:
        _check(settings)
        submission = read(settings.path.absolute())
        selected = practice.checks_to_grade(selected, submission, settings.only, settings.practice)
        mode, selected = modes.choose(settings, selected)
        if settings.pack:
            return write_pack(console, submission)
        if settings.bench:
            return bench(settings, submission, console)
        return modes.start(settings, mode, selected, submission, console)
    except UnusableSubmission as error:
        print(f"grade.py: {text.clean(str(error))}", file=sys.stderr)
        return UNUSABLE
    except KeyboardInterrupt:
        print("grade.py: interrupted, no score; give the same command again", file=sys.stderr)
        return INTERRUPTED


def _check(settings: Settings) -> None:
    """Raise UnusableSubmission where this machine cannot do what is asked for."""
    if settings.device == "cuda" and pick_device("auto") != "cuda":
        raise UnusableSubmission("--device cuda: PyTorch finds no GPU here; leave the option out for the simulator")
    outputs = (settings.json, settings.junit, settings.markdown, settings.html, settings.csv, settings.plot)
    for path in filter(None, outputs):
        try:
            if not path.absolute().parent.is_dir():
                raise UnusableSubmission(f"{path}: cannot be written: no folder {path.absolute().parent}")
            if path.is_dir():
                raise UnusableSubmission(f"{path}: cannot be written: it is a folder; expected a file")
        except OSError as error:
            raise UnusableSubmission(f"{path}: cannot be written: {error.strerror}") from error
    if not settings.bench and (settings.csv or settings.plot):
        raise UnusableSubmission("--csv and --plot belong to --bench")
    if settings.bench and pick_device(settings.device) != "cuda":
        raise UnusableSubmission("--bench needs a GPU, and PyTorch finds none here")
    if settings.ranks and pick_device(settings.device) != "cuda":
        raise UnusableSubmission("--ranks needs a GPU, and PyTorch finds none here; the simulator has ranks without it")
    if settings.inline or settings.pack:
        return
    if unseen := _unseen():
        raise UnusableSubmission(
            f"{', '.join(unseen)}: only in a folder of PYTHONPATH, which processes that run submissions do not have; "
            "unset PYTHONPATH and run it by uv: uv run grade.py (first: pip install uv)"
        )
    try:
        rungs.choose(settings.sandbox, pick_device(settings.device))
    except rungs.Unavailable as error:
        raise UnusableSubmission(str(error)) from error


def _unseen() -> list[str]:
    """Return the packages that no folder has but those of PYTHONPATH outside of this Python."""
    named = {Path(entry).resolve() for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry}
    others = [entry for entry in sys.path if entry.startswith(sys.prefix) or Path(entry).resolve() not in named]
    return [name for name in doctor.named() if PathFinder.find_spec(name, others) is None] if named else []


def print_list(console: Console, selected: list[checks.Check]) -> None:
    """Print problems and checks in two groups: what is graded, and practice."""
    group, whole = "", sum(one.points for one in checks.problems().values() if not one.is_practice)
    for name, problem in checks.problems().items():
        own = [check for check in selected if check.problem == name]
        if own or name == checks.SPEED:
            group = _print_group(console, group, PRACTICE if problem.is_practice else f"The {whole:g} points")
            more = " of practice" if problem.is_practice else ""
            console.print(Text(f"{name}: {problem.title}, {problem.points:g} points{more}", "bold"))
        for check in own:
            console.print(Text(f"  {check.points:>4g}  {check.name}"))
            console.print(Text("\n".join(report.claim_lines(check.claim, 8))))


def _print_group(console: Console, before: str, group: str) -> str:
    """Print the heading of a group where it begins; returns the group."""
    if group != before:
        console.print(Text(f"\n{group}\n" if before else f"{group}\n"))
    return group


def write_pack(console: Console, submission: Submission) -> int:
    try:
        Path(PACKED).write_bytes(pack(submission))
    except OSError as error:
        raise UnusableSubmission(f"{PACKED}: cannot be written here: {error.strerror}") from error
    console.print(Text(text.clean(f"wrote {PACKED}: {', '.join(sorted(submission.files))}")))
    return GRADED


def bench(settings: Settings, submission: Submission, console: Console) -> int:
    """Time the submission beside its peers."""
    from assignment.timing import speed  # loads PyTorch

    console.print(Text(text.line(f"Timing {settings.path.absolute()} on {device_name('cuda')}")))
    stage = Stage(submission, "cuda")
    stage.is_endless = True
    session = speed.SpeedSession(stage, rungs.choose(settings.sandbox, "cuda"))
    try:
        speed.bench(session, console, settings.only, settings.csv, settings.plot)
    finally:
        session.close()
        stage.close()
    return GRADED
