"""results.md, the one committed page of what came of the banks. Each command writes its own section of it."""

import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

PAGE = Path(__file__).parents[1] / "results.md"
HEAD = """# The tests, tested

Totals of the banks, and what is not perfect. Each section is written by its command, which prints all the rest.
"""


def table(header: str, rows: Iterable[Iterable[str]]) -> list[str]:
    """Return a table in Markdown, a line each."""
    return [f"| {header} |", "|---" * (header.count(" | ") + 1) + "|", *(f"| {' | '.join(row)} |" for row in rows)]


def write(title: str, command: str, body: str, page: Path = PAGE) -> None:
    """Replace the section of this title, or append it; say by what, when and at which commit it was made."""
    text = page.read_text(encoding="utf-8") if page.exists() else HEAD
    section = f"## {title}\n\nWritten by `{command}` on {_now()}.\n\n{body.strip()}\n"
    before, heading, after = text.partition(f"## {title}\n")
    following = after.partition("\n## ")[2]
    parts = [before.strip() + "\n", section, *([f"## {following}"] if heading and following else [])]
    page.write_text("\n".join(parts), encoding="utf-8")


def section(title: str, page: Path = PAGE) -> str:
    """Return the text of a section, without its heading."""
    return page.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]


def rows_of(title: str, page: Path = PAGE) -> dict[str, list[str]]:
    """Return the rows of a section's tables, all cells of each by the first."""
    found = (line.strip("| ").split(" | ") for line in section(title, page).splitlines() if line.startswith("| "))
    return {cells[0]: cells for cells in found}


def listed(title: str, items: list[str]) -> list[str]:
    """Return a list under its title in Markdown, "none" where it is empty."""
    return ["", f"{title}:{'' if items else ' none.'}", *([""] if items else []), *(f"- {item}" for item in items)]


def _now() -> str:
    command = ["git", "-C", str(PAGE.parent), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return f"{datetime.now(UTC):%Y-%m-%d}, at commit {commit}"
