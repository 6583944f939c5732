"""Planted bugs of FlashAttention-2 backward in Triton that misuse memory: most return what they should."""

from assignment.bank.operators.edits import bug

PROBLEM = "flash_backward_triton"
FILES = ("triton_backward.py", "flash_attention.py")

LOADS = (
    bug(
        "D: queries past the end of o and grad_o read and dropped",
        "test_triton_ragged",
        "o_mask = row_mask[:, None] & (cols < d)[None, :] → o_mask = (cols < d)[None, :]",
        line="go = tl.load(go_ptrs",
    ),
    bug(
        "D: query grid rounded down",
        "test_triton_ragged",
        "query_grid = (n_batches, triton.cdiv(n_queries, tile_size)) → "
        "query_grid = (n_batches, n_queries // tile_size)",
        line="delta = tl.load(delta_ptrs",
    ),
    bug(
        "the query tile before the first read and dropped",
        "test_triton_values",
        "    start = 0\n →     start = 0 - Q_TILE_SIZE\n",
        "visible = query_mask[:, None] & key_mask[None, :] → "
        "visible = (query_mask & (queries >= 0))[:, None] & key_mask[None, :]",
        line="q = tl.load(q_ptrs",
    ),
    bug(
        "one query tile too many, and lse not masked",
        "test_triton_values",
        "range(start, n_queries, Q_TILE_SIZE) → range(start, n_queries + Q_TILE_SIZE, Q_TILE_SIZE)",
        "tl.load(lse_ptrs, mask=query_mask, other=0.0) → tl.load(lse_ptrs)",
        line="lse = tl.load(lse_ptrs)",
    ),
    bug(
        "v read past the last column",
        "test_triton_head_dimension",
        "tl.load(v_ptrs, mask=k_mask, other=0.0) → tl.load(v_ptrs, mask=key_mask[:, None], other=0.0)",
        line="v = tl.load(v_ptrs",
    ),
)

STORES = (
    bug(
        "grad_k stored past the last key",
        "test_triton_ragged",
        "grad_k.to(grad_k_ptr.dtype.element_ty), mask=k_mask → "
        "grad_k.to(grad_k_ptr.dtype.element_ty), mask=col_mask[None, :]",
        line="tl.store(grad_k_ptrs, grad_k",
    ),
    bug(
        "grad_v not stored for the last key",
        "test_triton_values",
        "grad_v.to(grad_v_ptr.dtype.element_ty), mask=k_mask → "
        "grad_v.to(grad_v_ptr.dtype.element_ty), mask=k_mask & (keys < n_keys - 1)[:, None]",
        line="never stored",
    ),
    bug(
        "D one element too small",
        "test_triton_values",
        "delta = torch.empty((n_batches, n_queries), dtype → "
        "delta = torch.empty(max(n_batches * n_queries - 1, 0), dtype",
        "delta.stride(0), delta.stride(1),\n            n_queries → n_queries, 1,\n            n_queries",
        "delta.stride(0), delta.stride(1),\n            grad_q → n_queries, 1,\n            grad_q",
        line="delta_ptrs",
    ),
    bug(
        "lse stored back where it was read",
        "test_triton_values",
        "        delta_ptrs = →         tl.store(lse_ptrs, lse, mask=query_mask)\n        delta_ptrs =",
        line="tl.store(lse_ptrs, lse",
    ),
    bug(
        "the first key tile stores dQ, the others add atomically",
        "test_triton_values",
        "        tl.atomic_add(grad_q_ptrs, grad_q, mask=q_mask) →         if first_key == 0:\n"
        "            tl.store(grad_q_ptrs, grad_q, mask=q_mask)\n        else:\n"
        "            tl.atomic_add(grad_q_ptrs, grad_q, mask=q_mask)",
        line="tl.store(grad_q_ptrs, grad_q",
    ),
    bug(
        "zeros added atomically to q",
        "test_triton_values",
        "tl.atomic_add(grad_q_ptrs, grad_q, mask=q_mask) → tl.atomic_add(grad_q_ptrs, grad_q, mask=q_mask)\n"
        "        tl.atomic_add(q_ptrs, tl.zeros_like(q), mask=q_mask)",
        line="tl.atomic_add(q_ptrs",
    ),
)

BUGS = (*LOADS, *STORES)
