"""Planted bugs of LayerNorm, in tables: see assignment/bank/operators/edits.py."""

from assignment.bank.operators.edits import table

PROBLEM = "layernorm"
FILES = ("practice/layernorm.py",)
PARTS = {
    "VARIANCE": "tl.sum(differences * differences, axis=1) / d",
    "Y": "y = (x - mean[:, None]) * rstd[:, None] * w[None, :] + b[None, :]",
    "RSTD": "rstd = 1.0 / tl.sqrt_rn(variance + eps)",
    "TO_16_BITS": ".to(x_ptr.dtype.element_ty).to(tl.float32)",
    "GRAD_X": "(h - h_mean[:, None] - x_hat * along[:, None])",
}
FORWARD = table(
    "forward",
    """
no eps | eps | sqrt_rn(variance + eps) → sqrt_rn(variance) | layernorm-eps-missing
eps outside of the root | eps | tl.sqrt_rn(variance + eps) → (tl.sqrt_rn(variance) + eps) |
    layernorm-eps-outside-the-root
eps always 1e-5 | eps | sqrt_rn(variance + eps) → sqrt_rn(variance + 1e-5) | layernorm-eps-fixed
the variance from squares | variance | {VARIANCE} → tl.sum(x * x, axis=1) / d - mean * mean |
    layernorm-variance-from-squares
the variance from squares, kept from being negative | variance | {VARIANCE}
    → tl.maximum(tl.sum(x * x, axis=1) / d - mean * mean, 0.0) | layernorm-variance-from-squares
wide rows' variance from squares | variance | squares += tl.sum(difference * difference, axis=2)
    → squares += tl.sum((x * x).reshape(ROWS_TILE_SIZE, D_TILE_SIZE // VECTOR, VECTOR), axis=2) |
    tl.sum(squares - sums * sums / counts + between * between * counts, axis=1) / d
    → tl.sum(squares, axis=1) / d - mean * mean | layernorm-variance-from-squares
means over the padded row | ragged | mean = tl.sum(x, axis=1) / d
    → mean = tl.sum(x, axis=1) / D_TILE_SIZE | layernorm-mean-over-the-padded-row
padding in the variance | ragged | tl.where(tile_mask, x - mean[:, None], 0.0) → x - mean[:, None] |
    layernorm-padding-in-the-variance
the variance over d − 1 | values | {VARIANCE} → tl.sum(differences * differences, axis=1) / (d - 1)
    | layernorm-variance-over-d-minus-1
the variance not divided | values | {VARIANCE} → tl.sum(differences * differences, axis=1) |
    layernorm-sum-for-mean
RMSNorm's y | values | {Y} → y = x * rstd[:, None] * w[None, :] + b[None, :] |
    layernorm-mean-not-subtracted
the weight forgotten | values | {Y} → y = (x - mean[:, None]) * rstd[:, None] + b[None, :] |
    layernorm-weight-forgotten
the bias forgotten | values | {Y} → y = (x - mean[:, None]) * rstd[:, None] * w[None, :] |
    layernorm-bias-forgotten
weight and bias swapped | values | x_rows, weight, bias, y, mean, rstd,
    → x_rows, bias, weight, y, mean, rstd, | layernorm-weight-and-bias-swapped
lanes merged without their counts | wide | mean = tl.sum(lane_mean * counts, axis=1) / d
    → mean = tl.sum(lane_mean, axis=1) / (D_TILE_SIZE // VECTOR) | layernorm-merged-without-counts
what lanes differ by left out of the variance | wide | VECTOR = tl.constexpr(8)
    → VECTOR = tl.constexpr(1) | squares - sums * sums / counts + between * between * counts
    → squares - sums * sums / counts | layernorm-merged-without-steps
y of every tile from the last one | wide | if not IS_ONE_TILE:⏎ → if False:⏎ |
    layernorm-y-from-the-last-tile
y of the first tile only | wide |     for start in range(0, d, D_TILE_SIZE):⏎        cols = start +
    tl.arange(0, D_TILE_SIZE).to(tl.int64)⏎        col_mask = cols < d⏎        tile_mask
    →     for start in range(0, D_TILE_SIZE, D_TILE_SIZE):⏎        cols = start + tl.arange(0,
    D_TILE_SIZE).to(tl.int64)⏎        col_mask = cols < d⏎        tile_mask | never stored
grid rounded down | ragged | (triton.cdiv(n_rows, sizes["ROWS_TILE_SIZE"]),)
    → (n_rows // sizes["ROWS_TILE_SIZE"],) | never stored
y stored past the last column | ragged | tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty),
    mask=tile_mask) → tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=row_mask[:, None]) |
    line: tl.store(y_ptrs, y
mean stored past the last row | ragged | mean, mask=row_mask) → mean) |
    line: tl.store(mean_ptr + rows * stride_mr, mean)
bias past the end read | ragged | b = tl.load(b_ptr + cols * stride_bd, mask=col_mask, other=0.0)
    → b = tl.load(b_ptr + cols * stride_bd) | line: b = tl.load(b_ptr
x flattened with view | strides | x_rows = x.reshape(-1, x.shape[-1])
    → x_rows = x.view(-1, x.shape[-1]) | x_rows = x.view
the bias's stride taken to be 1 | strides | b_ptr + cols * stride_bd → b_ptr + cols |
    b = tl.load(b_ptr + cols
row offsets in int32 | offsets | rows = tl.program_id(0).to(tl.int64) * ROWS_TILE_SIZE
    → rows = tl.program_id(0) * ROWS_TILE_SIZE | line: x = tl.load(x_ptrs
squares in the input's dtype | 16_bit | {VARIANCE} → tl.sum((differences * differences){TO_16_BITS},
    axis=1) / d | layernorm-differences-in-16-bits
rstd in the input's dtype | 16_bit | {RSTD} → rstd = (1.0 / tl.sqrt_rn(variance + eps)){TO_16_BITS}
    | layernorm-statistics-in-16-bits
mean and rstd of the input's dtype | 16_bit | (x_rows.new_empty(n_rows, dtype=torch.float32) for
    → (x_rows.new_empty(n_rows) for | mean is bfloat16 / mean is float16
y written over x | contract | y = x_rows.new_empty(n_rows, d)⏎ → y = x_rows⏎ | tl.store(y_ptrs, y
no checks | mistakes |     _check_inputs(x, weight, bias)⏎ →  |
    expected a ValueError before any launch
x read twice although it fits | traffic | if not IS_ONE_TILE:⏎ → if True:⏎ | x is read
PyTorch's own layer_norm behind a kernel | values | return y.reshape(x.shape), mean
    → return torch.nn.functional.layer_norm(x, (d,), weight, bias, eps), mean |
    computed: torch.nn.functional.layer_norm(
twelve warps | test_compiles | IS_ONE_TILE=d <= sizes["D_TILE_SIZE"], **sizes,
    → IS_ONE_TILE=d <= sizes["D_TILE_SIZE"], **{**sizes, "num_warps": 12}, |
    compiled: _layernorm_forward_kernel[
""",
    **PARTS,
)
BACKWARD = table(
    "backward",
    """
mean(h) missing | values | {GRAD_X} → (h - x_hat * along[:, None]) | layernorm-mean-of-h-missing
the x̂ term missing | values | {GRAD_X} → (h - h_mean[:, None]) | layernorm-projection-missing
the x̂ term added | values | {GRAD_X} → (h - h_mean[:, None] + x_hat * along[:, None]) |
    layernorm-correction-added
means over the padded row | ragged | tl.sum(h, axis=1) / d → tl.sum(h, axis=1) / D_TILE_SIZE |
    tl.sum(h * x_hat, axis=1) / d → tl.sum(h * x_hat, axis=1) / D_TILE_SIZE |
    layernorm-backward-mean-over-the-padded-row
the weight forgotten | values | h = w[None, :] * grad_y → h = grad_y |
    layernorm-backward-weight-forgotten
grad_weight without rstd | values | grad_w += grad_y * x_hat
    → grad_w += grad_y * (x - mean[:, None]) | layernorm-x-for-x-hat
grad_bias with the weight | values | grad_b += grad_y → grad_b += h |
    layernorm-grad-bias-with-a-factor
the mean not subtracted | values | x_hat = (x - mean[:, None]) * rstd[:, None]
    → x_hat = x * rstd[:, None] | layernorm-backward-mean-not-subtracted
all programs store to one partial row | values | partials_ptr + row_program * stride_pr + cols
    → partials_ptr + cols | line: tl.store(partial_ptrs
a program's last tile of rows only | values | grad_w += grad_y * x_hat → grad_w = grad_y * x_hat |
    grad_b += grad_y → grad_b = grad_y | layernorm-rows-lost
rows past the end of x read | ragged | x_ptr + rows[:, None] * stride_xr + cols[None, :] *
    stride_xd, mask=tile_mask, other=0.0⏎        ) → x_ptr + rows[:, None] * stride_xr + cols[None,
    :] * stride_xd, mask=col_mask[None, :], other=0.0⏎        ) | line: x = tl.load(
x̂ without rstd in wide rows' means | wide | along_sums += w * grad_y * (x - mean) * rstd
    → along_sums += w * grad_y * (x - mean) | -
wide rows cut after one tile of columns | wide | (n_row_programs, triton.cdiv(d,
    sizes["D_TILE_SIZE"])) → (n_row_programs, 1) | never stored
mean's stride taken to be 1 | strides | tl.load(mean_ptr + rows * stride_mr
    → tl.load(mean_ptr + rows | mean = tl.load(mean_ptr
row offsets in int32 | offsets | row_program = tl.program_id(0).to(tl.int64)
    → row_program = tl.program_id(0) | rows = start + tl.arange(0, ROWS_TILE_SIZE).to(tl.int64)
    → rows = start + tl.arange(0, ROWS_TILE_SIZE) | line: tl.load(
products in the input's dtype | 16_bit | grad_w += grad_y * x_hat
    → grad_w += (grad_y * x_hat){TO_16_BITS} | layernorm-backward-products-in-16-bits
partial sums in the input's dtype | 16_bit | x_rows.new_empty(2, n_row_programs, d,
    dtype=torch.float32) → x_rows.new_empty(2, n_row_programs, d) | -
mean and rstd cast to the input's dtype | 16_bit | mean.reshape(-1), rstd.reshape(-1)
    → mean.reshape(-1).to(x.dtype), rstd.reshape(-1).to(x.dtype) |
    layernorm-backward-statistics-in-16-bits
gradients of the vectors not a number for an empty batch | contract | partials.sum(dim=1)
    → (partials.mean(dim=1) * n_row_programs) | a mean over no rows is 0/0
grad_x written over grad_y | contract |     grad_x = x_rows.new_empty(n_rows, d)⏎
    →     grad_x = grad_y_rows⏎ | tl.store(grad_x_ptrs
no checks | mistakes |     _check_inputs(x, weight)⏎    _check_gradient(grad_y, mean, rstd, x)⏎ →  |
    expected a ValueError before any launch
""",
    **PARTS,
)
AUTOGRAD = table(
    "autograd",
    """
eps not passed on | value | layernorm_forward(x, weight, bias, eps=eps)
    → layernorm_forward(x, weight, bias) | layernorm-eps-fixed
not a Function | gradients | return LayerNorm.apply(x, weight, bias, eps)
    → return layernorm_forward(x, weight, bias, eps)[0] | returned a tensor without a gradient
no gradient for eps | gradients | *layernorm_backward(grad_y, *ctx.saved_tensors), None
    → layernorm_backward(grad_y, *ctx.saved_tensors) | returned an incorrect number of gradients
mean and rstd kept in the class, not in the graph | gradients |
    ctx.save_for_backward(x, weight, mean, rstd) → ctx.save_for_backward(x,
    weight)⏎        LayerNorm.kept = mean, rstd | *ctx.saved_tensors), None
    → *ctx.saved_tensors, *LayerNorm.kept), None | another forward pass that came in between
""",
    **PARTS,
)
BUGS = [*FORWARD, *BACKWARD, *AUTOGRAD]
# What its chapter teaches: bugs that cost at least a tenth of their problem (tests/test_lessons.py).
LESSONS = {
    "layernorm": (
        "forward-the-variance-from-squares",
        "forward-padding-in-the-variance",
        "backward-mean-h-missing",
    ),
}
