"""`python grade.py`: what its arguments ask for. Grading itself is in run.py.

Exit status: 0 graded, 1 graded below --fail-under, 2 unusable arguments or submission, 3 the grader failed.
This module loads no package before --doctor is answered, which is for machines where packages are missing or broken.
"""

import argparse
import io
import sys
import traceback
from pathlib import Path

from assignment import failure
from assignment.commands import doctor
from assignment.commands.settings import DEVICES, SANDBOXES, Settings
from assignment.simulator import kept_triton

MAX_DIGITS = 40  # of a number: a seed has 20


def parse_arguments(arguments: list[str]) -> Settings:
    """Return what is asked for; what is left out is as Settings has it."""
    parser = argparse.ArgumentParser(
        prog="grade.py",
        description="Grade the kernels in cs336_kernels/. Works without a GPU: kernels run in a simulator.",
        epilog="exit status: 0 graded, 1 below --fail-under, 2 nothing to grade, 3 the grader failed",
        argument_default=argparse.SUPPRESS,
    )
    path = "folder or zip that holds cs336_kernels/ (default: here)"
    parser.add_argument("path", nargs="?", type=Path, default=Path(), help=path)
    work = parser.add_argument_group("at work")
    work.add_argument("--next", action="store_true", help="show the first check that is not finished, and stop there")
    work.add_argument("--watch", action="store_true", help="run again on every save; a failing case keeps its inputs")
    only = "problems, functions, files or checks: see --list"
    work.add_argument("--only", nargs="+", action="extend", metavar="NAME", default=[], help=only)
    begun = "grade the practice that you have begun, too (default: only what --only names)"
    work.add_argument("--practice", action=argparse.BooleanOptionalAction, default=False, help=begun)
    work.add_argument("--explain", metavar="CHECK", help="show all that a check says, and its section of the handout")
    work.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="write the report as a page, with --watch on each save; with --explain what the failing launch does",
    )
    work.add_argument("--seed", type=_natural, help="replay the inputs of an earlier run (default: a fresh seed)")
    work.add_argument("--inline", action="store_true", help="run the submission in this process, for a debugger")
    work.add_argument("--list", action="store_true", help="list the problems and checks with their points, and stop")
    work.add_argument("--pack", action="store_true", help="write submission.zip, the file to hand in, and stop")
    work.add_argument("--doctor", action="store_true", help="say what this machine lacks, and stop")
    gpu = parser.add_argument_group("with a GPU")
    gpu.add_argument("--device", choices=DEVICES, help="where kernels run")
    ranks = "play calls on up to N ranks there too, a process for each (default: in the simulator alone)"
    gpu.add_argument("--ranks", type=_natural, metavar="N", default=0, help=ranks)
    gpu.add_argument("--bench", action="store_true", help="time it beside its peers, and stop")
    gpu.add_argument("--csv", type=Path, metavar="FILE", help="with --bench: write every timing")
    gpu.add_argument("--plot", type=Path, metavar="FILE.png", help="with --bench: write pictures")
    staff = parser.add_argument_group("to grade what others wrote")
    staff.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON")
    staff.add_argument("--junit", type=Path, metavar="FILE", help="write the report as JUnit XML")
    staff.add_argument("--markdown", type=Path, metavar="FILE", help="write the report as Markdown")
    staff.add_argument("--fail-under", type=float, metavar="N", help="exit with status 1 below N points")
    staff.add_argument("--jobs", type=_natural, help="processes that judge (default: one a core)")
    staff.add_argument("--sandbox", choices=SANDBOXES, help="where it runs (default: the best)")
    given = vars(parser.parse_args(arguments))
    return Settings(**{**given, "only": tuple(name for names in given["only"] for name in names.split(","))})


def _natural(text: str) -> int:
    if not text.isdecimal() or len(text) > MAX_DIGITS:
        raise argparse.ArgumentTypeError(f"expected a natural number of up to {MAX_DIGITS} digits, got {text[:50]!r}")
    return int(text)


def main(arguments: list[str] | None = None) -> int:
    settings = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # in the C locale a × must not cost the score
            stream.reconfigure(errors="replace")
    try:
        return answer(settings)
    except Exception:  # exit status 1, which Python would give it, means graded
        return failure.tell([traceback.format_exc()])


def answer(settings: Settings) -> int:
    """Do what is asked for; returns the exit status."""
    if settings.doctor:
        return doctor.main()
    try:
        from assignment.commands import main as commands  # loads packages

        kept_triton.fetch_if_missing()
    except kept_triton.NotFetched as error:
        print(f"grade.py: {error}", file=sys.stderr)
        return doctor.NOT_READY
    except ImportError as error:
        print(f"grade.py: cannot start: {error}; see python grade.py --doctor", file=sys.stderr)
        return doctor.NOT_READY
    return commands.main(settings)
