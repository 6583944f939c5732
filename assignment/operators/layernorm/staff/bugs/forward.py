"""Planted bugs of LayerNorm: the forward pass."""

from assignment.attacks.bugs import bug

PROBLEM = "layernorm"
FILES = ("practice/layernorm.py",)

VARIANCE = "tl.sum(differences * differences, axis=1) / d"
Y = "y = (x - mean[:, None]) * rstd[:, None] * w[None, :] + b[None, :]"
RSTD = "rstd = 1.0 / tl.sqrt_rn(variance + eps)"
TO_16_BITS = ".to(x_ptr.dtype.element_ty).to(tl.float32)"

BUGS = (
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
