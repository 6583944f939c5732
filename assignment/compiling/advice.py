"""What is wrong with compiled kernels, in words, and what a student can change.

Pure functions of data.
"""

import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from assignment.protocol.said import Said, at, joined

from .kernel import Kernel
from .targets import KB, TARGETS

REMEDIES = (  # what the compiler says, and what to do about it
    (
        r"must be (?:of type |a )?`?(?:tl\.)?constexpr|must have type `?constexpr|[Ee]xpected.*constexpr",
        "a tile's shape must be known when the kernel is compiled: declare the parameter as `NAME: tl.constexpr`, pass "
        "a power of two that covers the row, such as triton.next_power_of_2(n), and mask what lies beyond",
    ),
    (r"power of (?:2|two)", "tiles are powers of two: take triton.next_power_of_2(n) and mask what lies beyond n"),
    (
        r"[Ii]nput shapes should have|K >= \d+|minimum.*dot",
        "tl.dot takes tiles of a least size: make the tile larger, such as max(16, triton.next_power_of_2(d)), and "
        "load zeros beyond the tensor's end",
    ),
    (
        r"numel|exceeds triton maximum tensor numel",
        "the tile has more elements than a program can hold: take a part of the row at a time, in a loop",
    ),
    (
        r"[Uu]nsupported ptr type|pointer type|is not a pointer",
        "tl.load and tl.store take pointers: the tensor's own argument, plus offsets",
    ),
    (
        r"(?:initial|loop-carried|re-?assigned|changes? type).*(?:type|loop)|[Ll]oop-carried variable",
        "a variable keeps its type and its shape through a loop and both branches of an if: make it with the right "
        "ones before, or cast with .to(…)",
    ),
    (r"is not defined", "a kernel sees its arguments, other kernels, and globals that are tl.constexpr"),
    (
        r"[Cc]annot access global variable",
        "pass the value as an argument, or make the global a tl.constexpr: NAME = tl.constexpr(64)",
    ),
)
SMALLER = (
    "smaller tiles need less; so do fewer stages (num_stages={stages} now): each one holds the next tiles of a loop "
    "that feed tl.dot"
)
SMALLER_ALONE = "smaller tiles need less: take a part of the row, or fewer rows, at a time"


NOT_JUDGED = "Triton's own compiler crashed there: it is not judged, and costs nothing"
UNKNOWN = "Triton's own compiler crashed there, and nothing tells whether the kernel would fit: staff will look at it"


def problems(kernels: Iterable[Kernel]) -> list[Said]:
    """Return a text for each cause that keeps kernels from running, with the targets it affects.

    It is enough if one configuration of an autotuned kernel fits. Crashes of the compiler are
    reported by `not_judged` and `unknown`, unless the kernel would not fit either.
    """
    kernels = list(kernels)
    causes: dict[tuple[str, Said], list[str]] = {}
    for group in groups(kernels):
        if not any(kernel.fits for kernel in group) and _would_fit(group, kernels) is False:
            causes.setdefault((group[0].name, _cause(group)), []).append(group[0].target)
    return [_told(name, cause, targets) for (name, cause), targets in causes.items()]


def not_judged(kernels: Iterable[Kernel]) -> list[Said]:
    """Return a text for each kernel that the compiler crashed on, and that would fit there."""
    return _crashed(list(kernels), True, NOT_JUDGED)


def unknown(kernels: Iterable[Kernel]) -> list[Said]:
    """Return a text for each kernel that the compiler crashed on and never compiled as it is."""
    return _crashed(list(kernels), None, UNKNOWN)


def _crashed(kernels: list[Kernel], would_fit: bool | None, says: str) -> list[Said]:
    causes: dict[tuple[str, Said], list[str]] = {}
    for group in groups(kernels):
        if all(kernel.is_crash for kernel in group) and _would_fit(group, kernels) is would_fit:
            crash = Said(f"{says}\n  {group[0].error}", group[0].error_at)
            causes.setdefault((group[0].name, crash), []).append(group[0].target)
    return [_told(name, crash, targets) for (name, crash), targets in causes.items()]


def _would_fit(group: Sequence[Kernel], kernels: Sequence[Kernel]) -> bool | None:
    """Return whether a group that the compiler crashed on fits, as compiled for another target.

    All kernels of the group must have crashed. Each must fit that was compiled elsewhere, since a
    crash must hide no kernel that is too large; None where no other target has a result. One
    configuration of an autotuned kernel is enough.
    """
    if not all(kernel.is_crash for kernel in group):
        return False
    found = []
    for crashed in group:
        elsewhere = [kernel for kernel in kernels if not kernel.error and kernel.form == crashed.form]
        found += [all(replace(kernel, target=crashed.target).fits for kernel in elsewhere)] if elsewhere else []
    return any(found) if found else None


def groups(kernels: Iterable[Kernel]) -> list[list[Kernel]]:
    """Return kernels one by one, and the configurations of an autotuned one together."""
    found: dict[Hashable, list[Kernel]] = {}
    for i, kernel in enumerate(kernels):
        found.setdefault((kernel.target, kernel.tuning) if kernel.tuning >= 0 else i, []).append(kernel)
    return list(found.values())


def _told(name: str, cause: Said, targets: Sequence[str]) -> Said:
    return Said(f"{name}, compiled for {listed(targets)}: {cause}", cause.places)


def listed(targets: Iterable[str]) -> str:
    """Return "A100, H100 and B200"."""
    titles = ", ".join(TARGETS[target].title for target in dict.fromkeys(targets))
    return " and ".join(titles.rsplit(", ", 1))


def _cause(group: Sequence[Kernel]) -> Said:
    """Return why none of the kernels fits, for the one that comes closest."""
    best = min(group, key=lambda kernel: (bool(kernel.error), kernel.shared))
    among = f"none of {len(group)} configurations fits; the smallest ({best.config}) " if len(group) > 1 else ""
    why = refused(best) if best.error else too_large(best)
    return Said(f"{among}{why}", why.places)


def refused(kernel: Kernel) -> Said:
    """Return the compiler's message, with what to do about it."""
    remedy = next((text for pattern, text in REMEDIES if re.search(pattern, kernel.error)), "")
    return joined([Said(f"does not compile: {kernel.error}", kernel.error_at), remedy and f"  {remedy}"])


def too_large(kernel: Kernel) -> Said:
    """Return how far the kernel is from fitting, with what to do about it."""
    here = at(kernel.path, kernel.line, kernel.constants and f" with {kernel.constants}")
    if kernel.shared <= kernel.on.shared_limit:
        remedy = "smaller tiles need less" if kernel.tensor_memory else "take fewer warps"
        return joined([f"needs {kernel.excess}", here, f"  {remedy}"])
    remedy = (SMALLER if kernel.instructions and kernel.stages > 1 else SMALLER_ALONE).format(stages=kernel.stages)
    limit = f"a program has {kilobytes(kernel.on.shared_limit)} KB there"
    return joined([f"needs {kilobytes(kernel.shared)} KB of shared memory; {limit}", here, f"  {remedy}"])


def spills(kernels: Sequence[Kernel]) -> str:
    """Return a warning if a kernel, compiled several times, spills registers; "" if not."""
    worst = max(kernels, key=lambda kernel: kernel.spills)
    if not worst.spills:
        return ""
    where = f"\n  {worst.spilled_at}" if worst.spilled_at else ""
    return (
        f"spills: up to {worst.spills} registers of each thread live in memory, most of them here:{where}\n"
        f"  right, but slower; smaller tiles or more warps (num_warps={worst.warps} now) leave more registers for each"
    )


def kilobytes(size: int) -> str:
    """Return a size in KB: 0.2, 41, 163."""
    if 0 < size < 10 * KB:
        return f"{max(size / KB, 0.1):.1f}"
    return f"{size / KB:.0f}"
