"""What host code hears when it asks about the GPU: an H100, that needs no synchronising. Fresh memory is NaN."""

import contextlib
import types
import warnings
from typing import Any

import torch
from triton.backends.driver import DriverBase
from triton.runtime import driver

from .builder import TARGET
from .undefined import fill_fresh_memory

PROPERTIES = {
    "name": "NVIDIA H100 80GB HBM3",
    "major": 9,
    "minor": 0,
    "total_memory": 85_024_112_640,  # bytes
    "multi_processor_count": 132,
    "max_threads_per_multi_processor": 2048,
    "max_threads_per_block": 1024,
    "regs_per_multiprocessor": 65536,
    "shared_memory_per_block": 49152,  # bytes
    "shared_memory_per_block_optin": 232448,
    "shared_memory_per_multiprocessor": 233472,
    "L2_cache_size": 52_428_800,
    "warp_size": 32,
    "is_integrated": 0,
    "is_multi_gpu_board": 0,
    "gcnArchName": "",
}


class Driver(DriverBase):
    """Triton's view of the device."""

    def __init__(self) -> None:
        self.utils = types.SimpleNamespace(get_device_properties=_triton_properties)

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> Any:
        return TARGET

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        """There is only one."""

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return 9, 0

    def get_benchmarker(self) -> Any:
        raise RuntimeError("the simulator has no clock: time kernels with --device cuda")

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError("the simulator compiles nothing")

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(0)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """There is none."""


def install() -> None:
    """Put the device in place of the one that is not there."""
    driver.set_active(Driver())
    _patch_torch_cuda()
    fill_fresh_memory()
    warnings.filterwarnings("ignore", message=".*does not have a deterministic implementation.*")


def _triton_properties(device: int = 0) -> dict[str, Any]:
    return {
        "max_shared_mem": PROPERTIES["shared_memory_per_block_optin"],
        "max_num_regs": PROPERTIES["regs_per_multiprocessor"],
        "multiprocessor_count": PROPERTIES["multi_processor_count"],
        "warpSize": PROPERTIES["warp_size"],
        "sm_clock_rate": 1_980_000,  # kHz
        "mem_clock_rate": 2_619_000,
        "mem_bus_width": 5120,  # bits
    }


def _patch_torch_cuda() -> None:
    stream = types.SimpleNamespace(cuda_stream=0, synchronize=lambda: None, wait_stream=lambda other: None)
    answers: dict[str, Any] = {
        "get_device_properties": lambda device=None: types.SimpleNamespace(**PROPERTIES),
        "get_device_capability": lambda device=None: (9, 0),
        "get_device_name": lambda device=None: PROPERTIES["name"],
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
