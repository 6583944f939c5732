"""The report: a table of plain text, and remarks on its rows."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from . import advice
from .kernel import Kernel
from .targets import TARGETS

WIDTH = 100
NAME = 30  # columns of a kernel's name
HEAD = f"  {'kernel':<{NAME}} GPU    fits  shared KB  regs  spills  warps  stages  products"


def rows(title: str, kernels: Sequence[Kernel]) -> Iterator[str]:
    """Yield a call's kernels, each on each target."""
    yield title
    kinds = {(kernel.name, kernel.constants, kernel.config) for kernel in kernels}
    several = [name for name, count in Counter(name for name, *_ in kinds).items() if count > 1]
    for (name, constants, config), some in groupby(kernels, lambda one: (one.name, one.constants, one.config)):
        for i, kernel in enumerate(some):
            yield f"  {'' if i else short(name, NAME):<{NAME}} {row(kernel)}"
        if name in several:
            yield short(f"    with {config or constants}", WIDTH)


def row(kernel: Kernel) -> str:
    if kernel.error:
        return f"{kernel.on.title:<5}  does not compile"
    shared = f"{advice.kilobytes(kernel.shared)}/{advice.kilobytes(kernel.on.shared_limit)}"
    takes = f"{shared:>9}  {kernel.registers:>4}  {kernel.spills:>6}  {kernel.warps:>5}  {kernel.stages:>6}"
    return (
        f"{kernel.on.title:<5}  {'yes' if kernel.fits else 'NO':<4}  {takes}  {', '.join(kernel.instructions) or '-'}"
    )


def short(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def remarks(kernels: Iterable[Kernel]) -> list[str]:
    """Return what costs speed but not correctness: each remark once, with its targets."""
    found: dict[tuple[str, str], list[Kernel]] = {}
    by_name: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        by_name.setdefault(kernel.name, []).append(kernel)
        for text in kernel.remarks:
            found.setdefault((kernel.name, text), []).append(kernel)
    for name, own in by_name.items():
        if spilling := advice.spills(own):
            found[name, spilling] = [kernel for kernel in own if kernel.spills]
    return [f"{name} on {_titles(own)}: {text}" for (name, text), own in found.items()]


def _titles(kernels: Iterable[Kernel]) -> str:
    found = {kernel.target for kernel in kernels}
    return ", ".join(target.title for name, target in TARGETS.items() if name in found)


def wrapped(text: str, base: Path) -> Iterator[str]:
    """Yield the lines of a text, wrapped to the table's width, with relative paths."""
    for i, line in enumerate(text.replace(f"{base}/", "").splitlines()):
        indent = "  " if i == 0 else "    "
        if line.lstrip().startswith("at "):  # a line of source is cut, so that it stays one
            yield short(indent + line.lstrip(), WIDTH)
        else:
            yield from textwrap.wrap(line.strip(), WIDTH, initial_indent=indent, subsequent_indent="    ")
