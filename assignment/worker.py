"""The other processes: each answers requests about a submission, one at a time, in one role.

    record    imports the submission and runs its host code on decoys (assignment/recorder)
    play      plays programs in the simulator (assignment/player); the submission is not there
    compile   compiles the launches of programs; the submission is not there
    gpu       plays programs on a GPU; the submission is not there
    script    imports the submission and runs scripts of the specification beside it, in the simulator
    cuda      imports what submissions are compared with in speed, and runs it on a GPU

Runs as a separate program, `python -I worker.py SETUP`, SETUP being a JSON object: "runtime", the
folder of our own modules; "submission", the one that holds cs336_kernels/; "scratch"; "compiled", a
folder for compiled kernels that it shares with others of its role, or ""; "device", the role;
"rung", the sandbox; "readable", what else it may read; "control", the number of a socket. Its first
process loads PyTorch and never the submission (see supervisor.py); the children that it forks
confine themselves and do, so that a submission that dies is replaced at once. Where a process that
has loaded PyTorch is not forked, each child runs this program again, with "line" in its settings,
and loads it itself.
"""

import contextlib
import faulthandler
import gc
import importlib
import itertools
import json
import os
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assignment.protocol.messages import Header
    from assignment.protocol.replies import AnyReply
    from assignment.system.interface import Setup

GUARD = 64 << 10  # bytes of NaN before and after each input: a tile or two
# bytes of address space that a request may ask for; only what is touched costs memory
LARGEST_STORAGE = 1 << 40
MAX_FRAMES = 50  # of a stack that is told
DEBUGGER = "breakpoint() needs a debugger: run the command that the report calls debug, uv run pytest --inline --pdb …"
Session = Callable[..., tuple["AnyReply", list]]  # to a request of the role, with its tensors


def main() -> None:
    setup: Setup = json.loads(sys.argv[1])
    sys.path.insert(0, setup["runtime"])
    sys.path += setup["packages"]
    from assignment.system import here  # below the path that was just set

    is_child = "line" in setup
    if here.FORKS or is_child:
        prepare(setup["device"])
        # of these modules nothing becomes garbage: to look through them would take most of a small call
        gc.freeze()
    sys.dont_write_bytecode = True
    if is_child:
        child(setup, *here.taken(setup["line"]))
    from assignment.confined import confinement, supervisor  # likewise

    confinement.limit(setup["device"])
    here.join_sandbox(setup)
    control = socket.socket(fileno=setup["control"])
    children = here.child_starter(partial(child, setup), setup)
    supervisor.Supervisor(control, Path(setup["scratch"]), children).run()
    os._exit(0)  # to tidy PyTorch away would take half a second


def prepare(role: str) -> None:
    """Load what every submission needs, with fresh memory full of NaN where kernels run."""
    if role in ("play", "script", "cpu"):
        from assignment.simulator import install  # not there in other roles

        install()
    if role == "compile":
        from assignment import compiling  # not there in other roles

        compiling.install()
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    # Of Triton's, for each kernel anew: it would hide what the submission prints.
    deprecated = r"tl\.(make_block_ptr|cat\(can_reorder=True\)|reshape\(can_reorder=True\)) is deprecated"
    warnings.filterwarnings("ignore", message=deprecated, category=UserWarning)
    # PyTorch looks for the GPU that host code hears of, and its sandbox has none
    if role == "record":
        warnings.filterwarnings("ignore", message="CUDA initialization", category=UserWarning)
    if role == "cuda":
        with contextlib.suppress(ImportError):  # torch.compile leaves a thread of it
            importlib.import_module("tqdm").tqdm.monitor_interval = 0
    import triton.language  # noqa: F401

    session_of(role)


def session_of(role: str) -> Callable[[Path], Session]:
    """Return a function that makes a role's conversation, given the folder of the submission."""
    if role == "record":
        from assignment.recorder.session import RecorderSession  # not there in other roles

        return lambda folder: RecorderSession(folder).answer
    if role == "play":
        from assignment.player.session import PlayerSession  # not there in other roles

        return lambda folder: PlayerSession().answer
    if role == "compile":
        from assignment.player.launch_compiler import answer as compiled  # not there in other roles

        return lambda folder: compiled
    if role == "gpu":
        from assignment.player.gpu_player import GpuSession  # not there in other roles

        return lambda folder: GpuSession().answer
    if role == "script":
        from assignment.recorder.scripts import ScriptSession  # not there in other roles

        return lambda folder: ScriptSession(folder).answer
    from assignment.host import direct  # not there in other roles

    return lambda folder: direct.DirectSession(folder, role).answer


def child(setup: "Setup", connection: socket.socket, caches: str) -> None:
    """Answer requests until ended, in a process that the supervisor forks, or has started."""
    from assignment.system import here  # not before main() has set the path

    os.setsid()
    here.die_with_parent()
    os.environ["TRITON_CACHE_DIR"] = f"{setup['compiled'] or setup['scratch']}/triton-{caches}"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{setup['scratch']}/inductor-{caches}"
    sys.breakpointhook = refuse_to_stop
    # a crash, or the grader's signal at a deadline, prints where the submission was
    faulthandler.enable()
    is_player = setup["device"] == "play"
    if is_player:
        gc.set_threshold(10_000)  # a kernel makes many objects, and no cycles; host code may make any
    signal.signal(signal.SIGUSR1, tell_round if is_player else tell_stack)
    faulthandler.register(signal.SIGUSR1, all_threads=False, chain=True)
    try:
        here.confine(setup)
        serve(connection, setup["device"], session_of(setup["device"])(Path(setup["submission"])))
    finally:
        os._exit(0)


def refuse_to_stop(*_: Any, **__: Any) -> None:
    """Say what a debugger needs: nobody can type here."""
    raise RuntimeError(DEBUGGER)


def tell_round(number: int, frame: FrameType | None) -> None:
    """Print where in a kernel the process is, and how often its loop went round."""
    from assignment.confined.supervisor import HERE  # not before main() has set the path
    from assignment.simulator.rounds import where  # not there in other roles

    print(f"{HERE}{json.dumps(asdict(where(frame)))}{HERE}", file=sys.stderr, flush=True)


def tell_stack(number: int, frame: FrameType | None) -> None:
    """Print where host code is, as faulthandler does, which does not always know the line."""
    from assignment.confined.supervisor import HERE  # not before main() has set the path

    stack = itertools.islice(traceback.walk_stack(frame), MAX_FRAMES)
    told = "".join(f'  File "{at.f_code.co_filename}", line {line} in {at.f_code.co_name}\n' for at, line in stack)
    with contextlib.suppress(OSError):  # the submission has closed it
        os.write(2, f"{HERE}{told}{HERE}".encode(errors="replace"))


def serve(connection: socket.socket, role: str, answer: Session) -> None:
    """Answer requests until the grader hangs up."""
    from assignment.protocol import replies, wire  # not before main() has set the path

    while True:
        try:
            header, tensors = wire.receive(connection, largest_storage=LARGEST_STORAGE, guard=GUARD)
        except wire.ConnectionLost:
            return
        is_large = any(t.untyped_storage().nbytes() - 2 * GUARD > wire.WHOLE_STORAGE_UP_TO for t in tensors)
        reply, results = _answered(role, answer, header, tensors)
        del tensors
        if is_large:
            # what an exception or a cycle still holds would leave no room for the next large view
            gc.collect()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the submission may have closed or replaced it
                stream.flush()
        wire.send(connection, {"id": header["id"], **replies.written(reply)}, results)


def _answered(role: str, answer: Session, header: "Header", tensors: list) -> tuple["AnyReply", list]:
    """Return an answer; an exception here is a fault of ours, since sessions catch what a submission raises.

    The process that has the submission may say so without one: the judge does not believe it.
    """
    from assignment import whose  # not before main() has set the path
    from assignment.protocol import replies, requests  # likewise

    try:
        return answer(requests.read(header, role), tensors)
    except Exception as error:
        if whose.is_of_memory(error):
            return replies.Failed(f"the call needs more memory than it may have: {error}"), []
        return replies.Broken(whose.told(error)), []


if __name__ == "__main__":
    main()
