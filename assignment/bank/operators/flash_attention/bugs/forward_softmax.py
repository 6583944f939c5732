"""Planted bugs of FlashAttention-2 forward in Triton: what it computes, and in which precision."""

from assignment.bank.operators.edits import bug

PROBLEM = "flash_forward_triton"
FILES = ("triton_forward.py", "flash_attention.py")

SOFTMAX = (
    bug(
        "old accumulator not rescaled",
        "test_triton_values",
        "        acc = acc * rescale[:, None]\n → ",
        named="acc-not-rescaled",
    ),
    bug(
        "old sum not rescaled",
        "test_triton_values",
        "        row_sum = row_sum * rescale\n → ",
        named="sum-not-rescaled",
    ),
    bug(
        "rescaled the wrong way round",
        "test_triton_values",
        "tl.exp(row_max - new_max) → tl.exp(new_max - row_max)",
        named="row_sum = row_sum * rescale",
    ),
    bug(
        "the maximum of the tile, not the running one",
        "test_triton_outliers",
        "new_max = tl.maximum(row_max, tile_max) → new_max = tile_max",
        named="maximum-of-the-tile",
    ),
    bug(
        "one maximum for all rows of a tile",
        "test_triton_outliers",
        "tile_max = tl.max(s, axis=1) → tile_max = tl.max(s, axis=1) * 0 + tl.max(tl.max(s, axis=1), axis=0)",
        named="one-maximum-for-all-rows",
    ),
    bug(
        "running maximum starts at 0",
        "test_triton_outliers",
        'tl.full((Q_TILE_SIZE,), float("-inf"), dtype=tl.float32) → tl.zeros((Q_TILE_SIZE,), dtype=tl.float32)',
        named="maximum-starts-at-0",
    ),
    bug(
        "no maximum subtracted",
        "test_triton_outliers",
        "= tl.maximum(row_max, tile_max) → = tile_max * 0.0",
        named="no-maximum",
    ),
    bug(
        "logits clamped in place of a maximum",
        "test_triton_outliers",
        "new_max = tl.maximum(row_max, tile_max) → new_max = tl.zeros((Q_TILE_SIZE,), dtype=tl.float32)",
        "p = tl.exp(s - new_max[:, None]) → p = tl.exp(tl.minimum(s, 80.0))",
        "rescale = tl.exp(row_max - new_max) → rescale = 1.0 + new_max",
        named="logits-clamped",
    ),
    bug(
        "powers of 2 without log2(e)",
        "test_triton_values",
        "p = tl.exp(s - new_max[:, None]) → p = tl.exp2(s - new_max[:, None])",
        "rescale = tl.exp(row_max → rescale = tl.exp2(row_max",
        named="base-2",
    ),
    bug(
        "scale forgotten",
        "test_triton_values",
        "tl.dot(q, tl.trans(k)) * scale → tl.dot(q, tl.trans(k))",
        named="scale-missing",
    ),
    bug(
        "scale hard-coded to 1/8", "test_triton_values", "scale = 1 / math.sqrt(d) → scale = 1 / 8", named="scale-fixed"
    ),
    bug(
        "scale of the padded d",
        "test_triton_head_dimension",
        "math.sqrt(d) → math.sqrt(max(16, triton.next_power_of_2(d)))",
        named="scale-of-the-padded-d",
    ),
    bug(
        "lse without the maximum",
        "test_triton_values",
        "lse = row_max + tl.log(row_sum) → lse = tl.log(row_sum)",
        named="lse-without-the-maximum",
    ),
    bug(
        "lse the maximum alone",
        "test_triton_values",
        "lse = row_max + tl.log(row_sum) → lse = row_max",
        named="lse-the-maximum-alone",
    ),
    bug(
        "lse without the logarithm",
        "test_triton_values",
        "lse = row_max + tl.log(row_sum) → lse = row_max + row_sum",
        named="lse-without-the-logarithm",
    ),
    bug(
        "the logarithm of the sum in base 2",
        "test_triton_values",
        "lse = row_max + tl.log → lse = row_max + tl.log2",
        named="lse-in-base-2",
    ),
)

CAUSAL = (
    bug(
        "causal: the diagonal hidden",
        "test_triton_causal",
        "keys[None, :] <= queries → keys[None, :] < queries",
        named="causal-diagonal-hidden",
    ),
    bug(
        "causal: aligned at the bottom right",
        "test_triton_ragged",
        "keys[None, :] <= queries[:, None] → keys[None, :] <= queries[:, None] + n_keys - n_queries",
        "end = tl.minimum(n_keys, first_query + Q_TILE_SIZE) → end = n_keys",
        named="causal-bottom-right",
    ),
    bug(
        "causal: whole tiles only",
        "test_triton_causal",
        "<= queries[:, None] → < first_query + Q_TILE_SIZE",
        named="causal-by-whole-tiles",
    ),
    bug(
        "causal: keys past the end unmasked",
        "test_triton_ragged",
        "visible = visible & (keys[None, :] <= queries[:, None]) → visible = keys[None, :] <= queries[:, None]",
        named="causal-keys-past-the-end",
    ),
    bug(
        "causal: hidden by -1e4",
        "test_triton_ragged",
        '.where(visible, s, float("-inf")) → .where(visible, s, -1e4)',
        named="causal-hidden-by-a-number",
    ),
    bug(
        "causal: the tile on the diagonal skipped",
        "test_triton_causal",
        "tl.minimum(n_keys, first_query + Q_TILE_SIZE) → tl.minimum(n_keys, tl.maximum(first_query, 1))",
        named="causal-diagonal-tile-skipped",
    ),
    bug("causal: ignored", "test_triton_causal", "IS_CAUSAL=is_causal → IS_CAUSAL=False", named="causal-ignored"),
    bug(
        "flash_attention: is_causal not passed on",
        "test_attention_value",
        "k, v, is_causal=is_causal → k, v",
        named="causal-ignored",
    ),
    bug(
        "flash_attention: returns lse too",
        "test_attention_value",
        "        return o\n →         return o, lse\n",
        "backward(ctx, grad_o) → backward(ctx, grad_o, grad_lse)",
        named="expected one tensor, o; got a tuple of 2 tenso",
    ),
)

PRECISION = (
    bug(
        "logits in the input's dtype",
        "test_triton_16_bit",
        "s = tl.dot(q, tl.trans(k)) * scale → s = (tl.dot(q, tl.trans(k)) * scale).to(q.dtype).to(tl.float32)",
        named="logits-in-16-bits",
    ),
    bug(
        "P in the input's dtype before it is summed",
        "test_triton_16_bit",
        "p = tl.exp(s - new_max[:, None]) → p = tl.exp(s - new_max[:, None]).to(v.dtype).to(tl.float32)",
        named="p-rounded-before-the-sum",
    ),
    bug(
        "accumulator in the input's dtype",
        "test_triton_16_bit",
        "acc += tl.dot(p.to(v.dtype), v) → acc = (acc + tl.dot(p.to(v.dtype), v)).to(v.dtype).to(tl.float32)",
        named="accumulator-in-16-bits",
    ),
    bug(
        "each product with v in the input's dtype",
        "test_triton_16_bit",
        "acc += tl.dot(p.to(v.dtype), v) → acc += tl.dot(p.to(v.dtype), v).to(v.dtype).to(tl.float32)",
        named="accumulator-in-16-bits",
    ),
    bug(
        "P in float32 times v in 16 bits",
        "test_triton_16_bit",
        "tl.dot(p.to(v.dtype), v) → tl.dot(p, v)",
        named="acc += tl.dot(p, v)",
    ),
    bug(
        "sum in the input's dtype",
        "test_triton_16_bit",
        "row_sum += tl.sum(p, axis=1) → row_sum = (row_sum + tl.sum(p, axis=1)).to(v.dtype).to(tl.float32)",
        named="sum-in-16-bits",
    ),
    bug(
        "q and k multiplied as bfloat16 whatever the input",
        "test_triton_outliers",
        "tl.dot(q, tl.trans(k)) → tl.dot(q.to(tl.bfloat16), tl.trans(k.to(tl.bfloat16)))",
        named="operands-in-another-16-bits",
    ),
    bug(
        "q and k multiplied as float16 whatever the input",
        "test_triton_16_bit",
        "tl.dot(q, tl.trans(k)) → tl.dot(q.to(tl.float16), tl.trans(k.to(tl.float16)))",
        named=("s = tl.dot(q.to(tl.float16)", "operands-in-another-16-bits"),
    ),
    bug(
        "P multiplied as float16 whatever the input",
        "test_triton_16_bit",
        "tl.dot(p.to(v.dtype), v) → tl.dot(p.to(tl.float16), v.to(tl.float16))",
        named="p-in-another-16-bits",
    ),
    bug(
        "lse in the input's dtype",
        "test_triton_16_bit",
        ", dtype=torch.float32 → , dtype=q.dtype",
        named="lse is float16",
    ),
    bug("o always float32", "test_triton_16_bit", ", dtype=q.dtype → , dtype=torch.float32", named="o is float32"),
)

AXES = (
    bug(
        "the maximum never updated",
        "test_triton_values",
        "        row_max = new_max\n → ",
        named="maximum-never-updated",
    ),
    bug(
        "the old accumulator rescaled along columns",
        "test_triton_values",
        "acc = acc * rescale[:, None] → acc = acc * rescale[None, :]",
        named=("acc-rescaled-along-the-columns", "one number a row"),
    ),
    bug(
        "the sum of the whole tile",
        "test_triton_values",
        "row_sum += tl.sum(p, axis=1) → row_sum += tl.sum(p)",
        named="sum-of-the-whole-tile",
    ),
    bug(
        "the sum along the queries",
        "test_triton_values",
        "row_sum += tl.sum(p, axis=1) → row_sum += tl.sum(p, axis=0)",
        named="sum-along-the-queries",
    ),
    bug(
        "the maximum along the queries",
        "test_triton_outliers",
        "tile_max = tl.max(s, axis=1) → tile_max = tl.max(s, axis=0)",
        named=("maximum-along-the-queries", "one-maximum-for-all-rows"),
    ),
    bug(
        "keys not transposed",
        "test_triton_values",
        "s = tl.dot(q, tl.trans(k)) * scale → s = tl.dot(q, k) * scale",
        named=("k-not-transposed", "is a tl.trans missing?"),
    ),
    bug(
        "P from unscaled logits",
        "test_triton_values",
        "p = tl.exp(s - new_max[:, None]) → p = tl.exp(s / scale - new_max[:, None])",
        named="scale-missing",
    ),
    bug(
        "the values of the first batch in all",
        "test_triton_values",
        "v_ptr + batch * stride_vb + → v_ptr +",
        named="v is read from the first entry of the batch",
    ),
    bug(
        "causal: the mask transposed",
        "test_triton_causal",
        "keys[None, :] <= queries[:, None] → keys[None, :] >= queries[:, None]",
        named="causal-reversed",
    ),
    bug(
        "causal: each tile of the mask transposed",
        "test_triton_causal",
        "keys[None, :] <= queries[:, None] → keys[:, None] <= queries[None, :]",
        named="causal-mask-transposed",
    ),
)

BUGS = (*SOFTMAX, *CAUSAL, *AXES, *PRECISION)
