"""Streams, events and devices of a GPU that is not there: everything is done in order, at once."""

import itertools
import threading
from operator import methodcaller
from types import TracebackType
from typing import Any, NoReturn

import torch

from assignment.whose import theirs

DeviceName = torch.device | str | int | None
Raised = type[BaseException] | BaseException | TracebackType | None  # of a context that ends

GPU = torch.device("cuda", 0)
_numbers = itertools.count(1)


class Refused(RuntimeError):
    """What is not available where there is no GPU; says what to write instead."""


class NotThere(Refused, AttributeError):
    """An attribute that is refused: hasattr says no."""


def refusal(name: str, instead: str) -> type:
    """Return a stand-in that cannot be called; a type, so that it can stand in annotations."""

    def refuse(cls: type, *_: Any, **__: Any) -> NoReturn:
        raise Refused(f"{name} is not available where kernels are graded without a GPU: {instead}")

    # torch._dynamo lists what a decorator wraps, as use_mem_pool.__wrapped__
    return type(name.rpartition(".")[2], (), {"__new__": refuse, "__wrapped__": refuse})


class Event:
    """An event of such a stream; there is no clock."""

    device = GPU
    cuda_event = event_id = 0

    def __init__(self, *_: int | bool, **__: int | bool) -> None: ...

    def record(self, stream: "Stream | None" = None) -> None: ...

    def wait(self, stream: "Stream | None" = None) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: "Event") -> float:
        return 1.0

    ipc_handle = refusal("torch.cuda.Event.ipc_handle", "leave it out, there is one process")
    from_ipc_handle = refusal("torch.cuda.Event.from_ipc_handle", "leave it out, there is one process")


class Stream:
    """A GPU stream where everything is done in order."""

    device, device_index, device_type = GPU, 0, 1

    def __init__(self, device: DeviceName = None, priority: int = 0, **_: int | bool) -> None:
        self.priority = priority
        self.stream_id = self.cuda_stream = self.native_handle = next(_numbers)
        self._outer: list[Stream] = []

    def synchronize(self) -> None: ...

    def wait_stream(self, stream: "Stream") -> None: ...

    def wait_event(self, event: Event) -> None: ...

    def record_event(self, event: Event | None = None) -> Event:
        return event or Event()

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    @classmethod
    def priority_range(cls) -> tuple[int, int]:
        return 0, -5

    def __enter__(self) -> "Stream":
        self._outer.append(current_stream())
        set_stream(self)
        return self

    def __exit__(self, *_: Raised) -> None:
        set_stream(self._outer.pop())


class ExternalStream(Stream):
    """A stream that other code has made."""

    def __init__(self, stream_ptr: int, device: DeviceName = None, **_: int | bool) -> None:
        super().__init__(device)
        self.stream_id = self.cuda_stream = self.native_handle = stream_ptr


_DEFAULT = ExternalStream(0)
_of_thread = threading.local()


def default_stream(device: DeviceName = None) -> Stream:
    return _DEFAULT


def current_stream(device: DeviceName = None) -> Stream:
    return getattr(_of_thread, "stream", _DEFAULT)


def set_stream(stream: Stream | None) -> None:
    """Make a stream this thread's current one; None changes nothing."""
    if stream is not None:
        _of_thread.stream = stream


class StreamContext:
    """A context manager: the stream is the current one inside; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            theirs(methodcaller("__enter__"), self.stream)

    def __exit__(self, *_: Raised) -> None:
        if self.stream is not None:
            theirs(methodcaller("__exit__"), self.stream)


class Device:
    """A context manager for the only GPU: torch.cuda.device, device_of and accelerator.device_index."""

    idx = prev_idx = 0

    def __init__(self, device: DeviceName = None) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: Raised) -> None: ...
