"""What an operator may be called, and which one may be its model."""

import builtins
import importlib.util
import keyword
import os
import pkgutil
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import triton
import triton.language

from assignment import text
from assignment.release import REFERENCE, STUBS
from assignment.verdict import checks
from tests import operators

OTHERWISE = "choose another name"
FOLDERS = ("tests/{}", "assignment/operators/{}", "assignment/bank/operators/{}")
CHAPTER = "handout/{}.md"
TAKEN = (
    *FOLDERS,
    *(f"{folder}.py" for folder in FOLDERS),
    "cs336_kernels/{}.py",
    "cs336_kernels/practice/{}.py",
    CHAPTER,
)


class OperatorError(Exception):
    """A sentence for the person at the terminal: what was expected, what came, what to do next."""


def existing(name: str) -> operators.Operator:
    """Return the operator of this name; raises OperatorError."""
    found = {one.name: one for one in operators.operators()}
    if name in found:
        return found[name]
    near = text.nearest(name, found)
    meant = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(found)}"
    raise OperatorError(f"expected the name of an operator, got {name}: {meant}")


def model(name: str) -> operators.Operator:
    """Return the operator that a new one is to be like; raises OperatorError."""
    found = existing(name)
    if len(found.problems) > 1:
        several = ", ".join(problem.name for problem in found.problems)
        raise OperatorError(
            f"expected an operator of one problem, got {name}, which has {several}: "
            "choose a simpler one, and add the other functions by hand"
        )
    if all(function.gradients for function in found.functions):
        raise OperatorError(f"expected an operator with kernels of its own, got {name}: choose a simpler one")
    if others := [function.name for function in found.functions if name not in function.name]:
        raise OperatorError(f"expected functions named after {name}, got {', '.join(others)}: choose a simpler one")
    return found


def check(name: str, like: operators.Operator, root: Path) -> None:
    """Raise OperatorError unless an operator that is like another may have this name."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        expected = "small letters and digits, with single underscores between, and a letter first"
        raise OperatorError(f"expected a name of {expected}, got {name!r}: {OTHERWISE}, such as {like.name}_2")
    for reason in _objections(name, like, root):
        raise OperatorError(f"expected a name that is free, got {name}, which is {reason}: {OTHERWISE}")


def _objections(name: str, like: operators.Operator, root: Path) -> Iterator[str]:
    if keyword.iskeyword(name):
        yield "a keyword of Python's"
    if hasattr(builtins, name):
        yield "a function of Python's, which it would shadow"
    if name in sys.stdlib_module_names:
        yield "a module of Python's standard library, which it would shadow"
    if name in {module.name for module in pkgutil.iter_modules([*triton.__path__, *triton.language.__path__])}:
        yield "a module of Triton's, which it would shadow"
    yield from (f"taken by {path}" for place in TAKEN if (root / (path := place.format(name))).exists())
    if importlib.util.find_spec(name):
        yield "an installed package or a folder here, which it would shadow"
    taken = {*operators.functions(), *checks.problems()}
    yield from (
        f"the beginning of {one}, a function or problem" for one in sorted(taken) if f"{one}_".startswith(f"{name}_")
    )
    yield from (f"a word of {at}" for at in _used(name, like, root))


def _used(name: str, like: operators.Operator, root: Path) -> Iterator[str]:
    """Yield the lines of another operator's files that have a word."""
    for path in (path for folder in FOLDERS for path in sorted((root / folder.format(like.name)).rglob("*.py"))):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if re.search(rf"\b{name}\b", line):
                yield f"{path.relative_to(root)}, line {number}"


def stub_of(name: str) -> str:
    """Return the file of the submission that a new operator is in."""
    return f"{STUBS}practice/{name}.py"


def places(name: str, file: str) -> list[str]:
    """Return where an operator lies, whose file of the submission this is: what `new` writes and `retire` removes."""
    return [*(place.format(name) for place in (*FOLDERS, CHAPTER)), file, REFERENCE + file.removeprefix(STUBS)]


def remove(name: str, file: str, root: Path) -> list[str]:
    """Remove an operator; return what there was."""
    found = [place for place in places(name, file) if os.path.lexists(root / place)]
    for place in found:
        path = root / place
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return found
