"""The GPUs that are compiled for.

Shared memory a program can have, by compute capability: 163 KB for 8.0, 227 KB for 9.0 and 10.0
("maximum amount of shared memory per thread block", CUDA C++ Programming Guide, technical
specifications per compute capability). Numbers of multiprocessors and cache sizes are those of the
data sheets; only host code that asks for them sees them.
"""

from dataclasses import dataclass

from assignment.simulator.properties import H100, Properties

KB = 1024  # bytes
ASKS = "target_info"  # in a file whose kernels ask which of them they are compiled for
TENSOR_MEMORY = 512  # columns that a program can have, on a Blackwell GPU


@dataclass(frozen=True)
class Target:
    """A GPU to compile for."""

    name: str
    title: str
    capability: int  # 90 for 9.0
    best: str  # the instruction that multiplies matrices fastest
    properties: Properties  # as torch.cuda.get_device_properties tells them

    @property
    def shared_limit(self) -> int:
        """The bytes of shared memory that a program can have."""
        return int(self.properties["shared_memory_per_block_optin"])


A100 = {
    **H100,
    "name": "NVIDIA A100-SXM4-80GB",
    "major": 8,
    "total_memory": 85_094_825_984,
    "multi_processor_count": 108,
    "shared_memory_per_block_optin": 163 * KB,
    "shared_memory_per_multiprocessor": 164 * KB,
    "L2_cache_size": 41_943_040,
    "clock_rate": 1_410_000,
    "memory_clock_rate": 1_593_000,
}
B200 = {
    **H100,
    "name": "NVIDIA B200",
    "major": 10,
    "total_memory": 191_500_000_000,
    "multi_processor_count": 148,
    "L2_cache_size": 132_120_576,
    "clock_rate": 1_965_000,
    "memory_clock_rate": 3_996_000,
    "memory_bus_width": 8192,
}
TARGETS = {
    target.name: target
    for target in (
        Target("a100", "A100", 80, "mma.sync", A100),
        Target("h100", "H100", 90, "wgmma", H100),
        Target("b200", "B200", 100, "tcgen05", B200),
    )
}
