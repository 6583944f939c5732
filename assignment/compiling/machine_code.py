"""The registers and spills of a compiled kernel, read from its binary, an ELF file."""

import re
import struct
import subprocess
from collections import Counter
from pathlib import Path

from assignment.simulator.triton_private import TOOLS

TOOL_TIMEOUT_S = 60
REGISTERS, FRAME = 0x2F, 0x11  # attributes of .nv.info; each with a symbol and a value
WITH_VALUE = 0x04  # a note whose size says how many bytes follow
REGISTER_BYTES = 4


def registers_and_spills(cubin: bytes) -> tuple[int, int]:
    """Return a thread's registers and spills: Triton's n_regs and n_spills."""
    notes = _notes(_section(cubin, b".nv.info"))
    return max(notes.get(REGISTERS, [0])), max(notes.get(FRAME, [0])) // REGISTER_BYTES


def _section(elf: bytes, name: bytes) -> bytes:
    """Return the contents of a section of a 64-bit ELF file; empty if there is none."""
    start = struct.unpack_from("<Q", elf, 0x28)[0]
    size, count, names_at = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, start + i * size) for i in range(count)]
    names = headers[names_at]
    for name_at, _, _, _, offset, length in headers:
        begin = names[4] + name_at
        if elf[begin : elf.index(b"\0", begin)] == name:
            return elf[offset : offset + length]
    return b""


def _notes(info: bytes) -> dict[int, list[int]]:
    """Return the last four bytes of each note, by attribute; one for each function."""
    found: dict[int, list[int]] = {}
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == WITH_VALUE:
            if size >= 4:
                found.setdefault(attribute, []).append(struct.unpack_from("<I", info, at + size - 4)[0])
            at += size
    return found


def disassembled(cubin: bytes, folder: Path) -> str:
    """Return the machine code as text, with lines such as `//## File "…", line 120`."""
    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    command = [str(TOOLS / "nvdisasm"), "--print-code", "--print-line-info", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S)
    path.unlink()
    if done.returncode:
        raise RuntimeError(f"nvdisasm failed: {done.stderr.strip()[-200:]}")
    return done.stdout


LINE = re.compile(r'//## File "([^"\n]+)", line (\d+)')
SPILL = re.compile(r"\b(STL|LDL)\b")


def most_spilled(assembly: str) -> tuple[str, int] | None:
    """Return the file and line with the most stores to, and loads from, spilled registers."""
    counts: Counter[tuple[str, int]] = Counter()
    place = None
    for line in assembly.splitlines():
        if match := LINE.search(line):
            place = (match[1], int(match[2]))
        elif place and SPILL.search(line):
            counts[place] += 1
    return counts.most_common(1)[0][0] if counts else None
