"""Every check of a running launch: bounds, races, undefined values, stores to inputs, costs."""

import contextlib
import functools
import math
from collections.abc import Callable, Collection, Hashable, Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from assignment.whose import theirs

from .calls import Call
from .faults import (
    LEFT_OPEN,
    Deadlock,
    FalseHint,
    InputWritten,
    MemoryFault,
    OutOfBounds,
    Place,
    Program,
    Race,
    UndefinedResult,
    Unwritten,
    at,
    line,
    place,
)
from .kernel_values import KernelValue
from .numerics import ADDRESS
from .programs import Programs
from .races import MIXED, Lanes, RaceEvent, Races
from .regions import NUMBER_AT, Region, Regions
from .scheduled import Order, ScheduledRun, stored_to
from .trace import LaunchCost, Traffic, distinct
from .undefined import (
    MASKED,
    RESULT,
    UNWRITTEN,
    Undefined,
    Use,
    Write,
    began_fresh,
    bits,
    gather,
    is_telling,
    is_unwritten,
)

if TYPE_CHECKING:
    from .recording import RecordedLaunch


UNDEFINED_REMEDY = "that gives anything on a GPU; take other operands there, or leave such lanes out by tl.where"
_MAX_NANS = 3  # places: the first is mostly where it begins
_LEEWAY = 20_000  # steps of a program in another order, beyond a hundred times those of its first run
_ENDLESS = 200_000  # steps of a program of several ranks
_SAME = 1e-3  # the share by which sums in another order may differ, and nobody is told
_LOCKS = 256  # flags that one atomic orders programs by
_SCANNED = 1 << 24  # elements of an argument up to which a launch looks for fresh memory in it


# which atomics come in any order among themselves
_KINDS: dict[Callable[..., np.ndarray], int] = {
    np.add: 1,
    np.minimum: 2,
    np.maximum: 3,
    np.bitwise_and: 4,
    np.bitwise_or: 5,
    np.bitwise_xor: 6,
}


class Watch:
    """One launch of one kernel."""

    def __init__(self, kernel: str, grid: Program, call: Call) -> None:
        self.rank = call.rank  # of several, whose launches run together
        self.kernel = f"{kernel} on rank {self.rank.number}" if self.rank else kernel
        self._call, self.draws = call, call.draws
        self._regions = Regions(self.kernel, grid, call.inputs, call.storages)
        self._races = Races(kernel, call.warn)
        if self.rank:
            self._races = self.rank.races
            self._regions.reach(self.rank.heap, self.rank.whose)
        self.undefined = Undefined()
        self.cost = LaunchCost(kernel, grid) if call.is_traced else None
        if self.cost is not None and call.keeps_accesses:
            self.cost.accesses = []
        self._journal: list[Write] = []  # of the program that runs; of all, where they may meet
        self.has_stored = False  # or added atomically
        self.is_rehearsal = False
        self._is_split = False  # the access that runs is made once per tensor
        # where programs may meet: those of this run, in which lines nobody uses what atomics return
        self.programs: Programs | None = self.rank.programs if self.rank else None
        self.unused: Collection[tuple[str, int]] = ()
        self.scheduled: ScheduledRun | None = None  # they run once more, in another order
        self.record: RecordedLaunch | None = None  # of what it does, for a page
        # accesses and turns of loops of the program that runs, and how many a trial may have
        self.moved = 0  # bytes that programs have loaded and stored, but for those they ask for again and again
        self._steps, self._most_steps, self._largest = 0, _ENDLESS if self.rank else math.inf, 0
        # of what comes out of `if`s and `return`s: variables.py
        self.branch_types: dict[Hashable, dict[bool, KernelValue]] = {}
        self.forgotten: set[str] = set()  # names that one branch alone has bound
        if self.cost:
            call.launches.append(self.cost)

    def record_for(self, function: FunctionType) -> None:
        """Begin a record of what programs of this function do, if the call keeps one."""
        if self._call.recording:
            assert self.cost is not None
            self.record = self._call.recording.begin(function, self.cost)

    def end(self) -> None:
        """End the launch."""
        if self.record:
            self.record.end()
            self.record = None

    def admit(self, name: str, tensor: torch.Tensor) -> np.uint64:
        """Add an argument of the launch; returns its address as the kernel gets it."""
        region = self._regions.admit(name, tensor)
        if region.owner is None:
            region.began_fresh = began_fresh(tensor)
        if region.owner is None and not region.is_input and region.nbytes and region.began_fresh:
            content = region.memory(np.dtype(f"u{region.itemsize}"))
            region.may_be_unwritten = content.size > _SCANNED or is_unwritten(content) is not None
        self._follow(region)
        if region.origins is not None:
            region.may_be_unwritten |= region.origins.may_be_unwritten()
        if self.rank and region.owner is None:
            self.rank.owns(tensor)
        if self.cost and region.traffic is None:
            self._trace(region)
        if self.record:
            self.record.admit(region)
        return region.tagged_address

    def _follow(self, region: Region) -> None:
        """Ask, once, where the values of a region come from."""
        follower = self._call.follower
        region.is_followed = True
        region.origins = follower.admit(region.tensor) if follower else None
        region.is_suspect = bool(follower and region.origins and follower.is_suspect(region.origins))

    def ask_again(self) -> None:
        """Ask once more where values of the heap come from: host code of a rank has run since."""
        for region in self._regions:
            if region.owner is not None:
                self._follow(region)
                if region.origins is not None:
                    region.may_be_unwritten |= region.origins.may_be_unwritten()

    def _trace(self, region: Region) -> None:
        assert self.cost is not None
        region.traffic = _traffic(region, self._call)
        self.cost.tensors.append(region.traffic)

    def run(self, program: Program, body: Callable[[], KernelValue]) -> None:
        """Run one program of the grid, and the trials of the undefined values that it loaded."""
        self._regions.program, self._steps = program, 0
        if self.scheduled:
            body()
            return
        if self.rank:
            self._run_among_ranks(program, body)
            return
        self._races.begin(program)
        self.undefined.begin()
        if self.cost:
            self.cost.begin(program)
        if self.programs is None:
            self._journal = []
        first = len(self._journal)
        with self.record.of_program() if self.record else contextlib.nullcontext():
            try:
                body()
            except OutOfBounds:
                self._tell_of_unwritten_index(body, self._journal[first:])
                raise
            if self.undefined.met and not (self.programs and self.programs.now.has_slept):
                self._try_undefined(body, self._journal[first:])
        self._largest = max(self._largest, self._steps)

    def _run_among_ranks(self, program: Program, body: Callable[[], KernelValue]) -> None:
        """Run a program that no trial can run once more: others see at once what it stores."""
        assert self.rank is not None
        self.rank.races.begin_of(self.rank.number, f"program {program} of {self.kernel}", program)
        self.undefined.begin()
        if self.cost:
            self.cost.begin(program)
        with self.record.of_program() if self.record else contextlib.nullcontext():
            body()
        self.rank.races.end()

    def tagged(self, addresses: np.ndarray) -> np.ndarray:
        """Return addresses that come as integers, with the number of their tensor on the heap of some rank."""
        return self._regions.tagged(addresses) if self.rank else addresses

    def untagged(self, addresses: np.ndarray) -> np.ndarray:
        """Return addresses as a GPU has them; integers that are no tensor's stay as they are."""
        return np.where(addresses >> NUMBER_AT <= self._regions.most, addresses & ADDRESS, addresses)

    def leave(self) -> Callable[[], None]:
        """Let another program run; returns what goes on with this one."""
        program, actor, met, steps = self._regions.program, self._races.actor, self.undefined.met, self._steps
        number = self.cost.program if self.cost else 0
        own = self.record.leave() if self.record and not self.scheduled else None
        if not self.scheduled:
            self._races.sleeps()

        def enter() -> None:
            self._regions.program, self._races.actor, self.undefined.met, self._steps = program, actor, met, steps
            if self.cost:
                self.cost.program = number
            if own and self.record:
                self.record.enter(own)

        return enter

    def take_back(self) -> Callable[[], bool]:
        """Undo all that the programs have stored; returns what says whether floats there are other ones now."""
        floats = [write.addresses for write in self._journal if write.new.dtype.kind == "f"]
        types = [write.new.dtype for write in self._journal if write.new.dtype.kind == "f"]
        stored = [gather(addresses, dtype) for addresses, dtype in zip(floats, types, strict=True)]
        _take_back(self._journal)
        self._journal = []
        return lambda: any(
            not np.allclose(gather(addresses, dtype), old, _SAME, _SAME * _largest(old), equal_nan=True)
            for addresses, dtype, old in zip(floats, types, stored, strict=True)
        )

    @contextlib.contextmanager
    def in_another_order(self, programs: Programs, instead: str) -> Iterator[ScheduledRun]:
        """Run these programs without checks: what they do was told in their first run.

        `instead`, if any, says what takes the place of undefined values (undefined.PROBES).
        """
        self.programs, self.is_rehearsal, self.undefined.instead = programs, True, instead
        self.scheduled = ScheduledRun(programs, self._races)
        self._most_steps = 100 * self._largest + _LEEWAY
        try:
            yield self.scheduled
        finally:
            self.scheduled, self.is_rehearsal, self._most_steps, self.undefined.instead = None, False, math.inf, ""

    @property
    def has_met(self) -> bool:
        """Whether programs touch elements together, in an order that may matter."""
        return self._races.has_met

    def awaited(self, address: int, where: Collection[Place]) -> tuple[str, RaceEvent | None]:
        """Return the name of an element that programs wait for, in these lines, and what others last did to it.

        That is what they did to its tensor, where they did nothing to itself.
        """
        found = self._regions.find(np.array([address], np.uint64), 1, "waits for")
        assert found is not None
        region, offsets = found
        shadow, index = self._regions.pieces(region, offsets, region.itemsize)
        return region.name_at(int(offsets[0])), self._races.last_change(shadow, index, where)

    def _try_undefined(self, body: Callable[[], KernelValue], first: list[Write]) -> None:
        _take_back(first)
        self._most_steps = 10 * self._steps
        used = self.undefined.used(first, lambda: self._rehearse(body))
        self._most_steps = math.inf
        for write in first:
            write.do_again()
        for kind, text, where in used:
            depends = "  what the program stores depends on it"
            if kind == MASKED:
                remedy = "say other=0.0 before a sum, -inf before a maximum"
                self._call.warn(f"{text}\n{at(where)}\n{depends}: {remedy}", where)
                continue
            if kind == UNWRITTEN:
                fault: MemoryFault = Unwritten(text, at(where), depends)
            else:
                fault = UndefinedResult(text, at(where), f"{depends}: {UNDEFINED_REMEDY}")
            fault.where = where
            raise fault

    def _tell_of_unwritten_index(self, body: Callable[[], KernelValue], first: list[Write]) -> None:
        """Raise Unwritten where a program reaches outside by an index that was never written."""
        if not self.undefined.met or (self.programs and self.programs.now.has_slept):
            return
        _take_back(first)
        found = self.undefined.cause(lambda: self._rehearse(body))
        for write in first:
            write.do_again()
        if found is not None:
            remark = "  it becomes part of an address, which lies outside of a tensor"
            raise Unwritten(found.text, at(found.where), remark) from None

    def _rehearse(self, body: Callable[[], KernelValue]) -> list[Write]:
        """Run the program, undo its writes, and return them."""
        kept, self.is_rehearsal, self._journal, self._steps = self._journal, True, [], 0
        try:
            body()
        finally:
            written, self._journal, self.is_rehearsal = self._journal, kept, False
            _take_back(written)
        return written

    def step(self) -> None:
        """Count an access or a turn of a loop; raises TimeoutError in a trial that takes far longer than the first."""
        self._steps += 1
        if self._steps > self._most_steps and (self.scheduled or self.rank):
            who = f"program {self._regions.program} of {self.kernel} goes on for ever where others run beside it"
            instead = 'an atomic, with sem="acquire", scope="sys"' if self.rank else "an atomic, or by volatile=True"
            remedy = f"  a plain load need not see what others store: poll by {instead}"
            raise Deadlock(f"{Deadlock.kind}: {who}", at(place()), remedy)
        if self._steps > self._most_steps:
            raise TimeoutError("this trial takes ten times as many steps as the program")

    def makes_nan(self, *_: str | int) -> None:
        """Record a NaN; NumPy calls this at an operation such as ∞ − ∞, 0 · ∞ or 0 / 0."""
        if not self.is_rehearsal and len(self._call.nans) < _MAX_NANS and (where := place()) not in self._call.nans:
            self._call.nans[where] = at(where)
            if self.record:
                self.record.nan(where, str(at(where)))

    @contextlib.contextmanager
    def unmoved(self) -> Iterator[None]:
        """Compute as a reader of Triton's source would: its random numbers are the same everywhere."""
        drawn, self.draws = self.draws, self.draws.unmoved
        try:
            yield
        finally:
            self.draws = drawn

    def reordered(self, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return a block in another shape, its elements where a compiler that may reorder them can put them.

        Where only dimensions of 1 come or go they stay in their places.
        """
        stays = values.shape != shape and [n for n in values.shape if n > 1] == [n for n in shape if n > 1]
        where, does = place(), "it stays as it is" if stays else "the simulator does"
        self._call.warn(
            f"may reorder: the compiler may put the elements of this block in another order; here {does}\n{at(where)}\n"
            f"  where their order matters, say tl.reshape without can_reorder {LEFT_OPEN}",
            (where, "reorder"),
        )
        flat = values.reshape(-1)
        return (flat if stays else flat[self.draws.order(*shape)]).reshape(shape)

    def false_hint(self, promised: Place) -> None:
        """Tell of a hint that does not hold, on which the access of this line rests."""
        self._call.warn(
            f"{FalseHint.kind}: what program {self._regions.program} of {self.kernel} promises does not hold\n"
            f"{at(promised)}\n  an access is compiled by it\n{at(place(), '    ')}\n"
            f"  leave it out, or make it true {LEFT_OPEN}",
            (promised, "hint"),
        )

    def tell_tickets(self, where: Place) -> None:
        """Tell of an atomic of several lanes at one address, what it returns to each of which is used."""
        self._call.warn(
            f"the order of lanes is left open: several lanes of an atomic of {self.kernel} have one address, and what "
            f"it returns to each is used\n{at(where)}\n  which lane comes first is drawn by the seed {LEFT_OPEN}",
            (where, "lanes"),
        )

    def barrier(self) -> None:
        """Record a barrier between the threads of the program."""
        self._races.barrier()

    def note(self, action: str, addresses: np.ndarray, mask: np.ndarray | None, width: int) -> None:
        """Record an access, before it is checked: the lanes that a mask excludes too."""
        if self.record and not self.is_rehearsal:
            self.record.access(action, addresses, mask, width)

    def note_values(self, values: np.ndarray) -> None:
        """Record what the last access has read, or writes."""
        if self.record and not self.is_rehearsal:
            self.record.values(values)

    # accesses: addresses of active lanes only, at least one

    def read(self, addresses: np.ndarray, dtype: np.dtype, lanes: Lanes | None = None) -> np.ndarray:
        """Return a new array of the elements at `addresses`; `lanes` numbers the active lanes."""
        found = self._find(addresses, dtype.itemsize, "loads")
        if found is None:
            return self._by_tensor(addresses, lambda lanes: self.read(addresses[lanes], dtype), dtype)
        region, offsets = found
        values = region.memory(dtype).take(_index(offsets, dtype.itemsize))
        if self.scheduled:
            self._note_origin(region, offsets, dtype.itemsize)
            values = self.scheduled.loaded(addresses, values)
        if not self.is_rehearsal:
            self._note_origin(region, offsets, dtype.itemsize)
            self._note_load(region, offsets, dtype, lanes)
        if region.may_be_unwritten and (undefined := _unwritten(region, offsets, values)) is not None:
            self._meet_unwritten("loads", region, offsets, values, undefined)
        return values

    def _find(self, addresses: np.ndarray, width: int, action: str) -> tuple[Region, np.ndarray] | None:
        """Return the region of all the addresses and their offsets; in a scheduled run others may go first."""
        self.step()
        if self.programs is not None and addresses.size > 1:
            self.moved += addresses.size * width
        found = self._regions.find(addresses, width, action)
        if self.rank and self.programs and (found is None or found[0].owner is not None or action == "updates"):
            if not self._is_split:
                self.programs.meet((int(addresses.item(0)), line()))
            return self._regions.find(addresses, width, action)
        if found is None or self.scheduled is None or found[0].is_input:
            return found
        region, offsets = found
        shadow, pieces = self._regions.pieces(region, offsets, width)
        may_differ = self.scheduled.begin(shadow, pieces, self._namer(region, offsets, pieces), action)
        return self._regions.find(addresses, width, action) if may_differ else found

    def _meet_unwritten(
        self, action: str, region: Region, offsets: np.ndarray, values: np.ndarray, lanes: np.ndarray
    ) -> None:
        places = offsets[lanes]
        text = self._says(Unwritten, action, region, int(places[0]), "which was never written")
        numbers = places // values.itemsize + region.number
        self.undefined.meet(Use(UNWRITTEN, text, place()), values, lanes, numbers)

    def _note_origin(self, region: Region, offsets: np.ndarray, width: int) -> None:
        if not region.is_followed:
            self._follow(region)
        if region.is_suspect:
            flat = offsets.ravel()
            assert self._call.follower is not None
            assert region.origins is not None
            place_in_storage = flat + (region.start - region.origins.address)
            name_of: Callable[[int], str] = lambda lane: region.name_at(int(flat[lane]))  # noqa: E731
            self._call.follower.loaded(region.origins, place_in_storage, width, self.kernel, name_of)

    def _note_stored(self, region: Region, offsets: np.ndarray, values: np.ndarray) -> None:
        self.has_stored = True
        if not region.is_followed:
            self._follow(region)
        if region.origins and (region.may_be_unwritten or self.scheduled or not self.is_rehearsal):
            region.origins.kernel_wrote(offsets + (region.start - region.origins.address), values)

    def _note_load(self, region: Region, offsets: np.ndarray, dtype: np.dtype, lanes: Lanes | None) -> None:
        if not region.is_input:
            shadow, pieces = self._regions.pieces(region, offsets, dtype.itemsize)
            if self.rank:
                self.rank.moves(region, "loaded", pieces, shadow.unit, offsets.size * dtype.itemsize)
            self._races.load(shadow, pieces, self._namer(region, offsets, pieces), lanes)
        if self.cost:
            self._count(region, "loaded", offsets, dtype.itemsize)

    @staticmethod
    def _namer(region: Region, offsets: np.ndarray, pieces: np.ndarray) -> Callable[[int], str]:
        """Return a function from a piece's number to the element's name."""
        per_lane = max(pieces.size // offsets.size, 1)
        return lambda piece: region.name_at(int(offsets.ravel()[piece // per_lane]))

    def write(self, addresses: np.ndarray, values: np.ndarray, lanes: Lanes | None = None) -> None:
        """Store; of several lanes at one address the last is kept. `lanes` as for `read`."""
        found = self._find(addresses, values.dtype.itemsize, "stores to")
        if found is None:
            self._by_tensor(addresses, lambda lanes: self.write(addresses[lanes], values[lanes]), None)
            return
        region, offsets = found
        self._refuse_inputs(region, offsets, "stores to")
        self._note_output(region)
        memory, index = region.memory(values.dtype), _index(offsets, values.dtype.itemsize)
        if self.scheduled:
            self.scheduled.stores(addresses, values)
            self._note_stored(region, offsets, values)
            return
        old = memory.take(index)
        if not self.is_rehearsal:
            shadow, pieces = self._regions.pieces(region, offsets, values.dtype.itemsize)
            if self.rank:
                self._tell_unwritten(region, values)
                self.rank.moves(region, "stored", pieces, shadow.unit, values.nbytes)
            is_same = (bits(old) == bits(values)).ravel().repeat(pieces.size // offsets.size)
            self._races.store(shadow, pieces, self._namer(region, offsets, pieces), is_same, lanes)
            if self.cost:
                self._count(region, "stored", offsets, values.dtype.itemsize)
        self._record(region, addresses, offsets, old, values)
        memory[index] = values
        self._changed(addresses, old, values)
        self._note_stored(region, offsets, values)
        self._refuse_lost_values(region, offsets, memory.take(index), values)

    def _note_output(self, region: Region) -> None:
        """Tell of a launch's first store to a tensor."""
        if self._call.on_store and not region.is_noted:
            region.is_noted = True
            self._call.on_store(region.name, region.tensor)

    def _changed(self, addresses: np.ndarray, old: np.ndarray, new: np.ndarray) -> None:
        """Wake programs that wait for what this one has changed."""
        if self.programs is not None and not self.is_rehearsal and (bits(old) != bits(new)).any():
            self.programs.changed(addresses)

    def begin_update(
        self,
        addresses: np.ndarray,
        operation: Callable[..., np.ndarray],
        operands: tuple[np.ndarray, ...],
        order: Order,
        is_used: bool,
    ) -> None:
        """Check an atomic on these elements before it runs, and what it acquires and releases.

        `is_used` is whether anybody uses what it returns.
        """
        dtype = operands[0].dtype
        found = self._find(addresses, dtype.itemsize, "updates")
        if found is None:
            begin = lambda lanes: self.begin_update(  # noqa: E731
                addresses[lanes], operation, tuple(x[lanes] for x in operands), order, is_used
            )
            self._by_tensor(addresses, begin, None)
            return
        region, offsets = found
        self._refuse_inputs(region, offsets, "updates")
        self._note_output(region)
        is_alone = _KINDS.get(operation) if order.is_between_programs and not is_used else None
        if self.scheduled:
            self.scheduled.begin_update(addresses, operation, operands, order, is_alone is not None)
        if self.is_rehearsal:
            return
        shadow, pieces = self._regions.pieces(region, offsets, dtype.itemsize)
        if self.rank:
            self.rank.races.actor.order = order
            self.rank.moves(region, "updated", pieces, shadow.unit, offsets.size * dtype.itemsize)
        self._races.atomic(shadow, pieces, self._namer(region, offsets, pieces), is_alone or MIXED)
        if self.cost:
            self._count(region, "updated", offsets, dtype.itemsize)
        self._order(addresses, order, dtype.kind in "iu", stored_to(addresses, operation, operands))

    def is_used(self) -> bool:
        """Return whether what the atomic of the moment returns is used somewhere."""
        where = line()
        return where is None or (where[0].co_filename, where[1]) not in self.unused

    def _order(self, addresses: np.ndarray, order: Order, are_flags: bool, stored: np.ndarray) -> None:
        """Record what an atomic acquires, and releases where it stores; one on many numbers orders nothing."""
        if order.is_between_programs and (addresses.size == 1 or (are_flags and addresses.size <= _LOCKS)):
            if order.acquires:
                self._races.acquire(addresses.ravel().tolist())
            if order.releases:
                self._races.release(stored.ravel().tolist())

    def update(
        self, addresses: np.ndarray, operation: Callable[..., np.ndarray], operands: tuple[np.ndarray, ...]
    ) -> np.ndarray:
        """Replace elements, all distinct, by operation(old, *operands); returns the old ones."""
        found = self._regions.find(addresses, operands[0].dtype.itemsize, "updates")
        if found is None:
            return self._by_tensor(
                addresses,
                lambda lanes: self.update(addresses[lanes], operation, tuple(x[lanes] for x in operands)),
                operands[0].dtype,
            )
        region, offsets = found
        memory, index = (region.memory(operands[0].dtype), _index(offsets, operands[0].dtype.itemsize))
        old = memory.take(index)
        if self.scheduled:
            self._note_origin(region, offsets, old.itemsize)
            self._note_stored(region, offsets, old)
            return self.scheduled.update(addresses, old, operation, operands)
        if not self.is_rehearsal:
            self._note_origin(region, offsets, operands[0].dtype.itemsize)
        new = theirs(operation, old, *operands).astype(old.dtype)
        if region.may_be_unwritten and (lanes := _unwritten(region, offsets, old)) is not None:
            self._meet_unwritten("updates", region, offsets, old, lanes)
            of_zero = theirs(operation, np.zeros_like(old), *operands)
            if self.rank and (bits(new) != bits(of_zero.astype(old.dtype))).any():  # no trial can show it
                use = next(use for use in self.undefined.met.values() if use.kind == UNWRITTEN)
                raise Unwritten(use.text, at(use.where), "  what it becomes depends on what lies there")
        self._record(region, addresses, offsets, old, new)
        memory[index] = new
        self._changed(addresses, old, new)
        self._note_stored(region, offsets, new)
        return old

    def dot(self, a: np.ndarray, b: np.ndarray, operands: str) -> None:
        """Count a matrix product of operands of this type."""
        if self.rank:
            self.rank.does("multiplies")
        if self.cost and not self.is_rehearsal:
            self.cost.dot(a, b, operands)
            if self.record:
                self.record.dot(a, b, operands)

    def polls(self, addresses: np.ndarray, order: Order) -> None:
        """Begin a volatile or atomic load: a program may poll a flag that another one sets."""
        if self.scheduled:
            self.scheduled.polls(order)
        elif not self.is_rehearsal:
            if self.rank:
                self.rank.races.actor.order, self.rank.races.actor.polled = order, addresses
                return
            self._order(addresses, order._replace(releases=False), are_flags=True, stored=addresses[:0])

    def found(self, addresses: np.ndarray, values: np.ndarray, is_changed: bool = False) -> None:
        """Let a program sleep that asks for elements again, and finds what it found before."""
        if self.programs is None or not addresses.size or (self.is_rehearsal and not self.scheduled):
            return
        if addresses.size > 1 and self.programs.asks_again(addresses):
            self.moved -= values.nbytes
        self.programs.asked(addresses, values, is_changed)

    def updated(self, addresses: np.ndarray, old: np.ndarray) -> None:
        """Let a program sleep whose atomic has found, and left, in these elements what it found before."""
        if self.programs is not None:
            self.found(addresses, old, bool(gather(addresses, old.dtype).tobytes() != old.tobytes()))

    def dead_lanes(self, values: np.ndarray, lanes: np.ndarray) -> None:
        """Handle lanes that a mask without `other` leaves undefined; `values` are zero there."""
        text = f"{MASKED}: a lane of {self.kernel} that is masked out holds anything on a GPU, here 0"
        self.undefined.meet(Use(MASKED, text, place()), values, lanes, np.flatnonzero(lanes))

    def undefined_result(
        self, what: str, values: np.ndarray, lanes: np.ndarray, where: Place | None = None
    ) -> np.ndarray:
        """Return the result of an operation, which the language leaves undefined in these lanes.

        `what` the program does there, and `where` if it is not this line.
        """
        values, lanes = np.array(values), np.broadcast_to(lanes, values.shape)
        count = f"in {np.count_nonzero(lanes)} of {lanes.size} lanes"
        text = f"{UndefinedResult.kind}: program {self._regions.program} of {self.kernel} {what}, {count}"
        self.undefined.meet(Use(RESULT, text, where or place()), values, lanes, np.flatnonzero(lanes))
        return values

    def _refuse_inputs(self, region: Region, offsets: np.ndarray, action: str) -> None:
        if region.is_input:
            remark = f"which is argument {self._call.position(region.tensor)} of the call, the caller's own"
            text = self._says(InputWritten, action, region, int(offsets.item(0)), remark)
            raise InputWritten(text, at(place()), "  store to memory that your function has made: torch.empty")

    def _tell_unwritten(self, region: Region, values: np.ndarray) -> None:
        """Tell where a program stores a NaN that unwritten elements have become; a copy to fresh memory is no use."""
        used = next((use for use in self.undefined.met.values() if use.kind == UNWRITTEN), None)
        if self.rank and used is not None and values.dtype.kind in "fV":
            lanes, copied = np.isnan(values), is_unwritten(values) if region.began_fresh else None
            if (lanes if copied is None else lanes & ~copied).any():
                fault = Unwritten(used.text, at(used.where), "  a NaN that it stores comes of it", at(place(), "    "))
                self.rank.found(fault)

    def _refuse_lost_values(self, region: Region, offsets: np.ndarray, stored: np.ndarray, values: np.ndarray) -> None:
        lost = bits(stored) != bits(values)
        if lost.any():
            name = region.name_at(int(offsets.ravel()[np.flatnonzero(lost)[0]]))
            text = f"{Race.kind}: two lanes of program {self._regions.program} of {self.kernel} store different values"
            raise Race(f"{text} to {name}", at(place()), "  which of them stays is luck on a GPU")

    def _says(self, kind: type[MemoryFault], action: str, region: Region, offset: int, remark: str) -> str:
        who = f"program {self._regions.program} of {self.kernel}"
        return f"{kind.kind}: {who} {action} {region.name_at(offset)}, {remark}"

    def _record(
        self, region: Region, addresses: np.ndarray, offsets: np.ndarray, old: np.ndarray, new: np.ndarray
    ) -> None:
        """Note a store or update; with the labels where a trial may load what was written after it was met."""
        if self.scheduled or self.rank:
            return
        write = Write(addresses, old, new, region.began_fresh)
        if region.origins and (self.programs or (region.may_be_unwritten and self.undefined.met)):
            places = offsets + (region.start - region.origins.address)
            label = functools.partial(region.origins.kernel_wrote, places, new)
            write = write._replace(forget=region.origins.keep(places, new.itemsize), label=label)
        self._journal.append(write)

    def _count(self, region: Region, action: str, offsets: np.ndarray, width: int) -> None:
        assert self.cost is not None
        if region.traffic is None:
            self._trace(region)
        assert region.traffic is not None
        if action != "stored" and region.origins is not None:
            places = distinct(offsets.ravel()) + (region.start - region.origins.address)
            labels = region.origins.at(places, width)
            region.traffic.by_label += np.bincount(labels, minlength=256) * width
        index = region.shadow_offsets(offsets).ravel() // region.itemsize
        if width > region.itemsize:
            index = (index[:, None] + np.arange(width // region.itemsize)).ravel()
        storage = region.tensor.untyped_storage().nbytes()
        size = storage // region.itemsize if region.shadow_origin >= 0 else region.reach.numel
        self.cost.touch(region.traffic, action, index, size, offsets.size * width)

    def _by_tensor(
        self, addresses: np.ndarray, access: Callable[[np.ndarray], Any], dtype: np.dtype | None
    ) -> np.ndarray:
        """Make the same access once per tensor, for its lanes."""
        out = np.zeros(addresses.shape, dtype or np.int8)
        self._is_split = True
        try:
            for lanes in self._regions.by_tensor(addresses, "touches"):
                result = access(lanes)
                if dtype is not None:
                    out[lanes] = result
        finally:
            self._is_split = False
        return out


def _traffic(region: Region, call: Call) -> Traffic:
    storage = region.tensor.untyped_storage().data_ptr()
    # of the caller's tensor, where there is one
    rows = call.storages.get(storage, [region.tensor])[0]
    start = region.shadow_origin if region.shadow_origin >= 0 else region.address
    return Traffic(
        name=region.name,
        dtype=str(region.tensor.dtype).removeprefix("torch."),
        shape=tuple(region.tensor.shape),
        strides=tuple(region.tensor.stride()),
        nbytes=region.layout.n_distinct * region.itemsize,
        storage=storage,
        is_mapped_whole=region.shadow_origin >= 0,
        itemsize=region.itemsize,
        row_length=rows.shape[-1] if rows.ndim else 1,
        n_rows=rows.shape[-2] if rows.ndim > 1 else 1,
        row_origin=(rows.data_ptr() - start) // region.itemsize,
        origin=(region.address - start) // region.itemsize,
    )


def _unwritten(region: Region, offsets: np.ndarray, values: np.ndarray) -> np.ndarray | None:
    """Return which values are unwritten; None for none."""
    width = values.dtype.itemsize
    has_pattern = region.origins is None or (region.began_fresh and is_telling(values.dtype))
    copied = is_unwritten(values) if has_pattern else None
    if region.origins is None:
        return copied
    found = region.origins.are_unwritten(offsets + (region.start - region.origins.address), width)
    found = found if copied is None else found | copied
    return found if found.any() else None


def _index(offsets: np.ndarray, width: int) -> np.ndarray:
    if width == 1:
        return offsets
    if (offsets & (width - 1)).any():
        raise ValueError(f"pointers of one block are not a whole number of {width}-byte elements apart")
    return offsets >> (width.bit_length() - 1)


def _largest(values: np.ndarray) -> float:
    return float(np.max(np.abs(values[np.isfinite(values)]), initial=0.0))


def _take_back(writes: list[Write]) -> None:
    for write in reversed(writes):
        write.take_back()
