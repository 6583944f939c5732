"""Whether PyTorch's operations are still those that it came with: a submission can register others in their place."""

import functools
from typing import Any

import torch

_KEYS = ("CPU", "Autograd", "Composite", "ADInplaceOrView", "BackendSelect")  # what runs on the CPU
_own: dict[str, list[str]] = {}  # the kernels that operations had before the first library was made


def install() -> None:
    """Take down what there is, which takes 0.2 s, when a library of operations is about to be made in Python."""
    make = torch._C._dispatch_library

    @functools.wraps(make)
    def make_library(*arguments: Any) -> Any:
        if not _own:
            names = torch._C._dispatch_get_all_op_names()
            _own.update({name: _kernels(name) for name in names if name.startswith("aten::")})
        return make(*arguments)

    torch._C._dispatch_library = make_library  # type: ignore[assignment]


def is_replaced(operation: Any) -> bool:
    """Whether an operation has other kernels than it had."""
    name = operation.name() if _own else ""
    return name in _own and _kernels(name) != _own[name]


def _kernels(operation: str) -> list[str]:
    return [line for line in torch._C._dispatch_dump(operation).splitlines() if line.startswith(_KEYS)]
