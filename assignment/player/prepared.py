"""A program prepared to be played many times on a GPU: decoded, without repeated checks."""

import base64
from collections.abc import Callable, Sequence
from typing import Any

import torch

from assignment.protocol.messages import Value
from assignment.protocol.program import VIEWS, Constant, Foreign, Free, Inputs, Launch, Operation, Program, Step, View
from assignment.pytorch_private import OpOverload
from assignment.simulator.kernel_values import LaunchArgument

from . import arguments, operations
from .storages import CannotFollow, laid_out

Get = Callable[["_Registers"], Any]


class _Registers:
    """The tensors of one play: views by number, and a tensor of each storage."""

    def __init__(self, player: Any, views: Sequence[View]) -> None:
        self._player, self._views = player, views
        self.made: dict[int, torch.Tensor] = {}  # by view
        self._of_storage: dict[int, torch.Tensor] = {}

    def put(self, number: int, tensor: torch.Tensor) -> None:
        self.made[number] = tensor
        self._of_storage[self._views[number].storage] = tensor

    def hold(self, storage: int, tensor: torch.Tensor) -> None:
        self._of_storage[storage] = tensor

    def free(self, storages: list[int]) -> None:
        gone = {number for number in storages if self._of_storage.pop(number, None) is not None}
        for view in [view for view in self.made if self._views[view].storage in gone]:
            del self.made[view]

    def view(self, number: int) -> torch.Tensor:
        if (found := self.made.get(number)) is not None:
            return found
        storage, dtype, offset, sizes, strides = self._views[number]
        tensor = self._of_storage.get(storage)
        memory = self._player.storages[storage] if tensor is None else tensor.untyped_storage()
        found = torch.empty(0, dtype=getattr(torch, dtype), device=memory.device)
        self.made[number] = found.set_(memory, offset, sizes, strides)
        return found


class Prepared:
    """A program played before on inputs of these shapes: `prepared(*inputs)` plays it again."""

    def __init__(self, player: Any, program: Program) -> None:
        """Prepare a program that `player` has played.

        Tensors that live on from the player's earlier programs are used as they are.
        """
        self._player, self._program = player, program
        self._inputs: list[int] = []
        self._steps: list[Callable[[_Registers], None]] = []
        for step in program.steps:
            self._prepare(step)

    def _prepare(self, step: Step) -> None:
        match step:
            case Inputs(views):
                self._inputs = views
            case Operation():
                self._steps.append(self._operation(step))
            case Launch():
                self._steps.append(self._launch(step))
            case Free(storages):
                self._steps.append(lambda registers: registers.free(storages))
            case Constant():
                self._steps.append(self._constant(step))
            case Foreign():
                raise CannotFollow("memory that no operation was seen to make cannot be timed: use torch.empty")

    @torch.no_grad()
    def __call__(self, *inputs: torch.Tensor, **_: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Return the results of the call on these inputs."""
        registers = _Registers(self._player, self._program.views)
        for number, tensor in zip(self._inputs, inputs, strict=True):
            registers.put(number, tensor)
        for step in self._steps:
            step(registers)
        results = tuple(registers.view(number) for number in self._program.results[0])
        return results[0] if self._program.bare else results

    def _operation(self, step: Operation) -> Callable[[_Registers], None]:
        operation, args, kwargs, views, _ = step
        name = self._program.operations[operation]
        func = operations.find(name)
        if func is None:
            raise CannotFollow(f"{name} is not played, and cannot be timed")
        get_args, get_kwargs = self._getter(args), self._getter(kwargs)
        is_made_of_nothing = not arguments.holds([args, kwargs], *VIEWS)
        described, is_in_place = ([self._program.views[number] for number in views], func._schema.is_mutable)
        device = {"device": self._player.storages.device} if is_made_of_nothing and "device" in _names(func) else {}

        def play(registers: _Registers) -> None:
            result = func(*get_args(registers), **get_kwargs(registers), **device)
            made = [result] if isinstance(result, torch.Tensor) else list(result or ())
            for number, view, tensor in zip(views, described, made, strict=True):
                registers.put(number, tensor if is_in_place else laid_out(tensor, view))

        return play

    def _launch(self, step: Launch) -> Callable[[_Registers], None]:
        constants: dict[str, LaunchArgument] = {}
        getters: dict[str, Get] = {}
        for name, value in {**step.arguments, **step.options}.items():
            if arguments.holds(value, *VIEWS):
                getters[name] = self._of_launch(value)
            else:
                constants[name] = arguments.of_launch(value, _no_view, self._player.kernels)
        function = self._player.kernels[step.kernel]
        options = {name: constants.pop(name) for name in step.options if name in constants}
        launch = function[tuple(step.grid)]

        def play(registers: _Registers) -> None:
            values = constants | {name: get(registers) for name, get in getters.items()}
            positional, named = arguments.by_position(function.arg_names, values)
            launch(*positional, **named, **options)

        return play

    def _of_launch(self, value: Value) -> Get:
        match value:
            case {"t": int(number), **others} if not others:
                return lambda registers: registers.view(number)
        return lambda registers: arguments.of_launch(value, registers.view, self._player.kernels)

    def _getter(self, value: Value) -> Get:
        """Return a function that decodes an argument; one without tensors is decoded once."""
        if not arguments.holds(value, *VIEWS):
            decoded = {k: arguments.decode(v, _no_view) for k, v in value.items()} if isinstance(value, dict) else None
            constant = arguments.decode(value, _no_view) if decoded is None else decoded
            return lambda registers: constant
        if isinstance(value, dict):
            return lambda registers: {name: arguments.decode(v, registers.view) for name, v in value.items()}
        return lambda registers: arguments.decode(value, registers.view)

    def _constant(self, step: Constant) -> Callable[[_Registers], None]:
        content = bytearray(base64.b64decode(step.content) or b"\0")
        data = torch.frombuffer(content, dtype=torch.uint8).to(self._player.storages.device)
        return lambda registers: registers.hold(step.storage, data.clone())


def _no_view(number: int) -> torch.Tensor:
    raise CannotFollow("a tensor where there is none")


def _names(func: OpOverload) -> set[str]:
    return {argument.name for argument in func._schema.arguments}
