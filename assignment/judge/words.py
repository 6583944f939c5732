"""A call in words, and what it printed, for the messages that students read."""

import re
from collections.abc import Sequence

from torch import Tensor

from assignment.protocol.messages import Options
from assignment.protocol.requests import LANES, Again, Called, Ranks
from tests import operators

MAX_PRINTED_LINES = 8
ADDRESS = re.compile(r"\b0x[0-9a-f]{9,16}\b")
FOLDERS = re.compile(  # of a file: of this run, or of this machine
    r"(?<![\w/.-])(?:/[^\s/\"']+)*/(?:grade-\w{8}/(?:submission/|scratch/\w+/)?|(?=(?:assignment|site-packages|python3\.\d+)/))"
)
SHADES = "·░▒█"  # none, and three equal parts of the most steps that a lane has in a column


def of_request(request: Called, tensors: Sequence[Tensor]) -> str:
    """Return the call of a request in words; of several, the first."""
    match request:
        case Again():
            tensors = tensors[: len(tensors) // 2]
        case Ranks():
            (tensors, *_) = request.of_rank([*tensors], 0)
            call = of_call(request.function, tensors, request.options)
            return f"{operators.counted(request.ranks, 'rank', 'ranks')}: {call}"
    return of_call(request.function, tensors, request.options)


def of_lanes(steps: Sequence[Sequence[Sequence[int]]]) -> list[str]:
    """Return a line for each lane of each rank, a character for each column: "rank 0 multiplies ···█▒"."""
    n, wide = len(SHADES) - 1, max(map(len, LANES))
    return [
        f"rank {rank} {lane:{wide}} " + "".join(SHADES[-(-n * one // max(1, *counts))] for one in counts)
        for rank, lanes in enumerate(steps)
        for lane, counts in zip(LANES, lanes, strict=True)
    ]


def of_call(function: str, tensors: Sequence[Tensor], options: Options) -> str:
    """Return "3 rows of 40, float32: rmsnorm_forward(float32 (3, 40) strides (0, 1), float32 (40,), eps=0.5)"."""
    arguments = [*map(of_tensor, tensors), *(f"{name}={value}" for name, value in options.items())]
    call = f"{function}({', '.join(arguments)})"
    size = of_size(function, tensors, options)
    return f"{size}: {call}" if size else call


def of_size(function: str, tensors: Sequence[Tensor], options: Options) -> str:
    """Return the size of a call: "77 queries, 80 keys, d 64, 3 batches, causal, bfloat16"; "" if none is usual."""
    operator = operators.operator_of(function)
    named = dict(zip(operators.functions()[function].inputs, tensors, strict=False))
    try:
        size, dtype = operator.in_words(named), operator.largest(named).dtype
    except (IndexError, KeyError, ValueError):
        return ""
    return ", ".join([size, *switched_on(options), str(dtype).removeprefix("torch.")])


def switched_on(options: Options) -> list[str]:
    """Return the options that are on: "causal"."""
    return [name.removeprefix("is_") for name, value in options.items() if value is True]


def of_tensor(tensor: Tensor) -> str:
    strides = "" if tensor.is_contiguous() else f" strides {tensor.stride()}"
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}{strides}"


def anywhere(said: str) -> str:
    """Return a text without what is otherwise in the next run: addresses, and the folders of its files."""
    return ADDRESS.sub("0x…", FOLDERS.sub("", said))


def beginning_and_end(lines: list[str]) -> list[str]:
    if len(lines) <= MAX_PRINTED_LINES:
        return lines
    half = MAX_PRINTED_LINES // 2
    return [*lines[:half], f"… {len(lines) - 2 * half} lines more …", *lines[-half:]]
