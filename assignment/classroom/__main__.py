"""`python -m assignment.classroom`: grade a class, and make something of the results.

Exit status: 0 done, 1 some submissions got no grade (each has an entry that says why) or wait for a decision, 2 the
arguments cannot be used, 130 interrupted: the same command goes on from there.
"""

import argparse
import datetime
import functools
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from assignment import text
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
from assignment.course import CourseError, course
from assignment.submission import UnusableSubmission

UNUSABLE, INTERRUPTED = 2, 130
MADE = "made"  # is no part of this, but a test of it
ZONED, UTC = "2026-11-30T23:59+01:00", "2026-11-30T22:59Z"
RESULTS = "the folder that `grade --to` has made"
New = Callable[[str, Callable[..., int], str], argparse.ArgumentParser]


def parsed(arguments: Sequence[str]) -> Callable[[Console], int]:
    """Return the function of a command, which has the values of its options as keyword arguments."""
    parser = argparse.ArgumentParser(prog="python -m assignment.classroom", description="Grade a class.")
    commands = parser.add_subparsers(dest="command", required=True)

    def new(name: str, run: Callable[..., int], what: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=what)
        command.set_defaults(run=run)
        return command

    _add_grade(new)
    _add_pages(new)
    _add_second_looks(new)
    _add_autograders(new)
    commands.add_parser(MADE, help="make a class to try this on: variants, bugs, cheats, copies, broken zips")
    given = vars(parser.parse_args(arguments))
    del given["command"]
    return functools.partial(given.pop("run"), **given)


def _add_grade(new: New) -> None:
    what = "grade every submission of a folder; again: only what is missing"
    parser = new("grade", lambda console, **options: grade.run(console, grade.ClassGrade(**options)), what)
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
    due = f"count late days from here, such as {ZONED} (default: the date in course.toml)"
    parser.add_argument("--due", type=_time, metavar="TIME", help=due)
    extensions = "students and their new dates or days, as CSV; kept for later runs"
    parser.add_argument("--extensions", type=Path, metavar="FILE", help=extensions)
    times = "submissions and when they were handed in, where no platform tells; kept for later runs"
    parser.add_argument("--times", type=Path, metavar="FILE", help=times)
    parser.add_argument("--roster", type=Path, metavar="FILE", help="Canvas's gradebook or Gradescope's roster, as CSV")
    parser.add_argument("--strict", action="store_true", help="end where it is in doubt who has handed in what")
    parser.add_argument("--pick", choices=grades.PICKED, default="best", help="which of several submissions counts")
    title = grades.plain(course().title)
    parser.add_argument("--assignment", type=_heading, default=title, help="its column in Canvas's form")


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


def _add_pages(new: New) -> None:
    report = new("report", class_report.run, "a page on the class, and one for each student")
    report.add_argument("results", type=Path, help=RESULTS)
    report.add_argument("--title", default=course().heading, help="above the page")
    report.add_argument("--price", type=float, metavar="P", help="of an hour of one grader")
    reviewed = new("review", review.run, "what needs a person, and what was decided")
    reviewed.add_argument("results", type=Path, help=RESULTS)
    decided = "set the points of a problem, or of `total`"
    reviewed.add_argument("--decide", nargs=3, metavar=("NAME", "PROBLEM", "POINTS"), help=decided)
    reviewed.add_argument("--reason", default="", help="of the decision; the student may read it")
    reviewed.add_argument("--by", default="", help="who has decided")
    alike = new("similar", similar.run, "show passages that two submissions share, and the class does not")
    alike.add_argument("results", type=Path, help="what `grade --to` wrote")
    more = "more code that all have been given: folders, Python or Markdown files"
    alike.add_argument("--given", type=Path, nargs="+", default=[], metavar="PATH", help=more)
    alike.add_argument("--limit", type=float, default=batch.LIMIT_S, metavar="S", help="seconds for all of it")
    alike.add_argument("--to", type=Path, metavar="FILE.html", help="the page (default: RESULTS/similar.html)")
    board = new("leaderboard", leaderboard.run, "a page of speed beside the baselines")
    board.add_argument("results", type=Path, help=RESULTS)
    board.add_argument("--to", type=Path, metavar="FILE", help=f"default: RESULTS/{leaderboard.PAGE}")
    board.add_argument("--title", default=course().heading, help="above the page")
    names = f"for names: RESULTS/{leaderboard.PSEUDONYMS}"
    board.add_argument("--pseudonyms", action="store_true", dest="is_pseudonymous", help=names)


def _add_second_looks(new: New) -> None:
    change = new("compare", compare.run, "say what a change of the grader does to grades, student by student")
    change.add_argument("results", type=Path, help="the new results")
    change.add_argument("old", type=Path, help="the ones before")
    again = new("reproduce", reproduce.run, "grade once more as a report says, alone, and compare")
    which = "RESULTS/reports/NAME.json, any file of grade.py --json, or RESULTS with --sample"
    again.add_argument("reports", type=Path, nargs="+", metavar="REPORT", help=which)
    again.add_argument("--submission", type=Path, metavar="PATH", help="of one report: a folder or zip")
    again.add_argument("--check", metavar="NAME", help="keep all that this check shows, the recorded program with it")
    again.add_argument("--sample", type=int, metavar="N", help="of a class's reports: N that the seed draws")
    again.add_argument("--seed", type=int, default=0, help="of the sample (default: 0)")


def _add_autograders(new: New) -> None:
    packed = new("gradescope", gradescope.run, "pack an autograder for Gradescope, from the last commit")
    packed.add_argument("--to", type=Path, required=True, metavar="autograder.zip", help="the file to upload")
    packed.add_argument("--seed", type=int, help="one for all (default: a fresh one for each submission)")
    seen = "when students see the tests"
    packed.add_argument("--visibility", choices=gradescope.VISIBILITIES, default="visible", help=seen)
    packed.add_argument("--minutes", type=float, default=38.0, help="for one submission, less than Gradescope's")
    runner = new("classroom50", classroom50.run, "write an autograder.py for Classroom 50")
    runner.add_argument("--grader", required=True, metavar="OWNER/NAME@COMMIT", help="a published student release")
    runner.add_argument("--to", type=Path, required=True, metavar="autograder.py", help="the file to write")


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is asked for; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == [MADE]:
        return subprocess.call([sys.executable, "-m", "assignment.bank", *given])
    try:
        return parsed(given)(Console(highlight=False, soft_wrap=True))
    except (UnusableSubmission, CourseError) as error:
        print(f"classroom: {text.clean(str(error))}", file=sys.stderr)
        return UNUSABLE
    except KeyboardInterrupt:
        print("classroom: interrupted; the same command goes on with what is missing", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    raise SystemExit(main())
