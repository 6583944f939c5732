"""A page of the handout as a notebook: its text and its python blocks as cells, in their order."""

import json
import re
from typing import NotRequired, TypedDict

PAGE, NOTEBOOK = "handout/triton.md", "play.ipynb"  # which lies where that page's play.py would: in the root
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
RELATIVE = re.compile(r"\]\((?![a-z]+:|#)")  # before the address of a link to another file


class NotebookCell(TypedDict):
    """A cell of a notebook, as Jupyter writes it."""

    id: NotRequired[str]
    cell_type: str
    metadata: dict[str, str]
    source: list[str]
    execution_count: NotRequired[int | None]
    outputs: NotRequired[list[str]]


def of_page(text: str) -> bytes:
    """Return the notebook; what blocks print is left out, as a reader's own run prints it."""
    cells: list[NotebookCell] = []
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
    cells += _prose(prose + text[at:])
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    told = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(told, indent=1, ensure_ascii=False).encode() + b"\n"


def _prose(text: str) -> list[NotebookCell]:
    """Return a cell of text, with its links as they are from the root; none where there is no text."""
    rooted = RELATIVE.sub("](handout/", text.strip()).replace("](handout/../", "](")
    return [_cell("markdown", rooted)] if rooted else []


def _cell(kind: str, source: str) -> NotebookCell:
    cell: NotebookCell = {"cell_type": kind, "metadata": {}, "source": source.splitlines(keepends=True)}
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    return cell
