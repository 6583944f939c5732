"""What `grade.py` is asked to do, as data. cli.py makes it of a command line, a class of its own options.

This module loads no package, as cli.py does not.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path

from assignment.sandbox import rungs

DEVICES = ("auto", "cpu", "cuda")
SANDBOXES = (rungs.AUTO, *rungs.RUNGS)


@dataclass(frozen=True)
class Settings:
    """What a run is asked for: each field is the option of its name, whose help says what it is."""

    path: Path = Path()
    next: bool = False
    watch: bool = False
    only: tuple[str, ...] = ()
    practice: bool = False
    explain: str | None = None
    html: Path | None = None
    seed: int | None = None  # a fresh one where there is none
    inline: bool = False
    list: bool = False
    pack: bool = False
    doctor: bool = False
    device: str = "auto"
    ranks: int = 0
    bench: bool = False
    csv: Path | None = None
    plot: Path | None = None
    json: Path | None = None
    junit: Path | None = None
    markdown: Path | None = None
    fail_under: float | None = None
    jobs: int | None = None  # one a core
    sandbox: str = rungs.AUTO

    def command(self, seed: int) -> str:
        """Return the command that repeats this run."""
        path = "" if self.path == Path() else f" {shlex.quote(str(self.path))}"
        device = "" if self.device == "auto" else f" --device {self.device}"
        sandbox = "" if self.sandbox == rungs.AUTO else f" --sandbox {self.sandbox}"
        jobs = f" --jobs {self.jobs}" if self.jobs else ""
        ranks = f" --ranks {self.ranks}" if self.ranks else ""
        return f"uv run grade.py{path}{device}{ranks}{sandbox}{jobs} --seed {seed}"

    def debugger(self, seed: int) -> str:
        """Return the command that opens a debugger where a case fails, up to the name of the case."""
        path = "" if self.path == Path() else f" --submission {shlex.quote(str(self.path))}"
        device = "" if self.device == "auto" else f" --device {self.device}"
        return f"uv run pytest --inline --pdb{path}{device} --seed {seed}"
