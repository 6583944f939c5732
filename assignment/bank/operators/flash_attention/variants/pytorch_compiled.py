"""The backward pass of flash attention for torch.compile: all of P at once, as a dozen fusible lines.

The scale goes onto q before any product, so that dK needs none; D comes from o and grad_o.
"""

import math

import torch
from jaxtyping import Float, Float32
from torch import Tensor


@torch.no_grad()
def flash_backward_pytorch(
    grad_o: Float[Tensor, "*batch n_queries d"],
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    o: Float[Tensor, "*batch n_queries d"],
    lse: Float32[Tensor, "*batch n_queries"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float[Tensor, "*batch n_keys d"], Float[Tensor, "*batch n_keys d"]]:
    """(grad_q, grad_k, grad_v) in the dtypes of q, k and v."""
    _expect("k", k, q.shape[:-2], q.shape[-1], q.dtype)
    _expect("v", v, q.shape[:-2], q.shape[-1], q.dtype)
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"expected a value for each of {k.shape[-2]} keys, got {v.shape[-2]}")
    for name, x in (("grad_o", grad_o), ("o", o)):
        _expect(name, x, q.shape[:-2], q.shape[-1], q.dtype)
        if x.shape[-2] != q.shape[-2]:
            raise ValueError(f"expected {name} with {q.shape[-2]} rows, got {x.shape[-2]}")
    if lse.shape != q.shape[:-1]:
        raise ValueError(f"expected lse of shape {tuple(q.shape[:-1])}, got {tuple(lse.shape)}")
    return _gradients(grad_o, q, k, v, o, lse, is_causal)


def _expect(name: str, x: Tensor, batch: torch.Size, d: int, dtype: torch.dtype) -> None:
    if x.ndim < 2 or x.shape[:-2] != batch or x.shape[-1] != d:
        raise ValueError(f"expected {name} of shape ({tuple(batch)}, length, {d}), got {tuple(x.shape)}")
    if x.dtype != dtype:
        raise ValueError(f"expected {name} in {dtype}, got {x.dtype}")


@torch.compile(dynamic=True)
def _gradients(
    grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, is_causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    scale = 1.0 / math.sqrt(q.shape[-1])
    q32, k32, v32, do = q.float() * scale, k.float(), v.float(), grad_o.float()
    p = torch.exp(q32 @ k32.mT - lse.unsqueeze(-1))
    if is_causal:
        p = p.tril()
    delta = torch.sum(o.float() * do, dim=-1, keepdim=True)
    ds = p * (do @ v32.mT - delta)
    grad_q, grad_k, grad_v = ds @ k32 * scale, ds.mT @ q32, p.mT @ do
    return grad_q.to(q.dtype), grad_k.to(k.dtype), grad_v.to(v.dtype)
