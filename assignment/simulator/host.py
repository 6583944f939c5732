"""Triton's driver for a GPU that does not exist."""

from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

import torch
import triton.testing

from .properties import Properties
from .streams import NotThere, Refused
from .triton_private import DriverBase, GPUTarget

_NOT_HERE = "is not available where there is no GPU: launch as kernel[grid](...), and leave the rest to Triton"


class Driver(DriverBase):
    """Triton's driver for a device that does not exist."""

    def __init__(self, target: GPUTarget, properties: Properties, number: int = 0) -> None:
        """Set up the device; kernels are cached by its `number`."""
        self._target, self._properties, self._number = target, properties, number
        self.utils = _Utils(self)

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_interface(self) -> ModuleType:
        return torch.cuda

    def get_current_device(self) -> int:
        return self._number

    def set_current_device(self, device: int) -> None:
        """Do nothing: there is only one device."""

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return int(self._properties["major"]), int(self._properties["minor"])

    def get_benchmarker(self) -> Callable[..., float | list[float]]:
        return triton.testing.do_bench

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise Refused(f"triton's driver.map_python_to_cpp_type {_NOT_HERE}")

    def launcher_cls(self, *_: Any) -> NoReturn:
        raise Refused(f"triton's driver.launcher_cls {_NOT_HERE}")

    def assemble_tensormap_to_arg(self, tensormaps_info: Any, args: Any) -> Any:
        return args

    def allocate_default_profile_scratch(self, size: int, alignment: int, stream: int) -> torch.Tensor:
        """Return memory for a profiler."""
        return torch.zeros(size, dtype=torch.int8)

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(0)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """Do nothing: there is no cache."""

    def _triton_properties(self, device: int = 0) -> Properties:
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


class _Utils:
    """What Triton's driver can do with a device and a binary, of which only the device is known."""

    def __init__(self, driver: Driver) -> None:
        self.get_device_properties = driver._triton_properties
        self.get_current_device = driver.get_current_device
        self.set_current_device = driver.set_current_device
        self.get_device_capability = driver.get_device_capability

    def __getattr__(self, name: str) -> NoReturn:
        raise NotThere(f"triton's driver.active.utils.{name} {_NOT_HERE}")
