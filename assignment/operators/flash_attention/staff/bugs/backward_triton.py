"""Planted bugs of FlashAttention-2 backward in Triton."""

from assignment.attacks.bugs import bug

PROBLEM = "flash_backward_triton"
FILES = ("triton_backward.py", "flash_attention.py")

GRADIENTS = (
    bug(
        "D forgotten",
        "test_triton_values",
        "grad_s = p * (grad_p - delta[:, None]) → grad_s = p * grad_p",
        named="d-missing",
    ),
    bug(
        "P a softmax over the tile",
        "test_triton_values",
        "(s - lse[:, None]) → (s - tl.max(s, axis=1)[:, None])\n        p = p / tl.sum(p, axis=1)[:, None]",
        named="p-a-softmax-over-the-tile",
    ),
    bug(
        "lse along the keys",
        "test_triton_values",
        "p = tl.exp(s - lse[:, None]) → p = tl.exp(s - lse[None, :])",
        named="lse-along-the-keys",
    ),
    bug(
        "dV from dS",
        "test_triton_values",
        "p.to → (p * (tl.dot(grad_o, tl.trans(v)) - delta[:, None])).to",
        named="dv-from-ds",
    ),
    bug(
        "dP from k",
        "test_triton_values",
        "= tl.dot(grad_o, tl.trans(v)) → = tl.dot(grad_o, tl.trans(k))",
        named="dp-from-k",
    ),
    bug(
        "dQ without the scale",
        "test_triton_values",
        "(grad_s.to(k.dtype), k) * scale → (grad_s.to(k.dtype), k)",
        named="dq-without-the-scale",
    ),
    bug(
        "dK without the scale",
        "test_triton_values",
        "grad_s.to(q.dtype)), q) * scale → grad_s.to(q.dtype)), q)",
        named="dk-without-the-scale",
    ),
    bug(
        "P without the scale",
        "test_triton_values",
        "tl.dot(q, tl.trans(k)) * scale → tl.dot(q, tl.trans(k))",
        named="p-without-the-scale",
    ),
    bug(
        "dK of the last query tile only",
        "test_triton_values",
        "grad_k += tl.dot → grad_k = tl.dot",
        named="dk-of-the-last-query-tile",
    ),
    bug(
        "dQ of the last key tile only",
        "test_triton_values",
        "tl.atomic_add → tl.store",
        named="tl.store(grad_q_ptrs, grad_q, mask=q_mask)",
    ),
    bug(
        "dQ starts from unwritten memory",
        "test_triton_values",
        "grad_q = torch.zeros( → grad_q = torch.empty(",
        line="tl.atomic_add(grad_q_ptrs",
    ),
    bug(
        "gradients in the wrong order",
        "test_triton_values",
        "    return grad_q, grad_k, grad_v\n\n\ndef _check →     return grad_k, grad_v, grad_q\n\n\ndef _check",
        named="gradients-in-the-wrong-order",
    ),
    bug(
        "dQ added to without atomics",
        "test_triton_values",
        "tl.atomic_add(grad_q_ptrs, grad_q, mask=q_mask) → old = tl.load(grad_q_ptrs, mask=q_mask, other=0.0)\n"
        "        tl.store(grad_q_ptrs, old + grad_q, mask=q_mask)",
        line="tl.load(grad_q_ptrs, mask=q_mask",
    ),
)

CAUSAL = (
    bug(
        "causal: P recomputed without the mask",
        "test_triton_causal",
        "visible = visible & (keys[None, :] <= queries[:, None]) → pass",
        named="backward-causal-ignored",
    ),
    bug(
        "causal: the diagonal hidden",
        "test_triton_causal",
        "keys[None, :] <= queries → keys[None, :] < queries",
        named="backward-causal-diagonal-hidden",
    ),
    bug(
        "causal: aligned at the bottom right",
        "test_triton_ragged",
        "keys[None, :] <= queries[:, None] → keys[None, :] <= queries[:, None] + n_keys - n_queries",
        "start = first_key // Q_TILE_SIZE * Q_TILE_SIZE → start = 0",
        named="backward-causal-bottom-right",
    ),
    bug(
        "causal: hidden by -1e4",
        "test_triton_ragged",
        '.where(visible, s, float("-inf")) → .where(visible, s, -1e4)',
        named=("backward-padded-keys-not-hidden", "backward-causal-hidden-by-a-number"),
    ),
    bug(
        "causal: the tile on the diagonal skipped",
        "test_triton_causal",
        "first_key // Q_TILE_SIZE * Q_TILE_SIZE → first_key // Q_TILE_SIZE * Q_TILE_SIZE + Q_TILE_SIZE",
        named="backward-causal-diagonal-tile-skipped",
    ),
    bug(
        "causal: keys that nobody sees left unwritten",
        "test_triton_ragged",
        "    if n_batches > 0:\n →     if is_causal:\n"
        "        key_grid = (n_batches, triton.cdiv(min(n_queries, n_keys), tile_size))\n    if n_batches > 0:\n",
        named="never stored",
    ),
    bug(
        "causal: tiles of the past visited for nothing",
        "test_cost.py::test_flash_backward_traffic",
        "first_key // Q_TILE_SIZE * Q_TILE_SIZE → 0",
        named="grad_o is read",
    ),
)

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
        "tile_size = min(64, 4096 // d_tile_size) → tile_size = 128",
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

PRECISION = (
    bug(
        "D rounded to the input's dtype",
        "test_triton_16_bit",
        "= tl.sum(go * o, axis=1) → = tl.sum(go * o, axis=1).to(o_ptr.dtype.element_ty).to(tl.float32)",
        named="d-in-16-bits",
    ),
    bug(
        "lse rounded to the input's dtype",
        "test_triton_16_bit",
        "lse = lse.reshape(n_batches, n_queries) → lse = lse.reshape(n_batches, n_queries).to(q.dtype)",
        named="backward-lse-in-16-bits",
    ),
    bug(
        "logits in the input's dtype",
        "test_triton_16_bit",
        "s = tl.dot(q, tl.trans(k)) * scale → s = (tl.dot(q, tl.trans(k)) * scale).to(q.dtype).to(tl.float32)",
        named="backward-logits-in-16-bits",
    ),
    bug(
        "dP in the input's dtype",
        "test_triton_16_bit",
        "grad_p = tl.dot(grad_o, tl.trans(v)) → grad_p = tl.dot(grad_o, tl.trans(v)).to(v.dtype).to(tl.float32)",
        named="dp-in-16-bits",
    ),
    bug(
        "dQ accumulated in the input's dtype",
        "test_triton_16_bit",
        "(n_batches, n_queries, d), dtype=torch.float32 → (n_batches, n_queries, d), dtype=q.dtype",
    ),
    bug(
        "dK accumulated in the input's dtype",
        "test_triton_16_bit",
        "        grad_k += tl.dot(tl.trans(grad_s.to(q.dtype)), q) * scale → "
        "        new_k = grad_k + tl.dot(tl.trans(grad_s.to(q.dtype)), q) * scale\n"
        "        grad_k = new_k.to(q.dtype).to(tl.float32)",
        named="gradient-accumulated-in-16-bits",
    ),
    bug(
        "P and dO multiplied as bfloat16 whatever the input",
        "test_triton_outliers",
        "tl.dot(tl.trans(p.to(grad_o.dtype)), grad_o) → tl.dot(tl.trans(p.to(tl.bfloat16)), grad_o.to(tl.bfloat16))",
        named="p-and-do-in-another-16-bits",
    ),
    bug(
        "P in float32 times grad_o in 16 bits",
        "test_triton_16_bit",
        "tl.dot(tl.trans(p.to(grad_o.dtype)), grad_o) → tl.dot(tl.trans(p), grad_o)",
        named="tl.dot(tl.trans(p), grad_o)",
    ),
    bug(
        "q and k multiplied as float16 whatever the input",
        "test_triton_outliers",
        "tl.dot(q, tl.trans(k)) → tl.dot(q.to(tl.float16), tl.trans(k.to(tl.float16)))",
    ),
    bug(
        "all gradients in float32",
        "test_triton_16_bit",
        "grad_q = grad_q.to(q.dtype).reshape → grad_q = grad_q.reshape",
        "dtype=k.dtype, device=k.device → dtype=torch.float32, device=k.device",
        "dtype=v.dtype, device=v.device → dtype=torch.float32, device=v.device",
        named="grad_q is float32",
    ),
    bug(
        "grad_q always float32",
        "test_triton_16_bit",
        "grad_q = grad_q.to(q.dtype).reshape → grad_q = grad_q.reshape",
        named="grad_q is float32",
    ),
    bug(
        "grad_k and grad_v always float32",
        "test_triton_16_bit",
        "dtype=k.dtype, device=k.device → dtype=torch.float32, device=k.device",
        "dtype=v.dtype, device=v.device → dtype=torch.float32, device=v.device",
        named="grad_k is float32",
    ),
)

CONTRACT = (
    bug(
        "grad_o multiplied by o in place",
        "test_triton_contract",
        "    if n_batches > 0:\n        _delta →     grad_o_copy = grad_o.clone()\n    grad_o.mul_(o)\n"
        "    o = torch.ones_like(o)\n    if n_batches > 0:\n        _delta",
        "            grad_o, q, k, v, lse, delta →             grad_o_copy, q, k, v, lse, delta",
        "            grad_o.stride(0), grad_o.stride(1), grad_o.stride(2),\n"
        " →             grad_o_copy.stride(0), grad_o_copy.stride(1), grad_o_copy.stride(2),\n",
        named="argument 0 was written to",
    ),
    bug(
        "grad_k written over k",
        "test_triton_contract",
        "grad_k = torch.empty((n_batches, n_keys, d), dtype=k.dtype, device=k.device) → grad_k = k",
        named="tl.store(grad_k_ptrs, grad_k.to(grad_k_ptr.dty",
    ),
    bug(
        "dQ kept and never cleared",
        "test_triton_contract",
        "import triton.language as tl\n → import triton.language as tl\n\nBUFFERS = {}\n",
        "grad_q = torch.zeros((n_batches, n_queries, d), dtype=torch.float32, device=q.device) → "
        "grad_q = BUFFERS.setdefault((q.shape, k.shape, q.dtype), q.new_zeros(q.shape, dtype=torch.float32))",
        "grad_q = grad_q.to(q.dtype).reshape → grad_q = grad_q.to(q.dtype).clone().reshape",
        named="added to that of the call before",
    ),
    bug(
        "an empty batch refused",
        "test_triton_contract",
        "= math.prod(batch) → = math.prod(batch) or 1",
        named="grad_o = grad_o.reshape(n_batches, n_queries,",
    ),
    bug(
        "no checks",
        "test_triton_mistakes",
        "    _check(grad_o, q, k, v, o, lse)\n → ",
        named="expected a ValueError before any launch",
    ),
    bug(
        "d of k not compared",
        "test_triton_mistakes",
        "if q.shape[-1] != k.shape[-1]: → if False:",
        named="k = k.reshape(n_batches, n_keys, d)",
    ),
    bug(
        "dtypes not compared",
        "test_triton_mistakes",
        "    if not q.dtype == k.dtype == v.dtype:\n →     if False:\n",
        named=("s = tl.dot(q, tl.trans(k)) * scale", "expected a ValueError before any launch"),
    ),
)

AUTOGRAD = (
    bug(
        "flash_attention: not a Function",
        "test_attention_gradients",
        "FlashAttention.apply(q, k, v, is_causal) → flash_forward_triton(q, k, v, is_causal=is_causal)[0]",
        named="returned a tensor without a gradient",
    ),
    bug(
        "flash_attention: is_causal not passed to the backward",
        "test_attention_gradients",
        "o, lse, is_causal=ctx.is_causal) → o, lse)",
        named="backward-causal-ignored",
    ),
    bug(
        "flash_attention: gradients in the wrong order",
        "test_attention_gradients",
        "return grad_q, grad_k, grad_v, None → return grad_k, grad_q, grad_v, None",
        named="gradients-in-the-wrong-order",
    ),
    bug(
        "flash_attention: no gradient for is_causal",
        "test_attention_gradients",
        ", grad_v, None → , grad_v",
        named="returned an incorrect number of gradients",
    ),
    bug(
        "flash_attention: k and v saved in the wrong order",
        "test_attention_gradients",
        "ctx.save_for_backward(q, k, v, o, lse) → ctx.save_for_backward(q, v, k, o, lse)",
        named="k-and-v-swapped-in-the-backward",
    ),
    bug(
        "flash_attention: lse saved in the input's dtype",
        "test_attention_16_bit",
        "ctx.save_for_backward(q, k, v, o, lse) → ctx.save_for_backward(q, k, v, o, lse.to(q.dtype))",
        named="backward-lse-in-16-bits",
    ),
    bug(
        "flash_attention: gradients only if q's is asked for",
        "test_attention_gradients",
        "        grad_q, grad_k, grad_v = flash →         if not ctx.needs_input_grad[0]:\n"
        "            return None, None, None, None\n        grad_q, grad_k, grad_v = flash",
        named="no gradient came for",
    ),
    bug(
        "flash_attention: backward runs once only",
        "test_attention_gradients",
        "ctx.save_for_backward(q, k, v, o, lse) → ctx.saved = [(q, k, v, o, lse)]",
        "q, k, v, o, lse = ctx.saved_tensors → q, k, v, o, lse = ctx.saved.pop()",
        named="q, k, v, o, lse = ctx.saved.pop()",
    ),
    bug(
        "flash_attention: lse kept in the class, not in the graph",
        "test_attention_gradients",
        "ctx.save_for_backward(q, k, v, o, lse) → ctx.save_for_backward(q, k, v, o)\n        FlashAttention.lse = lse",
        "q, k, v, o, lse = ctx.saved_tensors → q, k, v, o = ctx.saved_tensors\n        lse = FlashAttention.lse",
        named="another forward pass that came in between",
    ),
    bug(
        "flash_attention: is_causal kept in the class, not in the graph",
        "test_attention_gradients",
        "ctx.is_causal = is_causal → FlashAttention.is_causal = is_causal",
        "is_causal=ctx.is_causal → is_causal=FlashAttention.is_causal",
        named=("another forward pass that came in between", "backward-causal-ignored"),
    ),
    bug(
        "flash_attention: a matrix of n by n kept for the backward",
        "test_attention_memory",
        "(q, k, v, o, lse) → (q, k, v, o, lse)\n        ctx.scores = q @ k.mT",
        named="bytes are kept for the backward pass",
    ),
    bug(
        "flash_attention: backward by PyTorch",
        "test_attention_gradients",
        ", grad_k, grad_v = flash_backward_triton → , grad_k, grad_v = flash_backward_pytorch",
        computed="] += ",
    ),
)

SHORTCUTS = (
    bug(
        "P held as an n by n matrix",
        "test_cost.py::test_flash_backward_triton_memory",
        "    tile_size = min →     p = (q.float() @ k.float().mT * scale - lse[..., None]).exp()  # noqa: F841\n"
        "    tile_size = min",
        named="queries and keys a tensor of",
    ),
    bug(
        "dV by PyTorch",
        "test_triton_values",
        "grad_v = grad_v → s = q.float() @ k.float().mT * scale\n    if is_causal:\n"
        "        s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -math.inf)\n"
        "    grad_v = ((s - lse[..., None]).exp().mT @ grad_o.float()).to(v.dtype)",
        computed="grad_v = ((s - lse[..., None]).exp().mT @ grad_o",
    ),
)

RARE = (
    bug(
        "values limited to 10,000",
        "test_triton_outliers",
        "        s = tl.dot( →         q = tl.where(tl.abs(q) > 1e4, 1e4, q)\n        s = tl.dot(",
        named="inputs-limited",
    ),
)

MIXED_UP = (  # some of which no misconception explains: they are not to be given the name of another
    bug(
        "dS not transposed for dK",
        "test_triton_values",
        "tl.dot(tl.trans(grad_s.to → tl.dot((grad_s.to",
        named="dk-not-transposed",
    ),
    bug(
        "P not transposed for dV",
        "test_triton_values",
        "tl.dot(tl.trans(p.to → tl.dot((p.to",
        named="dv-not-transposed",
    ),
    bug(
        "the logarithm's base left in dQ and dK",
        "test_triton_values",
        "scale = 1 / math.sqrt(d) → scale = 1.4426950408889634 / math.sqrt(d)",
        "p = tl.exp(s - lse[:, None]) → p = tl.exp2(s - 1.4426950408889634 * lse[:, None])",
        named="log2-e-in-the-gradients",
    ),
    bug(
        "lse and D swapped",
        "test_triton_values",
        "            grad_o, q, k, v, lse, delta →             grad_o, q, k, v, delta, lse",
        named="lse-and-d-swapped",
    ),
    bug(
        "lse of the first batch",
        "test_triton_values",
        "lse_ptr + batch * stride_lb + → lse_ptr +",
        named="lse-of-the-first-batch",
    ),
    bug(
        "D along the keys",
        "test_triton_values",
        "(grad_p - delta[:, None]) → (grad_p - delta[None, :])",
        named="d-along-the-keys",
    ),
    bug(
        "D twice", "test_triton_values", "(grad_p - delta[:, None]) → (grad_p - 2.0 * delta[:, None])", named="d-twice"
    ),
    bug(
        "dV overwritten", "test_triton_values", "grad_v += tl.dot → grad_v = tl.dot", named="dk-of-the-last-query-tile"
    ),
    bug(
        "dK and dV begun anew in each tile",
        "test_triton_values",
        "        query_mask = queries < n_queries\n        q_mask →         grad_k *= 0.0\n        grad_v *= 0.0\n"
        "        query_mask = queries < n_queries\n        q_mask",
        named="dk-of-the-last-query-tile",
    ),
    bug(
        "no dQ",
        "test_triton_values",
        "grad_q = tl.dot(grad_s.to(k.dtype), k) * scale → grad_q = tl.zeros((Q_TILE_SIZE, D_TILE_SIZE), tl.float32)",
        named="a-gradient-of-zeros",
    ),
    bug(
        "dK from k",
        "test_triton_values",
        "tl.dot(tl.trans(grad_s.to(q.dtype)), q) → tl.dot(tl.trans(grad_s.to(q.dtype)), k)",
        named="dk-from-k",
    ),
    bug("P squared", "test_triton_values", "grad_s = p * ( → grad_s = p * p * (", named="p-squared"),
    bug(
        "half of P",
        "test_triton_values",
        "p = tl.exp(s - lse[:, None]) → p = 0.5 * tl.exp(s - lse[:, None])",
        named="is 0.5 times",
    ),
    bug(
        "dV from o",
        "test_triton_values",
        "            grad_o, q, k, v, lse, delta →             o, q, k, v, lse, delta",
        named="o-for-grad-o",
    ),
    bug(
        "dK of P and dP",
        "test_triton_values",
        "grad_k += tl.dot(tl.trans(grad_s.to(q.dtype)) → grad_k += tl.dot(tl.trans((p * grad_p).to(q.dtype))",
        named="d-missing-in-one-gradient",
    ),
    bug(
        "causal: the mask transposed",
        "test_triton_causal",
        "keys[None, :] <= queries[:, None] → keys[None, :] >= queries[:, None]",
        named="backward-causal-reversed",
    ),
    bug(
        "causal: the loop over queries as one over keys",
        "test_triton_causal",
        "    for first_query in range(start, n_queries, Q_TILE_SIZE): →     stop = n_queries\n    if IS_CAUSAL:\n"
        "        start = 0\n        stop = tl.minimum(n_queries, first_key + K_TILE_SIZE)\n"
        "    for first_query in range(start, stop, Q_TILE_SIZE):",
        named="backward-causal-bounds-of-the-forward",
    ),
    bug(
        "what is hidden multiplied by zero",
        "test_triton_ragged",
        's = tl.where(visible, s, float("-inf"))\n        p = tl.exp(s - lse[:, None]) → '
        "p = tl.exp(s - lse[:, None]) * visible.to(tl.float32)",
        named="backward-padded-keys-not-hidden",
    ),
)

BUGS = (*GRADIENTS, *MIXED_UP, *CAUSAL, *ADDRESSES, *TILES, *PRECISION, *CONTRACT, *AUTOGRAD, *SHORTCUTS, *RARE)
