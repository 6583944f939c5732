"""FlashAttention-2 with a grid of tiles × heads × batch and four strides a tensor, handed over as tuples; autotuned.
Base 2 inside. Tensors are padded to whole tiles once, and the padded copies are what is kept for backward.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

TILE_MULTIPLE = 64  # all tile sizes divide it
LOG2_E = math.log2(math.e)
MAX_GRID = 65_535  # CUDA's limit for the second and third grid axis


def flash_forward_triton(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> tuple[Tensor, Tensor]:
    """(o, lse), lse in nats."""
    _check(q, k, v)
    o, lse2 = _forward([_to_heads(x) for x in (q, k, v)], q.shape, k.shape[-2], is_causal)
    return _from_heads(o, q.shape), (lse2[:, :, : q.shape[-2]] / LOG2_E).reshape(q.shape[:-1])


def flash_backward_triton(
    grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, is_causal: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v."""
    _check(q, k, v)
    if grad_o.shape != q.shape or o.shape != q.shape or lse.shape != q.shape[:-1]:
        raise ValueError(f"grad_o {grad_o.shape}, o {o.shape} and lse {lse.shape} do not belong to q {q.shape}")
    if grad_o.dtype != q.dtype or o.dtype != q.dtype:
        raise ValueError(f"expected grad_o and o in {q.dtype}, got {grad_o.dtype} and {o.dtype}")
    lse2 = _to_heads(lse.unsqueeze(-1) * LOG2_E, min_d=1).squeeze(-1)
    padded = [_to_heads(x) for x in (grad_o, q, k, v, o)]
    grad_q, grad_k, grad_v = _backward([*padded, lse2], q.shape, k.shape[-2], is_causal)
    return _from_heads(grad_q, q.shape), _from_heads(grad_k, k.shape), _from_heads(grad_v, v.shape)


def flash_attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    """o, differentiable in q, k and v."""
    return _FlashAttention.apply(q, k, v, is_causal)


class _FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, is_causal):
        _check(q, k, v)
        padded = [_to_heads(x) for x in (q, k, v)]
        o, lse2 = _forward(padded, q.shape, k.shape[-2], is_causal)
        ctx.save_for_backward(*padded, o, lse2)
        ctx.shapes, ctx.is_causal = (q.shape, k.shape), is_causal
        return _from_heads(o, q.shape).clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_o):
        q_shape, k_shape = ctx.shapes
        grads = _backward([_to_heads(grad_o), *ctx.saved_tensors], q_shape, k_shape[-2], ctx.is_causal)
        shapes = (q_shape, k_shape, k_shape)
        return *(_from_heads(grad, shape) for grad, shape in zip(grads, shapes, strict=True)), None


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    if not q.ndim == k.ndim == v.ndim >= 2 or not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        raise ValueError(f"expected q, k and v of one batch and heads, got {q.shape}, {k.shape} and {v.shape}")
    if q.shape[-1] != k.shape[-1] or k.shape[-2:] != v.shape[-2:]:
        raise ValueError(f"expected one d, and as many keys as values, got {q.shape}, {k.shape} and {v.shape}")
    if q.dtype != k.dtype or k.dtype != v.dtype:
        raise ValueError(f"expected one dtype, got {q.dtype}, {k.dtype} and {v.dtype}")


def _to_heads(x: Tensor, min_d: int = 16) -> Tensor:
    """x as (batch, heads, whole tiles, a power of two), padded with zeros; the last batch dimension is heads."""
    n, d = x.shape[-2:]
    heads = x.shape[-3] if x.ndim > 2 else 1
    x = x.reshape(x.shape[:-3].numel(), heads, n, d)
    return functional.pad(x, (0, max(min_d, triton.next_power_of_2(d)) - d, 0, -n % TILE_MULTIPLE))


def _from_heads(x: Tensor, shape: torch.Size) -> Tensor:
    return x[:, :, : shape[-2], : shape[-1]].reshape(shape)


def _slices(batch: int, heads: int) -> list[tuple[slice, slice]]:
    """Batches and heads, no more of either than a grid holds."""
    starts = [(b, h) for b in range(0, batch, MAX_GRID) for h in range(0, heads, MAX_GRID)]
    return [(slice(b, b + MAX_GRID), slice(h, h + MAX_GRID)) for b, h in starts]


def _with_strides(tensors: list[Tensor]) -> list[Tensor | tuple[int, ...]]:
    return [x for tensor in tensors for x in (tensor, tensor.stride())]


def _forward(inputs: list[Tensor], q_shape: torch.Size, n_keys: int, is_causal: bool) -> tuple[Tensor, Tensor]:
    """o, padded, and the logsumexp in base 2 of padded q, k and v."""
    o = torch.empty_like(inputs[0])
    lse2 = torch.empty(o.shape[:-1], dtype=torch.float32, device=o.device)
    rows, d_tile = o.shape[2:]
    for part in _slices(*o.shape[:2]):
        tensors = [x[part] for x in (*inputs, o, lse2)]
        batch, heads = tensors[0].shape[:2]
        _forward_kernel[lambda meta, h=heads, b=batch: (rows // meta["Q_TILE"], h, b)](
            *_with_strides(tensors), n_keys, q_shape[-1] ** -0.5 * LOG2_E,
            IS_CAUSAL=is_causal, D_TILE=d_tile, ELEMENT_SIZE=o.element_size(),
        )  # fmt: skip
    return o, lse2


def _backward(inputs: list[Tensor], q_shape: torch.Size, n_keys: int, is_causal: bool) -> list[Tensor]:
    """The padded gradients from padded grad_o, q, k, v, o and lse in base 2."""
    grad_o, q, k, v, o, lse2 = inputs
    # Padding of grad_o and delta is 0: whatever P is there, it adds nothing to dV, and dS is 0.
    delta = (grad_o.float() * o.float()).sum(-1)
    grads = [torch.empty_like(x) for x in (q, k, v)]
    constants = {"IS_CAUSAL": is_causal, "D_TILE": q.shape[-1], "ELEMENT_SIZE": q.element_size()}
    for part in _slices(*q.shape[:2]):
        arguments = _with_strides([x[part] for x in (grad_o, q, k, v, lse2, delta)])
        grad_q, *grads_kv = (x[part] for x in grads)
        batch, heads = grad_q.shape[:2]
        _grad_q_kernel[lambda meta, h=heads, b=batch: (q.shape[2] // meta["Q_TILE"], h, b)](
            *arguments, *_with_strides([grad_q]), n_keys, q_shape[-1] ** -0.5, **constants
        )
        _grad_kv_kernel[lambda meta, h=heads, b=batch: (k.shape[2] // meta["K_TILE"], h, b)](
            *arguments, *_with_strides(grads_kv), q.shape[2], n_keys, q_shape[-1] ** -0.5, **constants
        )
    return grads


def _fitting(configs, named_args, **kwargs):
    """The configurations whose tiles leave room in shared memory: 16 KB for each of four."""
    row_bytes = kwargs["D_TILE"] * kwargs["ELEMENT_SIZE"]
    return [c for c in configs if max(c.kwargs["Q_TILE"], c.kwargs["K_TILE"]) * row_bytes <= 16 * 1024]


_autotune = triton.autotune(
    [
        triton.Config({"Q_TILE": 64, "K_TILE": 32}, num_warps=4, num_stages=1),
        triton.Config({"Q_TILE": 16, "K_TILE": 16}, num_warps=4, num_stages=1),
    ],
    key=["IS_CAUSAL", "D_TILE", "ELEMENT_SIZE"],
    prune_configs_by={"early_config_prune": _fitting},
)


@triton.jit
def _tile(ptr, strides, batch, head, first, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Pointers to ROWS rows from the first on."""
    rows = (first + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    cols = tl.arange(0, COLS).to(tl.int64)[None, :]
    return ptr + batch * strides[0] + head * strides[1] + rows * strides[2] + cols * strides[3]


@triton.jit
def _vector(ptr, strides, batch, head, first, ROWS: tl.constexpr):
    rows = (first + tl.arange(0, ROWS)).to(tl.int64)
    return ptr + batch * strides[0] + head * strides[1] + rows * strides[2]


@triton.jit
def _exponents(q, k, scale2, first_query, first_key, n_keys, IS_CAUSAL: tl.constexpr):
    """Scores in base 2 (queries, keys); −∞ for padded keys and, where it is causal, for those past the query."""
    s = tl.dot(q, tl.trans(k)) * scale2
    queries = first_query + tl.arange(0, s.shape[0])[:, None]
    keys = first_key + tl.arange(0, s.shape[1])[None, :]
    s = tl.where(keys < n_keys, s, float("-inf"))
    if IS_CAUSAL:
        s = tl.where(keys <= queries, s, float("-inf"))
    return s


@_autotune
@triton.jit
def _forward_kernel(
    q_ptr, q_strides, k_ptr, k_strides, v_ptr, v_strides, o_ptr, o_strides, lse2_ptr, lse2_strides,
    n_keys, scale2,
    IS_CAUSAL: tl.constexpr, D_TILE: tl.constexpr, ELEMENT_SIZE: tl.constexpr,
    Q_TILE: tl.constexpr, K_TILE: tl.constexpr,
):  # fmt: skip
    """scale2 = log₂e / √d. Padded queries are computed like others."""
    head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    first = tl.program_id(0) * Q_TILE
    q = tl.load(_tile(q_ptr, q_strides, batch, head, first, Q_TILE, D_TILE))
    o = tl.zeros((Q_TILE, D_TILE), dtype=tl.float32)
    row_sum = tl.zeros((Q_TILE,), dtype=tl.float32)
    row_max = tl.full((Q_TILE,), float("-inf"), dtype=tl.float32)
    for start in range(0, tl.minimum(n_keys, first + Q_TILE) if IS_CAUSAL else n_keys, K_TILE):
        k = tl.load(_tile(k_ptr, k_strides, batch, head, start, K_TILE, D_TILE))
        v = tl.load(_tile(v_ptr, v_strides, batch, head, start, K_TILE, D_TILE))
        s = _exponents(q, k, scale2, first, start, n_keys, IS_CAUSAL)
        new_max = tl.maximum(row_max, tl.max(s, axis=1))
        p = tl.exp2(s - new_max[:, None])
        alpha = tl.exp2(row_max - new_max)
        row_sum = row_sum * alpha + tl.sum(p, axis=1)
        o = tl.dot(p.to(v.dtype), v, o * alpha[:, None])
        row_max = new_max
    tl.store(_tile(o_ptr, o_strides, batch, head, first, Q_TILE, D_TILE), (o / row_sum[:, None]).to(q.dtype))
    tl.store(_vector(lse2_ptr, lse2_strides, batch, head, first, Q_TILE), row_max + tl.log2(row_sum))


@triton.jit
def _p_and_ds(q, k, v, go, lse2, delta, first_query, first_key, n_keys, scale, IS_CAUSAL: tl.constexpr):
    """P and dS (queries, keys)."""
    s = _exponents(q, k, scale * 1.4426950408889634, first_query, first_key, n_keys, IS_CAUSAL)
    p = tl.exp2(s - lse2[:, None])
    return p, p * (tl.dot(go, tl.trans(v)) - delta[:, None])


@_autotune
@triton.jit
def _grad_q_kernel(
    go_ptr, go_strides, q_ptr, q_strides, k_ptr, k_strides, v_ptr, v_strides,
    lse2_ptr, lse2_strides, delta_ptr, delta_strides, grad_q_ptr, grad_q_strides,
    n_keys, scale,
    IS_CAUSAL: tl.constexpr, D_TILE: tl.constexpr, ELEMENT_SIZE: tl.constexpr,
    Q_TILE: tl.constexpr, K_TILE: tl.constexpr,
):  # fmt: skip
    """One program a tile of queries."""
    head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    first = tl.program_id(0) * Q_TILE
    q = tl.load(_tile(q_ptr, q_strides, batch, head, first, Q_TILE, D_TILE))
    go = tl.load(_tile(go_ptr, go_strides, batch, head, first, Q_TILE, D_TILE))
    lse2 = tl.load(_vector(lse2_ptr, lse2_strides, batch, head, first, Q_TILE))
    delta = tl.load(_vector(delta_ptr, delta_strides, batch, head, first, Q_TILE))
    grad_q = tl.zeros((Q_TILE, D_TILE), dtype=tl.float32)
    for start in range(0, tl.minimum(n_keys, first + Q_TILE) if IS_CAUSAL else n_keys, K_TILE):
        k = tl.load(_tile(k_ptr, k_strides, batch, head, start, K_TILE, D_TILE))
        v = tl.load(_tile(v_ptr, v_strides, batch, head, start, K_TILE, D_TILE))
        _, ds = _p_and_ds(q, k, v, go, lse2, delta, first, start, n_keys, scale, IS_CAUSAL)
        grad_q = tl.dot(ds.to(k.dtype), k, grad_q)
    tl.store(_tile(grad_q_ptr, grad_q_strides, batch, head, first, Q_TILE, D_TILE), (grad_q * scale).to(q.dtype))


@_autotune
@triton.jit
def _grad_kv_kernel(
    go_ptr, go_strides, q_ptr, q_strides, k_ptr, k_strides, v_ptr, v_strides,
    lse2_ptr, lse2_strides, delta_ptr, delta_strides, grad_k_ptr, grad_k_strides, grad_v_ptr, grad_v_strides,
    q_rows, n_keys, scale,
    IS_CAUSAL: tl.constexpr, D_TILE: tl.constexpr, ELEMENT_SIZE: tl.constexpr,
    Q_TILE: tl.constexpr, K_TILE: tl.constexpr,
):  # fmt: skip
    """One program a tile of keys."""
    head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    first = tl.program_id(0) * K_TILE
    k = tl.load(_tile(k_ptr, k_strides, batch, head, first, K_TILE, D_TILE))
    v = tl.load(_tile(v_ptr, v_strides, batch, head, first, K_TILE, D_TILE))
    grad_k = tl.zeros((K_TILE, D_TILE), dtype=tl.float32)
    grad_v = tl.zeros((K_TILE, D_TILE), dtype=tl.float32)
    for start in range(first // Q_TILE * Q_TILE if IS_CAUSAL else 0, q_rows, Q_TILE):
        q = tl.load(_tile(q_ptr, q_strides, batch, head, start, Q_TILE, D_TILE))
        go = tl.load(_tile(go_ptr, go_strides, batch, head, start, Q_TILE, D_TILE))
        lse2 = tl.load(_vector(lse2_ptr, lse2_strides, batch, head, start, Q_TILE))
        delta = tl.load(_vector(delta_ptr, delta_strides, batch, head, start, Q_TILE))
        p, ds = _p_and_ds(q, k, v, go, lse2, delta, start, first, n_keys, scale, IS_CAUSAL)
        grad_v = tl.dot(tl.trans(p).to(go.dtype), go, grad_v)
        grad_k = tl.dot(tl.trans(ds).to(q.dtype), q, grad_k)
    tl.store(_tile(grad_k_ptr, grad_k_strides, batch, head, first, K_TILE, D_TILE), (grad_k * scale).to(k.dtype))
    tl.store(_tile(grad_v_ptr, grad_v_strides, batch, head, first, K_TILE, D_TILE), grad_v.to(v.dtype))
