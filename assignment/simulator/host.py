"""Answers to host code's questions about the GPU: its properties; synchronising does nothing."""

import contextlib
import types
from collections.abc import Mapping
from typing import Any

import torch
from triton.backends.driver import DriverBase


class Driver(DriverBase):
    """Triton's driver for a device that does not exist."""

    def __init__(self, target: Any, properties: Mapping[str, Any], number: int = 0) -> None:
        """Set up the device; kernels are cached by its `number`."""
        self._target, self._properties, self._number = target, properties, number
        self.utils = types.SimpleNamespace(get_device_properties=self._triton_properties)

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> Any:
        return self._target

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_current_device(self) -> int:
        return self._number

    def set_current_device(self, device: int) -> None:
        """Do nothing: there is only one device."""

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return self._properties["major"], self._properties["minor"]

    def get_benchmarker(self) -> Any:
        raise RuntimeError("there is no clock here: time kernels with --device cuda")

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError("kernels are not launched here")

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(0)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """Do nothing: there is no cache."""

    def _triton_properties(self, device: int = 0) -> dict[str, Any]:
        properties = self._properties
        return {
            "max_shared_mem": properties["shared_memory_per_block_optin"],
            "max_num_regs": properties["regs_per_multiprocessor"],
            "multiprocessor_count": properties["multi_processor_count"],
            "warpSize": properties["warp_size"],
            "sm_clock_rate": properties["clock_rate"],
            "mem_clock_rate": properties["memory_clock_rate"],
            "mem_bus_width": properties["memory_bus_width"],
        }


def answer_as(properties: Mapping[str, Any]) -> None:
    """Have torch.cuda answer as a GPU with these properties.

    This holds for the rest of the process, or until the next call.
    """
    stream = types.SimpleNamespace(cuda_stream=0, synchronize=lambda: None, wait_stream=lambda other: None)
    answers: dict[str, Any] = {
        "get_device_properties": lambda device=None: types.SimpleNamespace(**properties),
        "get_device_capability": lambda device=None: (properties["major"], properties["minor"]),
        "get_device_name": lambda device=None: properties["name"],
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "synchronize": lambda device=None: None,
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "device": lambda device: contextlib.nullcontext(),
        "device_of": lambda tensor: contextlib.nullcontext(),
        "stream": lambda stream: contextlib.nullcontext(),
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
