"""Planted bugs of FlashAttention-2 forward in PyTorch: the contract, and memory that grows with the scores."""

from assignment.bank.operators.edits import bug

PROBLEM = "flash_forward_pytorch"
FILES = ("pytorch_forward.py",)

CONTRACT = (
    bug(
        "q scaled in place where it is float32 already",
        "test_pytorch_contract",
        "q[:, first_query:end_query].float() → q[:, first_query:end_query].float().mul_(scale)",
        "k_tile.mT * scale → k_tile.mT",
        named="argument 0 was written to",
    ),
    bug(
        "o written over q",
        "test_pytorch_contract",
        "o = torch.empty((n_batches, n_queries, d), dtype=q.dtype, device=q.device) → o = q",
        named="argument 0 was written to",
    ),
    bug(
        "o kept from call to call",
        "test_pytorch_contract",
        "K_TILE_SIZE = 64\n → K_TILE_SIZE = 64\nBUFFERS = {}\n",
        "o = torch.empty((n_batches, n_queries, d), dtype=q.dtype, device=q.device) → "
        "o = BUFFERS.setdefault((q.shape, q.dtype), torch.empty_like(q))",
        named="the second call returned the memory of the fir",
    ),
    bug(
        "an empty batch refused",
        "test_pytorch_contract",
        "= math.prod(batch) → = math.prod(batch) or 1",
        named="q = q.reshape(n_batches, n_queries, d)",
    ),
    bug(
        "no checks",
        "test_pytorch_mistakes",
        "    _check(q, k, v)\n → ",
        named="expected a ValueError before any launch",
    ),
    bug(
        "d of v not compared",
        "test_pytorch_mistakes",
        "if q.shape[-1] != v.shape[-1]: → if False:",
        named="v = v.reshape(n_batches, n_keys, d)",
    ),
    bug(
        "dtypes not compared",
        "test_pytorch_mistakes",
        "if not q.dtype == k.dtype == v.dtype:\n → if False:\n",
        named="expected a ValueError before any launch, but i",
    ),
    bug(
        "assert instead of ValueError",
        "test_pytorch_mistakes",
        "    if k.shape[-2] != v.shape[-2]:\n →     assert k.shape[-2] == v.shape[-2]\n    if False:\n",
        named="assert k.shape[-2] == v.shape[-2]",
    ),
)

UNSEEN = (
    bug(
        "all queries and keys in one tile",
        "test_flash_forward.py::test_pytorch_memory",
        "Q_TILE_SIZE = 64\n → Q_TILE_SIZE = 1 << 30\n",
        "\nK_TILE_SIZE = 64\n → \nK_TILE_SIZE = 1 << 30\n",
        named="queries and keys a tensor of",
    ),
    bug(
        "one softmax over all keys",
        "test_flash_forward.py::test_pytorch_memory",
        "(q, k, v)\n → (q, k, v)\n    s = q.float() @ k.float().mT / math.sqrt(q.shape[-1])\n    if is_causal:\n"
        "        s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -math.inf)\n"
        "    return (s.softmax(-1) @ v.float()).to(q.dtype), s.logsumexp(-1)\n",
        named="queries and keys a tensor of",
    ),
)

BUGS = (*CONTRACT, *UNSEEN)
