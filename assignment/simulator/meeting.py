"""Launches whose programs may have to do with each other: one run with all checks, and one in another order.

What lies in memory after the second run is what the call goes on with, so that the comparison of its results decides.
The orders of a launch's memory are not compared: a list of tickets, or who takes which tile, differs in right kernels.
"""

import random
import sys
from collections.abc import Callable, Collection, Hashable, Sequence

import triton.language as tl

from assignment.protocol.said import Said, joined

from . import faults
from .calls import Call
from .faults import MemoryFault, Program, at
from .kernel_values import KernelValue
from .programs import SCHEDULES, Programs
from .scheduled import Meeting
from .semantic import builder
from .undefined import PROBES
from .watch import Watch

_FAR = 3  # times as many bytes in another order
MEET = "(handout/programs_meet.md)"


class MeetingPrograms:
    """The two runs of a launch."""

    def __init__(
        self, watch: Watch, body: Callable[[], KernelValue], call: Call, unused: Collection[tuple[str, int]]
    ) -> None:
        self._watch, self._body, self._call = watch, body, call
        watch.unused = unused

    def run(self, ids: Sequence[Program], waits: bool) -> None:
        """Run all programs; `waits` is whether they have a loop in which they can wait for each other."""
        watch = self._watch
        watch.programs = Programs(self._leave, variables, watch.awaited, builder.options.num_warps)
        watch.programs.run(ids, self._run_one)
        if not watch.has_met or len(ids) < 2:
            return
        watch.end()
        moved, watch.moved = watch.moved, 0
        differs, has_slept = watch.take_back(), watch.programs.has_slept
        seed = f"{self._call.seed} {self._call.n_launches}"
        rng = random.Random(seed)
        schedule, instead = rng.choice(SCHEDULES), rng.choice(PROBES) if has_slept else ""
        programs = Programs(self._leave, variables, watch.awaited, builder.options.num_warps, schedule, seed)
        with watch.in_another_order(programs, instead) as scheduled:
            try:
                programs.run(sorted(ids, key=lambda program: program[::-1]), self._run_one, waits or has_slept)
            except MemoryFault as fault:
                fault.tell_more(self._told(scheduled.meeting))
                raise
        if watch.moved > _FAR * moved:
            self._call.doubts.append(
                f"programs of {watch.kernel} move {moved:,} bytes one after the other, which are counted, and "
                f"{watch.moved:,} in another order: do they do less work where they are watched?"
            )
        if differs() and (told := self._told(scheduled.meeting)) not in self._call.orders:
            self._call.orders.append(told)

    def _run_one(self, program: Program) -> None:
        builder.grid_idx = program
        self._watch.run(program, self._body)

    def _leave(self) -> Callable[[], None]:
        program, enter = builder.grid_idx, self._watch.leave()

        def go_on() -> None:
            builder.grid_idx = program
            enter()

        return go_on

    def _told(self, met: Meeting | None) -> Said:
        """Return how the programs met, in three steps."""
        text = f"  what {self._watch.kernel} gives depends on the order in which its programs run {MEET}"
        if met is None:
            return Said(text)
        parts: list[str | Said] = [f"{text}: they meet at {met.name}"]
        for i, (program, action, where) in enumerate(met.steps):
            parts += [f"    {'then ' if i else ''}program {program} {action} it", at(where, "      ")]
        return joined(parts)


def variables() -> Hashable:
    """Return where the program that runs is, and its variables, to the bit."""
    frame, found = sys._getframe(1), []
    while frame is not None:
        if not faults.is_ours(frame.f_code.co_filename):
            own = {name: value for name, value in frame.f_locals.items() if name[:2] != "__"}
            found.append((frame.f_code, frame.f_lasti, tuple((name, _content(own[name])) for name in sorted(own))))
        frame = frame.f_back  # type: ignore[assignment]
    return tuple(found)


def _content(value: KernelValue) -> Hashable:
    """Return what is equal for values that a kernel cannot tell apart."""
    if isinstance(value, tuple):
        return tuple(map(_content, value))
    if isinstance(value, tl.tensor):
        return value.type.name, value.handle.data.tobytes()
    return (type(value), value) if isinstance(value, bool | int | float | str) else id(value)
