"""One submission on a few small cases of one check, in this process: for the programs that watch processes.

The test functions, their inputs and bounds are the grader's. What differs is who runs the kernels.
"""

import os
import tempfile
import types
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assignment.protocol.messages import Request

ENGINES = ("simulator", "guarded", "interpreter", "cuda")
RIGHT, WRONG, ERROR, FAULT = "right", "wrong", "error", "fault"
KINDS, NEVER_STORED = ("out of bounds", "race", "unwritten memory", "input written to"), "never stored"
GUARD = 64 << 10  # bytes of NaN around each input
# Small ones, no size a multiple of a tile where the check has such: under a sanitizer PyTorch alone takes its time.
CASES = (
    *("a matrix", "three dimensions", "d = 40", "one row past a tile, one column past a tile"),
    *("128 tokens, d 64", "primes-full", "d = 40-full", "a matrix-NaN fences", "ordinary", "full-ordinary"),
)


@dataclass(frozen=True)
class BugOutcome:
    """The first case that is not right, or a right one."""

    result: str
    case: str = ""
    message: str = ""


def run(files: dict[str, bytes], check: str, engine: str) -> BugOutcome:
    """Return what the check says of these files. To be called once in a process, before Triton is imported."""
    prepare(engine)
    from assignment import plugin
    from assignment.attacks.judging import judge_case
    from assignment.commands.run import run_pytest
    from assignment.judge import checks

    class Loop:
        """Runs the chosen cases up to the first that is not right."""

        outcome = BugOutcome(ERROR, "", "no case was run")

        def pytest_runtestloop(self, session: Any) -> bool:
            for item in session.items:
                if item.name.partition("[")[2].removesuffix("]") in CASES:
                    verdict = judge_case(item)
                    self.outcome = BugOutcome(result_of(verdict.message, engine), verdict.case, verdict.message)
                    if verdict.message:
                        break
            return True

    loop = Loop()
    with tempfile.TemporaryDirectory() as folder:
        stage(files, Path(folder))
        declared = [declared for declared in checks.declared() if declared.name == check]
        run_pytest(declared, [plugin.Starter(pool(Path(folder), engine)), loop])
    return loop.outcome


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


def result_of(message: str, engine: str) -> str:
    """Return what a check's message, empty where all is well, speaks of; only the simulator tells of faults."""
    if not message:
        return RIGHT
    if engine == "simulator" and fault_in(message):
        return FAULT
    return ERROR if "it raised" in message or "report it to the staff" in message else WRONG


def fault_in(message: str) -> str:
    """Return the kind of memory fault that a message tells of, or ""."""
    found = [kind for kind in KINDS if f"\n{kind}: " in message]
    return found[0] if found else NEVER_STORED if f"note: {NEVER_STORED}" in message else ""


def stage(files: dict[str, bytes], folder: Path) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)


def pool(folder: Path, engine: str) -> Any:
    """Return what the grader's `run` fixture needs: a worker that answers in this process."""
    return types.SimpleNamespace(
        workers=[Here(folder, engine)],
        device="cpu",  # nobody else is to be asked
        mine=0,
        seed=0,
        given_up=lambda check: None,
        import_error=lambda: "",
        close=lambda: None,
    )


class Here:
    """A worker's interface on this process."""

    def __init__(self, folder: Path, engine: str) -> None:
        from assignment.host.direct import DirectSession

        self._session = DirectSession(folder, "cuda" if engine == "cuda" else "cpu")
        self._guard = 0 if engine in ("interpreter", "cuda") else GUARD

    def ask(self, request: Request, tensors: list) -> tuple[Any, list]:
        """Return the answer to a request, read as a worker's is."""
        from assignment.judge import replies
        from assignment.protocol import wire

        specs, storages, payload = wire.encode(tensors)
        copies = wire.decode(specs, storages, bytearray(payload), guard=self._guard)
        with warnings.catch_warnings(action="ignore"):  # of NumPy, about garbage: nobody would stop there
            came, results = self._session.answer(request, copies)
        return replies.read(came, len(results)), results  # type: ignore[arg-type]

    def output(self) -> str:
        """Return what the submission printed: it is on this process's own output."""
        return ""

    def forget_output(self) -> None:
        """Do nothing: no output is kept."""
