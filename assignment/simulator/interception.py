"""Where operations of PyTorch go past a dispatch mode, and how it hears of them all the same."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from torch._library.custom_ops import OPDEFS
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode


class Functions(TorchFunctionMode):
    """Hears of functions that PyTorch takes apart before the dispatcher sees them."""

    def __init__(self, hear: Callable[[str], None]) -> None:
        super().__init__()
        self._hear = hear

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._hear(resolve_name(func) or getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


def following(mode: TorchDispatchMode, hear: Callable[[str], None], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with both modes on."""

    def followed(*args: Any, **kwargs: Any) -> Any:
        with mode, Functions(hear):
            return function(*args, **kwargs)

    return followed


@contextlib.contextmanager
def in_threads(mode: TorchDispatchMode, hear: Callable[[str], None]) -> Iterator[None]:
    """Follow what threads do that start inside: a mode holds for its own thread alone."""
    run = threading.Thread.run
    threading.Thread.run = following(mode, hear, run)  # type: ignore[method-assign]
    try:
        yield
    finally:
        threading.Thread.run = run  # type: ignore[method-assign]


def is_of_python(operation: Any) -> bool:
    """Whether it was defined by torch.library.custom_op or triton_op."""
    return bool(OPDEFS) and operation._schema.name in OPDEFS


@contextlib.contextmanager
def in_its_body(mode: TorchDispatchMode, hear: Callable[[str], None], operation: Any) -> Iterator[None]:
    """Follow what an operation of Python's does when it is called inside."""
    bodies = OPDEFS[operation._schema.name]._backend_fns
    with mock.patch.dict(bodies, {device: following(mode, hear, body) for device, body in bodies.items()}):
        yield
