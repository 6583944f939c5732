"""torch.cuda and torch.accelerator of a machine with one GPU, for host code where there is none.

Each public member is answered, refused with what to write instead, or left as PyTorch has it. A
test walks them all, so that one which a new PyTorch adds is decided on.
"""

import itertools
import sys
import types
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NoReturn

import torch

from . import streams
from .gpu import Properties
from .streams import GPU, DeviceName, NotThere, Refused

# members that answer without a GPU, or that only name something
AS_THEY_ARE = {
    "torch.cuda": {
        *("CudaError", "DeferredCudaCallError", "AcceleratorError", "OutOfMemoryError", "classproperty"),
        *("cudaStatus", "has_half", "has_magma"),
        *("amp", "graphs", "memory", "nvtx", "profiler", "random", "streams"),
        *("gds", "graph_annotations", "green_contexts", "jiterator", "nccl", "sparse", "tunable"),
    },
    "torch.accelerator": {"graphs", "memory"},
    "torch.cuda.nvtx": {"range"},  # calls range_push and range_pop
    "torch.cuda.profiler": {"profile"},  # calls start and stop
    "torch.cuda.amp": {"GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"},
}
_CAPTURE = "launch the kernels one by one, as without a graph"
_POOL = "leave it out, memory comes from one pool here"
_ALLOCATOR = 'write torch.empty(n, dtype=torch.uint8, device="cuda")'
_NO_TUNING = "leave it out, PyTorch's products are not tuned here"
_ONE_PROCESS = "leave it out, there is one GPU and one process"
_GDS = "leave it out, a submission reads no files"
_TYPE = 'write torch.empty(..., dtype={}, device="cuda"), and compare x.dtype'
REFUSED = {  # and what to write instead
    "torch.cuda": {
        **dict.fromkeys(["CUDAGraph", "graph", "graph_pool_handle", "make_graphed_callables"], _CAPTURE),
        **dict.fromkeys(["export_dot", "export_graph_data"], _CAPTURE),  # since PyTorch 2.15
        **dict.fromkeys(["MemPool", "use_mem_pool", "CUDAPluggableAllocator", "change_current_allocator"], _POOL),
        **dict.fromkeys(["caching_allocator_alloc", "caching_allocator_delete"], _ALLOCATOR),
        "GreenContext": "leave it out, kernels have the whole GPU",
    },
    "torch.accelerator": {"Graph": _CAPTURE},
    "torch.cuda.graphs": dict.fromkeys(  # since PyTorch 2.15
        [
            *("register_graph_capture_start_hook", "register_graph_capture_end_hook"),
            *("register_graph_instantiate_hook", "register_graph_replay_start_hook", "register_graph_replay_end_hook"),
            "register_graph_destroy_hook",
        ],
        _CAPTURE,
    ),
    "torch.cuda.nccl": dict.fromkeys(
        [
            *("all_gather", "all_reduce", "broadcast", "init_rank", "reduce", "reduce_scatter", "unique_id"),
            "version",
        ],
        _ONE_PROCESS,
    ),
    "torch.cuda.gds": dict.fromkeys(["GdsFile", "gds_deregister_buffer", "gds_register_buffer"], _GDS),
    "torch.cuda.green_contexts": dict.fromkeys(
        # all but the first since PyTorch 2.15
        ["GreenContext", "SMPartition", "get_num_locality_domains", "is_localization_supported"],
        "leave it out, kernels have the whole GPU",
    ),
    "torch.cuda.tunable": dict.fromkeys(
        [
            *("enable", "is_enabled", "tuning_enable", "tuning_is_enabled", "record_untuned_enable"),
            *("record_untuned_is_enabled", "set_max_tuning_duration", "get_max_tuning_duration"),
            *("set_cublaslt_requested_algo_count", "get_cublaslt_requested_algo_count"),
            *("set_max_tuning_iterations", "get_max_tuning_iterations", "set_filename", "get_filename"),
            *("get_results", "get_validators", "read_file", "tune_gemm_in_file", "mgpu_tune_gemm_in_file"),
            *("set_rotating_buffer_size", "get_rotating_buffer_size", "set_numerical_check_tolerances"),
        ],
        _NO_TUNING,
    ),
}
TYPES = {  # torch.cuda.FloatTensor, torch.cuda.FloatStorage, …
    "BFloat16": "bfloat16",
    "Bool": "bool",
    "Byte": "uint8",
    "Char": "int8",
    "ComplexDouble": "complex128",
    "ComplexFloat": "complex64",
    "Double": "float64",
    "Float": "float32",
    "Half": "float16",
    "Int": "int32",
    "Long": "int64",
    "Short": "int16",
}
IDENTITY = {"uuid": "GPU-0", "pci_domain_id": 0, "pci_bus_id": 0, "pci_device_id": 0}
_RE_EXPORTED = ("memory", "random", "streams", "graphs")  # modules whose members torch.cuda has too
_FREE = 1 << 30  # bytes that somebody else is using
_SUPPORTED = {getattr(torch, name) for name in TYPES.values()}


# of torch.cuda: what host code asks before it launches, whatever machine it is on
QUESTIONS = (
    *("get_device_properties", "get_device_capability", "get_device_name", "current_device", "set_device"),
    *("synchronize", "current_stream", "default_stream", "device", "device_of", "stream"),
)


def answer_questions(properties: Properties) -> None:
    """Have torch.cuda answer those members of it that launches need, as this GPU.

    This holds for the rest of the process, or until the next call.
    """
    members = cuda(properties)
    _put("torch.cuda", {name: members[name] for name in QUESTIONS})


def answer_as(properties: Properties) -> None:
    """Have PyTorch answer as on a machine with this GPU, in all that is public, likewise."""
    tables = {
        "torch.cuda": cuda(properties),
        "torch.accelerator": accelerator(properties),
        "torch.cuda.nvtx": _each(["mark", "range_end", "range_pop", "range_push", "range_start"], 0),
        # private, and used by libraries all the same: guards and launchers
        "torch._C": _each(["_cuda_getCurrentRawStream", "_cuda_getDevice"], 0),
        "torch.cuda.nccl": {"is_available": _always(False)},
        "torch.cuda.profiler": {"start": _always(None), "stop": _always(None)},
    }
    for module, members in tables.items():
        _put(module, members)
    for module, reasons in REFUSED.items():
        _put(module, {name: refusal(f"{module}.{name}", instead) for name, instead in reasons.items()})
    pytorch: Any = torch
    pytorch.Stream, pytorch.Event = streams.Stream, streams.Event
    pytorch.get_device_module = _device_module
    pytorch.version.cuda = pytorch.version.cuda or "13.0"


def _put(module: str, members: Mapping[str, Any]) -> None:
    """Set a module's members, also where it has them from."""
    inner = [f"{module}.{name}" for name in _RE_EXPORTED]
    for held in [sys.modules[name] for name in (module, *inner) if name in sys.modules]:
        for name, member in members.items():
            if held.__name__ == module or hasattr(held, name):
                setattr(held, name, member)


def cuda(properties: Properties) -> dict[str, Any]:
    """Return the answered members of torch.cuda."""
    host = torch.default_generator
    nothing = [
        *("init", "synchronize", "set_device", "empty_cache", "ipc_collect", "check_error"),
        *("caching_allocator_enable", "reset_accumulated_memory_stats", "reset_peak_memory_stats"),
        *("reset_max_memory_allocated", "reset_max_memory_cached", "reset_accumulated_host_memory_stats"),
        *("reset_peak_host_memory_stats", "set_per_process_memory_fraction", "set_sync_debug_mode"),
    ]
    zero = [
        *("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"),
        *("memory_cached", "max_memory_cached", "device_memory_used", "memory_usage", "utilization"),
        *("current_device", "get_sync_debug_mode"),
    ]
    yes = ["is_available", "is_initialized", "is_bf16_supported", "is_tf32_supported"]
    architecture = lambda: f"{properties['major']}{properties['minor']}"  # noqa: E731
    return {
        **_each(nothing, None),
        **_each(zero, 0),
        **_each(yes, True),
        **_of_streams(),
        **_of_types(),
        "device": streams.Device,
        "device_of": streams.Device,
        "device_count": _always(1),
        "get_device_properties": lambda device=None: types.SimpleNamespace(**IDENTITY, **properties),
        "get_device_capability": lambda device=None: (properties["major"], properties["minor"]),
        "get_device_name": lambda device=None: properties["name"],
        "get_arch_list": lambda: [f"sm_{architecture()}"],
        "get_gencode_flags": lambda: f"-gencode compute=compute_{architecture()},code=sm_{architecture()}",
        **_each(["_exchange_device", "_maybe_exchange_device"], 0),
        "can_device_access_peer": _always(False),
        "is_current_stream_capturing": _always(False),
        "cudart": lambda: _RUNTIME,
        "current_blas_handle": _always(1),
        "current_solver_handle": _always(1),
        "clock_rate": lambda device=None: int(properties["clock_rate"]) // 1000,
        "temperature": _always(40),
        "power_draw": _always(100_000),  # milliwatts
        "list_gpu_processes": _always("GPU:0\nno processes are running"),
        "mem_get_info": _memory_info(properties),
        "memory_stats": lambda device=None: _memory_stats(),
        "memory_stats_as_nested_dict": lambda device=None: nested(_memory_stats()),
        "memory_snapshot": lambda *_, **__: [],
        "memory_summary": _always("memory is not counted where there is no GPU"),
        "host_memory_stats": lambda: _memory_stats(),
        "host_memory_stats_as_nested_dict": lambda: nested(_memory_stats()),
        "caching_allocator_disabled": streams.Device,
        "get_allocator_backend": _always("native"),
        "get_per_process_memory_fraction": _always(1.0),
        "default_generators": (host,),
        "get_rng_state": lambda device="cuda": host.get_state(),
        "get_rng_state_all": lambda: [host.get_state()],
        "set_rng_state": lambda new_state, device="cuda": host.set_state(new_state) and None,  # theirs
        "set_rng_state_all": lambda new_states: [host.set_state(state) for state in new_states] and None,  # theirs
        "manual_seed": lambda seed: host.manual_seed(seed) and None,  # theirs
        "manual_seed_all": lambda seed: host.manual_seed(seed) and None,  # theirs
        "seed": lambda: host.seed() and None,
        "seed_all": lambda: host.seed() and None,
        "initial_seed": lambda: host.initial_seed(),
    }


def accelerator(properties: Properties) -> dict[str, Any]:
    """Return the answered members of torch.accelerator."""
    nothing = [
        *("synchronize", "set_device_index", "set_device_idx", "empty_cache", "empty_host_cache"),
        *("reset_accumulated_memory_stats", "reset_peak_memory_stats"),
    ]
    zero = [
        *("current_device_index", "current_device_idx", "memory_allocated", "max_memory_allocated"),
        *("memory_reserved", "max_memory_reserved"),
    ]
    return {
        **_each(nothing, None),
        **_each(zero, 0),
        "is_available": _always(True),
        "device_count": _always(1),
        "current_accelerator": lambda check_available=False: torch.device(GPU.type),
        "device_index": streams.Device,
        "current_stream": lambda device=None: streams.current_stream(),
        "set_stream": lambda stream: streams.set_stream(stream),
        "get_device_capability": lambda device=None: {"supported_dtypes": set(_SUPPORTED)},
        "get_memory_info": _memory_info(properties),
        "memory_stats": lambda device_index=None: _memory_stats(),
    }


def _always(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def _each(names: list[str], value: Any) -> dict[str, Any]:
    """Return a function of its own for each: torch.compile tells members apart by identity."""
    return {name: _always(value) for name in names}


def refusal(name: str, instead: str) -> type:
    """Return a stand-in that cannot be called; a type, so that it can stand in annotations."""

    def refuse(cls: type, *_: Any, **__: Any) -> NoReturn:
        raise Refused(f"{name} is not available where kernels are graded without a GPU: {instead}")

    # torch._dynamo lists what a decorator wraps, as use_mem_pool.__wrapped__
    return type(name.rpartition(".")[2], (), {"__new__": refuse, "__wrapped__": refuse})


def _of_streams() -> dict[str, Any]:
    return {
        "Stream": streams.Stream,
        "ExternalStream": streams.ExternalStream,
        "Event": streams.Event,
        "StreamContext": streams.StreamContext,
        "stream": lambda stream: streams.StreamContext(stream),
        "current_stream": streams.current_stream,
        "default_stream": streams.default_stream,
        "set_stream": streams.set_stream,
        "get_stream_from_external": lambda data_ptr, device=None: streams.ExternalStream(data_ptr, device),
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
        instead = _TYPE.format(f"torch.{dtype}")
        members[f"{name}Storage"] = refusal(f"torch.cuda.{name}Storage", instead)
        base = refusal(f"torch.cuda.{name}Tensor", instead)
        fields = {"__new__": base.__new__, "dtype": getattr(torch, dtype)}
        members[f"{name}Tensor"] = _TensorType(f"{name}Tensor", (), fields)
    return {name: member for name, member in members.items() if hasattr(torch.cuda, name)}


class _Runtime:
    """The CUDA runtime, as far as a profiler needs it."""

    cudaProfilerStart = cudaProfilerStop = staticmethod(_always(0))  # noqa: N815 - CUDA's names

    def __getattr__(self, name: str) -> NoReturn:
        raise NotThere(f"torch.cuda.cudart().{name} is not available here: leave it out, there is no CUDA runtime")


_RUNTIME = _Runtime()


def _memory_info(properties: Properties) -> Callable[..., tuple[int, int]]:
    return lambda device=None: (int(properties["total_memory"]) - _FREE, int(properties["total_memory"]))


def _memory_stats() -> dict[str, int]:
    """Return the statistics of an allocator that has allocated nothing."""
    counted = ["allocation", "segment", "active", "inactive_split"]
    sizes = [f"{name}_bytes" for name in ("allocated", "reserved", "active", "inactive_split", "requested")]
    figures = ["current", "peak", "allocated", "freed"]
    pools = itertools.product([*counted, *sizes], ["all", "large_pool", "small_pool"], figures)
    oversize = itertools.product(["oversize_allocations", "oversize_segments"], figures)
    single = ["num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free"]
    return dict.fromkeys([*map(".".join, pools), *map(".".join, oversize), *single, "max_split_size"], 0)


def nested(flat: Mapping[str, int]) -> dict[str, Any]:
    """Return {"a": {"b": 1}} of {"a.b": 1}."""
    tree: dict[str, Any] = {}
    for dotted, value in flat.items():
        *path, last = dotted.split(".")
        inner = tree
        for name in path:
            inner = inner.setdefault(name, {})
        inner[last] = value
    return tree


def _device_module(device: DeviceName = None) -> ModuleType:
    """Return torch.cuda, or the module of another type of device."""
    return getattr(torch, torch.device(device or GPU).type)  # theirs
