"""Sections of the handout, to be read in a terminal."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from assignment import course, text

ROOT = Path(__file__).resolve().parents[2]
MAX_WIDTH = 100
COMMENT = re.compile(r"<!--.*?-->")  # says where a number comes from


def section(citation: str, root: Path = ROOT) -> str:
    """Return a cited section with its heading and all below it, as Markdown; empty where there is none.

    citation: a file below root and, unless all of it is meant, the anchor of a heading.
    """
    file, _, anchor = citation.partition("#")
    lines = COMMENT.sub("", text.of(root / file)).splitlines()
    if not anchor:
        return "\n".join(lines)
    found = list(headings(lines))
    begin, depth = next(((at, depth) for at, depth, name in found if name == anchor), (len(lines), 0))
    end = next((at for at, other, _ in found if at > begin and other <= depth), len(lines))
    return "\n".join(lines[begin:end]).rstrip()


def headings(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """Yield the index, depth and anchor of each heading; GitHub numbers those that repeat."""
    seen: Counter[str] = Counter()
    is_code = False
    for at, line in enumerate(lines):
        is_code ^= line.startswith("```")
        heading = None if is_code else re.match(r"(#+) (.*)", line)
        if heading:
            anchor = anchor_of(COMMENT.sub("", heading[2]))
            yield at, len(heading[1]), f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor
            seen[anchor] += 1


def anchor_of(heading: str) -> str:
    """Return GitHub's anchor: lower case, without punctuation, a hyphen for each space."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def page(citation: str) -> str:
    """Return the page of a cited section, below the folder of the handout's pages."""
    file, mark, anchor = citation.partition("#")
    name = "index" if file == "handout.md" else file.removesuffix(".md")
    return f"{name}.html{mark}{anchor}"


def address(citation: str) -> str:
    """Return a cited section's address where the course has published pages, or else the citation."""
    base = course.course().pages
    return f"{base}/{page(citation)}" if base else citation


def show(console: Console, markdown: str) -> None:
    """Print the text, rendered on a terminal and as it is written elsewhere."""
    if not console.is_terminal:
        console.print(markdown, markup=False)
        return
    from rich.markdown import Markdown  # takes a moment to load, and most runs show nothing

    rendered = Markdown(with_readable_math(markdown), code_theme="ansi_dark")
    console.print(rendered, soft_wrap=False, width=min(console.width, MAX_WIDTH))


def with_readable_math(markdown: str) -> str:
    """Return the text with LaTeX as code: a Markdown renderer would take its backslashes for its own."""
    parts = re.split(r"(^```.*?^```$|`[^`\n]+`)", markdown, flags=re.MULTILINE | re.DOTALL)
    told = [re.sub(r"\$([^$`]+)\$", _as_code, part) if not i % 2 else part for i, part in enumerate(parts)]
    return re.sub(r"^```math$", "```text", "".join(told), flags=re.MULTILINE)


def _as_code(formula: re.Match[str]) -> str:
    return f"`{' '.join(formula[1].split())}`"
