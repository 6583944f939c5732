"""Planted bugs of a linear layer and its GELU, in tables: see assignment/bank/operators/edits.py."""

from assignment.bank.operators.edits import table

PROBLEM = "linear_gelu"
FILES = ("practice/linear_gelu.py",)
PARTS = {
    "DOT": "total = tl.dot(x, w, total)",
    "LOOP": "for start in range(0, k, K_TILE_SIZE):",
    "X_AT": "x_ptr + rows[:, None] * stride_xm + terms[None, :] * stride_xk, mask=x_mask",
    "W_AT": "weight_ptr + terms[:, None] * stride_wk + cols[None, :] * stride_wn, mask=w_mask",
    "W_MASK": "w_mask = (terms[:, None] < k) & (cols[None, :] < n)",
    "BIAS": "bias = tl.load(bias_ptr + cols * stride_bn, mask=cols < n, other=0.0).to(tl.float32)",
    "Z": "z = total + bias[None, :]",
    "Y": "y = z * share",
    "ERF": "share = 0.5 * (1.0 + tl.erf(z * SQRT_1_2))",
    "TANH": "share = 1.0 / (1.0 + tl.exp(-TWICE_SQRT_2_PI * (z + CUBIC * z * z * z)))",
    "STORED": "y.to(y_ptr.dtype.element_ty), mask=y_mask)",
    "MADE": "y = torch.empty((m, n), dtype=x.dtype, device=x.device)",
    "TILES": "M_TILE_SIZE, N_TILE_SIZE, K_TILE_SIZE = 64, 64, 32",
    "RETURN": "    return y.reshape(*x.shape[:-1], n)",
}
PRODUCT = table(
    "product",
    """
a capped grid, and no loop over tiles | values | grid = (triton.cdiv(m, M_TILE_SIZE) * triton.cdiv(n, N_TILE_SIZE),)
    → grid = (min(triton.cdiv(m, M_TILE_SIZE) * triton.cdiv(n, N_TILE_SIZE), 132),) | never stored
the last tile alone | values | {DOT} → total = tl.dot(x, w) | linear_gelu-part-of-the-terms
the terms after the last whole tile left out | ragged | {LOOP}
    → for start in range(0, k // K_TILE_SIZE * K_TILE_SIZE, K_TILE_SIZE): |
    linear_gelu-part-of-the-terms
weight does not move along k | values | {W_AT} → weight_ptr + (terms - start)[:, None] * stride_wk +
    cols[None, :] * stride_wn, mask=w_mask | linear_gelu-same-tile-again
weight taken to be k times n | values | weight.stride(0), weight.stride(1), → 1, n, |
    linear_gelu-weight-as-it-lies
weight loaded past the last term | ragged | {W_MASK}
    → w_mask = (terms[:, None] >= 0) & (cols[None, :] < n) | line: w = tl.load(weight_ptr
weight loaded past the last column | ragged | {W_MASK}
    → w_mask = (terms[:, None] < k) & (cols[None, :] >= 0) | line: w = tl.load(weight_ptr
a grid rounded down | ragged | triton.cdiv(m, M_TILE_SIZE) * triton
    → max(1, m // M_TILE_SIZE) * triton | line: never stored
a sum in 16 bits | 16_bit | {DOT}
    → total = tl.dot(x, w, total).to(x_ptr.dtype.element_ty).to(tl.float32) |
    linear_gelu-sum-in-16-bits
factors in bfloat16 | precision | {DOT}
    → total = tl.dot(x.to(tl.bfloat16), w.to(tl.bfloat16), total) | linear_gelu-factors-in-16-bits
the last stride of x taken to be 1 | strides | {X_AT}
    → x_ptr + rows[:, None] * stride_xm + terms[None, :], mask=x_mask |
    x is read as if / x = tl.load(x_ptr
rows in int32 | offsets | rows = row_tile.to(tl.int64) * → rows = row_tile * | x = tl.load(x_ptr
tiles of 16 | traffic | {TILES} → M_TILE_SIZE, N_TILE_SIZE, K_TILE_SIZE = 16, 16, 64 | is read
the product by PyTorch | values | {RETURN}
    →     y += 0 * (x.reshape(-1, k) @ weight.mT)⏎{RETURN} | computed: y += 0 * (x.reshape(-1, k)
""",
    **PARTS,
)
EPILOGUE = table(
    "epilogue",
    """
no bias | values | {Z} → z = total | linear_gelu-no-bias
bias after the GELU | values | {Z} → z = total | {Y} → y = z * share + bias[None, :] |
    linear_gelu-bias-after
the sum in front | values | {Y} → y = total * share | linear_gelu-factor-without-bias
the bias with every tile | values | {DOT} → total = tl.dot(x, w, total) + tl.load(bias_ptr + cols *
    stride_bn, mask=cols < n, other=0.0)[None, :] | {Z} → z = total | linear_gelu-bias-per-tile
the bias by rows | values | {BIAS} → bias = tl.load(bias_ptr + rows % n * stride_bn).to(tl.float32) |
    {Z} → z = total + bias[:, None] | linear_gelu-bias-of-another-column
no GELU | values | {Y} → y = z | linear_gelu-no-gelu
ReLU | values | {Y} → y = tl.maximum(z, 0.0) | linear_gelu-relu
erf without the root | forms | {ERF} → share = 0.5 * (1.0 + tl.erf(z)) | linear_gelu-erf-of-z
no half | values | {Y} → y = 2.0 * z * share | linear_gelu-half-missing
a sigmoid | forms | {ERF} → share = 1.0 / (1.0 + tl.exp(-1.702 * z)) | linear_gelu-a-sigmoid
always erf | forms | IS_TANH=approximate == "tanh" → IS_TANH=False | linear_gelu-the-other-form
tanh without the cubic term | forms | {TANH} → share = 1.0 / (1.0 + tl.exp(-TWICE_SQRT_2_PI * z)) |
    linear_gelu-no-cubic-term
a quotient of powers | tails | {TANH} → power = tl.exp(TWICE_SQRT_2_PI * (z + CUBIC * z * z *
    z))⏎        share = power / (1.0 + power) | line: share = power / (1.0 + power)
the sum cast before the bias | 16_bit | {Z}
    → z = total.to(y_ptr.dtype.element_ty).to(tl.float32) + bias[None, :] |
    linear_gelu-sum-cast-before-the-bias
stored past the end | ragged | {STORED} → y.to(y_ptr.dtype.element_ty)) | line: tl.store(y_ptr
the stride of bias taken to be 1 | strides | weight.stride(1), bias.stride(0), → weight.stride(1), 1, |
    bias is read as if / bias = tl.load(bias_ptr
always float32 | 16_bit | {MADE} → y = torch.empty((m, n), dtype=torch.float32, device=x.device) |
    y is float32
no checks | mistakes |     _check(x, weight, bias, approximate)⏎    n, k = weight.shape
    →     n, k = weight.shape[-2:] | expected a ValueError
an empty batch is launched | contract |     if m > 0:⏎ →     if m == 0:⏎        raise
    RuntimeError('no rows')⏎    if True:⏎ | raise RuntimeError('no rows')
z stored and loaded again | traffic | {RETURN} →     z, y = y, torch.empty_like(y)⏎    if m >
    0:⏎        _gelu_kernel[(triton.cdiv(m * n, 1024),)](z, y, m * n, SIZE=1024,
    IS_TANH=approximate == "tanh")⏎{RETURN}⏎⏎⏎@triton.jit⏎def _gelu_kernel(z_ptr, y_ptr, size,
    SIZE: tl.constexpr, IS_TANH: tl.constexpr):⏎    at = tl.program_id(0) * SIZE + tl.arange(0,
    SIZE)⏎    z = tl.load(z_ptr + at, mask=at < size).to(tl.float32)⏎    if IS_TANH:⏎        share =
    1.0 / (1.0 + tl.exp(-1.5957691216057308 * (z + 0.044715 * z * z * z)))⏎    else:⏎        share =
    0.5 * (1.0 + tl.erf(z * 0.7071067811865476))⏎    tl.store(y_ptr + at, (z *
    share).to(y_ptr.dtype.element_ty), mask=at < size) | {Y} → y = z | are moved of tensors between
""",
    **PARTS,
)
BUGS = [*PRODUCT, *EPILOGUE]
# What its chapter teaches: bugs that cost at least a tenth of their problem (tests/test_lessons.py).
LESSONS = {
    "linear_gelu": (
        "product-weight-taken-to-be-k-times-n",
        "epilogue-the-bias-with-every-tile",
        "epilogue-z-stored-and-loaded-again",
    ),
}
