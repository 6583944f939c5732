"""Planted bugs of FlashAttention-2 forward in Triton that misuse memory: most return what they should."""

from assignment.bank.operators.edits import bug

PROBLEM = "flash_forward_triton"
FILES = ("triton_forward.py", "flash_attention.py")

LOADS = (
    bug(
        "k read past the last column",
        "test_triton_head_dimension",
        "k_mask = key_mask[:, None] & col_mask[None, :] → k_mask = key_mask[:, None]",
        line="k = tl.load(k_ptrs",
    ),
    bug(
        "one key tile too many, and v not masked",
        "test_triton_values",
        "(0, end, K_TILE_SIZE) → (0, end + K_TILE_SIZE, K_TILE_SIZE)",
        "tl.load(v_ptrs, mask=v_mask, other=0.0) → tl.load(v_ptrs)",
        line="v = tl.load(v_ptrs)",
    ),
    bug(
        "v read past the last key, and zeros put in its place",
        "test_triton_ragged",
        "v = tl.load(v_ptrs, mask=v_mask, other=0.0) → "
        "v = tl.load(v_ptrs, mask=col_mask[None, :], other=0.0)\n        v = tl.where(v_mask, v, 0.0)",
        line="v = tl.load(v_ptrs",
    ),
    bug(
        "k of the next batch",
        "test_triton_values",
        "k_ptr + batch * stride_kb → k_ptr + (batch + 1) * stride_kb",
        line="k = tl.load(k_ptrs",
    ),
    bug(
        "the queries of the tile before read and dropped",
        "test_triton_values",
        "    q = tl.load(q_ptrs, mask=q_mask, other=0.0)\n →     q = tl.load(q_ptrs, mask=q_mask, other=0.0)\n"
        "    before = tl.load(q_ptrs - Q_TILE_SIZE * stride_qn, mask=q_mask, other=0.0)\n"
        "    q = tl.where(queries[:, None] >= 0, q, before)\n",
        line="before = tl.load(q_ptrs",
    ),
    bug(
        "the accumulator starts from o's memory",
        "test_triton_values",
        "    acc = tl.zeros((Q_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)\n → "
        "    first_ptrs = o_ptr + batch * stride_ob + queries[:, None] * stride_on + cols[None, :] * stride_od\n"
        "    acc = tl.load(first_ptrs, mask=q_mask, other=0.0).to(tl.float32)\n",
        line="acc = tl.load(first_ptrs",
    ),
    bug(
        "the running maximum starts from lse's memory",
        "test_triton_values",
        'row_max = tl.full((Q_TILE_SIZE,), float("-inf"), dtype=tl.float32) → '
        "row_max = tl.load(lse_ptr + batch * stride_lb + queries * stride_ln, mask=query_mask, other=0.0)",
        line="row_max = tl.load(lse_ptr",
    ),
    bug(
        "keys through a descriptor that reaches past the last one",
        "test_triton_ragged",
        "\n\ndef flash_forward_triton → \n\ndef _workspace(size, alignment, stream):\n"
        '    return torch.empty(size, dtype=torch.int8, device="cuda" if torch.cuda.is_available() else "cpu")\n'
        "\n\ndef flash_forward_triton",
        "    if n_batches > 0:\n →     triton.set_allocator(_workspace)\n    if n_batches > 0:\n",
        "        k = tl.load(k_ptrs, mask=k_mask, other=0.0)\n →         if D_TILE_SIZE == 64:\n"
        "            first = k_ptr + batch * stride_kb\n"
        "            window = tl.make_tensor_descriptor(\n"
        "                first, [n_keys + K_TILE_SIZE, d], [stride_kn, 1], [K_TILE_SIZE, D_TILE_SIZE]\n"
        "            )\n"
        "            k = window.load([first_key, 0])\n"
        "        else:\n            k = tl.load(k_ptrs, mask=k_mask, other=0.0)\n",
        line="k = window.load(",
    ),
)

STORES = (
    bug(
        "lse stored one query too far",
        "test_triton_ragged",
        "tl.store(lse_ptrs, lse, mask=query_mask) → tl.store(lse_ptrs, lse, mask=queries <= n_queries)",
        line="tl.store(lse_ptrs, lse",
    ),
    bug(
        "o stored as if it had n_keys rows",
        "test_triton_ragged",
        "o_ptr + batch * stride_ob → o_ptr + batch * n_keys * stride_on",
        line="tl.store(o_ptrs, o",
    ),
    bug(
        "o stored for whole groups of sixteen queries",
        "test_triton_ragged",
        "o_mask = query_mask[:, None] & → o_mask = (queries < n_queries // 16 * 16)[:, None] &",
        line="never stored",
    ),
    bug(
        "q scaled in place by the kernel",
        "test_triton_contract",
        "    q = tl.load(q_ptrs, mask=q_mask, other=0.0)\n →     q = tl.load(q_ptrs, mask=q_mask, other=0.0)\n"
        "    q = (q * scale).to(q_ptr.dtype.element_ty)\n    tl.store(q_ptrs, q, mask=q_mask)\n",
        "tl.dot(q, tl.trans(k)) * scale → tl.dot(q, tl.trans(k))",
        line="tl.store(q_ptrs, q",
    ),
    bug(
        "one scratch row for the sums of all batches",
        "test_triton_values",
        "            q, k, v, o, lse,\n → "
        "            q, k, v, o, lse, torch.empty(n_queries, dtype=torch.float32, device=q.device),\n",
        "o_ptr, lse_ptr,\n → o_ptr, lse_ptr, sums_ptr,\n",
        "    o = acc / row_sum[:, None]\n →     tl.store(sums_ptr + queries, row_sum, mask=query_mask)\n"
        "    row_sum = tl.load(sums_ptr + queries, mask=query_mask, other=1.0)\n    o = acc / row_sum[:, None]\n",
        line="tl.store(sums_ptr",
    ),
)

BUGS = (*LOADS, *STORES)
