"""Recording where the modes do not apply: in custom operators, backward passes and threads."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from unittest import mock

from torch.autograd.function import BackwardCFunction
from torch.library import Library
from torch.overrides import TorchFunctionMode

from assignment.pytorch_private import (
    Argument,
    OpOverload,
    TorchDispatchMode,
    disable_current_modes,
    is_for,
    n_dispatch_modes,
    n_function_modes,
    not_compiled,
    pop_dispatch_mode,
    pop_function_mode,
)
from assignment.whose import theirs

Mode = TorchDispatchMode | TorchFunctionMode
OF_PYTORCH = ("aten", "prim", "prims")  # whose operations are what they are, whatever is put in their place
BACKENDS = ("CompositeExplicitAutograd", "CPU")  # where modes are off: they have had the operation itself
ON_CPU = {"CUDA": "CPU", "AutogradCUDA": "AutogradCPU"}  # where all tensors lie
_BODIES: dict[tuple[str, str], Callable[..., Argument]] = {}  # by operator and backend
_LIBRARIES: list[Library] = []


class DispatchMode(TorchDispatchMode):
    """A mode that torch.compile skips; PyTorch's own way to have it skipped loads torch._dynamo, for two seconds."""

    def __init_subclass__(cls) -> None:
        answer, skipped = cls.__torch_dispatch__, not_compiled(cls.__torch_dispatch__)
        cls.__torch_dispatch__ = lambda *args: (skipped if "torch._dynamo" in sys.modules else answer)(*args)  # type: ignore[method-assign]


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
    _BODIES.clear()
    while _LIBRARIES:
        _LIBRARIES.pop()._destroy()


def is_custom(operation: OpOverload) -> bool:
    """Return whether host code has defined an operation, by torch.library: its body is followed."""
    return operation._schema.name in {name.partition(".")[0] for name, _ in _BODIES}


def _made(make: Callable[..., None]) -> Callable[..., None]:
    """Return Library.__init__, which remembers the library."""

    def made(library: Library, ns: str, kind: str, dispatch_key: str = "") -> None:
        theirs(make, library, ns, kind, ON_CPU.get(dispatch_key, dispatch_key))
        _LIBRARIES.append(library)

    return made


def _implemented(modes: Sequence[Mode], implement: Callable[..., None]) -> Callable[..., None]:
    """Return Library.impl, by which custom_op and triton_op register too, with the modes on in bodies of operators.

    What is for a GPU stands where tensors of the CPU find it, in place of what is for them.
    """

    def implemented(
        library: Library, op_name: str | OpOverload, fn: Callable[..., Argument], dispatch_key: str = "", **how: bool
    ) -> None:
        key = dispatch_key or library.dispatch_key
        to = ON_CPU.get(key, key)
        if library.ns in OF_PYTORCH or to not in BACKENDS:
            return theirs(implement, library, op_name, fn, to, **how)
        name = op_name if isinstance(op_name, str) else op_name.name()
        operator = f"{library.ns}::{name.rpartition('::')[2]}"
        is_there = is_for(operator, to)
        if to != key or not is_there:
            _BODIES[operator, to] = following(modes, fn)
        if not is_there:
            theirs(
                implement, library, op_name, lambda *args, **kwargs: _BODIES[operator, to](*args, **kwargs), to, **how
            )

    return implemented


def _faked(modes: Sequence[Mode], register: Callable[..., None]) -> Callable[..., None]:
    """Return Library._register_fake, with the modes on in fake implementations."""

    def registered(
        library: Library, op_name: str, fn: Callable[..., Argument], _stacklevel: int = 1, **how: bool
    ) -> None:
        theirs(register, library, op_name, following(modes, fn), _stacklevel, **how)

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
