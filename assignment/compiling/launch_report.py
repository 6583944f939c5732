"""Compiles what was recorded, and prints the results."""

import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from assignment.protocol.said import Said

from . import advice, build, listing, table
from .kernel import Kernel
from .workload_calls import Noted


def missing(*_: Any, **__: Any) -> NoReturn:
    """Stand in for a function that the submission does not have."""
    raise NotImplementedError


def tell(noted: Sequence[Noted], base: Path, ptx: Path | None) -> int:
    """Print the table and remarks; returns the exit status. Paths are relative to `base`."""
    everything = [launch for one in noted for launch in one.launches]
    stops = stopped(noted)
    if everything:
        build.kernels(everything)  # all at once, in as many processes as there are cores
    graded = compiled([one for one in noted if one.call.is_graded])
    larger = compiled([one for one in noted if not one.call.is_graded])
    for heading, calls in ((table.HEAD, graded), ("\nLarger shapes, for advice only:", larger)):
        if calls:
            print(heading)
        for title, kernels in calls.items():
            print(*table.rows(title.replace(f"{base}/", ""), kernels), sep="\n")
    wrong = advice.problems(_all(graded))
    _print("Does not run on such a GPU:", wrong, base)
    _print("Not judged:", advice.not_judged(_all(graded)), base)
    _print("Unclear:", advice.unknown(_all(graded)), base)
    too_large = advice.problems(_all(larger))
    _print("The same of larger shapes:", too_large, base)
    everyone = [kernel for calls in (graded, larger) for kernels in calls.values() for kernel in kernels]
    slow = table.remarks(kernel for kernel in everyone if kernel.fits)
    _print("What costs speed:", slow, base)
    _print("Stopped; kernels do not run here, so what they would store is NaN:", stops, base)
    if not everything:
        print("nothing to compile: no kernel was launched", file=sys.stderr)
    if ptx is not None:
        print(f"\n{len(listing.write(everything, ptx))} files in {ptx}")
    return int(bool(wrong or [one for one in noted if not is_expected(one)] or not everything))


def compiled(noted: Iterable[Noted]) -> dict[str, list[Kernel]]:
    """Return the kernels of each call, those of one name together."""
    found: dict[str, list[Kernel]] = {}
    for one in noted:
        if one.launches:
            found.setdefault(one.call.title, []).extend(build.kernels(one.launches))
    for kernels in found.values():
        names = list(dict.fromkeys(kernel.name for kernel in kernels))
        kinds = list(dict.fromkeys((kernel.name, kernel.constants, kernel.config) for kernel in kernels))
        kinds.sort(key=lambda kind: names.index(kind[0]))
        kernels.sort(key=lambda one: (kinds.index((one.name, one.constants, one.config)), one.on.capability))
    return found


def stopped(noted: Iterable[Noted]) -> list[str]:
    """Return what stopped each call, except functions that are not written yet."""
    found: dict[str, list[str]] = {}
    for one in noted:
        if one.stopped is not None and not isinstance(one.stopped, NotImplementedError):
            found.setdefault(f"{one.call.title}: {_told(one.stopped)}", []).append(one.target.title)
    return [f"{text}\n(on {', '.join(on)})" if len(on) < 3 else text for text, on in found.items()]


def is_expected(noted: Noted) -> bool:
    """Return whether a call finished, is not written yet, or failed an assertion about results."""
    return noted.stopped is None or isinstance(noted.stopped, NotImplementedError | AssertionError)


def _told(error: BaseException) -> str:
    """Return an exception, and its innermost line that is neither ours nor a library's."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if not any(part in one.filename for part in ("site-packages", "/assignment/", "<"))]
    where = f"\n  at {own[-1].filename}:{own[-1].lineno}: {own[-1].line}" if own else ""
    return f"{type(error).__name__}: {error}".removesuffix(": ") + where


def _all(calls: dict[str, list[Kernel]]) -> list[Kernel]:
    return [kernel for kernels in calls.values() for kernel in kernels]


def _print(heading: str, texts: Sequence[str | Said], base: Path) -> None:
    if texts:
        print(f"\n{heading}\n")
    for text in texts:
        print(*table.wrapped(str(text), base), sep="\n")
