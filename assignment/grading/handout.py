"""Sections of the handout, to be read in a terminal."""

import re
from pathlib import Path

from rich.console import Console

HANDOUT = Path(__file__).resolve().parents[2] / "handout.md"
MAX_WIDTH = 100


def section(number: str, document: Path = HANDOUT, title: str = "") -> str:
    """The section with its heading and all below it, as Markdown; empty where there is none.

    title: of the one part of it that is wanted.
    """
    try:
        lines = document.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    found: list[str] = []
    depth, is_code, is_inside = 0, False, False
    for line in lines:
        is_code ^= line.startswith("```")
        heading = None if is_code else re.match(r"(#+) (\S+)", line)
        if heading and depth and len(heading[1]) <= depth:
            break
        if heading and not depth and heading[2].rstrip(".") == number:
            is_inside, depth = True, len(heading[1]) * (not title)
        elif heading and not depth and is_inside:
            is_inside = len(heading[1]) > 2
            depth = len(heading[1]) * (is_inside and is_titled(line, title))
        if depth:
            found.append(line)
    return "\n".join(found).rstrip()


def is_titled(heading: str, title: str) -> bool:
    return re.sub(r"^#+ ([\d.]+ )?", "", heading).casefold() == title.casefold()


def cited(hint: str) -> tuple[str, str]:
    """The number and the part of the section that a hint points to."""
    found = re.search(r"\(handout, section ([\d.]+)(?:, ([^)]+))?\)", hint)
    return (found[1], found[2] or "") if found else ("", "")


def show(console: Console, markdown: str) -> None:
    """Rendered on a terminal, as it is written elsewhere."""
    if not console.is_terminal:
        console.print(markdown, markup=False)
        return
    from rich.markdown import Markdown  # takes a moment to load, and most runs show nothing

    rendered = Markdown(with_readable_math(markdown), code_theme="ansi_dark")
    console.print(rendered, soft_wrap=False, width=min(console.width, MAX_WIDTH))


def with_readable_math(markdown: str) -> str:
    """LaTeX stands as code: a Markdown renderer would take its backslashes and underscores for its own."""
    parts = re.split(r"(^```.*?^```$|`[^`\n]+`)", markdown, flags=re.MULTILINE | re.DOTALL)
    text = [re.sub(r"\$([^$`]+)\$", _as_code, part) if not i % 2 else part for i, part in enumerate(parts)]
    return re.sub(r"^```math$", "```text", "".join(text), flags=re.MULTILINE)


def _as_code(formula: re.Match[str]) -> str:
    return f"`{' '.join(formula[1].split())}`"
