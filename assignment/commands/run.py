"""A run of the grader: the checks under pytest, their verdicts as they come, and the report."""

import contextlib
import functools
import importlib.metadata
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from assignment import failure, plugin, text
from assignment.commands import files, greeting, likely, progress, report
from assignment.commands.collector import GraderProblems, Judge
from assignment.commands.settings import Settings
from assignment.confined import supervisor
from assignment.course import course
from assignment.digest import grader_digest
from assignment.judge.pool import Pool
from assignment.plugin.fixtures import started
from assignment.sandbox import rungs
from assignment.simulator.kept_triton import has_compiler
from assignment.submission import Submission
from assignment.system import here
from assignment.verdict import case, checks, practice, reporting, score
from assignment.verdict.entries import Report

ROOT = Path(__file__).resolve().parents[2]
GRADED, BELOW, UNUSABLE, BROKEN, INTERRUPTED = 0, 1, 2, failure.BROKEN, 130
DIGITS = 16  # of the digest that tells graders apart


@dataclass(frozen=True)
class GraderRun:
    """The checks to run, the submission's pool that runs them, and where they are told."""

    selected: list[checks.Check]
    pool: Pool
    console: Console


Mode = Callable[[Settings, GraderRun], int]


def new_pool(settings: Settings, submission: Submission) -> Pool:
    """Start the workers for this submission, which begin to load."""
    here.adopt_orphans()
    if settings.inline:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Ctrl-C is for the debugger
    path, device, seed = settings.path, settings.device, settings.seed
    pool = started(submission, path, device, seed, settings.jobs, settings.inline, settings.sandbox)
    pool.stage.ranks_on_gpu = settings.ranks
    pool.keeps_launches = bool(settings.explain and settings.html)
    return pool


def runnable(settings: Settings, selected: list[checks.Check], pool: Pool) -> list[checks.Check]:
    selected = selected if has_compiler() else checks.without_a_compiler(selected)
    return selected if pool.device == "cuda" and not settings.inline else checks.without_a_gpu(selected)


def uncompiled(selected: list[checks.Check]) -> list[case.CheckCases]:
    """Return, of those selected, the checks for which Triton's compiler is missing here."""
    needing = [] if has_compiler() else [check for check in selected if check.is_compiled]
    left_out = case.Case("", score.NOT_GRADED, score.NEEDS_LINUX)
    return [case.CheckCases(check, (left_out,), 1) for check in needing]


def introduce(settings: Settings, pool: Pool, console: Console) -> None:
    where = f"{settings.path.absolute()} on {device_name(pool.device)}"
    console.print(Text(text.line(f"{course().heading}: grading {where}, seed {pool.seed}")))
    console.print(Text(rungs.announcement(pool.rung, pool.device)))


def judged(judge: Judge, selected: list[checks.Check], pool: Pool) -> bool:
    """Run the checks and close the pool; False where somebody has stopped it. Failures join the judge's problems."""
    status: int = pytest.ExitCode.OK
    with failure.kept(judge.problems):
        try:
            status = run_pytest(selected, judge, pool) if selected else status
        finally:
            pool.close()
            if pool.rung in rungs.UNSAFE:  # there a submission can kill those who would have ended what it started
                supervisor.end_descendants()
    if status == pytest.ExitCode.INTERRUPTED and not judge.problems and not judge.has_enough:
        print("grade.py: interrupted, no score; give the same command again", file=sys.stderr)
        return False
    good = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)
    if status not in good and not judge.problems:
        judge.problems.append(f"pytest ended with exit status {status}")
    return True


def grade(settings: Settings, run: GraderRun) -> int:
    """Run the selected checks on the pool's submission, print the report and write its files."""
    start, selected, pool, console = time.monotonic(), run.selected, run.pool, run.console
    only = [*settings.only, *{check.problem for check in selected} & {checks.SPEED}] if settings.only else []
    selected = runnable(settings, selected, pool)  # the report says that the others were not graded
    introduce(settings, pool, console)
    judge = Judge(selected, console, settings.command(pool.seed), uncompiled(run.selected))
    if not judged(judge, selected, pool):
        return INTERRUPTED
    data = reported(settings, only, judge, pool, start, console)
    # before the screen: that may be a pipe which nobody reads any more
    unwritten = files.write(settings, data, pool.submission.sources)
    with failure.kept(judge.problems):
        show(settings, data, pool, console)
    for reason in unwritten:
        print(f"grade.py: {reason}", file=sys.stderr)
    if judge.problems:
        return failure.tell(judge.problems)
    if unwritten or any(entry["status"] == score.GRADER_ERROR for entry in reporting.entries_of(data)):
        return BROKEN
    return BELOW if settings.fail_under is not None and data["score"] < settings.fail_under else GRADED


def reported(
    settings: Settings, only: Sequence[str], judge: Judge, pool: Pool, start: float, console: Console
) -> Report:
    """Return the report on what a judge has gathered, with likely causes, as plain data."""
    gathered = likely.explained(judge.gathered(), pool.jobs, console)
    session = session_of(settings, only, pool.submission, pool.seed, device_name(pool.device), pool.rung)
    seconds = time.monotonic() - start
    session = replace(session, jobs=pool.jobs, seconds=seconds, import_error=judge.import_error)
    return reporting.report(session, gathered, judge.problems)


def show(settings: Settings, data: Report, pool: Pool, console: Console) -> None:
    """Print the report."""
    entries = reporting.entries_of(data)
    report.print_failures(console, entries, data["import_error"], settings.command(pool.seed))
    report.print_notes(console, entries)
    report.print_printed(console, entries)
    report.print_staff_notes(console, data)
    if pool.rung in rungs.UNSAFE:
        console.print(Text(f"\n{rungs.announcement(pool.rung, pool.device)}"))
    report.print_summary(console, data, *remarks(settings, data, pool.submission))


def session_of(
    settings: Settings, only: Sequence[str], submission: Submission, seed: int, device: str, rung: str
) -> reporting.Circumstances:
    return reporting.Circumstances(
        command=settings.command(seed),
        seed=seed,
        device=device,
        sandbox=rung,
        submission_sha256=submission.sha256,
        versions=versions(),
        only=tuple(only),
        debug=settings.debugger(seed),
    )


def versions() -> dict[str, str]:
    """Return what a verdict depends on beside submission and seed; of the grader itself a digest."""
    packages = {name: importlib.metadata.version(name) for name in ("torch", "triton", "numpy")}
    return {**packages, "python": platform.python_version(), "grader": grader_digest()[:DIGITS]}


def without_verdicts(settings: Settings, selected: list[checks.Check], submission: Submission, problem: str) -> int:
    """Write the files of a report in which the grader has failed at every check; returns the exit status."""
    problems = [problem]
    with failure.kept(problems):
        session = session_of(settings, settings.only, submission, settings.seed or 0, settings.device, "")
        unrun = [case.CheckCases(check, (), 0) for check in checks.without_a_gpu(selected)]
        files.write(settings, reporting.report(session, unrun, problems))
    return failure.tell(problems)


def remarks(settings: Settings, data: Report, submission: Submission) -> tuple[list[str], str]:
    """Return what is told beside the points, and what to open next.

    Only a student at work is greeted and told of progress, practice and dates, not who grades what others wrote.
    """
    outputs = (settings.json, settings.junit, settings.markdown, settings.fail_under)
    is_partial = settings.only or settings.inline or any(asked is not None for asked in outputs)
    if is_partial or settings.path.resolve() != Path.cwd().resolve():
        return [], report.next_step(data)
    practised, dates = practice.told(submission, settings.practice), report.dates()
    if not practised and (greeted := greeting.lines(data)):
        return [*greeted, *dates], ""
    return [*progress.lines(settings.path, data), *practised, *dates], report.next_step(data)


@functools.cache  # a process that --watch has forked could not ask CUDA
def device_name(device: str) -> str:
    if device == "cpu":
        return "cpu-simulated"
    import torch

    return f"cuda: {torch.cuda.get_device_name()}" if torch.cuda.is_available() else "cuda"


def run_pytest(selected: list[checks.Check], judge: GraderProblems, pool: Pool) -> int:
    """Run the checks by pytest with nobody's settings but ours."""
    tests = [f"{checks.TESTS}/{check.path}" for check in selected]
    options = "-p no:terminal -p no:cacheprovider -p no:logging --capture=no -o addopts= --strict-markers"
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ.pop("PYTEST_ADDOPTS", None)
    where = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]
    with contextlib.chdir(ROOT):
        return pytest.main([*where, *options.split(), *tests], plugins=[plugin, judge, plugin.Starter(pool)])
