"""The ranks of a request in one process: their heap, the tables of its addresses, and what the simulator sees."""

import torch

from assignment.protocol.requests import Ranks

from . import calls, undefined
from .ranks import World


class OnRanks:
    """Calls on several ranks, before they are made.

    Attributes:
        inputs: by rank and call.
        heap: the places of inputs that kernels of all ranks store to.
        fresh: tensors of the heap in which nothing is written yet.
        seen: each rank's calls, which the simulator takes for one.
    """

    def __init__(self, request: Ranks, tensors: list[torch.Tensor], follower: calls.Follower | None = None) -> None:
        """Make the heap known, and fill its addresses into the tables."""
        about, self.heap = request.about, {*request.about["heap"].values()}
        self.inputs = [request.of_rank(tensors, rank) for rank in range(request.ranks)]
        self.seen = [self._call(request, inputs, follower) for inputs in self.inputs]
        self.world = World(self.seen)
        shared = [
            (rank, name, inputs[0][at]) for rank, inputs in enumerate(self.inputs) for name, at in about["heap"].items()
        ]
        self.fresh = [tensor for *_, tensor in shared if tensor.is_floating_point()]
        for tensor in self.fresh:
            undefined.fill(tensor)
        for rank, name, tensor in shared:
            self.world.share(rank, name, tensor)
        for table, of in about["tables"]:
            addresses = torch.tensor([of_rank[0][of].data_ptr() for of_rank in self.inputs])
            for tensor in (inputs[table] for of_rank in self.inputs for inputs in of_rank):
                tensor.copy_(addresses)

    def moved(self) -> list[list[list[int]]]:
        """Return the bytes that links have moved, of distinct elements in each launch and as often as asked for.

        Both are by the ranks that they come from and go to.
        """
        ranks = range(len(self.inputs))
        both = [[[0 for _ in ranks] for _ in ranks] for _ in range(2)]
        for moved in self.world.transfers:
            for table, nbytes in zip(both, (moved.distinct, moved.requested), strict=True):
                table[moved.origin][moved.to] += nbytes
        return both

    def _call(self, request: Ranks, inputs: list[list[torch.Tensor]], follower: calls.Follower | None) -> calls.Call:
        given, n, notes = [tensor for call in inputs for tensor in call], len(inputs[0]), request.notes_constants
        call = calls.Call(given, request.order, n_arguments=n, notes_constants=notes, follower=follower)
        for place in self.heap:
            call.storages.pop(inputs[0][place].untyped_storage().data_ptr(), None)
        return call
