"""PTX and SASS with the source lines that they come from."""

import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import build, machine_code, refusals
from .launches import CompiledLaunch

FILE = re.compile(r'\s*\.file\s+(\d+) "([^"]*)"(?: "([^"]*)")?')
LOC = re.compile(r"\s*\.loc\s+(\d+) (\d+) ")


def write(launches: Sequence[CompiledLaunch], folder: Path) -> list[Path]:
    """Write two files for each compiled kernel and target, named by kernel, target and number."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    counts: dict[str, int] = {}
    for launch in {launch.key: launch for launch in launches}.values():
        try:
            compiled = build.assembled(launch)
        except Exception:  # the report says why
            continue
        stem = f"{launch.kernel.__name__}.{launch.target.name}"
        counts[stem] = counts.get(stem, 0) + 1
        path = folder / f"{stem}.{counts[stem]}.ptx"
        path.write_text("\n".join(ptx(compiled.asm["ptx"])) + "\n", encoding="utf-8")
        with tempfile.TemporaryDirectory() as scratch:
            text = machine_code.disassembled(compiled.asm["cubin"], Path(scratch))
        path.with_suffix(".sass").write_text("\n".join(sass(text)) + "\n", encoding="utf-8")
        written += [path, path.with_suffix(".sass")]
    return written


def ptx(text: str) -> Iterator[str]:
    """Yield a kernel's PTX with changes of the source line marked, without debugging sections."""
    lines = text.partition("\t.section")[0].splitlines()
    files = {found[1]: str(Path(found[2], found[3] or "")) for found in map(FILE.match, text.splitlines()) if found}
    last = None
    for line in lines:
        match = LOC.match(line)
        if match is None:
            if not FILE.match(line) and not line.startswith("$L__tmp") and not line.startswith("$L__func"):
                yield line
            continue
        place = files.get(match[1], ""), int(match[2])
        if place != last:
            yield _mark(*place)
        last = place


def sass(text: str) -> Iterator[str]:
    """Yield a kernel's machine code in the same form."""
    last = None
    for line in text.splitlines():
        match = machine_code.LINE.search(line)
        place = (match[1], int(match[2])) if match else last
        if place != last and place:
            yield _mark(*place)
        if not match:
            yield line
        last = place


def _mark(path: str, line: int) -> str:
    return f"\n// {Path(path).name}:{line}: {refusals.source(path, line)}"
