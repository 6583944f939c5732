"""Which instruction multiplies matrices in a compiled kernel, by line, and why not the best one.

Both are read from Triton's intermediate languages: in the first, "ttir", products are as the
student wrote them; in the second, "ttgir", the compiler has chosen. A name such as #loc12 stands
for a source location. Shapes, types and warps decide; the alignment of operands in memory does not,
in Triton 3.6 and 3.7.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from .targets import Target

Place = tuple[str, int]  # file and line

DEFINED = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
OF_LINE = re.compile(r"loc\((.*)\)$")
IN_FILE = re.compile(r'"([^"\n]+)":(\d+):\d+')
NAMED = re.compile(r'"[^"\n]*"\((#loc\d*)\)')
CALLED = re.compile(r"callsite\((#loc\d*) at ")
SHAPES = re.compile(r"(?:tensor|memdesc)<(?:\d+x)*?(\d+)x(\d+)x([a-z]\w*)")
LAYOUT = re.compile(r"-> tensor<[^>]*?(#\w+)>")
VERSION = re.compile(r"^(#\w+) = #ttg\.nvidia_mma<\{versionMajor = (\d)", re.MULTILINE)
BY_VERSION = {"2": "mma.sync", "3": "wgmma", "5": "tcgen05"}
PLAIN = "fma"  # one multiplication and addition a thread
TYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64"}


@dataclass(frozen=True)
class Product:
    """A tl.dot: M × K times K × N."""

    place: Place
    m: int
    n: int
    k: int
    dtype: str
    precision: str  # of float32: tf32, tf32x3, ieee, …

    @property
    def shape(self) -> str:
        return f"{self.m} × {self.k} by {self.k} × {self.n}"


class Places:
    """The source locations of a module's operations."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _defined(self) -> dict[str, str]:
        return dict(DEFINED.findall(self._text))

    def of(self, line: str) -> Place:
        """Return the location that a line of the module ends with."""
        match = OF_LINE.search(line)
        what = match[1] if match else ""
        for _ in range(20):  # a name of a name of a call …
            if found := IN_FILE.search(what):
                return found[1], int(found[2])
            inner = NAMED.fullmatch(what) or CALLED.match(what)
            what = self._defined.get(inner[1] if inner else what, "")
        return "", 0


def written(ttir: str) -> list[Product]:
    """Return the products of a kernel, as its author wrote them; equal ones of one line once."""
    places = Places(ttir)
    found = []
    for line in ttir.splitlines():
        if " tt.dot " in line:
            (m, k, dtype), (_, n, _) = SHAPES.findall(line)[:2]
            precision = re.search(r"inputPrecision = (\w+)", line)
            how = precision[1] if precision else "ieee"
            found.append(Product(places.of(line), int(m), int(n), int(k), TYPES.get(dtype, dtype), how))
    return list(dict.fromkeys(found))


def instructions_by_place(ttgir: str) -> dict[Place, set[str]]:
    """Return the instructions that multiply matrices, by location, as the compiler has chosen them."""
    places, versions = Places(ttgir), dict(VERSION.findall(ttgir))
    found: dict[Place, set[str]] = {}
    for line in ttgir.splitlines():
        instruction = _instruction(line, versions)
        if instruction:
            found.setdefault(places.of(line), set()).add(instruction)
    return found


def _instruction(line: str, versions: Mapping[str, str]) -> str:
    if "ttng.tc_gen5_mma" in line:
        return "tcgen05"
    if "ttng.warp_group_dot " in line:
        return "wgmma"
    if " tt.dot " in line:
        layout = LAYOUT.findall(line)
        return BY_VERSION.get(versions.get(layout[-1], ""), PLAIN) if layout else PLAIN
    return ""


def remarks(ttir: str, ttgir: str, target: Target, warps: int) -> Iterator[tuple[Place, str]]:
    """Yield the reason for each product without the target's best instruction."""
    found = instructions_by_place(ttgir)
    for product in written(ttir):
        instructions = found.get(product.place, set())
        if instructions and instructions != {target.best}:
            by = " and ".join(sorted(instructions))
            yield product.place, f"tl.dot of {product.shape} by {by}: {why(product, target, warps)}"


def why(product: Product, target: Target, warps: int) -> str:
    """Return why a product cannot use the target's best instruction, as far as is known."""
    if product.dtype == "float32" and product.precision == "ieee":
        return 'tensor cores have no IEEE float32; input_precision="tf32" would use them'
    if product.dtype not in ("float32", "float16", "bfloat16") and not product.dtype.startswith("f8"):
        return f"{target.best} does not take {product.dtype}"
    if target.best == "wgmma" and warps % 4:
        return f"four warps issue a wgmma together; num_warps is {warps}"
    if target.best == "tcgen05" and warps not in (4, 8):
        return f"Triton uses tcgen05 with 4 or 8 warps; num_warps is {warps}"
    if target.best in ("wgmma", "tcgen05") and product.m % 64:
        return f"{target.best} takes 64 rows of the left operand at once; the tile has {product.m}"
    columns = {"wgmma": 8, "tcgen05": 16}.get(target.best, 1)
    if product.n % columns:
        return f"{target.best} takes {columns} columns of the right operand at once; the tile has {product.n}"
    return "the compiler does not say why"
