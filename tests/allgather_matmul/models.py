"""What a product of gathered rows returns, and how far a right kernel may be from it: see tests/compare.py."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from tests.allgather_matmul import oracle
from tests.compare import Expected
from tests.matmul import models


def allgather_matmul(
    a_shard: Tensor, b: Tensor, *heap: Tensor, rank: int = 0, ranks: Sequence[Sequence[Tensor]] = (), **others: Any
) -> dict[str, Expected]:
    return models.matmul(oracle.gathered(a_shard, rank, ranks), b)
