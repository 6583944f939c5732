"""`python -m assignment.classroom`: grade a class, and make something of the results.

Exit status: 0 done, 1 some submissions got no grade (each has an entry that says why) or wait for a decision, 2 the
arguments cannot be used, 130 interrupted: the same command goes on from there.
"""

import subprocess
import sys
from collections.abc import Sequence

from rich.console import Console

from assignment import text
from assignment.classroom.cli import MADE, parsed
from assignment.scoring.checks import PointsDiffer
from assignment.submission import UnusableSubmission

UNUSABLE, INTERRUPTED = 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is asked for; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == [MADE]:
        return subprocess.call([sys.executable, "-m", "assignment.bank", *given])
    run = parsed(given)
    try:
        return run(Console(highlight=False, soft_wrap=True))
    except (UnusableSubmission, PointsDiffer) as error:
        print(f"classroom: {text.clean(str(error))}", file=sys.stderr)
        return UNUSABLE
    except KeyboardInterrupt:
        print("classroom: interrupted; the same command goes on with what is missing", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    raise SystemExit(main())
