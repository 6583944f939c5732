"""Planted bugs of FlashAttention-2 forward in Triton: strides."""

from assignment.bank.operators.edits import bug

PROBLEM = "flash_forward_triton"
FILES = ("triton_forward.py", "flash_attention.py")

BUGS = (
    bug(
        "q's last stride taken to be 1",
        "test_triton_strides",
        "cols[None, :] * stride_qd → cols[None, :]",
        named=("q is read as if its last stride were 1", "strides 1 along axis 2 (those of a contiguous tensor)"),
    ),
    bug(
        "k's last stride taken to be 1",
        "test_triton_strides",
        "cols[None, :] * stride_kd → cols[None, :]",
        named=("k is read as if its last stride were 1", "strides 1 along axis 2 (those of a contiguous tensor)"),
    ),
    bug(
        "v's last stride taken to be 1",
        "test_triton_strides",
        "cols[None, :] * stride_vd → cols[None, :]",
        named=("v is read as if its last stride were 1", "strides 1 along axis 2 (those of a contiguous tensor)"),
    ),
    bug(
        "k read with q's row stride",
        "test_triton_strides",
        "keys[:, None] * stride_kn → keys[:, None] * stride_qn",
        named="k = tl.load(k_ptrs, mask=k_mask, other=0.0)",
    ),
    bug(
        "k read with q's batch stride",
        "test_triton_ragged",
        "batch * stride_kb → batch * stride_qb",
        named=("k = tl.load(k_ptrs, mask=k_mask, other=0.0)", "k is read with q's strides"),
    ),
    bug(
        "k and v read with q's strides",
        "test_triton_strides",
        "k.stride(0), k.stride(1), k.stride(2) → q.stride(0), q.stride(1), q.stride(2)",
        "v.stride(0), v.stride(1), v.stride(2) → q.stride(0), q.stride(1), q.stride(2)",
        named=("k = tl.load(k_ptrs, mask=k_mask, other=0.0)", "k is read with q's strides"),
    ),
    bug(
        "q, k and v must be contiguous",
        "test_triton_strides",
        "    _check(q, k, v)\n →     _check(q, k, v)\n    assert all(x.is_contiguous() for x in (q, k, v))\n",
        named="assert all(x.is_contiguous()",
    ),
    bug(
        "v read with k's strides",
        "test_triton_strides",
        "v.stride(0), v.stride(1), v → k.stride(0), k.stride(1), k",
        named="v = tl.load(v_ptrs, mask=v_mask, other=0.0)",
    ),
    bug(
        "o written with q's strides",
        "test_triton_strides",
        "o.stride(0), o.stride(1), o → q.stride(0), q.stride(1), q",
        named=("stored with an input's strides", "(those of q_ptr) in place of"),
    ),
    bug(
        "q's batch and row strides swapped",
        "test_triton_values",
        "(0), q.stride(1), q. → (1), q.stride(0), q.",
        named="q = tl.load(q_ptrs, mask=q_mask, other=0.0)",
    ),
    bug(
        "lse written as if it had n_keys columns",
        "test_triton_ragged",
        "batch * stride_lb → batch * n_keys",
        named="tl.store(lse_ptrs, lse, mask=query_mask)",
    ),
    bug(
        "q flattened with view",
        "test_triton_strides",
        "q = q.reshape → q = q.view",
        named="q = q.view(n_batches, n_queries, d)",
    ),
    bug(
        "o laid out like q but stored as contiguous",
        "test_triton_strides",
        "o = torch.empty((n_batches, n_queries, d), dtype=q.dtype, device=q.device) → o = torch.empty_like(q)",
        "o.stride(0), o.stride(1), o.stride(2) → n_queries * d, d, 1",
        named="right, but stored as if it were contiguous",
    ),
    bug(
        "batch offsets in int32",
        "test_triton_offsets",
        "= tl.program_id(0).to(tl.int64) → = tl.program_id(0)",
        named=("q = tl.load(q_ptrs, mask=q_mask, other=0.0)", "an offset of 32 bits has wrapped"),
    ),
    bug(
        "query offsets in int32",
        "test_triton_offsets",
        "(first_query + tl.arange(0, Q_TILE_SIZE)).to(tl.int64) → first_query + tl.arange(0, Q_TILE_SIZE)",
        named="q = tl.load(q_ptrs, mask=q_mask, other=0.0)",
    ),
    bug(
        "key offsets in int32",
        "test_triton_offsets",
        "(first_key + tl.arange(0, K_TILE_SIZE)).to(tl.int64) → first_key + tl.arange(0, K_TILE_SIZE)",
        named=("v = tl.load(v_ptrs, mask=v_mask, other=0.0)", "an offset of 32 bits has wrapped"),
    ),
)
