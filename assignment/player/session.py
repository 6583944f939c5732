"""A player's conversation with the judge: sources first, then programs with their inputs."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import assert_never

import torch

from assignment import whose
from assignment.calling.probes import OF_EARLIER, InputsBefore
from assignment.protocol import program as programs
from assignment.protocol import requests, wire
from assignment.protocol.program import Program
from assignment.protocol.replies import (
    MAX_NOTE,
    NOT_PLAYED,
    Broken,
    Failed,
    Fault,
    Loaded,
    Ok,
    Reply,
    few,
    on_rank,
    told,
)
from assignment.protocol.requests import (
    Again,
    Call,
    Called,
    Costs,
    Gradients,
    Kept,
    KeptLaunches,
    Largest,
    Load,
    Playable,
    Ranks,
    Sweep,
    as_a,
)
from assignment.protocol.said import Said, joined
from assignment.simulator import calls, constants
from assignment.simulator.costs import COSTS, summary
from assignment.simulator.faults import MemoryFault

from .kernel_builder import Refused
from .missing_results import never_stored
from .play import InKernel, Played, Player, described
from .ranks import RanksPlayed
from .storages import CannotFollow
from .work import Work

TOO_MANY = Said("too many constants to be compared with those that are compiled: staff will look at it")
RESULTS: dict[type, slice] = {Again: slice(0, None, 2), Gradients: slice(None)}  # among groups; otherwise the first
Answer = tuple[Reply, list[torch.Tensor]]


class PlayerSession:
    """One submission's programs, in order."""

    def __init__(self) -> None:
        self._player: Player | None = None
        self._returned: set[int] = set()  # storages of results that were returned, and live

    def answer(self, request: Load | Playable | Ranks | KeptLaunches, tensors: list[torch.Tensor]) -> Answer:
        """Answer a request: the sources of a submission, a program and its inputs, or what its launches did."""
        if isinstance(request, Load):
            import triton

            self._player = Player(request.sources, triton.jit)
            return Loaded(), []
        assert self._player is not None
        if isinstance(request, KeptLaunches):
            return Ok((1,), bare=True), [self._player.drawn()]
        if isinstance(request, Ranks):
            work, n = Work(), request.calls
            read = list(map(programs.read, tensors[-n * request.ranks :]))
            starts = range(0, len(read), n)
            kernels = [[kernel for one in read[first : first + n] for kernel in one.kernels] for first in starts]
            players = [self._player.on_rank(work, of_rank) for of_rank in kernels]
            read = [replace(program, kernels=()) for program in read]  # which the players know
            return _of_ranks(players, request, read, tensors[: -len(read)], has_figures=True)
        *inputs, data = tensors
        if isinstance(request, Call) and request.about["heap"]:
            return _of_ranks([self._player], as_a(Ranks, request), [programs.read(data)], inputs, has_figures=False)
        return self._play(self._player, programs.read(data), request, inputs)

    def _play(self, player: Player, program: Program, request: Playable, inputs: list[torch.Tensor]) -> Answer:
        before = InputsBefore(inputs)
        try:
            played, seen = player.play(program, request, inputs)
        except (MemoryFault, CannotFollow, Refused, InKernel) as error:
            return _ended(error, player.work), []
        if not played.groups:  # the call has raised, of which the recorder tells
            return Ok((), bare=False), []
        if not isinstance(request, Again) and (why := self._misuse(player, program, before, played)):
            return Failed(why), []
        groups, figures = played.groups, []
        about, judged = request.about, groups[RESULTS.get(type(request), slice(1))]
        for group in judged:
            player.work.returned(group)
        match request:
            case Costs():
                found = summary(seen.launches, played.host, inputs, groups[0], player.work.input_labels)
                figures = [torch.tensor(found[name], dtype=torch.int64) for name in COSTS]
            case Largest():
                figures = [torch.tensor(largest(played))]
            case Kept():
                groups = [[torch.tensor(kept(player, program, played))]]
            case Sweep() | Call() | Again() | Gradients() | requests.Forward() | requests.Backward():
                pass
            case _:
                assert_never(request)
        if (size := sum(t.numel() * t.itemsize for group in groups for t in group)) > wire.MAX_REPLY_PAYLOAD:
            return Failed(f"results of {size:,} bytes, expected those of the handout"), []
        if isinstance(request, Call):  # each in memory of its own
            groups = [[result.clone() for result in group] for group in groups]
        groups = [*groups, figures] if figures else groups
        unstored = never_stored(about["results"], judged, seen.idle, inputs, about["rows_at"])
        reply = _ok(request, groups, program.bare, player.work, [seen], unstored, played.reads)
        return reply, [tensor for group in groups for tensor in group]

    def _misuse(self, player: Player, program: Program, before: InputsBefore, played: Played) -> str:
        """Return what a call did to its inputs, or returned that is not a new tensor."""
        results = program.result_storages()
        if why := before.misuse(played.groups[0] if played.groups else []):
            return why
        self._returned = {number for number in self._returned if number in player.storages}
        if results & self._returned:
            return OF_EARLIER
        self._returned |= {number for number in results if player.storages[number].nbytes()}
        return ""


def _of_ranks(
    players: list[Player], request: Ranks, all_programs: list[Program], inputs: list[torch.Tensor], has_figures: bool
) -> Answer:
    """Return the reply to calls on several ranks: their results by call and rank, and figures of what links moved."""
    ranks = RanksPlayed(players, request, all_programs, inputs)
    try:
        ranks.play()
    except (MemoryFault, CannotFollow, Refused, InKernel) as error:
        return on_rank(_ended(error, ranks.work), getattr(error, "rank", None)), []
    if not all(played.groups for of_rank in ranks.played for played in of_rank):
        return Ok((), bare=False), []
    about, unstored = request.about, dict[str, None]()
    for rank in range(request.ranks):
        if why := ranks.misuse(rank):
            return on_rank(Failed(why), rank), []
        for played, given in zip(ranks.played[rank], ranks.inputs[rank], strict=True):
            ranks.work.returned(played.groups[0], f" on rank {rank}")
            lines = never_stored(about["results"], played.groups[:1], ranks.seen[rank].idle, given, about["rows_at"])
            unstored |= {f"on rank {rank}: {line}": None for line in lines}
    groups = [ranks.played[rank][call].groups[0] for call in range(request.calls) for rank in range(request.ranks)]
    groups = [[result.clone() for result in group] for group in groups]
    if has_figures:
        groups.append([torch.tensor(ranks.moved()), torch.tensor(ranks.world.lanes())])
    bare = all(program.bare for of_rank in ranks.programs for program in of_rank)
    reads = [text for of_rank in ranks.played for played in of_rank for text in played.reads]
    return _ok(request, groups, bare, ranks.work, ranks.seen, unstored, reads), [x for group in groups for x in group]


def _ok(
    request: Called,
    groups: list[list[torch.Tensor]],
    bare: bool,
    work: Work,
    seen: Sequence[calls.Call],
    unstored: Iterable[str],
    reads: Iterable[str],
) -> Ok:
    """Return the reply to a call that has come to its end, as the simulator has seen it on each rank."""
    noted = [of_launch for one in seen for of_launch in one.constants] if request.notes_constants else []
    seen_of, numbers = constants.packed(noted) if noted else ([], [])
    are_lost = noted and not seen_of
    doubts = [*work.doubts, *(Said(text) for one in seen for text in one.doubts), *([TOO_MANY] if are_lost else [])]
    return Ok(
        groups=tuple(map(len, groups)),
        bare=bare,
        unstored=told(unstored),
        notes=told(dict.fromkeys(text for one in seen for text in one.warnings)),
        evidence=few(work.evidence),
        doubts=few(doubts),
        nans=few(said for one in seen for said in one.nans.values()),
        orders=few(said for one in seen for said in one.orders),
        reads=told(dict.fromkeys(reads)),
        unplayed=few(work.unplayed),
        constants=tuple(seen_of),
        constants_of=tuple(numbers),
    )


def _ended(error: MemoryFault | CannotFollow | Refused | InKernel, work: Work) -> Reply:
    """Return the reply about a call that has not come to its end."""
    if (said := joined(work.unplayed)).text:  # what that left may have brought it here
        return Failed(said.text[:MAX_NOTE], NOT_PLAYED, places=said.places)
    match error:
        case MemoryFault():
            return Fault(str(error)[:MAX_NOTE], error.kind, error.said.places)
        case InKernel(__cause__=BaseException() as cause) if whose.is_ours(cause):
            return Broken(whose.told(cause))
        case InKernel():
            return described(error)
    return Failed(str(error)[:MAX_NOTE], places=error.said.places)


def largest(played: Played) -> int:
    """Return the elements of the largest tensor made or used, as float32 by default."""
    others = [nbytes // 4 for number, nbytes in played.used.items() if number not in played.inputs]
    return max([played.host.largest, *others])


def kept(player: Player, program: Program, played: Played) -> int:
    """Return the bytes of memory that a call used and that live on.

    Its inputs and the memory of its results are not counted.
    """
    living = [number for number in played.used if number in player.storages and number not in played.inputs]
    size_of = sum(tensor.numel() * tensor.itemsize for group in played.groups for tensor in group)
    return max(0, sum(played.used[number] for number in {*living, *program.result_storages()}) - size_of)
