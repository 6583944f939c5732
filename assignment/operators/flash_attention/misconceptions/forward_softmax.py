"""What can go wrong in the online softmax: its maximum, its sums, the scale, lse."""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from assignment.operators.flash_attention.misconceptions.forward_model import (
    ALGORITHM,
    ATTENTION,
    MASKS,
    ONLINE,
    Tiled,
    each,
    n_keys_of,
    once,
    running,
    several,
)
from assignment.operators.misconception import TILES, Call, Misconception, exp, padded_width

LOG2E = math.log2(math.e)


def local(largest: Tensor, first: float) -> Tensor:
    return largest


def ones(old: Tensor, new: Tensor) -> Tensor:
    return torch.ones_like(old)


def inverse(old: Tensor, new: Tensor) -> Tensor:
    return exp(new - old)


def none(largest: Tensor, first: float) -> Tensor:
    return torch.zeros_like(largest)


def of_all_rows(largest: Tensor, first: float, tile: int) -> Tensor:
    """One maximum for each tile of rows."""
    together = [part.amax(-2, keepdim=True).expand_as(part) for part in largest.split(tile, -2)]
    return running(torch.cat(together, -2), first)


def zeros(old: Tensor, new: Tensor) -> Tensor:
    return torch.zeros_like(old)


def one_maximum(call: Call) -> Iterator[Sequence[Tensor]]:
    for tile in TILES:
        for rows in TILES:
            yield Tiled(maximum=functools.partial(of_all_rows, tile=rows))(call, tile)


MISCONCEPTIONS = [
    Misconception(
        "acc-not-rescaled",
        "Your o equals attention in which the old accumulator is not rescaled when the running maximum grows",
        "Look at what multiplies acc before you add to it.",
        ONLINE,
        each(keep_acc=ones),
    ),
    Misconception(
        "sum-not-rescaled",
        "Your o and lse equal attention in which the old sum is not rescaled when the running maximum grows",
        "Look at what multiplies the running sum before you add to it.",
        ONLINE,
        each(keep_sum=ones),
    ),
    Misconception(
        "nothing-rescaled",
        "Your result equals attention in which neither accumulator nor sum is rescaled when the running maximum grows",
        "What was summed under the old maximum is too large, or too small, under the new one: by which factor?",
        ONLINE,
        each(keep_acc=ones, keep_sum=ones),
    ),
    Misconception(
        "rescaled-by-the-inverse",
        "Your result equals attention in which old sums are multiplied by exp(m_new − m_old)",
        "The new maximum is at least the old one: should what is old grow or shrink?",
        ONLINE,
        several(each(keep_acc=inverse, keep_sum=inverse), each(keep_acc=inverse), each(keep_sum=inverse)),
    ),
    Misconception(
        "maximum-starts-at-0",
        "Your result equals attention whose running maximum starts at a number, such as 0",
        "A row whose logits are all far below 0 never sees a maximum of its own: with what does m begin?",
        ONLINE,
        several(each(first_maximum=0.0), once(first_maximum=0.0)),
    ),
    Misconception(
        "maximum-of-the-tile",
        "Your result equals attention in which the maximum of the last tile replaces the running one",
        "The running maximum never falls: what has it to be compared with?",
        ONLINE,
        several(each(maximum=local), each(maximum=local, keep_acc=ones, keep_sum=ones)),
    ),
    Misconception(
        "maximum-never-updated",
        "Your result equals attention whose running maximum stays at −∞: each tile drops what came before it",
        "What does the next tile find as the old maximum?",
        ONLINE,
        each(maximum=local, keep_acc=zeros, keep_sum=zeros, lse=lambda m, total: total.log() - math.inf),
    ),
    Misconception(
        "no-maximum",
        "Your result equals attention without a maximum subtracted: large logits overflow, small ones vanish",
        "exp(89) is infinite in float32. What is subtracted from a row's logits, and added back to lse?",
        ONLINE,
        once(maximum=none, first_maximum=0.0),
        is_rare=True,
    ),
    Misconception(
        "one-maximum-for-all-rows",
        "Your result equals attention with one maximum for all queries of a tile",
        "Each query has a maximum of its own: along which axis is it taken?",
        ONLINE,
        one_maximum,
        is_rare=True,
    ),
    Misconception(
        "logits-clamped",
        "Your result equals attention whose logits are clamped instead of shifted by a maximum",
        "Clamping changes the larger logits: subtract the row's maximum instead.",
        ONLINE,
        lambda call: (
            Tiled(clamp=limit, maximum=none, first_maximum=0.0)(call, call.tensors[1].shape[-2])
            for limit in (10, 20, 30, 40, 50, 60, 64, 70, 80, 85, 87, 88, 100)
        ),
        is_rare=True,
    ),
    Misconception(
        "base-2",
        "Your result equals attention with 2^s in place of e^s",
        "exp2 wants its argument multiplied by log₂(e).",
        ALGORITHM,
        several(
            once(base=math.log(2), lse=lambda m, total: (m + total.log()) / math.log(2)),
            once(base=math.log(2), lse=lambda m, total: m / math.log(2) + total.log()),
            once(base=math.log(2), lse=lambda m, total: m + total.log()),
        ),
    ),
    Misconception(
        "scale-missing",
        "Your result equals attention without the scale 1/√d",
        "What is q kᵀ divided by before the softmax?",
        ATTENTION,
        once(scale=lambda d: 1.0),
    ),
    Misconception(
        "scale-twice",
        "Your result equals attention scaled twice, by 1/d in all",
        "The scale belongs to q or to the logits, not to both.",
        ATTENTION,
        once(scale=lambda d: 1.0 / d),
    ),
    Misconception(
        "scale-multiplied",
        "Your result equals attention whose logits are multiplied by √d",
        "Is the scale √d, or one over it?",
        ATTENTION,
        once(scale=math.sqrt),
    ),
    Misconception(
        "scale-of-the-padded-d",
        "Your result equals attention scaled by the padded width of the tile instead of d",
        "A tile is as wide as a power of two; the scale wants the d of the input.",
        ALGORITHM,
        several(
            once(scale=lambda d: 1 / math.sqrt(padded_width(d))),
            once(scale=lambda d: 1 / math.sqrt(max(16, padded_width(d)))),
        ),
    ),
    Misconception(
        "scale-fixed",
        "Your result equals attention with one scale for every d",
        "A constant that is right for one head dimension only: take it from q's shape.",
        ATTENTION,
        lambda call: (
            Tiled(scale=lambda d, of=of: 1 / math.sqrt(of))(call, call.tensors[1].shape[-2]) for of in (64, 128, 32)
        ),
    ),
    Misconception(
        "lse-without-the-maximum",
        "Your lse is the logarithm of the sum alone, without the row's maximum",
        "The sum was taken of exp(s − m): what has to be added to its logarithm?",
        ONLINE,
        several(each(lse=lambda m, total: total.log()), once(lse=lambda m, total: total.log())),
    ),
    Misconception(
        "lse-the-maximum-alone",
        "Your lse is the row's maximum alone, without the logarithm of the sum",
        "lse = m + ln(l): which part of it is missing?",
        ONLINE,
        several(each(lse=lambda m, total: m), once(lse=lambda m, total: m)),
    ),
    Misconception(
        "lse-without-the-logarithm",
        "Your lse is the maximum plus the sum, without the sum's logarithm",
        "lse = m + ln(l): what is taken of the sum before it is added?",
        ONLINE,
        several(each(lse=lambda m, total: m + total), once(lse=lambda m, total: m + total)),
    ),
    Misconception(
        "lse-the-sum-alone",
        "Your lse is the sum itself, without its logarithm and without the row's maximum",
        "lse = m + ln(l): the sum was taken of exp(s − m).",
        ONLINE,
        several(each(lse=lambda m, total: total), once(lse=lambda m, total: total)),
    ),
    Misconception(
        "lse-in-base-2",
        "Your lse is in base 2, or only half of it is in base e",
        "With exp2 the maximum and the sum are in base 2: what turns log₂ into ln?",
        ALGORITHM,
        several(
            once(lse=lambda m, total: m * LOG2E + total.log2()),
            once(lse=lambda m, total: m + total.log2()),
            once(lse=lambda m, total: m * LOG2E + total.log()),
            once(lse=lambda m, total: (m * LOG2E + total.log2()) * LOG2E),
        ),
    ),
    Misconception(
        "lse-with-the-wrong-sign",
        "Your lse has the logarithm of the sum subtracted",
        "lse = m + ln(l).",
        ONLINE,
        once(lse=lambda m, total: m - total.log()),
    ),
    Misconception(
        "k-and-v-swapped",
        "Your result equals attention with k and v in each other's place",
        "In which order does the kernel get them?",
        MASKS,
        lambda call: iter([Tiled()(replace(call, tensors=[call.tensors[i] for i in (0, 2, 1)]), n_keys_of(call))]),
    ),
    Misconception(
        "not-divided",
        "Your o is not divided by the row's sum",
        "What is left to do after the last tile?",
        ONLINE,
        several(each(divided=False), once(divided=False)),
    ),
]
