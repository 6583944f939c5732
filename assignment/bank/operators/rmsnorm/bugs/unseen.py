"""Planted bugs of RMSNorm: memory and work that its results do not show, and inputs that are rare."""

from assignment.bank.operators.edits import bug

PROBLEM = "rmsnorm"
FILES = ("rmsnorm.py",)

UNSEEN = (
    bug(
        "forward: y stored past the last row",
        "test_forward_ragged",
        "mask=y_mask)\n → mask=col_mask[None, :])\n",
        named="tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty),",
    ),
    bug(
        "forward: rows past the end of x read",
        "test_forward_ragged",
        "= row_mask[:, None] & (cols < d) → = (cols < d)",
        line="x = tl.load(x_row_ptrs",
    ),
    bug(
        "backward: grad_x stored past the last column",
        "test_backward_ragged",
        "grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask → grad_x.to(grad_x_ptr.dtype.element_ty)",
        named="tl.store(grad_x_ptrs, grad_x.to(grad_x_ptr.dty",
    ),
    bug(
        "backward: weight past the end read",
        "test_backward_ragged",
        "w = tl.load(weight_ptrs, mask=mask, other=0.0) → w = tl.where(mask, tl.load(weight_ptrs), 0.0)",
        line="w = tl.where(mask, tl.load(weight_ptrs)",
    ),
    bug(
        "backward: grad_weight added to without atomics",
        "test_backward_values",
        "torch.empty((n_programs, d), dtype → torch.zeros((1, d), dtype",
        "partial_ptr + program * stride_pr + columns → partial_ptr + columns",
        "tl.store(partial_ptrs, grad_w, mask=mask) → "
        "tl.store(partial_ptrs, grad_w + tl.load(partial_ptrs, mask=mask, other=0.0), mask=mask)",
        line="tl.store(partial_ptrs, grad_w + tl.load(partial_ptrs",
    ),
    bug(
        "forward: x read twice although it fits",
        "test_rmsnorm.py::test_forward_traffic",
        "if not IS_ONE_TILE:\n → if True:\n",
        named="x is read",
    ),
    bug(
        "forward: x copied to float32 first",
        "test_rmsnorm.py::test_forward_traffic",
        "x_rows = x.reshape(-1, d) → x_rows = x.reshape(-1, d).float()",
        named="x is read",
    ),
    bug(
        "forward: PyTorch's own rms_norm behind a kernel",
        "test_forward_values",
        "return y.reshape(x.shape), rstd → return torch.nn.functional.rms_norm(x, (d,), weight, eps), rstd",
        computed="torch.nn.functional.rms_norm(",
    ),
)

IN_TURNS = (
    "n_programs = triton.cdiv(n_rows, ROWS_PER_PROGRAM) → n_programs = min(n_rows, 8 * 132)",
    "for row in range(first_row, end_row): → for row in range(program, n_rows, tl.num_programs(0)):",
)
SEVERAL_TILES = (
    bug(
        "backward: a program's last row alone in grad_weight",
        "test_backward_values",
        *IN_TURNS,
        "grad_w += grad_y * x_hat → grad_w = grad_y * x_hat",
        named="each program has several tiles here",
    ),
    bug(
        "backward: a program's first row alone",
        "test_backward_values",
        IN_TURNS[0],
        "for row in range(first_row, end_row): → for row in range(program, program + 1):",
        named="never stored",
    ),
    bug(
        "backward: a wide row's share stored over the one before",
        "test_backward_wide",
        IN_TURNS[0].replace("8 * 132", "2 * 132"),
        IN_TURNS[1],
        "        grad_w += grad_y * x_hat\n →         grad_w = grad_w * (d <= 8192) + grad_y * x_hat\n",
        named="each program has several tiles here",
    ),
)

RARE = (
    bug(
        "forward: no x without a batch dimension",
        "test_forward_ragged",
        "    _check_forward(x, weight)\n →     _check_forward(x, weight)\n    n_batches = x.shape[-2]\n",
        named="n_batches = x.shape[-2]",
    ),
    bug(
        "backward: no x without a batch dimension",
        "test_backward_ragged",
        "    _check_backward(grad_y, x, weight, rstd)\n →     _check_backward(grad_y, x, weight, rstd)\n"
        "    n_batches = x.shape[-2]\n",
        named="n_batches = x.shape[-2]",
    ),
    bug(
        "forward: rstd kept from getting small",
        "test_forward_outliers",
        "rstd = 1.0 / tl.sqrt(mean_of_squares + eps) → rstd = 1.0 / tl.sqrt(tl.minimum(mean_of_squares, 1e9) + eps)",
        named="rstd-limited",
    ),
    bug(
        "backward: rstd kept from getting large",
        "test_backward_outliers",
        "rstd = tl.load(rstd_ptr + row * stride_sr) → rstd = tl.minimum(tl.load(rstd_ptr + row * stride_sr), 50.0)",
        named="backward-rstd-limited",
    ),
    bug(
        "forward: eps kept from getting large",
        "test_eps",
        "            n_rows, d, eps,\n →             n_rows, d, min(eps, 0.3),\n",
        named="eps-limited",
    ),
    bug(
        "forward: an empty batch refused",
        "test_forward_contract",
        "    _check_forward(x, weight)\n →     _check_forward(x, weight)\n"
        "    if x.numel() == 0:\n        raise ValueError('expected rows')\n",
        named="raise ValueError('expected rows')",
    ),
    bug(
        "autograd: another forward",
        "test_value",
        "        return y\n →         return y.abs()\n",
        named="return y.abs()",
    ),
)

BUGS = (*UNSEEN, *SEVERAL_TILES, *RARE)
