"""Planted bugs of quantization and of block-scaled products, in a table: see assignment/bank/operators/edits.py."""

from assignment.bank.operators.edits import table

PROBLEM = "matmul_block_scaled"
FILES = ("practice/matmul_block_scaled.py",)
PARTS = {
    "SCALE": "scale = tl.where(largest > 0, largest / 448.0, 1.0)",
    "STORED_SCALE": "scales_ptr + blocks * stride_s + tl.program_id(1), scale, mask",
    "LOOP": "for start in range(0, k, BLOCK):",
    "ADDED": "total += part * a_scale[:, None] * b_scale[None, :]",
    "A_AT": "a_scale_ptrs = a_scales_ptr + rows * stride_asm",
    "B_AT": "b_scale_ptrs = b_scales_ptr + cols // BLOCK * stride_bsn",
    "B_LOADED": "b_scale = tl.load(b_scale_ptrs + block * stride_bsk, mask=cols < n, other=0.0)",
    "B_MASK": "b_mask = (terms[:, None] < k) & (cols[None, :] < n)",
    "CHECK": "    _check(a, a_scales, b, b_scales)⏎    (m, k), n",
}
QUANTIZATION = table(
    "quantize",
    """
240 for 448 | test_quantize_values | {SCALE} → scale = tl.where(largest > 0, largest / 240.0, 1.0) |
    block_scaled-another-largest
amax without absolute value | test_quantize_values | size = tl.abs(x) → size = x | block_scaled-amax-with-its-sign
rounded before scaling | test_quantize_values | value = x / of_rows[:, None]
    → value = x.to(tl.float8e4nv).to(tl.float32) / of_rows[:, None] | block_scaled-rounded-before-scaling
scales kept in bfloat16 | test_quantize_values | {STORED_SCALE}
    → scales_ptr + blocks * stride_s + tl.program_id(1), scale.to(tl.bfloat16).to(tl.float32), mask |
    block_scaled-scales-in-bfloat16
a zero block gives NaN | test_quantize_particular | {SCALE} → scale = largest / 448.0 |
    line: value = x / of_rows[:, None]
amax of a short block with what lies beside it | test_quantize_ragged | mask=mask, other=0.0).to(tl.float32)
    → mask=columns[None, :] < d, other=0.0).to(tl.float32) | line: x = tl.load(x_ptrs
a copy of x first | test_quantize_traffic | (n_rows, d), (height, width) = x.shape, block
    → x = x.clone()⏎    (n_rows, d), (height, width) = x.shape, block | x is read 2.00 times
rows of x in int32 | test_quantize_strides | rows = tl.program_id(0).to(tl.int64) * ROWS
    → rows = tl.program_id(0) * ROWS |
    line: x = tl.load(x_ptrs
""",
    **PARTS,
)
PRODUCT = table(
    "product",
    """
the scale of the wrong block of rows | values | {B_AT}
    → b_scale_ptrs = b_scales_ptr + (cols // BLOCK + 1) % tl.cdiv(n, BLOCK) * stride_bsn |
    block_scaled-scales-of-another-row
scales of b by the shape of those of a | values | {B_AT} → b_scale_ptrs = b_scales_ptr + cols * stride_bsn |
    line: b_scale = tl.load(b_scale_ptrs
a scale of a for 128 rows | values | {A_AT} → a_scale_ptrs = a_scales_ptr + rows // BLOCK * BLOCK * stride_asm |
    block_scaled-scales-of-another-row
the sum scaled in place of the partial product | values | {ADDED}
    → total = (total + part) * a_scale[:, None] * b_scale[None, :] | block_scaled-sum-scaled
the first scale of b in every step | values | {B_LOADED}
    → b_scale = tl.load(b_scale_ptrs, mask=cols < n, other=0.0) | block_scaled-first-scales-again
without the scales of a | values | {ADDED} → total += part * b_scale[None, :] | block_scaled-without-scales
products in bfloat16 | scales | {ADDED}
    → total = (total + part * a_scale[:, None] * b_scale[None, :]).to(tl.bfloat16).to(tl.float32) |
    block_scaled-sum-in-16-bits
scales in bfloat16 | scales | {B_LOADED} → {B_LOADED}.to(tl.bfloat16).to(tl.float32) |
    block_scaled-by-scales-in-16-bits
the short block left out | ragged | {LOOP} → for start in range(0, k // BLOCK * BLOCK, BLOCK): |
    block_scaled-part-of-the-terms
b loaded past the last column | ragged | {B_MASK} → b_mask = (terms[:, None] < k) & (cols[None, :] >= 0) |
    line: b = tl.load(b_ptr
the stride of scales taken to be 1 | strides | a_scale_ptrs + block * stride_ask → a_scale_ptrs + block |
    a_scales is read as if / a_scale = tl.load(a_scale_ptrs
rows in int32 | offsets | rows = row_tile.to(tl.int64) * → rows = row_tile * | a = tl.load(a_ptr
no checks | mistakes | {CHECK} →     (m, k), n | expected a ValueError
tiles of 16 | traffic | M_TILE_SIZE, N_TILE_SIZE, BLOCK = 64, 64, 128 → M_TILE_SIZE, N_TILE_SIZE, BLOCK = 16, 16, 128 |
    is read
""",
    **PARTS,
)
BUGS = [*QUANTIZATION, *PRODUCT]
# What its chapter teaches: bugs that cost at least a tenth of their problem (tests/test_lessons.py).
LESSONS = {
    "matmul_block_scaled": (
        "quantize-240-for-448",
        "product-the-sum-scaled-in-place-of-the-partial-product",
        "product-a-scale-of-a-for-128-rows",
    ),
}
