"""Has a submission's kernels compiled for GPUs that are not there, or remembers what came of them.

Only the grader remembers, by what is compiled (judge/excerpt.py) and not by whose it is: a submission may launch other
kernels each time. Workers neither read nor write what it keeps.
"""

from collections.abc import Callable

from assignment.compiling import advice, cache
from assignment.compiling.targets import ASKS
from assignment.judge import replies
from assignment.judge.replies import Compiled, Reply
from assignment.protocol.replies import written
from assignment.protocol.said import Said
from assignment.verdict.entries import KernelFigures

NOT_RUN = "kernels are compiled there and not run: what they would store is NaN"
STOPS = "the call stopped before its last launch, compiled for {}: {}\n  " + NOT_RUN
REFUSES = "Triton refuses a launch for {}: {}"
OTHER = "the kernel that was graded is not the kernel that is compiled"


def remembered(key: str, answer: Callable[[], Reply | None]) -> Reply | None:
    """Return what came of the same question before, or the answer, which is remembered if all of it compiled."""
    if isinstance(kept := cache.recall(key), dict) and isinstance(known := replies.read(kept, 0), Compiled):
        return known
    reply = answer()
    if isinstance(reply, Compiled) and _is_success(reply):
        cache.remember(key, written(reply))
    return reply


def _is_success(reply: Compiled) -> bool:
    """Return whether everything compiled: a failure may come of a lack of memory here, and is soon found again."""
    is_refused = any(kernel.error and not kernel.is_skipped for kernel in reply.kernels)
    return not reply.stopped and not reply.refused and not reply.differing and not is_refused


def not_judged(reply: Compiled) -> list[str]:
    """Return what the compiler crashed over, where that costs nothing; a text each."""
    return [*map(str, advice.not_judged(reply.kernels))]


def figures(reply: Compiled) -> list[KernelFigures]:
    """Return what each kernel takes of each GPU, for a table."""
    return [
        {
            "kernel": one.name,
            "constants": one.config or one.constants,
            "gpu": one.on.title,
            "fits": one.fits,
            "error": one.error.partition("\n")[0],
            "shared": one.shared,
            "shared_limit": one.on.shared_limit,
            "registers": one.registers,
            "spills": one.spills,
            "products": list(one.instructions),
        }
        for one in reply.kernels
    ]


def unknown(reply: Compiled, sources: dict[str, str]) -> list[Said]:
    """Return what staff should look at: crashes that nothing is compared with, and kernels that ask for their GPU."""
    asking = [path for path, text in sources.items() if ASKS in text]
    asks = "asks which GPU it is compiled for: other branches are compiled, and never run"
    asked = [Said(f"{path} {asks}") for path in asking]
    return [*advice.unknown(reply.kernels), *asked]


def problems(reply: Compiled) -> list[Said]:
    """Return what keeps the kernels of a call from running on the targets; a text each."""
    found = [Said(f"{OTHER}: {said}", said.places) for said in reply.differing] + advice.problems(reply.kernels)
    for says, stops in ((REFUSES, reply.refused), (STOPS, reply.stopped)):
        for why in dict.fromkeys(stops.values()):
            targets = advice.listed([name for name, said in stops.items() if said == why])
            found.append(Said(says.format(targets, why), why.places))
    if not reply.kernels and not found:
        found.append(Said("the call launches no kernel, so there is none to compile"))
    return found
