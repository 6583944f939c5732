"""Docstrings of the machinery begin with a verb, and its lines keep to 100 columns."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = (
    "compiling",
    "confined",
    "diagnosis",
    "figures",
    "host",
    "player",
    "protocol",
    "recorder",
    "sandbox",
    "simulator",
    "timing",
)
NO_VERB = re.compile(
    r"(A|All|An|Each|Every|How|It|Its|Of|One|That|The|There|This|Those|"
    r"What|When|Where|Whether|Which|Who|Whose|Why)\b"
)
RIDDLES = re.compile(r"\b(nobody|somebody|whoever|of one's own)\b", re.IGNORECASE)
COLUMNS = 100
MAX_SHARE = 0.07  # of longer lines: calls and messages that breaking would not make clearer


def docstrings(code: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the name and docstring of each definition, and whether it must begin with a verb."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            decorators = [ast.unparse(decorator) for decorator in getattr(node, "decorator_list", ())]
            is_property = any(name.endswith("property") for name in decorators)
            yield node.name, text, isinstance(node, ast.FunctionDef) and not is_property


def misworded(code: str) -> list[str]:
    """Return the docstrings that lack a verb or hide their subject, each after its name."""
    return [
        f"{name}: {text.splitlines()[0]}"
        for name, text, needs_verb in docstrings(code)
        if (needs_verb and NO_VERB.match(text)) or RIDDLES.search(text)
    ]


def test_a_docstring_without_a_verb_is_noticed() -> None:
    code = (
        'def f():\n    """A check is complete."""\n'
        'class C:\n    """What nobody wrote."""\n'
        '    @property\n    def size(self):\n        """The number of bytes."""\n'
        'def g():\n    """Print the verdict of a completed check."""\n'
    )
    assert misworded(code) == ["f: A check is complete.", "C: What nobody wrote."]


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_begin_with_a_verb(folder: str) -> None:
    found = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        if wrong := misworded(path.read_text(encoding="utf-8")):
            found[str(path.relative_to(ROOT))] = wrong
    assert not found


def test_few_lines_exceed_100_columns() -> None:
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    lines = [line for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    n_long = sum(len(line) > COLUMNS for line in lines)
    assert n_long <= MAX_SHARE * len(lines)
