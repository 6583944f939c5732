"""Count the lines of practice operators, as `python -m assignment.attacks.lines` prints them.

Checks, models, oracle, misconceptions, bugs, peers, cheats and workload: not the solution and its stub, the base that
bugs edit, right variants, the record and the chapter.
"""

from collections.abc import Iterator
from pathlib import Path

from assignment.attacks.bugs import OPERATORS
from tests import operators

MOST = 700
APART = {"solution.py", "record.py"}
FOLDERS_APART = {"base", "variants"}


def main() -> int:
    """Print what each operator takes, by file; returns the exit status."""
    for operator in operators.operators():
        if operator.is_practice:
            counts = counted(operator.name)
            print(f"{operator.name}: {sum(counts.values())} of {MOST}")
            print(*(f"  {count:4}  {name}" for name, count in counts.items() if count), sep="\n")
    return 0


def counted(operator: str) -> dict[str, int]:
    """Return the lines of each file that counts."""
    return {
        path.relative_to(OPERATORS.parents[1]).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in _files(operator)
    }


def _files(operator: str) -> Iterator[Path]:
    for folder in (operators.HERE / operator, OPERATORS / operator):
        for path in sorted(folder.rglob("*.py")):
            if path.name not in APART and not FOLDERS_APART & set(path.relative_to(folder).parts):
                yield path


if __name__ == "__main__":
    raise SystemExit(main())
