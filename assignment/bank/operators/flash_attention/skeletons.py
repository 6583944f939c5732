# BEGIN SOLUTION
"""The kernels that students begin with: by pointers, where the reference's take descriptors.

`python -m assignment.release` adds them to the stubs.
"""

import triton
import triton.language as tl


# END SOLUTION
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
    # BEGIN SOLUTION handout/flash_attention.md#forward-in-triton
    # END SOLUTION


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
    # BEGIN SOLUTION handout/flash_attention.md#backward-in-triton
    # END SOLUTION


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
    # BEGIN SOLUTION handout/flash_attention.md#backward-in-triton
    # END SOLUTION


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
    # BEGIN SOLUTION handout/flash_attention.md#backward-in-triton
    # END SOLUTION
