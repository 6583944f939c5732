"""The corpora: every planted bug, correct variant and cheat as a whole submission, and what must come of it.

A variant is the base in another style, by edits, or a part: one file that defines some of the eleven functions, which
take the place of the base's. A bug is the base with a few edits. The base is frozen, so that an edit means tomorrow
what it means today.
"""

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from assignment.bank import bugs, cheats
from assignment.bank.operators import edits
from assignment.judge.pool import FUNCTIONS
from assignment.submission import REFERENCE, Submission, read
from assignment.verdict import checks
from tests import operators

BUG, VARIANT, CHEAT = "bug", "variant", "cheat"
PAYS = bugs.gathered("variants", "PAYS")  # of those right, and dearer than they must be: the checks of cost they lose
DOUBTED = bugs.named("variants", "DOUBTED")  # of those right: for staff to look at, with all points
RESPELLED = bugs.named("variants", "RESPELLED")  # of those right: graded with other bytes at the ends of lines, too
MARK = b"\xef\xbb\xbf"  # of UTF-8, which some editors write in front


@dataclass(frozen=True)
class Entry:
    """One submission of a corpus."""

    name: str  # "bugs/rmsnorm/eps after the root", "variants/rmsnorm_atomics"
    kind: str
    submission: Submission
    problems: tuple[str, ...]  # to be graded: those that its files can affect
    problem: str = ""  # of a bug: the one that must lose points
    caught_by: str = ""  # of a bug: the check that must fail
    pays: tuple[str, ...] = ()  # of a variant: the checks of cost that its style must lose
    is_doubted: bool = False  # whether a variant is for staff to look at
    line: str = ""  # of a bug in its accesses, computed elsewhere, or not compiled: what caught_by's message must quote
    named: tuple[str, ...] = ()  # of a bug: misconceptions or parts of the message, one of which must be told
    misuses_memory: bool = False
    cheat: cheats.Cheat | None = None

    @property
    def expectation(self) -> str:
        if self.cheat:
            return self.cheat.expectation
        if self.is_doubted:
            return "keeps every point, and needs review"
        if self.kind == VARIANT:
            return f"keeps every point but those of {', '.join(self.pays)}" if self.pays else "keeps every point"
        return f"fails {self.caught_by}"


@functools.cache
def graded() -> tuple[str, ...]:
    """Return the operators' problems that have points."""
    return tuple(name for name in operators.problems() if not checks.is_practice(name))


@functools.cache
def entries() -> tuple[Entry, ...]:
    """Return what the course has checks for, without the problems that it leaves out."""
    return tuple(own for entry in everything() if (own := _in_course(entry)))


def _in_course(entry: Entry) -> Entry | None:
    """Return what is left of an entry in this course."""
    there, names = checks.problems(), {check.name for check in checks.declared()}
    about = entry.cheat.problem if entry.cheat else entry.problem
    problems = tuple(name for name in entry.problems if name in there)
    if (about and about not in there) or (entry.caught_by and entry.caught_by not in names):
        return None
    return replace(entry, problems=problems) if problems or not entry.problems else None


@functools.cache
def everything() -> tuple[Entry, ...]:
    """Return what there is for any course: the reference and the base among the variants."""
    whole = {"reference": read(REFERENCE), "base": Submission(bugs.base())}
    variants = [Entry(f"variants/{name}", VARIANT, submission, graded()) for name, submission in whole.items()]
    variants += [entry for operator in operators.operators() for entry in (*_variants(operator), *styles(operator))]
    return (*variants, *(_bug(bug) for bug in bugs.all_bugs()), *map(_cheat, cheats.all_cheats()))


# Appended to the base's __init__.py: the part's functions take the place of the base's wherever these are called.
TAKE_OVER = """
import sys

from cs336_kernels import part

for _module in [module for name, module in sys.modules.items() if name.partition(".")[0] == "cs336_kernels"]:
    for _name in {functions}:
        if hasattr(_module, _name):
            setattr(_module, _name, getattr(part, _name))
"""


def _variants(operator: operators.Operator) -> Iterator[Entry]:
    """Yield what an operator has in variants/; of practice, which the reference has not, the solution too."""
    if operator.is_apart:
        problems = tuple(problem.name for problem in operator.problems)
        solution = Submission(bugs.base() | {operator.file: bugs.solution(operator)})
        yield Entry(f"variants/{operator.name}_solution", VARIANT, solution, problems)
    if (own := bugs.module_of(operator, "variants")) is not None:
        folder = Path(own.__path__[0])
        for path in sorted([*folder.glob("[!_]*.py"), *(file.parent for file in folder.glob("[!_]*/__init__.py"))]):
            yield _variant(operator, path.stem, part_of(path))
            if path.stem in RESPELLED:
                yield from _respelled(operator, path)


def styles(operator: operators.Operator) -> Iterator[Entry]:
    """Yield the styles of an operator's modules with PROBLEMS, FILES and STYLES: those of BANKS, or styles itself."""
    own = bugs.module_of(operator, "styles")
    for bank in getattr(own, "BANKS", [own] if own else []):
        for style in bank.STYLES:
            files = bugs.base(operator)
            those = {path: files[path] for path in (f"{bugs.PACKAGE}/{file}" for file in bank.FILES)}
            edited = edits.edited(those, style.edits, style.name)
            more = {f"{bugs.PACKAGE}/{name}": text.encode() for name, text in style.more}
            yield _right(style.name, files | edited | more, bank.PROBLEMS)


def part_of(path: Path) -> dict[str, bytes]:
    """Return the files of a variant by path in the package: one, or those of a folder."""
    if path.is_file():
        return {"part.py": path.read_bytes()}
    return {f"part/{file.relative_to(path).as_posix()}": file.read_bytes() for file in path.rglob("*.py")}


def _respelled(operator: operators.Operator, path: Path) -> Iterator[Entry]:
    """Yield a variant in the bytes that editors on other systems write."""
    windows = path.read_bytes().replace(b"\n", b"\r\n")
    for name, content in (("crlf", windows), ("mark", MARK + windows.rstrip())):
        yield _variant(operator, f"{path.stem}_{name}", {"part.py": content})


def _variant(operator: operators.Operator, name: str, part: dict[str, bytes]) -> Entry:
    files = bugs.base(operator)
    functions = sorted({name for content in part.values() for name in defined(content) if name in FUNCTIONS})
    if operator.is_apart:  # in a file of its own, which the package does not import
        files[operator.file] = part["part.py"]
    else:
        files[f"{bugs.PACKAGE}/__init__.py"] += TAKE_OVER.format(functions=functions).encode()
        files |= {f"{bugs.PACKAGE}/{path}": content for path, content in part.items()}
    affected = {problem for function in functions for problem in _problems(function)}
    problems = tuple(problem.name for problem in operator.problems if problem.name in affected)
    return _right(name, files, problems)


def _right(name: str, files: dict[str, bytes], problems: tuple[str, ...]) -> Entry:
    pays, is_doubted = PAYS.get(name, ()), name in DOUBTED
    return Entry(f"variants/{name}", VARIANT, Submission(files), problems, pays=pays, is_doubted=is_doubted)


def defined(source: bytes) -> list[str]:
    """Return the names of a module's functions."""
    return [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]


def _problems(function: str) -> tuple[str, ...]:
    """Return the problems in which a function is graded: for one between two, those of its values and gradients."""
    record = operators.functions()[function]
    if record.problem:
        return (record.problem,)
    return tuple(problem for part in (record.forward, record.gradients) for problem in _problems(part))


def _affected(problem: str) -> tuple[str, ...]:
    """Return the problems that an edit may cost points in: two where a function takes its gradients from this one."""
    between = [_problems(name) for name, function in operators.functions().items() if not function.problem]
    return next((pair for pair in between if pair[-1] == problem), (problem,))


def _bug(planted: bugs.PlantedBug) -> Entry:
    check = planted.bug.caught_by
    file = "test_" + planted.problem.removesuffix("_pytorch").removesuffix("_triton") + ".py"
    return Entry(
        name=f"bugs/{planted.name}",
        kind=BUG,
        submission=Submission(bugs.submission(planted)),
        problems=_affected(planted.problem),
        problem=planted.problem,
        caught_by=check if "::" in check or not check else f"{file}::{check}",
        line=planted.bug.line or planted.bug.computed or planted.bug.compiled,
        named=planted.bug.named,
        misuses_memory=bool(planted.bug.line),
    )


def _cheat(cheat: cheats.Cheat) -> Entry:
    return Entry(
        name=f"cheats/{cheat.group}/{cheat.name}",
        kind=CHEAT,
        submission=Submission(cheats.submission(cheat)),
        problems=(cheat.problem,),
        problem=cheat.problem,
        cheat=cheat,
    )
