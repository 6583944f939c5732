"""`python -m assignment.retire NAME`: remove an operator's folders, stub and chapter.

Refused, with file and line, as long as the course counts its points or something else builds on it.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from assignment.course import FILE, CourseError
from assignment.new import names
from assignment.new.names import CHAPTER, OperatorError
from assignment.release import ROOT
from assignment.verdict import checks
from tests import operators

RESULTS = "assignment/bank/results.md"
SAID = r"""\s*["']?{}["']?\s*="""  # of a problem, in the course's file
SEARCHED, SEARCHED_IN = ("*.py", "*.md", "*.toml", "*.txt"), ("tests", "assignment", "cs336_kernels", "handout")


def retire(name: str, root: Path = ROOT) -> tuple[list[str], list[str]]:
    """Remove an operator; return what was removed, and the lines that still name it. Raises OperatorError."""
    operator = names.existing(name)
    if reasons := [*graded(operator, root), *built_on(operator, root)]:
        listed = "".join(f"\n  {reason}" for reason in reasons)
        raise OperatorError(f"expected an operator that nothing needs, got {name}; change these first:{listed}")
    removed = names.remove(name, operator.file, root)
    forget(operator, root)
    return removed, [*named(operator, root)]


def graded(operator: operators.Operator, root: Path) -> Iterator[str]:
    """Yield where the course counts its points."""
    text = (root / FILE).read_text(encoding="utf-8-sig") if (root / FILE).exists() else ""
    for problem in (one.name for one in operator.problems):
        if problem in checks.problems() and not checks.is_practice(problem):
            lines = enumerate(text.splitlines(), start=1)
            at = next((f":{number}" for number, line in lines if re.match(SAID.format(problem), line)), "")
            points = f"{checks.problems()[problem].points:g} points"
            yield f'{FILE}{at}: {problem} has {points} there; {problem} = "off" leaves it out'


def built_on(operator: operators.Operator, root: Path) -> Iterator[str]:
    """Yield the lines of other files that import the operator, or lead to its chapter."""
    chapter = CHAPTER.format(operator.name)
    link = re.compile(rf"\]\((?:handout/)?{operator.name}\.md[#)]")
    for path, text in others(operator, root):
        lines = {}
        if path.suffix == ".py":
            lines = {at: f"imports {module}" for at, module in imports(path, text, operator, root)}
        elif path.suffix == ".md":
            numbered = enumerate(text.splitlines(), start=1)
            lines = {at: f"leads to {chapter}" for at, line in numbered if link.search(line)}
        yield from (f"{path.relative_to(root)}:{at}: {what}" for at, what in sorted(lines.items()))


def others(operator: operators.Operator, root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files that are not the operator's own and have its name in them, and their text."""
    own = [root / place for place in names.places(operator.name, operator.file)]
    found = [path for kind in SEARCHED for place in SEARCHED_IN for path in (root / place).rglob(kind)]
    for path in sorted([*found, *(path for kind in SEARCHED for path in root.glob(kind))]):
        if path.is_file() and not path.is_symlink() and not any(path == one or one in path.parents for one in own):
            text = path.read_text(encoding="utf-8", errors="replace")
            if operator.name in text:
                yield path, text


def imports(path: Path, text: str, operator: operators.Operator, root: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that import one of the operator's modules, and its name."""
    own = [place.removesuffix(".py").replace("/", ".") for place in names.places(operator.name, operator.file)]
    package = path.relative_to(root).parent.parts
    for node in ast.walk(ast.parse(text)):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            modules = [".".join([*base, *filter(None, [node.module]), alias.name]) for alias in node.names]
        for module in modules:
            if any(f"{module}.".startswith(f"{one}.") for one in own):
                yield node.lineno, module  # type: ignore[attr-defined]


def forget(operator: operators.Operator, root: Path) -> None:
    """Take the lines that are an operator's own out of the page of results and the course's file."""
    for problem in (one.name for one in operator.problems):
        without(SAID.format(problem), root / FILE)
        without(rf"\| {problem} \||- {problem}[/_]", root / RESULTS)


def without(pattern: str, path: Path) -> None:
    """Take the lines that begin like a pattern out of a file."""
    if path.exists():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        if (kept := [line for line in lines if not re.match(pattern, line)]) != lines:
            path.write_text("".join(kept), encoding="utf-8")


def named(operator: operators.Operator, root: Path) -> Iterator[str]:
    """Yield the lines that still name an operator, its files or its functions, by more than a word of prose."""
    longer = "|".join(one.name for one in operator.functions if one.name != operator.name) or "$^"
    word = re.compile(rf"[\"'/]{operator.name}(?=[\"'/.:])|\b(test_{operator.name}|{longer})\b")
    for path, text in others(operator, root):
        found = (at for at, line in enumerate(text.splitlines(), start=1) if word.search(line))
        yield from (f"{path.relative_to(root)}:{at}" for at in found)


def parse_arguments(arguments: list[str] | None = None) -> str:
    """Return the operator's name."""
    parser = argparse.ArgumentParser(prog="python -m assignment.retire", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", metavar="NAME", help="of the operator, as --list shows it")
    name: str = parser.parse_args(arguments).name
    return name


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    try:
        removed, left = retire(parse_arguments(arguments), root)
    except (OperatorError, CourseError) as error:
        print(f"retire: {error}\nnothing was removed", file=sys.stderr)
        return 2
    print(f"removed {', '.join(removed)}")
    if left:
        print("it is still named in", *left, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
