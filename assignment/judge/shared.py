"""What the judging processes of one run tell each other: which checks have failed, and whose call goes on."""

import math
import time
import zlib
from collections import Counter

from assignment.sandbox.stage import GIVE_UP, GO_ON, WAIT
from assignment.system import here
from assignment.verdict import checks, score

FATAL = (score.CRASHED, score.TIMEOUT)
FAILED = (score.FAIL, *FATAL)
LESS_PATIENCE = 0.2
LONG_S = 5.0  # of a call, after which later tests wait for it where their order counts; usual: 2 s
NOBODY = (1 << 31) - 1


class Shared:
    """What processes forked from one share; each has its own notes of what it judges itself."""

    is_in_order = False  # whether verdicts are wanted in the order of the tests: of two long calls the later one waits

    def __init__(self) -> None:
        self._numbers = {check.name: number for number, check in enumerate(checks.declared())}
        self._functions = {check.name: check.function for check in checks.declared()}
        self._judged = (NOBODY, "")  # the test that this process judges, by number, and its check
        self.check = ""  # of which a case is run by this process
        self.until = math.inf  # by the monotonic clock, when calls are given up
        self.begin()

    def begin(self) -> None:
        """Begin with a submission of which nothing is known."""
        # without a lock, which a killed process could keep
        self._has_failed = here.CONTEXT.RawValue("b", 0)
        self._ended, self._places = (here.CONTEXT.RawArray("I", len(self._numbers)) for _ in range(2))  # of each check
        self.let_go()

    def let_go(self) -> None:
        """Let nobody wait for the call of another process: it may be lost."""
        self._long = here.CONTEXT.RawValue("i", NOBODY)  # of the test that later ones wait for

    @property
    def has_failed(self) -> bool:
        """Return whether a case of this submission has failed."""
        return bool(self._has_failed.value)

    def ended(self, status: str) -> None:
        """Remember whether a case that has this status has failed; one that is to do has not."""
        self._has_failed.value |= status in FAILED

    def died(self, check: str, status: str) -> None:
        """Remember that a case of a check has crashed or run out of time: the check has failed."""
        if check in self._numbers:
            self._ended[self._numbers[check]] = 1 + FATAL.index(status)

    def hung(self, place: str) -> None:
        """Remember in what loop of host code a call of this process was stopped."""
        if self.check in self._numbers:
            self._places[self._numbers[self.check]] = zlib.crc32(place.encode())

    def patience(self) -> float:
        """Return what of its limit a call of this process may take.

        It is less where two checks of its function have hung in one place.
        """
        function = self._functions.get(self.check)
        others = [self._places[n] for name, n in self._numbers.items() if self._functions[name] == function]
        places = Counter(filter(None, others))
        return LESS_PATIENCE if max(places.values(), default=0) > 1 else 1.0

    def given_up(self, check: str) -> str | None:
        """Return the status of a check of which a case has ended its worker; None where none has."""
        ended = self._ended[self._numbers[check]] if check in self._numbers else 0
        return FATAL[ended - 1] if ended else None

    def judge(self, test: int, check: str) -> None:
        """Remember which test this process judges from now on; its number is its place among all."""
        self._judged = (test, check)

    def is_judged(self) -> None:
        """Let those go on that have waited for the test of this process."""
        if self._long.value == self._judged[0]:
            self._long.value = NOBODY
        self._judged = (NOBODY, "")

    def turn(self, spent_s: float) -> str:
        """Return what becomes of a call of this process that has taken so long until now."""
        test, check = self._judged
        if self.given_up(check) or time.monotonic() > self.until:
            return GIVE_UP
        if self.is_in_order and spent_s > LONG_S and test < self._long.value:
            self._long.value = test
        return WAIT if self._long.value < test < NOBODY else GO_ON
