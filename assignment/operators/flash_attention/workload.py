"""FlashAttention-2 on a GPU: 16,384 tokens at every length, as in Dao 2023, section 4.1, beside who else computes it.

Operations are those of the products of matrices: 4·b·n²·d forward and 10·b·n²·d backward, half of it where it is causal
(Dao 2023, "FlashAttention-2", section 4.1).
"""

import functools
import math
import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from assignment.operators.workloads import Check, Panel, Spec, Workload
from tests import compare
from tests.flash_attention import models

TOKENS, HIDDEN = 16384, 2048  # in all batches, and in all heads
LENGTHS = [512 << i for i in range(6)]
BESIDE = (  # lengths and widths that no tile fits, and other dtypes
    (4095, 64, torch.bfloat16), (4097, 64, torch.bfloat16), (4096, 80, torch.bfloat16),
    (4096, 64, torch.float16), (4096, 64, torch.float32),
)  # fmt: skip
LONGEST_CHECKED = 8192  # queries
GLANCED_ROWS = 16
ROUGHLY = 0.1  # of the largest value: many times what 16 bits explain, and far less than any other result
COMPILED = 384  # tokens
GRADED = ((torch.bfloat16, 64), (torch.bfloat16, 128), (torch.float32, 64))  # dtype and d
LARGER = ((torch.bfloat16, 256), (torch.float32, 128))
DRAWN = 128  # the d of the pictures
PEERS = {  # FlexAttention and FlashAttention-3 have no backward pass that can be called by itself
    "flash_forward_triton": (
        "flash2", "cudnn", "flex", "flash3", "compiled", "naive",
        # BEGIN STAFF
        "hopper",
        # END STAFF
    ),
    "flash_backward_triton": (
        "flash2", "cudnn", "compiled", "naive",
        # BEGIN STAFF
        "hopper_backward",
        # END STAFF
    ),
}  # fmt: skip
TITLES = {
    "flash2": "FlashAttention-2",
    "cudnn": "cuDNN",
    "flex": "FlexAttention",
    "flash3": "FlashAttention-3",
    **dict.fromkeys(("hopper", "hopper_backward"), "Gluon, for Hopper"),
}
PACKAGES = ("flash-attn-3", "fa3-fwd")
HEADINGS = {"flash2": "FA-2", "flex": "Flex", "flash3": "FA-3", **dict.fromkeys(("hopper", "hopper_backward"), "Gluon")}
PANELS = tuple(
    Panel(
        title=f"Attention {direction}, d = {DRAWN}, 16,384 tokens: full lines; causal: broken",
        functions=(f"flash_{direction}_triton",),
        size="n",
        size_in_words="queries and keys n",
        value="microseconds",
        value_in_words="µs a call",
        d=DRAWN,
    )
    for direction in ("forward", "backward")
)


def workload(
    n: int,
    d: int,
    dtype: torch.dtype,
    is_causal: bool = False,
    backward: bool = False,
    batch: tuple[int, ...] | None = None,
) -> Workload:
    """Return the work on n queries and as many keys; by default TOKENS in all batches and HIDDEN in all heads."""
    batch = batch or (max(1, TOKENS // n), max(1, HIDDEN // d))
    x, lse = Spec(dtype, (*batch, n, d)), Spec(torch.float32, (*batch, n))
    options, product = {"is_causal": is_causal}, 2.0 * math.prod(batch) * n * n * d / (2 if is_causal else 1)
    if backward:
        inputs = {"grad_o": x, "q": x, "k": x, "v": x, "o": x, "lse": lse}
        outputs = {"grad_q": x, "grad_k": x, "grad_v": x}
        left = functools.partial(hand_on, is_causal=is_causal)
        return Workload("flash_backward_triton", inputs, outputs, options, 5 * product, hand_on=left, picked=pick)
    inputs, outputs = {"q": x, "k": x, "v": x}, {"o": x, "lse": lse}
    return Workload("flash_forward_triton", inputs, outputs, options, 2 * product, picked=pick)


def compiled() -> list[tuple[Workload, bool]]:
    """Return what is compiled for GPUs that are not there, and whether it is graded.

    Of what is not, causal alone: that takes as much, and more registers.
    """
    sizes = [(dtype, d, causal, True) for dtype, d in GRADED for causal in (False, True)]
    sizes += [(dtype, d, True, False) for dtype, d in LARGER]
    return [
        (workload(COMPILED, d, dtype, causal, back, batch=(2,)), is_graded)
        for back in (False, True)
        for dtype, d, causal, is_graded in sizes
    ]


def sweep() -> list[Workload]:
    """Return the sizes of a bench."""
    works = []
    for back in (False, True):
        sizes = [(n, d, causal) for d in (64, 128) for causal in (False, True) for n in LENGTHS]
        works += [workload(n, d, torch.bfloat16, causal, back) for n, d, causal in sizes]
        works += [workload(n, d, dtype, backward=back) for n, d, dtype in BESIDE]
    return works


def hand_on(named: dict[str, Tensor], is_causal: bool) -> None:
    """Write the o and lse of a forward pass."""
    o, lse = attend(named["q"], named["k"], named["v"], is_causal)
    named["o"].copy_(o)
    named["lse"].copy_(lse)


def pick(work: Workload, named: dict[str, Tensor], chance: random.Random, is_strict: bool) -> Check:
    """Return a check of a head, by the rule that every result is held to.

    Or, if that takes too long or too much memory in float64, of a few rows of a head, roughly.
    """
    if is_strict and named["q"].shape[-2] <= LONGEST_CHECKED:
        return _pick_head(work, named, chance)
    return _glance(work, named, chance)


def _glance(work: Workload, named: dict[str, Tensor], chance: random.Random) -> Check:
    head = tuple(chance.randrange(n) for n in named["q"].shape[:-2])
    own = {name: tensor[head].clone() for name, tensor in named.items()}
    n = own["q"].shape[0]
    rows = sorted(chance.sample(range(n), min(n, GLANCED_ROWS)))

    def check(results: Sequence[Tensor]) -> float:
        expected = (some_gradients if "grad_o" in own else some_rows)(own, rows, work.options["is_causal"])
        for name, result, want in zip(work.outputs, results, expected, strict=True):
            error, allowed = (result[head][rows].double() - want).abs().max(), ROUGHLY * want.abs().max()
            if not error <= allowed:
                raise compare.Mismatch(
                    f"{name}: rows {rows[0]} to {rows[-1]} of a head are off by {error:.3g}, where the largest "
                    f"value is {want.abs().max():.3g}: they do not belong to the inputs of this call"
                )
        return 0.0

    return check


def _pick_head(work: Workload, named: dict[str, Tensor], chance: random.Random) -> Check:
    head = tuple(chance.randrange(n) for n in named["q"].shape[:-2])
    own = [tensor[head].clone() for tensor in named.values()]
    model: Any = models.attention_backward if "grad_o" in named else models.attention_forward

    def check(results: Sequence[Tensor]) -> float:
        return compare.worst_margin(tuple(result[head] for result in results), model(*own, **work.options))

    return check


def some_rows(own: dict[str, Tensor], rows: list[int], is_causal: bool) -> tuple[Tensor, Tensor]:
    """Return o and lse of some queries of one head, in float64."""
    s = scores(own["q"][rows], own["k"], rows, is_causal)
    return s.softmax(-1) @ own["v"].double(), s.logsumexp(-1)


def some_gradients(own: dict[str, Tensor], rows: list[int], is_causal: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return grad_q of some queries of one head, grad_k and grad_v of the keys at the same places, in float64."""
    grad_o, q, k, v, o, lse = (own[name].double() for name in ("grad_o", "q", "k", "v", "o", "lse"))
    delta, everywhere, scale = (grad_o * o).sum(-1), list(range(len(q))), 1 / math.sqrt(q.shape[-1])
    p = (scores(q[rows], k, rows, is_causal) - lse[rows, None]).exp()
    grad_q = p * (grad_o[rows] @ v.mT - delta[rows, None]) @ k * scale
    p = (scores(q, k[rows], everywhere, is_causal, rows) - lse[:, None]).exp()
    grad_s = p * (grad_o @ v[rows].mT - delta[:, None])
    return grad_q, grad_s.mT @ q * scale, p.mT @ grad_o


def scores(q: Tensor, k: Tensor, queries: Sequence[int], is_causal: bool, keys: Sequence[int] | None = None) -> Tensor:
    """Return the logits of some queries and keys (default: all), whose places decide what is masked."""
    s = q.double() @ k.double().mT / math.sqrt(q.shape[-1])
    if not is_causal:
        return s
    places = torch.tensor(range(len(k)) if keys is None else keys, device=s.device)
    return s.masked_fill(places > torch.tensor(queries, device=s.device)[:, None], -math.inf)


def attend(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> tuple[Tensor, Tensor]:
    """Return o and lse by PyTorch's FlashAttention-2, or by its memory-efficient attention, which takes all inputs."""
    aten, d = torch.ops.aten, q.shape[-1]
    is_for_flash = q.dtype in (torch.bfloat16, torch.float16) and d <= 256 and d % 8 == 0
    try:
        if is_for_flash:
            o, lse, *_ = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, is_causal)
            return o, lse[..., : q.shape[-2]]
    except RuntimeError:  # not on this GPU, or not in this build of PyTorch
        pass
    o, lse, *_ = aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, is_causal)
    return o, lse[..., : q.shape[-2]]
