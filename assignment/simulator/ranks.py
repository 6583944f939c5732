"""Several ranks in one process, for now one after the other: launches that wait for other ranks do not end."""

from collections.abc import Callable, Sequence

import torch

from .calls import Call


class World:
    """Ranks in one process."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls

    def share(self, rank: int, name: str, tensor: torch.Tensor) -> None:
        """Make a tensor of a rank's symmetric heap known."""

    def play(self, hosts: Sequence[Callable[[], None]]) -> None:
        """Run the host code of each rank; what it raises has its `rank`."""
        for rank, host in enumerate(hosts):
            try:
                with self._calls[rank]:
                    host()
            except Exception as error:
                error.rank = rank  # type: ignore[attr-defined]
                raise
