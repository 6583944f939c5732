"""The pages of the handout, the READMEs and the handbook: their fenced blocks and their commands.

The blocks of a document mean:

    ```python    runs, after the earlier python blocks of the same document, which share its names
    ```output    is exactly what the python block before it prints
    ```python script scale.py    is a script of its own, and
    ```report OPTIONS            what `python -m assignment.simulator OPTIONS` says of the last one, or the named one;
                                 a line of … stands for any number of lines, in compiled too
    ```solved NAME=VALUE         what it says of the last one with the reference as cs336_kernels, in that environment
    ```python compile scale.py   is a script of its own, too,
    ```compiled OPTIONS          what `python -m assignment.compiling OPTIONS` says of the last one, and
    ```ptx scale_kernel.h100.1   lines of a listing that it writes, in their order; … stands for anything
    ```sh        commands, each of a form that test_commands_have_a_known_form knows
    ```text      tables, boxes, interfaces: read by people only; math, likewise
"""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHAPTERS = sorted((ROOT / "handout").glob("*.md"))
HANDOUT = [ROOT / "handout.md", *CHAPTERS]
DOCUMENTS = [*HANDOUT, ROOT / "README.md", ROOT / "AGENTS.md", ROOT / "assignment" / "README.md"]

LANGUAGES = {"python", "output", "sh", "text", "math", "json"}
WITH_ARGUMENTS = ["python script", "report", "solved", "python compile", "compiled", "ptx"]


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is the number of its first line of content, counted from 1."""

    language: str
    line: int
    content: str
    document: Path
    arguments: tuple[str, ...] = ()


def language_of(info: str) -> tuple[str, tuple[str, ...]]:
    """What stands after the fence: a language, and the arguments of those that take some."""
    for language in WITH_ARGUMENTS:
        if info == language or info.startswith(f"{language} "):
            return language, tuple(info.removeprefix(language).split())
    return info, ()


def blocks(document: Path) -> list[Block]:
    found: list[Block] = []
    lines: list[str] = []
    language = None
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.startswith("```"):
            if language is not None:
                lines.append(line)
        elif language is None:
            language, lines = line.removeprefix("```"), []
        else:
            name, arguments = language_of(language)
            found.append(Block(name, number - len(lines), "\n".join(lines), document, arguments))
            language = None
    assert language is None, f"{document.name}: a block is never closed"
    return found


HANDOUT_BLOCKS = [block for document in HANDOUT for block in blocks(document)]
SCRIPTS = {
    block.arguments[0]: block for block in HANDOUT_BLOCKS if block.language in ("python script", "python compile")
}


def script_of(shown: Block) -> str:
    """Return the script that a report is about: the one that it names, else the last one above it."""
    named = [name for name in shown.arguments if name in SCRIPTS]
    above = [name for name, block in SCRIPTS.items() if block.document == shown.document and block.line < shown.line]
    return named[0] if named else above[-1]


def commands(document: Path) -> list[str]:
    lines = [line for block in blocks(document) if block.language == "sh" for line in block.content.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]
