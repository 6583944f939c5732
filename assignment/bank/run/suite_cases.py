"""Runs the cases of a suite in this process, and writes a line about each: for suites.py, which starts it.

`pytest -p assignment.bank.run.suite_cases` takes a SuiteTask from the environment, and so does
`python -m assignment.bank.run.suite_cases SCRIPT VALUES`, which runs one script, and keeps the tensors that it leaves.
"""

import builtins
import contextlib
import itertools
import json
import linecache
import os
import signal
import sys
import time
import traceback
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING

import pytest

from assignment import whose
from assignment.pytest_private import TestFailed

if TYPE_CHECKING:
    import torch

TASK = "SUITE_TASK"
SIMULATOR, INTERPRETER = "simulator", "interpreter"
RIGHT, SKIPPED, REFUSED, FAULT, OTHER, WRONG, FOUND, SLOW = (
    "right", "skipped", "refused", "fault", "other error", "wrong", "finding", "too slow",
)  # fmt: skip
WALL = 8  # times its CPU time a case may take on a busy machine
AGAIN_S = 5.0  # after a limit, where what it raised was swallowed
SHOWN = 3  # innermost lines of an exception
HERE = f"{Path(__file__).resolve().parents[2] / 'simulator'}{os.sep}"
AROUND = tuple(f"{HERE}{name}.py" for name in ("tests_run", "pytest_plugin", "script"))
NO_CLOCK = "the simulator has no clock"  # a script that comes so far has shown what it computes


@dataclass(frozen=True)
class SuiteTask:
    """What a process is to do."""

    engine: str
    kept: str  # the file to which lines are added
    limit_s: float
    per_function: int
    done: tuple[str, ...]  # cases with a line already


@dataclass(frozen=True)
class CaseOutcome:
    """What became of a case."""

    case: str
    kind: str
    seconds: float = 0.0
    error: str = ""
    places: tuple[str, ...] = ()


class TimeIsUp(BaseException):
    """The case takes longer than it may."""


def begin(engine: str) -> None:
    """Make this process one of an engine, with a GPU's stand-ins in both: tests see the same machine."""
    if engine == SIMULATOR:
        from assignment.simulator import install

        install()
        return
    os.environ["TRITON_INTERPRET"] = "1"
    from assignment.simulator import builder, cuda, host, properties
    from assignment.simulator.triton_private import driver

    driver.set_active(host.Driver(builder.TARGET, properties.H100))
    cuda.patch(cuda.StorageDevices(), "")
    cuda.CudaOnCpu().__enter__()


def kind_of(error: BaseException, engine: str) -> str:
    """Return what an exception says of the engine."""
    from assignment.simulator.faults import MemoryFault
    from assignment.simulator.tests_run import Found

    if isinstance(error, TimeIsUp):
        return SLOW
    if isinstance(error, Found | MemoryFault):
        return FOUND
    if isinstance(error, pytest.skip.Exception | pytest.xfail.Exception | ModuleNotFoundError):
        return SKIPPED
    if isinstance(error, AssertionError | TestFailed):
        return WRONG
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    if engine == INTERPRETER or not any(file.startswith(HERE) and file not in AROUND for file in files):
        return OTHER
    return FAULT if whose.is_ours(error) else REFUSED


def outcome_of(case: str, error: BaseException | None, engine: str, seconds: float = 0.0) -> CaseOutcome:
    if error is None:
        return CaseOutcome(case, RIGHT, seconds)
    frames = traceback.extract_tb(error.__traceback__)[-SHOWN:]
    places = tuple(f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in frames)
    return CaseOutcome(case, kind_of(error, engine), seconds, f"{type(error).__name__}: {error}"[:600], places)


def sampled(items: list[pytest.Item], most: int) -> set[str]:
    """Return the ids of a few cases of each function, from its first to its last."""
    functions: dict[str, list[str]] = {}
    for item in items:
        functions.setdefault(item.nodeid.partition("[")[0], []).append(item.nodeid)
    return (
        {
            cases[round(i * (len(cases) - 1) / max(most - 1, 1))]
            for cases in functions.values()
            for i in range(min(most, len(cases)))
        }
        if most > 1
        else {cases[0] for cases in functions.values()}
    )


def keep_sources() -> None:
    """Have exec keep what it runs where inspect looks: some suites make kernels of strings."""
    run, numbers = builtins.exec, itertools.count()

    def kept(source: str | CodeType, names: dict | None = None, local: dict | None = None) -> None:
        if isinstance(source, str):
            file = f"<exec {next(numbers)}>"
            linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
            source = compile(source, file, "exec")
        caller = sys._getframe(1)
        names = caller.f_globals if names is None else names
        run(source, names, names if local is None else local)

    builtins.exec = kept  # type: ignore[assignment]


class Cases:
    """The hooks that choose cases, end slow ones, and write what becomes of them."""

    def __init__(self, job: SuiteTask) -> None:
        self.job, self._began = job, 0.0
        self._outcome: CaseOutcome | None = None  # of the case that runs, once something was raised

    def _write(self, line: dict) -> None:
        with Path(self.job.kept).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = sampled(items, self.job.per_function) - set(self.job.done)
        items[:] = [item for item in items if item.nodeid in chosen]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            text = str(report.longrepr).strip().splitlines()[-1]
            self._write(asdict(CaseOutcome(report.nodeid, SKIPPED, 0.0, f"not imported: {text}")))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, bool, bool]:
        self._began, self._outcome = time.process_time(), None
        self._write({"began": item.nodeid})
        with limited(self.job.limit_s):
            result = yield
        seconds = round(time.process_time() - self._began, 2)
        outcome = replace(self._outcome or CaseOutcome(item.nodeid, RIGHT), seconds=seconds)
        self._write(asdict(outcome))
        if outcome.kind == SLOW:  # it may have been ended as it imported something: the rest is for another process
            self._write({"left": True})
            item.session.shouldstop = outcome.kind
        return result

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        yield from self._noted(item)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        yield from self._noted(item)

    def _noted(self, item: pytest.Item) -> Generator[None, None, None]:
        """Note what is raised before the simulator shortens its traceback."""
        try:
            yield
        except BaseException as error:
            self._note(item, error)
            raise

    def _note(self, item: pytest.Item, error: BaseException) -> None:
        self._outcome = self._outcome or outcome_of(item.nodeid, error, self.job.engine)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note what the simulator has found where nothing was raised, and tests that are expected to fail."""
        if call.excinfo is not None:
            self._note(item, call.excinfo.value)
        report = yield
        if hasattr(report, "wasxfail"):
            self._outcome = CaseOutcome(item.nodeid, SKIPPED, error="expected to fail")
        return report


@contextlib.contextmanager
def limited(cpu_s: float) -> Iterator[None]:
    """Raise TimeIsUp inside once so much CPU time has passed, or WALL times as much by the clock."""
    timers = {signal.ITIMER_PROF: cpu_s, signal.ITIMER_REAL: WALL * cpu_s}
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, _time_is_up)
    for timer, seconds in timers.items():
        signal.setitimer(timer, seconds, AGAIN_S)
    try:
        yield
    finally:
        for timer in timers:
            signal.setitimer(timer, 0)


def _time_is_up(*_: int | FrameType | None) -> None:
    raise TimeIsUp


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    job = SuiteTask(**json.loads(os.environ[TASK]))
    begin(job.engine)
    keep_sources()
    early_config.pluginmanager.register(Cases(job))
    yield


def tensors(names: dict, depth: int = 3) -> Iterator[tuple[str, "torch.Tensor"]]:
    """Yield the tensors among a script's names, those in its dictionaries and lists too."""
    import torch

    for name, value in names.items():
        if isinstance(value, torch.Tensor):
            yield str(name), value.detach()
        elif isinstance(value, dict | list | tuple) and depth:
            inner = value if isinstance(value, dict) else dict(enumerate(value))
            yield from ((f"{name}.{key}", tensor) for key, tensor in tensors(inner, depth - 1))


def names_of(error: BaseException | None, path: str) -> dict:
    """Return the names of a script that an exception has ended."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__ if error else None))
    return next((frame.f_globals for frame in frames if frame.f_code.co_filename == path), {})


def run_script(path: str, values: str) -> None:
    """Run a script, write its outcome to stdout's last line, and keep its tensors."""
    job = SuiteTask(**json.loads(os.environ[TASK]))
    begin(job.engine)
    import random

    import numpy as np
    import torch

    from assignment.simulator import script
    from assignment.simulator.calls import Call
    from assignment.simulator.undefined import are_unwritten

    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    began, call = time.process_time(), Call()
    with limited(job.limit_s):
        done = script.run(path, [], call)
    seconds = round(time.process_time() - began, 2)
    outcome = outcome_of(path, None if NO_CLOCK in str(done.error) else done.error, job.engine, seconds)
    if violations := script.told_of(done.never_stored, call.faults) if job.engine == SIMULATOR else []:
        outcome = CaseOutcome(path, FOUND, seconds, "\n".join(violations)[:2000])
    names = done.names or names_of(done.error, path)
    left = dict(tensors({name: value for name, value in names.items() if name[0] != "_"}))
    unwritten = {name: are_unwritten(tensor) for name, tensor in left.items()} if job.engine == SIMULATOR else {}
    torch.save((left, unwritten), values)
    print("\n" + json.dumps(asdict(outcome)), flush=True)


if __name__ == "__main__":
    run_script(*sys.argv[1:])
