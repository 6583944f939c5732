"""Whether results are those of a library, bit for bit: who computes in another order rounds otherwise."""

import contextlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from assignment.timing import workloads
from assignment.timing.peers import cudnn, flash2

LIBRARIES: dict[str, dict[str, Callable[..., Sequence[Tensor]]]] = {
    "flash_forward_triton": {
        "FlashAttention-2": flash2.flash_forward_triton,
        "cuDNN": cudnn.flash_forward_triton,
        "PyTorch's memory-efficient attention": workloads.attend,
    },
    "flash_backward_triton": {
        "FlashAttention-2": flash2.flash_backward_triton,
        "cuDNN": cudnn.flash_backward_triton,
    },
}


def twins_of(workload: workloads.Workload, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> set[str]:
    """The libraries that return the same in one of the results, every element of millions."""
    found = set()
    for name, library in LIBRARIES.get(workload.function, {}).items():
        with contextlib.suppress(RuntimeError):  # it is not to be had here
            others = library(*inputs, **workload.options)
            if any(torch.equal(ours, theirs.reshape(ours.shape)) for ours, theirs in zip(results, others, strict=True)):
                found.add(name)
    return found
