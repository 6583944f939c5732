"""Planted bugs of dropout, residual and LayerNorm: the LayerNorm."""

from assignment.attacks.bugs import bug

PROBLEM = "dropout_add_layernorm"
FILES = ("practice/dropout_add_layernorm.py",)

BUGS = (
    bug(
        "forward: no eps",
        "test_forward_rstd",
        "sqrt_rn(variance + eps) → sqrt_rn(variance)",
        named="dropout_add_layernorm-eps-missing",
    ),
    bug(
        "forward: the variance from squares",
        "test_forward_far",
        "tl.sum(differences * differences, axis=1) / d → tl.sum(summed * summed, axis=1) / d - mean * mean",
        named="dropout_add_layernorm-variance-from-squares",
    ),
    bug(
        "forward: padding in the variance",
        "test_forward_ragged",
        "tl.where((tl.arange(0, D_TILE_SIZE) < d)[None, :], summed - mean[:, None], 0.0) → summed - mean[:, None]",
        named="dropout_add_layernorm-padding-in-the-variance",
    ),
    bug(
        "forward: LayerNorm of the last tile of wide rows",
        "test_forward_wide",
        "        if not IS_ONE_TILE:\n            summed = tl.load →         if False:\n            summed = tl.load",
        named="dropout_add_layernorm-y-from-the-last-tile",
    ),
    bug(
        "forward: x read once more",
        "test_dropout_add_layernorm.py::test_forward_traffic",
        "x_rows, residual_rows = x.reshape → x_rows, residual_rows = x.clone().reshape",
        named="x is read",
    ),
    bug(
        "forward: summed kept in float32",
        "test_forward_16_bit",
        "y, summed = (x_rows.new_empty(n_rows, d) for _ in range(2)) → "
        "y, summed = x_rows.new_empty(n_rows, d), x_rows.new_empty(n_rows, d, dtype=torch.float32)",
        named="summed is float32",
    ),
    bug(
        "forward: the residual's strides taken for those of x",
        "test_forward_strides",
        "*x_rows.stride(), *residual_rows.stride(), → *x_rows.stride(), residual_rows.shape[1], 1,",
        named=("residual is read as if", "residual = tl.load("),
    ),
    bug(
        "forward: summed written over the residual",
        "test_forward_contract",
        "    mean, rstd = (x_rows.new_empty(n_rows, dtype=torch.float32) for _ in range(2))\n → "
        "    mean, rstd = (x_rows.new_empty(n_rows, dtype=torch.float32) for _ in range(2))\n"
        "    summed = residual_rows\n",
        named="tl.store(summed_ptr",
    ),
    bug(
        "forward: y stored past the last row",
        "test_forward_ragged",
        "tl.store(y_ptr + indices, y.to(y_ptr.dtype.element_ty), mask=tile_mask) → "
        "tl.store(y_ptr + indices, y.to(y_ptr.dtype.element_ty), mask=col_mask[None, :])",
        line="tl.store(y_ptr + indices",
    ),
    bug(
        "forward: shapes not compared",
        "test_forward_mistakes",
        "    _check_like(x, residual)\n → ",
        named="expected a ValueError before any launch",
    ),
    bug(
        "forward: PyTorch's layer_norm behind a kernel",
        "test_forward_values",
        "return y.reshape(x.shape), summed → "
        "return torch.nn.functional.layer_norm(summed, (d,), weight, bias, eps).view(x.shape), summed",
        computed="torch.nn.functional.layer_norm(",
    ),
    bug(
        "backward: mean(h) missing",
        "test_backward_values",
        "(h - h_mean[:, None] - x_hat → (h - x_hat",
        named="dropout_add_layernorm-mean-of-h-missing",
    ),
    bug(
        "backward: the x̂ term missing",
        "test_backward_values",
        " - x_hat * along[:, None]) → )",
        named="dropout_add_layernorm-projection-missing",
    ),
    bug(
        "backward: grad_bias with the weight",
        "test_backward_values",
        "grad_b += grad_y → grad_b += h",
        named="dropout_add_layernorm-grad-bias-with-a-factor",
    ),
    bug(
        "backward: all programs store to one partial row",
        "test_backward_values",
        "partials_ptr + row_program * d + cols → partials_ptr + cols",
        line="tl.store(partial_ptrs",
    ),
    bug(
        "backward: row offsets in int32",
        "test_backward_offsets",
        "row_program = tl.program_id(0).to(tl.int64) → row_program = tl.program_id(0)",
        "rows = start + tl.arange(0, ROWS_TILE_SIZE).to(tl.int64) → rows = start + tl.arange(0, ROWS_TILE_SIZE)",
        line="tl.load(",
    ),
    bug(
        "backward: partial sums in the input's dtype",
        "test_backward_16_bit",
        "summed_rows.new_empty(2, n_row_programs, d, dtype=torch.float32) → "
        "summed_rows.new_empty(2, n_row_programs, d)",
    ),
)
