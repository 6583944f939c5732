"""Planted bugs of FlashAttention-2 backward in PyTorch."""

from assignment.attacks.bugs import bug

PROBLEM = "flash_backward_pytorch"
FILES = ("pytorch_backward.py",)

GRADIENTS = (
    bug("D forgotten", "test_pytorch_values", "(grad_p - delta_tile) → grad_p"),
    bug("D from o alone", "test_pytorch_values", "(grad_o.float() * o.float()) → (o.float() * o.float())"),
    bug("P a softmax over the tile", "test_pytorch_values", "torch.exp(s - lse_tile) → torch.softmax(s, dim=-1)"),
    bug(
        "lse along the keys",
        "test_pytorch_values",
        "lse_tile = lse[:, first_query:end_query, None] → lse_tile = lse[:, None, first_query:end_query]",
    ),
    bug("dP from k", "test_pytorch_values", "grad_o_tile @ v_tile.mT → grad_o_tile @ k_tile.mT"),
    bug("dQ without the scale", "test_pytorch_values", "grad_s @ k_tile * scale → grad_s @ k_tile"),
    bug("dK without the scale", "test_pytorch_values", "grad_s.mT @ q_tile * scale → grad_s.mT @ q_tile"),
    bug("P without the scale", "test_pytorch_values", "q_tile @ k_tile.mT * scale → q_tile @ k_tile.mT"),
    bug(
        "dQ of the last key tile only",
        "test_pytorch_values",
        "grad_q[:, first_query:end_query] += → grad_q[:, first_query:end_query] =",
    ),
    bug("dQ starts from unwritten memory", "test_pytorch_values", "grad_q = torch.zeros( → grad_q = torch.empty("),
    bug("gradients in the wrong order", "test_pytorch_values", "return grad_q, grad_k, → return grad_k, grad_q,"),
)

TILES = (
    bug("causal: P recomputed without the mask", "test_pytorch_causal", "s = s.masked_fill(hidden, -math.inf) → pass"),
    bug("causal: the diagonal hidden", "test_pytorch_causal", "keys[None, :] > queries → keys[None, :] >= queries"),
    bug(
        "causal: aligned at the bottom right",
        "test_pytorch_ragged",
        "keys[None, :] > queries[:, None] → keys[None, :] > queries[:, None] + n_keys - n_queries",
        " if is_causal else 0 →  if False else 0",
    ),
    bug("causal: hidden by -1e4", "test_pytorch_ragged", "(hidden, -math.inf) → (hidden, -1e4)"),
    bug(
        "causal: the tile on the diagonal skipped",
        "test_pytorch_causal",
        "first_key // Q_TILE_SIZE * Q_TILE_SIZE if → first_key // Q_TILE_SIZE * Q_TILE_SIZE + Q_TILE_SIZE if",
    ),
    bug("only whole key tiles", "test_pytorch_ragged", "0, n_keys, → 0, n_keys - K_TILE_SIZE + 1,"),
    bug("as many keys as queries", "test_pytorch_ragged", "n_keys = k.shape[-2] → n_keys = q.shape[-2]"),
    bug("at least one batch dimension", "test_pytorch_ragged", "q.reshape(n_batches, n_queries, d) → q.flatten(0, -3)"),
    bug(
        "the keys' batch dimensions in the wrong order",
        "test_pytorch_ragged",
        "k = k.reshape → k = (k.transpose(0, -3) if k.ndim > 3 else k).reshape",
    ),
    bug("grad_o flattened with view", "test_pytorch_strides", "grad_o = grad_o.reshape → grad_o = grad_o.view"),
    bug(
        "grad_o read with o's strides",
        "test_pytorch_strides",
        "    o = o.reshape(n_batches, n_queries, d)\n →     o = o.reshape(n_batches, n_queries, d)\n"
        "    grad_o = torch.as_strided(grad_o, o.shape, o.stride())\n",
    ),
)

PRECISION = (
    bug(
        "D in the input's dtype",
        "test_pytorch_16_bit",
        "(grad_o.float() * o.float()).sum(dim=-1) → (grad_o * o).sum(dim=-1).float()",
    ),
    bug(
        "lse rounded to the input's dtype",
        "test_pytorch_16_bit",
        "lse = lse.reshape(n_batches, n_queries) → lse = lse.reshape(n_batches, n_queries).to(q.dtype).float()",
    ),
    bug(
        "logits in the input's dtype",
        "test_pytorch_16_bit",
        "s = q_tile @ k_tile.mT * scale → s = (q_tile @ k_tile.mT * scale).to(q.dtype).float()",
    ),
    bug(
        "dP in the input's dtype",
        "test_pytorch_16_bit",
        "grad_p = grad_o_tile @ v_tile.mT → grad_p = (grad_o_tile @ v_tile.mT).to(q.dtype).float()",
    ),
    bug(
        "dQ accumulated in the input's dtype",
        "test_pytorch_16_bit",
        "(n_batches, n_queries, d), dtype=torch.float32 → (n_batches, n_queries, d), dtype=q.dtype",
    ),
    bug(
        "P and dO multiplied as float16",
        "test_pytorch_values",
        "p.mT @ grad_o_tile → (p.mT.half().float() @ grad_o_tile.half().float())",
    ),
    bug("gradients always float32", "test_pytorch_16_bit", "(*batch, n_keys, d).to(k.dtype) → (*batch, n_keys, d)"),
)

CONTRACT = (
    bug(
        "grad_o multiplied in place where it is float32 already",
        "test_pytorch_contract",
        "(grad_o.float() * o.float()).sum(dim=-1) → grad_o.float().mul_(o).sum(dim=-1)",
        "    delta =  →     grad_o_copy = grad_o.clone()\n    delta = ",
        "grad_o[:, first_query:end_query].float() → grad_o_copy[:, first_query:end_query].float()",
    ),
    bug(
        "lse shifted in place",
        "test_pytorch_contract",
        "    delta =  →     lse.sub_(1)\n    delta = ",
        "p = torch.exp(s - lse_tile) → p = torch.exp(s - lse_tile - 1)",
    ),
    bug(
        "dQ kept and never cleared",
        "test_pytorch_contract",
        "K_TILE_SIZE = 64\n → K_TILE_SIZE = 64\nBUFFERS = {}\n",
        "grad_q = torch.zeros((n_batches, n_queries, d), dtype=torch.float32, device=q.device) → "
        "grad_q = BUFFERS.setdefault((q.shape, k.shape), torch.zeros(q.shape))",
    ),
    bug("an empty batch refused", "test_pytorch_contract", "= math.prod(batch) → = math.prod(batch) or 1"),
    bug("no checks", "test_pytorch_mistakes", "    _check(grad_o, q, k, v, o, lse)\n → "),
    bug("batch of v not compared", "test_pytorch_mistakes", "if q.shape[:-2] != v.shape[:-2]: → if False:"),
    bug("dtypes not compared", "test_pytorch_mistakes", "if not q.dtype == k.dtype == v.dtype:\n → if False:\n"),
)

UNSEEN = ()

RARE = (
    bug(
        "values limited to 10,000",
        "test_pytorch_outliers",
        "            q_tile = q[:, first_query:end_query].float() → "
        "            q_tile = q[:, first_query:end_query].float().clamp(-1e4, 1e4)",
    ),
)

BUGS = (*GRADIENTS, *TILES, *PRECISION, *CONTRACT, *UNSEEN, *RARE)
