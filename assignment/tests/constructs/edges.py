"""Functions of libdevice where definitions decide: at ties, poles, infinities, the ends of a type."""

from pathlib import Path

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import libdevice  # a module, whose functions may be handed over

from .conversions import TYPES
from .table import APPROXIMATE, EXACT, Construct, register

EDGES = Path(__file__).parents[1] / "data" / "libdevice_edges.txt"
_APPROXIMATE = [
    "pow",
    "sinpi",
    "cospi",
    "tgamma",
    "lgamma",
    "erfinv",
    "normcdf",
    "j0",
    "j1",
    "y0",
    "y1",
    "exp",
    "exp2",
    "log",
    "rsqrt",
]


@triton.jit
def edge_kernel(x_ptr, y_ptr, result_ptr, FUNCTION: tl.constexpr, N_OPERANDS: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    result = FUNCTION(x) if N_OPERANDS == 1 else FUNCTION(x, y)
    tl.store(result_ptr + at, result)


def _padded(values: list[str], dtype: torch.dtype) -> Tensor:
    """Return a tensor of a power of two: the last value is repeated."""
    size = triton.next_power_of_2(len(values))
    numbers = [float(value) if dtype.is_floating_point else int(value) for value in values]
    return torch.tensor([*numbers, *[numbers[-1]] * (size - len(numbers))], dtype=dtype)


def _register(line: str) -> None:
    head, _, rows = line.partition(": ")
    name, operand, result = head.split()
    *operands, expected = zip(*(row.split() for row in rows.split(" | ")), strict=True)
    wanted = _padded(list(expected), TYPES[result])
    inputs = {key: _padded(list(values), TYPES[operand]) for key, values in zip("xy", operands, strict=False)}

    def run(**inputs: Tensor) -> dict[str, Tensor]:
        x, y = inputs["x"], inputs.get("y", inputs["x"])
        found = torch.empty_like(x, dtype=TYPES[result])
        edge_kernel[(1,)](x, y, found, getattr(libdevice, name), len(inputs), len(x))
        return {"y": found}

    closeness = APPROXIMATE if name in _APPROXIMATE else EXACT
    register(Construct(f"libdevice {name} of {operand} at edges", inputs, run, closeness, lambda **_: wanted))


for _line in EDGES.read_text().splitlines():
    if not _line.startswith("#"):
        _register(_line)
