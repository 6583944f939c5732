"""Planted bugs of bias and GELU, in tables: see assignment/bank/operators/edits.py."""

from assignment.bank.operators.edits import table

PROBLEM = "bias_gelu"
FILES = ("practice/bias_gelu.py",)
PARTS = {
    "BACK_Z": "        z = tl.load(x_ptrs, mask=tile_mask, other=0.0).to(tl.float32) + bias[None, :]\n",
    "Y": "share, _ = _share(z, IS_TANH, x_ptr.dtype.element_ty != tl.float32)\n    y = z * share",
    "ERF": "return tl.where(z > 0, 1.0 - tail, tail), bell",
    "TANH": "return 1.0 / (1.0 + tl.exp(-TWICE_SQRT_2_PI * (z + CUBIC * z * z * z))), tl.zeros_like(z)",
    "GRAD_X": "grad_x = grad_y * (share + z * density)",
    "SUMMED": "grad_bias += grad_x",
    "STORED": "tl.store(partial_ptrs, tl.sum(grad_bias, axis=0), mask=col_mask)",
    "PROGRAMS": "return min(triton.cdiv(n_rows, MIN_ROWS_PER_PROGRAM), most)",
}
FORWARD = table(
    "forward",
    """
no bias | values | {Y} → z -= bias[None, :]⏎    {Y} | no-bias
bias after the GELU | values | {Y} → z -= bias[None, :]⏎    {Y} + bias[None, :] | bias-after
x in front | values | {Y} → y = (z - bias[None, :]) * _share(z, IS_TANH, False)[0] | x-in-front
bias subtracted | values | {Y} → z -= 2 * bias[None, :]⏎    {Y} | bias-subtracted
erf without the root | values | {ERF} → return 0.5 * (1.0 + tl.erf(z)), bell | erf-of-z
no half | values | {Y} → y = 2.0 * z * _share(z, IS_TANH, False)[0] | half-missing
a sigmoid | values | {ERF} → return 1.0 / (1.0 + tl.exp(-1.702 * z)), bell | a-sigmoid-of-z
ReLU | values | {Y} → y = tl.maximum(z, 0.0) | relu
always erf | tanh | *y.stride(),⏎            n_rows, d,⏎            IS_TANH=approximate == "tanh"
    → *y.stride(),⏎            n_rows, d,⏎            IS_TANH=False | the-other-form
tanh without the cubic term | tanh | {TANH} → return 1.0 / (1.0 + tl.exp(-TWICE_SQRT_2_PI *
    z)), tl.zeros_like(z) | no-cubic-term
a quotient of powers | tails | {TANH} → power = tl.exp(TWICE_SQRT_2_PI * (z + CUBIC * z * z *
    z))⏎        return power / (1.0 + power), tl.zeros_like(z) | inf-over-inf
the last columns of x loaded past the end | ragged | z = tl.load(x_ptrs, mask=tile_mask,
    other=0.0).to(tl.float32) + bias[None, :]  # → z = tl.load(x_ptrs, mask=(rows < n_rows)[:,
    None]).to(tl.float32) + bias[None, :]  # | line: z = tl.load(x_ptrs
stored past the end | ragged | tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=tile_mask)
    → tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=(rows < n_rows)[:, None]) |
    line: tl.store(y_ptrs
one column tile only | wide | [(triton.cdiv(n_rows, rows_tile_size), triton.cdiv(d, d_tile_size))]
    → [(triton.cdiv(n_rows, rows_tile_size), 1)] | line: never stored
the stride of bias taken to be 1 | strides | x_rows, bias, y,⏎            *x_rows.stride(),
    *bias.stride(), → x_rows, bias, y,⏎            *x_rows.stride(), 1, |
    bias is read as if / bias = tl.load(bias_ptr
row offsets in int32 | offsets | rows = tl.program_id(0).to(tl.int64) * ROWS_TILE_SIZE
    → rows = tl.program_id(0) * ROWS_TILE_SIZE | z = tl.load(x_ptrs
always float32 | 16_bit | y = x_rows.new_empty(n_rows, d)
    → y = x_rows.new_empty(n_rows, d, dtype=torch.float32) | y is float32
in place | contract | y = x_rows.new_empty(n_rows, d) → y = x_rows | line: tl.store(y_ptrs
x + bias by PyTorch | values |     n_rows, d = x_rows.shape⏎    y =
    →     x_rows, bias = x_rows + bias, bias * 0⏎    n_rows, d = x_rows.shape⏎    y = |
    computed: x_rows, bias = x_rows + bias
a float32 copy of x | traffic |     n_rows, d = x_rows.shape⏎    y = x_rows.new_empty(n_rows, d)
    →     n_rows, d = x_rows.shape⏎    x_rows = x_rows.clone()⏎    y = x_rows.new_empty(n_rows, d) |
    x is read
""",
    **PARTS,
)
BACKWARD = table(
    "backward",
    """
the product rule forgotten | values | {GRAD_X} → grad_x = grad_y * share | product-rule-forgotten
the density alone | values | {GRAD_X} → grad_x = grad_y * z * density | density-alone
z forgotten | values | {GRAD_X} → grad_x = grad_y * (share + density) | density-without-z
the density without its factor | values | density = INV_SQRT_2_PI * bell → density = bell |
    density-not-normalised
no bias | values | {BACK_Z} →         z = tl.load(x_ptrs, mask=tile_mask, other=0.0).to(tl.float32)
    + 0 * bias[None, :]⏎ | backward-without-the-bias
always erf | tanh | *partial_grad_bias.stride(),⏎            n_rows,
    d,⏎            IS_TANH=approximate == "tanh" → *partial_grad_bias.stride(),⏎            n_rows,
    d,⏎            IS_TANH=False | gradient-of-the-other-form
the inner derivative | tanh | * (1.0 + 3.0 * CUBIC * z * z) → * 1.0 | inner-slope-missing
grad_bias of grad_y | values | {SUMMED} → grad_bias += grad_y | grad-bias-of-grad-y
grad_bias a mean | values | partial_grad_bias.sum(dim=0).to
    → (partial_grad_bias.sum(dim=0) / max(n_rows, 1)).to | grad-bias-the-mean
the last rows of a program only | values | {SUMMED} → grad_bias = grad_x | rows-lost-in-grad-bias
far from zero ∞/∞ | tails | density = share * (1.0 - share)
    → power = tl.exp(TWICE_SQRT_2_PI * (z + CUBIC * z * z * z))⏎            density = power /
    ((1.0 + power) * (1.0 + power)) | line: density = power /
one column tile only | wide | [(n_row_programs, triton.cdiv(d, d_tile_size))]
    → [(n_row_programs, 1)] | line: never stored
all programs add to one row | values | {STORED} → tl.store(partial_ptrs, tl.load(partial_ptrs,
    mask=col_mask, other=0.0) + tl.sum(grad_bias, axis=0), mask=col_mask) |
    partial_ptr + row_program * stride_pr + cols → partial_ptr + cols |
    partial_grad_bias = x_rows.new_empty(n_row_programs, d
    → partial_grad_bias = x_rows.new_zeros(1, d | line: tl.store(partial_ptrs, tl.load(
rows divided downwards | ragged | {PROGRAMS} → return min(n_rows // MIN_ROWS_PER_PROGRAM, most) |
    line: never stored
rows past the end | ragged | grad_y = tl.load(grad_y_ptrs, mask=tile_mask, other=0.0)
    → grad_y = tl.load(grad_y_ptrs, mask=col_mask[None, :], other=0.0) | line: grad_y = tl.load(
partial sums in the dtype of x | 16_bit | new_empty(n_row_programs, d, dtype=torch.float32)
    → new_empty(n_row_programs, d) | grad-bias-summed-in-16-bits
grad_bias always float32 | 16_bit | sum(dim=0).to(bias.dtype) → sum(dim=0) | grad_bias is float32
grad_y's last stride taken to be 1 | strides | + cols[None, :] * stride_gyd → + cols[None, :] |
    grad_y is read as if / grad_y = tl.load(
row offsets in int32 | offsets | row_program = tl.program_id(0).to(tl.int64)
    → row_program = tl.program_id(0) | rows = start + tl.arange(0, ROWS_TILE_SIZE).to(tl.int64)
    → rows = start + tl.arange(0, ROWS_TILE_SIZE) | z = tl.load(x_ptrs / grad_y = tl.load(
not a number for an empty batch | contract | partial_grad_bias.sum(dim=0).to
    → (partial_grad_bias.mean(dim=0) * n_row_programs).to | a mean over no rows is 0/0
""",
    **PARTS,
)
AUTOGRAD = table(
    "autograd",
    """
the form forgotten | gradients | x, bias, approximate=ctx.approximate) → x, bias) |
    gradient-of-the-other-form
the form not passed on | value | return bias_gelu_forward(x, bias, approximate=approximate)
    → return bias_gelu_forward(x, bias) | the-other-form
not a Function | gradients | return BiasGelu.apply(x, bias, approximate)
    → return bias_gelu_forward(x, bias, approximate) | returned a tensor without a gradient
no gradient for the form | gradients | approximate=ctx.approximate), None
    → approximate=ctx.approximate), | returned an incorrect number of gradients
""",
    **PARTS,
)
BUGS = [*FORWARD, *BACKWARD, *AUTOGRAD]
# What its chapter teaches: bugs that cost at least a tenth of their problem (tests/test_lessons.py).
LESSONS = {
    "bias_gelu": (
        "forward-always-erf",
        "backward-the-product-rule-forgotten",
        "backward-all-programs-add-to-one-row",
    ),
}
