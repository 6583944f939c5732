"""Planted bugs of FlashAttention-2 forward in PyTorch: the softmax, its tiles, its precision."""

from assignment.bank.operators.edits import bug

PROBLEM = "flash_forward_pytorch"
FILES = ("pytorch_forward.py",)

SOFTMAX = (
    bug(
        "old accumulator not rescaled",
        "test_pytorch_values",
        "            acc = acc * rescale[..., None]\n → ",
        named="acc-not-rescaled",
    ),
    bug(
        "old sum not rescaled",
        "test_pytorch_values",
        "            row_sum = row_sum * rescale\n → ",
        named="sum-not-rescaled",
    ),
    bug("rescaled the wrong way round", "test_pytorch_values", ".exp(row_max - new_max) → .exp(new_max - row_max)"),
    bug(
        "the maximum of the tile, not the running one",
        "test_pytorch_outliers",
        "new_max = torch.maximum(row_max, tile_max) → new_max = tile_max",
        named="maximum-of-the-tile",
    ),
    bug(
        "one maximum for all rows of a tile",
        "test_pytorch_outliers",
        "tile_max = s.amax(dim=-1) → tile_max = s.amax(dim=(-2, -1), keepdim=True)[..., 0].expand(s.shape[:-1])",
        named="one-maximum-for-all-rows",
    ),
    bug(
        "running maximum starts at 0",
        "test_pytorch_outliers",
        "full(q_tile.shape[:2], -math.inf, device=q.device) → zeros(q_tile.shape[:2], device=q.device)",
        named="maximum-starts-at-0",
    ),
    bug(
        "no maximum subtracted",
        "test_pytorch_outliers",
        ".maximum(row_max, tile_max) → .zeros_like(row_max)",
        named="no-maximum",
    ),
    bug(
        "powers of 2 without log2(e)",
        "test_pytorch_values",
        "p = torch.exp(s - new_max[..., None]) → p = torch.exp2(s - new_max[..., None])",
        "rescale = torch.exp(row_max → rescale = torch.exp2(row_max",
        named="base-2",
    ),
    bug("scale forgotten", "test_pytorch_values", "k_tile.mT * scale → k_tile.mT", named="scale-missing"),
    bug(
        "scale hard-coded to 1/8",
        "test_pytorch_values",
        "scale = 1 / math.sqrt(d) → scale = 1 / 8",
        named="scale-fixed",
    ),
    bug(
        "lse without the maximum",
        "test_pytorch_values",
        "row_max + torch.log(row_sum) → torch.log(row_sum)",
        named="lse-without-the-maximum",
    ),
    bug(
        "the logarithm of the sum in base 2",
        "test_pytorch_values",
        "+ torch.log(row_sum) → + torch.log2(row_sum)",
        named="lse-in-base-2",
    ),
)

TILES = (
    bug(
        "causal: the diagonal hidden",
        "test_pytorch_causal",
        "keys[None, :] > queries → keys[None, :] >= queries",
        named="causal-diagonal-hidden",
    ),
    bug(
        "causal: the past hidden",
        "test_pytorch_causal",
        "keys[None, :] > queries[:, None] → keys[None, :] < queries[:, None]",
        "end = min(n_keys, end_query) if is_causal else n_keys → end = n_keys",
        named="causal-reversed",
    ),
    bug(
        "causal: aligned at the bottom right",
        "test_pytorch_ragged",
        "keys[None, :] > queries[:, None] → keys[None, :] > queries[:, None] + n_keys - n_queries",
        "end = min(n_keys, end_query) if is_causal else n_keys → end = n_keys",
        named="causal-bottom-right",
    ),
    bug(
        "causal: hidden by -1e4",
        "test_pytorch_ragged",
        "(hidden, -math.inf) → (hidden, -1e4)",
        named="causal-hidden-by-a-number",
    ),
    bug(
        "causal: the tile on the diagonal skipped",
        "test_pytorch_causal",
        "min(n_keys, end_query) if is_causal → min(n_keys, max(first_query, 1)) if is_causal",
        named="causal-diagonal-tile-skipped",
    ),
    bug(
        "only whole key tiles",
        "test_pytorch_ragged",
        "end, K_TILE_SIZE → end - K_TILE_SIZE + 1, K_TILE_SIZE",
        named="only-whole-key-tiles",
    ),
    bug(
        "the last keys padded with zeros, unmasked",
        "test_pytorch_ragged",
        "s = q_tile → short = K_TILE_SIZE - k_tile.shape[1]\n"
        "            k_tile = torch.nn.functional.pad(k_tile, (0, 0, 0, short))\n"
        "            v_tile = torch.nn.functional.pad(v_tile, (0, 0, 0, short))\n"
        "            keys = torch.arange(first_key, first_key + K_TILE_SIZE)\n            s = q_tile",
        named="padded-keys-counted",
    ),
    bug(
        "as many keys as queries",
        "test_pytorch_ragged",
        "n_keys = k.shape[-2] → n_keys = q.shape[-2]",
        named="k = k.reshape(n_batches, n_keys, d)",
    ),
    bug(
        "d must be a power of two",
        "test_pytorch_head_dimension",
        "    _check(q, k, v)\n →     _check(q, k, v)\n    assert q.shape[-1] & (q.shape[-1] - 1) == 0\n",
        named="assert q.shape[-1] & (q.shape[-1] - 1) == 0",
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
        "q flattened with view",
        "test_pytorch_strides",
        "q = q.reshape → q = q.view",
        named="q = q.view(n_batches, n_queries, d)",
    ),
    bug(
        "k read as if it were contiguous",
        "test_pytorch_strides",
        "k = k.reshape(n_batches, n_keys, d) → k = torch.as_strided(k, (n_batches, n_keys, d), (n_keys * d, d, 1))",
        named="k is read as if it were contiguous",
    ),
)

PRECISION = (
    bug(
        "logits in the input's dtype",
        "test_pytorch_16_bit",
        "s = q_tile @ k_tile.mT * scale → s = (q_tile @ k_tile.mT * scale).to(q.dtype).float()",
        named="logits-in-16-bits",
    ),
    bug(
        "P in the input's dtype before it is summed",
        "test_pytorch_16_bit",
        "p = torch.exp(s - new_max[..., None]) → p = torch.exp(s - new_max[..., None]).to(q.dtype).float()",
        named="p-rounded-before-the-sum",
    ),
    bug(
        "accumulator in the input's dtype",
        "test_pytorch_16_bit",
        "acc = acc + p @ v_tile → acc = (acc + p @ v_tile).to(q.dtype).float()",
        named="accumulator-in-16-bits",
    ),
    bug(
        "lse rounded to the input's dtype",
        "test_pytorch_16_bit",
        "row_max + torch.log(row_sum) → (row_max + torch.log(row_sum)).to(q.dtype)",
        named="lse-in-16-bits",
    ),
    bug(
        "values rounded to float16",
        "test_pytorch_values",
        "v[:, first_key:end_key] → v[:, first_key:end_key].half()",
        named="p-in-another-16-bits",
    ),
    bug(
        "everything in the input's dtype",
        "test_pytorch_16_bit",
        "q[:, first_query:end_query].float() → q[:, first_query:end_query]",
        "k[:, first_key:end_key].float() → k[:, first_key:end_key]",
        "v[:, first_key:end_key].float() → v[:, first_key:end_key]",
        "acc + p @ v_tile → acc + p.to(q.dtype) @ v_tile",
        named=("everything-in-16-bits", "accumulator-in-16-bits"),
    ),
    bug(
        "lse in the input's dtype",
        "test_pytorch_16_bit",
        ", dtype=torch.float32 → , dtype=q.dtype",
        named="lse is bfloat16",
    ),
    bug("o always float32", "test_pytorch_16_bit", ", dtype=q.dtype → , dtype=torch.float32", named="o is float32"),
)

BUGS = (*SOFTMAX, *TILES, *PRECISION)
