"""The pytest plugin of the grader: the `run` fixture, through which a test calls the submission, and who judges.

The pytest process never imports a submission: `run` sends tensors to a worker and brings tensors back.

    fixtures  what a test gets, and the pool of workers behind it
    parallel  the processes that run tests
    inline    a worker's interface on this process, for a debugger
    outcome   what becomes of a case
"""

import atexit
import os
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from assignment.course import CourseError
from assignment.plugin.fixtures import (
    EVERY,
    POOL,
    SPEED,
    Starter,
    check_name,
    in_a_configuration,
    in_every_configuration,
    pool_of,
    rng,
    run,
    speed,
    turn,
    uses_submission,
)
from assignment.plugin.parallel import pytest_runtestloop
from assignment.sandbox import rungs
from assignment.simulator import pytest_plugin as simulation
from assignment.verdict import case, checks, score

if TYPE_CHECKING:
    from assignment.judge.door import Run  # loads PyTorch

__all__ = ["Starter", "check_name", "pytest_runtestloop", "rng", "run", "speed"]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("grading")
    group.addoption("--submission", type=Path, help="folder or zip with cs336_kernels/ (default: see pyproject.toml)")
    group.addoption("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where kernels run")
    group.addoption("--seed", type=int, help="replay the inputs of an earlier run")
    group.addoption("--jobs", type=int, help="how many processes judge (default: one a core)")
    group.addoption("--sandbox", choices=(rungs.AUTO, *rungs.RUNGS), default=rungs.AUTO, help="where it runs")
    group.addoption("--inline", action="store_true", help="call the submission in this process, for a debugger")
    parser.addini("submission", "the folder that holds the cs336_kernels/ to test", default=".")
    simulation.pytest_addoption(parser)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    """Have tests that call no submission run in the simulator, if asked to."""
    simulation.fetch_triton()
    if early_config.known_args_namespace.simulate or early_config.pluginmanager.has_plugin(simulation.__name__):
        simulation.begin(early_config, leaves_alone=uses_submission)
        yield from simulation.pytest_load_initial_conftests(early_config)
    else:
        yield


def pytest_configure(config: pytest.Config) -> None:
    if config.pluginmanager.has_plugin(simulation.NAME) and config.option.device == "auto":
        config.option.device = "cpu"  # PyTorch says that there is a GPU
    try:
        checks.problems()
    except CourseError as error:
        raise pytest.UsageError(str(error)) from None
    config.addinivalue_line("markers", "points(n): what a check is worth, beside the others of its problem")
    config.addinivalue_line("markers", "lengthy: takes long; begun first where many processes judge")
    config.addinivalue_line("markers", "long_file: half a minute or more; begun before other files")
    config.addinivalue_line("markers", "practice: of a problem whose points are in no sum")
    config.addinivalue_line("markers", "slow: left out unless asked for with -m slow")
    config.addinivalue_line("markers", "problem(name): the problem that a check belongs to")


def pytest_unconfigure(config: pytest.Config) -> None:
    if SPEED in config.stash:
        config.stash[SPEED].close()
        del config.stash[SPEED]
    if POOL in config.stash:
        config.stash[POOL].close()
        del config.stash[POOL]


@atexit.register  # before others are, and so it runs after them; once, however many runs this process has
def _leave_in_silence() -> None:
    """Drop what is printed from here on: as Python ends, Triton's bindings list what they hold, a screen of lines."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def pytest_itemcollected(item: pytest.Item) -> None:
    if checks.is_practice(_problem_of(item)):
        item.add_marker("practice")


def _problem_of(item: pytest.Item) -> str:
    """Return the problem of a check; "" of one that the course leaves out, and of other tests."""
    return checks.problem_of(check_name(item)) if item.get_closest_marker("points") else ""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out checks of no problem of the course; shuffle the cases of each, so that no turn tells what is coming."""
    off = [item for item in items if item.get_closest_marker("points") and not _problem_of(item)]
    if off:
        config.hook.pytest_deselected(items=off)
        items[:] = [item for item in items if item not in off]
    if any(uses_submission(item) for item in items):
        order = {name: i for i, name in enumerate(dict.fromkeys(check_name(item) for item in items))}
        seed = pool_of(config).seed
        items.sort(key=lambda item: (order[check_name(item)], uses_submission(item) and turn(seed, item)))
        for item in {check_name(item): item for item in reversed(items)}.values():
            item.stash[EVERY] = True


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, bool | None, bool | None]:
    """Run the first case of a check again for each other configuration of its autotuned kernels, others in one."""
    run = cast("Run | None", pyfuncitem.funcargs.get("run"))
    if run is None:
        return (yield)
    outcome: bool | None = None  # of a configuration that Triton drops
    if EVERY in pyfuncitem.stash:
        outcome = yield
        in_every_configuration(pyfuncitem, run)
        return outcome
    with in_a_configuration(pyfuncitem, run):
        outcome = yield
    return outcome


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the case to the report of a test that uses the submission, and its message for the student."""
    report = yield
    if not uses_submission(item) or (call.when != "call" and not report.failed):
        return report
    from assignment.plugin import outcome  # loads PyTorch

    told = outcome.case_of(item, call, report)
    report.user_properties.append((case.PROPERTY, told.as_json()))
    pool_of(item.config).shared.ended(told.status)
    if told.status in (score.TO_DO, score.NOT_GRADED):
        report.outcome, report.longrepr = "skipped", (str(item.path), item.location[1] or 0, told.message)
        call.excinfo = None  # --pdb opens no debugger at what is not written
    elif report.failed and told.status != score.GRADER_ERROR and not item.config.getoption("inline"):
        report.longrepr = f"{told.status}: {told.message}\n  again: --seed {pool_of(item.config).seed}"
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    told = case.held_by(report) if report.skipped else None
    return ("to do", "t", "TO DO") if told and told.status == score.TO_DO else None


def pytest_report_collectionfinish(config: pytest.Config) -> str | None:
    return f"submission tested with --seed {config.stash[POOL].seed}" if POOL in config.stash else None
