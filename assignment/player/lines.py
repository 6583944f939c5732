"""The submission's lines that a program names, as they are shown to its author."""

from assignment.protocol.program import place


def told(sources: dict[str, str], text: str) -> str:
    """Return "  at rmsnorm.py:42 in rmsnorm: source line", for "rmsnorm.py:42 in rmsnorm"."""
    path, number, function = place(text)
    lines = sources.get(path, "").split("\n")
    if not number.isdecimal() or not 0 < int(number) <= len(lines):
        return "  in PyTorch's own backward pass"
    return f"  at {path}:{number} in {function}: {lines[int(number) - 1].strip()}"
