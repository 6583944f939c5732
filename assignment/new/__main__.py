"""`python -m assignment.new NAME --like OTHER`: write an operator's folders, which work at once and are to be changed.

They are those of OTHER under another name, as practice, with one variant, one planted bug and one misconception.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from assignment.course import CourseError
from assignment.new import likeness, names
from assignment.new.names import OperatorError
from assignment.release import LINE_LENGTH, LINK, ROOT, STUBS, write_folder

NEXT = """\
{n} files of {name}, as {like} has them. Change the kernel, the oracle and its models; then

    uv run python -m assignment.release stubs           the stub, from the solution
    uv run grade.py assignment/reference --only {name}
    uv run python -m assignment.bank grade {name}       its bug and its variants
    uv run pytest

`uv run python -m assignment.retire {name}` takes all of it away again."""


def write(name: str, like: str, root: Path = ROOT) -> list[str]:
    """Write the files of a new operator, all of them or none, and return where; raises OperatorError."""
    model = names.model(like)
    names.check(name, model, root)
    tree = likeness.tree(model, name, root)
    try:
        write_folder(tree, root)
        tidy(name, [place for place, file in tree.items() if place.endswith(".py") and file.mode != LINK], root)
    except BaseException:
        names.remove(name, names.stub_of(name), root)
        raise
    return list(tree)


def tidy(name: str, places: list[str], root: Path) -> None:
    """Have ruff sort imports and break lines, which another name changes; raises OperatorError."""
    for command in (["check", "--fix", "--select", "I"], ["format"]):
        call = [sys.executable, "-m", "ruff", *command, "--quiet", "--no-cache", *places]
        done = subprocess.run(call, cwd=root, capture_output=True, text=True)
        if done.returncode:
            raise OperatorError(f"expected ruff to format {name}, got {done.stdout}{done.stderr}: try uv sync")
    for place in places:
        for number, line in enumerate((root / place).read_text(encoding="utf-8").splitlines(), start=1):
            if len(line) > LINE_LENGTH and not place.startswith(STUBS):
                long = f"{len(line)} in {place}, line {number}"
                raise OperatorError(f"expected lines of {LINE_LENGTH} letters, got {long}: choose a shorter name")


def parse_arguments(arguments: list[str] | None = None) -> tuple[str, str]:
    """Return the name of the new operator, and of the one that it is like."""
    parser = argparse.ArgumentParser(prog="python -m assignment.new", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "name", metavar="NAME", help="of the new operator, as in Python: small letters, such as soft_cap"
    )
    parser.add_argument("--like", metavar="OTHER", required=True, help="the operator that it begins as")
    options = parser.parse_args(arguments)
    return options.name, options.like


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    name, like = parse_arguments(arguments)
    try:
        made = write(name, like, root)
    except (OperatorError, CourseError) as error:
        print(f"new: {error}; nothing was written", file=sys.stderr)
        return 2
    print(NEXT.format(n=len(made), name=name, like=like))
    return 0


if __name__ == "__main__":
    sys.exit(main())
