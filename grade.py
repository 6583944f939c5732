"""Grade cs336_kernels/: `uv run grade.py --help`."""

import sys

if not (3, 11) <= sys.version_info[:2] <= (3, 14):
    said = "grade.py: expected Python 3.11 to 3.14, got %d.%d; uv brings the right one: uv run grade.py"
    print(said % sys.version_info[:2], file=sys.stderr)
    raise SystemExit(2)

try:
    from assignment.commands import cli, interruption
except Exception as error:  # exit status 1, which Python would give it, means graded
    print(f"grade.py: the grader is not whole: {type(error).__name__}: {error}; get its files again", file=sys.stderr)
    raise SystemExit(3) from None

if __name__ == "__main__":  # and not a process of it that is started afresh
    interruption.install("grade.py: interrupted, no score; give the same command again")
    raise SystemExit(cli.main())
