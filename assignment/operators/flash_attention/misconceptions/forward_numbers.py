"""What can go wrong with what the forward pass keeps in 16 bits."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from assignment.operators.flash_attention.misconceptions.forward_model import (
    NUMBERS,
    Tiled,
    Variants,
    each,
    once,
    several,
)
from assignment.operators.misconception import Call, Misconception, rounded


def in_dtype(*fields: str, tiled: bool = False, **changes: Any) -> Variants:
    """Something is rounded to the inputs' 16 bits."""

    def model(call: Call) -> Iterator[Sequence[Tensor]]:
        if call.dtype == torch.float32:
            return
        how = dict.fromkeys(fields, rounded(call.dtype)) | changes
        yield from (each if tiled else once)(**how)(call)

    return model


def as_16_bits(*fields: str) -> Variants:
    """Something is rounded to 16 bits whatever the inputs are."""

    def model(call: Call) -> Iterator[Sequence[Tensor]]:
        for dtype in (torch.bfloat16, torch.float16):
            if dtype != call.dtype:
                yield from once(**dict.fromkeys(fields, rounded(dtype)))(call)

    return model


MISCONCEPTIONS = [
    Misconception(
        "logits-in-16-bits",
        "Your result equals attention whose logits are rounded to the inputs' 16 bits",
        "What dtype has q kᵀ before the softmax? tl.dot accumulates in float32: keep it.",
        NUMBERS,
        in_dtype("logits"),
    ),
    Misconception(
        "sum-in-16-bits",
        "Your result equals attention whose running sum is kept in 16 bits",
        "In which dtype is the sum made?",
        NUMBERS,
        several(in_dtype("total", "p_for_v", tiled=True), in_dtype("total", tiled=True)),
    ),
    Misconception(
        "p-rounded-before-the-sum",
        "Your result equals attention in which P is rounded to 16 bits before it is summed",
        "The cast is for the product with v alone; the sum wants P in float32.",
        NUMBERS,
        several(*(in_dtype(*fields, tiled=tiled) for fields in (("p",), ("p", "total")) for tiled in (False, True))),
    ),
    Misconception(
        "accumulator-in-16-bits",
        "Your o equals attention whose accumulator is kept in 16 bits",
        "In which dtype is acc made, and what does it become when a tile is added?",
        NUMBERS,
        several(
            in_dtype("acc", "p_for_v", tiled=True),
            in_dtype("acc", tiled=True),
            in_dtype("added", "p_for_v", tiled=True),
            in_dtype("added", tiled=True),
            in_dtype("acc", "total", "p_for_v", tiled=True),
        ),
    ),
    Misconception(
        "everything-in-16-bits",
        "Your result equals attention in which everything is rounded to the inputs' 16 bits",
        "Only loads and the last store are in 16 bits: what is between them is float32.",
        NUMBERS,
        several(
            in_dtype("logits", "p", "acc", "total", tiled=True),
            in_dtype("logits", "p", "acc", "total", "added", tiled=True),
            in_dtype("logits", "p", "acc", "total"),
        ),
    ),
    Misconception(
        "lse-in-16-bits",
        "Your lse is rounded to the inputs' 16 bits",
        "lse is float32 whatever the inputs are: what dtype was it before it was stored?",
        NUMBERS,
        lambda call: (
            [o, rounded(call.dtype)(lse)]
            for o, lse in [Tiled()(call, call.tensors[1].shape[-2])]
            if call.dtype != torch.float32
        ),
    ),
    Misconception(
        "operands-in-another-16-bits",
        "Your result equals attention whose operands of q kᵀ are rounded to 16 bits whatever the inputs are",
        "Products are made in the inputs' dtype: which cast comes before tl.dot?",
        NUMBERS,
        as_16_bits("operands"),
    ),
    Misconception(
        "p-in-another-16-bits",
        "Your o equals attention in which P or v is rounded to 16 bits whatever the inputs are",
        "P is cast to the dtype of v: which is it here?",
        NUMBERS,
        several(as_16_bits("p_for_v", "v"), as_16_bits("p_for_v"), as_16_bits("v"), as_16_bits("p")),
    ),
    Misconception(
        "all-operands-in-another-16-bits",
        "Your result equals attention whose inputs are all rounded to 16 bits",
        "float32 inputs stay float32: which cast comes after the loads?",
        NUMBERS,
        several(as_16_bits("operands", "v"), as_16_bits("operands", "v", "p_for_v")),
    ),
]
