"""What a launch would fetch from memory through an L2 cache of a given size.

The cache holds whole lines and drops the line that was used least recently. Programs start in the
order of their ids, so many at once; they proceed access by access, in turn, and a program that
ends makes room for the next. A GPU promises no such order; this one shows what an order is worth.
"""

import itertools
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import TypeVar

from .trace import Access, LaunchCost

LINE = 128  # bytes
T = TypeVar("T")


def fetch(launch: LaunchCost, nbytes: int, at_once: int) -> None:
    """Set `fetched` of the launch's tensors: the bytes of the loaded lines that the cache did not hold.

    nbytes is the size of the cache; at_once is how many programs run together. What is stored
    takes room in the cache too.
    """
    cached: OrderedDict[tuple[int, int], None] = OrderedDict()
    for access in in_turn(_by_program(launch), at_once):
        for line in _lines(access):
            place = (access.traffic.storage, line)
            if place in cached:
                cached.move_to_end(place)
                continue
            cached[place] = None
            access.traffic.fetched += LINE * (access.action != "stored")
            if len(cached) * LINE > nbytes:
                cached.popitem(last=False)


def in_turn(queues: Iterable[Iterable[T]], at_once: int) -> Iterator[T]:
    """Return the items of all queues: one of each of the first `at_once`, again and again; the next fill gaps."""
    waiting = map(iter, queues)
    running = deque(itertools.islice(waiting, at_once))
    while running:
        queue = running.popleft()
        for item in queue:
            yield item
            running.append(queue)
            break
        else:
            running.extend(itertools.islice(waiting, 1))


def _by_program(launch: LaunchCost) -> list[list[Access]]:
    """Return each program's accesses, in the order of the programs' ids, x fastest."""
    programs: dict[int, list[Access]] = defaultdict(list)
    for access in launch.accesses or ():
        programs[access.program].append(access)
    return [programs[number] for number in sorted(programs)]


def _lines(access: Access) -> Iterator[int]:
    """Return the lines that hold the access's elements, which rise."""
    per_line = max(1, LINE // access.traffic.itemsize)
    return (line for line, _ in itertools.groupby((access.elements // per_line).tolist()))
