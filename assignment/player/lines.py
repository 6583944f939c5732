"""The submission's lines that a program names, as they are shown to its author."""

from dataclasses import replace

from assignment.protocol.program import HostLine
from assignment.protocol.said import Said, at


def told(sources: dict[str, str], line: HostLine) -> Said:
    """Return "  at rmsnorm.py:42 in rmsnorm: source line"."""
    lines = sources.get(line.path, "").split("\n")
    if not 0 < line.number <= len(lines):
        return Said("  in PyTorch's own backward pass")
    return at(line.path, line.number, f" in {line.function}", lines[line.number - 1].strip())


def computed(line: Said) -> Said:
    """Return the same of a line where something was computed."""
    places = (replace(place, says=f"computed {place.says}") for place in line.places)
    return Said(line.text.replace("  at", "  computed at", 1), tuple(places))
