"""`python -m assignment.classroom`: grade a class, and make something of the results.

Exit status: 0 done, 1 some submissions got no grade (each has an entry that says why) or wait for a decision, 2 the
arguments cannot be used, 130 interrupted: the same command goes on from there.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence

from rich.console import Console

from assignment import text
from assignment.classroom import (
    class_report,
    classroom50,
    compare,
    grade,
    gradescope,
    leaderboard,
    reproduce,
    review,
    similar,
)
from assignment.scoring.checks import PointsDiffer
from assignment.submission import UnusableSubmission

COMMANDS = (grade, class_report, review, similar, leaderboard, compare, reproduce, gradescope, classroom50)
UNUSABLE, INTERRUPTED = 2, 130
MADE = "made"  # is no part of this, but a test of it


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command's options, its function among them as `run`."""
    parser = argparse.ArgumentParser(prog="python -m assignment.classroom", description="Grade a class.")
    commands = parser.add_subparsers(dest="command", required=True)
    for command in COMMANDS:
        command.add(commands)
    commands.add_parser(MADE, help="make a class to try this on: variants, bugs, cheats, copies, broken zips")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is asked for; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == [MADE]:
        return subprocess.call([sys.executable, "-m", "assignment.bank", *given])
    options = parse_arguments(given)
    try:
        return int(options.run(options, Console(highlight=False, soft_wrap=True)))
    except (UnusableSubmission, PointsDiffer) as error:
        print(f"classroom: {text.clean(str(error))}", file=sys.stderr)
        return UNUSABLE
    except KeyboardInterrupt:
        print("classroom: interrupted; the same command goes on with what is missing", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    raise SystemExit(main())
