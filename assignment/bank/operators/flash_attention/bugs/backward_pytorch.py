"""Planted bugs of FlashAttention-2 backward in PyTorch."""

from assignment.bank.operators.edits import bug

PROBLEM = "flash_backward_pytorch"
FILES = ("pytorch_backward.py",)

GRADIENTS = (
    bug("D forgotten", "test_pytorch_values", "(grad_p - delta_tile) → grad_p", named="d-missing"),
    bug(
        "D from o alone",
        "test_pytorch_values",
        "(grad_o.float() * o.float()) → (o.float() * o.float())",
        named="d-from-the-wrong-tensors",
    ),
    bug(
        "P a softmax over the tile",
        "test_pytorch_values",
        "torch.exp(s - lse_tile) → torch.softmax(s, dim=-1)",
        named="p-a-softmax-over-the-tile",
    ),
    bug(
        "lse along the keys",
        "test_pytorch_values",
        "lse_tile = lse[:, first_query:end_query, None] → lse_tile = lse[:, None, first_query:end_query]",
        named="lse-along-the-keys",
    ),
    bug("dP from k", "test_pytorch_values", "grad_o_tile @ v_tile.mT → grad_o_tile @ k_tile.mT", named="dp-from-k"),
    bug(
        "dQ without the scale",
        "test_pytorch_values",
        "grad_s @ k_tile * scale → grad_s @ k_tile",
        named="dq-without-the-scale",
    ),
    bug(
        "dK without the scale",
        "test_pytorch_values",
        "grad_s.mT @ q_tile * scale → grad_s.mT @ q_tile",
        named="dk-without-the-scale",
    ),
    bug(
        "P without the scale",
        "test_pytorch_values",
        "q_tile @ k_tile.mT * scale → q_tile @ k_tile.mT",
        named="p-without-the-scale",
    ),
    bug(
        "dQ of the last key tile only",
        "test_pytorch_values",
        "grad_q[:, first_query:end_query] += → grad_q[:, first_query:end_query] =",
        named="dq-of-the-last-key-tile",
    ),
    bug(
        "dQ starts from unwritten memory",
        "test_pytorch_values",
        "grad_q = torch.zeros( → grad_q = torch.empty(",
        named="never stored",
    ),
    bug(
        "gradients in the wrong order",
        "test_pytorch_values",
        "return grad_q, grad_k, → return grad_k, grad_q,",
        named="gradients-in-the-wrong-order",
    ),
)

TILES = (
    bug(
        "causal: P recomputed without the mask",
        "test_pytorch_causal",
        "s = s.masked_fill(hidden, -math.inf) → pass",
        named="backward-causal-ignored",
    ),
    bug(
        "causal: the diagonal hidden",
        "test_pytorch_causal",
        "keys[None, :] > queries → keys[None, :] >= queries",
        named="backward-causal-diagonal-hidden",
    ),
    bug(
        "causal: aligned at the bottom right",
        "test_pytorch_ragged",
        "keys[None, :] > queries[:, None] → keys[None, :] > queries[:, None] + n_keys - n_queries",
        " if is_causal else 0 →  if False else 0",
        named="backward-causal-bottom-right",
    ),
    bug(
        "causal: hidden by -1e4",
        "test_pytorch_ragged",
        "(hidden, -math.inf) → (hidden, -1e4)",
        named="backward-causal-hidden-by-a-number",
    ),
    bug(
        "causal: the tile on the diagonal skipped",
        "test_pytorch_causal",
        "first_key // Q_TILE_SIZE * Q_TILE_SIZE if → first_key // Q_TILE_SIZE * Q_TILE_SIZE + Q_TILE_SIZE if",
        named="backward-causal-diagonal-tile-skipped",
    ),
    bug(
        "only whole key tiles",
        "test_pytorch_ragged",
        "0, n_keys, → 0, n_keys - K_TILE_SIZE + 1,",
        named="backward-only-whole-key-tiles",
    ),
    bug(
        "as many keys as queries",
        "test_pytorch_ragged",
        "n_keys = k.shape[-2] → n_keys = q.shape[-2]",
        named="k = k.reshape(n_batches, n_keys, d)",
    ),
    bug(
        "at least one batch dimension",
        "test_pytorch_ragged",
        "q.reshape(n_batches, n_queries, d) → q.flatten(0, -3)",
        named="q = q.flatten(0, -3)",
    ),
    bug(
        "the keys' batch dimensions in the wrong order",
        "test_pytorch_ragged",
        "k = k.reshape → k = (k.transpose(0, -3) if k.ndim > 3 else k).reshape",
        named="k's batch dimensions are in another order",
    ),
    bug(
        "grad_o flattened with view",
        "test_pytorch_strides",
        "grad_o = grad_o.reshape → grad_o = grad_o.view",
        named="grad_o = grad_o.view(n_batches, n_queries, d)",
    ),
    bug(
        "grad_o read with o's strides",
        "test_pytorch_strides",
        "    o = o.reshape(n_batches, n_queries, d)\n →     o = o.reshape(n_batches, n_queries, d)\n"
        "    grad_o = torch.as_strided(grad_o, o.shape, o.stride())\n",
        named=("grad_o is read as if it were contiguous", "grad_o = torch.as_strided("),
    ),
)

PRECISION = (
    bug(
        "D in the input's dtype",
        "test_pytorch_16_bit",
        "(grad_o.float() * o.float()).sum(dim=-1) → (grad_o * o).sum(dim=-1).float()",
        named="d-in-16-bits",
    ),
    bug(
        "lse rounded to the input's dtype",
        "test_pytorch_16_bit",
        "lse = lse.reshape(n_batches, n_queries) → lse = lse.reshape(n_batches, n_queries).to(q.dtype).float()",
        named="backward-lse-in-16-bits",
    ),
    bug(
        "logits in the input's dtype",
        "test_pytorch_16_bit",
        "s = q_tile @ k_tile.mT * scale → s = (q_tile @ k_tile.mT * scale).to(q.dtype).float()",
        named="backward-logits-in-16-bits",
    ),
    bug(
        "dP in the input's dtype",
        "test_pytorch_16_bit",
        "grad_p = grad_o_tile @ v_tile.mT → grad_p = (grad_o_tile @ v_tile.mT).to(q.dtype).float()",
        named="dp-in-16-bits",
    ),
    bug(
        "dQ accumulated in the input's dtype",
        "test_pytorch_16_bit",
        "(n_batches, n_queries, d), dtype=torch.float32 → (n_batches, n_queries, d), dtype=q.dtype",
        named="gradient-accumulated-in-16-bits",
    ),
    bug(
        "P and dO multiplied as float16",
        "test_pytorch_values",
        "p.mT @ grad_o_tile → (p.mT.half().float() @ grad_o_tile.half().float())",
        named="p-and-do-in-another-16-bits",
    ),
    bug(
        "gradients always float32",
        "test_pytorch_16_bit",
        "(*batch, n_keys, d).to(k.dtype) → (*batch, n_keys, d)",
        named="grad_k is float32",
    ),
)

CONTRACT = (
    bug(
        "grad_o multiplied in place where it is float32 already",
        "test_pytorch_contract",
        "(grad_o.float() * o.float()).sum(dim=-1) → grad_o.float().mul_(o).sum(dim=-1)",
        "    delta =  →     grad_o_copy = grad_o.clone()\n    delta = ",
        "grad_o[:, first_query:end_query].float() → grad_o_copy[:, first_query:end_query].float()",
        named="argument 0 was written to",
    ),
    bug(
        "lse shifted in place",
        "test_pytorch_contract",
        "    delta =  →     lse.sub_(1)\n    delta = ",
        "p = torch.exp(s - lse_tile) → p = torch.exp(s - lse_tile - 1)",
        named="argument 5 was written to",
    ),
    bug(
        "dQ kept and never cleared",
        "test_pytorch_contract",
        "K_TILE_SIZE = 64\n → K_TILE_SIZE = 64\nBUFFERS = {}\n",
        "grad_q = torch.zeros((n_batches, n_queries, d), dtype=torch.float32, device=q.device) → "
        "grad_q = BUFFERS.setdefault((q.shape, k.shape), torch.zeros(q.shape))",
        named="the second call returned the memory of the fir",
    ),
    bug(
        "an empty batch refused",
        "test_pytorch_contract",
        "= math.prod(batch) → = math.prod(batch) or 1",
        named="grad_o = grad_o.reshape(n_batches, n_queries,",
    ),
    bug(
        "no checks",
        "test_pytorch_mistakes",
        "    _check(grad_o, q, k, v, o, lse)\n → ",
        named="expected a ValueError before any launch",
    ),
    bug(
        "batch of v not compared",
        "test_pytorch_mistakes",
        "if q.shape[:-2] != v.shape[:-2]: → if False:",
        named="v = v.reshape(n_batches, n_keys, d)",
    ),
    bug(
        "dtypes not compared",
        "test_pytorch_mistakes",
        "if not q.dtype == k.dtype == v.dtype:\n → if False:\n",
        named="expected a ValueError before any launch, but i",
    ),
)

UNSEEN = ()

RARE = (
    bug(
        "values limited to 10,000",
        "test_pytorch_outliers",
        "            q_tile = q[:, first_query:end_query].float() → "
        "            q_tile = q[:, first_query:end_query].float().clamp(-1e4, 1e4)",
        named="inputs-limited",
    ),
)

BUGS = (*GRADIENTS, *TILES, *PRECISION, *CONTRACT, *UNSEEN, *RARE)
