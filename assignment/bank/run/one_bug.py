"""One submission on a few small cases of one check, in this process: for the programs that watch processes.

The test functions, their inputs and bounds are the grader's. What differs is who runs the kernels.
"""

import os
import tempfile
import types
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assignment.protocol.requests import Call, Direct
from assignment.submission import Submission
from assignment.verdict.case import Case
from assignment.verdict.finding import FAULTS, NEVER_STORED, RAISED
from assignment.verdict.score import GRADER_ERROR

if TYPE_CHECKING:
    import pytest

    from assignment.judge.replies import Reply

ENGINES = ("simulator", "guarded", "interpreter", "cuda")
RIGHT, WRONG, ERROR, FAULT = "right", "wrong", "error", "fault"
GUARD = 64 << 10  # bytes of NaN around each input
# Small ones, no size a multiple of a tile where the check has such: under a sanitizer PyTorch alone takes its time.
CASES = (
    "a matrix", "three dimensions", "d = 40", "one row past a tile, one column past a tile",
    "128 queries, 256 keys, d 64", "primes-full", "d = 40-full", "a matrix-NaN fences", "ordinary", "full-ordinary",
)  # fmt: skip


@dataclass(frozen=True)
class BugOutcome:
    """The first case that is not right, or a right one."""

    result: str
    case: str = ""
    message: str = ""
    kind: str = ""  # of a memory fault
    at: str = ""  # its place: "rmsnorm.py:12"


def run(files: dict[str, bytes], check: str, engine: str) -> BugOutcome:
    """Return what the check says of these files. To be called once in a process, before Triton is imported."""
    prepare(engine)
    from assignment.bank.run.judging import run_case
    from assignment.commands.collector import GraderProblems
    from assignment.commands.run import run_pytest
    from assignment.verdict import checks

    class Loop(GraderProblems):
        """Runs the chosen cases up to the first that is not right."""

        outcome = BugOutcome(ERROR, "", "no case was run")

        def pytest_runtestloop(self, session: "pytest.Session") -> bool:
            for item in session.items:
                if item.name.partition("[")[2].removesuffix("]") in CASES:
                    case = run_case(item)
                    self.outcome = outcome_of(case, engine)
                    if case.message:
                        break
            return True

    loop = Loop()
    with tempfile.TemporaryDirectory() as folder:
        Submission(files).stage(Path(folder))
        declared = [declared for declared in checks.declared() if declared.name == check]
        run_pytest(declared, loop, pool(Path(folder), engine))
    return BugOutcome(ERROR, "", loop.problems[0]) if loop.problems else loop.outcome


def prepare(engine: str) -> None:
    """Make this process run kernels by the engine."""
    if engine != "cuda":
        os.environ["TRITON_INTERPRET"] = "1"
    if engine == "simulator":
        from assignment.simulator import install

        install()
    if engine == "guarded":
        from assignment.simulator.undefined import fill_fresh_memory

        fill_fresh_memory()


def outcome_of(case: Case, engine: str) -> BugOutcome:
    """Return the outcome of a case, which has no message where all is well; only the simulator tells of faults."""
    wrong = case.finding
    if not case.message or wrong is None:
        return BugOutcome(RIGHT, case.name, case.message)
    if engine == "simulator" and wrong.kind in (*FAULTS, NEVER_STORED):
        places = (f"{place.path.removeprefix('cs336_kernels/')}:{place.line}" for place in wrong.places)
        return BugOutcome(FAULT, case.name, case.message, wrong.kind, next(places, ""))
    result = ERROR if wrong.kind in (RAISED, GRADER_ERROR) else WRONG
    return BugOutcome(result, case.name, case.message)


def pool(folder: Path, engine: str) -> Any:
    """Return what the grader's `run` fixture needs: a worker that answers in this process."""
    here = Here(folder, engine)
    return types.SimpleNamespace(
        workers=[here],
        recorder_and_player=lambda: here,
        draws_multiprocessors=False,
        keeps_launches=False,
        device="cpu",  # nobody else is to be asked
        worker_index=0,
        seed=0,
        has_exact_margins=False,
        shared=types.SimpleNamespace(given_up=lambda check: None, ended=lambda status: None),
        import_error=lambda: "",
        close=lambda: None,
    )


class Here:
    """A worker's interface on this process."""

    def __init__(self, folder: Path, engine: str) -> None:
        from assignment.host.direct import DirectSession

        self._session = DirectSession(folder, "cuda" if engine == "cuda" else "cpu")
        self._guard = 0 if engine in ("interpreter", "cuda") else GUARD

    def launched(self, request: Call) -> tuple[None, list]:
        """Return no launches: nothing is recorded here, and no inputs are made that are long enough for a loop."""
        return None, []

    def settle(self) -> None:
        """Do nothing: nothing is recorded."""

    def ask(self, request: Direct, tensors: list) -> "tuple[Reply | None, list]":
        """Return the answer to a request, read as a worker's is."""
        from assignment.judge import replies
        from assignment.protocol import wire
        from assignment.protocol.replies import written

        specs, storages, payload = wire.encode(tensors)
        copies = wire.decode(specs, storages, bytearray(payload), guard=self._guard)
        with warnings.catch_warnings(action="ignore"):  # of NumPy, about garbage: nobody would stop there
            came, results = self._session.answer(request, copies)
        return replies.read(written(came), len(results)), results

    def output(self) -> str:
        """Return what the submission printed: it is on this process's own output."""
        return ""

    def forget_output(self) -> None:
        """Do nothing: no output is kept."""
