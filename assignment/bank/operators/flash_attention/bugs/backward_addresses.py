"""Planted bugs of FlashAttention-2 backward in Triton: where it reads and writes, and in which tiles."""

from assignment.bank.operators.edits import bug

PROBLEM = "flash_backward_triton"
FILES = ("triton_backward.py", "flash_attention.py")

ADDRESSES = (
    bug(
        "grad_o read with o's strides",
        "test_triton_strides",
        "grad_o.stride(0), grad_o.stride(1), grad_o.stride(2),\n → o.stride(0), o.stride(1), o.stride(2),\n",
        named=(
            "grad_o = tl.load(grad_o_ptrs, mask=q_mask, oth",
            "grad_o is read as if it were contiguous",
            "grad_o is read with o's strides",
        ),
    ),
    bug(
        "D: grad_o read with o's strides",
        "test_triton_strides",
        "rows[:, None] * stride_gon + cols[None, :] * stride_god → "
        "rows[:, None] * stride_on + cols[None, :] * stride_od",
        named=(
            "go = tl.load(go_ptrs, mask=o_mask, other=0.0).",
            "grad_o is read as if it were contiguous",
            "grad_o is read with o's strides",
        ),
    ),
    bug(
        "D: o's last stride taken to be 1",
        "test_triton_strides",
        "+ cols[None, :] * stride_od → + cols[None, :]",
        named="o = tl.load(o_ptrs, mask=o_mask, other=0.0).to",
    ),
    bug(
        "q's last stride taken to be 1",
        "test_triton_strides",
        "cols[None, :] * stride_qd → cols[None, :]",
        named="q = tl.load(q_ptrs, mask=q_mask, other=0.0)",
    ),
    bug(
        "k and v read with q's strides",
        "test_triton_strides",
        "k.stride(0), k.stride(1), k.stride(2) → q.stride(0), q.stride(1), q.stride(2)",
        "v.stride(0), v.stride(1), v.stride(2) → q.stride(0), q.stride(1), q.stride(2)",
        named=("k = tl.load(k_ptrs, mask=k_mask, other=0.0)", "k is read with q's strides"),
    ),
    bug(
        "the inputs must be contiguous",
        "test_triton_strides",
        "    _check(grad_o, q, k, v, o, lse)\n →     _check(grad_o, q, k, v, o, lse)\n"
        "    assert all(x.is_contiguous() for x in (grad_o, q, k, v, o, lse))\n",
        named="assert all(x.is_contiguous()",
    ),
    bug(
        "v read with k's strides",
        "test_triton_strides",
        "v.stride(0), v.stride(1), v → k.stride(0), k.stride(1), k",
        named="v = tl.load(v_ptrs, mask=k_mask, other=0.0)",
    ),
    bug(
        "k read with q's batch stride",
        "test_triton_ragged",
        "batch * stride_kb → batch * stride_qb",
        named=("k = tl.load(k_ptrs, mask=k_mask, other=0.0)", "k is read with q's strides"),
    ),
    bug(
        "lse's batch stride taken to be n_queries",
        "test_triton_strides",
        "batch * stride_lb → batch * n_queries",
        named="lse's batch stride is taken for that of a cont",
    ),
    bug(
        "D read with lse's strides",
        "test_triton_strides",
        "delta_ptr + batch * stride_db + queries * stride_dn → delta_ptr + batch * stride_lb + queries * stride_ln",
        named="delta = tl.load(delta_ptrs, mask=query_mask, o",
    ),
    bug(
        "grad_k written with k's strides",
        "test_triton_strides",
        "grad_k.stride(0), grad_k.stride(1), grad_k.stride(2) → k.stride(0), k.stride(1), k.stride(2)",
        named="tl.store(grad_k_ptrs, grad_k.to(grad_k_ptr.dty",
    ),
    bug(
        "grad_v written with grad_q's batch stride",
        "test_triton_ragged",
        "batch * stride_gvb → batch * stride_gqb",
        named="tl.store(grad_v_ptrs, grad_v.to(grad_v_ptr.dty",
    ),
    bug(
        "grad_o flattened with view",
        "test_triton_strides",
        "grad_o = grad_o.reshape → grad_o = grad_o.view",
        named="grad_o = grad_o.view(n_batches, n_queries, d)",
    ),
    bug(
        "batch offsets in int32",
        "test_triton_offsets",
        "(0).to(tl.int64)\n    first_key → (0)\n    first_key",
        named=("k = tl.load(k_ptrs, mask=k_mask, other=0.0)", "an offset of 32 bits has wrapped"),
    ),
    bug(
        "key offsets in int32",
        "test_triton_offsets",
        "keys = (first_key + tl.arange(0, K_TILE_SIZE)).to(tl.int64) → keys = first_key + tl.arange(0, K_TILE_SIZE)",
        named="v = tl.load(v_ptrs, mask=k_mask, other=0.0)",
    ),
    bug(
        "tiles of 128 without a tail",
        "test_triton_ragged",
        "tile_size = min(64, 4096 // d_tile_size) → tile_size = min(128, 4096 // d_tile_size)",
        "row_mask = rows < n_queries → row_mask = rows >= 0",
        "query_mask = queries < n_queries → query_mask = queries >= 0",
        "key_mask = keys < n_keys → key_mask = keys >= 0",
        named="go = tl.load(go_ptrs, mask=o_mask, other=0.0).",
    ),
    bug(
        "no bounds at all",
        "test_triton_ragged",
        "row_mask = rows < n_queries → row_mask = rows >= 0",
        "(cols < d)[None, :] → (cols >= 0)[None, :]",
        "query_mask = queries < n_queries → query_mask = queries >= 0",
        "key_mask = keys < n_keys → key_mask = keys >= 0",
        "col_mask = cols < d → col_mask = cols >= 0",
        named="go = tl.load(go_ptrs, mask=o_mask, other=0.0).",
    ),
    bug(
        "keys past the end unmasked",
        "test_triton_ragged",
        "[:, None] & key_mask → [:, None] & (keys >= 0)",
        named="backward-padded-keys-not-hidden",
    ),
    bug(
        "k and v read past the last key",
        "test_triton_ragged",
        "k_ptrs, mask=k_mask → k_ptrs, mask=col_mask[None, :]",
        named="k = tl.load(k_ptrs, mask=col_mask[None, :], ot",
    ),
    bug(
        "q read past the last query",
        "test_triton_ragged",
        "q_ptrs, mask=q_mask, → q_ptrs, mask=col_mask[None, :],",
        named="q = tl.load(q_ptrs, mask=col_mask[None, :], ot",
    ),
    bug(
        "grad_o read past the last query",
        "test_triton_ragged",
        "tl.load(grad_o_ptrs, mask=q_mask, other=0.0) → tl.load(grad_o_ptrs, mask=col_mask[None, :], other=0.0)",
        named="grad_o = tl.load(grad_o_ptrs, mask=col_mask[No",
    ),
    bug(
        "lse read past the last query",
        "test_triton_ragged",
        "(lse_ptrs, mask=query_mask, other=0.0) → (lse_ptrs)",
        named="lse = tl.load(lse_ptrs)",
    ),
    bug(
        "queries past the end counted in dK and dV",
        "test_triton_ragged",
        "= queries < n_queries → = queries >= 0",
        named="q = tl.load(q_ptrs, mask=q_mask, other=0.0)",
    ),
    bug(
        "keys bounded by n_queries",
        "test_triton_ragged",
        "key_mask = keys < n_keys → key_mask = keys < n_queries",
        named=("k = tl.load(k_ptrs, mask=k_mask, other=0.0)", "never stored"),
    ),
    bug(
        "columns past the end unmasked",
        "test_triton_head_dimension",
        "col_mask = cols < d → col_mask = cols >= 0",
        named=("tl.store(grad_k_ptrs, grad_k.to(grad_k_ptr.dty", "tl.load("),
    ),
    bug(
        "D: columns past the end of o and grad_o unmasked",
        "test_triton_head_dimension",
        "o_mask = row_mask[:, None] & (cols < d)[None, :] → o_mask = row_mask[:, None]",
        named="go = tl.load(go_ptrs, mask=o_mask, other=0.0).",
    ),
    bug(
        "grad_v stored past the last key",
        "test_triton_ragged",
        "(grad_v_ptr.dtype.element_ty), mask=k_mask → (grad_v_ptr.dtype.element_ty), mask=col_mask[None, :]",
        named="tl.store(grad_v_ptrs, grad_v.to(grad_v_ptr.dty",
    ),
    bug(
        "dQ added past the last query",
        "test_triton_ragged",
        "grad_q_ptrs, grad_q, mask=q_mask → grad_q_ptrs, grad_q, mask=col_mask[None, :]",
        line="tl.atomic_add(grad_q_ptrs",
    ),
    bug(
        "D read past the last query",
        "test_triton_ragged",
        "tl.load(delta_ptrs, mask=query_mask, other=0.0) → tl.where(query_mask, tl.load(delta_ptrs), 0.0)",
        line="tl.where(query_mask, tl.load(delta_ptrs)",
    ),
)

TILES = (
    bug(
        "key grid rounded down",
        "test_triton_ragged",
        ", triton.cdiv(n_keys, tile_size) → , n_keys // tile_size",
        named="never stored",
    ),
    bug(
        "key grid from n_queries",
        "test_triton_ragged",
        "(n_batches, triton.cdiv(n_keys, tile_size)) → query_grid",
        named="never stored",
    ),
    bug(
        "grid axes swapped",
        "test_triton_values",
        "= (n_batches, triton.cdiv(n_keys, tile_size)) → = (triton.cdiv(n_keys, tile_size), n_batches)",
        named=("never stored", "tl.load("),
    ),
    bug(
        "d must be a power of two",
        "test_triton_head_dimension",
        "max(16, triton.next_power_of_2(d)) → max(16, d)",
        named=("cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)", "arange's range must be a power of 2"),
    ),
    bug(
        "n_queries and n_keys must be equal",
        "test_triton_ragged",
        "    _check(grad_o, q, k, v, o, lse)\n →     _check(grad_o, q, k, v, o, lse)\n    assert q.shape == k.shape\n",
        named="assert q.shape == k.shape",
    ),
    bug(
        "at least one batch dimension",
        "test_triton_ragged",
        "q.reshape(n_batches, n_queries, d) → q.flatten(0, -3)",
        named="q = q.flatten(0, -3)",
    ),
    bug(
        "the keys' batch dimensions in the wrong order",
        "test_triton_ragged",
        "k = k.reshape → k = (k.transpose(0, -3) if k.ndim > 3 else k).reshape",
        named="k's batch dimensions are in another order",
    ),
)

BUGS = (*ADDRESSES, *TILES)
