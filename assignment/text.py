"""Text that a submission has a hand in, made safe to show: on a terminal, in JSON, in XML, in a log."""

MAX_CHARACTERS = 4_000
MAX_LINES = 40
MAX_LINE = 1_000
TAB = 4


def clean(text: str, max_lines: int = MAX_LINES, max_line: int = MAX_LINE) -> str:
    """Lines of printable characters, so many and so long at most.

    Control characters, those that turn the direction of writing, invisible ones and halves of a surrogate pair each
    become a �: what is left is legal in UTF-8 and in XML, and moves no cursor.
    """
    if len(text) > MAX_CHARACTERS:
        text = f"{text[:MAX_CHARACTERS]} …"
    lines = text.expandtabs(TAB)[: 2 * MAX_CHARACTERS].splitlines()[:max_lines]
    cut = [line if len(line) <= max_line else f"{line[:max_line]} …" for line in lines]
    return "\n".join("".join(char if char.isprintable() else "�" for char in line) for line in cut)


def line(text: str) -> str:
    """The same in one line, for a name or a path."""
    return clean(text.replace("\n", "�"), max_lines=1)


def block(text: str, width: int, gutter: str, first: str) -> list[str]:
    """The lines of a text behind a gutter, the first one behind `first`; none is wider than `width`.

    A terminal would go on at its left edge, where only the grader may write.
    """
    room = max(width - len(max(gutter, first, key=len)), 20)
    rows = [row for line in text.splitlines() for row in _folded(line, room)] or [""]
    return [first + rows[0], *(gutter + row for row in rows[1:])]


def _folded(line: str, width: int) -> list[str]:
    """The pieces of a line. Beyond ASCII a character may take two columns, and counts as two."""
    rows, used = [""], 0
    for char in line:
        columns = 1 if char.isascii() else 2
        if used + columns > width:
            rows.append("")
            used = 0
        rows[-1] += char
        used += columns
    return rows
