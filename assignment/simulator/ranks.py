"""Several ranks in one process: their launches run together, and programs of all of them take turns.

Host code of each rank is a coroutine, and so is each program; a seed draws who goes on at each access of memory that
ranks share. No launch can be run alone, so that all checks are made in this one run: `clocks` says what comes before
what on every order.
"""

import contextvars
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, NoReturn

import numpy as np
import torch
from greenlet import GreenletExit, getcurrent, greenlet
from torch.multiprocessing.reductions import StorageWeakRef

from assignment.protocol.requests import COLUMNS, LANES
from assignment.protocol.said import Said

from . import calls
from .calls import Call
from .clocks import RankRaces
from .faults import Deadlock, MemoryFault, Program, at
from .launch import one_at_a_time
from .meeting import variables
from .numerics import ADDRESS
from .programs import Programs, Running, Schedule
from .regions import HeapTensor, Region
from .semantic import builder, semantic
from .shadow import Shadow
from .watch import Watch

_SCHEDULE = Schedule("by priorities", is_weak=False)  # some rank or program is far behind, which finds most
_RESIDENT = 132  # programs of each launch that a schedule begins with
_AT_ONCE = 264  # that a GPU holds of one at the same time: two large ones on each of 132 multiprocessors
Host = Callable[[], Sequence[torch.Tensor]]  # code of a rank, which returns its results
_BYTES = np.dtype(np.uint8)
_TURNS = 64
_COUNTED = 1_000  # turns in which a program may give up a wait while all others stand still
_SHOWN = 6  # programs of a deadlock


class Transfer(NamedTuple):
    """What programs of one launch moved over the link between two ranks, in bytes."""

    kernel: str
    n_launch: int  # of the rank whose launch it is, from 1
    origin: int  # the rank whose memory it comes from
    to: int
    distinct: int  # bytes of distinct elements
    requested: int


@dataclass(eq=False)
class _Launch:
    """A launch that runs."""

    rank: "_Rank"
    watch: Watch
    run_one: Callable[[Program], None]
    waiting: deque[Program]
    at_once: int  # programs that the GPU holds
    host: Running
    context: contextvars.Context
    enter: Callable[[], None]  # what goes on with the launch: the state of the builder
    n_live: int = 0
    # by tensor of the heap and action: which pieces were moved, and how many bytes were asked for
    moved: dict[tuple[int, int, str], tuple[np.ndarray, int]] = field(default_factory=dict)

    def run(self, program: Program) -> None:
        """Run one of its programs."""
        self.enter()
        builder.grid_idx = program
        self.run_one(program)


@dataclass(eq=False)
class _Member(Running):
    """A program of a launch, or the host code of a rank."""

    rank: int = 0
    launch: _Launch | None = None  # that it belongs to; None for host code
    turns: dict[int, Hashable] = field(default_factory=dict)  # its variables when it last found the same, by addresses


class _Rank(calls.Rank):
    """One rank of a world, as its launches know it (`Call.rank`)."""

    def __init__(self, number: int, world: "World") -> None:
        self.number, self._world = number, world
        self.races, self.heap, self.programs = world.races, world.heap, world.programs
        self.line = Said("")  # of host code that has touched the heap

    def run(self, ids: Sequence[Program], run_one: Callable[[Program], None], is_whole: bool) -> None:
        """Run all programs of a launch to their end, while others run; `is_whole`: a GPU begins all or none."""
        if ids:
            self.programs.launch(self, run_one, ids, is_whole)

    def moves(self, region: Region, action: str, pieces: np.ndarray, unit: int, requested: int) -> None:
        """Count what a program moves over the link to another rank, but for integers: they are signals."""
        if region.owner not in (None, self.number) and region.tensor.is_floating_point():
            self.does("moves")
            self.programs.moves(region, action, pieces, unit, requested)

    def does(self, what: str) -> None:
        """Note a step, for a picture: one of LANES."""
        self._world.done.append(self.number * len(LANES) + LANES.index(what))

    def found(self, fault: MemoryFault) -> None:
        """Raise a fault when all has ended, unless another one tells its cause."""
        self._world.found = self._world.found or (self.number, fault)

    def owns(self, tensor: torch.Tensor) -> None:
        """Note an argument of a launch: other ranks cannot reach it."""
        storage = tensor.untyped_storage()
        reference, ranks = self._world.owners.get(storage.data_ptr(), (None, {self.number}))
        if reference is None or reference.expired():
            reference, ranks = StorageWeakRef(storage), {self.number}
        self._world.owners[storage.data_ptr()] = reference, ranks | {self.number}

    def operates(self, loaded: Sequence[torch.Tensor], written: Sequence[torch.Tensor], line: Said) -> None:
        """Check what an operation of host code loads, before it does."""
        on_heap = {part.tensor.untyped_storage().data_ptr() for part in self.heap if part.rank == self.number}
        own, stored = (
            [x for x in of if x.numel() and x.untyped_storage().data_ptr() in on_heap] for of in (loaded, written)
        )
        if own:
            self.programs.hand_over(self.number)
        if own or stored:
            self.line = line
        if own:
            self._world.host_loads(self.number, own)

    def whose(self, storage: int) -> str:
        """Return "rank 1" for a storage of another rank, that is not on the heap."""
        reference, ranks = self._world.owners.get(storage, (None, {self.number}))
        is_free = reference is None or reference.expired()
        return "" if is_free or self.number in ranks else f"rank {min(ranks)}"


class World:
    """Ranks in one process: their launches run together, programs of all of them interleaved by the seed.

    What host code enters, such as a mode of PyTorch's, stays entered while other ranks run: enter it around `play`.
    """

    def __init__(self, all_calls: Sequence[Call]) -> None:
        """Begin with one call for each rank; the first one's seed draws."""
        self._calls = list(all_calls)
        self.races = RankRaces(len(self._calls), self._calls[0].warn)
        self.n_ranks = len(self._calls)
        self.heap: list[HeapTensor] = []
        self.found: tuple[int, MemoryFault] | None = None  # a rank's fault, whose cause another one may tell
        self.owners: dict[
            int, tuple[StorageWeakRef, set[int]]
        ] = {}  # ranks, by address, of storages that are not on the heap
        self.transfers: list[Transfer] = []  # of all launches, in the order in which they end
        self.done = bytearray()  # what ranks did, step by step: the number of a lane
        self.programs = _Programs(f"{self._calls[0].seed} ranks", self)
        for number, call in enumerate(self._calls):
            call.rank = rank = _Rank(number, self)
            for tensor in call.inputs:
                rank.owns(tensor)

    def share(self, rank: int, name: str, tensor: torch.Tensor) -> None:
        """Put a tensor, with a storage of its own, on a rank's part of the symmetric heap."""
        shadow = Shadow(tensor.untyped_storage().nbytes(), tensor.itemsize)
        self.heap.append(HeapTensor(rank, f"rank {rank}'s {name}", tensor, shadow))

    def lanes(self) -> list[list[list[int]]]:
        """Return how many steps each rank took, by lane and column."""
        done = np.frombuffer(self.done, np.uint8).astype(np.int64)
        cells = done * COLUMNS + np.arange(done.size) * COLUMNS // max(1, done.size)
        counts = np.bincount(cells, minlength=self.n_ranks * len(LANES) * COLUMNS)
        return counts.reshape(self.n_ranks, len(LANES), COLUMNS).tolist()

    def play(self, hosts: Sequence[Host]) -> None:
        """Run host code of each rank to its end; unwritten memory is a fault where a result is NaN.

        What one raises ends all, and is raised with its `rank`.
        """
        with one_at_a_time, self._calls[0]:
            results = self.programs.play(list(zip(self._calls, hosts, strict=True)))
        if self.found and not self._has_nans() and any(bool(x.isnan().any()) for x in results):
            rank, fault = self.found
            self._calls[rank].faults.append(fault)
            raise _of_rank(rank, fault)

    def _has_nans(self) -> bool:
        """Return whether an input is NaN somewhere, or an operation has made one: unwritten memory need not be why."""
        heap = {part.tensor.untyped_storage().data_ptr() for part in self.heap}
        given = [x for call in self._calls for x in call.inputs if x.untyped_storage().data_ptr() not in heap]
        floats = [x for x in given if x.is_floating_point()]
        return any(call.nans for call in self._calls) or any(bool(x.float().isnan().any()) for x in floats)

    def host_loads(self, rank: int, tensors: Sequence[torch.Tensor]) -> None:
        """Check and record what an operation of host code is about to load from the rank's heap."""
        self._begin_host(rank)
        for tensor in tensors:
            storage = tensor.untyped_storage()
            numbers = torch.arange(storage.nbytes() // tensor.itemsize)
            numbers = numbers.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).unique()
            for part, region in self._heap_of(rank):
                if part.tensor.untyped_storage().data_ptr() == storage.data_ptr():
                    offsets = numbers.numpy() * tensor.itemsize
                    pieces = part.shadow.pieces(offsets, tensor.itemsize)
                    lanes = offsets.repeat(pieces.size // offsets.size) + storage.data_ptr() - region.start
                    self.races.load(part.shadow, pieces, partial(_name, region, lanes), None)
        self._end_host(rank)

    def _begin_host(self, rank: int) -> None:
        host = self._calls[rank].rank
        assert isinstance(host, _Rank)
        self.races.begin_of(rank, f"host code of rank {rank}", line=host.line)

    def _end_host(self, rank: int) -> None:
        self.races.end()
        self.races.end_launch(rank)

    def host_stores(self, rank: int, before: Sequence[np.ndarray]) -> None:
        """Check and record what host code has stored to the rank's heap, of which this lay there before."""
        self._begin_host(rank)
        for (part, region), old in zip(self._heap_of(rank), before, strict=True):
            changed = np.flatnonzero(region.memory(_BYTES) != old)
            if changed.size:
                pieces, which = np.unique(region.shadow_offsets(changed) // part.shadow.unit, return_index=True)
                name = partial(_name, region, changed[which])
                self.races.store(part.shadow, pieces, name, np.zeros(pieces.size, bool), None)
        self._end_host(rank)

    def lies(self, rank: int) -> list[np.ndarray]:
        """Return what lies on a rank's heap."""
        return [region.memory(_BYTES).copy() for _, region in self._heap_of(rank)]

    def _heap_of(self, rank: int) -> list[tuple[HeapTensor, Region]]:
        own = [part for part in self.heap if part.rank == rank]
        return [(part, Region(part.name, part.tensor, 0, is_input=False)) for part in own]


class _Programs(Programs):
    """The host code of all ranks and the programs of their launches."""

    now: _Member

    def __init__(self, seed: str, world: World) -> None:
        super().__init__(_leave, variables, lambda address, where: ("", None), 1, _SCHEDULE, seed)
        self._world = world
        self._launches: list[_Launch] = []  # that run
        self._before: dict[int, list[np.ndarray]] = {}  # what lay on a rank's heap when its host code went on
        self._alone: _Member | None = None  # a program that goes on while others stand still,
        self._n_alone = 0  # and how often it has found the same again

    def play(self, hosts: Sequence[tuple[Call, Host]]) -> list[torch.Tensor]:
        """Run all to their end; returns the results of all."""
        results: list[torch.Tensor] = []
        self._hub = getcurrent()
        for rank, (call, host) in enumerate(hosts):
            self._begin_one(
                partial(self._run_host, rank, call, host, results), (0, 0, 0), contextvars.copy_context(), rank
            )
        try:
            while self._live:
                self._begin_more(_RESIDENT, is_first=True)
                self.now, self._following = self._next_of(), None
                self._go_on()
        finally:
            for running in reversed(self._live):
                if running.coroutine:
                    running.coroutine.throw(GreenletExit)
            self._live, self._awake, self._woken, self._asleep, self._launches = [], [], [], [], []
        return results

    def _run_host(self, rank: int, call: Call, host: Host, results: list[torch.Tensor], _: Program) -> None:
        calls.switch_to(call)
        builder.grid_idx = None  # that of another rank's program
        self._before[rank] = self._world.lies(rank)
        results += host()
        self.hand_over(rank)

    def hand_over(self, rank: int) -> None:
        """Check what host code of a rank has stored so far."""
        self._world.host_stores(rank, self._before[rank])
        self._before[rank] = self._world.lies(rank)
        for launch in self._launches:
            launch.watch.ask_again()

    def launch(self, rank: _Rank, run_one: Callable[[Program], None], ids: Sequence[Program], is_whole: bool) -> None:
        """Run the programs of a launch; called by host code, which sleeps until they have ended."""
        self.hand_over(rank.number)
        most = self.held(builder.options.num_warps)
        at_once = most if is_whole else min(_AT_ONCE, most)
        call, enter, n_launch = calls.current(), builder.leave(), calls.current().n_launches
        context = contextvars.copy_context()  # NumPy's handling of floating point errors
        launch = _Launch(rank, builder.watch, run_one, deque(ids), at_once, self.now, context, _entering(call, enter))
        self._launches.append(launch)
        self._awake.remove(self.now)
        try:
            self._hub.switch()
        finally:
            launch.enter()
        self._before[rank.number] = self._world.lies(rank.number)
        for (owner, _, action), (moved, requested) in launch.moved.items():
            ends = (owner, rank.number) if action == "loaded" else (rank.number, owner)
            self._world.transfers.append(Transfer(builder.watch.kernel, n_launch, *ends, int(moved.sum()), requested))

    def meet(self, where: Hashable = None) -> None:
        """Let others go first; all others after some turns at one place, where the program may poll by plain loads."""
        if self.now is self._alone:
            return
        if self._met.get(where, 0) % _TURNS == _TURNS - 1:
            self.now.priority = min(one.priority for one in self._live) - self._rng.random()
        super().meet(where)

    def asked(self, addresses: np.ndarray, values: np.ndarray, has_changed: bool = False) -> None:
        """Let a program that finds the same again sleep; one that counts its turns may give up: others stand still."""
        me, key = self.now, hash(addresses.tobytes())
        if not has_changed and me.asked.get(key) == hash(values.tobytes()) and self._n_alone < _COUNTED:
            before, me.turns[key] = me.turns.get(key), self._variables()
            if before != me.turns[key]:
                self._alone, self._n_alone = me, self._n_alone + 1
                return
        self._alone = None
        super().asked(addresses, values, has_changed)

    def moves(self, region: Region, action: str, pieces: np.ndarray, unit: int, requested: int) -> None:
        """Count what the program that runs moves between ranks."""
        assert self.now.launch is not None
        assert region.owner is not None
        assert region.shadow is not None
        key = region.owner, id(region.shadow), action
        size = region.tensor.untyped_storage().nbytes()
        moved, before = self.now.launch.moved.get(key, (np.zeros(size, bool), 0))
        moved.reshape(-1, unit)[pieces] = True
        self.now.launch.moved[key] = moved, before + requested

    def _begin_one(
        self, body: Callable, program: Program, context: contextvars.Context, rank: int, launch: _Launch | None = None
    ) -> None:
        self._n_begun += 1
        coroutine = greenlet(body, self._hub)
        coroutine.gr_context = context
        member = _Member(program, self._n_begun, coroutine, self._rng.random(), rank=rank, launch=launch)
        self._live.append(member)
        self._awake.append(member)

    def _begin_more(self, most: int, is_first: bool = False) -> int:
        n_begun = 0
        for launch in self._launches:
            limit = min(most, launch.at_once) if is_first else min(launch.at_once, launch.n_live + most)
            while launch.waiting and launch.n_live < limit:
                launch.n_live += 1
                n_begun += 1
                context = launch.context.copy()
                self._begin_one(launch.run, launch.waiting.popleft(), context, launch.rank.number, launch)
        return n_begun

    def _next_of(self) -> _Member:
        """Return who goes on; where all sleep for ever, the first sleeper's host code hears of it."""
        try:
            return _member(self._following or self._next())
        except Deadlock as fault:
            self._fail(_member(self._asleep[0]), fault)

    def _go_on(self) -> None:
        member = self.now
        self._n_switches += 1
        try:
            member.coroutine.switch(member.program)
        except Exception as error:
            self._fail(member, error)
        if not member.coroutine.dead:
            return
        self._live.remove(member)
        self._awake.remove(member)
        if (launch := member.launch) is not None:
            launch.n_live -= 1
            if not launch.waiting and not launch.n_live:
                self._world.races.end_launch(member.rank)
                self._launches.remove(launch)
                self._awake.append(launch.host)

    def _fail(self, member: _Member, error: Exception) -> NoReturn:
        """Raise what a program or host code has raised, where it is a program's through its host code."""
        try:
            if member.launch:
                member.launch.host.coroutine.throw(type(error), error, error.__traceback__)
        except Exception as raised:
            error = raised
        raise _of_rank(member.rank, error)

    @staticmethod
    def _reach(addresses: np.ndarray) -> tuple[int, int]:
        own = addresses & ADDRESS  # launches number their tensors differently
        return int(own.min()), int(own.max())

    def _deadlock(self) -> Deadlock:
        asleep, shown = [_member(one) for one in self._asleep], dict[Hashable, _Member]()
        places = {one.where for one in asleep}
        for one in asleep:
            shown.setdefault((one.rank, one.where), one)
        ranks = sorted({one.rank for one in asleep})
        who = "1 program waits" if len(asleep) == 1 else f"{len(asleep)} programs wait"
        text = f"{Deadlock.kind}: {who} ({_ranks(ranks)}), and nothing changes any more"
        parts: list[str | Said] = [text]
        for launch in self._launches:
            if n := len(launch.waiting):
                more = f"{n:,} program{'s' * (n > 1)} of {launch.watch.kernel} {'have' if n > 1 else 'has'} not begun"
                parts += [f"  {more}: a GPU holds some {launch.at_once:,} at once, roughly those that come first"]
        if any(launch.waiting for launch in self._launches):
            parts += ["  let who sends come first; launch_cooperative_grid=True is for a grid that a GPU holds whole"]
        for one in list(shown.values())[:_SHOWN]:
            assert one.launch is not None
            name, by = one.launch.watch.awaited(int(one.waits_for[0]), places)
            parts += [
                f"  program {one.program} of {one.launch.watch.kernel} waits for {name}, which stays {one.found[0]}"
            ]
            parts += [at(one.where, "    ")]
            if by is None:
                parts += ["    no program has sent this signal"]
                continue
            parts += [f"    {self._world.races.who(by)} has sent it, and does so no more", at(by.where, "      ")]
        left = {one.rank for one in map(_member, self._live) if one.launch is None}
        if ended := sorted(set(range(self._world.n_ranks)) - left):
            parts += [f"  {_ranks(ended)} {'has' if len(ended) == 1 else 'have'} ended, and can signal no more"]
        return Deadlock(*parts)


def _name(region: Region, offsets: np.ndarray, lane: int) -> str:
    return region.name_at(int(offsets[lane]))


def _member(running: Running) -> _Member:
    assert isinstance(running, _Member)
    return running


def _of_rank(rank: int, error: Exception) -> Exception:
    vars(error)["rank"] = rank
    return error


def _ranks(numbers: Sequence[int]) -> str:
    return f"rank {numbers[0]}" if len(numbers) == 1 else f"ranks {', '.join(map(str, numbers))}"


def _entering(call: Call, enter: Callable[[], None]) -> Callable[[], None]:
    """Return what goes on with a launch of this call."""

    def go_on() -> None:
        calls.switch_to(call)
        kind = type(builder)
        enter()
        if type(builder) is not kind:
            semantic.forget_constants()

    return go_on


def _leave() -> Callable[[], None]:
    """Let another program run; returns what goes on with this one."""
    go_on, enter = _entering(calls.current(), builder.leave()), builder.watch.leave()

    def both() -> None:
        go_on()
        enter()

    return both
