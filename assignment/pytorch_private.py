"""What is used of PyTorch beyond its documentation: the one module to open when PyTorch is upgraded.

Private names are imported from here alone. Of public objects these attributes are used where they
are needed: `_cdata` of storages, which tells two apart; `_version` of tensors; `_schema` of operations.
"""

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor
from torch import _scaled_mm as scaled_mm
from torch import _tensor_str as tensor_str
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
from torch._compile import _disable_dynamo as not_compiled
from torch._ops import OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.cuda import _sleep as sleep_on_gpu
from torch.overrides import _pop_mode as pop_function_mode
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes as disable_current_modes
from torch.utils._python_dispatch import _pop_mode as pop_dispatch_mode
from torch.utils._pytree import tree_map

CHECKED = ("2.11.0", "2.13.0", "2.14.0", "2.15.0")  # with all that stands here

# what operations take and return
_Kind: TypeAlias = torch.dtype | torch.device | torch.layout | torch.memory_format
Argument: TypeAlias = Tensor | complex | str | _Kind | torch.Generator | Sequence["Argument"] | None
Arguments: TypeAlias = tuple[Argument, ...]
Keywords: TypeAlias = dict[str, Argument]


def tensors_of(tree: Argument | Keywords | tuple[Sequence[Argument], Keywords | None]) -> list[Tensor]:
    """Return all tensors in nested arguments or results; torch.utils._pytree takes several times as long."""
    if isinstance(tree, Tensor):
        return [tree]
    found = []
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, (list, tuple)) else ():
        if isinstance(part, Tensor):
            found.append(part)
        elif isinstance(part, (list, tuple, dict)):
            found += tensors_of(part)
    return found


def has_storage(tensor: Tensor) -> bool:
    """Return whether a tensor lies in memory of its own, as a sparse or nested one, or one of torch.vmap, does not."""
    try:
        tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return False
    return tensor.layout == torch.strided and not tensor.is_nested


def is_in_memory(tensor: Tensor) -> bool:
    """Return whether a tensor's elements lie in ordinary memory, whatever a function mode says of its device."""
    with torch._C.DisableTorchFunction():
        return tensor.layout == torch.strided and tensor.device.type == "cpu"


def faked(mode: FakeTensorMode, tensor: Tensor) -> Tensor:
    """Return a tensor of this form without data, on the CPU, whatever a function mode says of its device."""
    with torch._C.DisableTorchFunction():
        return mode.from_tensor(tensor)


class SymmetricHeap:
    """Memory on the GPUs of several processes, which meet by a file: each can reach all of it."""

    def __init__(self, name: str, folder: str, rank: int, ranks: int) -> None:
        """Meet under a name, in a folder that all have; there must be no such file."""
        from torch._C import _distributed_c10d as c10d  # not in every build

        self._memory, self._name, self._rank, self._ranks = c10d._SymmetricMemory, name, rank, ranks
        self._store = c10d.FileStore(f"{folder}/{name}", ranks)
        self._group = c10d.ProcessGroup(self._store, rank, ranks)  # without a backend: addresses alone are exchanged
        c10d._register_process_group(name, self._group)  # type: ignore[arg-type]

    def shared(self, nbytes: int) -> tuple[Tensor, list[int]]:
        """Return so many bytes here, and the addresses of those of all ranks; all must ask in the same order."""
        device = torch.device("cuda", torch.cuda.current_device())
        here = self._memory.empty_strided_p2p((nbytes,), (1,), torch.uint8, device)
        addresses = self._memory.rendezvous(here, self._name).buffer_ptrs
        return here, [address + here.data_ptr() - addresses[self._rank] for address in addresses]

    def meet(self, where: str) -> None:
        """Wait until all ranks are here, with what they have launched."""
        torch.cuda.synchronize()
        self._store.set(f"{where} {self._rank}", "here")
        self._store.wait([f"{where} {rank}" for rank in range(self._ranks)])


DEVICE_CONSTRUCTORS = frozenset(_device_constructors())  # as PyTorch has them: some are replaced later
construct_storage_from_data_pointer = torch._C._construct_storage_from_data_pointer
new_shared_cuda = torch.UntypedStorage._new_shared_cuda
parse_to = torch._C._nn._parse_to
is_for = torch._C._dispatch_has_kernel_for_dispatch_key
has_kernel = torch._C._dispatch_has_kernel
operation_names = torch._C._dispatch_get_all_op_names
n_dispatch_modes = torch._C._len_torch_dispatch_stack
n_function_modes = torch._C._len_torch_function_stack
set_deterministic_algorithms = torch._C._set_deterministic_algorithms
