"""The command line of `python -m assignment.classroom`, and which function each of its commands calls."""

import argparse
import datetime
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from assignment.classroom import (
    batch,
    class_report,
    classroom50,
    compare,
    grade,
    grades,
    gradescope,
    leaderboard,
    reproduce,
    review,
    similar,
)
from assignment.commands.settings import DEVICES, SANDBOXES

MADE = "made"  # is no part of this, but a test of it
ZONED, UTC = "2026-11-30T23:59+01:00", "2026-11-30T22:59Z"
RESULTS = "the folder that `grade --to` has made"


def parsed(arguments: Sequence[str]) -> Callable[[Console], int]:
    """Return the function of a command, which has the values of its options as keyword arguments."""
    parser = argparse.ArgumentParser(prog="python -m assignment.classroom", description="Grade a class.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (what, add, run) in COMMANDS.items():
        command = commands.add_parser(name, help=what)
        command.set_defaults(run=run)
        add(command)
    commands.add_parser(MADE, help="make a class to try this on: variants, bugs, cheats, copies, broken zips")
    given = vars(parser.parse_args(arguments))
    del given["command"]
    return functools.partial(given.pop("run"), **given)


def _grade(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("submissions", type=Path, help="Gradescope's export, Canvas's download, or a folder of folders")
    parser.add_argument("--to", type=Path, required=True, metavar="RESULTS", help="the folder of reports")
    parser.add_argument("--again", nargs="+", default=[], metavar="NAME", help="grade these students anew")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="problems: see grade.py --list")
    parser.add_argument("--device", choices=DEVICES, default="auto", help="where kernels run")
    parser.add_argument("--sandbox", choices=SANDBOXES, default="auto", help="default: the best")
    ray = "on a Ray cluster; local: of this machine, for the run"
    parser.add_argument("--ray", nargs="?", const="auto", metavar="ADDRESS", help=ray)
    parser.add_argument("--jobs", type=int, help="submissions at once (default: as cores and memory allow)")
    parser.add_argument("--limit", type=float, default=batch.LIMIT_S, metavar="S", help="seconds for one submission")
    parser.add_argument("--tag", default="", help="of git repositories: read this tag")
    parser.add_argument("--before", type=_time, metavar="TIME", help="of git repositories: the last commit before")
    parser.add_argument("--due", type=_time, metavar="TIME", help=f"count late days from here, such as {ZONED}")
    parser.add_argument("--roster", type=Path, metavar="FILE", help="Canvas's gradebook or Gradescope's roster, as CSV")
    parser.add_argument("--strict", action="store_true", help="end where it is in doubt who has handed in what")
    parser.add_argument("--pick", choices=grades.PICKED, default="best", help="which of several submissions counts")
    parser.add_argument("--assignment", type=_heading, default="CS336 kernels", help="its column in Canvas's form")


def _time(said: str) -> datetime.datetime:
    try:
        when = datetime.datetime.fromisoformat(said)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a time such as {ZONED}, got {said!r}") from None
    if when.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{said!r} names no zone; expected a time such as {ZONED} or {UTC}")
    return when


def _heading(said: str) -> str:
    if grades.plain(said) != said:
        raise argparse.ArgumentTypeError(f"{said!r} is a formula in a spreadsheet; expected a name without = + - @")
    return said


def _report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path, help=RESULTS)
    parser.add_argument("--title", default="CS336 kernels", help="above the page")
    parser.add_argument("--price", type=float, metavar="P", help="of an hour of one grader")


def _review(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path, help=RESULTS)
    decided = "set the points of a problem, or of `total`"
    parser.add_argument("--decide", nargs=3, metavar=("NAME", "PROBLEM", "POINTS"), help=decided)
    parser.add_argument("--reason", default="", help="of the decision; the student may read it")
    parser.add_argument("--by", default="", help="who has decided")


def _similar(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path, help="what `grade --to` wrote")
    more = "more code that all have been given: folders, Python or Markdown files"
    parser.add_argument("--given", type=Path, nargs="+", default=[], metavar="PATH", help=more)
    parser.add_argument("--limit", type=float, default=batch.LIMIT_S, metavar="S", help="seconds for all of it")
    parser.add_argument("--to", type=Path, metavar="FILE.html", help="the page (default: RESULTS/similar.html)")


def _leaderboard(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path, help=RESULTS)
    parser.add_argument("--to", type=Path, metavar="FILE", help=f"default: RESULTS/{leaderboard.PAGE}")
    parser.add_argument("--title", default="CS336 kernels", help="above the page")
    names = f"for names: RESULTS/{leaderboard.PSEUDONYMS}"
    parser.add_argument("--pseudonyms", action="store_true", dest="is_pseudonymous", help=names)


def _compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path, help="the new results")
    parser.add_argument("old", type=Path, help="the ones before")


def _reproduce(parser: argparse.ArgumentParser) -> None:
    which = "RESULTS/reports/NAME.json, any file of grade.py --json, or RESULTS with --sample"
    parser.add_argument("reports", type=Path, nargs="+", metavar="REPORT", help=which)
    parser.add_argument("--submission", type=Path, metavar="PATH", help="of one report: a folder or zip")
    parser.add_argument("--check", metavar="NAME", help="keep all that this check shows, the recorded program with it")
    parser.add_argument("--sample", type=int, metavar="N", help="of a class's reports: N that the seed draws")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default: 0)")


def _gradescope(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", type=Path, required=True, metavar="autograder.zip", help="the file to upload")
    parser.add_argument("--seed", type=int, help="one for all (default: a fresh one for each submission)")
    seen = "when students see the tests"
    parser.add_argument("--visibility", choices=gradescope.VISIBILITIES, default="visible", help=seen)
    parser.add_argument("--minutes", type=float, default=38.0, help="for one submission, less than Gradescope's")


def _classroom50(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--grader", required=True, metavar="OWNER/NAME@COMMIT", help="a published student release")
    parser.add_argument("--to", type=Path, required=True, metavar="autograder.py", help="the file to write")


Add = Callable[[argparse.ArgumentParser], None]
COMMANDS: dict[str, tuple[str, Add, Callable[..., int]]] = {
    "grade": (
        "grade every submission of a folder; again: only what is missing",
        _grade,
        lambda console, **options: grade.run(console, grade.ClassGrade(**options)),
    ),
    "report": ("a page on the class, and one for each student", _report, class_report.run),
    "review": ("what needs a person, and what was decided", _review, review.run),
    "similar": ("show passages that two submissions share, and the class does not", _similar, similar.run),
    "leaderboard": ("a page of speed beside the baselines", _leaderboard, leaderboard.run),
    "compare": ("say what a change of the grader does to grades, student by student", _compare, compare.run),
    "reproduce": ("grade once more as a report says, alone, and compare", _reproduce, reproduce.run),
    "gradescope": ("pack an autograder for Gradescope, from the last commit", _gradescope, gradescope.run),
    "classroom50": ("write an autograder.py for Classroom 50", _classroom50, classroom50.run),
}
