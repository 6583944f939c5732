"""A page of the handout as a notebook: its text and its python blocks as cells, in their order, and exercises."""

import ast
import json
import re
from collections.abc import Mapping

from assignment.protocol.messages import Writable

PAGE, NOTEBOOK = "handout/triton.md", "play.ipynb"  # which lies where that page's play.py would: in the root
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
RELATIVE = re.compile(r"\]\((?![a-z]+:|#)")  # before the address of a link to another file
FOLDER = "exercises"
SETUP = f"""\
import os
import subprocess
import sys
from pathlib import Path

if not Path("grade.py").exists():  # this is no copy of the assignment
ELSE
sys.path.insert(0, os.getcwd())
os.environ.pop("FORCE_COLOR", None)  # what a command prints below is plain text
Path("{FOLDER}/cs336_kernels/practice").mkdir(parents=True, exist_ok=True)"""
NO_COPY = '    sys.exit("open this notebook in your copy of the assignment")'
FETCH = """\
    ADDRESS, PYTHON = REPOSITORY, sys.executable
    if not Path("assignment-copy").exists():
        subprocess.run(["git", "clone", "--quiet", "--branch", "student", ADDRESS, "assignment-copy"], check=True)
    os.chdir("assignment-copy")
    pip = [PYTHON, "-m", "pip", "install", "--quiet", "uv"]
    uv = [PYTHON, "-m", "uv", "pip", "install", "--quiet", "--python", PYTHON, "-r", "pyproject.toml"]
    for command in (pip, uv):
        subprocess.run(command, check=True)"""
INTRODUCTION = f"""\
## Exercises

Functions of the assignment. Fill in the stub, and run its cell, which writes it to a file; the next cell grades it. The
files lie in `{FOLDER}/`, so yours in `cs336_kernels/` stay as they are: copy what is right."""


def of_page(text: str, exercises: Mapping[str, tuple[str, str]] | None = None, repository: str = "") -> bytes:
    """Return the notebook; what blocks print is left out, as a reader's own run prints it.

    exercises has path and text of the stub of each function to write; repository is an address to clone.
    """
    otherwise = FETCH.replace("REPOSITORY", repr(repository)) if repository else NO_COPY
    cells = [_cell("code", SETUP.replace("ELSE", otherwise))]
    at, prose = 0, ""
    for block in FENCE.finditer(text):
        prose, at = prose + text[at : block.start()], block.end()
        language, content = block.groups()
        if language == "python":
            cells += [*_prose(prose), _cell("code", content)]
            prose = ""
        elif language == "math":
            prose += f"$$\n{content}\n$$"
        elif language != "output":
            prose += block[0]
    cells += [*_prose(prose + text[at:]), *_exercises(exercises or {})]
    cells = [{"id": f"cell-{number}", **cell} for number, cell in enumerate(cells)]
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    told = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(told, indent=1, ensure_ascii=False).encode() + b"\n"


def _exercises(exercises: Mapping[str, tuple[str, str]]) -> list[dict[str, Writable]]:
    cells: list[dict[str, Writable]] = []
    for name, (path, source) in exercises.items():
        chapter = re.search(r"handout/\w+\.md", source)
        cells += _prose("" if cells else INTRODUCTION)
        cells.append(_cell("markdown", f"### `{name}`\n\n" + (f"[Its chapter]({chapter[0]})" if chapter else "")))
        cells.append(_cell("code", f"%%writefile {FOLDER}/{path}\n{one_function(source, name)}"))
        cells.append(_cell("code", f"!{{sys.executable}} grade.py {FOLDER} --only {name} | cat"))
    return cells


def one_function(source: str, name: str) -> str:
    """Return a stub's function and its first kernel, with the imports that they may need."""
    parts = ast.parse(source).body
    functions = [part for part in parts if isinstance(part, ast.FunctionDef)]
    kernel = next((part for part in functions if part.decorator_list), None)
    kept = [_text(source, part) for part in functions if part.name == name or part is kernel]
    used = set(re.findall(r"\w+", "\n".join(kept)))
    imports = [
        _text(source, part)
        for part in parts
        if isinstance(part, ast.Import)
        or (isinstance(part, ast.ImportFrom) and used & {alias.name for alias in part.names})
    ]
    return "\n\n\n".join(["\n".join(imports), *kept])


def _text(source: str, part: ast.stmt) -> str:
    """Return the lines of a statement, with its decorators."""
    decorators = part.decorator_list if isinstance(part, ast.FunctionDef) else []
    first = min([part.lineno, *(decorator.lineno for decorator in decorators)])
    return "\n".join(source.splitlines()[first - 1 : part.end_lineno])


def _prose(text: str) -> list[dict[str, Writable]]:
    """Return a cell of text, with its links as they are from the root; none where there is no text."""
    rooted = RELATIVE.sub("](handout/", text.strip()).replace("](handout/../", "](")
    return [_cell("markdown", rooted)] if rooted else []


def _cell(kind: str, source: str) -> dict[str, Writable]:
    more: dict[str, Writable] = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, "source": source.splitlines(keepends=True), **more}
