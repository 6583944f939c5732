"""`classroom50 --grader OWNER/NAME@COMMIT --to autograder.py`: what Classroom 50 runs for each submission."""

from pathlib import Path

from rich.console import Console

from assignment import release
from assignment.commands.files import replace
from assignment.submission import UnusableSubmission

TEMPLATE = Path(__file__).with_name("github") / "autograder.py"


def run(console: Console, grader: str, to: Path) -> int:
    """Write the file; returns the exit status."""
    try:
        replace(to, release.pinned(TEMPLATE.read_bytes(), grader))
    except (release.ReleaseError, OSError) as error:
        raise UnusableSubmission(str(error)) from error
    console.print(f"{to}: put it at CLASSROOM/autograders/ASSIGNMENT/ of your classroom50 repository")
    console.print('and give the assignment the runtime {"python": "3.12"}')
    return 0
