"""Recording where the modes do not apply: in custom operators, backward passes and threads."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from unittest import mock

import torch
from torch.autograd.function import BackwardCFunction
from torch.library import Library
from torch.overrides import TorchFunctionMode

from assignment.pytorch_private import (
    CUDA_KEY,
    Argument,
    Arguments,
    Keywords,
    OpOverload,
    TorchDispatchMode,
    disable_current_modes,
    is_for,
    n_dispatch_modes,
    n_function_modes,
    pop_dispatch_mode,
    pop_function_mode,
    tensors_of,
)
from assignment.whose import theirs

Mode = TorchDispatchMode | TorchFunctionMode
OF_PYTORCH = ("aten", "prim", "prims")  # whose operations are what they are, whatever is put in their place
BACKENDS = ("CompositeExplicitAutograd", "CPU", "CUDA")  # where modes are off: they have had the operation itself
_CUSTOM = set[str]()
_LIBRARIES: list[Library] = []


def following(modes: Sequence[Mode], function: Callable[..., Argument]) -> Callable[..., Argument]:
    """Return the function, with the modes on."""

    def followed(*args: Argument, **kwargs: Argument) -> Argument:
        with contextlib.ExitStack() as on:
            for mode in modes:
                on.enter_context(mode)
            return theirs(function, *args, **kwargs)

    return followed


def forget() -> None:
    """Take back what host code has registered by torch.library: its files are imported again."""
    while _LIBRARIES:
        _LIBRARIES.pop()._destroy()


def is_custom(operation: OpOverload) -> bool:
    """Return whether host code has defined an operation, by torch.library: its body is followed."""
    return operation._schema.name in _CUSTOM


def called(
    operation: OpOverload, args: Arguments, kwargs: Keywords, is_on_gpu: Callable[[torch.Tensor], bool]
) -> Argument:
    """Call an operation with what is registered for the device of its tensors, which all lie in ordinary memory."""
    if is_custom(operation) and any(map(is_on_gpu, tensors_of((args, kwargs)))) and is_for(operation.name(), "CUDA"):
        return theirs(operation._op_dk, CUDA_KEY, *args, **kwargs)
    return theirs(operation, *args, **kwargs)


def _made(make: Callable[..., None]) -> Callable[..., None]:
    """Return Library.__init__, which remembers the library."""

    def made(library: Library, *how: str) -> None:
        theirs(make, library, *how)
        _LIBRARIES.append(library)

    return made


def _implemented(modes: Sequence[Mode], implement: Callable[..., None]) -> Callable[..., None]:
    """Return Library.impl, by which custom_op and triton_op register too, with the modes on in bodies of operators."""

    def implemented(
        library: Library, name: str | OpOverload, body: Callable[..., Argument], key: str = "", **how: bool
    ) -> None:
        if library.ns not in OF_PYTORCH and key in BACKENDS:
            name = name if isinstance(name, str) else name._schema.name
            _CUSTOM.add(f"{library.ns}::{name.rpartition('::')[2].partition('.')[0]}")
            body = following(modes, body)
        theirs(implement, library, name, body, key, **how)

    return implemented


def _faked(modes: Sequence[Mode], register: Callable[..., None]) -> Callable[..., None]:
    """Return Library._register_fake, with the modes on in fake implementations."""

    def registered(library: Library, name: str, fake: Callable[..., Argument], *how: int, **more: bool) -> None:
        theirs(register, library, name, following(modes, fake), *how, **more)

    return registered


@contextlib.contextmanager
def everywhere(modes: Sequence[Mode]) -> Iterator[None]:
    """Record everything inside, also in threads that start there, custom operators and backward passes.

    A mode applies to its own thread only, and PyTorch calls backward passes with function modes
    off, and bodies of operators with all off.
    """
    off = [mode for mode in modes if isinstance(mode, TorchFunctionMode)]
    start = threading.Thread.start

    def started(thread: threading.Thread) -> None:
        thread.run = following(modes, thread.run)  # type: ignore[method-assign,assignment]
        theirs(start, thread)

    with contextlib.ExitStack() as on:
        on.enter_context(mock.patch.object(threading.Thread, "start", started))
        on.enter_context(mock.patch.object(Library, "__init__", _made(Library.__init__)))
        on.enter_context(mock.patch.object(Library, "impl", _implemented(modes, Library.impl)))
        on.enter_context(mock.patch.object(Library, "_register_fake", _faked(off, Library._register_fake)))
        on.enter_context(mock.patch.object(BackwardCFunction, "apply", following(off, BackwardCFunction.apply)))
        on.enter_context(disable_current_modes())  # one that was left on would answer
        for mode in modes:
            on.enter_context(mode)
        on.callback(_take_off, n_dispatch_modes(), n_function_modes())
        yield


def _take_off(n_dispatch: int, n_function: int) -> None:
    """Pop the modes that were left on above these stack depths."""
    while n_dispatch_modes() > n_dispatch:
        pop_dispatch_mode()
    while n_function_modes() > n_function:
        pop_function_mode()
