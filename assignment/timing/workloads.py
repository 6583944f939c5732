"""What is timed: a function on inputs of one size, with the least that it must move and compute.

Bytes are those that have to cross the GPU's memory bus once, operations those of the products of matrices: 4·b·n²·d in
attention forward and 10·b·n²·d backward, half of it where it is causal (Dao 2023, "FlashAttention-2", section 4.1).
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from assignment.timing.memory import Memory, Spec
from tests import compare, models

EPS = 1e-5  # rmsnorm's default
TOKENS, HIDDEN = 16384, 2048  # of attention, as in Dao 2023, section 4.1
LONGEST_CHECKED = 8192  # queries
GLANCED_ROWS = 16
ROUGHLY = 0.1  # of the largest value: many times what 16 bits explain, and far less than any other result
CHECKED_ROWS = 32
CHECKED_COLUMNS = 8
Check = Callable[[Sequence[Tensor]], float]  # of results; returns the largest error over its bound, or raises Mismatch


@dataclass(frozen=True)
class Workload:
    """A function of the submission with its inputs' and results' shapes."""

    function: str
    inputs: dict[str, Spec]
    outputs: dict[str, Spec]
    options: dict[str, Any] = field(default_factory=dict)
    operations: float = 0.0  # of products of matrices
    arithmetic: float = 0.0  # of elements, where there is no product

    @property
    def nbytes(self) -> int:
        """What must be read and written at least."""
        return sum(spec.nbytes for spec in (*self.inputs.values(), *self.outputs.values()))

    def fill(self, tensors: Sequence[Tensor], memory: Memory, generator: torch.Generator) -> None:
        """New values in one slot: what a forward pass would have left, where a backward pass needs it."""
        named = dict(zip(self.inputs, tensors, strict=True))
        for name, tensor in named.items():
            if name not in ("rstd", "o", "lse"):
                memory.randomize(tensor, generator)
        if "rstd" in named:
            x = named["x"]
            norm = torch.linalg.vector_norm(x, dim=-1, dtype=torch.float32)
            named["rstd"].copy_((norm.square() / x.shape[-1] + EPS).rsqrt())
        if "lse" in named:
            o, lse = attend(named["q"], named["k"], named["v"], **self.options)
            named["o"].copy_(o)
            named["lse"].copy_(lse)

    def pick(self, tensors: Sequence[Tensor], chance: random.Random, is_strict: bool = True) -> Check:
        """A check of some part of the results, which is drawn now.

        Of attention a head, by the rule that every result is held to; or, if that takes too long or too much memory in
        float64, a few rows of a head, roughly.
        """
        named = dict(zip(self.inputs, tensors, strict=True))
        if "q" not in named:
            return self._pick_rows_and_columns(named, chance, 1 if is_strict else 4)
        if is_strict and named["q"].shape[-2] <= LONGEST_CHECKED:
            return self._pick_head(named, tensors, chance)
        return self._glance(named, chance)

    def _glance(self, named: dict[str, Tensor], chance: random.Random) -> Check:
        head = tuple(chance.randrange(n) for n in named["q"].shape[:-2])
        own = {name: tensor[head].clone() for name, tensor in named.items()}
        n = own["q"].shape[0]
        rows = sorted(chance.sample(range(n), min(n, GLANCED_ROWS)))

        def check(results: Sequence[Tensor]) -> float:
            backward = "grad_o" in own
            expected = (some_gradients if backward else some_rows)(own, rows, self.options["is_causal"])
            for name, result, want in zip(self.outputs, results, expected, strict=True):
                error, allowed = (result[head][rows].double() - want).abs().max(), ROUGHLY * want.abs().max()
                if not error <= allowed:
                    raise compare.Mismatch(
                        f"{name}: rows {rows[0]} to {rows[-1]} of a head are off by {error:.3g}, where the largest "
                        f"value is {want.abs().max():.3g}: they do not belong to the inputs of this call"
                    )
            return 0.0

        return check

    def _pick_head(self, named: dict[str, Tensor], tensors: Sequence[Tensor], chance: random.Random) -> Check:
        head = tuple(chance.randrange(n) for n in named["q"].shape[:-2])
        own = [tensor[head].clone() for tensor in tensors]
        model: Any
        model = models.attention_backward if "grad_o" in named else models.attention_forward

        def check(results: Sequence[Tensor]) -> float:
            return compare.worst_margin(tuple(result[head] for result in results), model(*own, **self.options))

        return check

    def _pick_rows_and_columns(self, named: dict[str, Tensor], chance: random.Random, fewer: int) -> Check:
        """Rows of all results, but columns of the weight's gradient, to which each row adds."""
        n_rows, d = named["x"].shape
        rows = sorted(chance.sample(range(n_rows), min(n_rows, CHECKED_ROWS // fewer)))
        columns = sorted(chance.sample(range(d), min(d, CHECKED_COLUMNS // fewer)))
        by_row = {name: (tensor.clone() if name == "weight" else tensor[rows]).cpu() for name, tensor in named.items()}
        by_column = {}
        if "grad_weight" in self.outputs:
            by_column = {
                name: (tensor[..., columns] if name in ("x", "weight") or tensor.ndim == 2 else tensor.clone()).cpu()
                for name, tensor in named.items()
            }
        model = getattr(models, self.function)

        def check(results: Sequence[Tensor]) -> float:
            expected = model(*by_row.values(), **self.options)
            if by_column:
                expected["grad_weight"] = model(*by_column.values(), **self.options)["grad_weight"]
            where = [columns if name == "grad_weight" else rows for name in self.outputs]
            came = tuple(result[part].cpu() for result, part in zip(results, where, strict=True))
            return compare.worst_margin(came if len(came) > 1 else came[0], expected)

        return check


def some_rows(own: dict[str, Tensor], rows: list[int], is_causal: bool) -> tuple[Tensor, Tensor]:
    """o and lse of some queries of one head, in float64."""
    s = scores(own["q"][rows], own["k"], rows, is_causal)
    return s.softmax(-1) @ own["v"].double(), s.logsumexp(-1)


def some_gradients(own: dict[str, Tensor], rows: list[int], is_causal: bool) -> tuple[Tensor, Tensor, Tensor]:
    """grad_q of some queries of one head, and grad_k and grad_v of the keys at the same places, in float64."""
    grad_o, q, k, v, o, lse = (own[name].double() for name in ("grad_o", "q", "k", "v", "o", "lse"))
    delta, everywhere, scale = (grad_o * o).sum(-1), list(range(len(q))), 1 / math.sqrt(q.shape[-1])
    p = (scores(q[rows], k, rows, is_causal) - lse[rows, None]).exp()
    grad_q = p * (grad_o[rows] @ v.mT - delta[rows, None]) @ k * scale
    p = (scores(q, k[rows], everywhere, is_causal, rows) - lse[:, None]).exp()
    grad_s = p * (grad_o @ v[rows].mT - delta[:, None])
    return grad_q, grad_s.mT @ q * scale, p.mT @ grad_o


def scores(q: Tensor, k: Tensor, queries: Sequence[int], is_causal: bool, keys: Sequence[int] | None = None) -> Tensor:
    """The logits of some queries and keys (default: all), whose places decide what is masked."""
    s = q.double() @ k.double().mT / math.sqrt(q.shape[-1])
    if not is_causal:
        return s
    places = torch.tensor(range(len(k)) if keys is None else keys, device=s.device)
    return s.masked_fill(places > torch.tensor(queries, device=s.device)[:, None], -math.inf)


def attend(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> tuple[Tensor, Tensor]:
    """o and lse by PyTorch's memory-efficient attention, which takes every dtype and every d."""
    o, lse, *_ = torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, is_causal)
    return o, lse[..., : q.shape[-2]]


def weighted_sum(n_rows: int, d: int, dtype: torch.dtype, backward: bool = False) -> Workload:
    x, weight, y = Spec(dtype, (n_rows, d)), Spec(dtype, (d,)), Spec(dtype, (n_rows,))
    if backward:
        inputs, outputs = {"grad_y": y, "x": x, "weight": weight}, {"grad_x": x, "grad_weight": weight}
        return Workload("weighted_sum_backward", inputs, outputs, arithmetic=3.0 * n_rows * d)
    return Workload("weighted_sum_forward", {"x": x, "weight": weight}, {"y": y}, arithmetic=2.0 * n_rows * d)


def rmsnorm(n_rows: int, d: int, dtype: torch.dtype, backward: bool = False) -> Workload:
    x, weight, rstd = Spec(dtype, (n_rows, d)), Spec(dtype, (d,)), Spec(torch.float32, (n_rows,))
    if backward:
        inputs = {"grad_y": x, "x": x, "weight": weight, "rstd": rstd}
        return Workload("rmsnorm_backward", inputs, {"grad_x": x, "grad_weight": weight}, arithmetic=9.0 * n_rows * d)
    return Workload("rmsnorm_forward", {"x": x, "weight": weight}, {"y": x, "rstd": rstd}, arithmetic=4.0 * n_rows * d)


def attention(
    n: int,
    d: int,
    dtype: torch.dtype,
    is_causal: bool = False,
    backward: bool = False,
    batch: tuple[int, int] | None = None,
) -> Workload:
    """n queries and as many keys, in so many batches and heads: by default TOKENS in all and HIDDEN in all heads."""
    batch = batch or (max(1, TOKENS // n), max(1, HIDDEN // d))
    x, lse = Spec(dtype, (*batch, n, d)), Spec(torch.float32, (*batch, n))
    options, product = {"is_causal": is_causal}, 2.0 * math.prod(batch) * n * n * d / (2 if is_causal else 1)
    if backward:
        inputs = {"grad_o": x, "q": x, "k": x, "v": x, "o": x, "lse": lse}
        outputs = {"grad_q": x, "grad_k": x, "grad_v": x}
        return Workload("flash_backward_triton", inputs, outputs, options, 5 * product)
    return Workload("flash_forward_triton", {"q": x, "k": x, "v": x}, {"o": x, "lse": lse}, options, 2 * product)
