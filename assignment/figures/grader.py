"""The grader: three processes and what passes between them."""

from assignment.figures.svg import Drawing

WIDE, GAP = 194, 78  # a process, and what lies between two
TOP, BOTTOM = 14, 236
LEFT = [14, 14 + WIDE + GAP, 14 + 2 * (WIDE + GAP)]
NOTE = "Without a GPU no graded value reaches the process that imports your files."


def processes() -> Drawing:
    """Draw the judge between two processes: one sends steps, the other tensors."""
    drawing = Drawing(28 + 3 * WIDE + 2 * GAP, 284, "The grader's three processes: recorder, judge, player")
    steps, checks = ("what it does becomes\na list of steps", "simulator: checks each\naccess, counts bytes")
    _process(drawing, 0, "recorder, in a sandbox", "orange")
    _parts(drawing, 0, ("your host code", "orange"), ("launches only noted", "grey"), (steps, "grey"))
    _process(drawing, 1, "judge", "green")
    verdict = "comparison, deadlines,\nscore"
    _parts(drawing, 1, ("inputs from the seed", "green"), ("oracle in float64", "green"), (verdict, "green"))
    _process(drawing, 2, "player, in a sandbox", "blue")
    _parts(drawing, 2, ("your kernels’ text", "orange"), ("steps are repeated", "blue"), (checks, "blue"))
    _message(drawing, LEFT[1], LEFT[0] + WIDE, 90, "stand-ins", "green-line")
    _message(drawing, LEFT[0] + WIDE, LEFT[1], 160, "steps", "orange-line")
    _message(drawing, LEFT[1] + WIDE, LEFT[2], 90, "steps,\ninputs", "green-line")
    _message(drawing, LEFT[2], LEFT[1] + WIDE, 160, "results,\nfindings", "blue-line")
    drawing.note(14, 264, NOTE)
    return drawing


def _process(drawing: Drawing, place: int, name: str, colour: str) -> None:
    drawing.rect(LEFT[place], TOP, WIDE, BOTTOM - TOP, "none", f"{colour}-line", radius=8, thick=2)
    drawing.text(LEFT[place] + 14, TOP + 28, name, bold=True)


def _parts(drawing: Drawing, place: int, *parts: tuple[str, str]) -> None:
    """Draw what a process has and does, one box below the other."""
    for row, (words, colour) in enumerate(parts):
        height = 52 if "\n" in words else 36
        drawing.box(LEFT[place] + 14, TOP + 46 + 54 * row, WIDE - 28, height, words, colour, size=12)


def _message(drawing: Drawing, start: float, end: float, y: float, words: str, colour: str) -> None:
    """Draw an arrow from one process to another, with the words above it."""
    inset = 2 if start < end else -2
    drawing.arrow(start + inset, y, end - inset, y, colour, thick=2)
    drawing.text((start + end) / 2, y - 10 - 16 * words.count("\n"), words, anchor="middle", size=12)
