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
    raise NotImplementedError(
        "cs336_kernels/flash_attention.py: flash_forward_pytorch, handout/flash_attention.md#forward-in-pytorch"
    )


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
    raise NotImplementedError(
        "cs336_kernels/flash_attention.py: flash_backward_pytorch, handout/flash_attention.md#backward-in-pytorch"
    )


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
    raise NotImplementedError(
        "cs336_kernels/flash_attention.py: flash_forward_triton, handout/flash_attention.md#forward-in-triton"
    )


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
    raise NotImplementedError(
        "cs336_kernels/flash_attention.py: flash_backward_triton, handout/flash_attention.md#backward-in-triton"
    )


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
    raise NotImplementedError(
        "cs336_kernels/flash_attention.py: flash_attention, handout/flash_attention.md#forward-in-triton"
    )


class FlashAttention(torch.autograd.Function):
    """Saves q, k, v, o and lse: nothing of n_queries × n_keys."""

    @staticmethod
    def forward(ctx, q, k, v, is_causal):
        raise NotImplementedError(
            "cs336_kernels/flash_attention.py: flash_attention, handout/flash_attention.md#forward-in-triton"
        )

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_o):
        raise NotImplementedError(
            "cs336_kernels/flash_attention.py: flash_attention, handout/flash_attention.md#backward-in-triton"
        )


@triton.jit
def _flash_forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    stride_qb, stride_qn, stride_qd,
    stride_kb, stride_kn, stride_kd,
    stride_vb, stride_vn, stride_vd,
    stride_ob, stride_on, stride_od,
    stride_lb, stride_ln,
    n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """One program a query tile of one batch, which walks along the keys (algorithm 1).

    q and o (n_batches, n_queries, d), k and v (n_batches, n_keys, d), lse (n_batches, n_queries) in float32; stride_qb
    is q's stride along the batch, stride_qn along the queries. scale = 1/√d; D_TILE_SIZE >= d.
    Grid: (n_batches · ⌈n_queries / Q_TILE_SIZE⌉,).
    """
    raise NotImplementedError(
        "cs336_kernels/flash_attention.py: _flash_forward_kernel, handout/flash_attention.md#forward-in-triton"
    )


@triton.jit
def _flash_delta_kernel(
    grad_o_ptr, o_ptr, delta_ptr,
    stride_gob, stride_gon, stride_god,
    stride_ob, stride_on, stride_od,
    stride_db, stride_dn,
    n_queries, d,
    Q_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """delta_i = Σ_j grad_o_ij o_ij, the paper's D: one program a query tile of one batch.

    grad_o and o (n_batches, n_queries, d), delta (n_batches, n_queries) in float32.
    Grid: (n_batches · ⌈n_queries / Q_TILE_SIZE⌉,).
    """
    raise NotImplementedError(
        "cs336_kernels/flash_attention.py: _flash_delta_kernel, handout/flash_attention.md#backward-in-triton"
    )


@triton.jit
def _flash_backward_kv_kernel(
    grad_o_ptr, q_ptr, k_ptr, v_ptr, lse_ptr, delta_ptr, grad_k_ptr, grad_v_ptr,
    stride_gob, stride_gon, stride_god,
    stride_qb, stride_qn, stride_qd,
    stride_kb, stride_kn, stride_kd,
    stride_vb, stride_vn, stride_vd,
    stride_lb, stride_ln, stride_db, stride_dn,
    stride_gkb, stride_gkn, stride_gkd,
    stride_gvb, stride_gvn, stride_gvd,
    n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """grad_k and grad_v: one program a key tile of one batch, which walks along the queries (algorithm 2).

    grad_o and q (n_batches, n_queries, d), k, v, grad_k and grad_v (n_batches, n_keys, d), lse and delta
    (n_batches, n_queries) in float32. scale = 1/√d; D_TILE_SIZE >= d.
    Grid: (n_batches · ⌈n_keys / K_TILE_SIZE⌉,).
    """
    raise NotImplementedError(
        "cs336_kernels/flash_attention.py: _flash_backward_kv_kernel, handout/flash_attention.md#backward-in-triton"
    )


@triton.jit
def _flash_backward_q_kernel(
    grad_o_ptr, q_ptr, k_ptr, v_ptr, lse_ptr, delta_ptr, grad_q_ptr,
    stride_gob, stride_gon, stride_god,
    stride_qb, stride_qn, stride_qd,
    stride_kb, stride_kn, stride_kd,
    stride_vb, stride_vn, stride_vd,
    stride_lb, stride_ln, stride_db, stride_dn,
    stride_gqb, stride_gqn, stride_gqd,
    n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """grad_q: one program a query tile of one batch, which walks along the keys (algorithm 2).

    Arguments as in the kernel for grad_k and grad_v; grad_q (n_batches, n_queries, d).
    Grid: (n_batches · ⌈n_queries / Q_TILE_SIZE⌉,).
    """
    raise NotImplementedError(
        "cs336_kernels/flash_attention.py: _flash_backward_q_kernel, handout/flash_attention.md#backward-in-triton"
    )
