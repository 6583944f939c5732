"""Arguments of operations and of launches, from the JSON of a program."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from assignment.protocol.messages import Value
from assignment.pytorch_private import Argument
from assignment.simulator import dtypes
from assignment.simulator.kernel_values import LaunchArgument
from assignment.simulator.triton_private import TensorDescriptor

from .kernel_builder import Kernels
from .storages import CannotFollow
from .syntax import MAX_INT

View = Callable[[int], torch.Tensor]
FORMATS = {
    str(form).removeprefix("torch."): form
    for form in (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
}


def decode(value: Value, view: View) -> Argument:
    """Return an argument of an operation of PyTorch."""
    if isinstance(value, list):
        return [decode(item, view) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise CannotFollow("an argument of no known kind")
    ((kind, content),) = value.items()
    if kind == "t" and isinstance(content, int):
        return view(content)
    if kind == "f" and content in ("inf", "-inf", "nan"):
        return float(content)
    if kind == "dtype" and content in list(dtypes.PYTORCH):
        return dtypes.PYTORCH[content]
    if kind == "format" and content in FORMATS:
        return FORMATS[content]
    raise CannotFollow("an argument of no known kind")


def of_launch(value: Any, view: View, kernels: Kernels) -> LaunchArgument:
    """Return an argument of a launch; raises Refused, CannotFollow."""
    if type(value) in (int, bool, float) and abs(value) < MAX_INT:
        return value
    if isinstance(value, dict):
        if "t" in value:
            tensor = view(value["t"])
            return triton.reinterpret(tensor, _dtype(value["as"])) if "as" in value else tensor
        if "constexpr" in value:
            return tl.constexpr(of_launch(value["constexpr"], view, kernels))
        if "descriptor" in value:
            return _descriptor(value, view)
        if "tuple" in value and isinstance(value["tuple"], list):
            return tuple(of_launch(item, view, kernels) for item in value["tuple"])
        if "namedtuple" in value and isinstance(value.get("values"), list):
            kind: Callable[..., LaunchArgument] = type(
                kernels.constant({**value, "values": [None] * len(value["values"])})
            )
            return kind(*(of_launch(item, view, kernels) for item in value["values"]))
    return kernels.constant(value)


def _descriptor(value: dict[str, Any], view: View) -> TensorDescriptor:
    lists = [value.get(name) for name in ("shape", "strides", "block")]
    if not all(isinstance(sizes, list) and all(type(size) is int for size in sizes) for sizes in lists):
        raise CannotFollow("a descriptor of no known form")
    if value.get("padding") not in ("zero", "nan"):
        raise CannotFollow("a descriptor of no known form")
    try:
        is_rounded = {"round_f32_to_tf32": True} if value.get("round_to_tf32") is True else {}
        return TensorDescriptor(view(value["descriptor"]), *lists, padding=value["padding"], **is_rounded)
    except (AssertionError, TypeError, ValueError) as error:
        raise CannotFollow(f"a descriptor that cannot be: {str(error)[:200]}") from error


def _dtype(name: Value) -> tl.dtype:
    if (found := dtypes.TRITON.get(str(name))) is None:
        raise CannotFollow("a dtype that Triton does not have")
    return found


def by_position(
    names: Sequence[str], values: dict[str, LaunchArgument]
) -> tuple[list[LaunchArgument], dict[str, LaunchArgument]]:
    """Return the arguments of a launch by position, where each parameter has one, otherwise by name.

    A parameter may have the name of one of Triton's own, such as `grid`.
    """
    if values.keys() == set(names):
        return [values[name] for name in names], {}
    return [], values


def holds(value: Value, *names: str) -> bool:
    """Return whether an argument, or one inside it, is of a kind: has one of these names."""
    if isinstance(value, dict):
        return any(name in value for name in names) or any(holds(item, *names) for item in value.values())
    return isinstance(value, list) and any(holds(item, *names) for item in value)
