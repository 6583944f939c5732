"""Planted bugs of FlashAttention-2 forward in Triton: masks, tails and tiles."""

from assignment.bank.operators.edits import bug

PROBLEM = "flash_forward_triton"
FILES = ("triton_forward.py", "flash_attention.py")

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
        "a capped grid, and no loop over batches",
        "test_triton_values",
        "grid = (n_batches, → grid = (min(n_batches, 132), ",
        named="never stored",
    ),
    bug(
        "keys past 1,024 unseen",
        "test_triton_values",
        "in range(0, end, K_TILE_SIZE) → in range(0, tl.minimum(end, 1024), K_TILE_SIZE)",
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
        named="a mask along that axis is missing",
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

BUGS = (*MASKS, *TILES)
