"""A submission that uses every public member of torch.cuda and torch.accelerator, and says what failed."""

import dis
import importlib
import types

import torch
import triton
from triton.backends.driver import GPUDriver
from triton.backends.nvidia.driver import CudaDriver, CudaUtils

MODULES = [
    "torch.cuda", "torch.accelerator", "torch.cuda.memory", "torch.cuda.random", "torch.cuda.graphs",
    "torch.cuda.streams", "torch.cuda.nvtx", "torch.cuda.profiler", "torch.cuda.nccl", "torch.cuda.tunable",
    "torch.cuda.gds", "torch.cuda.green_contexts", "torch.cuda.amp", "torch.accelerator.memory",
]  # fmt: skip
_STATE = torch.zeros(16, dtype=torch.uint8)  # of a GPU's generator
# of members that need arguments
ARGUMENTS = {
    "device": (0,), "device_of": (torch.zeros(1),), "stream": (None,), "StreamContext": (None,),
    "ExternalStream": (0,), "get_stream_from_external": (0,), "set_device": (0,), "set_stream": (None,),
    "set_device_index": (0,), "set_device_idx": (0,), "device_index": (0,), "check_error": (0,),
    "can_device_access_peer": (0, 0), "manual_seed": (0,), "manual_seed_all": (0,),
    "set_rng_state": (_STATE,), "set_rng_state_all": ([_STATE],),
    "set_per_process_memory_fraction": (0.5,), "set_sync_debug_mode": (0,), "range_push": ("a",),
    "range_start": ("a",), "range_end": (0,), "mark": ("a",), "range": ("a",), "CudaError": (1,),
    "get_device_properties": (0,), "custom_fwd": (lambda ctx: None,), "custom_bwd": (lambda ctx: None,),
}  # fmt: skip
OF_DRIVER = {
    "get_device_capability": (0,), "get_current_stream": (0,), "set_current_device": (0,),
    "map_python_to_cpp_type": ("i32",), "assemble_tensormap_to_arg": ((), ()),
    "clear_cache": (torch.zeros(1),), "launcher_cls": (None, None),
    "allocate_default_profile_scratch": (16, 16, 0),
}  # fmt: skip
OF_UTILS: dict[str, tuple] = {"get_current_device": ()}
MAY_BE_REFUSED: list[str] = []  # the test adds the names
UTILS = [line.argval for line in dis.get_instructions(CudaUtils.__init__) if line.opname == "STORE_ATTR"]


def members(module):
    """Return a module's own public names."""
    exported = set(getattr(module, "__all__", ()))
    own = {
        n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__ and isinstance(v, type)
    }
    return sorted(name for name in exported | own if name[0] != "_")


def of_driver():
    stored = [line.argval for init in (CudaDriver.__init__, GPUDriver.__init__)
              for line in dis.get_instructions(init) if line.opname == "STORE_ATTR"]  # fmt: skip
    return sorted({*stored, *(name for name in dir(CudaDriver) if name[0] != "_")})


def tried(name, member, arguments):
    """Return "answered", "refused", or what was raised else."""
    if not callable(member) or isinstance(member, types.ModuleType):
        return "answered"
    try:
        made = member(*arguments)
        if hasattr(made, "__enter__"):
            with made:
                pass
    except Exception as error:
        is_named = name.rpartition(".")[2] in str(error) and ": " in str(error)
        return (
            "refused"
            if type(error).__name__ in ("Refused", "NotThere") and is_named
            else f"{type(error).__name__}: {error}"
        )
    return "answered"


def walked():
    """Return what came of each member."""
    found = {}
    for dotted in MODULES:
        module = importlib.import_module(dotted)
        for name in members(module):
            found[f"{dotted}.{name}"] = tried(f"{dotted}.{name}", getattr(module, name), ARGUMENTS.get(name, ()))
    driver = triton.runtime.driver.active
    for name in of_driver():
        found[f"driver.{name}"] = tried(name, getattr(driver, name), OF_DRIVER.get(name, ()))
    for name in UTILS:
        found[f"driver.utils.{name}"] = tried(
            name, lambda *a, n=name: getattr(driver.utils, n)(*a), OF_UTILS.get(name, (0,))
        )
    return found


def weighted_sum_forward(x):
    said = walked()
    wrong = {name: what for name, what in said.items() if what not in ("answered", "refused")}
    assert not wrong, wrong
    unlike = {n for n, what in said.items() if (what == "refused") != (n.rpartition(".")[2] in MAY_BE_REFUSED)}
    assert not unlike, f"refused, or answered, against the table: {sorted(unlike)}"
    raise RuntimeError(f"{len(said)} members")
