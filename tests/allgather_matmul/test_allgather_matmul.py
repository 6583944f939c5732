"""A product of rows on several GPUs, for practice: calls on 1 to 4 ranks, whose kernels run together."""

import torch

from tests import layouts
from tests.allgather_matmul import models
from tests.compare import Mismatch, TooMuchMoved, worst_margin
from tests.families import (
    DTYPES,
    LOW_PRECISION,
    SLACK,
    Subject,
    built,
    check_of,
    compiles,
    in_dtypes,
    laid_out,
    mistakes,
    parametrized,
    shapes,
    size,
)
from tests.inputs import LARGEST, apart, between, cancelling, drawn, normal, repeated

SLOTS = 64  # signals of each rank
MOST_RANKS = 4
TILE = 64


def of_ranks(shards, factors):
    """The inputs of each rank, without the tables: its rows, its own b, and its part of the symmetric memory."""
    k, dtype = len(factors[0]), factors[0].dtype
    rows = torch.tensor([len(shard) for shard in shards], dtype=torch.int32)
    heap = len(shards), max(1, *map(len, shards)), k
    return [
        (shard, b, rows, torch.zeros(heap, dtype=dtype), torch.zeros(len(shards), SLOTS, dtype=torch.int32))
        for shard, b in zip(shards, factors, strict=True)
    ]


def inputs(rng, shape, dtype=torch.float32):
    """The inputs of each rank; a shape is the rows of all ranks, k and n.

    Rows of a and columns of b have means of their own, so that no two are alike.
    """
    sizes, k, n = drawn(shape, rng)
    shards = [normal(rng, rows, k) + 0.5 * normal(rng, rows, 1) for rows in sizes]
    factors = [normal(rng, k, n) + 0.5 * normal(rng, 1, n) for _ in sizes]
    return of_ranks([shard.to(dtype) for shard in shards], [b.to(dtype) for b in factors])


def of_one_rank(rng, shape, dtype=torch.float32):
    """All inputs of a rank that is alone."""
    [own] = inputs(rng, shape, dtype)
    return *own, *torch.zeros(2, 1, dtype=torch.int64)


def shuffled(*sizes):
    """The rows of the ranks, in any order."""

    def of(rng, k, n):
        own = apart(rng)
        return [sizes[i] for i in torch.randperm(len(sizes), generator=own).tolist()], k, n

    return of


def in_any_order(k, n, *sizes):
    return lambda rng: shuffled(*sizes)(rng, k, n)


def any_sizes(rng):
    own = apart(rng)
    return [between(own, 0, 70) for _ in range(between(own, 2, MOST_RANKS))], 40, 50


def sums_that_cancel(rng, dtype):
    """Sums of large terms that leave the first of a's columns alone."""
    sizes, k, n = [TILE, TILE], 2 * TILE, TILE
    shards = [repeated(normal(rng, k, rows, dtype=dtype)).mT.contiguous() for rows in sizes]
    return of_ranks(shards, [cancelling(rng, k, n, dtype=dtype) for _ in sizes])


def whole_numbers(rng, dtype):
    """Integers that TF32 holds, and bfloat16 does not."""
    most = LARGEST[torch.float32]
    parts = [torch.randint(-most, most + 1, (TILE, TILE), generator=rng).to(dtype) for _ in range(4)]
    return of_ranks(parts[:2], parts[2:])


def of_floats(*which):
    """Lay out a_shard, b or both; of rows every second element is in memory."""

    def of_way(way):
        def laid(ranks, memory_bytes):
            return [
                (*(way(x) if i in which else x for i, x in enumerate(own[:2])), twice(own[2]), *own[3:])
                for own in ranks
            ]

        return laid

    return of_way


def twice(rows):
    return torch.stack([rows, rows + 1], 1)[:, 0]


ALONE = Subject("allgather_matmul", of_one_rank, models.allgather_matmul)
RANKS = Subject("allgather_matmul", inputs, models.allgather_matmul)
TWO = shapes({"two ranks": ([TILE, TILE], TILE, TILE)})
PLAIN = TWO | shapes(
    {
        "four ranks": ([TILE] * MOST_RANKS, TILE, 2 * TILE),
        "several tiles of each": ([2 * TILE, 2 * TILE], TILE, TILE),
    }
)
MANY = shapes({"two ranks, many tiles of rows": ([TILE, 270 * TILE], 4, 8)})
UNEVEN = shapes(
    {
        "uneven ranks": in_any_order(TILE, TILE, TILE // 2, TILE, 2 * TILE),
        "rows that no tile fits": in_any_order(32, 40, 33, 65, 7, 50),
        "any rows": any_sizes,
    }
)
EMPTY = shapes(
    {
        "a rank with no rows": in_any_order(32, 40, 0, 50, 60),
        "one rank with all rows": in_any_order(32, 40, 0, 0, 70),
        "no rows at all": ([0, 0], 32, 40),
    }
)
ONE = shapes({"one rank": ([100], 32, 40), "one rank, one row": ([1], 16, 16), "one rank, no rows": ([0], 16, 16)})
RAGGED = shapes(
    {
        "one row, k and n of 1": ([1, 1], 1, 1),
        "k = 1": ([20, 33], 1, 50),
        "n = 1": ([20, 33], 70, 1),
        "one past a tile": ([65, 64], 129, 65),
        "any size": lambda rng: ([40, 25], between(rng, 1, 150), between(rng, 1, 150)),
    }
)
CALLS = shapes(
    {
        "two ranks": ([3 * TILE, 3 * TILE], 16, 5 * TILE),  # several tiles of each, however large
        "three ranks": in_any_order(32, 40, 0, 50, 60),
    }
)
ODD = shapes({"odd k": ([40, 25], 67, 33), "k = 68": ([40, 25], 68, 40)})
STRIDED = shapes({"two ranks": ([70, 50], 64, 48)})
BOTH = of_floats(0, 1)
STRIDES = {name: BOTH(way) for name, way in layouts.EACH.items() if name not in ("transposed", "heads last")}
STRIDES |= {"a_shard transposed": of_floats(0)(layouts.transposed), "b transposed": of_floats(1)(layouts.transposed)}
MISTAKES = {
    "k differs": lambda a, b, *others: (a, b[:-1], *others),
    "dtypes differ": lambda a, b, *others: (a, b.bfloat16(), *others),
    "a_shard of another size": lambda a, *others: (a[:-1], *others),
    "b with a batch dimension": lambda a, b, *others: (a, b.unsqueeze(0), *others),
    "rows in float32": lambda a, b, rows, *others: (a, b, rows.float(), *others),
    "a buffer that is too small": lambda a, b, rows, buffer, *others: (a, b, rows, buffer[:, :-1], *others),
}
# Constant, unlike all others: what was compiled is remembered by its shapes, and saves half of a run.
COMPILED = shapes({"256 rows of 128 times 128 by 256": ([4 * TILE], 2 * TILE, 4 * TILE)})
COSTLY = shapes({"two ranks": in_any_order(TILE, 9 * TILE, TILE, 2 * TILE)})  # more columns than a tile has


def compare(results, ranks, is_exact):
    """Return the largest margin of the results of all ranks; raises Mismatch that says whose is wrong."""
    margins = []
    for rank, (own, result) in enumerate(zip(ranks, results, strict=True)):
        try:
            margins.append(worst_margin(result, models.allgather_matmul(*own, rank=rank, ranks=ranks), is_exact))
        except Mismatch as wrong:
            wrong.args = (f"on rank {rank} of {len(ranks)}: {wrong}",)
            raise
    return max(margins)


def values(points, claim, subject, cases):
    """Return a check that all ranks have right results, where asked for in several calls on the same buffers."""

    @parametrized("case", cases)
    def test(run, record_property, rng, case):
        if cases is MANY:
            run.on_smallest_gpu()  # a grid of some programs for each multiprocessor is held whole
        n_calls = 3 if case in CALLS.values() else 1
        case = case.drawn(rng)
        calls = [case.tensors(subject, rng) for _ in range(n_calls)]
        for call, results in enumerate(run.ranks(subject.function, *calls), 1):
            try:
                record_property("margin", compare(results, calls[call - 1], run.has_exact_margins))
            except Mismatch as wrong:
                wrong.args = (f"call {call} of {n_calls}, {wrong}" if n_calls > 1 else str(wrong),)
                raise

    return check_of(points, claim, "", test)


def traffic(points, claim, cases):
    """Return a check of the bytes that come to each rank from others: their rows, once."""

    @parametrized("case", cases)
    def test(run, record_property, rng, case):
        ranks = case.tensors(RANKS, rng)
        links = run.links(RANKS.function, ranks)
        record_property("margin", compare(links.results[0], ranks, run.has_exact_margins))
        for rank in range(len(ranks)):
            least = sum(size(own[0]) for other, own in enumerate(ranks) if other != rank)
            came = sum(of_rank[rank] for other, of_rank in enumerate(links.requested) if other != rank)
            if came > (1 + SLACK) * least:
                raise TooMuchMoved(
                    f"{came:,} bytes come to rank {rank} from others, {came / least:.2f} times their rows, which are "
                    f"{least:,}: expected once\n  send, or load, each row once, and keep it in buffer"
                )
            if came < least:
                raise Mismatch(f"{came:,} bytes come to rank {rank} from others: expected their rows, {least:,}")

    return check_of(points, claim, "", test)


test_values = values(
    10, "allgather_matmul returns the rows of all ranks times b, on 2 to 4 ranks, in float32", RANKS, PLAIN
)
test_uneven = values(1.5, "allgather_matmul is right where ranks have different numbers of rows", RANKS, UNEVEN)
test_many = values(0.5, "allgather_matmul is right where a GPU holds a part of its programs at a time", RANKS, MANY)
test_empty = values(1, "allgather_matmul is right where ranks have no rows", RANKS, EMPTY)
test_one_rank = values(1, "allgather_matmul is right on one rank", RANKS, ONE)
test_calls = values(
    3,
    "allgather_matmul is right in each of several calls on the same buffers and signals",
    RANKS,
    CALLS,
)
test_ragged = values(1, "allgather_matmul is right for every k and n from 1", RANKS, RAGGED)
test_precision = values(
    0.5,
    "allgather_matmul keeps at least the 10 bits of TF32: integers of 9 come out right",
    RANKS,
    built([whole_numbers]),
)
test_16_bit = values(
    1.5,
    "allgather_matmul takes bfloat16 and float16, sums in float32 and returns the dtype of a_shard",
    RANKS,
    in_dtypes(built([sums_that_cancel]) | ODD, LOW_PRECISION),
)
test_strides = values(
    1, "allgather_matmul reads a_shard, b and rows through their strides", RANKS, laid_out(STRIDED, STRIDES)
)
test_mistakes = mistakes(
    0.5, "allgather_matmul raises ValueError for inputs that do not fit together", ALONE, ([24], 16, 40), MISTAKES
)
test_traffic = traffic(2, "allgather_matmul moves each row once to each other rank", in_dtypes(COSTLY, DTYPES))
test_compiles = compiles(
    0.5,
    "allgather_matmul's kernels compile and fit on A100, H100 and B200",
    [ALONE],
    in_dtypes(COMPILED, DTYPES),
)
