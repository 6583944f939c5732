"""Recording where the modes do not apply: in custom operators, backward passes and threads."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from unittest import mock

from torch.autograd.function import BackwardCFunction
from torch.overrides import TorchFunctionMode

from assignment.pytorch_private import (
    OPDEFS,
    Argument,
    OpOverload,
    TorchDispatchMode,
    disable_current_modes,
    n_dispatch_modes,
    n_function_modes,
    pop_dispatch_mode,
    pop_function_mode,
)
from assignment.whose import theirs

Mode = TorchDispatchMode | TorchFunctionMode


def following(modes: Sequence[Mode], function: Callable[..., Argument]) -> Callable[..., Argument]:
    """Return the function, with the modes on."""

    def followed(*args: Argument, **kwargs: Argument) -> Argument:
        with contextlib.ExitStack() as on:
            for mode in modes:
                on.enter_context(mode)
            return theirs(function, *args, **kwargs)

    return followed


@contextlib.contextmanager
def followed(modes: Sequence[Mode], operation: OpOverload) -> Iterator[None]:
    """Record the body of an operation defined by torch.library.custom_op or triton_op."""
    bodies = OPDEFS[operation._schema.name]._backend_fns
    with mock.patch.dict(bodies, {device: following(modes, body) for device, body in bodies.items()}):
        yield


@contextlib.contextmanager
def everywhere(modes: Sequence[Mode]) -> Iterator[None]:
    """Record everything inside, also in threads that start there and in custom backward passes.

    A mode applies to its own thread only, and PyTorch calls backward passes with function modes
    off.
    """
    off = [mode for mode in modes if isinstance(mode, TorchFunctionMode)]
    start = threading.Thread.start

    def started(thread: threading.Thread) -> None:
        thread.run = following(modes, thread.run)  # type: ignore[method-assign,assignment]
        theirs(start, thread)

    with contextlib.ExitStack() as on:
        on.enter_context(mock.patch.object(threading.Thread, "start", started))
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
