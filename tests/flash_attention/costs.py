"""What attention may read more than once, and may not make: counted exactly in the simulator."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Generator, Tensor

from tests.compare import TooMuchMoved
from tests.families import SLACK, Case, Subject, Test, check_of, margin_of_right, moved, parametrized, size
from tests.flash_attention.inputs import BOTH, Attention, many_tokens

HALF = 0.85  # of the repeated reads without is_causal: half of the tiles, those of the diagonal, and a few rows


def visits(shape: Attention, is_causal: bool, q_tile: int, k_tile: int) -> float:
    """Return how often the keys of a batch are read if each tile of queries reads those that it sees, in whole tiles,
    once.
    """
    seen = 0
    for first in range(0, shape.n_queries, q_tile):
        visible = first + q_tile if is_causal else shape.n_keys
        seen += min(shape.n_keys, math.ceil(visible / k_tile) * k_tile)
    return seen / shape.n_keys


def keys_once_a_tile(costs: Any, tensors: Mapping[str, Tensor], case: Case) -> None:
    """Raise Mismatch if a tile of queries reads keys or values twice, or such as it does not see."""
    is_causal = case.options["is_causal"]
    q_tile = costs.tile_rows[0] or 1
    for position, name in ((1, "k"), (2, "v")):
        times = visits(case.shape, is_causal, q_tile, costs.tile_rows[position] or 1)
        remedy = f"each of the tiles of {q_tile} queries reads the keys once"
        remedy += ", in whole tiles, and none beyond its last query" if is_causal else ""
        tensor_size = size(tensors[name])
        moved("read", name, costs.read[position], tensor_size, times, SLACK * tensor_size, remedy)


def half_where_causal(points: float, claim: str, subject: Subject, case: Case) -> Test:
    """Return a check that tiles above the diagonal are left out, by the bytes read with is_causal and without."""

    def test(costs_of: Any, rng: Generator) -> None:
        shape = case.drawn(rng).shape
        read = []
        for is_causal in (False, True):
            tensors = subject.build(rng, shape, is_causal=is_causal)
            expected = subject.expected(*tensors, is_causal=is_causal)
            read.append(costs_of(subject.function, *tensors, is_causal=is_causal, expected=expected).read)
        for name, tensor, full, causal in zip(("grad_o", "q", "k", "v"), tensors, *read, strict=False):
            again = [nbytes - size(tensor) for nbytes in (full, causal)]  # beyond the one time that all must be read
            if again[1] > HALF * again[0] + SLACK * size(tensor):
                raise TooMuchMoved(
                    f"{name} is read {full / size(tensor):.2f} times, with is_causal {causal / size(tensor):.2f} "
                    "times: expected about half as often\n"
                    "  start and end the loops at the tiles of the diagonal: beyond it p is 0"
                )

    return check_of(points, claim, "", test)


def memory(points: float, claim: str, subject: Subject) -> Test:
    """Return a check that the largest tensor made in a call is far smaller than n_queries × n_keys.

    What flash_backward_pytorch makes is not graded: torch.compile, which it may use, fuses that away, and is off in the
    simulator.
    """

    @parametrized("options", BOTH)
    def test(run: Any, rng: Generator, record_property: Any, options: dict[str, bool]) -> None:
        tensors = subject.build(rng, many_tokens(rng), **options)
        results, largest = run.largest(subject.function, *tensors, **options)
        why = "costs are counted of right results; this one is wrong"
        expected = subject.model(*tensors, **options)
        record_property("margin", margin_of_right(results, expected, why, run.has_exact_margins))
        n = results[0].shape[-2]
        if largest >= n**2 // 4:
            raise TooMuchMoved(
                f"for {n} queries and keys a tensor of {largest:,} elements is made; expected fewer than "
                f"n²/4 = {n**2 // 4:,}\n  hold a tile of the scores at a time, never all of them"
            )

    return check_of(points, claim, "", test)
