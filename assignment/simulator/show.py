"""The table of launches: what each of them moved and computed."""

import itertools
from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from .costs import HostTraffic
from .trace import LaunchCost, Traffic

_LEGEND = (
    "Bytes are those that active lanes asked for, 1 KB = 1000 B; × is how often that is the tensor's size.\n"
    "distinct: bytes touched at least once. FLOPs are those of tl.dot; FLOP/B counts an atomic update twice."
)
_HEADINGS = (
    "#", "kernel / tensor", "grid / shape", "programs / size",
    "loaded", "×", "stored", "×", "updated", "distinct", "fetched", "×", "dot FLOPs", "FLOP/B",
)  # fmt: skip
_LEFT = ("kernel / tensor", "grid / shape", "dot FLOPs")
_ENDLESS = 10_000  # characters of a line


def report(
    launches: Sequence[LaunchCost], host: HostTraffic | None, l2_kb: int | None = None, at_once: int = 1
) -> None:
    """Print every launch with its tensors, and what PyTorch moved between the launches.

    l2_kb: the size of the L2 cache whose fetches the launches hold, if any, with at_once programs.
    """
    console = Console(highlight=False)
    if launches:
        table = _table(launches)
        whole = console.measure(table, options=console.options.update(max_width=_ENDLESS)).maximum
        # a terminal may wrap a line; no figure is cut off
        console.width = max(console.width, whole)
        console.print(table)
        console.print(_LEGEND, style="dim", soft_wrap=True)
    if launches and l2_kb is not None:
        text = f"fetched: from memory, by an L2 cache of {quantity(l2_kb * 1000, 'B')} that serves {at_once} programs"
        console.print(
            f"{text} at once,\nstarted by their numbers, and drops what was used least recently. Told, not graded.",
            style="dim",
            soft_wrap=True,
        )
    if host is not None:
        read, written = ([nbytes for _, nbytes in moved] for moved in (host.read, host.written))
        counts = {"read": read, "wrote": written, "filled": [host.filled]}
        moved = ", ".join(f"{verb} {quantity(sum(count), 'B')}" for verb, count in counts.items())
        console.print(f"PyTorch's own operations: {moved}")


def _table(launches: Sequence[LaunchCost]) -> Table:
    """Return a row for each launch and for each of its tensors; empty columns are left out."""
    rows: list[tuple[str, list[str]]] = []
    for number, launch in enumerate(launches, 1):
        rows.append(("bold", _launch_row(number, launch)))
        rows += [("", _tensor_row(tensor)) for tensor in launch.tensors]
    is_used = [any(cells) for cells in zip(*(cells for _, cells in rows), strict=True)]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in itertools.compress(_HEADINGS, is_used):
        table.add_column(heading, justify="left" if heading in _LEFT else "right", no_wrap=True)
    for style, cells in rows:
        table.add_row(*itertools.compress(cells, is_used), style=style)
    return table


def _launch_row(number: int, launch: LaunchCost) -> list[str]:
    tensors = launch.tensors
    intensity = sum(launch.flops.values()) / launch.total_bytes if launch.total_bytes else 0
    return [
        str(number),
        launch.kernel,
        str(launch.grid),
        f"{launch.programs}, {launch.idle} idle" if launch.idle else str(launch.programs),
        _bytes(sum(t.loaded for t in tensors)), "",
        _bytes(sum(t.stored for t in tensors)), "",
        _bytes(sum(t.updated for t in tensors)),
        _bytes(sum(map(_distinct, tensors))),
        _bytes(sum(t.fetched for t in tensors)), "",
        ", ".join(f"{quantity(count, '')} {operands}" for operands, count in sorted(launch.flops.items())),
        f"{intensity:.3g}" if intensity else "",
    ]  # fmt: skip


def _tensor_row(t: Traffic) -> list[str]:
    return [
        "",
        f"  {t.name}",
        f"{t.dtype} {t.shape}",
        quantity(t.nbytes, "B"),
        _bytes(t.loaded), _times(t.loaded, t),
        _bytes(t.stored), _times(t.stored, t),
        _bytes(t.updated),
        _bytes(_distinct(t)),
        _bytes(t.fetched), _times(t.fetched, t),
        "",
        "",
    ]  # fmt: skip


def _bytes(count: int) -> str:
    return quantity(count, "B") if count else ""


def _times(count: int, t: Traffic) -> str:
    times = count / t.nbytes if t.nbytes else 0
    return (f"{times:.3g}" if times < 999.5 else f"{times:.0f}") if times else ""


def _distinct(t: Traffic) -> int:
    """Return the bytes that were loaded, stored or updated at least once."""
    maps = list(t.counts.values())
    return int(np.count_nonzero(np.any(maps, axis=0))) * t.itemsize if maps else 0


def quantity(count: float, unit: str) -> str:
    """Return three digits and a unit: "992 B", "4 KB", "1.05 MB"."""
    prefixes = iter(("", "K", "M", "G", "T"))
    prefix = next(prefixes)
    while count >= 999.5 and prefix != "T":
        count, prefix = count / 1000, next(prefixes)
    return f"{count:.3g} {prefix}{unit}".rstrip()
