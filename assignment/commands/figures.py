"""What a report says in numbers, for its page: bytes beside the least, kernels on each GPU, and the roofline."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from assignment.verdict.entries import CheckEntry, KernelEntry, MovedEntry, SpeedEntry

WIDTH, HEIGHT = 480, 240  # units of the roofline
DECADES = 3  # of performance, below the GPU's most


class MovedTimes(MovedEntry):
    """What was moved, as a multiple of the least."""

    times: float


def moved(entries: Iterable[CheckEntry]) -> list[MovedTimes]:
    """Return what calls move of each tensor, as a multiple of the least."""
    listed = [one for check in entries for one in check.get("moved", ()) if one["least"]]
    return [{**one, "times": one["bytes"] / one["least"]} for one in listed]


def compiled(entries: Iterable[CheckEntry]) -> list[KernelEntry]:
    """Return the figures of all kernels, each kernel's together, by its constants."""
    found = [one for check in entries for one in check.get("compiled", ())]
    order = {kernel: i for i, kernel in enumerate(dict.fromkeys(one["kernel"] for one in found))}
    return sorted(found, key=lambda one: (order[one["kernel"]], one["constants"], one["case"]))


@dataclass(frozen=True)
class Point:
    """A timed case on the roofline."""

    x: float
    y: float
    name: str
    timing: SpeedEntry


@dataclass(frozen=True)
class Roofline:
    """A GPU's limits, and what was timed on it: operations per byte and per second, on logarithmic scales."""

    roof: str  # points of a line
    points: list[Point]
    width: int = WIDTH
    height: int = HEIGHT


def roofline(entries: Iterable[CheckEntry]) -> Roofline | None:
    """Return the picture of what was timed; None where nothing was, or not its work.

    A function without a product of matrices counts an operation for every byte that it has to move.
    """
    timed = [(check, one) for check in entries for one in check.get("timings", ()) if one.get("gpu_bytes_per_s")]
    if not timed:
        return None
    bytes_per_s = max(one["gpu_bytes_per_s"] for _, one in timed)
    most = max(one["gpu_operations_per_s"] for _, one in timed)
    knee = most / bytes_per_s
    low, high = knee / 10**DECADES, knee * 10

    def at(intensity: float, speed: float) -> tuple[float, float]:
        x = math.log(min(max(intensity, low), high) / low) / math.log(high / low)
        y = 1 + math.log10(min(max(speed, most / 10**DECADES), most) / most) / DECADES
        return round(WIDTH * x, 1), round(HEIGHT * (1 - y), 1)

    points = []
    for check, one in timed:
        work = one["operations"] or one["bytes"]
        x, y = at(work / one["bytes"], work / (one["us"] * 1e-6))
        points.append(Point(x, y, f"{check['name']} {one['case']}", one))
    corners = [at(low, low * bytes_per_s), at(knee, most), at(high, most)]
    return Roofline(" ".join(f"{x:g},{y:g}" for x, y in corners), points)
