"""The pytest plugin of the grader: the `run` fixture, through which a test calls the submission, and who judges.

The pytest process never imports a submission: `run` sends tensors to a worker and brings tensors back. Tests that use
it are spread over several processes, forked once the tests are collected, each with a worker of its own.
"""

import concurrent.futures
import contextlib
import ctypes
import functools
import gc
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from assignment import failure
from assignment.judge import checks, score, streams
from assignment.judge.pool import Pool, default_jobs, pick_device
from assignment.sandbox import rungs
from assignment.submission import UnusableSubmission, read

POOL = pytest.StashKey[Pool]()
SPEED = pytest.StashKey[Any]()  # a speed.Session
STAFF = pytest.StashKey[list[str]]()  # of a case: what failed in the grader while it looked for a cause
SEARCH = pytest.StashKey[Any]()  # a diagnosis.Search
MAX_ROUNDS = 5  # of judging processes, where they are killed from outside
WAKE_EVERY_S = 5.0  # what somebody has stopped
STALL_S = 600.0  # without any verdict: longer than the calls of a test can take together


class Starter:
    """A pytest plugin that brings a pool made beforehand, so that workers load while tests are collected."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[POOL] = self._pool


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("grading")
    group.addoption("--submission", type=Path, help="folder or zip with cs336_kernels/ (default: see pyproject.toml)")
    group.addoption("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where kernels run")
    group.addoption("--seed", type=int, help="replay the inputs of an earlier run")
    group.addoption("--jobs", type=int, help="how many processes judge (default: one a core)")
    group.addoption("--sandbox", choices=(rungs.AUTO, *rungs.RUNGS), default=rungs.AUTO, help="where it runs")
    group.addoption("--inline", action="store_true", help="call the submission in this process, for a debugger")
    parser.addini("submission", "the folder that holds the cs336_kernels/ to test", default=".")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "points(n): what a check is worth")
    config.addinivalue_line("markers", "slow: left out unless asked for with -m slow")
    config.addinivalue_line("markers", "problem(name): the problem that a check belongs to")


def pytest_unconfigure(config: pytest.Config) -> None:
    if SPEED in config.stash:
        config.stash[SPEED].close()
        del config.stash[SPEED]
    if POOL in config.stash:
        config.stash[POOL].close()
        del config.stash[POOL]


def pool_of(config: pytest.Config) -> Pool:
    """The run's pool, made at its first use from the command line's options."""
    if POOL not in config.stash:
        try:
            config.stash[POOL] = pool_for(config)
        except UnusableSubmission as error:
            raise pytest.UsageError(str(error)) from error
    return config.stash[POOL]


def pool_for(config: pytest.Config) -> Pool:
    """A new one; raises UnusableSubmission."""
    path = config.getoption("submission") or config.rootpath / config.getini("submission")
    inline = config.getoption("inline")
    alone = inline or config.getoption("usepdb", False)
    seed = config.getoption("seed")
    device = pick_device(config.getoption("device"))
    return Pool(
        read(path),
        device,
        streams.new_seed() if seed is None else seed,
        1 if alone else config.getoption("jobs") or default_jobs(device),
        path if inline else None,
        config.getoption("sandbox"),
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle the cases of each check, so that none can tell by its turn what is coming."""
    if any(uses_submission(item) for item in items):
        order = {name: i for i, name in enumerate(dict.fromkeys(check_name(item) for item in items))}
        seed = pool_of(config).seed
        items.sort(key=lambda item: (order[check_name(item)], uses_submission(item) and turn(seed, item)))


def turn(seed: int, item: pytest.Item) -> int:
    """Where a case comes among those of its check, whichever of them are run."""
    return streams.number(seed, "turn", case_name(item))


def uses_submission(item: pytest.Item) -> bool:
    return bool({"run", "speed"} & {*getattr(item, "fixturenames", ())})


def is_judged(item: pytest.Item) -> bool:
    """By a judging process; speed is measured in this one, when the machine is quiet."""
    return uses_submission(item) and "speed" not in item.fixturenames  # type: ignore[attr-defined]


def check_name(item: pytest.Item) -> str:
    return f"{item.path.name}::{getattr(item, 'originalname', item.name)}"


def case_name(item: pytest.Item) -> str:
    return f"{item.path.name}::{item.name}"


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
        session.config.stash[SPEED] = speed.Session(pool.stage, pool.rung)


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
    """One set of judging processes; returns the tests that got no verdict because a process was lost."""
    pool = pool_of(session.config)
    fork = multiprocessing.get_context("fork")
    gc.freeze()  # the judges share this memory as long as nobody looks through it
    numbers = fork.Queue()
    for number in range(pool.jobs):
        numbers.put(number)
    executor = ProcessPoolExecutor(pool.jobs, fork, become_judge, (session, numbers))
    with executor:
        pending = {executor.submit(judge, i): i for i in judged}
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


def first_of(pending: Iterable[Future], executor: ProcessPoolExecutor) -> set[Future]:
    """Those that are done, once some are; raises BrokenProcessPool after STALL_S.

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
    """The reports of a case, as plain data; where the grader fails at it a traceback, which costs no other case."""
    item = _session.items[index]
    try:
        reports = runtestprotocol(item, log=False, nextitem=None)
        return [item.config.hook.pytest_report_to_serializable(config=item.config, report=report) for report in reports]
    except Exception:
        problem = traceback.format_exc()
        item.session._setupstate.teardown_exact(None)  # it would be in the way of the next case
        return problem


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Any:
    """Call a function of the submission: run("rmsnorm_forward", x, weight, eps=1e-5)."""
    from assignment.judge.calls import Run

    pool = pool_of(request.config)
    pool.workers[pool.mine].forget_output()
    return Run(pool, order=streams.number(pool.seed, "order of programs", case_name(request.node)))


@pytest.fixture
def speed(request: pytest.FixtureRequest) -> Any:
    """Time a function of the submission against a peer: see speed.Speed."""
    from assignment.timing import speed

    pool, stash = pool_of(request.config), request.config.stash
    if why := speed.needs_a_gpu(pool):
        pytest.skip(why)
    if not stash[SPEED].has_begun:  # what was judged may have left something on the GPU
        for worker in pool.workers:
            worker.restart()
        stash[SPEED].has_begun = True
    return speed.Speed(stash[SPEED])


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> Any:
    """A torch.Generator that depends on the run's seed and the test's id alone."""
    return streams.generator(pool_of(request.config).seed, "inputs", case_name(request.node))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Generator[None, Any, Any]:
    """Add a status and a message for the student to the report of a test that uses the submission."""
    report = yield
    if not uses_submission(item) or (call.when != "call" and not report.failed):
        return report
    staff: list[str] = []
    item.stash[STAFF] = staff
    status, message = verdict(item, call)
    error = call.excinfo.value if call.excinfo else None
    ran, is_fault = getattr(error, "ran", True), getattr(error, "is_fault", False)
    run = door(item)
    notes, cheated = getattr(run, "notes", []), list(getattr(run, "evidence", ()))
    report.user_properties += [("status", status), ("message", message), ("ran", ran), ("notes", notes)]
    report.user_properties.append(("is_fault", is_fault))
    report.user_properties += [("cheated", cheated), ("measured", getattr(run, "measured", ""))]
    size = sum(tensor.numel() for tensor in getattr(run, "asked", {}).get("tensors", ()))
    causes = failure.diagnosed("no likely cause was found", lambda: hints(item, call), None, staff)
    drawn = failure.diagnosed("no map was drawn", lambda: map_of(call), None, staff)
    report.user_properties += [("hints", causes), ("size", size), ("map", drawn), ("staff", staff)]
    report.user_properties.append(("import_error", import_error(item.config)))
    if status == score.FAIL and hasattr(run, "steps"):
        steps: list[str] = failure.diagnosed("no steps were told", run.steps, [], staff)
        report.user_properties.append(("steps", steps))
    for name in ("margin", "share"):
        if call.excinfo and hasattr(call.excinfo.value, name):
            report.user_properties.append((name, getattr(call.excinfo.value, name)))
    if status == score.TO_DO:
        report.outcome, report.longrepr = "skipped", (str(item.path), item.location[1] or 0, message)
    elif report.failed and status != score.GRADER_ERROR and not item.config.getoption("inline"):
        report.longrepr = f"{status}: {message}\n  again: --seed {pool_of(item.config).seed}"
    return report


def import_error(config: pytest.Config) -> str:
    """What kept the package from being imported, as far as the workers of this process know."""
    timed = config.stash[SPEED].submitted.import_error if SPEED in config.stash else ""
    return pool_of(config).import_error() or timed


def hints(item: pytest.Item, call: pytest.CallInfo) -> list[str] | None:
    """What a wrong result may come from, of the first few that a check has; None without a look at it."""
    from assignment import diagnosis
    from tests import compare

    error = call.excinfo.value if call.excinfo else None
    if not isinstance(error, compare.Mismatch) or not error.expected:
        return None
    search = item.config.stash.setdefault(SEARCH, diagnosis.Search())
    check = check_name(item)
    function, is_first = checks.place(check)
    return search.causes(check, function, is_first, door(item).asked, error.got, error.expected)


def map_of(call: pytest.CallInfo) -> dict[str, Any] | None:
    """Where a result is wrong, as plain data."""
    from tests import compare

    error = call.excinfo.value if call.excinfo else None
    return asdict(error.map) if isinstance(error, compare.Mismatch) and error.map else None


def forget_hints(config: pytest.Config) -> None:
    """For another submission."""
    if SEARCH in config.stash:
        del config.stash[SEARCH]


def margin(report: pytest.TestReport) -> float:
    """The largest error over its bound that a case has measured."""
    return max((float(str(value)) for key, value in report.user_properties if key == "margin"), default=0.0)


def door(item: pytest.Item) -> Any:
    """The fixture through which a test asked the submission; None if it got none."""
    fixtures = getattr(item, "funcargs", {})
    return fixtures.get("run") or fixtures.get("speed")


def verdict(item: pytest.Item, call: pytest.CallInfo) -> tuple[str, str]:
    """The status of a case and what to tell the student."""
    run = door(item)
    status, message = outcome(item, call, run)
    evidence = [text for texts in getattr(run, "evidence", {}).values() for text in texts]
    if evidence and status in (*score.KEEPS_POINTS, score.FAIL):
        return score.FAIL, run.in_context("\n".join([*([message] if message else []), *evidence]))
    return status, run.in_context(message) if run is not None and message and status != score.TO_DO else message


def outcome(item: pytest.Item, call: pytest.CallInfo, run: Any) -> tuple[str, str]:
    """The status of a case by itself, and its message."""
    from assignment.judge.calls import SubmissionError

    error = call.excinfo.value if call.excinfo else None
    if error is None:
        doubts = getattr(run, "doubts", [])
        return (score.NEEDS_REVIEW, "\n".join(doubts)) if doubts else (score.OK, "")
    if isinstance(error, SubmissionError) and run is not None:
        return error.status, str(error)
    if isinstance(error, AssertionError) and run is not None:
        look, plain = functools.partial(with_origin_of_nan, error, run), str(error)
        return score.FAIL, failure.diagnosed("the origin of a NaN was not found", look, plain, item.stash[STAFF])
    if item.config.getoption("inline") and isinstance(error, NotImplementedError):
        return score.TO_DO, str(error)
    if item.config.getoption("inline"):
        return score.FAIL, f"{type(error).__name__}: {error}"
    return score.GRADER_ERROR, f"{type(error).__name__}: {error}\nThis is not your code: please report it to the staff."


def with_origin_of_nan(error: AssertionError, run: Any) -> str:
    """Return the message, with the lines of kernels that have made a NaN if a result has any; the map comes last."""
    from tests import compare

    text, nans = str(error), getattr(run, "nans", [])
    if not isinstance(error, compare.Mismatch) or not nans or not any(x.isnan().any() for x in error.got):
        return text
    drawn = error.map.lines if error.map else []
    before = text.splitlines()[: -len(drawn) or None]
    return "\n".join([*before, "  a kernel makes a NaN of numbers, ∞ − ∞, 0 · ∞, 0 / 0 or ∞ / ∞:", *nans, *drawn])


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    if report.skipped and ("status", score.TO_DO) in report.user_properties:
        return "to do", "t", "TO DO"
    return None


def pytest_report_collectionfinish(config: pytest.Config) -> str | None:
    return f"submission tested with --seed {config.stash[POOL].seed}" if POOL in config.stash else None
