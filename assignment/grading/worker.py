"""The other process: imports a submission and answers requests about it, one at a time.

Runs as a program of its own, `python -I worker.py SETUP`, SETUP being a JSON object: "runtime", the folder of our own
modules; "submission", the one that holds cs336_kernels/; "scratch"; "device"; "rung", the sandbox; "readable", what
else it may read; "control", the number of a socket. Its first process loads PyTorch and the simulator, and never the
submission (see supervisor.py); the children that it forks confine themselves and do, so that a submission that dies is
replaced at once.
"""

import contextlib
import faulthandler
import gc
import importlib
import importlib.machinery
import importlib.util
import json
import linecache
import os
import signal
import socket
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

PACKAGE = "cs336_kernels"
FILES = ("weighted_sum", "rmsnorm", "flash_attention")
MAX_MESSAGE = 2_000  # characters
GUARD = 64 << 10  # bytes of NaN before and after each input: a tile or two
LARGEST_STORAGE = 1 << 40  # bytes of address space that a request may ask for; only what is touched costs memory


class Missing(Exception):
    """The submission has no such function, or the file that should hold it cannot be imported."""


def main() -> None:
    setup = json.loads(sys.argv[1])
    sys.path.insert(0, setup["runtime"])
    prepare(setup["device"])
    from assignment.grading import confinement, supervisor

    confinement.limit(setup["device"])
    sys.dont_write_bytecode = True
    control = socket.socket(fileno=setup["control"])
    supervisor.Supervisor(control, Path(setup["scratch"]), lambda *arguments: child(setup, *arguments)).run()
    os._exit(0)  # to tidy PyTorch away would take half a second


def prepare(device: str) -> None:
    """Load what every submission needs, with fresh memory full of NaN."""
    if device == "cpu":
        from assignment.simulator import install

        install()
    if device == "compile":
        from assignment import compiling

        compiling.install()
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if device == "cuda":
        import warnings

        warnings.filterwarnings("ignore", message=".*deterministic", category=UserWarning)
        torch.use_deterministic_algorithms(True, warn_only=True)
        with contextlib.suppress(ImportError):  # torch.compile leaves a thread of it
            importlib.import_module("tqdm").tqdm.monitor_interval = 0
    import triton.language  # noqa: F401

    from assignment.grading import compilations, requests, timed  # noqa: F401


def child(setup: dict[str, Any], connection: socket.socket, caches: str) -> None:
    """What the supervisor forks: a process that answers requests until it is ended."""
    from assignment.grading import confinement

    os.setsid()
    confinement.prctl(1, signal.SIGKILL)  # die with the parent
    os.environ["TRITON_CACHE_DIR"] = f"{setup['scratch']}/triton-{caches}"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{setup['scratch']}/inductor-{caches}"
    faulthandler.enable()  # a crash, or the grader's signal at a deadline, prints where the submission was
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    try:
        confinement.confine(setup)
        serve(connection, Submission(Path(setup["submission"])), setup["device"])
    finally:
        os._exit(0)


def serve(connection: socket.socket, submission: "Submission", device: str) -> None:
    from assignment.grading import leftovers, protocol, timed

    timed.line[:] = [connection]
    before = leftovers.snapshot()
    while True:
        try:
            header, tensors = protocol.receive(connection, largest_storage=LARGEST_STORAGE, guard=GUARD)
        except protocol.ConnectionLost:
            return
        is_timed = header["kind"] == "run"  # what it leaves behind is looked for when it gives its results
        reply, results = safe_answer(submission, header, tensors, device)
        reply["left"] = "" if is_timed else leftovers.left_since(before, device)
        del tensors
        if any(storage["nbytes"] > protocol.WHOLE_STORAGE_UP_TO for storage in header["storages"]):
            gc.collect()  # what an exception or a cycle still holds would leave no room for the next large view
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the submission may have closed or replaced it
                stream.flush()
        protocol.send(connection, {"id": header["id"], **reply}, results)
        if not is_timed:
            before = leftovers.snapshot()


def safe_answer(submission: "Submission", header: dict[str, Any], tensors: list, device: str) -> tuple[dict, list]:
    """answer(), with whatever the submission raises described in the reply."""
    from assignment.grading.requests import WrongReturn

    try:
        return answer(submission, header, tensors, device)
    except (WrongReturn, Missing) as error:
        return {"status": "failed", "message": str(error)[:MAX_MESSAGE]}, []
    except BaseException as error:
        return {"status": "raised", **describe(error, submission.folder)}, []


def answer(submission: "Submission", header: dict[str, Any], tensors: list, device: str) -> tuple[dict, list]:
    """One request, by its kind."""
    from assignment.grading import compilations, requests, timed

    with requests.provenance_of(submission.folder) if device == "cpu" else contextlib.nullcontext():
        if header["kind"] == "load":
            submission.isolated = header["isolated"]
            submission.load()
            return {"status": "ok"}, []
        function = submission.function(header["function"])
    if device == "compile":
        return compilations.answer(function, header, tensors, submission.folder)
    if device == "cuda" and header["kind"] in timed.HANDLERS:
        return timed.answer(function, header)
    return requests.answer(function, header, tensors, device, submission.folder)


class Submission:
    """The functions of a staged submission, imported when first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.isolated = False  # leave __init__.py alone: it fails, or kills the process
        self._loaded = False

    def load(self) -> None:
        """Import the package; where that fails, an empty one in its place, whose files are imported one by one."""
        self._loaded = True
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]
        package = self._new_package()
        if self.isolated or not package.__spec__ or not package.__spec__.loader:
            return
        try:
            package.__spec__.loader.exec_module(package)
        except BaseException:
            self.isolated = True
            self.load()

    def _new_package(self) -> types.ModuleType:
        """The package from the submission's own folder, whatever else is on the path; nothing of it has run."""
        folder = self.folder / PACKAGE
        init = folder / "__init__.py"
        if init.is_file():
            spec = importlib.util.spec_from_file_location(PACKAGE, init, submodule_search_locations=[str(folder)])
        else:
            spec = importlib.machinery.ModuleSpec(PACKAGE, None, is_package=True)
            spec.submodule_search_locations = [str(folder)]
        assert spec is not None
        package = sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
        return package

    def function(self, name: str) -> Callable:
        """Raises Missing."""
        if not self._loaded:
            self.load()
        found = getattr(sys.modules[PACKAGE], name, None)
        if found is None or isinstance(found, types.ModuleType):
            found = getattr(found, name, None) or self._from_file(name)
        if not callable(found):
            raise Missing(f"{PACKAGE}.{name} is a {type(found).__name__}, expected a function")
        return found

    def _from_file(self, name: str) -> Any:
        file = next((file for file in FILES if name.startswith(file)), FILES[-1])
        path = f"{PACKAGE}/{file}.py"
        if not (self.folder / path).is_file():
            raise Missing(f"{path} is missing, so there is no function {name}")
        try:
            module = importlib.import_module(f"{PACKAGE}.{file}")
        except BaseException as error:
            raise Missing(f"{path} cannot be imported: {summary(error, self.folder)}") from error
        if not hasattr(module, name):
            raise Missing(f"{path} has no function {name}")
        return getattr(module, name)


def describe(error: BaseException, folder: Path) -> dict[str, Any]:
    """What the grader needs to know of an exception: its types, its message, and where in the submission it arose."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(folder)]
    return {
        "types": [cls.__name__ for cls in type(error).__mro__],
        "message": summary(error, folder),
        "text": str(error)[:MAX_MESSAGE],
        "by_submission": bool(own) and own[-1] is frames[-1],
        "in_kernel": any("/assignment/simulator/" in frame.filename for frame in frames),
    }


def summary(error: BaseException, folder: Path) -> str:
    """The exception in one line, and in another "  at cs336_kernels/rmsnorm.py:42 in rmsnorm_forward: source line"."""
    if isinstance(error, SyntaxError) and error.filename:
        path = Path(error.filename)
        where = path.relative_to(folder) if path.is_relative_to(folder) else path.name
        return f"{type(error).__name__}: {error.msg}\n  at {where}:{error.lineno}: {(error.text or '').strip()}"
    text = f"{type(error).__name__}: {error}".removesuffix(": ")[:MAX_MESSAGE]
    own = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(folder)]
    if not own:
        return text
    frame = own[-1]
    source = linecache.getline(frame.filename, frame.lineno or 0).strip()
    return f"{text}\n  at {Path(frame.filename).relative_to(folder)}:{frame.lineno} in {frame.name}: {source}"


if __name__ == "__main__":
    main()
