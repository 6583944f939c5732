"""Planted bugs of FlashAttention-2 forward in Triton: where it reads and writes."""

from assignment.attacks.bugs import bug

PROBLEM = "flash_forward_triton"
FILES = ("triton_forward.py", "flash_attention.py")

STRIDES = (
    bug(
        "q's last stride taken to be 1",
        "test_triton_strides",
        "cols[None, :] * stride_qd → cols[None, :]",
        named="q is read as if its last stride were 1",
    ),
    bug(
        "k's last stride taken to be 1",
        "test_triton_strides",
        "cols[None, :] * stride_kd → cols[None, :]",
        named="k is read as if its last stride were 1",
    ),
    bug(
        "v's last stride taken to be 1",
        "test_triton_strides",
        "cols[None, :] * stride_vd → cols[None, :]",
        named="v is read as if its last stride were 1",
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
        named="stored with an input's strides",
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

MASKS = (
    bug(
        "keys past the end unmasked",
        "test_triton_ragged",
        "= key_mask[None, :]\n → = (keys >= 0)[None, :]\n",
        named="padded-keys-counted",
    ),
    bug(
        "one key past the end seen",
        "test_triton_ragged",
        "key_mask = keys < n_keys → key_mask = keys <= n_keys",
        named="k = tl.load(k_ptrs, mask=k_mask, other=0.0)",
    ),
    bug(
        "the last key hidden",
        "test_triton_values",
        "key_mask = keys < n_keys → key_mask = keys < n_keys - 1",
        named="last-key-hidden",
    ),
    bug(
        "keys bounded by n_queries",
        "test_triton_ragged",
        "key_mask = keys < n_keys → key_mask = keys < n_queries",
        named=("k = tl.load(k_ptrs, mask=k_mask, other=0.0)", "n-queries-for-n-keys"),
    ),
    bug(
        "columns past the end of q and k unmasked",
        "test_triton_head_dimension",
        "k_mask = key_mask[:, None] & col_mask[None, :] → k_mask = key_mask[:, None]",
        "q_mask = query_mask[:, None] & col_mask[None, :] → q_mask = query_mask[:, None]",
        named=("k = tl.load(k_ptrs, mask=k_mask, other=0.0)", "q = tl.load(q_ptrs, mask=q_mask"),
    ),
    bug(
        "v read past the last key",
        "test_triton_ragged",
        "v_mask = key_mask[:, None] & col_mask → v_mask = col_mask",
        named="v = tl.load(v_ptrs, mask=v_mask, other=0.0)",
    ),
    bug(
        "o stored past the last query",
        "test_triton_ragged",
        "o_mask = query_mask[:, None] & → o_mask =",
        named="tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty),",
    ),
    bug(
        "o stored past the last column",
        "test_triton_head_dimension",
        "o_mask = query_mask[:, None] & col_mask[None, :] → o_mask = query_mask[:, None]",
        named="tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty),",
    ),
    bug(
        "lse stored past the last query",
        "test_triton_ragged",
        "(lse_ptrs, lse, mask=query_mask) → (lse_ptrs, lse)",
        named="tl.store(lse_ptrs, lse)",
    ),
    bug(
        "no bounds at all",
        "test_triton_ragged",
        "query_mask = queries < n_queries → query_mask = queries >= 0",
        "key_mask = keys < n_keys → key_mask = keys >= 0",
        "col_mask = cols < d → col_mask = cols >= 0",
        named=("q = tl.load(q_ptrs, mask=q_mask, other=0.0)", "k = tl.load(k_ptrs", "tl.store(o_ptrs"),
    ),
    bug(
        "tiles of 128 without a tail",
        "test_triton_ragged",
        "tile_size = min(64, 4096 // d_tile_size) → tile_size = 128",
        "query_mask = queries < n_queries → query_mask = queries >= 0",
        "key_mask = keys < n_keys → key_mask = keys >= 0",
        named="q = tl.load(q_ptrs, mask=q_mask, other=0.0)",
    ),
    bug(
        "q read past the last query",
        "test_triton_ragged",
        "q_mask = query_mask[:, None] & → q_mask =",
        line="q = tl.load(q_ptrs",
    ),
    bug(
        "k read past the last key",
        "test_triton_ragged",
        "k_mask = key_mask[:, None] & col_mask → k_mask = col_mask",
        line="k = tl.load(k_ptrs",
    ),
)

TILES = (
    bug(
        "query grid rounded down",
        "test_triton_ragged",
        "triton.cdiv(n_queries, tile_size) → n_queries // tile_size",
        named="never stored",
    ),
    bug(
        "grid axes swapped in the launch",
        "test_triton_values",
        "grid = (n_batches, triton.cdiv(n_queries, tile_size)) → grid = (triton.cdiv(n_queries, tile_size), n_batches)",
        named=("never stored", "tl.load("),
    ),
    bug(
        "grid axes swapped in the kernel",
        "test_triton_values",
        "batch = tl.program_id(0).to(tl.int64) → batch = tl.program_id(1).to(tl.int64)",
        "first_query = tl.program_id(1) * → first_query = tl.program_id(0) *",
        named=("never stored", "tl.load("),
    ),
    bug(
        "only whole key tiles",
        "test_triton_ragged",
        "end, K_TILE_SIZE → end - K_TILE_SIZE + 1, K_TILE_SIZE",
        named="only-whole-key-tiles",
    ),
    bug(
        "the first key tile only",
        "test_triton_values",
        "(0, end, K_TILE_SIZE) → (0, K_TILE_SIZE, K_TILE_SIZE)",
        named="first-key-tile-only",
    ),
    bug(
        "as many keys as queries",
        "test_triton_ragged",
        "n_keys = k.shape[-2] → n_keys = q.shape[-2]",
        "    k = k.reshape(n_batches, n_keys, d)\n →     k = k.reshape(n_batches, k.shape[-2], d)\n",
        "    v = v.reshape(n_batches, n_keys, d)\n →     v = v.reshape(n_batches, v.shape[-2], d)\n",
        named=("k = tl.load(k_ptrs, mask=k_mask, other=0.0)", "n-queries-for-n-keys"),
    ),
    bug(
        "d must be a power of two",
        "test_triton_head_dimension",
        "max(16, triton.next_power_of_2(d)) → max(16, d)",
        named="cols = tl.arange(0, D_TILE_SIZE)",
    ),
    bug(
        "d below 16 left to tl.dot",
        "test_triton_head_dimension",
        "max(16, triton.next_power_of_2(d)) → triton.next_power_of_2(d)",
        named="s = tl.dot(q, tl.trans(k)) * scale",
    ),
    bug("d of at most 64", "test_triton_values", "max(16, triton.next_power_of_2(d)) → 64", named="never stored"),
    bug(
        "lengths must be multiples of a tile",
        "test_triton_ragged",
        "    _check(q, k, v)\n →     _check(q, k, v)\n    assert q.shape[-2] % 32 == 0 and k.shape[-2] % 32 == 0\n",
        named="assert q.shape[-2] % 32 == 0 and k.shape[-2] %",
    ),
    bug(
        "a single batch dimension only",
        "test_triton_values",
        "batch = q.shape[:-2] → batch = q.shape[:1]",
        named="q = q.reshape(n_batches, n_queries, d)",
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
    bug(
        "every tile computed by two programs",
        "test_flash_forward.py::test_triton_traffic",
        "(n_queries, tile_size) → (n_queries, tile_size), 2",
        named="same value stored",
    ),
)

CONTRACT = (
    bug(
        "o made on the CPU",
        "test_triton_values",
        "dtype=q.dtype, device=q.device) → dtype=q.dtype)",
        computed="_forward_kernel[grid](",
    ),
    bug(
        "q scaled in place",
        "test_triton_contract",
        "    k = k.reshape(n_batches, n_keys, d)\n →     q.mul_(scale)\n    k = k.reshape(n_batches, n_keys, d)\n",
        "tl.dot(q, tl.trans(k)) * scale → tl.dot(q, tl.trans(k))",
        named="argument 0 was written to",
    ),
    bug(
        "o written over q",
        "test_triton_contract",
        "o = torch.empty((n_batches, n_queries, d), dtype=q.dtype, device=q.device) → o = q",
        named="tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty),",
    ),
    bug(
        "o kept from call to call",
        "test_triton_contract",
        "import triton.language as tl\n → import triton.language as tl\n\nBUFFERS = {}\n",
        "o = torch.empty((n_batches, n_queries, d), dtype=q.dtype, device=q.device) → "
        "o = BUFFERS.setdefault((q.shape, q.dtype), q.new_empty(q.shape))",
        named="the second call returned the memory of the fir",
    ),
    bug(
        "an earlier result looked up by address",
        "test_triton_contract",
        "import triton.language as tl\n → import triton.language as tl\n\nRESULTS = {}\n",
        "    _check(q, k, v)\n →     _check(q, k, v)\n"
        "    key = q.data_ptr(), k.data_ptr(), v.data_ptr(), q.shape, k.shape, is_causal\n    if key in RESULTS:\n"
        "        return tuple(x.clone() for x in RESULTS[key])\n",
        "    return o.reshape(*batch, n_queries, d), lse.reshape(*batch, n_queries) → "
        "    RESULTS[key] = o.reshape(*batch, n_queries, d), lse.reshape(*batch, n_queries)\n"
        "    return tuple(x.clone() for x in RESULTS[key])",
        named="right for the inputs of another call",
    ),
    bug(
        "an empty batch refused",
        "test_triton_contract",
        "= math.prod(batch) → = math.prod(batch) or 1",
        named="q = q.reshape(n_batches, n_queries, d)",
    ),
    bug(
        "no checks", "test_triton_mistakes", "    _check(q, k, v)\n → ", named="expected a ValueError before any launch"
    ),
    bug(
        "only the first batch dimension compared",
        "test_triton_mistakes",
        "[:-2] != k.shape[:-2] → [:1] != k.shape[:1]",
        "[:-2] != v.shape[:-2] → [:1] != v.shape[:1]",
        named="k = k.reshape(n_batches, n_keys, d)",
    ),
    bug(
        "lengths of k and v not compared",
        "test_triton_mistakes",
        "if k.shape[-2] != v.shape[-2]: → if False:",
        named="v = v.reshape(n_batches, n_keys, d)",
    ),
    bug(
        "dtypes not compared",
        "test_triton_mistakes",
        "    if not q.dtype == k.dtype == v.dtype:\n →     if False:\n",
        named="s = tl.dot(q, tl.trans(k)) * scale",
    ),
    bug(
        "assert instead of ValueError",
        "test_triton_mistakes",
        "    if k.shape[-2] != v.shape[-2]:\n →     assert k.shape[-2] == v.shape[-2]\n    if False:\n",
        named="assert k.shape[-2] == v.shape[-2]",
    ),
    bug(
        "n_queries and n_keys must be equal",
        "test_triton_ragged",
        "if k.shape[-2] != v.shape[-2]: → if not q.shape[-2] == k.shape[-2] == v.shape[-2]:",
        named='raise ValueError(f"expected k and v of one len',
    ),
)

SHORTCUTS = (
    bug(
        "PyTorch's attention in place of a kernel",
        "test_triton_values",
        "(q, k, v)\n → (q, k, v)\n    s = q.float() @ k.float().mT / math.sqrt(q.shape[-1])\n    if is_causal:\n"
        "        s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -math.inf)\n"
        "    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)\n"
        "    return o, s.logsumexp(-1)\n",
        computed="scaled_dot_product_attention(",
    ),
    bug(
        "PyTorch's attention behind a kernel",
        "test_triton_values",
        "return o. → o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)\n    return o.",
        computed="scaled_dot_product_attention(",
    ),
    bug(
        "lse by PyTorch",
        "test_triton_values",
        "return o. → s = q.float() @ k.float().mT * scale\n    if is_causal:\n"
        "        s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -math.inf)\n"
        "    lse = s.logsumexp(-1)\n    return o.",
        computed="s.logsumexp(-1)",
    ),
    bug(
        "causal: tiles of the future visited for nothing",
        "test_flash_forward.py::test_triton_traffic",
        "end = tl.minimum(n_keys, first_query + Q_TILE_SIZE) → end = n_keys",
        named="k is read",
    ),
    bug(
        "a launch for every batch",
        "test_flash_forward.py::test_triton_traffic",
        "    _check(q, k, v)\n →     _check(q, k, v)\n    if q.ndim > 2 and len(q) > 0:\n"
        "        parts = [flash_forward_triton(*x, is_causal=is_causal) for x in zip(q, k, v, strict=True)]\n"
        "        return tuple(torch.stack(x) for x in zip(*parts, strict=True))\n",
        named="o is written",
    ),
    bug(
        "q read again for every key tile",
        "test_flash_forward.py::test_triton_traffic",
        "s = tl.dot → q = tl.load(q_ptrs, mask=q_mask, other=0.0)\n        s = tl.dot",
        named="q is read",
    ),
    bug(
        "inputs copied to float32 first",
        "test_flash_forward.py::test_triton_traffic",
        "    k = k.reshape(n_batches, n_keys, d)\n →     dtype = q.dtype\n    q, v = q.float(), v.float()\n"
        "    k = k.reshape(n_batches, n_keys, d).float()\n",
        "o = torch.empty((n_batches, n_queries, d), dtype=q.dtype → "
        "o = torch.empty((n_batches, n_queries, d), dtype=dtype",
        named="q is read",
    ),
)

BUGS = (*STRIDES, *MASKS, *TILES, *CONTRACT, *SHORTCUTS)
