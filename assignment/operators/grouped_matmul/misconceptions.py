"""What can go wrong in products in groups: which rows are whose, and each product."""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from assignment.operators.matmul.misconceptions import STEPS
from assignment.operators.misconception import Call, Misconception, Model, Models, rounded, table
from tests.grouped_matmul import oracle
from tests.grouped_matmul.oracle import Multiply

WRONG = "handout/grouped_matmul.md#what-goes-wrong"
ROWS = (16, 32, 64, 128, 256)  # of a tile
Groups = list[Tensor]  # the numbers of the rows of each


def is_backward(call: Call) -> bool:
    return len(call.tensors) > 3


def each_apart(call: Call, wrong: Callable[[Call, bool, bool], Sequence[Tensor]]) -> Iterator[Sequence[Tensor]]:
    """The results where y is wrong; of a backward pass grad_x, grad_weight or both."""
    ways = [(True, True), (True, False), (False, True)] if is_backward(call) else [(True, False)]
    return (wrong(call, *way) for way in ways)


def of_groups(groups: Callable[[Call, Groups, int], Iterator[Groups]]) -> Model:
    """Return the model in which other rows are those of each expert: groups(call, right ones, rows of x)."""

    def wrong(call: Call, these: Groups, right: Groups, in_rows: bool, in_weight: bool) -> Sequence[Tensor]:
        x, weight = (tensor.double() for tensor in call.tensors[:-1][-2:])
        if not is_backward(call):
            return [by_rows(x, weight, these)]
        grad_y = call.tensors[0].double()
        over = [x[rows].mT @ grad_y[rows] for rows in (these if in_weight else right)]
        return [by_rows(grad_y, weight.mT, these if in_rows else right), torch.stack(over)]

    def variants(call: Call) -> Iterator[Sequence[Tensor]]:
        n_rows = len(call.tensors[0])
        right = [torch.arange(n_rows)[rows] for rows in oracle.groups(call.tensors[-1])]
        for these in groups(call, right, n_rows):
            yield from each_apart(call, lambda *way, these=these: wrong(way[0], these, right, *way[1:]))

    return variants


def by_rows(x: Tensor, weight: Tensor, groups: Groups) -> Tensor:
    """Return the product of each expert's rows; 0 in those of none."""
    y = x.new_zeros(len(x), weight.shape[-1])
    for rows, matrix in zip(groups, weight, strict=True):
        y[rows] = x[rows] @ matrix
    return y


def of_products(ways: Callable[[Call], Iterator[Multiply]]) -> Model:
    """Return the model in which all products are wrong, in one of these ways."""

    def wrong(call: Call, multiply: Multiply, in_rows: bool, in_weight: bool) -> Sequence[Tensor]:
        x, weight, sizes = (tensor.double() if tensor.is_floating_point() else tensor for tensor in call.tensors[-3:])
        if not is_backward(call):
            return [oracle.by_group(x, weight, sizes, multiply)]
        grad_y, right = call.tensors[0].double(), torch.matmul
        return [
            oracle.by_group(grad_y, weight.mT, sizes, multiply if in_rows else right),
            oracle.over_groups(x, grad_y, sizes, multiply if in_weight else right),
        ]

    def variants(call: Call) -> Iterator[Sequence[Tensor]]:
        for multiply in ways(call):
            yield from each_apart(call, lambda *way, multiply=multiply: wrong(way[0], multiply, *way[1:]))

    return variants


def none(rows: Tensor) -> Tensor:
    return rows[:0]


def of_another(call: Call, right: Groups, n_rows: int) -> Iterator[Groups]:
    yield from (right[by:] + right[:by] for by in (1, -1))
    yield right[::-1]


def of_one(call: Call, right: Groups, n_rows: int) -> Iterator[Groups]:
    for expert in (0, len(right) - 1):
        yield [torch.cat(right) if i == expert else none(rows) for i, rows in enumerate(right)]


def left_out(call: Call, right: Groups, n_rows: int) -> Iterator[Groups]:
    for lost in (slice(-1, None), slice(0, 1), slice(1, None)):
        gone = range(len(right))[lost]
        yield [none(rows) if i in gone else rows for i, rows in enumerate(right)]


def behind_too(call: Call, right: Groups, n_rows: int) -> Iterator[Groups]:
    behind = torch.arange(n_rows)[sum(map(len, right)) :]
    for expert in (len(right) - 1, max((i for i, rows in enumerate(right) if len(rows)), default=0), 0):
        yield [torch.cat([rows, behind]) if i == expert else rows for i, rows in enumerate(right)]


def whole_tiles_alone(call: Call, right: Groups, n_rows: int) -> Iterator[Groups]:
    for size in ROWS:
        yield [rows[: len(rows) // size * size] for rows in right]
        yield [rows[:size] for rows in right]


def tiles_of_two(call: Call, right: Groups, n_rows: int) -> Iterator[Groups]:
    """Tiles of all rows, each of the expert of its first row or its last; or a group's tiles with rows beside it."""
    expert_of = torch.cat([torch.full((len(rows),), i) for i, rows in enumerate(right)])
    for size in ROWS:
        first = torch.arange(len(expert_of)) // size * size
        for row in (first, (first + size - 1).clamp(max=len(expert_of) - 1)):
            yield [(expert_of[row] == i).nonzero().flatten() for i in range(len(right))]
        for begin, end in ((1, size), (size, 1)):  # of which a group's first row, and its last, are made multiples
            yield [
                torch.arange(int(rows[0]) // begin * begin, min(int(rows[0]) + -(-len(rows) // end) * end, n_rows))
                if len(rows)
                else rows
                for rows in right
            ]


def from_sizes(call: Call, right: Groups, n_rows: int) -> Iterator[Groups]:
    """Each size as where its group begins, or ends."""
    sizes = call.tensors[-1].tolist()
    yield [torch.arange(min(size, n_rows), min(2 * size, n_rows)) for size in sizes]
    yield [torch.arange(begin, max(begin, end)) for begin, end in itertools.pairwise([0, *sizes])]


def all_rows(call: Call, right: Groups, n_rows: int) -> Iterator[Groups]:
    yield [torch.arange(n_rows)] * len(right)
    yield [torch.cat(right)] * len(right)


def some_terms(call: Call) -> Iterator[Multiply]:
    for step in STEPS:
        yield lambda a, b, step=step: a[:, :step] @ b[:step]
        yield lambda a, b, step=step: a[:, len(b) // step * step :] @ b[len(b) // step * step :]
        yield lambda a, b, step=step: a[:, : len(b) // step * step] @ b[: len(b) // step * step]
        yield lambda a, b, step=step: a[:, max(len(b) - 1, 0) // step * step :] @ b[max(len(b) - 1, 0) // step * step :]


def summed_in_16_bits(call: Call) -> Iterator[Multiply]:
    if call.dtype == torch.float32:
        return
    for dtype, step in itertools.product({call.dtype, torch.float16}, STEPS):
        cast = rounded(dtype)

        def multiply(a: Tensor, b: Tensor, cast: Callable = cast, step: int = step) -> Tensor:
            parts = zip(a.split(step, -1), b.split(step), strict=True)
            return functools.reduce(lambda total, part: cast(total + part[0] @ part[1]), parts, 0 * (a @ b))

        yield multiply


def factors_in_16_bits(call: Call) -> Iterator[Multiply]:
    for cast in map(rounded, (torch.bfloat16, torch.float16)):
        yield lambda a, b, cast=cast: cast(a) @ cast(b)


def scaled(call: Call) -> Iterator[Multiply]:
    yield lambda a, b: -(a @ b)
    yield lambda a, b: 2 * (a @ b)
    yield lambda a, b: a @ b / max(len(b), 1)


def transposed(call: Call) -> Iterator[Multiply]:
    if call.tensors[-2].shape[-1] == call.tensors[-2].shape[-2]:
        yield lambda a, b: a @ b.mT if b.shape[0] == b.shape[1] else a @ b


TOLD = """
another-experts-weight | algorithm | Your RESULT has the weight of another expert: the next, the one
    before, or in reverse order | Which expert is that of this tile, and where does its matrix begin?
one-expert-for-all | algorithm | Your RESULT has one expert for all rows |
    The expert is the group's: multiply its number by weight's stride along experts.
a-group-left-out | algorithm | Your RESULT leaves groups out: the last, the first, or all but one |
    How many programs, or rounds, are there for the groups?
tiles-of-two-groups | algorithm | Your RESULT has tiles of rows that reach into the next group |
    Tiles begin where their group begins, and end where it ends: mask rows by the end of the group.
whole-tiles-alone | algorithm | Your RESULT lacks the rows of a group after its last whole tile, or its
    first tile | Round up: a group of 65 rows has two tiles of 64.
rows-behind | algorithm | Your RESULT is not zero in rows behind the last group, which belong to no
    expert | Where do the groups end? It may be before the last row.
sizes-for-offsets | mathematics | Your RESULT takes the size of a group for the row at which it begins,
    or ends | A group begins after all groups before it: sum their sizes up.
some-terms-of-a-product | algorithm | Your RESULT has the sum over some of the terms only |
    Every tile of terms is added to the sum, the last one too, however few they are.
products-summed-in-16-bits | what-goes-wrong | Your RESULT has sums in 16 bits |
    The sum is float32, tl.dot's too; the cast comes once, at the store.
matrices-in-16-bits | what-goes-wrong | Your RESULT has factors that were rounded to 16 bits |
    float32 goes into tl.dot as it is: TF32 keeps 10 bits of it.
products-scaled | mathematics | Your RESULT has the other sign, is twice as large, or is a mean |
    What is the sum begun with, and is it divided?
weight-transposed | mathematics | Your RESULT has the weight transposed |
    y takes weight as it is, grad_x its transpose.
"""
MODELS_BY_NAME = {
    "another-experts-weight": of_groups(of_another),
    "one-expert-for-all": of_groups(of_one),
    "a-group-left-out": of_groups(left_out),
    "tiles-of-two-groups": of_groups(tiles_of_two),
    "whole-tiles-alone": of_groups(whole_tiles_alone),
    "rows-behind": of_groups(behind_too),
    "sizes-for-offsets": of_groups(from_sizes),
    "some-terms-of-a-product": of_products(some_terms),
    "products-summed-in-16-bits": of_products(summed_in_16_bits),
    "matrices-in-16-bits": of_products(factors_in_16_bits),
    "products-scaled": of_products(scaled),
    "weight-transposed": of_products(transposed),
}
OF_GRADIENTS = """\
sum-over-all-rows | mathematics | Your grad_weight has the sum over all rows for each expert |
    Only the rows of its group have seen its matrix.
"""


def told(result: str, prefix: str = "", rows: str = "", **models: Model) -> list[Misconception]:
    """Return the misconceptions of one direction, in which `result` comes out wrong."""
    return table("grouped_matmul", TOLD.replace("RESULT", result) + rows, MODELS_BY_NAME | models, prefix=prefix)


MODELS = {
    "grouped_matmul": Models(told("y"), WRONG, n_inner=2),
    "grouped_matmul_backward": Models(
        told("gradient", "backward-", OF_GRADIENTS, **{"sum-over-all-rows": of_groups(all_rows)}), WRONG, n_inner=2
    ),
}
