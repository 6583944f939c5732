"""One line of the doctor's answer."""

from dataclasses import dataclass

OK, WARN, FAIL = "ok", "warn", "FAIL"


@dataclass(frozen=True)
class MachineFinding:
    """What was found of one item and, where it is not ok, what to do."""

    status: str
    item: str
    found: str
    advice: str = ""
