"""Planted bugs of FlashAttention-2 forward in Triton: the contract, and shortcuts."""

from assignment.bank.operators.edits import bug

PROBLEM = "flash_forward_triton"
FILES = ("triton_forward.py", "flash_attention.py")

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

BUGS = (*CONTRACT, *SHORTCUTS)
