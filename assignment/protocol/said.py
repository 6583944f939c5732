"""What is said of a submission, and the lines of it that this names, as fields: nobody reads them off the text."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

MAX_PLACES = 16  # of a text


@dataclass(frozen=True)
class SourceLine:
    """A line of the submission that a text names, as in "at cs336_kernels/rmsnorm.py:12 in rmsnorm_forward"."""

    says: str
    path: str
    line: int


Places: TypeAlias = tuple[SourceLine, ...]


@dataclass(frozen=True)
class Said:
    """A text, and the lines of the submission that it names, the innermost first."""

    text: str
    places: Places = ()

    def __str__(self) -> str:
        return self.text


def joined(parts: "Iterable[str | Said]") -> Said:
    """Return texts below one another, without empty ones."""
    parts = [part for part in parts if str(part)]
    places = [place for part in parts if isinstance(part, Said) for place in part.places]
    return Said("\n".join(map(str, parts)), tuple(places[:MAX_PLACES]))


def at(path: str, line: int, where: str = "", code: str = "", lead: str = "  at") -> Said:
    """Return "  at cs336_kernels/rmsnorm.py:42 in rmsnorm_forward: source line", with that line; `where` is " in …"."""
    says = f"{lead} {path}:{line}{where}"
    return Said(f"{says}: {code}" if code else says, (SourceLine(says.strip(), path, line),))


class Telling(Exception):
    """An exception with lines of the submission in its message, which is made of parts."""

    def __init__(self, *parts: str | Said) -> None:
        self.said = joined(parts)
        super().__init__(self.said.text)

    def tell_more(self, more: Said) -> None:
        """Add to the message."""
        self.said = joined([self.said, more])
        self.args = (self.said.text,)
