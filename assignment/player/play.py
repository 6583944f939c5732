"""Plays programs on graded inputs in the simulator, with every element tracked."""

import copy
import math
import traceback
from collections.abc import Callable, Sequence

import torch
import triton

from assignment import whose
from assignment.protocol import program as programs
from assignment.protocol.messages import Value
from assignment.protocol.replies import MAX_NOTE, Raised
from assignment.protocol.requests import Again, Backward, Called, Costs, Forward, Gradients, Kept, Largest
from assignment.protocol.said import Said, at, joined
from assignment.pytorch_private import Argument, Keywords, OpOverload
from assignment.simulator import calls, language, undefined
from assignment.simulator.costs import HostTraffic, tensors_in
from assignment.simulator.faults import InputWritten, MemoryFault
from assignment.simulator.kernel_values import LaunchArgument
from assignment.simulator.model import encoded
from assignment.simulator.recording import Recording
from assignment.simulator.triton_private import JITFunction, NullAllocator

from . import arguments, misuse, operations
from .kernel_builder import Kernels, Refused
from .labels import CONSTANT, FOREIGN
from .lines import told
from .storages import CannotFollow, Storages, check_fits
from .work import Work

MAX_POISON = 1 << 30  # bytes
MAX_ELEMENTS = 1 << 28  # of a tensor, which a stride of 0 makes of little memory; labels take a byte for each
ADDRESSES = "host code reads a table of addresses, which differ from run to run: pass it on to kernels as it is"
FUSED = ("_flash_attention", "_efficient_attention", "_cudnn_attention", "multi_head_attention")
SDPA = ("scaled_dot_product", "_safe_softmax")  # one of these is in all that it is made of


class InKernel(Exception):
    """A kernel raised something."""

    def __init__(self, error: BaseException, line: Said) -> None:
        super().__init__(str(error))
        self.error, self.line = error, line


def described(raised: InKernel) -> Raised:
    """Describe what a kernel raised, with its innermost line and that of the launch."""
    error = raised.error
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith("cs336_kernels/")]
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    inner = (at(one.filename, one.lineno or 0, f" in {one.name}", (one.line or "").strip()) for one in reversed(own))
    said = joined([text, next(inner, raised.line)])
    types = tuple(cls.__name__ for cls in type(error).__mro__)
    by_submission, is_assert = bool(own) and own[-1] is frames[-1], is_static_assert(error)
    return Raised(types, said.text[:MAX_NOTE], str(error)[:MAX_NOTE], by_submission, True, is_assert, said.places)


def is_static_assert(error: BaseException) -> bool:
    """Return whether a tl.static_assert raised it because it does not hold."""
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    return isinstance(error, AssertionError) and codes[-1:] == [language.static_assert.__code__]


def refuse_large(program: programs.Program) -> None:
    """Raise CannotFollow if a program has a tensor of more elements than are labelled."""
    if (most := max((math.prod(view.sizes) for view in program.views), default=0)) > MAX_ELEMENTS:
        raise CannotFollow(f"a tensor of {most:,} elements: expected at most {MAX_ELEMENTS:,}; look at expand")


class Played:
    """The outcome of a program."""

    def __init__(self) -> None:
        self.groups: list[list[torch.Tensor]] = []
        self.reads: list[str] = []  # where host code read a value
        self.used: dict[int, int] = {}  # bytes of all memory that was used, by number
        self.inputs: set[int] = set()  # numbers of the inputs' memory
        self.host = HostTraffic()


class Player:
    """One session: the memory, kernels and labels of all calls so far."""

    def __init__(self, sources: dict[str, str], jit: Callable[..., JITFunction]) -> None:
        self.sources, self._jit = sources, jit
        self.kernels = Kernels(sources, jit)
        self._of_ranks: dict[str, Kernels] = {}  # by what describes them
        self.storages = Storages()
        self.work = Work()
        self._inputs: Sequence[torch.Tensor] = ()  # of the last call
        self.recording: Recording | None = None  # of the last call, if it keeps its launches

    def play(
        self, program: programs.Program, request: Called, tensors: Sequence[torch.Tensor]
    ) -> tuple[Played, calls.Call]:
        """Play a call on these tensors. Raises MemoryFault, InKernel, CannotFollow, Refused."""
        refuse_large(program)
        is_backward, is_costs = isinstance(request, Gradients | Kept | Forward), isinstance(request, Costs)
        goes_on = isinstance(request, Backward)  # of the call before
        inputs = self._inputs = self._inputs if goes_on else tensors
        notes = request.notes_constants
        self.recording = Recording() if request.keeps_launches else None
        is_traced = is_costs or request.keeps_launches
        call = calls.Call(inputs, request.order, is_traced, notes_constants=notes, follower=self.work)
        call.recording = self.recording
        with call as seen, torch.no_grad():
            if goes_on:
                self.work.go_on()
            else:
                self.work.begin(request.about, is_backward, tensors, is_costs, structure_in(request, len(tensors)))
            return Turn(self, program, tensors, seen, request).run(), seen

    def on_rank(self, work: Work, kernels: Sequence[dict[str, Value]]) -> "Player":
        """Return a player of these kernels without memory, that shares what is known of values in `work`."""
        player, described = copy.copy(self), str(kernels)
        if described not in self._of_ranks:
            self._of_ranks[described] = Kernels(self.sources, self._jit)
            self._of_ranks[described].add(kernels)
        player.kernels, player.storages, player.work = self._of_ranks[described], Storages(), work
        return player

    def drawn(self) -> torch.Tensor:
        """Return what the launches of the last call did, in bytes; none where it kept none, or launched nothing."""
        recording = self.recording
        block = encoded("", recording) if recording and recording.launches else b""
        return torch.tensor(list(block), dtype=torch.uint8)


class Turn:
    """One program being played."""

    def __init__(
        self,
        player: Player,
        program: programs.Program,
        tensors: Sequence[torch.Tensor],
        seen: calls.Call,
        request: Called | None = None,
    ) -> None:
        self._player, self._program, self._tensors, self._seen = player, program, tensors, seen
        self._tables = {place for place, _ in request.about["tables"]} if request else set()  # places of addresses
        self._counts_traffic = isinstance(request, Costs | Largest)  # of PyTorch's operations
        self._rewritten = (
            len(tensors) // 2 if isinstance(request, Again) else 0
        )  # inputs, in whose place others are put
        self._addresses: set[int] = set()  # storages
        self._lines = [told(player.sources, text) for text in program.lines]
        self._views: dict[int, torch.Tensor] = {}
        self.played = Played()
        player.kernels.add(program.kernels)

    def run(self) -> Played:
        """Take all steps."""
        for step in self._program.steps:
            self._take(step)
        self.played.groups = [[self.view(number) for number in group] for group in self._program.results]
        return self.played

    def _take(self, step: programs.Step) -> None:
        match step:
            case programs.Operation():
                self._operate(step)
            case programs.Launch():
                self._launch(step)
            case programs.Inputs(views):
                self._bind_inputs(views)
            case programs.Free(storages):
                self._free({*storages})
            case programs.Read(views=views, line=line):
                if any(self._program.views[number].storage in self._addresses for number in views):
                    raise CannotFollow(ADDRESSES, self._lines[line])
                if not self._player.work.is_known_to_host([self.view(number) for number in views]):
                    self.played.reads.append(self._lines[line].text)
            case programs.Constant():
                self._make_constant(step)
            case programs.Foreign():
                self._make_foreign(step)
            case programs.Repeat():
                self._seen.begin_again()
            case programs.WarmUp() | programs.OperatorCall():
                pass  # for the judge: nothing is played

    def view(self, number: int) -> torch.Tensor:
        """Return the tensor of a view, made once: a storage keeps its number."""
        if number not in self._views:
            view = self._program.views[number]
            self._views[number] = self._player.storages.view(view)
            self._use(view.storage)
        return self._views[number]

    def _use(self, number: int) -> None:
        self.played.used[number] = self._player.storages[number].nbytes()

    def _bind_inputs(self, views: list[int]) -> None:
        if len(views) != len(self._tensors):
            raise CannotFollow("expected a call's own inputs, got others: leave inputs as they are")
        for number, tensor in zip(views, self._tensors, strict=True):
            view = self._program.views[number]
            if view != programs.View.of(tensor, view.storage):
                raise CannotFollow(
                    "expected inputs in their own shapes and strides, got others: leave inputs as they are"
                )
            self._player.storages.bind(view.storage, tensor)
            self.played.inputs.add(view.storage)
        self._addresses = {self._program.views[n].storage for place, n in enumerate(views) if place in self._tables}

    def _free(self, gone: set[int]) -> None:
        self._views = {n: t for n, t in self._views.items() if self._program.views[n].storage not in gone}
        for number in gone:
            self._player.work.forget(self._player.storages.free(number))

    def _is_fused(self, name: str, line: int) -> bool:
        """Return whether an operation is a fused attention, which is evidence in a PyTorch problem."""
        is_fused = any(part in name for part in (*FUSED, *SDPA))
        name = "scaled_dot_product_attention" if any(part in name for part in SDPA) else name
        if is_fused and not self._player.work.needs_kernels:
            self._player.work.accuse(
                f"{name} is a fused attention: write the loop over tiles yourself", self._lines[line]
            )
        return is_fused

    def _make_constant(self, step: programs.Constant) -> None:
        tensor = self._player.storages.constant(step.storage, step.content)
        if tensor.numel():
            self._player.work.made(tensor, CONSTANT).place = self._lines[step.line]

    def _make_foreign(self, step: programs.Foreign) -> None:
        number = step.storage
        if number not in self._player.storages:
            self._player.storages.bind(number, self._poison(self._program.storages.get(number, 0)))
        whole = spoil(self._player.storages[number])
        self._player.work.made(whole, FOREIGN).place = self._lines[step.line]

    # operations of PyTorch

    def _operate(self, step: programs.Operation) -> None:
        operation, args, kwargs, views, line = step
        name = self._program.operations[operation]
        func = operations.find(name)
        if func is None or arguments.holds([args, kwargs], "x"):  # which programs lack: a generator, a sparse tensor
            self._skip(name, step)
            return
        if not self._player.work.needs_kernels and operations.form_of(func) in operations.UNUSUAL:
            self._player.work.doubt(
                f"{func._schema.name} is not what this problem is about: staff will look at it", self._lines[line]
            )
        given = [self._decode(value) for value in args]
        named = {key: self._decode(value) for key, value in kwargs.items()}
        try:
            if shared := misuse.overlapping(func, given, named):
                raise CannotFollow(
                    f"{func._schema.name} writes to memory that it reads as {shared}, elsewhere in it: what that gives "
                    f"depends on the order; clone() what it reads",
                    self._lines[line],
                )
            calls = operations.calls_of(func, given, named)
        except ValueError as error:
            raise CannotFollow(str(error), self._lines[line]) from error
        made = [[number] for number in views or programs.views_in(args)] if operations.each_of(func) else [views]
        for call, numbers in zip(calls, made, strict=False):
            try:
                self._call(*call, numbers, line)
            except CannotFollow:
                if (unplayed := self._player.work.took_part(call[1:])) is not None:
                    self._player.work.tell_unplayed(unplayed)
                raise

    def _call(self, func: OpOverload, given: Sequence[Argument], named: Keywords, views: list[int], line: int) -> None:
        """Check and call an operation, and note what it makes: these views."""
        if wrong := misuse.misplaced(func, given, named):
            raise CannotFollow(f"{func._schema.name} is given another sort of argument as {wrong}", self._lines[line])
        if wrong := misuse.out_of_range(func, given, named):
            raise CannotFollow(f"{func._schema.name}: {wrong}", self._lines[line])
        try:
            written = misuse.written_by(func, given, named)
        except ValueError as error:
            raise CannotFollow(str(error), self._lines[line]) from error
        self._refuse_inputs(func, written, operations.named_of(func, given, named).get("src"), self._lines[line])
        places = [place_of(tensor) for tensor in written]
        if self._seen.rank:
            self._seen.rank.operates(operations.loaded_by(func, given, named), written, self._lines[line])
        try:
            result = self._made(func, given, named, views)
        except (CannotFollow, torch.OutOfMemoryError):
            raise
        except Exception as error:
            if whose.is_ours(error):
                raise
            raise CannotFollow(
                f"{func._schema.name} worked on stand-ins and fails on the inputs: {error}\n"
                f"  let nothing depend on values but what kernels and operations compute",
                self._lines[line],
            ) from error
        if any(size and (at, size) != place_of(t) for (at, size), t in zip(places, written, strict=True)):
            raise CannotFollow(f"{func._schema.name} gives memory another size", self._lines[line])
        outputs = tensors_in(result)
        self._bind(outputs, views, line)
        if "empty" in func._schema.name:
            self._begin_fresh(outputs)
        made = written or [tensor for tensor in outputs if not self._player.work.knows(tensor)]
        if self._counts_traffic:
            counts = self._player.work.counts if self._player.work.input_labels else None
            self.played.host.note(func, tensors_in((given, named)), outputs, counts)
        self._player.work.operation(func, given, named, made, self._lines[line])

    def _refuse_inputs(self, func: OpOverload, written: Sequence[torch.Tensor], copied: Argument, line: Said) -> None:
        """Raise InputWritten where an operation writes to an input, unless that puts a second problem in its place."""
        for tensor in written:
            if not tensor.numel() or tensor.untyped_storage().data_ptr() not in self._seen.storages:
                continue
            position = self._seen.position(tensor)
            is_second = position < self._rewritten and func._schema.name == "aten::copy_"
            if is_second and self._shares_storage(copied, self._rewritten + position):
                continue
            raise InputWritten(
                f"{InputWritten.kind}: argument {position} was written to, by {func._schema.name}: inputs must stay as "
                f"they are, also if they are restored",
                line,
                "  write to memory of your own: a clone() of the input",
            )

    def _shares_storage(self, value: Argument, position: int) -> bool:
        """Return whether a value is a tensor on the storage of an input."""
        storage = self._tensors[position].untyped_storage()
        return isinstance(value, torch.Tensor) and value.untyped_storage()._cdata == storage._cdata

    def _made(self, func: OpOverload, args: Sequence[Argument], kwargs: Keywords, views: list[int]) -> Argument:
        """Return what an operation returns."""
        return operations.call(func, args, kwargs)

    def _begin_fresh(self, tensors: list[torch.Tensor]) -> None:
        """Mark the memory of these as unwritten."""
        for tensor in tensors:
            undefined.fill(tensor)

    def _bind(self, outputs: list[torch.Tensor], views: list[int], line: int) -> None:
        described = [self._program.views[number] for number in views]
        if [programs.View.of(tensor)[1:] for tensor in outputs] != [view[1:] for view in described]:
            raise CannotFollow(
                "a shape depends on values: expected the same one for all inputs of a shape; use a mask, torch.where",
                self._lines[line],
            )
        for view, tensor in zip(described, outputs, strict=True):
            self._player.storages.bind(view.storage, tensor)
            self._use(view.storage)

    def _skip(self, name: str, step: programs.Operation) -> None:
        """Skip an operation that is not played: what it makes or changes is NaN, and nothing else."""
        line = step.line
        is_fused = self._is_fused(name, line)
        for number in step.made:
            view = self._program.views[number]
            if view.storage not in self._player.storages:
                size = self._program.storages.get(view.storage, 0)
                check_fits(view, size)
                self._player.storages.bind(view.storage, self._poison(size))
        numbers = dict.fromkeys([*step.made, *programs.views_in(operations.changed_by(name, step.args, step.kwargs))])
        targets = [self.view(number) for number in numbers]
        for target in targets:
            spoil_elements(target)
        self._player.work.computed(name.rpartition(".")[0], self._lines[line], targets, not is_fused)

    def _poison(self, nbytes: int) -> torch.Tensor:
        """Return memory of NaN."""
        if nbytes > MAX_POISON:
            raise CannotFollow(
                f"{nbytes >> 20} MiB of memory that no operation was seen to make: use torch.empty or torch.zeros"
            )
        return torch.full((nbytes,), 0xFF, dtype=torch.uint8, device=self._player.storages.device)

    def _decode(self, value: Value) -> Argument:
        return arguments.decode(value, self.view)

    # launches

    def _launch(self, launch: programs.Launch) -> None:
        line = self._lines[launch.line]
        try:
            values, settings = self._arguments(launch.arguments), self._arguments(launch.options)
        except Refused as error:
            raise Refused(error.said, line) from error
        function = self._player.kernels[launch.kernel]  # which may use the fields of its arguments
        if not self._player.work.needs_kernels:
            what = f"kernel {function.__name__} is launched; this problem is for PyTorch alone: use its operations"
            self._player.work.accuse(what, line)
        triton.set_allocator(self._allocate if launch.has_allocator else NullAllocator())
        if self._player.recording and line.places:
            self._player.recording.launched_at = line.places[0].path, line.places[0].line
        try:
            positional, named = arguments.by_position(function.arg_names, values)
            whose.theirs(function[tuple(launch.grid)], *positional, **named, **settings)
        except (MemoryFault, Refused):
            raise
        except Exception as error:
            raise InKernel(error, line) from error

    def _allocate(self, size: int, alignment: int, stream: int | None) -> torch.Tensor:
        """Stand in for the submission's own allocator."""
        return torch.empty(size, dtype=torch.int8, device=self._player.storages.device)

    def _arguments(self, given: dict[str, Value]) -> dict[str, LaunchArgument]:
        return {name: arguments.of_launch(value, self.view, self._player.kernels) for name, value in given.items()}


def structure_in(request: Called, n_tensors: int) -> set[int]:
    """Return the places of structure among the tensors of a request, which may hold the inputs twice."""
    n_inputs = n_tensors // 2 if isinstance(request, Again) else n_tensors
    places = [place for place in request.about["structure"] if place < n_inputs]
    return {place + first for place in places for first in range(0, n_tensors, n_inputs)}


def spoil(storage: torch.UntypedStorage) -> torch.Tensor:
    """Fill memory with NaN; returns all of it, as bytes."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage).fill_(0xFF)


def spoil_elements(tensor: torch.Tensor) -> None:
    """Fill the elements of a tensor with NaN; bools with True, and integers with ones."""
    byte = 0x01 if tensor.dtype == torch.bool else 0xFF
    spread = [*(stride * tensor.itemsize for stride in tensor.stride()), 1]
    whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
    whole.as_strided([*tensor.shape, tensor.itemsize], spread, tensor.storage_offset() * tensor.itemsize).fill_(byte)


def place_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Return where a tensor's memory lies, and its bytes."""
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()
