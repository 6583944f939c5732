"""FlashAttention-2 as a library would ship it: launch settings as data, chosen by d and dtype; a persistent forward;
tensor descriptors (TMA) where device and alignment allow, pointers elsewhere; backward is a preprocessing kernel and
one kernel whose programs each make a tile of dK and dV and a tile of dQ.
"""

import functools
import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton.tools.tensor_descriptor import TensorDescriptor

LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class Settings:
    """How the kernels are launched for rows of up to so many bytes."""

    row_bytes: int
    forward_tiles: tuple[int, int]  # queries, keys
    backward_tile: int
    num_warps: int
    num_stages: int


SETTINGS = (
    Settings(row_bytes=128, forward_tiles=(128, 64), backward_tile=64, num_warps=8, num_stages=2),
    Settings(row_bytes=256, forward_tiles=(64, 64), backward_tile=64, num_warps=8, num_stages=1),
    Settings(row_bytes=512, forward_tiles=(64, 32), backward_tile=32, num_warps=8, num_stages=1),
    Settings(row_bytes=1024, forward_tiles=(32, 16), backward_tile=16, num_warps=4, num_stages=1),
)


def flash_forward_triton(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float32[Tensor, "*batch n_queries"]]:
    """(o, lse) of attention."""
    _validate(q, k, v)
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if q.numel() == 0:
        return o, lse
    d_tile, settings = _heuristics(q.shape[-1], q.dtype)
    q_tile, k_tile = settings.forward_tiles
    inputs = [_three_dimensional(x) for x in (q, k, v)]
    sources, described = _sources(inputs, (q_tile, k_tile, k_tile), d_tile)
    n_tiles = inputs[0].shape[0] * triton.cdiv(q.shape[-2], q_tile)
    _forward_kernel[(min(n_tiles, 2 * _multiprocessors(q.device)),)](
        *sources, o, lse, *(stride for x in inputs for stride in x.stride()),
        n_tiles, q.shape[-2], k.shape[-2], q.shape[-1], q.shape[-1] ** -0.5 * LOG2_E,
        DESCRIBED=described, IS_CAUSAL=is_causal, Q_TILE=q_tile, K_TILE=k_tile, D_TILE=d_tile,
        num_warps=settings.num_warps, num_stages=settings.num_stages,
    )  # fmt: skip
    return o, lse


def flash_backward_triton(
    grad_o: Float[Tensor, "*batch n_queries d"],
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    o: Float[Tensor, "*batch n_queries d"],
    lse: Float32[Tensor, "*batch n_queries"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float[Tensor, "*batch n_keys d"], Float[Tensor, "*batch n_keys d"]]:
    """(grad_q, grad_k, grad_v)."""
    _validate(q, k, v)
    if grad_o.shape != q.shape or o.shape != q.shape or lse.shape != q.shape[:-1]:
        raise ValueError(f"expected grad_o, o and lse for q {q.shape}, got {grad_o.shape}, {o.shape} and {lse.shape}")
    if grad_o.dtype != q.dtype or o.dtype != q.dtype:
        raise ValueError(f"expected grad_o and o in {q.dtype}, got {grad_o.dtype} and {o.dtype}")
    gradients = tuple(torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    if q.numel() > 0:
        _launch_backward(grad_o, q, k, v, o, lse, gradients, is_causal)
    return gradients  # type: ignore[return-value]


def flash_attention(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> Float[Tensor, "*batch n_queries d"]:
    """o of attention, differentiable once."""
    return _FlashAttention.apply(q, k, v, is_causal)


class _FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, is_causal):
        o, lse = flash_forward_triton(q, k, v, is_causal=is_causal)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.is_causal = is_causal
        return o

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_o):
        q, k, v, o, lse = ctx.saved_tensors
        return *flash_backward_triton(grad_o, q, k, v, o, lse, ctx.is_causal), None


def _launch_backward(grad_o, q, k, v, o, lse, gradients: tuple[Tensor, ...], is_causal: bool) -> None:
    d_tile, settings = _heuristics(q.shape[-1], q.dtype)
    tile = settings.backward_tile
    inputs = [_three_dimensional(x) for x in (grad_o, q, k, v)]
    o, lse = _three_dimensional(o), lse.reshape(-1, q.shape[-2])
    (n_batches, n_queries, d), n_keys = inputs[1].shape, k.shape[-2]
    query_tiles, key_tiles = triton.cdiv(n_queries, tile), triton.cdiv(n_keys, tile)
    lse2, delta = torch.empty(2, n_batches, query_tiles * tile, dtype=torch.float32, device=q.device)
    _preprocess_kernel[(n_batches * query_tiles,)](
        inputs[0], o, lse, lse2, delta, *inputs[0].stride(), *o.stride(), *lse.stride(),
        query_tiles, n_queries, d, TILE=tile, D_TILE=d_tile,
    )  # fmt: skip
    sources, described = _sources(inputs, (tile,) * 4, d_tile)
    tiles = max(query_tiles, key_tiles)
    _backward_kernel[(n_batches * tiles,)](
        *sources, lse2, delta, *gradients, *(stride for x in inputs for stride in x.stride()),
        tiles, query_tiles * tile, n_queries, n_keys, d, d**-0.5,
        DESCRIBED=described, IS_CAUSAL=is_causal, TILE=tile, D_TILE=d_tile,
        num_warps=settings.num_warps, num_stages=settings.num_stages,
    )  # fmt: skip


def _validate(q: Tensor, k: Tensor, v: Tensor) -> None:
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)}"
    if not (q.ndim == k.ndim >= 2 and q.shape[:-2] == k.shape[:-2] == v.shape[:-2]):
        raise ValueError(f"expected the same batch dimensions, got {shapes}")
    if not q.shape[-1] == k.shape[-1] == v.shape[-1]:
        raise ValueError(f"expected the same last dimension, got {shapes}")
    if k.shape != v.shape:
        raise ValueError(f"expected k and v of the same length, got {shapes}")
    if q.dtype != k.dtype or q.dtype != v.dtype:
        raise ValueError(f"expected the same dtype, got {q.dtype}, {k.dtype} and {v.dtype}")


def _heuristics(d: int, dtype: torch.dtype) -> tuple[int, Settings]:
    """Columns of a tile, and the first settings that its rows are short enough for."""
    d_tile = max(16, triton.next_power_of_2(d))
    return d_tile, next(s for s in SETTINGS if d_tile * dtype.itemsize <= s.row_bytes)


@functools.cache
def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def _three_dimensional(x: Tensor) -> Tensor:
    return x.reshape(-1, *x.shape[-2:])


def _sources(tensors: list[Tensor], rows: tuple[int, ...], d_tile: int) -> tuple[list, bool]:
    """Descriptors of all tensors, of tiles with so many rows; the tensors themselves if one of them will not do."""
    if torch.cuda.get_device_capability(tensors[0].device)[0] < 9 or not all(_is_describable(x) for x in tensors):
        return list(tensors), False
    blocks = [[1, n, d_tile] for n in rows]
    return [TensorDescriptor(x, x.shape, x.stride(), b) for x, b in zip(tensors, blocks, strict=True)], True


def _is_describable(x: Tensor) -> bool:
    """What TMA asks for: 16-byte alignment throughout, and strides that nest without overlap."""
    batch, row, column = x.stride()
    nested = column == 1 and row >= x.shape[2] and batch >= x.shape[1] * row and batch % row == 0
    return nested and row * x.element_size() % 16 == 0 and x.data_ptr() % 16 == 0


@triton.jit
def _load(
    source, batch, first, stride_b, stride_n, stride_d, n, d,
    DESCRIBED: tl.constexpr, ROWS: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    """ROWS rows from the first on, through a descriptor or a pointer; zeros outside."""
    if DESCRIBED:
        tile = source.load([batch, first, 0]).reshape(ROWS, D_TILE)
    else:
        rows, cols = first + tl.arange(0, ROWS), tl.arange(0, D_TILE)
        ptrs = source + batch.to(tl.int64) * stride_b
        ptrs = ptrs + rows.to(tl.int64)[:, None] * stride_n + cols.to(tl.int64)[None, :] * stride_d
        tile = tl.load(ptrs, mask=(rows < n)[:, None] & (cols < d)[None, :], other=0.0)
    return tile


@triton.jit
def _store(ptr, tile, batch, first, n, d, ROWS: tl.constexpr, D_TILE: tl.constexpr):
    """To a contiguous (batch, n, d)."""
    rows, cols = first + tl.arange(0, ROWS), tl.arange(0, D_TILE)
    ptrs = ptr + (batch.to(tl.int64) * n + rows)[:, None] * d + cols[None, :]
    tl.store(ptrs, tile.to(ptr.dtype.element_ty), mask=(rows < n)[:, None] & (cols < d)[None, :])


@triton.jit
def _forward_kernel(
    q_src, k_src, v_src, o_ptr, lse_ptr,
    stride_qb, stride_qn, stride_qd, stride_kb, stride_kn, stride_kd, stride_vb, stride_vn, stride_vd,
    n_tiles, n_queries, n_keys, d, scale2,
    DESCRIBED: tl.constexpr, IS_CAUSAL: tl.constexpr,
    Q_TILE: tl.constexpr, K_TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    """As many programs as the device holds, each of which takes every so many query tiles. scale2 = log₂e / √d."""
    tiles_per_batch = tl.cdiv(n_queries, Q_TILE)
    for tile in range(tl.program_id(0), n_tiles, tl.num_programs(0)):
        batch, first = tile // tiles_per_batch, tile % tiles_per_batch * Q_TILE
        queries = first + tl.arange(0, Q_TILE)
        q = _load(q_src, batch, first, stride_qb, stride_qn, stride_qd, n_queries, d, DESCRIBED, Q_TILE, D_TILE)
        o = tl.zeros((Q_TILE, D_TILE), dtype=tl.float32)
        row_max = tl.full((Q_TILE,), float("-inf"), dtype=tl.float32)
        row_sum = tl.zeros((Q_TILE,), dtype=tl.float32)
        end = tl.minimum(n_keys, first + Q_TILE) if IS_CAUSAL else n_keys
        for start in range(0, end, K_TILE):
            keys = start + tl.arange(0, K_TILE)
            k = _load(k_src, batch, start, stride_kb, stride_kn, stride_kd, n_keys, d, DESCRIBED, K_TILE, D_TILE)
            v = _load(v_src, batch, start, stride_vb, stride_vn, stride_vd, n_keys, d, DESCRIBED, K_TILE, D_TILE)
            s = tl.dot(q, k.T) * scale2
            visible = (keys < n_keys)[None, :]
            if IS_CAUSAL:
                visible = visible & (keys[None, :] <= queries[:, None])
            s = tl.where(visible, s, float("-inf"))
            new_max = tl.maximum(row_max, tl.max(s, axis=1))
            p = tl.exp2(s - new_max[:, None])
            rescale = tl.exp2(row_max - new_max)
            row_sum = row_sum * rescale + tl.sum(p, axis=1)
            o = o * rescale[:, None] + tl.dot(p.to(v.dtype), v)
            row_max = new_max
        _store(o_ptr, o / row_sum[:, None], batch, first, n_queries, d, Q_TILE, D_TILE)
        lse = (row_max + tl.log2(row_sum)) * 0.6931471805599453  # ln 2
        tl.store(lse_ptr + batch.to(tl.int64) * n_queries + queries, lse, mask=queries < n_queries)


@triton.jit
def _preprocess_kernel(
    go_ptr, o_ptr, lse_ptr, lse2_ptr, delta_ptr,
    stride_gob, stride_gon, stride_god, stride_ob, stride_on, stride_od, stride_lb, stride_ln,
    query_tiles, n_queries, d,
    TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    """lse in base 2 and delta = rowsum(dO ∘ O), both padded to whole tiles, with +∞ and 0."""
    batch, first = tl.program_id(0) // query_tiles, tl.program_id(0) % query_tiles * TILE
    queries = first + tl.arange(0, TILE)
    go = _load(go_ptr, batch, first, stride_gob, stride_gon, stride_god, n_queries, d, False, TILE, D_TILE)
    o = _load(o_ptr, batch, first, stride_ob, stride_on, stride_od, n_queries, d, False, TILE, D_TILE)
    lse_ptrs = lse_ptr + batch.to(tl.int64) * stride_lb + queries.to(tl.int64) * stride_ln
    lse = tl.load(lse_ptrs, mask=queries < n_queries, other=float("inf"))
    offsets = batch.to(tl.int64) * query_tiles * TILE + queries
    tl.store(lse2_ptr + offsets, lse * 1.4426950408889634)
    tl.store(delta_ptr + offsets, tl.sum(go.to(tl.float32) * o.to(tl.float32), axis=1))


@triton.jit
def _backward_kernel(
    go_src, q_src, k_src, v_src, lse2_ptr, delta_ptr, grad_q_ptr, grad_k_ptr, grad_v_ptr,
    stride_gob, stride_gon, stride_god, stride_qb, stride_qn, stride_qd,
    stride_kb, stride_kn, stride_kd, stride_vb, stride_vn, stride_vd,
    n_tiles, padded_queries, n_queries, n_keys, d, scale,
    DESCRIBED: tl.constexpr, IS_CAUSAL: tl.constexpr, TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    """One program a tile of one batch: of the keys, where there is one with its number, and of the queries likewise."""
    batch, first = tl.program_id(0) // n_tiles, tl.program_id(0) % n_tiles * TILE
    lse2_ptr += batch.to(tl.int64) * padded_queries
    delta_ptr += batch.to(tl.int64) * padded_queries
    own, scale2 = first + tl.arange(0, TILE), scale * 1.4426950408889634
    if first < n_keys:
        k = _load(k_src, batch, first, stride_kb, stride_kn, stride_kd, n_keys, d, DESCRIBED, TILE, D_TILE)
        v = _load(v_src, batch, first, stride_vb, stride_vn, stride_vd, n_keys, d, DESCRIBED, TILE, D_TILE)
        grad_k = tl.zeros((TILE, D_TILE), dtype=tl.float32)
        grad_v = tl.zeros((TILE, D_TILE), dtype=tl.float32)
        for start in range(first if IS_CAUSAL else 0, n_queries, TILE):
            queries = start + tl.arange(0, TILE)
            q = _load(q_src, batch, start, stride_qb, stride_qn, stride_qd, n_queries, d, DESCRIBED, TILE, D_TILE)
            go = _load(go_src, batch, start, stride_gob, stride_gon, stride_god, n_queries, d, DESCRIBED, TILE, D_TILE)
            # Rows of keys past the last hold anything: they mix with no other row and are not stored.
            p = tl.exp2(tl.dot(k, q.T) * scale2 - tl.load(lse2_ptr + queries)[None, :])  # (keys, queries)
            if IS_CAUSAL:
                p = tl.where(own[:, None] <= queries[None, :], p, 0.0)
            grad_s = p * (tl.dot(v, go.T) - tl.load(delta_ptr + queries)[None, :])
            grad_v += tl.dot(p.to(go.dtype), go)
            grad_k += tl.dot(grad_s.to(q.dtype), q)
        _store(grad_k_ptr, grad_k * scale, batch, first, n_keys, d, TILE, D_TILE)
        _store(grad_v_ptr, grad_v, batch, first, n_keys, d, TILE, D_TILE)
    if first < n_queries:
        q = _load(q_src, batch, first, stride_qb, stride_qn, stride_qd, n_queries, d, DESCRIBED, TILE, D_TILE)
        go = _load(go_src, batch, first, stride_gob, stride_gon, stride_god, n_queries, d, DESCRIBED, TILE, D_TILE)
        lse2, delta = tl.load(lse2_ptr + own), tl.load(delta_ptr + own)
        grad_q = tl.zeros((TILE, D_TILE), dtype=tl.float32)
        for start in range(0, tl.minimum(n_keys, first + TILE) if IS_CAUSAL else n_keys, TILE):
            keys = start + tl.arange(0, TILE)
            k = _load(k_src, batch, start, stride_kb, stride_kn, stride_kd, n_keys, d, DESCRIBED, TILE, D_TILE)
            v = _load(v_src, batch, start, stride_vb, stride_vn, stride_vd, n_keys, d, DESCRIBED, TILE, D_TILE)
            visible = (keys < n_keys)[None, :]
            if IS_CAUSAL:
                visible = visible & (keys[None, :] <= own[:, None])
            p = tl.where(visible, tl.exp2(tl.dot(q, k.T) * scale2 - lse2[:, None]), 0.0)  # (queries, keys)
            grad_s = p * (tl.dot(go, v.T) - delta[:, None])
            grad_q += tl.dot(grad_s.to(k.dtype), k)
        _store(grad_q_ptr, grad_q * scale, batch, first, n_queries, d, TILE, D_TILE)
