"""What the machinery's seams are made of, in figures that may only fall.

`python -m assignment.tests.test_seams` prints them. Whoever lowers one lowers its ceiling.
"""

import ast
import re
import statistics
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import pytest

from assignment import pytest_private, pytorch_private
from assignment.compiling.kernel import Compiled
from assignment.protocol.replies import Reply, status
from assignment.protocol.requests import Request
from assignment.tests.test_roles import STAFFS, imported, modules, of_ours

OURS = Path(__file__).resolve().parents[1]
APART = ("operators", "reference", "tests", "bank/operators", "bank/cheats")
LOW = "text course digest whose pytorch_private pytest_private pages system confined protocol failure submission"
JUDGING = "operators simulator compiling sandbox verdict judge timing"
PROCESSES = "calling host recorder player worker"  # which the judge reaches over the wire alone
ON_TOP = "plugin commands handout release figures classroom bank new retire"
ROOMS = f"{LOW} {JUDGING} {PROCESSES} {ON_TOP}".split()  # each imports those before it alone
VAGUE = {"Any", "Json", "object"}
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}

# lines with an annotation that says Any, Json or object, by package
VAGUE_LINES = {
    "bank": 9,
    "calling": 2,
    "classroom": 13,
    "commands": 2,
    "compiling": 3,
    "confined": 1,
    "course.py": 4,
    "handout": 3,
    "judge": 3,
    "pages": 2,
    "player": 18,
    "protocol": 3,
    "recorder": 19,
    "simulator": 45,
    "timing": 1,
    "verdict": 2,
    "worker.py": 1,
}
MOST_VAGUE = 150  # in all
MEDIAN, LONGEST = 6, 50  # lines of functions
REPEATED_CLASSES = 0.026  # share of classes whose name another has
CODE_LINES = 34_311  # without comments and docstrings
PRIVATE_USERS = {"_pytest": ["pytest_private.py"], "torch": ["pytorch_private.py"]}


@cache
def trees() -> dict[str, ast.Module]:
    """Return the files of the machinery, parsed, by their place in assignment/."""
    paths = {path.relative_to(OURS).as_posix(): path for path in sorted(OURS.rglob("*.py"))}
    return {
        name: ast.parse(path.read_text(encoding="utf-8")) for name, path in paths.items() if not name.startswith(APART)
    }


@cache
def nodes(tree: ast.Module) -> list[ast.AST]:
    return list(ast.walk(tree))


@cache
def imports() -> dict[str, set[str]]:
    """Return the modules of ours that each imports, lazily or for its types too."""
    paths = {path: path.relative_to(OURS).with_suffix("").parts for path in modules(OURS)}
    return {
        ".".join(parts).removesuffix(".__init__"): {name for name, _ in imported(path) if name}
        for path, parts in paths.items()
        if parts[0] not in ("__init__", "reference", "tests")
    }


def arrows_upward() -> list[str]:
    """Return the imports of a room by one that comes before it, or by one that has no place."""
    of_modules = ((one, other) for one, others in imports().items() for other in others)
    rooms = ((one, other, one.partition(".")[0], other.partition(".")[0]) for one, other in of_modules)
    return [
        f"{one} imports {other}"
        for one, other, room, below in rooms
        if room != below and below not in ROOMS[: ROOMS.index(room)]
    ]


def annotations(tree: ast.Module) -> Iterator[ast.expr]:
    for node in nodes(tree):
        if isinstance(node, ast.FunctionDef) and node.returns:
            yield node.returns
        elif isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            yield node.annotation


def words(annotation: ast.expr) -> set[str]:
    """Return the names in an annotation, those in strings too."""
    return set(re.findall(r"\w+", ast.unparse(annotation)))


def vague_lines() -> dict[str, int]:
    """Return how many lines of each package have an annotation that says nothing."""
    found = {
        (name, annotation.lineno)
        for name, tree in trees().items()
        for annotation in annotations(tree)
        if words(annotation) & VAGUE
    }
    return dict(Counter(name.partition("/")[0] for name, _ in sorted(found)))


def functions() -> dict[str, int]:
    """Return how many lines each function has, by its place."""
    return {
        f"{name}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for name, tree in trees().items()
        for node in nodes(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def lazy_imports() -> list[str]:
    """Return where functions import our own modules without a comment that says why, staff's tools apart."""
    lines = {name: (OURS / name).read_text(encoding="utf-8").splitlines() for name in trees()}
    return [
        f"{name}:{node.lineno}"
        for name, tree in trees().items()
        if name.split("/")[0] not in STAFFS
        for function in nodes(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom | ast.Import) and "  # " not in lines[name][node.lineno - 1]
        if (isinstance(node, ast.ImportFrom) and (node.level or of_ours(node.module or "")))
        or (isinstance(node, ast.Import) and any(of_ours(alias.name) for alias in node.names))
    ]


def namespaces() -> list[str]:
    """Return where argparse's untyped Namespace is named, or what was parsed is handed on whole, but to vars()."""
    return [f"{name}:{line}" for name, tree in trees().items() for line in sorted(_namespaces(tree))]


def _namespaces(tree: ast.Module) -> Iterator[int]:
    parsed = {
        name.id
        for node in nodes(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        if isinstance(node.value.func, ast.Attribute) and node.value.func.attr in ("parse_args", "parse_known_args")
        for name in ast.walk(node.targets[0])
        if isinstance(name, ast.Name)
    }
    for node in nodes(tree):
        match node:
            case ast.Attribute(attr="Namespace") | ast.Name("Namespace") | ast.alias("Namespace"):
                yield node.lineno
            case ast.Call(func, given) if ast.unparse(func) != "vars":
                yield from (one.lineno for one in given if isinstance(one, ast.Name) and one.id in parsed)
            case ast.Return(ast.Name(name)) if name in parsed:
                yield node.lineno


def repeated_classes() -> tuple[float, list[str]]:
    """Return the share of classes whose name another has, and the names."""
    classes = Counter(node.name for tree in trees().values() for node in nodes(tree) if isinstance(node, ast.ClassDef))
    repeated = {name: count for name, count in classes.items() if count > 1}
    return sum(repeated.values()) / classes.total(), list(repeated)


def code_lines() -> int:
    """Count the lines that hold code."""
    return sum(len(_code_lines(OURS / name, tree)) for name, tree in trees().items())


def _code_lines(path: Path, tree: ast.Module) -> set[int]:
    with path.open("rb") as file:
        tokens = [token for token in tokenize.tokenize(file.readline) if token.type not in NO_CODE]
    lines = {line for token in tokens[1:] for line in range(token.start[0], token.end[0] + 1)}
    texts = [node for node in nodes(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    return lines - {line for text in texts for line in range(text.lineno, (text.end_lineno or 0) + 1)}


def private_users() -> dict[str, list[str]]:
    """Return the modules that use private names of pytest and PyTorch; test_triton_private.py looks for Triton's."""
    patterns = {"_pytest": re.compile(r"_pytest\b"), "torch": re.compile(r"torch\.(\w+\.)*_[a-zA-Z]")}
    return {
        library: [name for name, tree in trees().items() if any(map(pattern.match, dotted(tree)))]
        for library, pattern in patterns.items()
    }


def names_as_strings() -> list[str]:
    """Return where a kind of request, or a reply's status, is compared or written as a string, outside of protocol/."""
    names = {
        "kind": {kind.__name__.lower() for kind in get_args(Request)},
        "status": {status(kind) for kind in (*get_args(Reply), Compiled)},
    }
    found = []
    for name, tree in trees().items():
        if name.startswith(("protocol/", "classroom/")):  # Gradescope's tests have a status too
            continue
        for key, at, texts in named(tree):
            said = {one.value for text in texts for one in ast.walk(text) if isinstance(one, ast.Constant)}
            found += [f"{name}:{at.lineno}"] * bool(said & names.get(key, set()))
    return found


def named(tree: ast.Module) -> Iterator[tuple[str, ast.expr, list[ast.expr]]]:
    """Yield a key or an attribute, where it is written or compared, and with what."""
    of_key = re.compile(r".*(?:\.|\['|\.get\(')(kind|status)(?:'.*)?", re.DOTALL)
    for node in nodes(tree):
        if isinstance(node, ast.Dict):
            items = zip(node.keys, node.values, strict=True)
            yield from ((str(k.value), node, [v]) for k, v in items if isinstance(k, ast.Constant))
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            keys = (match[1] for side in sides if (match := of_key.fullmatch(ast.unparse(side))))
            yield from ((key, node, sides) for key in keys)


def dotted(tree: ast.Module) -> Iterator[str]:
    """Yield the names of modules and of what is taken from them, from the library on."""
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute | ast.Name):
            yield ast.unparse(node)


def test_rooms_import_those_below_them_alone():
    assert not arrows_upward()


def test_modules_import_each_other_in_no_circle():
    TopologicalSorter(imports()).prepare()  # raises CycleError, which names them


def test_no_more_annotations_are_vague():
    counts = vague_lines()
    assert sum(counts.values()) <= MOST_VAGUE
    assert not {package: n for package, n in counts.items() if n > VAGUE_LINES.get(package, 0)}


def test_functions_are_short():
    lengths = functions()
    assert statistics.median(lengths.values()) <= MEDIAN
    assert not [name for name, length in lengths.items() if length > LONGEST]


def test_no_function_binds_a_global():
    names = [name for name, tree in trees().items() if any(isinstance(node, ast.Global) for node in nodes(tree))]
    assert not names


def test_lazy_imports_say_why():
    assert not lazy_imports()


def test_options_are_handed_on_as_typed_values():
    assert not namespaces()


def test_no_more_class_names_repeat():
    share, names = repeated_classes()
    assert share <= REPEATED_CLASSES, names


def test_there_is_no_more_code():
    assert code_lines() <= CODE_LINES


def test_kinds_and_statuses_are_strings_in_the_protocol_alone():
    assert not names_as_strings()


def test_private_names_are_used_in_one_module():
    assert private_users() == PRIVATE_USERS


@pytest.mark.parametrize(
    ("package", "checked"), [("torch", pytorch_private.CHECKED), ("pytest", pytest_private.CHECKED)]
)
def test_private_names_were_checked_with_the_installed_version(package, checked):
    assert version(package).partition("+")[0] in checked, "read what is used of it, then add it to CHECKED"


if __name__ == "__main__":
    print("arrows upward", len(arrows_upward()))
    print("vague annotations", sum(vague_lines().values()), vague_lines())
    print("functions", statistics.median(functions().values()), max(functions().values()))
    print("lazy imports", len(lazy_imports()))
    print("namespaces", namespaces())
    print("repeated class names", *repeated_classes())
    print("lines of code", code_lines())
    print("private names", private_users())
