"""Planted bugs of FlashAttention-2 backward in Triton: what it computes."""

from assignment.bank.operators.edits import bug

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
        "a capped grid, and no loop over batches",
        "test_triton_values",
        "key_grid = (n_batches, → key_grid = (min(n_batches, 132), ",
        named="never stored",
    ),
    bug(
        "queries past 1,024 unseen",
        "test_triton_values",
        "in range(start, n_queries, Q_TILE_SIZE) → in range(start, tl.minimum(n_queries, 1024), Q_TILE_SIZE)",
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
        "K not transposed for S",
        "test_triton_values",
        "s = tl.dot(q, tl.trans(k)) → s = tl.dot(q, k)",
        named=("k-not-transposed-in-the-backward", "is a tl.trans missing?"),
    ),
    bug(
        "V not transposed for dP",
        "test_triton_values",
        "grad_p = tl.dot(grad_o, tl.trans(v)) → grad_p = tl.dot(grad_o, v)",
        named=("v-not-transposed", "is a tl.trans missing?"),
    ),
    bug(
        "causal: each tile of the mask transposed",
        "test_triton_causal",
        "keys[None, :] <= queries[:, None] → keys[:, None] <= queries[None, :]",
        named="backward-causal-mask-transposed",
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
        "test_flash_backward.py::test_triton_traffic",
        "first_key // Q_TILE_SIZE * Q_TILE_SIZE → 0",
        named="grad_o is read",
    ),
)

BUGS = (*GRADIENTS, *MIXED_UP, *CAUSAL)
