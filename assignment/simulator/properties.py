"""The GPU that host code sees, as torch.cuda.get_device_properties would describe it."""

from collections.abc import Mapping

Properties = Mapping[str, int | str]
H100: Properties = {
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
    "clock_rate": 1_980_000,  # kHz
    "memory_clock_rate": 2_619_000,
    "memory_bus_width": 5120,  # bits
}
