"""Planted bugs of LayerNorm: the backward pass."""

from assignment.attacks.bugs import bug
from assignment.operators.layernorm.staff.bugs.forward import TO_16_BITS

PROBLEM = "layernorm"
FILES = ("practice/layernorm.py",)

GRAD_X = "(h - h_mean[:, None] - x_hat * along[:, None])"

BUGS = (
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
