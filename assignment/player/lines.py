"""The submission's lines that a program names, as they are shown to its author."""

from dataclasses import replace

from assignment.protocol.program import place
from assignment.protocol.said import Said, at


def told(sources: dict[str, str], text: str) -> Said:
    """Return "  at rmsnorm.py:42 in rmsnorm: source line", for "rmsnorm.py:42 in rmsnorm"."""
    path, number, function = place(text)
    lines = sources.get(path, "").split("\n")
    if not number.isdecimal() or not 0 < int(number) <= len(lines):
        return Said("  in PyTorch's own backward pass")
    return at(path, int(number), f" in {function}", lines[int(number) - 1].strip())


def computed(line: Said) -> Said:
    """Return the same of a line where something was computed."""
    places = (replace(place, says=f"computed {place.says}") for place in line.places)
    return Said(line.text.replace("  at", "  computed at", 1), tuple(places))
