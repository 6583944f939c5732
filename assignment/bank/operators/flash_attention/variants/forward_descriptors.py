"""Tensor descriptors: tiles are fetched by coordinates (TMA on a Hopper), which needs rows and batches that start at
multiples of 16 bytes; inputs laid out in another way are copied first. Tiles outside of a tensor read as zeros.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

ALIGNMENT = 16  # bytes


def flash_forward_triton(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float[Tensor, "*batch n_queries"]]:
    """(o, lse); o is a view whose rows are padded to 16 bytes."""
    _expect(q.shape[-1] == k.shape[-1] == v.shape[-1], "one last dimension", q, k, v)
    _expect(q.shape[:-2] == k.shape[:-2] == v.shape[:-2], "equal batch dimensions", q, k, v)
    _expect(k.shape[-2] == v.shape[-2], "k and v of one length", q, k, v)
    _expect(q.dtype == k.dtype == v.dtype, "one dtype", q, k, v)
    batch, (n_queries, d) = q.shape[:-2], q.shape[-2:]
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if batch.numel() == 0:
        return torch.empty_like(q), lse

    q, k, v = (_aligned(x.reshape(-1, *x.shape[-2:])) for x in (q, k, v))
    n_batches = len(q)
    o = torch.empty(n_batches, n_queries, -d % _per_alignment(q) + d, dtype=q.dtype, device=q.device)
    d_tile = max(16, triton.next_power_of_2(d))
    tile = 64 if d_tile * q.element_size() <= 256 else 32
    # On a GPU the kernel writes its descriptors to memory that the host provides.
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=lse.device))
    _descriptor_kernel[(n_batches * triton.cdiv(n_queries, tile),)](
        q, k, v, o, lse, *q.stride()[:2], *k.stride()[:2], *v.stride()[:2], *o.stride()[:2],
        n_queries, k.shape[1], d, d**-0.5,
        IS_CAUSAL=is_causal, TILE=tile, D_TILE=d_tile, num_warps=4, num_stages=2 if d_tile <= 64 else 1,
    )  # fmt: skip
    return o[..., :d].reshape(*batch, n_queries, d), lse


def _expect(condition: bool, what: str, *tensors: Tensor) -> None:
    if not condition:
        raise ValueError(f"expected {what}, got {[(tuple(x.shape), x.dtype) for x in tensors]}")


def _per_alignment(x: Tensor) -> int:
    return ALIGNMENT // x.element_size()


def _aligned(x: Tensor) -> Tensor:
    """x (batches, n, d) where a descriptor can address it, else a copy with rows padded by zeros."""
    *outer, inner = x.stride()
    rows_fit = inner == 1 and all(stride > 0 and stride % _per_alignment(x) == 0 for stride in outer)
    if rows_fit and x.data_ptr() % ALIGNMENT == 0:
        return x
    return functional.pad(x, (0, -x.shape[-1] % _per_alignment(x))).clone(memory_format=torch.contiguous_format)


@triton.jit
def _descriptor_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    stride_qb, stride_qn, stride_kb, stride_kn, stride_vb, stride_vn, stride_ob, stride_on,
    n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    """One program a query tile of one batch; lse is contiguous."""
    n_tiles = tl.cdiv(n_queries, TILE)
    batch = (tl.program_id(0) // n_tiles).to(tl.int64)
    first_query = (tl.program_id(0) % n_tiles) * TILE
    q_desc = tl.make_tensor_descriptor(q_ptr + batch * stride_qb, [n_queries, d], [stride_qn, 1], [TILE, D_TILE])
    k_desc = tl.make_tensor_descriptor(k_ptr + batch * stride_kb, [n_keys, d], [stride_kn, 1], [TILE, D_TILE])
    v_desc = tl.make_tensor_descriptor(v_ptr + batch * stride_vb, [n_keys, d], [stride_vn, 1], [TILE, D_TILE])
    o_desc = tl.make_tensor_descriptor(o_ptr + batch * stride_ob, [n_queries, d], [stride_on, 1], [TILE, D_TILE])

    q = q_desc.load([first_query, 0])
    queries = first_query + tl.arange(0, TILE)
    row_max = tl.full((TILE,), float("-inf"), tl.float32)
    row_sum = tl.zeros((TILE,), tl.float32)
    o = tl.zeros((TILE, D_TILE), tl.float32)
    n_key_tiles = tl.cdiv(n_keys, TILE)
    if IS_CAUSAL:
        n_key_tiles = tl.minimum(n_key_tiles, first_query // TILE + 1)
    for key_tile in range(n_key_tiles):
        first_key = key_tile * TILE
        k = k_desc.load([first_key, 0])
        v = v_desc.load([first_key, 0])
        s = tl.dot(q, k.T) * scale
        keys = first_key + tl.arange(0, TILE)
        s = tl.where(keys[None, :] < n_keys, s, float("-inf"))
        if IS_CAUSAL:
            s = tl.where(keys[None, :] <= queries[:, None], s, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(s, axis=1))
        p = tl.exp(s - new_max[:, None])
        factor = tl.exp(row_max - new_max)
        row_sum = factor * row_sum + tl.sum(p, axis=1)
        o = factor[:, None] * o + tl.dot(p.to(v.dtype), v)
        row_max = new_max
    o_desc.store([first_query, 0], (o / row_sum[:, None]).to(o_ptr.dtype.element_ty))
    tl.store(lse_ptr + batch * n_queries + queries, row_max + tl.log(row_sum), mask=queries < n_queries)
