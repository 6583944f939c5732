"""LayerNorms that are wrong, each a few edits away from the solution."""

from assignment.attacks.bugs import bug

PROBLEM = "layernorm"
FILES = ("practice/layernorm.py",)

VARIANCE = "tl.sum(differences * differences, axis=1) / d"
Y = "y = (x - mean[:, None]) * rstd[:, None] * w[None, :] + b[None, :]"
RSTD = "rstd = 1.0 / tl.sqrt_rn(variance + eps)"
GRAD_X = "(h - h_mean[:, None] - x_hat * along[:, None])"
TO_16_BITS = ".to(x_ptr.dtype.element_ty).to(tl.float32)"

FORWARD = (
    bug(
        "forward: no eps",
        "test_forward_eps",
        "sqrt_rn(variance + eps) → sqrt_rn(variance)",
        named="layernorm-eps-missing",
    ),
    bug(
        "forward: eps outside of the root",
        "test_forward_eps",
        "tl.sqrt_rn(variance + eps) → (tl.sqrt_rn(variance) + eps)",
        named="layernorm-eps-outside-the-root",
    ),
    bug(
        "forward: eps always 1e-5",
        "test_forward_eps",
        "sqrt_rn(variance + eps) → sqrt_rn(variance + 1e-5)",
        named="layernorm-eps-fixed",
    ),
    bug(
        "forward: the variance from squares",
        "test_forward_variance",
        f"{VARIANCE} → tl.sum(x * x, axis=1) / d - mean * mean",
        named="layernorm-variance-from-squares",
    ),
    bug(
        "forward: the variance from squares, kept from being negative",
        "test_forward_variance",
        f"{VARIANCE} → tl.maximum(tl.sum(x * x, axis=1) / d - mean * mean, 0.0)",
        named="layernorm-variance-from-squares",
    ),
    bug(
        "forward: wide rows' variance from squares",
        "test_forward_variance",
        "lane_squares += step * (x - lane_mean) → lane_squares += x * x",
        "tl.sum(lane_squares + between * between * lane_count[None, :], axis=1) / d → "
        "tl.sum(lane_squares, axis=1) / d - mean * mean",
        named="layernorm-variance-from-squares",
    ),
    bug(
        "forward: means over the padded row",
        "test_forward_ragged",
        "mean = tl.sum(x, axis=1) / d → mean = tl.sum(x, axis=1) / D_TILE_SIZE",
        named="layernorm-mean-over-the-padded-row",
    ),
    bug(
        "forward: padding in the variance",
        "test_forward_ragged",
        "tl.where(tile_mask, x - mean[:, None], 0.0) → x - mean[:, None]",
        named="layernorm-padding-in-the-variance",
    ),
    bug(
        "forward: the variance over d − 1",
        "test_forward_values",
        f"{VARIANCE} → {VARIANCE[:-1]}(d - 1)",
        named="layernorm-variance-over-d-minus-1",
    ),
    bug(
        "forward: the variance not divided",
        "test_forward_values",
        f"{VARIANCE} → {VARIANCE[:-4]}",
        named="layernorm-sum-for-mean",
    ),
    bug(
        "forward: RMSNorm's y",
        "test_forward_values",
        f"{Y} → {Y.replace('(x - mean[:, None])', 'x')}",
        named="layernorm-mean-not-subtracted",
    ),
    bug(
        "forward: the weight forgotten",
        "test_forward_values",
        f"{Y} → {Y.replace(' * w[None, :]', '')}",
        named="layernorm-weight-forgotten",
    ),
    bug(
        "forward: the bias forgotten",
        "test_forward_values",
        f"{Y} → {Y.replace(' + b[None, :]', '')}",
        named="layernorm-bias-forgotten",
    ),
    bug(
        "forward: weight and bias swapped",
        "test_forward_values",
        "x_rows, weight, bias, y, mean, rstd, → x_rows, bias, weight, y, mean, rstd,",
        named="layernorm-weight-and-bias-swapped",
    ),
    bug(
        "forward: lanes merged without their counts",
        "test_forward_wide",
        "mean = tl.sum(lane_mean * lane_count[None, :], axis=1) / d → mean = tl.sum(lane_mean, axis=1) / D_TILE_SIZE",
        named="layernorm-merged-without-counts",
    ),
    bug(
        "forward: what lanes differ by left out of the variance",
        "test_forward_wide",
        "lane_squares + between * between * lane_count[None, :] → lane_squares",
        named="layernorm-merged-without-steps",
    ),
    bug(
        "forward: y of every tile from the last one",
        "test_forward_wide",
        "if not IS_ONE_TILE:\n → if False:\n",
        named="layernorm-y-from-the-last-tile",
    ),
    bug(
        "forward: y of the first tile only",
        "test_forward_wide",
        "    for start in range(0, d, D_TILE_SIZE):\n        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)\n"
        "        col_mask = cols < d\n        tile_mask → "
        "    for start in range(0, D_TILE_SIZE, D_TILE_SIZE):\n"
        "        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)\n        col_mask = cols < d\n        tile_mask",
        named="never stored",
    ),
    bug(
        "forward: grid rounded down",
        "test_forward_ragged",
        "(triton.cdiv(n_rows, rows_tile_size),) → (n_rows // rows_tile_size,)",
        named="never stored",
    ),
    bug(
        "forward: y stored past the last column",
        "test_forward_ragged",
        "tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=tile_mask) → "
        "tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=row_mask[:, None])",
        line="tl.store(y_ptrs, y",
    ),
    bug(
        "forward: mean stored past the last row",
        "test_forward_ragged",
        "mean, mask=row_mask) → mean)",
        line="tl.store(mean_ptr + rows * stride_mr, mean)",
    ),
    bug(
        "forward: bias past the end read",
        "test_forward_ragged",
        "b = tl.load(b_ptr + cols * stride_bd, mask=col_mask, other=0.0) → b = tl.load(b_ptr + cols * stride_bd)",
        line="b = tl.load(b_ptr",
    ),
    bug(
        "forward: x flattened with view",
        "test_forward_strides",
        "x_rows = x.reshape(-1, x.shape[-1]) → x_rows = x.view(-1, x.shape[-1])",
        named="x_rows = x.view",
    ),
    bug(
        "forward: the bias's stride taken to be 1",
        "test_forward_strides",
        "b_ptr + cols * stride_bd → b_ptr + cols",
        named="b = tl.load(b_ptr + cols",
    ),
    bug(
        "forward: row offsets in int32",
        "test_forward_offsets",
        "rows = tl.program_id(0).to(tl.int64) * ROWS_TILE_SIZE → rows = tl.program_id(0) * ROWS_TILE_SIZE",
        line="x = tl.load(x_ptrs",
    ),
    bug(
        "forward: squares in the input's dtype",
        "test_forward_16_bit",
        f"{VARIANCE} → tl.sum((differences * differences){TO_16_BITS}, axis=1) / d",
        named="layernorm-differences-in-16-bits",
    ),
    bug(
        "forward: rstd in the input's dtype",
        "test_forward_16_bit",
        f"{RSTD} → rstd = (1.0 / tl.sqrt_rn(variance + eps)){TO_16_BITS}",
        named="layernorm-statistics-in-16-bits",
    ),
    bug(
        "forward: mean and rstd of the input's dtype",
        "test_forward_16_bit",
        "(x_rows.new_empty(n_rows, dtype=torch.float32) for → (x_rows.new_empty(n_rows) for",
        named="mean is ",
    ),
    bug(
        "forward: y written over x",
        "test_forward_contract",
        "y = x_rows.new_empty(n_rows, d)\n → y = x_rows\n",
        named="tl.store(y_ptrs, y",
    ),
    bug(
        "forward: no checks",
        "test_forward_mistakes",
        "    _check_inputs(x, weight, bias)\n → ",
        named="expected a ValueError before any launch",
    ),
    bug(
        "forward: x read twice although it fits",
        "test_layernorm.py::test_forward_traffic",
        "if not IS_ONE_TILE:\n → if True:\n",
        named="x is read",
    ),
    bug(
        "forward: PyTorch's own layer_norm behind a kernel",
        "test_forward_values",
        "return y.reshape(x.shape), mean → return torch.nn.functional.layer_norm(x, (d,), weight, bias, eps), mean",
        computed="torch.nn.functional.layer_norm(",
    ),
    bug(
        "forward: twelve warps",
        "test_layernorm.py::test_compiles",
        "            num_warps=num_warps,\n →             num_warps=12,\n",
        compiled="_layernorm_forward_kernel[",
    ),
)

BACKWARD = (
    bug(
        "backward: mean(h) missing",
        "test_backward_values",
        f"{GRAD_X} → {GRAD_X.replace(' - h_mean[:, None]', '')}",
        named="layernorm-mean-of-h-missing",
    ),
    bug(
        "backward: the x̂ term missing",
        "test_backward_values",
        f"{GRAD_X} → (h - h_mean[:, None])",
        named="layernorm-projection-missing",
    ),
    bug(
        "backward: the x̂ term added",
        "test_backward_values",
        f"{GRAD_X} → {GRAD_X.replace('- x_hat', '+ x_hat')}",
        named="layernorm-correction-added",
    ),
    bug(
        "backward: means over the padded row",
        "test_backward_ragged",
        "tl.sum(h, axis=1) / d → tl.sum(h, axis=1) / D_TILE_SIZE",
        "tl.sum(h * x_hat, axis=1) / d → tl.sum(h * x_hat, axis=1) / D_TILE_SIZE",
        named="layernorm-backward-mean-over-the-padded-row",
    ),
    bug(
        "backward: the weight forgotten",
        "test_backward_values",
        "h = w[None, :] * grad_y → h = grad_y",
        named="layernorm-backward-weight-forgotten",
    ),
    bug(
        "backward: grad_weight without rstd",
        "test_backward_values",
        "grad_w += grad_y * x_hat → grad_w += grad_y * (x - mean[:, None])",
        named="layernorm-x-for-x-hat",
    ),
    bug(
        "backward: grad_bias with the weight",
        "test_backward_values",
        "grad_b += grad_y → grad_b += h",
        named="layernorm-grad-bias-with-a-factor",
    ),
    bug(
        "backward: the mean not subtracted",
        "test_backward_values",
        "x_hat = (x - mean[:, None]) * rstd[:, None] → x_hat = x * rstd[:, None]",
        named="layernorm-backward-mean-not-subtracted",
    ),
    bug(
        "backward: all programs store to one partial row",
        "test_backward_values",
        "partials_ptr + row_program * stride_pr + cols → partials_ptr + cols",
        line="tl.store(partial_ptrs",
    ),
    bug(
        "backward: a program's last tile of rows only",
        "test_backward_values",
        "grad_w += grad_y * x_hat → grad_w = grad_y * x_hat",
        "grad_b += grad_y → grad_b = grad_y",
        named="layernorm-rows-lost",
    ),
    bug(
        "backward: rows past the end of x read",
        "test_backward_ragged",
        "x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask=tile_mask, other=0.0\n        ) → "
        "x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask=col_mask[None, :], other=0.0\n        )",
        line="x = tl.load(",
    ),
    bug(
        "backward: x̂ without rstd in wide rows' means",
        "test_backward_wide",
        "along_sums += w * grad_y * (x - mean) * rstd → along_sums += w * grad_y * (x - mean)",
    ),
    bug(
        "backward: wide rows cut after one tile of columns",
        "test_backward_wide",
        '(n_row_programs, triton.cdiv(d, sizes["D_TILE_SIZE"])) → (n_row_programs, 1)',
        named="never stored",
    ),
    bug(
        "backward: mean's stride taken to be 1",
        "test_backward_strides",
        "tl.load(mean_ptr + rows * stride_mr → tl.load(mean_ptr + rows",
        named="mean = tl.load(mean_ptr",
    ),
    bug(
        "backward: row offsets in int32",
        "test_backward_offsets",
        "row_program = tl.program_id(0).to(tl.int64) → row_program = tl.program_id(0)",
        "rows = start + tl.arange(0, ROWS_TILE_SIZE).to(tl.int64) → rows = start + tl.arange(0, ROWS_TILE_SIZE)",
        line="tl.load(",
    ),
    bug(
        "backward: products in the input's dtype",
        "test_backward_16_bit",
        f"grad_w += grad_y * x_hat → grad_w += (grad_y * x_hat){TO_16_BITS}",
        named="layernorm-backward-products-in-16-bits",
    ),
    bug(
        "backward: partial sums in the input's dtype",
        "test_backward_16_bit",
        "x_rows.new_empty(2, n_row_programs, d, dtype=torch.float32) → x_rows.new_empty(2, n_row_programs, d)",
        named="layernorm-summed-over-rows-in-16-bits",
    ),
    bug(
        "backward: mean and rstd cast to the input's dtype",
        "test_backward_16_bit",
        "mean.reshape(-1), rstd.reshape(-1) → mean.reshape(-1).to(x.dtype), rstd.reshape(-1).to(x.dtype)",
        named="layernorm-backward-statistics-in-16-bits",
    ),
    bug(
        "backward: gradients of the vectors not a number for an empty batch",
        "test_backward_contract",
        "partials.sum(dim=1) → (partials.mean(dim=1) * n_row_programs)",
        named="a mean over no rows is 0/0",
    ),
    bug(
        "backward: grad_x written over grad_y",
        "test_backward_contract",
        "    grad_x = x_rows.new_empty(n_rows, d)\n →     grad_x = grad_y_rows\n",
        named="tl.store(grad_x_ptrs",
    ),
    bug(
        "backward: no checks",
        "test_backward_mistakes",
        "    _check_inputs(x, weight)\n    _check_gradient(grad_y, mean, rstd, x)\n → ",
        named="expected a ValueError before any launch",
    ),
)

AUTOGRAD = (
    bug(
        "autograd: eps not passed on",
        "test_value",
        "layernorm_forward(x, weight, bias, eps=eps) → layernorm_forward(x, weight, bias)",
        named="layernorm-eps-fixed",
    ),
    bug(
        "autograd: not a Function",
        "test_gradients",
        "return LayerNorm.apply(x, weight, bias, eps) → return layernorm_forward(x, weight, bias, eps)[0]",
        named="returned a tensor without a gradient",
    ),
    bug(
        "autograd: no gradient for eps",
        "test_gradients",
        "*layernorm_backward(grad_y, *ctx.saved_tensors), None → layernorm_backward(grad_y, *ctx.saved_tensors)",
        named="returned an incorrect number of gradients",
    ),
    bug(
        "autograd: mean and rstd kept in the class, not in the graph",
        "test_gradients",
        "ctx.save_for_backward(x, weight, mean, rstd) → "
        "ctx.save_for_backward(x, weight)\n        LayerNorm.kept = mean, rstd",
        "*ctx.saved_tensors), None → *ctx.saved_tensors, *LayerNorm.kept), None",
        named="another forward pass that came in between",
    ),
)

BUGS = (*FORWARD, *BACKWARD, *AUTOGRAD)
