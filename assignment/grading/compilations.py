"""What a worker that compiles does with a request: calls a function for each target, its launches being compiled."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

MAX_KERNELS = 300  # in a reply


def answer(function: Callable, header: dict[str, Any], tensors: list, folder: Path) -> tuple[dict[str, Any], list]:
    """The kernels by target, and what stopped the function: what its kernels compute is not there."""
    from assignment.compiling import build, launches
    from assignment.compiling.targets import TARGETS
    from assignment.grading.worker import summary

    noted, stopped = [], {}
    for name in header["targets"]:
        with launches.recorded(TARGETS[name]) as of_target:
            try:
                function(*tensors, **header["options"])
            except NotImplementedError:
                raise
            except Exception as error:
                stopped[name] = summary(error, folder)
        noted += of_target
    kernels = build.kernels(noted, is_brief=True, processes=header["processes"])[:MAX_KERNELS]
    return {
        "status": "compiled",
        "kernels": [_own(kernel.as_json(), folder) for kernel in kernels],
        "stopped": stopped,
    }, []


def _own(value: Any, folder: Path) -> Any:
    """The same with the submission's own paths."""
    if isinstance(value, str):
        return value.replace(f"{folder}/", "")
    if isinstance(value, dict):
        return {key: _own(item, folder) for key, item in value.items()}
    return [_own(item, folder) for item in value] if isinstance(value, list | tuple) else value
