"""Flash attention in plain PyTorch, folded: a NamedTuple is the state of a tile, functools.reduce goes over keys."""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Float32
from torch import Tensor

TILE = 64


class State(NamedTuple):
    """What is known of some queries after some keys."""

    o: Tensor
    largest: Tensor
    total: Tensor

    @classmethod
    def begin(cls, q: Tensor) -> "State":
        rows = q.new_full((*q.shape[:-1], 1), -torch.inf, dtype=torch.float32)
        return cls(torch.zeros_like(q, dtype=torch.float32), rows, torch.zeros_like(rows))

    def after(self, s: Tensor, v: Tensor) -> "State":
        largest = torch.maximum(self.largest, s.amax(-1, keepdim=True))
        p, decay = torch.exp(s - largest), torch.exp(self.largest - largest)
        return State(self.o * decay + p @ v, largest, self.total * decay + p.sum(-1, keepdim=True))

    @property
    def results(self) -> tuple[Tensor, Tensor]:
        return self.o / self.total, (self.largest + self.total.log()).squeeze(-1)


def scorer(q: Tensor, k: Tensor, is_causal: bool) -> Callable[[slice, slice], Tensor]:
    """Return a function that gives the scaled scores of a tile."""
    scale = q.shape[-1] ** -0.5

    def scores(rows: slice, cols: slice) -> Tensor:
        s = q[..., rows, :].float() @ k[..., cols, :].float().mT * scale
        if not is_causal or cols.stop <= rows.start + 1:
            return s
        queries, keys = (torch.arange(t.start, t.stop, device=q.device) for t in (rows, cols))
        return s.masked_fill(keys[None, :] > queries[:, None], -torch.inf)

    return scores


def tiles(length: int, until: int | None = None) -> Iterator[slice]:
    end = length if until is None else min(length, until)
    return (slice(start, min(start + TILE, length)) for start in range(0, end, TILE))


def flash_forward_pytorch(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float32[Tensor, "*batch n_queries"]]:
    """o in q's dtype, and lse in float32."""
    validate(q, k, v)
    scores = scorer(q, k, is_causal)

    def of(rows: slice) -> tuple[Tensor, Tensor]:
        cols = tiles(k.shape[-2], rows.stop if is_causal else None)
        step = lambda state, c: state.after(scores(rows, c), v[..., c, :].float())  # noqa: E731
        return functools.reduce(step, cols, State.begin(q[..., rows, :])).results

    o, lse = zip(*map(of, tiles(q.shape[-2])), strict=True)
    return torch.cat(o, dim=-2).to(q.dtype), torch.cat(lse, dim=-1)


def flash_backward_pytorch(
    grad_o: Float[Tensor, "*batch n_queries d"],
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    o: Float[Tensor, "*batch n_queries d"],
    lse: Float32[Tensor, "*batch n_queries"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float[Tensor, "*batch n_keys d"], Float[Tensor, "*batch n_keys d"]]:
    """The gradients of q, k and v, in their dtypes."""
    validate(q, k, v)
    if grad_o.shape != q.shape or o.shape != q.shape or lse.shape != q.shape[:-1]:
        raise ValueError(f"expected grad_o and o like q {tuple(q.shape)}, got {tuple(grad_o.shape)}, {tuple(o.shape)}")
    if grad_o.dtype != q.dtype or o.dtype != q.dtype or lse.dtype != torch.float32:
        raise ValueError(f"expected {q.dtype} and a float32 lse, got {grad_o.dtype}, {o.dtype}, {lse.dtype}")
    scores, scale = scorer(q, k, is_causal), q.shape[-1] ** -0.5
    do, delta = grad_o.float(), torch.linalg.vecdot(grad_o.float(), o.float()).unsqueeze(-1)
    grads = tuple(torch.zeros(x.shape, dtype=torch.float32, device=x.device) for x in (q, k, v))
    for rows, cols in itertools.product(tiles(q.shape[-2]), tiles(k.shape[-2])):
        if is_causal and cols.start >= rows.stop:
            continue
        p = torch.exp(scores(rows, cols) - lse[..., rows, None])
        ds = (p * (do[..., rows, :] @ v[..., cols, :].float().mT - delta[..., rows, :])).mul_(scale)
        for grad, where, left, right in zip(
            grads,
            (rows, cols, cols),
            (ds, ds.mT, p.mT),
            (k[..., cols, :], q[..., rows, :], do[..., rows, :]),
            strict=True,
        ):
            grad[..., where, :] += left @ right.float()
    return grads[0].to(q.dtype), grads[1].to(k.dtype), grads[2].to(v.dtype)


def validate(q: Tensor, k: Tensor, v: Tensor) -> None:
    if len({x.dtype for x in (q, k, v)}) != 1:
        raise ValueError(f"expected q, k and v of one dtype, got {q.dtype}, {k.dtype} and {v.dtype}")
    if k.shape != v.shape:
        raise ValueError(f"expected k and v of one shape, got {tuple(k.shape)} and {tuple(v.shape)}")
    if q.ndim < 2 or q.ndim != k.ndim or q.shape[:-2] != k.shape[:-2] or q.shape[-1] != k.shape[-1]:
        raise ValueError(f"expected q (..., n, d) to fit k {tuple(k.shape)}, got {tuple(q.shape)}")
