"""The tensors that come with a reply: whether they are those of the request, and whose memory they are."""

import torch
from torch import Tensor

from assignment.protocol.requests import COLUMNS, LANES, Again, Costs, Direct, Gradients, Kept, Largest, Ranks


def is_program(tensors: list[Tensor]) -> bool:
    """Return whether these are what goes with what a recorder says: bytes."""
    return len(tensors) == 1 and tensors[0].dtype == torch.uint8


def fits(request: Direct | Ranks, groups: list[list[Tensor]], n_tensors: int) -> bool:
    """Return whether the groups of results are those that the request has."""
    sizes = [len(group) for group in groups]
    match request:
        case Gradients():
            return sizes == [len(request.wrt)] * request.times
        case Again():
            inputs = n_tensors // 2
            return len(sizes) == 4 and sizes[1] == sizes[3] == inputs and sizes[0] == sizes[2] > 0
        case Ranks():
            n, is_even = request.ranks, len(set(sizes[:-1])) == 1
            return (
                is_even
                and len(sizes) == n * request.calls + 1
                and are_figures(groups[-1], [(2, n, n), (n, len(LANES), COLUMNS)])
            )
        case Costs():
            return len(sizes) == 2 and are_figures(groups[1], [(n_tensors,), (n_tensors,), (sizes[0],), ()])
        case Largest():
            return len(sizes) == 2 and are_figures(groups[1], [()])
        case Kept():
            return len(sizes) == 2 and are_figures(groups[0], [()]) and sizes[1] == n_tensors
    return len(sizes) == 1


def are_figures(tensors: list[Tensor], shapes: list[tuple[int, ...]]) -> bool:
    """Return whether these are counts, in these shapes."""
    return [tuple(tensor.shape) for tensor in tensors] == shapes and all(
        tensor.dtype == torch.int64 and bool((tensor >= 0).all()) for tensor in tensors
    )


def same_bits(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(a.flatten().view(torch.uint8), b.flatten().view(torch.uint8))


def share_memory(some: list[Tensor], others: list[Tensor]) -> bool:
    storages = {tensor.untyped_storage().data_ptr() for tensor in others if tensor.numel()}
    return any(tensor.untyped_storage().data_ptr() in storages for tensor in some if tensor.numel())
