"""Plays the programs of several ranks together, on one symmetric heap."""

from collections.abc import Callable

import torch

from assignment.calling.probes import OF_EARLIER, OF_INPUT, InputsBefore
from assignment.protocol.program import Program
from assignment.protocol.requests import Ranks
from assignment.simulator.on_ranks import OnRanks

from .labels import FRESH
from .play import Played, Player, Turn, refuse_large


class RanksPlayed(OnRanks):
    """Calls on several ranks, by rank and call: their programs, and what came of them."""

    def __init__(
        self, players: list[Player], request: Ranks, programs: list[Program], tensors: list[torch.Tensor]
    ) -> None:
        """Set up the ranks, whose players share their work; programs come rank by rank, tensors call by call."""
        self.work = players[0].work
        super().__init__(request, tensors, self.work)
        self._players, self._request, n = players, request, request.calls
        self.programs = [programs[rank * n : rank * n + n] for rank in range(request.ranks)]
        self.played: list[list[Played]] = [[] for _ in self.programs]
        firsts = range(0, len(tensors), len(self.inputs[0][0]))
        structure = {place + first for place in request.about["structure"] for first in firsts}
        self.work.begin(request.about, has_gradients=False, inputs=tensors, structure=structure)
        for tensor in self.fresh:
            self.work.made(tensor, FRESH)
        self._before = [[self._but_heap(inputs) for inputs in of_rank] for of_rank in self.inputs]

    def _but_heap(self, inputs: list[torch.Tensor]) -> InputsBefore:
        """Return the inputs of a call that must stay as they are now."""
        return InputsBefore([x.new_empty(0) if place in self.heap else x for place, x in enumerate(inputs)])

    def play(self) -> None:
        """Play all programs; raises what playing one does, with its `rank`."""
        with torch.no_grad():
            self.world.play([self._host(rank) for rank in range(self._request.ranks)])

    def _host(self, rank: int) -> Callable[[], list[torch.Tensor]]:
        def run() -> list[torch.Tensor]:
            for program, inputs in zip(self.programs[rank], self.inputs[rank], strict=True):
                refuse_large(program)
                turn = Turn(self._players[rank], program, inputs, self.seen[rank], self._request)
                self.played[rank].append(turn.run())
            return [tensor for played in self.played[rank] for group in played.groups for tensor in group]

        return run

    def misuse(self, rank: int) -> str:
        """Return what calls on a rank did to their inputs, or returned that is not new memory."""
        own = InputsBefore([self.inputs[rank][0][place] for place in self.heap])
        earlier: set[int] = set()
        for before, played in zip(self._before[rank], self.played[rank], strict=True):
            results = [tensor for tensor in played.groups[0] if tensor.numel()]
            if why := before.misuse(results) or (OF_INPUT if own.shares_memory(results) else ""):
                return why
            storages = {tensor.untyped_storage().data_ptr() for tensor in results}
            if storages & earlier:
                return OF_EARLIER
            earlier |= storages
        return ""
