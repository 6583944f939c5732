"""What a product of gathered rows means, in float64."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int32, Int64
from torch import Tensor


def allgather_matmul(
    a_shard: Float[Tensor, "own k"],
    b: Float[Tensor, "k n"],
    rows: Int32[Tensor, " ranks"],
    buffer: Float[Tensor, "ranks most k"],
    signals: Int32[Tensor, "ranks 64"],
    buffers: Int64[Tensor, " ranks"],
    pads: Int64[Tensor, " ranks"],
    rank: int = 0,
    call: int = 1,
    ranks: Sequence[Sequence[Tensor]] = (),
    others: Sequence[Sequence[Sequence[Tensor]]] = (),
) -> Float[Tensor, "all n"]:
    """c = a b, where a has the rows of all ranks, one after the other.

    `ranks` are the inputs of each, `others` those of other calls.
    """
    return gathered(a_shard, rank, ranks).double() @ b.double()


def gathered(a_shard: Tensor, rank: int, ranks: Sequence[Sequence[Tensor]]) -> Float[Tensor, "all k"]:
    """Return the rows of all ranks."""
    return torch.cat([a_shard if i == rank else inputs[0] for i, inputs in enumerate(ranks)] or [a_shard])
