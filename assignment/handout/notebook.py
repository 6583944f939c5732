"""A page of the handout as a notebook: its text and its python blocks as cells, in their order."""

import json
import re

from assignment.protocol.messages import Writable

PAGE, NOTEBOOK = "handout/triton.md", "play.ipynb"  # which lies where that page's play.py would: in the root
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
RELATIVE = re.compile(r"\]\((?![a-z]+:|#)")  # before the address of a link to another file


def of_page(text: str) -> bytes:
    """Return the notebook; what blocks print is left out, as a reader's own run prints it."""
    cells: list[dict[str, Writable]] = []
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
    cells = [{"id": f"cell-{number}", **cell} for number, cell in enumerate(cells)]
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    told = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(told, indent=1, ensure_ascii=False).encode() + b"\n"


def _prose(text: str) -> list[dict[str, Writable]]:
    """Return a cell of text, with its links as they are from the root; none where there is no text."""
    rooted = RELATIVE.sub("](handout/", text.strip()).replace("](handout/../", "](")
    return [_cell("markdown", rooted)] if rooted else []


def _cell(kind: str, source: str) -> dict[str, Writable]:
    more: dict[str, Writable] = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, "source": source.splitlines(keepends=True), **more}
