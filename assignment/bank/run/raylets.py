"""Several nodes of a Ray cluster on this machine: a head that grades nothing, and nodes that can be killed."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SIZES: dict[str, int] = {"object_store_memory": 80 << 20, "memory": 64 << 30}  # bytes; the memory is not taken


class Raylets:
    """A cluster. Each node has a temporary folder of its own: two in one unpack the same checkout over each other."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "include_dashboard": False, **SIZES}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.address = str(self._cluster.address)
        self.nodes: list[Any] = []
        self._folders: dict[int, str] = {}  # by node

    def add(self, cpus: int = 1) -> None:
        """Start a node with so many processors, to Ray's mind."""
        folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # sockets lie there, whose paths must be short
        node = self._cluster.add_node(num_cpus=cpus, temp_dir=folder, **SIZES)
        self.nodes.append(node)
        self._folders[id(node)] = folder

    def kill(self, node: Any) -> None:
        """Kill a node with all of its own processes, as a machine that loses power."""
        self.nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)
        shutil.rmtree(self._folders.pop(id(node)), ignore_errors=True)

    @property
    def pids(self) -> list[int]:
        """The nodes' own processes, whose children run tasks."""
        return [int(node.all_processes["raylet"][0].process.pid) for node in self.nodes]

    def close(self) -> None:
        """End the cluster."""
        self._cluster.shutdown()
        for folder in self._folders.values():
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def raylets(nodes: int, cpus: int = 1) -> Iterator[Raylets]:
    """Have a cluster of so many nodes beside the head."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    made = Raylets()
    try:
        for _ in range(nodes):
            made.add(cpus)
        yield made
    finally:
        made.close()
