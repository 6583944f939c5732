"""`--watch`: runs again on every save, until Ctrl-C.

The workers stay loaded, and so does this process, which never judges: each run is a process forked from it, and ends
early when something is saved meanwhile. While a case fails the inputs stay: who mends it sees whether it is mended, and
the next save draws new ones. Files are polled: there are file systems that tell nobody of a change.
"""

import contextlib
import importlib
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NoReturn

from rich.text import Text

from assignment import failure, text
from assignment.commands import interruption, run
from assignment.commands.settings import Settings
from assignment.confined import supervisor
from assignment.judge import seeds
from assignment.sandbox import rungs
from assignment.submission import PACKAGE, Submission, UnusableSubmission, read
from assignment.system import here
from assignment.verdict import where
from assignment.verdict.checks import Check

POLL_EVERY_S = 0.1
SETTLED_S = 0.05  # unchanged for so long: an editor has written all of it
TO_END_S = 5.0
LIBRARIES = ("triton", "assignment.judge.door", "assignment.verdict.search", "tests.families")  # slow to load


@dataclass(frozen=True)
class Seen:
    """The state of the submission's folder at one moment."""

    submission: Submission | None  # None where there is none that could be read
    why: str = ""
    times: dict[str, int] = field(default_factory=dict)  # of the last changes: who saves the same again wants a run

    def changes(self, before: "Seen") -> set[str]:
        """Return the names of the files that differ."""
        ours, theirs = (s.submission.files if s.submission else {} for s in (self, before))
        names = ours.keys() | theirs.keys()
        return {n for n in names if (ours.get(n), self.times.get(n)) != (theirs.get(n), before.times.get(n))}


def look(path: Path) -> Seen:
    try:
        root = path.resolve()
        root = root.parent if root.name == PACKAGE and not (root / PACKAGE).is_dir() else root
        submission = read(path.absolute())
        return Seen(submission, times={name: (root / name).stat().st_mtime_ns for name in submission.files})
    except (UnusableSubmission, OSError) as error:  # a file may vanish while it is saved
        return Seen(None, str(error))


def wait_until_stable(path: Path, before: Seen) -> Seen:
    """Return what is there now; where it differs from before, once nobody writes to it any more."""
    now = look(path)
    while now != before:
        time.sleep(SETTLED_S)
        now, last = look(path), now
        if now == last:
            break
    return now


class SaveWatch:
    def __init__(self, settings: Settings, mode: run.Mode, asked: run.GraderRun) -> None:
        self._settings, self._mode, self._asked = settings, mode, asked
        self._pool, self._console = asked.pool, asked.console
        self._process: BaseProcess | None = None
        self._seed = asked.pool.seed
        self._is_kept = False  # the seed, since a case has failed with it

    def __getstate__(self) -> dict:
        """Return what a run needs that is not forked."""
        return {**vars(self), "_process": None}

    def run(self) -> NoReturn:
        """Grade until Ctrl-C."""
        interruption.install("grade.py: no longer watching")
        try:
            self._console.print(Text("Loading PyTorch and the workers …", "dim"))
            self._load()
            seen, changed = look(self._settings.path), set[str]()
            while True:
                self._start(seen, changed)
                after = self._next_save(seen)
                is_cut_short = self._is_running()
                self._end()
                self._choose_seed(is_cut_short)
                self._console.clear()  # nothing where it is no terminal
                seen, changed = after, after.changes(seen)
                self._console.print(Text(text.line(f"{time.strftime('%H:%M:%S')} saved: {', '.join(sorted(changed))}")))
                if self._is_kept:
                    self._console.print(Text(f"The inputs stay until no case fails with them: seed {self._seed}"))
        finally:
            self._end()
            self._pool.close()
            if self._pool.rung in rungs.UNSAFE:
                supervisor.end_descendants()

    def _load(self) -> None:
        """Import what every run needs, while the workers load what they need."""
        if not here.FORKS:  # a run is a fresh interpreter
            return
        run.device_name(self._pool.device)
        for library in LIBRARIES:
            importlib.import_module(library)

    def _start(self, seen: Seen, changed: set[str]) -> None:
        if seen.submission is None:
            self._console.print(Text(text.clean(seen.why), "yellow"))
            return
        if self._process or seen.submission != self._pool.submission:
            try:
                self._pool.replace(seen.submission, self._seed)
            except UnusableSubmission as error:
                self._console.print(Text(text.clean(str(error)), "yellow"))
                return
        self._process = here.CONTEXT.Process(target=self._run_once, args=(changed,))
        with here.interrupts_unheard():
            self._process.start()

    def _choose_seed(self, is_cut_short: bool) -> None:
        """Keep the seed while a case fails with it, and where a run ended early that was to show whether one does."""
        if self._settings.seed is None:
            self._is_kept = self._pool.shared.has_failed or (self._is_kept and is_cut_short)
            self._seed = self._pool.seed if self._is_kept else seeds.new_seed()

    def _is_running(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def _run_once(self, changed: set[str]) -> None:
        """Grade once, in a process of its own."""
        here.die_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that watches
        here.adopt_orphans()
        try:
            sys.exit(self._mode(self._settings, replace(self._asked, selected=in_turn(self._asked.selected, changed))))
        except Exception:
            sys.exit(failure.tell([traceback.format_exc()]))

    def _next_save(self, seen: Seen) -> Seen:
        """Return what is there after the next save; meanwhile the run may come to its end."""
        is_told = False
        while (after := wait_until_stable(self._settings.path, seen)) == seen:
            if not is_told and not self._is_running():
                mended = self._is_kept and not self._pool.shared.has_failed
                inputs = " with new inputs" if mended else ""
                self._console.print(Text(f"\nWatching: save a file to run again{inputs}, Ctrl-C to stop.", "dim"))
                is_told = True
            time.sleep(POLL_EVERY_S)
        return after

    def _end(self) -> None:
        """End the run, and wait for its judges, which end with it and talk to the workers until then."""
        if self._process is None or not self._process.is_alive():
            return
        judges = here.children_of(self._process.pid or 0)
        self._process.kill()
        self._process.join()
        for judge in judges:
            here.has_ended(judge, TO_END_S)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(judge, os.WNOHANG)  # it was adopted
        self._console.show_cursor()  # a progress bar may have hidden it


def in_turn(selected: list[Check], changed: set[str]) -> list[Check]:
    """Return the checks, first those that a change concerns."""
    concerned = where.problems_in(changed)
    return sorted(selected, key=lambda check: check.problem not in concerned)
