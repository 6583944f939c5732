"""Planted bugs of FlashAttention-2 backward in Triton: its precision, and what it has promised its callers."""

from assignment.bank.operators.edits import bug

PROBLEM = "flash_backward_triton"
FILES = ("triton_backward.py", "flash_attention.py")

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
        "test_flash_backward.py::test_triton_memory",
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

BUGS = (*PRECISION, *CONTRACT, *AUTOGRAD, *SHORTCUTS, *RARE)
