"""One line of the answer."""

from dataclasses import dataclass

OK, WARN, FAIL = "ok", "warn", "FAIL"


@dataclass(frozen=True)
class Finding:
    """One line of the answer, and where it is not ok what to do."""

    status: str
    item: str
    found: str
    advice: str = ""
