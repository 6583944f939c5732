"""Who runs tests: processes forked once they are collected, each with a worker of its own; speed comes afterwards.

Where a process that has loaded PyTorch cannot be forked, each of them is a fresh interpreter that collects for itself.

Tests that call the submission are tasks of their own, the others go by files, which share what their fixtures set up.
pytest-xdist would not do: its workers are fresh interpreters, which import PyTorch and collect for themselves, share no
memory with this process, and fail the test at which a submission's signals kill or stop them; here another judges it.
"""

import concurrent.futures
import contextlib
import gc
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

from assignment.judge.pool import Pool, default_jobs
from assignment.plugin.fixtures import POOL, SEARCHED, SPEED, Starter, check_name, is_judged, pool_of, uses_submission
from assignment.protocol.messages import Header
from assignment.pytest_private import collect, runtestprotocol
from assignment.system import here

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

Task = tuple[int, ...]  # the numbers of tests that one process runs
Reports: TypeAlias = list[Header] | str  # of one test, as plain data; or what kept it from them
MANY = 8  # judges, of which the last ones would wait for a long test
MAX_ROUNDS = 5  # of judging processes, where they are killed from outside
WAKE_EVERY_S = 5.0  # what somebody has stopped
STALL_S = 600.0  # without any verdict: longer than the calls of a test can take together


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Spread the tests over processes; those of speed, or of a single file, follow in this one."""
    prepare_for_speed(session)
    judged, files = judged_of(session), files_of(session)
    if session.testsfailed or session.config.option.collectonly or not (judged or files):
        return None
    if (jobs := jobs_of(session)) == 1:
        if judged:
            compute_alone()
        return None
    run_in_parallel(session, judged, jobs)
    run_in_parallel(session, files, jobs + 1)  # these often wait
    done = {i for task in (*judged, *files) for i in task}
    rest = [item for i, item in enumerate(session.items) if i not in done]
    for i, item in enumerate(rest):
        stop_if_asked(session)
        following = rest[i + 1] if i + 1 < len(rest) else None
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    stop_if_asked(session)
    return True


def judged_of(session: pytest.Session) -> list[Task]:
    return [(i,) for i, item in enumerate(session.items) if is_judged(item)]


def files_of(session: pytest.Session) -> list[Task]:
    """Return the tests that call no submission, file by file, long ones first; nothing where they are in one file."""
    files: dict[Path, list[int]] = {}
    for i, item in enumerate(session.items):
        if not uses_submission(item):
            files.setdefault(item.path, []).append(i)
    by_file = sorted(files.values(), key=lambda numbers: not session.items[numbers[0]].get_closest_marker("long_file"))
    return [tuple(numbers) for numbers in by_file] if len(files) > 1 else []


def jobs_of(session: pytest.Session) -> int:
    """Return how many processes run tests."""
    if judged_of(session):
        return pool_of(session.config).jobs
    options = session.config.option
    return 1 if options.usepdb else options.jobs or default_jobs("cpu")


def prepare_for_speed(session: pytest.Session) -> None:
    """Start the workers that will be timed, where there are such tests and a GPU."""
    if session.config.option.collectonly or not any(uses_submission(i) and not is_judged(i) for i in session.items):
        return
    from assignment.timing import speed  # loads PyTorch

    pool = pool_of(session.config)
    if not speed.needs_a_gpu(pool):
        session.config.stash[SPEED] = speed.SpeedSession(pool.stage, pool.rung)


def stop_if_asked(session: pytest.Session) -> None:
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)


def run_in_parallel(session: pytest.Session, tasks: list[Task], jobs: int) -> None:
    """Have all of these tests run. Processes that are killed or stopped from outside are replaced a few times."""
    if not tasks:
        return
    for _ in range(MAX_ROUNDS):
        tasks = run_what_is_left(session, tasks, jobs)
        if not tasks:
            return
        if POOL in session.config.stash:
            pool_of(session.config).renew()
    raise RuntimeError(
        f"the grader's own processes were killed or stopped {MAX_ROUNDS} times: for want of memory? "
        "If it happens again, look at what the submission starts and signals"
    )


def run_what_is_left(session: pytest.Session, tasks: list[Task], jobs: int) -> list[Task]:
    """Run tests in one set of processes; return those that have no result because a process was lost."""
    gc.set_threshold(10_000)
    gc.freeze()  # the judges share this memory as long as nobody looks through it
    numbers = here.CONTEXT.Queue()
    for number in range(jobs):
        numbers.put(number)
    if here.FORKS:
        executor = ProcessPoolExecutor(jobs, here.CONTEXT, become_judge, (session, numbers))
    else:
        executor = ProcessPoolExecutor(jobs, here.CONTEXT, collect_and_judge, (Collection.of(session), numbers))
    with here.interrupts_unheard():
        pending = {executor.submit(run_task, task): task for task in in_turn(session, tasks, jobs)}
    try:
        while pending:
            for future in sorted(wait_for_any(pending, executor), key=lambda one: one.exception() is not None):
                for i, reports in zip(pending[future], future.result(), strict=True):
                    hand_on(session, session.items[i], reports)
                del pending[future]
    except BrokenProcessPool:
        end(executor)
        return sorted(pending.values())
    except BaseException:
        end(executor)
        raise
    let_end(executor)
    return []


def in_turn(session: pytest.Session, tasks: list[Task], jobs: int) -> list[Task]:
    """Return tasks in the order in which they are begun: those marked `lengthy` first, where many processes judge."""
    if jobs < MANY:
        return tasks
    return sorted(tasks, key=lambda task: session.items[task[0]].get_closest_marker("lengthy") is None)


def wait_for_any(pending: Iterable[Future], executor: ProcessPoolExecutor) -> set[Future]:
    """Wait until a future is done; return all that are. Raises BrokenProcessPool after STALL_S.

    Judges that somebody has stopped are set going again.
    """
    until = time.monotonic() + STALL_S
    while time.monotonic() < until:
        done, _ = concurrent.futures.wait(pending, WAKE_EVERY_S, concurrent.futures.FIRST_COMPLETED)
        if done:
            return done
        wake(executor._processes or ())
    raise BrokenProcessPool("no verdict for too long")


def wake(pids: Iterable[int]) -> None:
    for pid in list(pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def hand_on(session: pytest.Session, item: pytest.Item, reports: Reports) -> None:
    """Tell pytest of a test that a judging process has run, or of what kept it from a verdict."""
    hook = session.config.hook
    if isinstance(reports, str):
        session.testsfailed += 1
        hook.pytest_internalerror(excrepr=f"{item.nodeid}:\n{reports}", excinfo=None)
        return
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for data in reports:
        hook.pytest_runtest_logreport(report=hook.pytest_report_from_serializable(config=session.config, data=data))
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    stop_if_asked(session)


def let_end(executor: ProcessPoolExecutor) -> None:
    """Wait until the judging processes have ended by themselves, with one that somebody stopped while it was idle."""
    judges = list(executor._processes or ())
    ending = threading.Thread(target=executor.shutdown)
    ending.start()
    while ending.is_alive():
        ending.join(WAKE_EVERY_S)
        wake(judges)


def end(executor: ProcessPoolExecutor) -> None:
    """Kill the judging processes: each may be waiting for a worker's deadline, or be stopped."""
    for process in list((executor._processes or {}).values()):
        process.kill()
    executor.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True)
class Collection:
    """What a process that is not forked needs to collect the same tests."""

    arguments: tuple[str, ...]
    folder: Path
    names: tuple[str, ...]  # of the tests
    pool: Pool | None
    is_searched: bool

    @classmethod
    def of(cls, session: pytest.Session) -> "Collection":
        asked, stash = session.config.invocation_params, session.config.stash
        names = tuple(item.nodeid for item in session.items)
        pool, is_searched = stash.get(POOL, None), stash.get(SEARCHED, False)
        return cls(tuple(map(str, asked.args)), asked.dir, names, pool, is_searched)

    def collected(self) -> pytest.Session:
        os.chdir(self.folder)
        starter = [Starter(self.pool, self.is_searched)] if self.pool else []
        session = collect(self.arguments, ["assignment.plugin", *starter])
        if tuple(item.nodeid for item in session.items) != self.names:
            raise RuntimeError("a judging process has collected other tests")
        return session


def collect_and_judge(collection: Collection, numbers: "Queue[int]") -> None:
    """Become a judge of what this process, which was not forked, collects itself while its worker loads."""
    if collection.pool:
        collection.pool.take_worker(0)
    become_judge(collection.collected(), numbers)


_sessions: list[pytest.Session] = []  # of a judging process its own, forked with it


def become_judge(session: pytest.Session, numbers: "Queue[int]") -> None:
    here.die_with_parent()  # a grader that is killed leaves no judge behind, which would wait for ever
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that reports
    _sessions.append(session)
    if POOL in session.config.stash:
        pool_of(session.config).take_worker(numbers.get())
    plugins = session.config.pluginmanager
    if plugins.has_plugin("terminalreporter"):  # the process that reports has its own
        plugins.unregister(name="terminalreporter")
    capture = plugins.getplugin("capturemanager")
    if capture and capture.is_globally_capturing():  # the files that it has are those of all processes
        capture.stop_global_capturing()
        capture.start_global_capturing()
    compute_alone()


def compute_alone() -> None:
    """Have PyTorch use one thread in this process: the other cores are for the submission's, and other grades."""
    import torch

    torch.set_num_threads(1)


def run_task(task: Task) -> list[Reports]:
    """Return the reports of each test."""
    items = [_sessions[-1].items[i] for i in task]
    if is_judged(items[0]):
        return [judge(task[0], items[0])]
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what a test starts inherits this
    try:
        return [reports_of(*each, whole_protocol) for each in zip(items, [*items[1:], None], strict=True)]
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def whole_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
    """Run a test with what all plugins do around it, such as pytest's filters of warnings; return its reports."""
    reports: list[pytest.TestReport] = []

    class Gather:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            reports.append(report)

    gather = item.config.pluginmanager.register(Gather())
    try:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
    finally:
        item.config.pluginmanager.unregister(name=gather)
    return reports


def judge(index: int, item: pytest.Item) -> Reports:
    """Return the reports of a test that calls the submission."""
    pool = pool_of(item.config)
    pool.shared.judge(index, check_name(item))
    try:
        return reports_of(item, None, partial(runtestprotocol, log=False))
    finally:
        pool.shared.is_judged()


def reports_of(
    item: pytest.Item, following: pytest.Item | None, protocol: Callable[..., list[pytest.TestReport]]
) -> Reports:
    """Return a test's reports, as plain data; if the grader fails at it a traceback, which costs no other test."""
    try:
        reports = protocol(item, nextitem=following)
        return [item.config.hook.pytest_report_to_serializable(config=item.config, report=report) for report in reports]
    except Exception:
        problem = traceback.format_exc()
        item.session._setupstate.teardown_exact(None)  # it would be in the way of the next one
        return problem
