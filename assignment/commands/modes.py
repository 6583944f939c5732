"""What a run is for: a grade, the first check that is not finished, or all about one check; once, or on every save."""

import contextlib
import traceback

from rich.console import Console

from assignment.commands import explain, next_check, run, watch
from assignment.commands.settings import Settings
from assignment.submission import Submission, UnusableSubmission
from assignment.verdict import checks

REPORTS = ("json", "junit", "markdown", "html", "fail_under")


def choose(settings: Settings, selected: list[checks.Check]) -> tuple[run.Mode, list[checks.Check]]:
    """Return what to do, and with which checks; raises UnusableSubmission where the options do not fit together."""
    asked = [f"--{name}" for name in ("next", "explain", "watch") if getattr(settings, name)]
    unfit = [f"--{name.replace('_', '-')}" for name in REPORTS if getattr(settings, name) is not None]
    if asked in (["--watch"], ["--explain"]) and "--html" in unfit:
        unfit.remove("--html")
    if asked and unfit:
        raise UnusableSubmission(
            f"{asked[0]} shows and does not report: leave out {' and '.join(unfit)}, or {asked[0]}"
        )
    if asked[:2] == ["--next", "--explain"]:
        raise UnusableSubmission("--next and --explain show one check each: leave out one of them")
    if settings.watch and (settings.inline or not settings.path.is_dir()):
        raise UnusableSubmission("--watch needs a folder to save to, and workers: leave out --inline, unpack the zip")
    if settings.explain:
        selected = [explain.named(settings.explain, checks.declared())]
    if settings.watch:  # who is timed wants to be alone, and not forked from who uses CUDA
        selected = checks.without_a_gpu(selected)
        if not selected:
            raise UnusableSubmission("--watch times nothing: leave it out for the checks of speed")
    if settings.explain:
        return explain.explain, selected
    return next_check.Following() if settings.next else run.grade, selected


def start(
    settings: Settings, mode: run.Mode, selected: list[checks.Check], submission: Submission, console: Console
) -> int:
    """Do it, once or until Ctrl-C; returns the exit status. Raises UnusableSubmission."""
    try:
        with contextlib.closing(run.new_pool(settings, submission)) as pool:
            asked = run.GraderRun(selected, pool, console)
            return watch.SaveWatch(settings, mode, asked).run() if settings.watch else mode(settings, asked)
    except UnusableSubmission:
        raise
    except Exception:
        return run.without_verdicts(settings, selected, submission, traceback.format_exc())
