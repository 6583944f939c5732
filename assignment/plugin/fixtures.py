"""What a test of the submission gets from the grader, and the pool of workers behind it."""

import contextlib
import functools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assignment.judge import seeds
from assignment.judge.errors import SubmissionError
from assignment.judge.pool import CallWorker, Pool, default_jobs, pick_device
from assignment.pytest_private import call_again
from assignment.simulator.draws import MOVED_OF
from assignment.submission import Submission, UnusableSubmission, read

if TYPE_CHECKING:
    from torch import Generator

    from assignment.judge import door as judged
    from assignment.timing.speed import SpeedSession
    from tests import door

POOL = pytest.StashKey[Pool]()
EVERY = pytest.StashKey[bool]()  # of the case of each check that is played in every configuration
SPEED: "pytest.StashKey[SpeedSession]" = pytest.StashKey()
SEARCHED = pytest.StashKey[bool]()  # where wrong results are kept, for a search for their causes


class Starter:
    """A pytest plugin that brings a pool made beforehand, so that workers load while tests are collected."""

    def __init__(self, pool: Pool, is_searched: bool = True) -> None:
        self._pool, self._is_searched = pool, is_searched

    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[POOL] = self._pool
        config.stash[SEARCHED] = self._is_searched


def pool_of(config: pytest.Config) -> Pool:
    """Return the run's pool, made at its first use from the command line's options."""
    if POOL not in config.stash:
        try:
            config.stash[POOL] = pool_for(config)
        except UnusableSubmission as error:
            raise pytest.UsageError(str(error)) from error
    return config.stash[POOL]


def pool_for(config: pytest.Config) -> Pool:
    """Return a new one; raises UnusableSubmission."""
    option = config.getoption
    path = option("submission") or config.rootpath / config.getini("submission")
    jobs = 1 if option("usepdb", False) else option("jobs")
    return started(read(path), path, option("device"), option("seed"), jobs, option("inline"), option("sandbox"))


def started(
    submission: Submission, path: Path, device: str, seed: int | None, jobs: int | None, is_inline: bool, sandbox: str
) -> Pool:
    """Return a new pool for what was read from this path; a device, a seed and jobs that are not said are chosen."""
    device, seed = pick_device(device), seeds.new_seed() if seed is None else seed
    inline = functools.partial(in_this_process, path, device) if is_inline else None
    return Pool(submission, device, seed, 1 if is_inline else jobs or default_jobs(device), inline, sandbox)


def in_this_process(path: Path, device: str, staged: Path) -> CallWorker:
    """Return what answers requests here, in view of a debugger: on the submission where it lies, or as it is staged."""
    from assignment.plugin.inline import InlineWorker  # loads PyTorch

    return InlineWorker(path.resolve() if path.is_dir() else staged, device)


def turn(seed: int, item: pytest.Item) -> int:
    """Return where a case comes among those of its check, whichever of them are run."""
    return seeds.number(seed, "turn", case_name(item))


def uses_submission(item: pytest.Item) -> bool:
    return bool({"run", "speed"} & {*getattr(item, "fixturenames", ())})


def is_judged(item: pytest.Item) -> bool:
    """Return whether a judging process judges it; speed is measured in this one, when the machine is quiet."""
    return uses_submission(item) and "speed" not in item.fixturenames  # type: ignore[attr-defined]


def check_name(item: pytest.Item) -> str:
    return f"{item.path.name}::{getattr(item, 'originalname', item.name)}"


def case_name(item: pytest.Item) -> str:
    return f"{item.path.name}::{item.name}"


def import_error(config: pytest.Config) -> str:
    """Return what kept the package from being imported, as far as the workers of this process know."""
    timed = config.stash[SPEED].submitted.import_error if SPEED in config.stash else ""
    return pool_of(config).import_error() or timed


@pytest.fixture
def run(request: pytest.FixtureRequest) -> "door.Run":
    """Call a function of the submission: run("rmsnorm_forward", x, weight, eps=1e-5)."""
    from assignment.judge.door import Run  # loads PyTorch

    pool = pool_of(request.config)
    pool.workers[pool.worker_index].forget_output()
    check = check_name(request.node)
    order = seeds.number(pool.seed, "order of programs", case_name(request.node))
    return Run(pool, order - order % MOVED_OF + (not moves_last_bits(request.node, pool.seed)), check)


def moves_last_bits(item: pytest.Item, seed: int) -> bool:
    """Return whether the simulator moves last bits in this case: in two of each check, and of every few.

    Two, since one of them may not be played.
    """
    spec = getattr(item, "callspec", None)
    cases = math.prod(len(mark.args[1]) for mark in item.iter_markers("parametrize"))
    turn = seeds.number(seed, "last bits", check_name(item)) + sum(spec.indices.values() if spec else ())
    return turn % min(max(cases // 2, 1), MOVED_OF) == 0


@contextlib.contextmanager
def in_a_configuration(item: pytest.Function, run: "judged.Run") -> Iterator[None]:
    """Run a test inside in the configuration that the seed draws; in the first where Triton's tuner drops it."""
    from assignment.judge import configurations  # loads PyTorch

    run.draws = configurations.draw(pool_of(item.config).seed, case_name(item))
    notes = list(run.notes)
    try:
        yield
    except (Exception, SubmissionError):  # which is no Exception, but an outcome of pytest's
        if not run.is_dropped():
            raise
        run.draws, run.notes[:] = None, notes
        call_again(item)


def in_every_configuration(item: pytest.Function, run: "judged.Run") -> None:
    """Run a test again for each other configuration of the autotuned kernels that it has had launched."""
    from assignment.judge import configurations  # loads PyTorch

    if not isinstance(run.asked, configurations.PLAYED):
        return
    seed, n = pool_of(item.config).seed, len(run.configurations)
    numbers = configurations.others(run.configurations, seed, case_name(item))
    if len(numbers) < n - 1:
        run.notes.append(f"{len(numbers) + 1} of {n} configurations are played, chosen by the seed")
    for run.configuration in numbers:
        notes = list(run.notes)
        try:
            call_again(item)
        except (Exception, SubmissionError):  # which is no Exception, but an outcome of pytest's
            if not run.is_dropped():
                raise
            run.notes[:] = notes
    run.configuration = 0


@pytest.fixture
def speed(request: pytest.FixtureRequest) -> "door.Speed":
    """Time a function of the submission against a peer: see speed.Speed."""
    from assignment.timing import speed  # loads PyTorch

    pool, stash = pool_of(request.config), request.config.stash
    if why := speed.needs_a_gpu(pool):
        pytest.skip(why)
    if not stash[SPEED].has_begun:  # what was judged may have left something on the GPU
        for worker in pool.workers:
            worker.restart()
        stash[SPEED].has_begun = True
    return speed.Speed(stash[SPEED])


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> "Generator":
    """Return a torch.Generator that depends on the run's seed and the test's id alone."""
    return seeds.generator(pool_of(request.config).seed, "inputs", case_name(request.node))
