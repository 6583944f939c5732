"""torch.cuda and torch.accelerator of a machine with one GPU, for host code where there is none.

What is answered is listed here, and what is refused, with what to write instead; all else is as
PyTorch has it. A test walks the public members, so that one which a new PyTorch adds is decided on.
"""

import functools
import struct
import sys
import types
from collections import Counter
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NoReturn

import torch

from assignment.whose import theirs

from . import streams
from .properties import Properties
from .streams import GPU, DeviceName, NotThere, refusal

# members that answer the same whatever they are asked, and what
CONSTANT: dict[str, list[tuple[str, Any]]] = {
    "torch.cuda": [
        ("init synchronize set_device empty_cache ipc_collect check_error caching_allocator_enable", None),
        ("reset_accumulated_memory_stats reset_peak_memory_stats reset_max_memory_allocated", None),
        ("reset_max_memory_cached reset_accumulated_host_memory_stats reset_peak_host_memory_stats", None),
        ("set_per_process_memory_fraction set_sync_debug_mode", None),
        ("memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_cached", 0),
        ("max_memory_cached device_memory_used memory_usage utilization current_device get_sync_debug_mode", 0),
        ("_exchange_device _maybe_exchange_device", 0),
        ("is_available is_initialized is_bf16_supported is_tf32_supported", True),
        ("can_device_access_peer is_current_stream_capturing", False),
        ("device_count current_blas_handle current_solver_handle", 1),
        ("get_per_process_memory_fraction", 1.0),
        ("get_allocator_backend", "native"),
        ("temperature", 40),
        ("power_draw", 100_000),  # milliwatts
        ("list_gpu_processes", "GPU:0\nno processes are running"),
        ("memory_summary", "memory is not counted where there is no GPU"),
    ],
    "torch.accelerator": [
        ("synchronize set_device_index set_device_idx empty_cache empty_host_cache", None),
        ("reset_accumulated_memory_stats reset_peak_memory_stats", None),
        ("current_device_index current_device_idx memory_allocated max_memory_allocated", 0),
        ("memory_reserved max_memory_reserved", 0),
        ("is_available", True),
        ("device_count", 1),
    ],
    "torch.cuda.nvtx": [("mark range_end range_pop range_push range_start", 0)],
    "torch.cuda.profiler": [("start stop", None)],
    "torch.cuda.nccl": [("is_available", False)],
    "torch.cuda.gds": [("is_available", False)],
    # private, and used by libraries all the same: guards and launchers
    "torch._C": [("_cuda_getCurrentRawStream _cuda_getDevice", 0)],
}
_CAPTURE = "launch the kernels one by one, as without a graph"
REFUSED_MODULES = {  # all but what is answered, and what to write instead
    "torch.cuda.graphs": _CAPTURE,
    "torch.accelerator.graphs": _CAPTURE,
    "torch.cuda.nccl": "leave it out, there is one GPU and one process",
    "torch.cuda.gds": "leave it out, a submission reads no files",
    "torch.cuda.green_contexts": "leave it out, kernels have the whole GPU",
    "torch.cuda.tunable": "leave it out, PyTorch's products are not tuned here",
}
REFUSED = {  # of torch.cuda, likewise
    "MemPool use_mem_pool CUDAPluggableAllocator change_current_allocator": (
        "leave it out, memory comes from one pool here"
    ),
    "caching_allocator_alloc caching_allocator_delete": 'write torch.empty(n, dtype=torch.uint8, device="cuda")',
    "memory_stats_as_nested_dict host_memory_stats_as_nested_dict": "write torch.cuda.memory_stats()",
}
TYPES = {  # torch.cuda.FloatTensor, torch.cuda.FloatStorage, …
    "BFloat16": torch.bfloat16,
    "Bool": torch.bool,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "ComplexDouble": torch.complex128,
    "ComplexFloat": torch.complex64,
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Short": torch.int16,
}
IDENTITY = {"uuid": "GPU-0", "pci_domain_id": 0, "pci_bus_id": 0, "pci_device_id": 0}
_RE_EXPORTED = ("memory", "random", "streams", "graphs", "green_contexts")  # modules whose members torch.cuda has too
_STREAMS = ("Stream", "ExternalStream", "Event", "StreamContext", "current_stream", "default_stream", "set_stream")
_STATE = struct.Struct("<QQ")  # of a generator: seed and offset
_FAR = 0x9E3779B97F4A7C15  # odd: seeds of two offsets are far apart
_FREE = 1 << 30  # bytes that somebody else is using


PYTORCHS_GENERATOR = torch.Generator

# of torch.cuda: what host code asks before it launches, whatever machine it is on
QUESTIONS = (
    "get_device_properties", "get_device_capability", "get_device_name", "current_device", "set_device",
    "synchronize", "current_stream", "default_stream", "device", "device_of", "stream",
)  # fmt: skip


def answer_questions(properties: Properties) -> None:
    """Have torch.cuda answer those members of it that launches need, as this GPU.

    This holds for the rest of the process, or until the next call.
    """
    members = cuda(properties)
    _put("torch.cuda", {name: members[name] for name in QUESTIONS})


def answer_as(properties: Properties) -> None:
    """Have PyTorch answer as on a machine with this GPU, in all that is public, likewise."""
    for module, members in refused().items():
        _put(module, members)
    for module in CONSTANT:
        _put(module, _constant(module))
    _put("torch.cuda", cuda(properties))
    _put("torch.accelerator", accelerator(properties))
    pytorch: Any = torch
    pytorch.Stream, pytorch.Event = streams.Stream, streams.Event
    pytorch.Generator = GENERATOR
    pytorch.get_device_module = _device_module
    pytorch.version.cuda = pytorch.version.cuda or "13.0"


def _put(module: str, members: Mapping[str, Any]) -> None:
    """Set a module's members, also where it has them from."""
    inner = [f"{module}.{name}" for name in _RE_EXPORTED]
    for held in [sys.modules[name] for name in (module, *inner) if name in sys.modules]:
        for name, member in members.items():
            if held.__name__ == module or hasattr(held, name):
                setattr(held, name, member)


def _constant(module: str) -> dict[str, Callable[..., Any]]:
    """Return a function of its own for each: torch.compile tells members apart by identity."""
    return {name: _always(value) for names, value in CONSTANT[module] for name in names.split()}


def _always(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


@functools.cache
def refused() -> dict[str, dict[str, type]]:
    """Return the members that are refused by the module that exports them, as PyTorch had them at first."""
    found: dict[str, dict[str, type]] = {"torch.cuda": {}}
    for names, instead in REFUSED.items():
        found["torch.cuda"] |= {name: refusal(f"torch.cuda.{name}", instead) for name in names.split()}
    for module, instead in REFUSED_MODULES.items():
        parent = sys.modules[module.rpartition(".")[0]]
        answered = _constant(parent.__name__)
        members = vars(sys.modules[module]) if module in sys.modules else {}
        for name, member in members.items():
            if getattr(member, "__module__", "") == module and name[0] != "_" and name not in answered:
                exporter = parent.__name__ if getattr(parent, name, None) is member else module
                found.setdefault(exporter, {})[name] = refusal(f"{exporter}.{name}", instead)
    return found


def cuda(properties: Properties) -> dict[str, Any]:
    """Return the answered members of torch.cuda."""
    host = CudaGenerator(torch.default_generator)
    architecture = f"{properties['major']}{properties['minor']}"
    return {
        **_constant("torch.cuda"),
        **{name: getattr(streams, name) for name in _STREAMS},
        **_of_types(),
        "stream": lambda stream: streams.StreamContext(stream),
        "get_stream_from_external": lambda data_ptr, device=None: streams.ExternalStream(data_ptr, device),
        "device": streams.Device,
        "device_of": streams.Device,
        "caching_allocator_disabled": streams.Device,
        "get_device_properties": lambda device=None: types.SimpleNamespace(**IDENTITY, **properties),
        "get_device_capability": lambda device=None: (properties["major"], properties["minor"]),
        "get_device_name": lambda device=None: properties["name"],
        "get_arch_list": lambda: [f"sm_{architecture}"],
        "get_gencode_flags": lambda: f"-gencode compute=compute_{architecture},code=sm_{architecture}",
        "cudart": lambda: _RUNTIME,
        "clock_rate": lambda device=None: int(properties["clock_rate"]) // 1000,
        "mem_get_info": _memory_info(properties),
        "memory_stats": lambda device=None: Counter(),  # nothing was allocated: each figure is 0
        "host_memory_stats": lambda: Counter(),
        "memory_snapshot": lambda *_, **__: [],
        "default_generators": (host,),
        "get_rng_state": lambda device="cuda": host.get_state(),
        "get_rng_state_all": lambda: [host.get_state()],
        "set_rng_state": lambda new_state, device="cuda": theirs(host.set_state, new_state) and None,
        "set_rng_state_all": lambda new_states: theirs(list, theirs(map, host.set_state, new_states)) and None,
        "manual_seed": lambda seed: theirs(host.manual_seed, seed) and None,
        "manual_seed_all": lambda seed: theirs(host.manual_seed, seed) and None,
        "seed": lambda: host.seed() and None,
        "seed_all": lambda: host.seed() and None,
        "initial_seed": lambda: host.initial_seed(),
    }


def accelerator(properties: Properties) -> dict[str, Any]:
    """Return the answered members of torch.accelerator."""
    return {
        **_constant("torch.accelerator"),
        "current_accelerator": lambda check_available=False: torch.device(GPU.type),
        "device_index": streams.Device,
        "current_stream": lambda device=None: streams.current_stream(),
        "set_stream": lambda stream: streams.set_stream(stream),
        "get_device_capability": lambda device=None: {"supported_dtypes": {*TYPES.values()}},
        "get_memory_info": _memory_info(properties),
        "memory_stats": lambda device_index=None: Counter(),
    }


class _TensorType(type):
    """A metaclass: instances are the tensors on the GPU with this dtype."""

    dtype: torch.dtype

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.Tensor) and instance.is_cuda and instance.dtype == cls.dtype


def _of_types() -> dict[str, Any]:
    """Return the types of tensors, which answer isinstance, and of storages; none can be called."""
    members: dict[str, Any] = {}
    for name, dtype in TYPES.items():
        instead = f'write torch.empty(..., dtype={dtype}, device="cuda"), and compare x.dtype'
        members[f"{name}Storage"] = refusal(f"torch.cuda.{name}Storage", instead)
        base = refusal(f"torch.cuda.{name}Tensor", instead)
        members[f"{name}Tensor"] = _TensorType(f"{name}Tensor", (), {"__new__": base.__new__, "dtype": dtype})
    return {name: member for name, member in members.items() if hasattr(torch.cuda, name)}


class _Runtime:
    """The CUDA runtime, as far as a profiler needs it."""

    cudaProfilerStart = cudaProfilerStop = staticmethod(_always(0))  # noqa: N815 - CUDA's names

    def __getattr__(self, name: str) -> NoReturn:
        raise NotThere(f"torch.cuda.cudart().{name} is not available here: leave it out, there is no CUDA runtime")


_RUNTIME = _Runtime()


def _memory_info(properties: Properties) -> Callable[..., tuple[int, int]]:
    return lambda device=None: (int(properties["total_memory"]) - _FREE, int(properties["total_memory"]))


def _device_module(device: DeviceName = None) -> ModuleType:
    """Return torch.cuda, or the module of another type of device."""
    return theirs(getattr, torch, theirs(torch.device, device or GPU).type)


class CudaGenerator(PYTORCHS_GENERATOR):
    """A GPU's generator, of which a state is 16 bytes: the seed and how far it has come, both 64 bits.

    The numbers are those of a generator on the CPU, so another state than one that it had begins other numbers.
    """

    device = GPU

    def __new__(cls, host: torch.Generator | None = None) -> "CudaGenerator":
        return super().__new__(cls)

    def __init__(self, host: torch.Generator | None = None) -> None:
        """Begin as a generator of its own, or as the one on the GPU whose numbers come from `host`."""
        super().__init__()
        own: Any = super()
        self._host = host or own
        self._states: dict[tuple[int, int], torch.Tensor] = {}
        self._note(self._host.initial_seed(), 0)

    def _note(self, seed: int, offset: int) -> None:
        """Remember by which seed and offset the numbers go on that come now."""
        self._now = seed, offset
        self._began_by, self._states[seed, offset] = self._host.initial_seed(), self._host.get_state()

    def _follow(self) -> None:
        """Notice what has happened to the numbers meanwhile."""
        state = self._host.get_state()
        known = [place for place, before in self._states.items() if torch.equal(before, state)]
        if known:
            self._now = self._now if self._now in known else known[0]
        elif self._host.initial_seed() != self._began_by:
            self._note(self._host.initial_seed(), 0)
        else:
            seed, offset = self._now
            self._note(seed, offset + 4)

    def get_state(self) -> torch.Tensor:
        """Return the seed and the offset, uint8 (16,); the offset grows by 4 where numbers have been drawn."""
        self._follow()
        return torch.tensor([*_STATE.pack(*self._now)], dtype=torch.uint8)

    def set_state(self, new_state: torch.Tensor) -> "CudaGenerator":
        """Go on from a seed and an offset, uint8 (16,)."""
        if not isinstance(new_state, torch.Tensor) or new_state.dtype != torch.uint8:
            raise TypeError(f"expected a torch.ByteTensor, got {new_state!r}")
        if new_state.numel() != _STATE.size:
            raise RuntimeError(f"RNG state is wrong size: expected {_STATE.size} bytes, got {new_state.numel()}")
        seed, offset = _STATE.unpack(bytes(new_state.tolist()))
        self._host.manual_seed((seed + offset * _FAR) % 2**64)
        if (seed, offset) in self._states:
            self._host.set_state(self._states[seed, offset])
        self._note(seed, offset)
        return self

    def manual_seed(self, seed: int) -> "CudaGenerator":
        theirs(self._host.manual_seed, seed)
        self._note(self._host.initial_seed(), 0)
        return self

    def seed(self) -> int:
        return int(self._host.seed())

    def initial_seed(self) -> int:
        self._follow()
        return self._now[0]


class _AnyGenerator(type):
    """A metaclass: a call makes one of PyTorch's own generators, and those are instances."""

    make: Callable[[DeviceName], torch.Generator]

    def __call__(cls, device: DeviceName = "cpu") -> torch.Generator:
        return cls.make(device)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, PYTORCHS_GENERATOR)


def _generator(device: DeviceName) -> torch.Generator:
    is_on_gpu = type(device) is int or str(device).partition(":")[0] == GPU.type
    return CudaGenerator() if is_on_gpu else theirs(PYTORCHS_GENERATOR, device)


GENERATOR = _AnyGenerator("Generator", (), {"make": staticmethod(_generator)})  # takes the place of torch.Generator
