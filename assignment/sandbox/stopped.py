"""Where host code was when it was stopped, read off a stack that its own process has printed: it is that one's word."""

import re
from collections.abc import Iterator, Mapping, Sequence

from assignment import text
from assignment.protocol.said import Said, at, joined

FRAME = re.compile(r'File "(?:[^"\n]*/)?(cs336_kernels/[^"\n]+)", line (\d+) in ([\w<>]+)')
LAUNCHES = "assignment/recorder/launches.py"  # a frame of it: host code was launching a kernel
LOOP = re.compile(r"(async\s+for|for|while)\b")
FUNCTION = re.compile(r"(async\s+def|def|class)\b")
MAX_SHOWN = 80  # characters of a loop's line


def place(stack: str, sources: Mapping[str, str]) -> Said:
    """Return the submission's innermost line of a stack, and the loop around it; nothing where there is none."""
    frames = _frames(stack, sources)
    told: list[str | Said] = [at(path, line, f" in {name}") for path, line, name in frames[:1]]
    for path, loops in _looping(frames, sources):
        line, shown = loops[0]
        told.append(f"  in the loop of {path}:{line}: {text.line(shown[:MAX_SHOWN])}")
    return joined(told)


def alike(stack: str, sources: Mapping[str, str]) -> str:
    """Return what two stops in one loop, or else in one line, have alike; "" inside of a launch."""
    frames = _frames(stack, sources)
    if LAUNCHES in stack or not frames:
        return ""
    found = [(path, loops[-1][0]) for path, loops in _looping(frames, sources)]
    return "{}:{}".format(*(found or frames)[0])


def _frames(stack: str, sources: Mapping[str, str]) -> list[tuple[str, int, str]]:
    """Return file, line and function of the submission's frames, the innermost first."""
    return [(path, int(line), name) for path, line, name in FRAME.findall(stack) if path in sources]


def _looping(
    frames: Sequence[tuple[str, int, str]], sources: Mapping[str, str]
) -> list[tuple[str, list[tuple[int, str]]]]:
    """Return the innermost frame that is in a loop, as its file and its loops; or nothing."""
    found = ((path, list(_loops(sources[path].splitlines(), line))) for path, line, _ in frames)
    return [one for one in found if one[1]][:1]


def _loops(lines: list[str], number: int) -> Iterator[tuple[int, str]]:
    """Yield the loops around a line, the innermost first: what stands above it and less far to the right."""
    depth = 1 << 30
    for i in range(min(number, len(lines)) - 1, -1, -1):
        code = lines[i].expandtabs().lstrip()
        indent = len(lines[i].expandtabs()) - len(code)
        if not code or code.startswith("#") or indent >= depth:
            continue
        depth = indent
        if FUNCTION.match(code):
            return
        if LOOP.match(code):
            yield i + 1, code
