"""A product whose first factor lies in parts on several GPUs, which gather it while they multiply."""

from typing import Any

from tests.matmul.record import count_products, in_words
from tests.operators import Function, Operator, Problem


def count(tensors: dict[str, Any]) -> int:
    """The elements of a, of which buffer has room for more, or of b."""
    return count_products({name: tensors[name] for name in ("buffer", "b")})


OPERATOR = Operator(
    name="allgather_matmul",
    file="cs336_kernels/practice/allgather_matmul.py",
    position=12,
    follows="matmul",
    problems=(Problem("allgather_matmul", "A product of rows on several GPUs", "handout/allgather_matmul.md"),),
    functions=(
        Function(
            name="allgather_matmul",
            problem="allgather_matmul",
            inputs=("a_shard", "b", "rows", "buffer", "signals", "buffers", "pads"),
            outputs=("c",),
            oracle="allgather_matmul",
        ),
    ),
    sized_by="a_shard",
    structure=("rows",),
    heap=("buffer", "signals"),
    tables=(("buffers", "buffer"), ("pads", "signals")),
    count=count,
    say=in_words,
)
