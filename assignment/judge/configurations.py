"""The configurations of autotuned kernels: each is played once on a case of each check that has values.

On a GPU any of those left after pruning may be the fastest; the first, in which all cases are played, stands for none
of the others.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from assignment.compiling.targets import TARGETS
from assignment.judge import program, replies, streams
from assignment.judge.replies import Compiled
from assignment.sandbox.worker_client import Worker, WorkerDied

if TYPE_CHECKING:
    from torch import Tensor

MAX_PLAYED = 16  # of a kernel; of more the seed chooses so many
PLAYED = ("call", "gradients")  # kinds of requests


def among(steps: Sequence[Any]) -> int:
    """Return how many configurations the launches of a program had the choice of at most."""
    return max((len(step[5] or ()) for step in steps if step[0] == "launch"), default=1) or 1


def others(n: int, seed: int, case: str) -> list[int]:
    """Return the numbers of the configurations to play beside the first."""
    if n <= MAX_PLAYED:
        return list(range(1, n))
    order = sorted(range(1, n), key=lambda number: streams.number(seed, "configuration", f"{case} {number}"))
    return sorted(order[: MAX_PLAYED - 1])


def is_as_asked(steps: Sequence[Any], number: int) -> bool:
    """Return whether each launch of a program has the values of the configuration with this number."""
    for step in steps:
        if step[0] == "launch" and step[5]:
            _, _, _, given, options, among, *_ = step
            chosen, launched = among[number % len(among)], {**options, **given}
            if not isinstance(chosen, dict) or any(launched.get(name) != value for name, value in chosen.items()):
                return False
    return True


def fits_nowhere(
    played: Mapping[str, Any], kernels: Sequence[Any], compiler: Worker, sources: Mapping[str, str]
) -> bool:
    """Return whether no autotuned kernel of a program can be launched on any GPU that kernels are compiled for."""
    tuned = [step for step in played.get("steps", ()) if step[0] == "launch" and len(step[5] or ()) > 1]
    launches = [[*step[:5], None, *step[6:]] for step in tuned]
    if not launches:
        return False
    bare: Tensor = program.written({"views": played["views"], "lines": played["lines"], "steps": launches})
    targets = dict.fromkeys(TARGETS, 0)
    header = {"kind": "compile", "sources": sources, "kernels": kernels, "programs": targets, "processes": 1}
    try:
        came, results = compiler.ask(header, [bare])
    except WorkerDied:
        return False
    reply = replies.read(came, len(results))
    if not isinstance(reply, Compiled):
        return False
    return bool(reply.kernels) and not any(kernel.fits for kernel in reply.kernels)
