"""Who judges: processes forked once the tests are collected, each with a worker of its own; speed comes afterwards.

pytest-xdist would not do: its workers are fresh interpreters, which import PyTorch and collect for themselves, share no
memory with this process, and fail the test at which a submission's signals kill or stop them; here another judges it.
"""

import concurrent.futures
import contextlib
import ctypes
import gc
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from assignment.plugin.fixtures import SPEED, check_name, is_judged, pool_of, uses_submission

MANY = 8  # judges, of which the last ones would wait for a long test
MAX_ROUNDS = 5  # of judging processes, where they are killed from outside
WAKE_EVERY_S = 5.0  # what somebody has stopped
STALL_S = 600.0  # without any verdict: longer than the calls of a test can take together


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Spread the tests that call the submission over the judging processes; the others follow in this one."""
    prepare_for_speed(session)
    judged = [i for i, item in enumerate(session.items) if is_judged(item)]
    if session.testsfailed or session.config.option.collectonly or not judged:
        return None
    if pool_of(session.config).jobs == 1:
        compute_alone()
        return None
    judge_in_parallel(session, judged)
    rest = [item for item in session.items if not is_judged(item)]
    for i, item in enumerate(rest):
        stop_if_asked(session)
        following = rest[i + 1] if i + 1 < len(rest) else None
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    stop_if_asked(session)
    return True


def prepare_for_speed(session: pytest.Session) -> None:
    """Start the workers that will be timed, where there are such tests and a GPU."""
    if session.config.option.collectonly or not any(uses_submission(i) and not is_judged(i) for i in session.items):
        return
    from assignment.timing import speed

    pool = pool_of(session.config)
    if not speed.needs_a_gpu(pool):
        session.config.stash[SPEED] = speed.SpeedSession(pool.stage, pool.rung)


def stop_if_asked(session: pytest.Session) -> None:
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)


def judge_in_parallel(session: pytest.Session, judged: list[int]) -> None:
    """Have all of these tests judged. Judges that are killed or stopped from outside are replaced a few times."""
    for _ in range(MAX_ROUNDS):
        judged = judge_what_is_left(session, judged)
        if not judged:
            return
        pool_of(session.config).renew()
    raise RuntimeError(
        f"the grader's own processes were killed or stopped {MAX_ROUNDS} times: for want of memory? "
        "If it happens again, look at what the submission starts and signals"
    )


def judge_what_is_left(session: pytest.Session, judged: list[int]) -> list[int]:
    """Judge with one set of processes; return the tests that got no verdict because a process was lost."""
    pool = pool_of(session.config)
    fork = multiprocessing.get_context("fork")
    gc.freeze()  # the judges share this memory as long as nobody looks through it
    numbers = fork.Queue()
    for number in range(pool.jobs):
        numbers.put(number)
    executor = ProcessPoolExecutor(pool.jobs, fork, become_judge, (session, numbers))
    with executor:
        pending = {executor.submit(judge, i): i for i in in_turn(session, judged, pool.jobs)}
        try:
            while pending:
                for future in sorted(first_of(pending, executor), key=lambda future: future.exception() is not None):
                    hand_on(session, session.items[pending[future]], future.result())
                    del pending[future]
        except BrokenProcessPool:
            end(executor)
            return sorted(pending.values())
        except BaseException:
            end(executor)
            raise
    return []


def in_turn(session: pytest.Session, judged: list[int], jobs: int) -> list[int]:
    """Return the tests in the order in which they are begun: with many judges the longest first, else as they stand."""
    if jobs < MANY:
        return judged
    return sorted(judged, key=lambda i: session.items[i].get_closest_marker("lengthy") is None)


def first_of(pending: Iterable[Future], executor: ProcessPoolExecutor) -> set[Future]:
    """Return those that are done, once some are; raises BrokenProcessPool after STALL_S.

    Judges that somebody has stopped are set going again.
    """
    until = time.monotonic() + STALL_S
    while time.monotonic() < until:
        done, _ = concurrent.futures.wait(pending, WAKE_EVERY_S, concurrent.futures.FIRST_COMPLETED)
        if done:
            return done
        for pid in list(executor._processes or ()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    raise BrokenProcessPool("no verdict for too long")


def hand_on(session: pytest.Session, item: pytest.Item, reports: list[dict[str, Any]] | str) -> None:
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


def end(executor: ProcessPoolExecutor) -> None:
    """Kill the judging processes: each may be waiting for a worker's deadline, or be stopped."""
    for process in list((executor._processes or {}).values()):
        process.kill()
    executor.shutdown(wait=True, cancel_futures=True)


_session: pytest.Session  # of a judging process; forked with it


def become_judge(session: pytest.Session, numbers: Any) -> None:
    global _session
    set_parent_death_signal = 1  # a grader that is killed leaves no judge behind, which would wait for ever
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that reports
    _session = session
    pool_of(session.config).mine = numbers.get()
    compute_alone()


def compute_alone() -> None:
    """Have PyTorch use one thread in this process: the other cores are for the submission's, and other grades."""
    import torch

    torch.set_num_threads(1)


def judge(index: int) -> list[dict[str, Any]] | str:
    """Return a case's reports, as plain data; if the grader fails at it a traceback, which costs no other case."""
    item = _session.items[index]
    pool = pool_of(item.config)
    pool.judge(index, check_name(item))
    try:
        reports = runtestprotocol(item, log=False, nextitem=None)
        return [item.config.hook.pytest_report_to_serializable(config=item.config, report=report) for report in reports]
    except Exception:
        problem = traceback.format_exc()
        item.session._setupstate.teardown_exact(None)  # it would be in the way of the next case
        return problem
    finally:
        pool.is_judged()
