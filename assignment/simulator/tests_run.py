"""A run of pytest in the simulator: watches each part of a test, and tells what its launches did wrong."""

import contextlib
import traceback
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from types import TracebackType

import pytest

from assignment import whose

from . import control, cuda, script
from .calls import Call
from .faults import MemoryFault
from .frames import is_own
from .unstored import UnstoredReads

TITLE = "simulator"
_WARNING = "warning: "
_DETERMINISM = "ignore:.*does not have a deterministic implementation"  # of which undefined.fill_fresh_memory asks


class Found(pytest.fail.Exception):  # type: ignore[name-defined]
    """What went wrong in a test that raised nothing, or caught it."""


@dataclass
class Part:
    """A part of the run: the import of files, or a phase of a test."""

    call: Call
    never_stored: list[str]

    def found(self, but: BaseException | None = None) -> list[str]:
        """Return what went wrong, in words, but for what is raised anyway."""
        return script.told_of(self.never_stored, [fault for fault in self.call.faults if fault is not but])

    def warnings(self) -> list[str]:
        return [f"{_WARNING}{text}" for text in self.call.warnings]


class Simulated:
    """The hooks of such a run."""

    def __init__(self, is_report: bool) -> None:
        control.let_stop()
        self._devices = cuda.StorageDevices()
        cuda.patch(self._devices, "")
        self._reads = UnstoredReads()
        self._is_report = is_report  # what is found fails no test
        self._told: dict[str, list[str]] = {}  # at the end: texts, and where each comes from
        self.leaves_alone: Callable[[pytest.Item], bool] = lambda item: False

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("filterwarnings", _DETERMINISM)

    def pytest_report_header(self) -> str:
        return 'simulator: Triton kernels run on the CPU, where "cuda" tensors are made'

    @contextlib.contextmanager
    def watching(self) -> Iterator[Part]:
        """Run a part of the tests on the GPU that the simulator is."""
        call = Call()
        with contextlib.ExitStack() as stack:
            if self._is_report:
                stack.enter_context(script.past_faults())
            yield Part(call, stack.enter_context(script.watched(call, self._reads, self._devices)))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Import files; one that launches wrongly fails."""
        with self.watching() as part:
            report = yield
        found = part.found()
        for text in [*part.warnings(), *(found if self._is_report else ())]:
            self._note(text, collector.nodeid)
        if found and not self._is_report:
            report.outcome, report.longrepr = "failed", "\n".join(found)
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        yield from self._phase(item, "setup")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        yield from self._phase(item, "call")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        yield from self._phase(item, "teardown")

    def _phase(self, item: pytest.Item, when: str) -> Generator[None, None, None]:
        """Run a phase of a test; raises what its launches did wrong, if it raises nothing itself."""
        if self.leaves_alone(item):
            yield
            return
        raised: BaseException | None = None
        with self.watching() as part:
            try:
                yield
            except BaseException as error:
                raised = error
        found = part.found(but=raised)
        fails = not self._is_report and (raised is None or isinstance(raised, pytest.skip.Exception))
        for text in [*part.warnings(), *([] if fails else found)]:
            item.add_report_section(when, TITLE, text)
        if fails and found:
            raise Found("\n".join(found), pytrace=False)
        if self._is_report and part.call.faults:
            if isinstance(raised, Exception | pytest.fail.Exception):
                pytest.xfail(f"the simulator ended a launch at its fault, and then: {raised}")
            if item.get_closest_marker("xfail"):
                pytest.xfail("what the simulator reports at the end")
        if raised is not None:
            raise raised.with_traceback(_shown(raised))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what is told at the end: warnings, and what fails no test."""
        for title, text in report.sections:
            if title.startswith(f"Captured {TITLE} ") and (self._is_report or text.startswith(_WARNING)):
                self._note(text, report.nodeid)

    def _note(self, text: str, source: str) -> None:
        sources = self._told.setdefault(text, [])
        if source not in sources:  # a report repeats the sections of the phases before
            sources.append(source)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._told:
            return
        terminalreporter.section(TITLE)
        for text, (first, *others) in self._told.items():
            also = f" and {len(others)} more" if others else ""
            terminalreporter.write_line(f"{text}\n  in {first}{also}")


def _shown(error: BaseException) -> TracebackType | None:
    """Return the frames of an exception that concern the author of a test; adds to a fault where it was launched."""
    whole = error.__traceback__
    if isinstance(error, MemoryFault):
        if not getattr(error, "__notes__", None):  # a fixture's is raised again for each of its tests
            error.add_note(script.launched(error).removeprefix("\n"))
    elif not isinstance(error, Exception) or whose.is_ours(error):
        return whole
    own = [(frame, line) for frame, line in traceback.walk_tb(whole) if is_own(frame.f_code.co_filename)]
    trace = None
    for frame, line in reversed(own):
        trace = TracebackType(trace, frame, frame.f_lasti, line)
    return trace or whole
