"""Attention, O = softmax(Q Kᵀ / √d) V, without ever holding the n_queries × n_keys matrix: FlashAttention-2.

With S = Q Kᵀ / √d, L_i = ln Σ_j exp(S_ij) and P_ij = exp(S_ij − L_i):

    forward    O  = P V
    backward   dV = Pᵀ dO        dP = dO Vᵀ       D_i = Σ_j dO_ij O_ij
               dS_ij = P_ij (dP_ij − D_i)         dQ = dS K / √d        dK = dSᵀ Q / √d

Under `is_causal` query i sees the keys j <= i, whatever the two lengths are: the others have S_ij = −∞.

Bytes that must move, for elements of s bytes: forward (2·n_queries + 2·n_keys)·d·s + 4·n_queries; backward
(4·n_queries + 4·n_keys)·d·s + 4·n_queries. With 4·n_queries·n_keys·d operations forward and 10·n_queries·n_keys·d
backward, half as many when causal, long sequences are bound by arithmetic.
Source: Dao 2023, "FlashAttention-2", algorithms 1 and 2; D from section 2.3.2.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor
from torch.autograd.function import once_differentiable

# BEGIN SOLUTION
from triton.tools.tensor_descriptor import TensorDescriptor

PYTORCH_TILE_SIZE = 128  # queries and keys of a tile; large enough that PyTorch's own overhead does not show
MAX_D = 256  # a tile holds whole rows
ROW_ALIGNMENT = 16  # bytes: what a tensor descriptor asks of a matrix's base and of its strides
LARGE_SHARED_MEMORY = {(9, 0), (10, 0)}  # H100 and B200: 227 KB a program; elsewhere as little as 99 KB
# By the bits of an element and the widest d: queries and keys of a tile, warps, stages, at most so many registers.
Table = dict[int, dict[int, tuple[int, ...]]]
FORWARD_SIZES: Table = {
    16: {64: (128, 64, 8, 3), 128: (128, 64, 8, 2), 256: (64, 64, 8, 1)},
    32: {64: (64, 64, 4, 2), 128: (64, 64, 8, 1), 256: (32, 32, 8, 1)},
}
LARGE_FORWARD_SIZES: Table = {  # where a program has large shared memory
    16: {64: (64, 64, 4, 3), 128: (128, 128, 8, 3), 256: (128, 64, 8, 2)},
    32: FORWARD_SIZES[32],
}
HOPPER = (9, 0)
HOPPER_FORWARD_SIZES: Table = {  # five programs fit a multiprocessor: 1.01 to 1.13 × as fast at d = 64 (H100)
    16: LARGE_FORWARD_SIZES[16] | {64: (64, 64, 4, 2, 96), 80: (64, 64, 4, 3), 96: (128, 64, 8, 3)},
    32: FORWARD_SIZES[32],
}
MAX_SHORT = 1024  # keys on average: such walks leave a multiprocessor idle between programs, so small ones share it
SHORT_FORWARD_SIZES: Table = {16: {128: (64, 64, 4, 3)}}  # for d from 65: 1.02 to 1.30 × as fast (H100)
BACKWARD_SIZES: Table = {  # with four warps no more than 64 × 64 at d = 128: more would spill
    16: {128: (64, 64, 4, 2), 256: (64, 64, 8, 1)},
    32: {64: (64, 64, 4, 2), 128: (64, 64, 8, 1), 256: (32, 32, 8, 1)},
}
LARGE_BACKWARD_KV_SIZES: Table = {  # 1.02 to 1.12 × as fast at d = 64 (H200)
    16: {64: (128, 64, 4, 2), **BACKWARD_SIZES[16]},
    32: BACKWARD_SIZES[32],
}
LARGE_BACKWARD_Q_SIZES: Table = {  # 1.05 to 1.13 × as fast at d = 128, 1.02 × at d = 64 (H200)
    16: {64: (128, 64, 8, 3), 96: (64, 64, 4, 2), 128: (128, 64, 8, 3), 256: (64, 64, 8, 1)},
    32: BACKWARD_SIZES[32],
}
MIN_SPLIT_D = 64  # columns that one tile always holds
GROUP_BYTES = tl.constexpr(16 << 20)
LOG2_E = tl.constexpr(1.4426950408889634)  # exp(x) = exp2(x · log₂ e), and exp2 is an instruction
LN_2 = tl.constexpr(0.6931471805599453)
# END SOLUTION


@torch.no_grad()
def flash_forward_pytorch(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float32[Tensor, "*batch n_queries"]]:
    """(o, lse) of attention, tile by tile in plain PyTorch: algorithm 1, on any device.

    No tensor of n_queries × n_keys is ever held. Tiles wholly above the causal diagonal are skipped.

    lse_i = ln Σ_j exp(S_ij), a natural logarithm, always float32.
    dtypes: float32, bfloat16 or float16, the same for q, k and v; o has that of q. Accumulation in float32.
    Shapes: any lengths from 1, n_queries and n_keys apart; any d from 1 to 256; the scale is 1/√d.
    Strides: any, broadcast dimensions (stride 0) included. The inputs are not written to.
    Empty batch: an empty o and lse.

    Raises:
        ValueError: if q, k or v have fewer than two dimensions or a length of 0, if their last dimensions, batch
            dimensions or dtypes differ, if k and v differ in length, if d > 256, or the dtype is none of the three.
    """
    # BEGIN SOLUTION handout/flash_attention.md#forward-in-pytorch
    _check_q_k_v(q, k, v)
    n_queries, n_keys, d = q.shape[-2], k.shape[-2], q.shape[-1]
    o = q.new_empty(q.shape)
    lse = q.new_empty(q.shape[:-1], dtype=torch.float32)
    for queries in _tiles(n_queries):
        q_tile = q[..., queries, :].float()  # (..., Q, d)
        o_tile = torch.zeros_like(q_tile)  # Σ_j exp(s_j − row_max) v_j over the keys so far
        row_max = q_tile.new_full(q_tile.shape[:-1], -torch.inf)  # max_j s_j, m in the paper
        row_sum = torch.zeros_like(row_max)  # Σ_j exp(s_j − row_max), ℓ in the paper
        for keys in _tiles(n_keys):
            if is_causal and keys.start >= queries.stop:
                break
            k_tile, v_tile = k[..., keys, :].float(), v[..., keys, :].float()  # (..., K, d)
            s = _scores(q_tile, k_tile, d**-0.5, queries, keys, is_causal)  # (..., Q, K)
            # Every query sees key 0, which is in the first tile: new_max is finite, and −∞ − −∞ does not come up.
            new_max = torch.maximum(row_max, s.amax(dim=-1))
            p = torch.exp(s - new_max[..., None])
            rescale = torch.exp(row_max - new_max)
            row_sum = rescale * row_sum + p.sum(dim=-1)
            o_tile = rescale[..., None] * o_tile + p @ v_tile
            row_max = new_max
        o[..., queries, :] = o_tile / row_sum[..., None]
        lse[..., queries] = row_max + torch.log(row_sum)
    return o, lse
    # END SOLUTION


@torch.no_grad()
def flash_backward_pytorch(
    grad_o: Float[Tensor, "*batch n_queries d"],
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    o: Float[Tensor, "*batch n_queries d"],
    lse: Float32[Tensor, "*batch n_queries"],
    is_causal: bool = False,
) -> tuple[
    Float[Tensor, "*batch n_queries d"],
    Float[Tensor, "*batch n_keys d"],
    Float[Tensor, "*batch n_keys d"],
]:
    """(grad_q, grad_k, grad_v), P being recomputed from lse, in plain PyTorch: algorithm 2, on any device.

    `torch.compile` is allowed.

    dtypes: as in the forward; grad_o and o have that of q, lse is float32, each gradient has that of its input.
        Accumulation in float32.
    Shapes, strides: as in the forward; `o.sum().backward()` passes a grad_o whose strides are all 0. Under is_causal
        with more keys than queries, the gradients of the keys that nobody sees are zeros.
    Empty batch: empty gradients.

    Raises:
        ValueError: as in the forward, or if grad_o or o is not of q's shape and dtype, or lse not of shape
            (*batch, n_queries) and float32.
    """
    # BEGIN SOLUTION handout/flash_attention.md#backward-in-pytorch
    _check_q_k_v(q, k, v)
    _check_grad_o_o_lse(grad_o, o, lse, q)
    n_queries, n_keys, scale = q.shape[-2], k.shape[-2], q.shape[-1] ** -0.5
    grad_q, grad_k, grad_v = (x.new_zeros(x.shape, dtype=torch.float32) for x in (q, k, v))
    delta = (grad_o.float() * o.float()).sum(dim=-1)  # (..., n_queries), D in the paper
    for keys in _tiles(n_keys):
        k_tile, v_tile = k[..., keys, :].float(), v[..., keys, :].float()  # (..., K, d)
        for queries in _tiles(n_queries):
            if is_causal and keys.start >= queries.stop:
                continue
            q_tile, grad_o_tile = q[..., queries, :].float(), grad_o[..., queries, :].float()  # (..., Q, d)
            s = _scores(q_tile, k_tile, scale, queries, keys, is_causal)  # (..., Q, K)
            p = torch.exp(s - lse[..., queries, None])
            grad_v[..., keys, :] += p.mT @ grad_o_tile
            grad_p = grad_o_tile @ v_tile.mT
            grad_s = p * (grad_p - delta[..., queries, None]) * scale
            grad_q[..., queries, :] += grad_s @ k_tile
            grad_k[..., keys, :] += grad_s.mT @ q_tile
    return grad_q.to(q.dtype), grad_k.to(k.dtype), grad_v.to(v.dtype)
    # END SOLUTION


def flash_forward_triton(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float32[Tensor, "*batch n_queries"]]:
    """(o, lse) of attention, in one Triton kernel: algorithm 1.

    Key tiles wholly above the causal diagonal are not visited; only those on it are masked element by element.

    lse_i = ln Σ_j exp(S_ij), a natural logarithm, always float32.
    dtypes: float32, bfloat16 or float16, the same for q, k and v; o has that of q. Products accumulate in float32;
        `tl.dot` may use TF32 for float32.
    Shapes: any lengths from 1, n_queries and n_keys apart; any d from 1 to 256; the scale is 1/√d.
    Strides: any, broadcast dimensions (stride 0) included. The inputs are not written to.
    Empty batch: an empty o and lse, without a launch.

    Raises:
        ValueError: before any launch, if q, k or v have fewer than two dimensions or a length of 0, if their last
            dimensions, batch dimensions or dtypes differ, if k and v differ in length, if d > 256, or the dtype is
            none of the three.
    """
    # BEGIN SOLUTION handout/flash_attention.md#forward-in-triton
    _check_q_k_v(q, k, v)
    q_, k_, v_ = _describable(q, k, v)
    n_batches, n_queries, d = q_.shape
    o = q.new_empty(q_.shape)
    lse = q.new_empty(n_batches, n_queries, dtype=torch.float32)
    n_keys = k_.shape[1]
    table = _forward_table(q, n_keys // 2 if is_causal else n_keys)
    sizes = _launch_sizes(table, d, q.dtype)
    if n_batches > 0:
        _flash_forward_kernel[(n_batches * triton.cdiv(n_queries, sizes["Q_TILE_SIZE"]),)](
            *_tiled(sizes["Q_TILE_SIZE"], q_), *_tiled(sizes["K_TILE_SIZE"], k_, v_),
            o, lse,
            *o.stride(), *lse.stride(),
            n_queries, n_keys, d, d**-0.5,
            IS_CAUSAL=is_causal, IS_SHORT=table is SHORT_FORWARD_SIZES, **sizes,
        )  # fmt: skip
    return o.reshape(q.shape), lse.reshape(q.shape[:-1])
    # END SOLUTION


def flash_backward_triton(
    grad_o: Float[Tensor, "*batch n_queries d"],
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    o: Float[Tensor, "*batch n_queries d"],
    lse: Float32[Tensor, "*batch n_queries"],
    is_causal: bool = False,
) -> tuple[
    Float[Tensor, "*batch n_queries d"],
    Float[Tensor, "*batch n_keys d"],
    Float[Tensor, "*batch n_keys d"],
]:
    """(grad_q, grad_k, grad_v), P being recomputed from lse, in Triton kernels: algorithm 2.

    dQ is summed by a program a query tile, dK and dV by a program a key tile. So nobody adds to another's sums: there
    are no atomics, and the same inputs give the same bits. Tiles wholly above the causal diagonal are not visited; only
    those on it are masked element by element.

    dtypes: as in the forward; grad_o and o have that of q, lse is float32, each gradient has that of its input.
        Products accumulate in float32; `tl.dot` may use TF32 for float32.
    Shapes, strides: as in the forward; `o.sum().backward()` passes a grad_o whose strides are all 0. Under is_causal
        with more keys than queries, the gradients of the keys that nobody sees are zeros.
    Empty batch: empty gradients, without a launch.

    Raises:
        ValueError: before any launch, as in the forward, or if grad_o or o is not of q's shape and dtype, or lse not of
            shape (*batch, n_queries) and float32.
    """
    # BEGIN SOLUTION handout/flash_attention.md#backward-in-triton
    _check_q_k_v(q, k, v)
    _check_grad_o_o_lse(grad_o, o, lse, q)
    grad_o_, q_, k_, v_, o_ = _describable(grad_o, q, k, v, o)
    (n_batches, n_queries, d), n_keys, lse_ = q_.shape, k_.shape[1], lse.reshape(-1, q_.shape[1])
    delta = q.new_empty(n_batches, n_queries, dtype=torch.float32)
    grad_q, grad_k, grad_v = (q.new_empty(x.shape) for x in (q_, k_, v_))
    is_large = _has_large_shared_memory(q)
    if n_batches > 0:
        sizes = _launch_sizes(LARGE_BACKWARD_Q_SIZES if is_large else BACKWARD_SIZES, d, q.dtype)
        _flash_backward_q_kernel[(n_batches * triton.cdiv(n_queries, sizes["Q_TILE_SIZE"]),)](
            *_tiled(sizes["Q_TILE_SIZE"], grad_o_, q_, o_), *_tiled(sizes["K_TILE_SIZE"], k_, v_),
            lse_, delta, grad_q,
            *lse_.stride(), *delta.stride(), *grad_q.stride(),
            n_queries, n_keys, d, d**-0.5,
            IS_CAUSAL=is_causal, **sizes,
        )  # fmt: skip
        sizes = _launch_sizes(LARGE_BACKWARD_KV_SIZES if is_large else BACKWARD_SIZES, d, q.dtype)
        _flash_backward_kv_kernel[(n_batches * triton.cdiv(n_keys, sizes["K_TILE_SIZE"]),)](
            *_tiled(sizes["Q_TILE_SIZE"], grad_o_, q_), *_tiled(sizes["K_TILE_SIZE"], k_, v_),
            lse_, delta, grad_k, grad_v,
            *lse_.stride(), *delta.stride(), *grad_k.stride(), *grad_v.stride(),
            n_queries, n_keys, d, d**-0.5,
            IS_CAUSAL=is_causal, **sizes,
        )  # fmt: skip
    return grad_q.reshape(q.shape), grad_k.reshape(k.shape), grad_v.reshape(v.shape)
    # END SOLUTION


def flash_attention(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> Float[Tensor, "*batch n_queries d"]:
    """o of `flash_forward_triton`, differentiable in q, k and v through `flash_backward_triton`.

    Backward may run twice (`retain_graph=True`), for some of the inputs only, and on an expanded gradient. What is kept
    for it grows with the lengths, not with their product.

    Raises:
        ValueError: as `flash_forward_triton`.
    """
    # BEGIN SOLUTION handout/flash_attention.md#forward-in-triton
    return FlashAttention.apply(q, k, v, is_causal)
    # END SOLUTION


# BEGIN SOLUTION
def _check_q_k_v(q: Tensor, k: Tensor, v: Tensor) -> None:
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if min(q.ndim, k.ndim, v.ndim) < 2:
        raise ValueError(f"expected q, k and v of shape (..., length, d), got {shapes}")
    if not q.shape[-1] == k.shape[-1] == v.shape[-1]:
        raise ValueError(f"expected one d, the last dimension of q, k and v, got {shapes}")
    if not 1 <= q.shape[-1] <= MAX_D:
        raise ValueError(f"expected d from 1 to {MAX_D}, got {shapes}")
    if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        raise ValueError(f"expected the same batch dimensions for q, k and v, got {shapes}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"expected k and v of one length, got {shapes}")
    if q.shape[-2] == 0 or k.shape[-2] == 0:
        raise ValueError(f"expected at least one query and one key, got {shapes}")
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"expected q, k and v in one dtype, got {q.dtype}, {k.dtype} and {v.dtype}")
    if q.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"expected q, k and v in float32, bfloat16 or float16, got {q.dtype}")
    if not q.device == k.device == v.device:
        raise ValueError(f"expected q, k and v on one device, got {q.device}, {k.device} and {v.device}")


def _check_grad_o_o_lse(grad_o: Tensor, o: Tensor, lse: Tensor, q: Tensor) -> None:
    for name, x in (("grad_o", grad_o), ("o", o)):
        if x.shape != q.shape:
            raise ValueError(f"expected {name} of q's shape {tuple(q.shape)}, got {tuple(x.shape)}")
        if x.dtype != q.dtype or x.device != q.device:
            raise ValueError(f"expected {name} like q, {q.dtype} on {q.device}, got {x.dtype} on {x.device}")
    if lse.shape != q.shape[:-1]:
        raise ValueError(f"expected lse of shape {tuple(q.shape[:-1])}, got {tuple(lse.shape)}")
    if lse.dtype != torch.float32 or lse.device != q.device:
        raise ValueError(f"expected lse in float32 on {q.device}, got {lse.dtype} on {lse.device}")


def _tiles(length: int) -> list[slice]:
    return [slice(i, min(i + PYTORCH_TILE_SIZE, length)) for i in range(0, length, PYTORCH_TILE_SIZE)]


def _scores(q: Tensor, k: Tensor, scale: float, queries: slice, keys: slice, is_causal: bool) -> Tensor:
    """The tile S = q kᵀ · scale, with −∞ where a query does not see a key."""
    s = q @ k.mT * scale
    if is_causal and keys.stop - 1 > queries.start:  # the tile crosses the diagonal
        query_index = torch.arange(queries.start, queries.stop, device=s.device)
        key_index = torch.arange(keys.start, keys.stop, device=s.device)
        s = s.masked_fill(key_index[None, :] > query_index[:, None], -torch.inf)
    return s


def _describable(*tensors: Tensor) -> list[Tensor]:
    """The tensors as (n_batches, length, d), laid out as tensor descriptors need it; copies of those that are not."""
    found = []
    for x in tensors:
        matrices = x.reshape(-1, *x.shape[-2:])
        *strides, column_stride = matrices.stride()
        offsets = [matrices.data_ptr(), *(stride * x.itemsize for stride in strides)]
        if column_stride != 1 or 0 in strides or any(offset % ROW_ALIGNMENT for offset in offsets):
            d = x.shape[-1]
            padded_d = triton.cdiv(d * x.itemsize, ROW_ALIGNMENT) * ROW_ALIGNMENT // x.itemsize
            matrices = x.new_empty(*matrices.shape[:-1], padded_d)[..., :d].copy_(matrices)
        found.append(matrices)
    return found


def _tiled(rows: int, *tensors: Tensor) -> list[TensorDescriptor | None]:
    """Tensors (n_batches, length, d) for a kernel to load tiles of `rows` rows from; outside of them they hold zeros.

    Two of each: for its first columns, and for the rest if there is one. A unit of its own loads them (TMA) where a GPU
    has one; for others Triton makes pointers of a descriptor.
    """
    return [
        TensorDescriptor(x, list(x.shape), list(x.stride()), [1, rows, width]) if width else None
        for x in tensors
        for width in _d_tile_sizes(x.shape[-1])
    ]


def _d_tile_sizes(d: int) -> tuple[int, int]:
    """Columns of a tile and of the rest, powers of 2; of 80 columns 64 and 16, where one tile would have 128."""
    whole = max(16, triton.next_power_of_2(d))  # 16: the least that tl.dot takes
    rest = max(16, triton.next_power_of_2(max(d - whole // 2, 1)))
    return (whole // 2, rest) if d > MIN_SPLIT_D and rest < whole // 2 else (whole, 0)


def _has_large_shared_memory(x: Tensor) -> bool:
    return torch.cuda.get_device_capability(x.device) in LARGE_SHARED_MEMORY


def _forward_table(q: Tensor, keys_per_query: int) -> Table:
    capability = torch.cuda.get_device_capability(q.device)
    if capability not in LARGE_SHARED_MEMORY:
        return FORWARD_SIZES
    if keys_per_query <= MAX_SHORT and 64 < q.shape[-1] <= 128 and q.itemsize == 2:
        return SHORT_FORWARD_SIZES
    return HOPPER_FORWARD_SIZES if capability == HOPPER else LARGE_FORWARD_SIZES


def _launch_sizes(sizes: Table, d: int, dtype: torch.dtype) -> dict[str, int]:
    by_d = sizes[8 * dtype.itemsize]
    queries, keys, num_warps, num_stages, *registers = by_d[min(widest for widest in by_d if d <= widest)]
    return {
        "Q_TILE_SIZE": queries,
        "K_TILE_SIZE": keys,
        "D_TILE_SIZE": _d_tile_sizes(d)[0],
        "D_REST_SIZE": _d_tile_sizes(d)[1],
        "num_warps": num_warps,
        "num_stages": num_stages,
        **({"maxnreg": registers[0]} if registers else {}),
    }


# END SOLUTION
class FlashAttention(torch.autograd.Function):
    """Saves q, k, v, o and lse: nothing of n_queries × n_keys."""

    @staticmethod
    def forward(ctx, q, k, v, is_causal):
        # BEGIN SOLUTION handout/flash_attention.md#forward-in-triton flash_attention
        o, lse = flash_forward_triton(q, k, v, is_causal=is_causal)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.is_causal = is_causal
        return o
        # END SOLUTION

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_o):
        # BEGIN SOLUTION handout/flash_attention.md#backward-in-triton flash_attention
        q, k, v, o, lse = ctx.saved_tensors
        return *flash_backward_triton(grad_o, q, k, v, o, lse, is_causal=ctx.is_causal), None
        # END SOLUTION


# BEGIN SOLUTION
@triton.jit
def _flash_forward_kernel(
    q_desc, q_rest, k_desc, k_rest, v_desc, v_rest, o_ptr, lse_ptr,
    stride_ob, stride_on, stride_od,
    stride_lb, stride_ln,
    n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, IS_SHORT: tl.constexpr,
    Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr, D_REST_SIZE: tl.constexpr,
):  # fmt: skip
    """One program a query tile of one batch, which walks along the keys (algorithm 1).

    q_desc, k_desc and v_desc are descriptors of q (n_batches, n_queries, d), k and v (n_batches, n_keys, d), with
    tiles of (1, Q_TILE_SIZE or K_TILE_SIZE, D_TILE_SIZE); q_rest, k_rest and v_rest load the columns from D_TILE_SIZE
    on, and are None where D_REST_SIZE is 0. o like q, lse (n_batches, n_queries) in float32; stride_ob is o's stride
    along the batch. scale = 1/√d; D_TILE_SIZE + D_REST_SIZE >= d. IS_SHORT: few keys, and small tiles.
    Grid: (n_batches · ⌈n_queries / Q_TILE_SIZE⌉,).
    """
    n_query_tiles = tl.cdiv(n_queries, Q_TILE_SIZE)
    if IS_CAUSAL:
        batch_bytes = n_keys * d * (o_ptr.dtype.element_ty.primitive_bitwidth // 4)
        batch, tile = _longest_first(n_query_tiles, batch_bytes, 0 if IS_SHORT else GROUP_BYTES)
    else:
        batch, tile = tl.program_id(0) // n_query_tiles, tl.program_id(0) % n_query_tiles
    first_query = tile * Q_TILE_SIZE
    queries = first_query + tl.arange(0, Q_TILE_SIZE)
    q = _load_tile(q_desc, q_rest, batch, first_query, Q_TILE_SIZE, D_TILE_SIZE, D_REST_SIZE)

    # Keys before seen_by_all are visible to every query of the tile, keys from seen_by_some on to none.
    seen_by_all = tl.minimum(n_keys, first_query + 1) if IS_CAUSAL else n_keys
    seen_by_some = tl.minimum(n_keys, first_query + Q_TILE_SIZE) if IS_CAUSAL else n_keys
    # In two loops; a short walk is one, for where a loop begins it waits for its first tiles.
    unmasked = 0 if IS_CAUSAL and IS_SHORT else seen_by_all // K_TILE_SIZE * K_TILE_SIZE

    # Over the keys so far, with s_j = q·k_j · scale · log₂ e:
    row_max = tl.full((Q_TILE_SIZE,), float("-inf"), dtype=tl.float32)  # max_j s_j, m in the paper
    row_sum = tl.zeros((Q_TILE_SIZE,), dtype=tl.float32)  # Σ_j exp2(s_j − row_max), ℓ in the paper
    o = _zeros(Q_TILE_SIZE, D_TILE_SIZE, D_REST_SIZE)  # Σ_j exp2(s_j − row_max) v_j
    descs = k_desc, k_rest, v_desc, v_rest
    o, row_sum, row_max = _attend(
        o, row_sum, row_max, q, descs, batch, queries, 0, unmasked, seen_by_all, n_keys, scale,
        IS_CAUSAL, IS_SHORT, False, K_TILE_SIZE, D_TILE_SIZE, D_REST_SIZE,
    )  # fmt: skip
    o, row_sum, row_max = _attend(
        o, row_sum, row_max, q, descs, batch, queries, unmasked, seen_by_some, seen_by_all, n_keys, scale,
        IS_CAUSAL, IS_SHORT, True, K_TILE_SIZE, D_TILE_SIZE, D_REST_SIZE,
    )  # fmt: skip

    batch = batch.to(tl.int64)
    o = _times(o, (1.0 / row_sum)[:, None], D_REST_SIZE)
    _store_tile(o_ptr + batch * stride_ob, o, queries, stride_on, stride_od, n_queries, d, D_TILE_SIZE, D_REST_SIZE)
    lse_ptrs = lse_ptr + batch * stride_lb + queries.to(tl.int64) * stride_ln
    tl.store(lse_ptrs, (row_max + tl.log2(row_sum)) * LN_2, mask=queries < n_queries)


@triton.jit
def _flash_backward_q_kernel(
    grad_o_desc, grad_o_rest, q_desc, q_rest, o_desc, o_rest, k_desc, k_rest, v_desc, v_rest,
    lse_ptr, delta_ptr, grad_q_ptr,
    stride_lb, stride_ln, stride_db, stride_dn,
    stride_gqb, stride_gqn, stride_gqd,
    n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr,
    Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr, D_REST_SIZE: tl.constexpr,
):  # fmt: skip
    """grad_q, and the paper's D: one program a query tile of one batch, which walks along the keys (algorithm 2).

    Descriptors of grad_o, q and o (n_batches, n_queries, d), k and v (n_batches, n_keys, d), as in the forward kernel;
    grad_q like q; lse and delta (n_batches, n_queries) in float32, delta_i = Σ_j grad_o_ij o_ij for the next kernel.
    Grid: (n_batches · ⌈n_queries / Q_TILE_SIZE⌉,).
    """
    n_query_tiles = tl.cdiv(n_queries, Q_TILE_SIZE)
    if IS_CAUSAL:
        batch_bytes = n_keys * d * (grad_q_ptr.dtype.element_ty.primitive_bitwidth // 4)
        batch, tile = _longest_first(n_query_tiles, batch_bytes, GROUP_BYTES)
    else:
        batch, tile = tl.program_id(0) // n_query_tiles, tl.program_id(0) % n_query_tiles
    first_query = tile * Q_TILE_SIZE
    queries = first_query + tl.arange(0, Q_TILE_SIZE)
    query_mask = queries < n_queries
    q = _load_tile(q_desc, q_rest, batch, first_query, Q_TILE_SIZE, D_TILE_SIZE, D_REST_SIZE)
    grad_o = _load_tile(grad_o_desc, grad_o_rest, batch, first_query, Q_TILE_SIZE, D_TILE_SIZE, D_REST_SIZE)
    # Queries past the last are not stored; an infinite lse makes their p = 0 all the same.
    lse_ptrs = lse_ptr + batch.to(tl.int64) * stride_lb + queries.to(tl.int64) * stride_ln
    lse = tl.load(lse_ptrs, mask=query_mask, other=float("inf"))  # (Q,)
    o = _load_tile(o_desc, o_rest, batch, first_query, Q_TILE_SIZE, D_TILE_SIZE, D_REST_SIZE)
    delta = tl.sum(grad_o[0].to(tl.float32) * o[0].to(tl.float32), axis=1)  # (Q,)
    if D_REST_SIZE:
        delta += tl.sum(grad_o[1].to(tl.float32) * o[1].to(tl.float32), axis=1)
    tl.store(delta_ptr + batch.to(tl.int64) * stride_db + queries.to(tl.int64) * stride_dn, delta, mask=query_mask)

    # Keys before seen_by_all are visible to every query of the tile, keys from seen_by_some on to none.
    seen_by_all = tl.minimum(n_keys, first_query + 1) if IS_CAUSAL else n_keys
    seen_by_some = tl.minimum(n_keys, first_query + Q_TILE_SIZE) if IS_CAUSAL else n_keys

    grad_q = _zeros(Q_TILE_SIZE, D_TILE_SIZE, D_REST_SIZE)
    for first_key in range(0, seen_by_some, K_TILE_SIZE):
        keys = first_key + tl.arange(0, K_TILE_SIZE)
        k = _load_tile(k_desc, k_rest, batch, first_key, K_TILE_SIZE, D_TILE_SIZE, D_REST_SIZE)
        v = _load_tile(v_desc, v_rest, batch, first_key, K_TILE_SIZE, D_TILE_SIZE, D_REST_SIZE)
        s = _dot_rows(q, k, D_REST_SIZE)  # (Q, K)
        # Keys past the last are hidden too: exp2(0 − lse) overflows where lse is very negative, and ∞ · 0 is NaN.
        if first_key + K_TILE_SIZE > seen_by_all:
            s = _hide(s, queries[:, None], keys[None, :], n_keys, IS_CAUSAL)
        p = tl.exp2(s * (scale * LOG2_E) - (lse * LOG2_E)[:, None])  # (Q, K)
        grad_p = _dot_rows(grad_o, v, D_REST_SIZE)  # (Q, K)
        grad_s = p * (grad_p - delta[:, None])
        grad_q = _add_dot(grad_q, grad_s, k, D_REST_SIZE)

    ptr = grad_q_ptr + batch.to(tl.int64) * stride_gqb
    grad_q = _times(grad_q, scale, D_REST_SIZE)
    _store_tile(ptr, grad_q, queries, stride_gqn, stride_gqd, n_queries, d, D_TILE_SIZE, D_REST_SIZE)


@triton.jit
def _flash_backward_kv_kernel(
    grad_o_desc, grad_o_rest, q_desc, q_rest, k_desc, k_rest, v_desc, v_rest,
    lse_ptr, delta_ptr, grad_k_ptr, grad_v_ptr,
    stride_lb, stride_ln, stride_db, stride_dn,
    stride_gkb, stride_gkn, stride_gkd,
    stride_gvb, stride_gvn, stride_gvd,
    n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr,
    Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr, D_REST_SIZE: tl.constexpr,
):  # fmt: skip
    """grad_k and grad_v: one program a key tile of one batch, which walks along the queries (algorithm 2).

    Arguments as in the kernel for grad_q, which has filled delta; grad_k and grad_v (n_batches, n_keys, d).
    Grid: (n_batches · ⌈n_keys / K_TILE_SIZE⌉,).
    """
    n_key_tiles = tl.cdiv(n_keys, K_TILE_SIZE)
    batch = tl.program_id(0) // n_key_tiles
    first_key = (tl.program_id(0) % n_key_tiles) * K_TILE_SIZE
    keys = first_key + tl.arange(0, K_TILE_SIZE)
    k = _load_tile(k_desc, k_rest, batch, first_key, K_TILE_SIZE, D_TILE_SIZE, D_REST_SIZE)
    v = _load_tile(v_desc, v_rest, batch, first_key, K_TILE_SIZE, D_TILE_SIZE, D_REST_SIZE)
    lse_ptr += batch.to(tl.int64) * stride_lb
    delta_ptr += batch.to(tl.int64) * stride_db

    # The first query tile that sees a key of this tile, where it is causal.
    start = first_key // Q_TILE_SIZE * Q_TILE_SIZE if IS_CAUSAL else 0
    grad_k = _zeros(K_TILE_SIZE, D_TILE_SIZE, D_REST_SIZE)
    grad_v = _zeros(K_TILE_SIZE, D_TILE_SIZE, D_REST_SIZE)
    for first_query in range(start, n_queries, Q_TILE_SIZE):
        queries = first_query + tl.arange(0, Q_TILE_SIZE)
        query_mask = queries < n_queries
        q = _load_tile(q_desc, q_rest, batch, first_query, Q_TILE_SIZE, D_TILE_SIZE, D_REST_SIZE)
        grad_o = _load_tile(grad_o_desc, grad_o_rest, batch, first_query, Q_TILE_SIZE, D_TILE_SIZE, D_REST_SIZE)
        # An infinite lse makes p = 0 for the queries past the last.
        lse_ptrs = lse_ptr + queries.to(tl.int64) * stride_ln
        lse = tl.load(lse_ptrs, mask=query_mask, other=float("inf"))  # (Q,)
        delta_ptrs = delta_ptr + queries.to(tl.int64) * stride_dn
        delta = tl.load(delta_ptrs, mask=query_mask, other=0.0)  # (Q,)

        # Transposed, so that p and grad_s are left operands of the products that follow, from registers. Keys past the
        # last are not masked, since nobody stores their rows; the diagonal is, in every tile: a branch costs more.
        s = _dot_rows(k, q, D_REST_SIZE)  # (K, Q)
        if IS_CAUSAL:
            s = tl.where(keys[:, None] <= queries[None, :], s, float("-inf"))
        p = tl.exp2(s * (scale * LOG2_E) - (lse * LOG2_E)[None, :])  # (K, Q)
        grad_v = _add_dot(grad_v, p, grad_o, D_REST_SIZE)
        grad_p = _dot_rows(v, grad_o, D_REST_SIZE)  # (K, Q)
        grad_s = p * (grad_p - delta[None, :])
        grad_k = _add_dot(grad_k, grad_s, q, D_REST_SIZE)

    grad_k_ptr += batch.to(tl.int64) * stride_gkb
    grad_v_ptr += batch.to(tl.int64) * stride_gvb
    grad_k = _times(grad_k, scale, D_REST_SIZE)
    _store_tile(grad_k_ptr, grad_k, keys, stride_gkn, stride_gkd, n_keys, d, D_TILE_SIZE, D_REST_SIZE)
    _store_tile(grad_v_ptr, grad_v, keys, stride_gvn, stride_gvd, n_keys, d, D_TILE_SIZE, D_REST_SIZE)


@triton.jit
def _attend(
    o, row_sum, row_max, q, descs, batch, queries, first, stop, seen_by_all, n_keys, scale,
    IS_CAUSAL: tl.constexpr, IS_SHORT: tl.constexpr, IS_MASKED: tl.constexpr,
    K_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr, D_REST_SIZE: tl.constexpr,
):  # fmt: skip
    """The three running values after the keys from `first` to `stop`; unmasked, every query sees all of them."""
    k_desc, k_rest, v_desc, v_rest = descs
    for first_key in range(first, stop, K_TILE_SIZE):
        k = _load_tile(k_desc, k_rest, batch, first_key, K_TILE_SIZE, D_TILE_SIZE, D_REST_SIZE)
        v = _load_tile(v_desc, v_rest, batch, first_key, K_TILE_SIZE, D_TILE_SIZE, D_REST_SIZE)
        s = _dot_rows(q, k, D_REST_SIZE)  # (Q, K)
        if IS_MASKED and (not IS_SHORT or first_key + K_TILE_SIZE > seen_by_all):
            keys = first_key + tl.arange(0, K_TILE_SIZE)
            s = _hide(s, queries[:, None], keys[None, :], n_keys, IS_CAUSAL)
        # Every query sees key 0, which is in the first tile: new_max is finite, and −∞ − −∞ does not come up.
        new_max = tl.maximum(row_max, tl.max(s, axis=1) * (scale * LOG2_E))
        p = tl.exp2(s * (scale * LOG2_E) - new_max[:, None])
        rescale = tl.exp2(row_max - new_max)
        row_sum = rescale * row_sum + tl.sum(p, axis=1)
        o = _add_dot(_times(o, rescale[:, None], D_REST_SIZE), p, v, D_REST_SIZE)
        row_max = new_max
    return o, row_sum, row_max


@triton.jit
def _longest_first(n_query_tiles, batch_bytes, group_bytes):
    """The batch and query tile of this program, where later tiles see more keys: short walks fill the gaps at the end.

    Batches take turns in groups whose keys and values fit in group_bytes of the cache: 1.03 to 1.05 × as fast as one
    batch after the other, at n = 4096 on an H200. Not so where all walks are short: a group's batches would ask memory
    for their keys all at once, and for little afterwards.
    """
    n_batches = tl.num_programs(0) // n_query_tiles
    group = tl.minimum(tl.maximum(group_bytes // tl.maximum(batch_bytes, 1), 1), n_batches)
    first = tl.program_id(0) // (group * n_query_tiles) * group
    size = tl.minimum(group, n_batches - first)
    turn = tl.program_id(0) - first * n_query_tiles
    return first + turn % size, n_query_tiles - 1 - turn // size


# Tiles in two parts, of which the second is a repetition of the first where D_REST_SIZE is 0, and is not used.


@triton.jit
def _load_tile(desc, rest_desc, batch, first, ROWS: tl.constexpr, D_TILE_SIZE: tl.constexpr, D_REST_SIZE: tl.constexpr):
    tile = desc.load([batch, first, 0]).reshape(ROWS, D_TILE_SIZE)
    rest = tile
    if D_REST_SIZE:
        rest = rest_desc.load([batch, first, D_TILE_SIZE]).reshape(ROWS, D_REST_SIZE)
    return tile, rest


@triton.jit
def _zeros(ROWS: tl.constexpr, D_TILE_SIZE: tl.constexpr, D_REST_SIZE: tl.constexpr):
    rest: tl.constexpr = D_REST_SIZE if D_REST_SIZE else D_TILE_SIZE
    return tl.zeros((ROWS, D_TILE_SIZE), dtype=tl.float32), tl.zeros((ROWS, rest), dtype=tl.float32)


@triton.jit
def _dot_rows(a, b, D_REST_SIZE: tl.constexpr):
    """a bᵀ."""
    product = tl.dot(a[0], tl.trans(b[0]))
    if D_REST_SIZE:
        product = tl.dot(a[1], tl.trans(b[1]), product)
    return product


@triton.jit
def _add_dot(total, weights, tile, D_REST_SIZE: tl.constexpr):
    """total + weights · tile."""
    weights = weights.to(tile[0].dtype)
    first, rest = total
    first = tl.dot(weights, tile[0], first)
    if D_REST_SIZE:
        rest = tl.dot(weights, tile[1], rest)
    return first, rest


@triton.jit
def _times(tile, factor, D_REST_SIZE: tl.constexpr):
    first, rest = tile
    first = first * factor
    if D_REST_SIZE:
        rest = rest * factor
    return first, rest


@triton.jit
def _store_tile(
    ptr, tile, rows, stride_row, stride_col, n_rows, n_cols, D_TILE_SIZE: tl.constexpr, D_REST_SIZE: tl.constexpr
):
    _store_part(ptr, tile[0], rows, tl.arange(0, D_TILE_SIZE), stride_row, stride_col, n_rows, n_cols)
    if D_REST_SIZE:
        cols = D_TILE_SIZE + tl.arange(0, D_REST_SIZE)
        _store_part(ptr, tile[1], rows, cols, stride_row, stride_col, n_rows, n_cols)


@triton.jit
def _store_part(ptr, tile, rows, cols, stride_row, stride_col, n_rows, n_cols):
    ptrs = ptr + rows.to(tl.int64)[:, None] * stride_row + cols.to(tl.int64)[None, :] * stride_col
    tl.store(ptrs, tile.to(ptr.dtype.element_ty), mask=(rows < n_rows)[:, None] & (cols < n_cols)[None, :])


@triton.jit
def _hide(s, queries, keys, n_keys, IS_CAUSAL: tl.constexpr):
    """The scores s, with −∞ for the keys past the last and, where it is causal, for those past the query."""
    visible = keys < n_keys
    if IS_CAUSAL:
        visible = visible & (keys <= queries)
    return tl.where(visible, s, float("-inf"))


# END SOLUTION
