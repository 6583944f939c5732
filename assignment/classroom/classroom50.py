"""`classroom50 --grader OWNER/NAME@COMMIT --to autograder.py`: what Classroom 50 runs for each submission."""

import argparse
from pathlib import Path

from rich.console import Console

from assignment import release
from assignment.commands.files import replace
from assignment.submission import UnusableSubmission

TEMPLATE = Path(__file__).with_name("github") / "autograder.py"


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this command to the command line."""
    classroom50 = commands.add_parser("classroom50", help="write an autograder.py for Classroom 50")
    classroom50.set_defaults(run=run)
    classroom50.add_argument("--grader", required=True, metavar="OWNER/NAME@COMMIT", help="a published student release")
    classroom50.add_argument("--to", type=Path, required=True, metavar="autograder.py", help="the file to write")


def run(options: argparse.Namespace, console: Console) -> int:
    """Write the file; returns the exit status."""
    try:
        replace(options.to, release.pinned(TEMPLATE.read_bytes(), options.grader))
    except (release.ReleaseError, OSError) as error:
        raise UnusableSubmission(str(error)) from error
    console.print(f"{options.to}: put it at CLASSROOM/autograders/ASSIGNMENT/ of your classroom50 repository")
    console.print('and give the assignment the runtime {"python": "3.12"}')
    return 0
