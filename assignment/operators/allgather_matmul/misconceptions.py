"""What can go wrong in a product of gathered rows: which rank's rows are where; and the product itself."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from assignment.operators.matmul.misconceptions import MISCONCEPTIONS
from assignment.operators.misconception import Call, Misconception, Model, Models, table
from tests.allgather_matmul import oracle

WRONG = "handout/allgather_matmul.md#what-goes-wrong"
Shards = list[Tensor]  # of all ranks


def of_shards(places: Callable[[Call, Shards], Iterator[Tensor]]) -> Model:
    """Return the model in which a has other rows: places(call, right ones by rank)."""

    def variants(call: Call) -> Iterator[Sequence[Tensor]]:
        ranks, rank = call.options.get("ranks", ()), call.options.get("rank", 0)
        shards = [call.tensors[0] if i == rank else inputs[0] for i, inputs in enumerate(ranks)]
        if len(shards) > 1:
            for a in places(call, [shard.double() for shard in shards]):
                yield [a @ call.tensors[1].double()]

    return variants


def of_product(model: Model) -> Model:
    """Return the model in which the product is wrong, of the right rows."""

    def variants(call: Call) -> Iterator[Sequence[Tensor]]:
        ranks, rank = call.options.get("ranks", ()), call.options.get("rank", 0)
        yield from model(replace(call, tensors=[oracle.gathered(call.tensors[0], rank, ranks), call.tensors[1]]))

    return variants


def of_another(call: Call, shards: Shards) -> Iterator[Tensor]:
    """The rows of the next rank, of the one before, in reverse order, or beginning with the own ones."""
    rank, n = call.options["rank"], len(shards)
    orders = [[(i + by) % n for i in range(n)] for by in (1, -1, rank, -rank)] + [[*range(n)][::-1]]
    for order in orders:
        taken = [fitted(shards[other], len(shard)) for shard, other in zip(shards, order, strict=True)]
        if order != [*range(n)]:
            yield torch.cat(taken)
            yield torch.cat([shards[i] for i in order])


def of_own(call: Call, shards: Shards) -> Iterator[Tensor]:
    """The own rows in all places, or in those of one other rank."""
    own = shards[call.options["rank"]]
    yield torch.cat([fitted(own, len(shard)) for shard in shards])
    for lost in range(len(shards)):
        yield torch.cat([fitted(own, len(shard)) if i == lost else shard for i, shard in enumerate(shards)])


def left_out(call: Call, shards: Shards) -> Iterator[Tensor]:
    """Zeros in place of one rank's rows, or of all others'."""
    rank = call.options["rank"]
    for kept in [{rank}, *({*range(len(shards))} - {lost} for lost in range(len(shards)))]:
        yield torch.cat([shard if i in kept else 0 * shard for i, shard in enumerate(shards)])


def of_another_call(call: Call, shards: Shards) -> Iterator[Tensor]:
    """The rows of another call, of all other ranks or of one."""
    rank = call.options["rank"]
    for ranks in call.options.get("others", ()):
        theirs = [inputs[0].double() for inputs in ranks]
        for taken in [{*range(len(shards))} - {rank}, *({i} for i in range(len(shards)))]:
            yield torch.cat([theirs[i] if i in taken else shard for i, shard in enumerate(shards)])


def fitted(shard: Tensor, rows: int) -> Tensor:
    """Return the first rows of a shard; zeros where it has no more."""
    return torch.cat([shard[:rows], shard.new_zeros(max(rows - len(shard), 0), shard.shape[1])])


TOLD = """
another-ranks-rows | algorithm | Your c has the rows of another rank: the next, the one before, in reverse order, or
    beginning with this rank's own | buffer[r] holds the rows of rank r, on every rank;
    in c they begin after those of all ranks before.
own-rows-for-all | algorithm | Your c has this rank's own rows in place of another's | Which part of buffer is loaded,
    and to which part of theirs are own rows stored?
a-rank-left-out | algorithm | Your c has zeros in place of a rank's rows | To whom are rows sent, and is every rank's
    part of buffer multiplied?
another-calls-rows | algorithm | Your c has rows of another call | Do others store to buffer before it was read?
"""
MODELS_BY_NAME = {
    "another-ranks-rows": of_shards(of_another),
    "own-rows-for-all": of_shards(of_own),
    "a-rank-left-out": of_shards(left_out),
    "another-calls-rows": of_shards(of_another_call),
}
PRODUCT: list[Misconception] = [
    replace(one, name=f"gathered-{one.name}", says=one.says.replace("result", "c"), model=of_product(one.model))
    for one in MISCONCEPTIONS
]
MODELS = {"allgather_matmul": Models([*table("allgather_matmul", TOLD, MODELS_BY_NAME), *PRODUCT], WRONG, n_inner=2)}
