"""The tensors of calls on several ranks, as they are sent."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tests import operators


def sent(function: str, calls: Sequence[Sequence[Sequence[Tensor]]]) -> list[Tensor]:
    """Return the inputs of all calls and ranks: each rank's heap is that of its first call, tables are still empty."""
    names, operator = operators.functions()[function].inputs, operators.operator_of(function)
    n_ranks, tables = len(calls[0]), dict(operator.tables)
    kept = {*operator.heap, *tables}  # from call to call
    firsts: list[dict[str, Tensor]] = []
    flat = []
    for call in calls:
        for rank in range(n_ranks):
            named = dict(zip([name for name in names if name not in tables], call[rank], strict=True))
            named |= {table: torch.zeros(n_ranks, dtype=torch.int64) for table in tables}
            firsts.append(named)
            flat += [(firsts[rank] if name in kept else named)[name] for name in names]
    return flat
