"""What can go wrong in FlashAttention-2's backward pass, right by default."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assignment.operators.flash_attention.forward_misconceptions import (
    MASKS,
    PAIRS,
    Round,
    Variants,
    before_the_diagonal,
    default_scale,
    in_the_future,
    past,
    several,
)
from assignment.operators.misconception import TILES, Call, Misconception, exact, exp, padded_width, rounded

Gradients = Callable[["Pass"], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class Pass:
    """The tensors of one backward pass, in float64."""

    grad_o: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor
    lse: Tensor
    p: Tensor
    grad_p: Tensor
    delta: Tensor
    grad_s: Tensor
    scale: float


def usual(x: Pass) -> tuple[Tensor, Tensor, Tensor]:
    return x.grad_s @ x.k * x.scale, x.grad_s.mT @ x.q * x.scale, x.p.mT @ x.grad_o


def row_dots(grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor) -> Tensor:
    return (grad_o * o).sum(-1, keepdim=True)


@dataclass(frozen=True)
class Recomputed:
    """Each field is a thing that can be wrong."""

    recompute_scale: Callable[[int], float] = default_scale
    scale: Callable[[int], float] = default_scale
    seen: Callable[..., Tensor] | None = past
    hidden: float = -math.inf
    lse: Callable[[Tensor], Tensor] = lambda lse: lse.unsqueeze(-1)
    p_from: Callable[[Tensor, Tensor], Tensor] = lambda s, lse: torch.where(s == -math.inf, 0.0, exp(s - lse))
    delta: Callable[..., Tensor] = row_dots
    grad_p: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda grad_o, k, v: grad_o @ v.mT
    sign: float = -1.0  # of D
    gradients: Gradients = usual
    logits: Round = exact
    dp: Round = exact
    d: Round = exact
    p: Round = exact
    ds: Round = exact
    n_keys: Callable[[int, int], int] = lambda n_queries, n_keys: n_keys
    visited: tuple[int, int] | None = None
    inputs: Callable[..., Sequence[Tensor]] = lambda *tensors: tensors

    def __call__(self, call: Call) -> tuple[Tensor, ...]:
        grad_o, q, k, v, o, lse = self.inputs(*(tensor.double() for tensor in call.tensors))
        n_queries, n_keys = q.shape[-2], k.shape[-2]
        s = self.logits(q @ k.mT * self.recompute_scale(q.shape[-1]))
        if call.is_causal and self.seen:
            seen = self.seen(torch.arange(n_queries)[:, None], torch.arange(n_keys), 0, n_queries, n_keys)
            s = torch.where(seen, s, self.hidden)
        p = self.p(self.p_from(s, self.lse(lse)))
        p = torch.where(torch.arange(n_keys) < self.n_keys(n_queries, n_keys), p, 0.0)
        if self.visited and call.is_causal:
            p = torch.where(
                in_the_future(torch.arange(n_queries)[:, None], torch.arange(n_keys), *self.visited), 0.0, p
            )
        grad_p = self.dp(self.grad_p(grad_o, k, v))
        delta = self.d(self.delta(grad_o, q, k, v, o))
        grad_s = self.ds(p * (grad_p + self.sign * delta))
        p, grad_s = call.operand(p), call.operand(grad_s)
        return self.gradients(Pass(grad_o, q, k, v, o, lse, p, grad_p, delta, grad_s, self.scale(q.shape[-1])))


def one(**changes: Any) -> Variants:
    return lambda call: iter([Recomputed(**changes)(call)])


def masked(**changes: Any) -> Variants:
    """A causal model: over everything, or over tiles up to the diagonal's."""
    return lambda call: (Recomputed(visited=pair, **changes)(call) for pair in (None, *PAIRS) if call.is_causal)


def in_dtype(*fields: str, **changes: Any) -> Variants:
    def model(call: Call) -> Iterator[Sequence[Tensor]]:
        if call.dtype != torch.float32:
            yield Recomputed(**(dict.fromkeys(fields, rounded(call.dtype)) | changes))(call)

    return model


def scaled(q: float = 0, k: float = 0, v: float = 0) -> Gradients:
    """With more powers of the scale."""

    def change(x: Pass) -> tuple[Tensor, Tensor, Tensor]:
        return tuple(gradient * x.scale**power for gradient, power in zip(usual(x), (q, k, v), strict=True))

    return change


def tile_of(n: int, tile: int, which: int) -> slice:
    """The first (0) or last (−1) tile of n."""
    start = 0 if which == 0 else (n - 1) // tile * tile
    return slice(start, start + tile)


def of_one_tile(outputs: tuple[int, ...], which: int) -> Variants:
    """Gradients of the first or last tile only, of keys for q and of queries for k and v."""

    def model(call: Call) -> Iterator[Sequence[Tensor]]:
        for tile in TILES:

            def change(x: Pass, tile: int = tile) -> tuple[Tensor, Tensor, Tensor]:
                grads = [*usual(x)]
                keys, queries = (tile_of(t.shape[-2], tile, which) for t in (x.k, x.q))
                if 0 in outputs:
                    grads[0] = x.grad_s[..., keys] @ x.k[..., keys, :] * x.scale
                if 1 in outputs:
                    grads[1] = x.grad_s[..., queries, :].mT @ x.q[..., queries, :] * x.scale
                if 2 in outputs:
                    grads[2] = x.p[..., queries, :].mT @ x.grad_o[..., queries, :]
                return tuple(grads)  # type: ignore[return-value]

            yield Recomputed(gradients=change)(call)

    return model


def accumulated(output: int) -> Variants:
    """A gradient that is rounded to 16 bits after every tile."""

    def model(call: Call) -> Iterator[Sequence[Tensor]]:
        if call.dtype == torch.float32:
            return
        cast = rounded(call.dtype)
        for tile in TILES:
            for operands in (exact, cast):

                def change(x: Pass, tile: int = tile, operands: Round = operands) -> tuple[Tensor, Tensor, Tensor]:
                    grads = [*usual(x)]
                    products = (x.grad_s, x.scale * x.k), (x.grad_s.mT, x.scale * x.q), (x.p.mT, x.grad_o)
                    left, right = products[output]
                    total = torch.zeros_like(grads[output])
                    for columns, rows in zip(left.split(tile, -1), right.split(tile, -2), strict=True):
                        total = cast(total + operands(columns) @ rows)
                    grads[output] = total
                    return tuple(grads)  # type: ignore[return-value]

                yield Recomputed(gradients=change)(call)

    return model


def only_square(model: Variants) -> Variants:
    return lambda call: model(call) if call.tensors[1].shape[-2] == call.tensors[2].shape[-2] else iter(())


def along_keys(change: Callable[[Callable[[Tensor], Tensor]], dict[str, Any]]) -> Variants:
    """A value of each query that stands in its column: over all of them, or within tiles."""

    def of_tiles(call: Call) -> Iterator[Sequence[Tensor]]:
        n_queries, n_keys = call.tensors[1].shape[-2], call.tensors[2].shape[-2]
        for tile in TILES:
            rows = torch.arange(n_queries)[:, None] // tile * tile + torch.arange(n_keys) % tile
            yield Recomputed(**change(lambda x, rows=rows: x[..., rows.clamp(max=n_queries - 1)]))(call)

    return several(only_square(one(**change(lambda x: x.unsqueeze(-2)))), of_tiles)


def not_transposed(output: int) -> Variants:
    """The tiles of dS, or of P, multiplied as they are where their transposes belong."""

    def model(call: Call) -> Iterator[Sequence[Tensor]]:
        for tile in TILES:

            def change(x: Pass, tile: int = tile) -> tuple[Tensor, Tensor, Tensor]:
                grads = [*usual(x)]
                left, right = ((x.grad_s, x.scale * x.q), (x.p, x.grad_o))[output - 1]
                grads[output] = turned(left, tile).mT[..., : x.k.shape[-2], : x.q.shape[-2]] @ right
                return tuple(grads)  # type: ignore[return-value]

            yield Recomputed(gradients=change)(call)

    return model


def turned(x: Tensor, tile: int) -> Tensor:
    """Each square tile of x transposed in its place, with zeros up to whole tiles."""
    n_rows, n_cols = (-(-n // tile) for n in x.shape[-2:])
    whole = torch.nn.functional.pad(x, (0, n_cols * tile - x.shape[-1], 0, n_rows * tile - x.shape[-2]))
    return (
        whole.unflatten(-1, (n_cols, tile)).unflatten(-3, (n_rows, tile)).transpose(-1, -3).flatten(-4, -3).flatten(-2)
    )


def of_one_side(output: int) -> Variants:
    """dSᵀ times a tile of k for grad_k, or dS times a tile of q for grad_q: tiles are square, and nothing complains."""

    def model(call: Call) -> Iterator[Sequence[Tensor]]:
        for tile in TILES:

            def change(x: Pass, tile: int = tile) -> tuple[Tensor, Tensor, Tensor]:
                grads = [*usual(x)]
                left, right = ((x.grad_s, x.q), (x.grad_s.mT, x.k))[output]
                n_left, n_right = (-n % tile for n in left.shape[-2:])
                whole = torch.nn.functional.pad(left, (0, n_right, 0, n_left))
                whole = whole.unflatten(-1, (-1, tile)).sum(-2)  # (…, rows, tile)
                rows = torch.nn.functional.pad(right, (0, 0, 0, n_left)).unflatten(-2, (-1, tile))
                product = whole.unflatten(-2, (-1, tile)) @ rows
                grads[output] = x.scale * product.flatten(-3, -2)[..., : left.shape[-2], :]
                return tuple(grads)  # type: ignore[return-value]

            yield Recomputed(gradients=change)(call)

    return model


def not_hidden(call: Call) -> Iterator[Sequence[Tensor]]:
    """P = exp(0 − lse) of keys past the end of the last tile: where it is infinite, grad_q becomes ∞ · 0."""
    grad_q, grad_k, grad_v = Recomputed()(call)
    for tile in TILES:
        if call.tensors[2].shape[-2] % tile:
            is_infinite = exp(-call.tensors[5].double()).isinf().unsqueeze(-1)
            yield torch.where(is_infinite, math.nan, grad_q), grad_k, grad_v
            return


def in_place_of_grad_o(call: Call) -> Iterator[Sequence[Tensor]]:
    """o where grad_o belongs: in dP and grad_v, or in D too."""
    yield Recomputed(inputs=lambda grad_o, q, k, v, o, lse: (o, q, k, v, o, lse))(call)
    grad_o = call.tensors[0].double()
    yield Recomputed(
        inputs=lambda _, q, k, v, o, lse: (o, q, k, v, o, lse),
        delta=lambda _, q, k, v, o: (grad_o * o).sum(-1, keepdim=True),
    )(call)


def swapped(call: Call) -> Iterator[Sequence[Tensor]]:
    """lse in D's place, and D in that of lse."""
    grad_o, *_, o, lse = (tensor.double() for tensor in call.tensors)
    delta = (grad_o * o).sum(-1, keepdim=True)
    yield Recomputed(lse=lambda _: delta, delta=lambda *_: lse.unsqueeze(-1))(call)


def of_first_batch(x: Tensor) -> Tensor:
    """The first batch's value in all of them."""
    return x.flatten(0, -2)[0].expand_as(x) if x.ndim > 1 else x


def replaced(by: Callable[[Tensor], Tensor], *outputs: int) -> Gradients:
    def change(x: Pass) -> tuple[Tensor, Tensor, Tensor]:
        return tuple(by(gradient) if i in outputs else gradient for i, gradient in enumerate(usual(x)))  # type: ignore

    return change


def up_to_the_diagonal(call: Call) -> Iterator[Sequence[Tensor]]:
    """A tile of keys meets the queries of the tiles before it, and its own."""
    if call.is_causal:
        right = Recomputed()(call)
        for tile in TILES:
            seen: Any = lambda q, k, *_, tile=tile: (k <= q) & (q // tile <= k // tile)  # noqa: E731
            wrong = Recomputed(seen=seen)(call)
            yield wrong
            yield right[0], *wrong[1:]


def local_softmax(call: Call) -> Iterator[Sequence[Tensor]]:
    """P normalised over each tile of keys by itself."""
    for tile in TILES:

        def p_from(s: Tensor, lse: Tensor, tile: int = tile) -> Tensor:
            return torch.cat([part.softmax(-1).nan_to_num(0.0) for part in s.split(tile, -1)], -1)

        yield Recomputed(p_from=p_from)(call)


def behind_the_diagonal(rows: int, columns: int) -> Callable[..., Tensor]:
    """Queries of whole tiles behind a tile of keys."""
    return lambda q, k, *_: (k <= q) & (q // rows > k // columns * columns // rows)


SQUARE = "handout/flash_attention.md#backward-mathematics"
RECOMPUTING = "handout/flash_attention.md#recomputing-p"
ALGORITHM = "handout/flash_attention.md#backward-algorithm"
NUMBERS = "handout/flash_attention.md#backward-what-goes-wrong"


MISCONCEPTIONS = [
    Misconception(
        "d-missing",
        "Your gradients equal those without D: dS = P∘dP",
        "dS = P∘(dP − D): what is subtracted from each row of dP?",
        SQUARE,
        one(sign=0.0),
    ),
    Misconception(
        "d-added",
        "Your gradients equal those with D added instead of subtracted",
        "dS = P∘(dP − D): check the sign.",
        SQUARE,
        one(sign=1.0),
    ),
    Misconception(
        "d-twice",
        "Your gradients equal those with D subtracted twice",
        "dS = P∘(dP − D): is it taken off dP, and once more off dS?",
        SQUARE,
        one(sign=-2.0),
    ),
    Misconception(
        "d-missing-in-one-gradient",
        "Your grad_q, or your grad_k, is a product with P∘dP, and the other one with dS",
        "Both are products with dS = P∘(dP − D): which tile is multiplied in each?",
        SQUARE,
        several(
            one(gradients=lambda x: (x.p * x.grad_p @ x.k * x.scale, *usual(x)[1:])),
            one(gradients=lambda x: (usual(x)[0], (x.p * x.grad_p).mT @ x.q * x.scale, usual(x)[2])),
        ),
    ),
    Misconception(
        "d-from-the-wrong-tensors",
        "Your gradients equal those with D taken from the wrong tensors",
        "D_i is the sum over the row of dO_i times O_i.",
        SQUARE,
        several(
            one(delta=lambda grad_o, q, k, v, o: o.sum(-1, keepdim=True)),
            one(delta=lambda grad_o, q, k, v, o: grad_o.sum(-1, keepdim=True)),
            one(delta=lambda grad_o, q, k, v, o: (o * o).sum(-1, keepdim=True)),
            one(delta=lambda grad_o, q, k, v, o: (grad_o * grad_o).sum(-1, keepdim=True)),
            one(delta=lambda grad_o, q, k, v, o: (grad_o * q).sum(-1, keepdim=True)),
            only_square(one(delta=lambda grad_o, q, k, v, o: (grad_o * v).sum(-1, keepdim=True))),
            one(delta=lambda grad_o, q, k, v, o: (grad_o * o).mean(-1, keepdim=True)),
        ),
    ),
    Misconception(
        "dp-from-k",
        "Your gradients equal those with dP = dO Kᵀ",
        "O = P V: which of k and v does dP meet?",
        SQUARE,
        one(grad_p=lambda grad_o, k, v: grad_o @ k.mT),
    ),
    Misconception(
        "dv-from-ds",
        "Your grad_v equals dSᵀ dO",
        "O = P V: dV is a product with P, not with dS.",
        SQUARE,
        one(gradients=lambda x: (*usual(x)[:2], x.grad_s.mT @ x.grad_o)),
    ),
    Misconception(
        "dv-from-o",
        "Your grad_v equals Pᵀ O",
        "dV = Pᵀ dO: which gradient comes in?",
        SQUARE,
        one(gradients=lambda x: (*usual(x)[:2], x.p.mT @ x.o)),
    ),
    Misconception(
        "o-for-grad-o",
        "Your gradients equal those with o in the place of grad_o",
        "dP = dO Vᵀ and dV = Pᵀ dO: which of the two tensors does the kernel get?",
        SQUARE,
        in_place_of_grad_o,
    ),
    Misconception(
        "k-and-v-swapped-in-the-backward",
        "Your gradients equal those with k and v in each other's place",
        "In which order are they saved, and in which order handed on?",
        "handout/flash_attention.md#backward-interface",
        several(
            one(inputs=lambda grad_o, q, k, v, o, lse: (grad_o, q, v, k, o, lse)),
            lambda call: (
                (grads[0], grads[2], grads[1])
                for grads in one(inputs=lambda grad_o, q, k, v, o, lse: (grad_o, q, v, k, o, lse))(call)
            ),
        ),
    ),
    Misconception(
        "dk-from-k",
        "Your grad_k equals dSᵀ k, tile by tile, or your grad_q equals dS q",
        "S = q kᵀ: by the chain rule the gradient of one factor is a product with the other.",
        SQUARE,
        several(of_one_side(1), of_one_side(0)),
    ),
    Misconception(
        "p-squared",
        "Your gradients equal those with dS multiplied by P twice",
        "dS = P∘(dP − D): P stands in it once.",
        SQUARE,
        several(
            one(
                gradients=lambda x: (
                    x.p * x.grad_s @ x.k * x.scale,
                    (x.p * x.grad_s).mT @ x.q * x.scale,
                    x.p.mT @ x.grad_o,
                )
            ),
            one(gradients=lambda x: (x.p * x.grad_s @ x.k * x.scale, *usual(x)[1:])),
            one(gradients=lambda x: (usual(x)[0], (x.p * x.grad_s).mT @ x.q * x.scale, usual(x)[2])),
        ),
    ),
    Misconception(
        "ds-without-p",
        "Your gradients equal those with dS = dP − D, without the factor P",
        "dS = P∘(dP − D).",
        SQUARE,
        one(
            gradients=lambda x: (
                (x.grad_p - x.delta) @ x.k * x.scale,
                (x.grad_p - x.delta).mT @ x.q * x.scale,
                x.p.mT @ x.grad_o,
            )
        ),
    ),
    Misconception(
        "dq-without-the-scale",
        "Your grad_q lacks the scale 1/√d",
        "S = q kᵀ/√d: the chain rule brings the scale back once for grad_q.",
        SQUARE,
        one(gradients=scaled(q=-1)),
    ),
    Misconception(
        "dk-without-the-scale",
        "Your grad_k lacks the scale 1/√d",
        "S = q kᵀ/√d: the chain rule brings the scale back once for grad_k.",
        SQUARE,
        one(gradients=scaled(k=-1)),
    ),
    Misconception(
        "ds-without-the-scale",
        "Your grad_q and grad_k lack the scale 1/√d",
        "S = q kᵀ/√d: the chain rule brings the scale back once.",
        SQUARE,
        one(gradients=scaled(q=-1, k=-1)),
    ),
    Misconception(
        "scaled-twice",
        "Your grad_q or grad_k is scaled by 1/√d once too often",
        "If q, or dS, is scaled already, its product is not scaled again.",
        SQUARE,
        several(*(one(gradients=scaled(q=q, k=k)) for q, k in ((1, 0), (0, 1), (1, 1)))),
    ),
    Misconception(
        "p-without-the-scale",
        "Your gradients equal those with P recomputed without the scale 1/√d",
        "lse belongs to scaled logits: P = exp(q kᵀ/√d − lse).",
        RECOMPUTING,
        several(one(recompute_scale=lambda d: 1.0), one(recompute_scale=lambda d: 1.0, scale=lambda d: 1.0)),
    ),
    Misconception(
        "backward-scale-of-the-padded-d",
        "Your gradients equal those with the scale of the padded width instead of d",
        "A tile is as wide as a power of two; the scale wants the d of the input.",
        RECOMPUTING,
        several(
            *(
                one(recompute_scale=way, scale=way)
                for way in (lambda d: 1 / math.sqrt(padded_width(d)), lambda d: 1 / math.sqrt(max(16, padded_width(d))))
            )
        ),
    ),
    Misconception(
        "backward-base-2",
        "Your gradients equal those with P = 2^(S − lse)",
        "exp2 wants both S and lse multiplied by log₂(e).",
        RECOMPUTING,
        several(
            one(p_from=lambda s, lse: exp((s - lse) * math.log(2))),
            one(p_from=lambda s, lse: exp(s - lse * math.log(2))),
            one(p_from=lambda s, lse: exp(s * math.log(2) - lse)),
        ),
    ),
    Misconception(
        "p-not-normalised",
        "Your gradients equal those with P = exp(S), without lse",
        "P = exp(S − lse): what makes its rows sum to 1?",
        RECOMPUTING,
        one(p_from=lambda s, lse: exp(s)),
    ),
    Misconception(
        "p-a-softmax-over-the-tile",
        "Your gradients equal those with P a softmax over each tile of keys by itself",
        "A row's sum runs over all keys, and lse knows it: P = exp(S − lse).",
        RECOMPUTING,
        local_softmax,
    ),
    Misconception(
        "lse-along-the-keys",
        "Your gradients equal those with lse subtracted along the wrong axis",
        "lse belongs to queries: does its index run along the rows of the tile, or its columns?",
        RECOMPUTING,
        along_keys(lambda place: {"lse": place}),
    ),
    Misconception(
        "d-along-the-keys",
        "Your gradients equal those with D subtracted along the wrong axis",
        "D belongs to queries: does its index run along the rows of the tile, or its columns?",
        SQUARE,
        along_keys(lambda place: {"delta": lambda grad_o, q, k, v, o: place((grad_o * o).sum(-1))}),
    ),
    Misconception(
        "lse-and-d-swapped",
        "Your gradients equal those with lse and D in each other's place",
        "P = exp(S − lse) and dS = P∘(dP − D): in which order does the kernel get them?",
        SQUARE,
        swapped,
    ),
    Misconception(
        "lse-of-the-first-batch",
        "Your gradients equal those with lse or D of the first batch in every batch",
        "Each pointer moves on by its own batch stride, those of lse and D too.",
        NUMBERS,
        several(
            one(lse=lambda lse: of_first_batch(lse).unsqueeze(-1)),
            one(delta=lambda grad_o, q, k, v, o: of_first_batch((grad_o * o).sum(-1)).unsqueeze(-1)),
        ),
        is_by_batch=False,
    ),
    Misconception(
        "dk-not-transposed",
        "Your grad_k equals dS q where dSᵀ q belongs, tile by tile",
        "grad_k has a row for each key: along which axis of dS do the keys run?",
        SQUARE,
        not_transposed(1),
    ),
    Misconception(
        "dv-not-transposed",
        "Your grad_v equals P dO where Pᵀ dO belongs, tile by tile",
        "grad_v has a row for each key: along which axis of P do the keys run?",
        SQUARE,
        not_transposed(2),
    ),
    Misconception(
        "log2-e-in-the-gradients",
        "Your grad_q or grad_k is log₂(e) times too large, or too small",
        "log₂(e) belongs into the exponent of exp2 alone; the gradients are scaled by 1/√d.",
        "handout/speed.md#powers-of-two",
        several(
            *(
                one(gradients=replaced(lambda gradient, factor=factor: factor * gradient, *outputs))
                for factor in (math.log2(math.e), math.log(2))
                for outputs in ((0, 1), (0,), (1,))
            )
        ),
    ),
    Misconception(
        "a-gradient-of-zeros",
        "One of your gradients is zero everywhere, and the others are right",
        "Is it stored, and to the tensor that is returned?",
        ALGORITHM,
        several(*(one(gradients=replaced(torch.zeros_like, output)) for output in range(3))),
    ),
    Misconception(
        "gradients-in-the-wrong-order",
        "Your gradients are right, but returned in the wrong order",
        "The order is grad_q, grad_k, grad_v.",
        "handout/flash_attention.md#backward-interface",
        lambda call: (
            [grads[i] for i in order]
            for grads in [Recomputed()(call)]
            for order in ((0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
        ),
    ),
    Misconception(
        "backward-only-whole-key-tiles",
        "Your gradients equal those over whole tiles of keys only: those of the last, partial one are left out",
        "How many tiles do n_keys keys need, if the last may be partial?",
        ALGORITHM,
        lambda call: (
            Recomputed(n_keys=lambda n_queries, n_keys, tile=tile: n_keys // tile * tile)(call) for tile in TILES
        ),
    ),
    Misconception(
        "backward-causal-ignored",
        "Your gradients with is_causal equal those with P recomputed without the mask",
        "What the forward pass hid has to be hidden again when P is recomputed.",
        RECOMPUTING,
        masked(seen=None),
    ),
    Misconception(
        "backward-causal-diagonal-hidden",
        "Your gradients equal those of causal attention in which a query does not see its own position",
        "Query i sees keys j ≤ i: which comparison is that?",
        MASKS,
        masked(seen=lambda q, k, *_: k < q),
    ),
    Misconception(
        "backward-causal-one-too-many",
        "Your gradients equal those of causal attention in which a query sees one key of the future",
        "Query i sees keys j ≤ i: look at the first query.",
        MASKS,
        masked(seen=lambda q, k, *_: k <= q + 1),
    ),
    Misconception(
        "backward-causal-reversed",
        "Your gradients equal those of causal attention in which a query sees the future and not the past",
        "In which direction does the tile run: are its rows queries or keys?",
        MASKS,
        several(masked(seen=lambda q, k, *_: k >= q), masked(seen=lambda q, k, *_: k > q)),
    ),
    Misconception(
        "backward-causal-bottom-right",
        "Your gradients equal those of causal attention aligned at the bottom right",
        "Query i sees keys j ≤ i, however many keys there are: nothing is added to i.",
        MASKS,
        masked(seen=lambda q, k, tile, n_queries, n_keys: k <= q + n_keys - n_queries),
    ),
    Misconception(
        "backward-causal-hidden-by-a-number",
        "Your gradients equal those of causal attention whose hidden logits are a large negative number",
        "Where lse lies below that number, P overflows or is 1: what is lower than everything?",
        MASKS,
        several(*(masked(hidden=hidden) for hidden in (-1e3, -1e4, -1e5, -1e6, -1e9))),
    ),
    Misconception(
        "backward-padded-keys-not-hidden",
        "Your grad_q is NaN where lse lies far below 0, as where keys past the end keep a logit that is finite",
        "P = exp(S − lse) overflows there, and ∞ · 0 is NaN: which S is hidden whatever lse is?",
        MASKS,
        not_hidden,
    ),
    Misconception(
        "backward-causal-diagonal-tile-skipped",
        "Your gradients equal those of causal attention without the tiles on the diagonal",
        "Where does the loop over queries begin for a tile of keys, and that over keys end for a tile of queries?",
        MASKS,
        lambda call: (
            variant
            for r in TILES
            for c in TILES
            for seen in (*before_the_diagonal(r, c), behind_the_diagonal(r, c))
            if call.is_causal
            for wrong, right in [(Recomputed(seen=seen)(call), Recomputed()(call))]
            for variant in (wrong, (wrong[0], *right[1:]), (right[0], *wrong[1:]))
        ),
    ),
    Misconception(
        "backward-causal-bounds-of-the-forward",
        "Your grad_k and grad_v are those of the queries up to each tile of keys, where those from it on belong",
        "A key is seen by the queries that come after it: where does the loop over queries begin, and where end?",
        MASKS,
        up_to_the_diagonal,
    ),
    Misconception(
        "dq-of-the-last-key-tile",
        "Your grad_q is that of one tile of keys only",
        "Every tile of keys adds to grad_q: is it overwritten where it should be added to?",
        ALGORITHM,
        several(of_one_tile((0,), -1), of_one_tile((0,), 0)),
    ),
    Misconception(
        "dk-of-the-last-query-tile",
        "Your grad_k or grad_v is that of one tile of queries only",
        "Every tile of queries adds to grad_k and grad_v: are they overwritten where they should be added to?",
        ALGORITHM,
        several(*(of_one_tile(outputs, which) for which in (-1, 0) for outputs in ((1,), (2,), (1, 2)))),
    ),
    Misconception(
        "backward-n-queries-for-n-keys",
        "Your gradients equal those over as many keys as there are queries",
        "Which length does the loop over keys run to, and which bounds their mask?",
        ALGORITHM,
        one(n_keys=lambda n_queries, n_keys: n_queries),
    ),
    Misconception(
        "d-in-16-bits",
        "Your gradients equal those with D rounded to the inputs' 16 bits",
        "D is a sum over a row: in float32, from products in float32.",
        NUMBERS,
        several(
            in_dtype("d"),
            lambda call: (
                Recomputed(
                    delta=lambda grad_o, q, k, v, o: rounded(call.dtype)(
                        rounded(call.dtype)(grad_o * o).sum(-1, keepdim=True)
                    )
                )(call)
                for _ in range(call.dtype != torch.float32)
            ),
            lambda call: (
                Recomputed(delta=lambda grad_o, q, k, v, o: rounded(call.dtype)(grad_o * o).sum(-1, keepdim=True))(call)
                for _ in range(call.dtype != torch.float32)
            ),
        ),
    ),
    Misconception(
        "backward-lse-in-16-bits",
        "Your gradients equal those with lse rounded to the inputs' 16 bits",
        "lse is float32: what does it become after the load?",
        NUMBERS,
        lambda call: (
            Recomputed(lse=lambda lse, dtype=dtype: rounded(dtype)(lse).unsqueeze(-1))(call)
            for dtype in (torch.bfloat16, torch.float16)
        ),
    ),
    Misconception(
        "backward-logits-in-16-bits",
        "Your gradients equal those whose logits are rounded to the inputs' 16 bits",
        "What dtype has q kᵀ before lse is subtracted?",
        NUMBERS,
        in_dtype("logits"),
    ),
    Misconception(
        "dp-in-16-bits",
        "Your gradients equal those with dP rounded to the inputs' 16 bits before D is subtracted",
        "dP − D cancels: both in float32; the cast comes after.",
        NUMBERS,
        several(in_dtype("dp"), in_dtype("dp", "d")),
    ),
    Misconception(
        "gradient-accumulated-in-16-bits",
        "Your gradients equal those with a gradient added up in the inputs' 16 bits",
        "In which dtype is the accumulator made?",
        NUMBERS,
        several(accumulated(0), accumulated(1), accumulated(2)),
    ),
    Misconception(
        "p-and-do-in-another-16-bits",
        "Your grad_v equals Pᵀ dO with operands rounded to 16 bits whatever the inputs are",
        "Products are made in the inputs' dtype: which cast comes before tl.dot?",
        NUMBERS,
        lambda call: (
            Recomputed(gradients=lambda x, cast=cast: (*usual(x)[:2], cast(x.p).mT @ cast(x.grad_o)))(call)
            for cast in (rounded(dtype) for dtype in (torch.bfloat16, torch.float16) if dtype != call.dtype)
        ),
    ),
    Misconception(
        "values-limited",
        "Your gradients equal those in which large values are cut off",
        "Nothing in the backward pass needs a limit: P is at most 1.",
        NUMBERS,
        lambda call: (
            tuple(gradient.clamp(-limit, limit) for gradient in Recomputed()(call))
            for limit in (1e2, 1e3, 1e4, 65504.0)
        ),
    ),
    Misconception(
        "inputs-limited",
        "Your gradients equal those of inputs whose large values are cut off",
        "Nothing in the backward pass needs a limit: P is at most 1.",
        NUMBERS,
        lambda call: (
            Recomputed(
                inputs=lambda grad_o, *qkv, which=which, limit=limit: (
                    grad_o,
                    *(x.clamp(-limit, limit) if i in which else x for i, x in enumerate(qkv)),
                )
            )(call)
            for which in ((0,), (0, 1), (0, 1, 2))
            for limit in (1e2, 1e3, 1e4, 65504.0)
            if any(call.tensors[1 + i].abs().max() > limit for i in which)
        ),
    ),
]
