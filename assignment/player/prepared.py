"""A program prepared to be played many times on a GPU: decoded, without repeated checks."""

import base64
from collections.abc import Callable
from typing import Any

import torch

from . import arguments, operations
from .storages import CannotFollow, laid_out

Get = Callable[["_Registers"], Any]


class _Registers:
    """The tensors of one play: views by number, and a tensor of each storage."""

    def __init__(self, player: Any, views: list[Any]) -> None:
        self._player, self._views = player, views
        self.made: dict[int, torch.Tensor] = {}  # by view
        self._of_storage: dict[int, torch.Tensor] = {}

    def put(self, number: int, tensor: torch.Tensor) -> None:
        self.made[number] = tensor
        self._of_storage[self._views[number][0]] = tensor

    def hold(self, storage: int, tensor: torch.Tensor) -> None:
        self._of_storage[storage] = tensor

    def free(self, storages: list[int]) -> None:
        gone = {number for number in storages if self._of_storage.pop(number, None) is not None}
        for view in [view for view in self.made if self._views[view][0] in gone]:
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

    def __init__(self, player: Any, program: dict[str, Any]) -> None:
        """Prepare a program that `player` has played.

        Tensors that live on from the player's earlier programs are used as they are.
        """
        self._player, self._program = player, program
        makers: dict[str, Callable[..., Callable[[_Registers], None]]]
        makers = {"op": self._op, "launch": self._launch, "free": self._free, "constant": self._constant}
        self._inputs: list[int] = []
        self._steps: list[Callable[[_Registers], None]] = []
        for name, *rest in program["steps"]:
            if name == "inputs":
                (self._inputs,) = rest
            elif name == "foreign":
                raise CannotFollow("memory that no operation was seen to make cannot be timed: use torch.empty")
            elif name in makers:
                self._steps.append(makers[name](*rest))

    @torch.no_grad()
    def __call__(self, *inputs: torch.Tensor, **_: Any) -> Any:
        """Return the results of the call on these inputs."""
        registers = _Registers(self._player, self._program["views"])
        for number, tensor in zip(self._inputs, inputs, strict=True):
            registers.put(number, tensor)
        for step in self._steps:
            step(registers)
        results = tuple(registers.view(number) for number in self._program["results"][0])
        return results[0] if self._program["bare"] else results

    def _op(self, operation: int, args: Any, kwargs: Any, views: list[int], line: int) -> Callable[[_Registers], None]:
        name = self._program["operations"][operation]
        func = operations.find(name)
        if func is None:
            raise CannotFollow(f"{name} is not played, and cannot be timed")
        get_args, get_kwargs = self._getter(args), self._getter(kwargs)
        is_made_of_nothing = not _holds_tensors([args, kwargs])
        described, is_in_place = ([self._program["views"][number] for number in views], func._schema.is_mutable)
        device = {"device": self._player.storages.device} if is_made_of_nothing and "device" in _names(func) else {}

        def step(registers: _Registers) -> None:
            result = func(*get_args(registers), **get_kwargs(registers), **device)
            made = [result] if isinstance(result, torch.Tensor) else list(result or ())
            for number, view, tensor in zip(views, described, made, strict=True):
                registers.put(number, tensor if is_in_place else laid_out(tensor, view))

        return step

    def _launch(
        self, kernel: int, grid: list[int], given: Any, options: Any, others: Any, has_allocator: bool, line: int
    ) -> Callable[[_Registers], None]:
        constants: dict[str, Any] = {}
        getters: dict[str, Get] = {}
        for name, value in {**given, **options}.items():
            if _holds_tensors(value):
                getters[name] = self._of_launch(value)
            else:
                constants[name] = arguments.of_launch(value, _no_view, self._player.kernels)
        launch = self._player.kernels[kernel][tuple(grid)]

        def step(registers: _Registers) -> None:
            launch(**constants, **{name: get(registers) for name, get in getters.items()})

        return step

    def _of_launch(self, value: Any) -> Get:
        if set(value) == {"t"}:
            number = value["t"]
            return lambda registers: registers.view(number)
        return lambda registers: arguments.of_launch(value, registers.view, self._player.kernels)

    def _getter(self, value: Any) -> Get:
        """Return a function that decodes an argument; one without tensors is decoded once."""
        if not _holds_tensors(value):
            decoded = {k: arguments.decode(v, _no_view) for k, v in value.items()} if isinstance(value, dict) else None
            constant = arguments.decode(value, _no_view) if decoded is None else decoded
            return lambda registers: constant
        if isinstance(value, dict):
            return lambda registers: {name: arguments.decode(v, registers.view) for name, v in value.items()}
        return lambda registers: arguments.decode(value, registers.view)

    def _free(self, numbers: list[int]) -> Callable[[_Registers], None]:
        return lambda registers: registers.free(numbers)

    def _constant(self, number: int, content: str, line: int) -> Callable[[_Registers], None]:
        data = torch.frombuffer(bytearray(base64.b64decode(content) or b"\0"), dtype=torch.uint8).to(
            self._player.storages.device
        )
        return lambda registers: registers.hold(number, data.clone())


def _holds_tensors(value: Any) -> bool:
    if isinstance(value, dict):
        return "t" in value or "descriptor" in value or any(map(_holds_tensors, value.values()))
    return isinstance(value, list) and any(map(_holds_tensors, value))


def _no_view(number: int) -> torch.Tensor:
    raise CannotFollow("a tensor where there is none")


def _names(func: Any) -> set[str]:
    return {argument.name for argument in func._schema.arguments}
