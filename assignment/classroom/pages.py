"""The pages of a class."""

from pathlib import Path
from typing import Any

from assignment.classroom import COMMAND
from assignment.commands.files import replace
from assignment.pages import Pages

_pages = Pages(Path(__file__).parent / "templates", command=COMMAND)


def write(path: Path, template: str, **data: Any) -> None:
    """Write a page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, _pages.page(template, **data))
