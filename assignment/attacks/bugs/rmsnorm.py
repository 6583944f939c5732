"""Planted bugs of RMSNorm."""

from assignment.attacks.bugs import bug

PROBLEM = "rmsnorm"
FILES = ("rmsnorm.py",)

EPS = (
    bug("forward: no eps", "test_eps", "tl.sqrt(mean_of_squares + eps) → tl.sqrt(mean_of_squares)"),
    bug(
        "forward: eps outside of the root",
        "test_eps",
        "tl.sqrt(mean_of_squares + eps) → (tl.sqrt(mean_of_squares) + eps)",
    ),
    bug("forward: eps always 1e-5", "test_eps", "tl.sqrt(mean_of_squares + eps) → tl.sqrt(mean_of_squares + 1e-5)"),
    bug("forward: eps added to the sum", "test_eps", "sum_of_squares / d\n → (sum_of_squares + eps) / d - eps\n"),
    bug("forward: eps as the least mean", "test_eps", "(mean_of_squares + eps) → (tl.maximum(mean_of_squares, eps))"),
    bug(
        "forward: another default eps",
        "test_eps",
        "def rmsnorm_forward(x, weight, eps=1e-5) → def rmsnorm_forward(x, weight, eps=1e-6)",
    ),
    bug("autograd: eps not passed on", "test_value", "(x, weight, eps=eps) → (x, weight)"),
    bug("autograd: another default eps", "test_value", "rmsnorm(x, weight, eps=1e-5) → rmsnorm(x, weight, eps=1e-6)"),
    bug(
        "backward: rstd recomputed with an eps of 1e-5",
        "test_gradients",
        "tl.load(rstd_ptr + row * stride_sr) → 1.0 / tl.sqrt(tl.sum(x * x) / d + 1e-5)",
    ),
)

FORWARD = (
    bug(
        "forward: mean over the padded row", "test_forward_ragged", "sum_of_squares / d → sum_of_squares / D_TILE_SIZE"
    ),
    bug("forward: sum in place of the mean", "test_forward_values", "sum_of_squares / d\n → sum_of_squares\n"),
    bug(
        "forward: mean over the first tile only",
        "test_forward_wide",
        "for start in range(0, d, D_TILE_SIZE) → for start in range(0, D_TILE_SIZE, D_TILE_SIZE)",
    ),
    bug(
        "forward: y of the first tile only",
        "test_forward_wide",
        "for first_col in range(0, d, D_TILE_SIZE) → for first_col in range(0, D_TILE_SIZE, D_TILE_SIZE)",
    ),
    bug("forward: y of every tile from the last one", "test_forward_wide", "if not IS_ONE_TILE:\n → if False:\n"),
    bug(
        "forward: the mean subtracted, as in LayerNorm",
        "test_forward_values",
        "sum_of_squares += tl. → x -= tl.sum(x, axis=1)[:, None] / d\n        sum_of_squares += tl.",
    ),
    bug("forward: the weight forgotten", "test_forward_values", "x * rstd[:, None] * w[None, :] → x * rstd[:, None]"),
    bug(
        "forward: grid rounded down",
        "test_forward_ragged",
        "grid = (triton.cdiv(n_rows, rows_tile_size),) → grid = (n_rows // rows_tile_size,)",
    ),
    bug(
        "forward: columns past the end of x unmasked",
        "test_forward_ragged",
        "x_mask = row_mask[:, None] & (cols < d)[None, :] → x_mask = row_mask[:, None]",
    ),
    bug("forward: y stored past the last column", "test_forward_ragged", "mask=y_mask)\n → mask=row_mask[:, None])\n"),
    bug(
        "forward: d must be a power of two",
        "test_forward_ragged",
        "d_tile_size = min(triton.next_power_of_2(d), MAX_D_TILE_SIZE) → d_tile_size = min(d, MAX_D_TILE_SIZE)",
    ),
    bug("forward: x flattened with view", "test_forward_strides", "x_rows = x.reshape(-1, d) → x_rows = x.view(-1, d)"),
    bug(
        "forward: x's last stride taken to be 1",
        "test_forward_strides",
        "cols[None, :] * stride_xd, mask=x_mask → cols[None, :], mask=x_mask",
    ),
    bug("forward: weight's stride taken to be 1", "test_forward_strides", "+ cols * stride_wd → + cols"),
    bug(
        "forward: y laid out like x but stored as contiguous",
        "test_forward_strides",
        "y = torch.empty((n_rows, d), dtype=x.dtype, device=x.device) → y = torch.empty_like(x_rows)",
        "y.stride(0), y.stride(1), rstd → d, 1, rstd",
    ),
    bug("forward: row offsets in int32", "test_forward_offsets", "(0).to(tl.int64) * → (0) *"),
    bug(
        "forward: squares in the input's dtype",
        "test_forward_16_bit",
        "tl.sum(x * x, axis=1) → tl.sum((x * x).to(x_ptr.dtype.element_ty).to(tl.float32), axis=1)",
    ),
    bug(
        "forward: rstd used in the input's dtype",
        "test_forward_16_bit",
        "    rstd_ptrs =  →     rstd = rstd.to(x_ptr.dtype.element_ty).to(tl.float32)\n    rstd_ptrs = ",
    ),
    bug(
        "forward: rstd in the input's dtype",
        "test_forward_16_bit",
        "rstd = torch.empty(n_rows, dtype=torch.float32 → rstd = torch.empty(n_rows, dtype=x.dtype",
    ),
    bug(
        "forward: y always float32",
        "test_forward_16_bit",
        "y = torch.empty((n_rows, d), dtype=x.dtype → y = torch.empty((n_rows, d), dtype=torch.float32",
    ),
    bug(
        "forward: y written over x",
        "test_forward_contract",
        "y = torch.empty((n_rows, d), dtype=x.dtype, device=x.device) → y = x_rows",
    ),
    bug(
        "forward: rstd kept from call to call",
        "test_forward_contract",
        "MAX_D_TILE_SIZE = 16384\n → MAX_D_TILE_SIZE = 16384\nBUFFERS = {}\n",
        "    rstd = torch.empty(n_rows, dtype=torch.float32, device=x.device) → "
        "    rstd = BUFFERS.setdefault(n_rows, torch.empty(n_rows, dtype=torch.float32, device=x.device))",
    ),
    bug("forward: no checks", "test_forward_mistakes", "    _check_forward(x, weight)\n → "),
)

BACKWARD = (
    bug("backward: the x̂ term missing", "test_backward_values", "rstd * (w_grad_y - x_hat * mean) → rstd * w_grad_y"),
    bug("backward: the x̂ term added", "test_backward_values", "(w_grad_y - x_hat * mean) → (w_grad_y + x_hat * mean)"),
    bug(
        "backward: mean over the padded row",
        "test_backward_ragged",
        "tl.sum(w_grad_y * x_hat) / d → tl.sum(w_grad_y * x_hat) / D_TILE_SIZE",
    ),
    bug("backward: mean without the weight", "test_backward_values", "sum(w_grad_y * x_hat) → sum(grad_y * x_hat)"),
    bug("backward: the weight forgotten", "test_backward_values", "w_grad_y = w * grad_y → w_grad_y = grad_y"),
    bug("backward: grad_weight without rstd", "test_backward_values", "+= grad_y * x_hat → += grad_y * x"),
    bug("backward: grad_weight of a program's last row only", "test_backward_values", "+= grad_y * → = grad_y *"),
    bug(
        "backward: at most eight programs",
        "test_backward_ragged",
        "= triton.cdiv(n_rows, ROWS_PER_PROGRAM) → = min(8, triton.cdiv(n_rows, ROWS_PER_PROGRAM))",
    ),
    bug(
        "backward: all programs store to one partial row",
        "test_backward_values",
        "torch.empty((n_programs, d), dtype → torch.zeros((1, d), dtype",
        "partial_ptr + program * stride_pr + columns → partial_ptr + columns",
    ),
    bug(
        "backward: grid rounded down",
        "test_backward_ragged",
        "n_programs = triton.cdiv(n_rows, ROWS_PER_PROGRAM) → n_programs = n_rows // ROWS_PER_PROGRAM",
    ),
    bug(
        "backward: columns past the end of x unmasked", "test_backward_ragged", "x_ptrs, mask=mask, other=0.0 → x_ptrs"
    ),
    bug("backward: d must be a power of two", "test_backward_ragged", "=triton.next_power_of_2(d) → =d"),
    bug(
        "backward: wide rows cut at 16384",
        "test_backward_wide",
        "D_TILE_SIZE=triton.next_power_of_2(d) → D_TILE_SIZE=min(triton.next_power_of_2(d), MAX_D_TILE_SIZE)",
    ),
    bug(
        "backward: x's strides taken for grad_y's",
        "test_backward_strides",
        "grad_y_rows.stride(0), grad_y_rows.stride(1), → x_matrix.stride(0), x_matrix.stride(1),",
    ),
    bug("backward: grad_y's last stride taken to be 1", "test_backward_strides", "+ columns * stride_gyd → + columns"),
    bug("backward: rstd's stride taken to be 1", "test_backward_strides", "+ row * stride_sr → + row"),
    bug("backward: grad_y flattened with view", "test_backward_strides", "grad_y.reshape(-1, d) → grad_y.view(-1, d)"),
    bug(
        "backward: row offsets in int32",
        "test_backward_offsets",
        "program = tl.program_id(0).to(tl.int64) → program = tl.program_id(0)",
    ),
    bug(
        "backward: products in the input's dtype",
        "test_backward_16_bit",
        "grad_w += grad_y * x_hat → grad_w += (grad_y * x_hat).to(x_ptr.dtype.element_ty).to(tl.float32)",
    ),
    bug(
        "backward: grad_weight summed in the input's dtype",
        "test_backward_16_bit",
        "grad_w += grad_y * x_hat → grad_w = (grad_w + grad_y * x_hat).to(x_ptr.dtype.element_ty).to(tl.float32)",
    ),
    bug(
        "backward: partial sums in the input's dtype",
        "test_backward_16_bit",
        "torch.empty((n_programs, d), dtype=torch.float32 → torch.empty((n_programs, d), dtype=x.dtype",
    ),
    bug("backward: rstd cast to the input's dtype", "test_backward_16_bit", ".reshape(-1) → .reshape(-1).to(x.dtype)"),
    bug("backward: grad_weight always float32", "test_backward_16_bit", "grad_weight.to(weight.dtype) → grad_weight"),
    bug(
        "backward: grad_weight not a number for an empty batch",
        "test_backward_contract",
        "partial_grad_w.sum(dim=0) → partial_grad_w.mean(dim=0) * n_programs",
    ),
    bug(
        "backward: grad_x written over grad_y",
        "test_backward_contract",
        "grad_x = torch.empty((n_rows, d), dtype=x.dtype, device=x.device) → grad_x = grad_y_rows",
    ),
    bug("backward: no checks", "test_backward_mistakes", "    _check_backward(grad_y, x, weight, rstd)\n → "),
)

AUTOGRAD = (
    bug("autograd: y saved for x", "test_gradients", "(x, weight, rstd) → (y, weight, rstd)"),
    bug(
        "autograd: not a Function",
        "test_gradients",
        "return RMSNorm.apply(x, weight, eps) → return rmsnorm_forward(x, weight, eps)[0]",
    ),
    bug("autograd: no gradient for eps", "test_gradients", "grad_x, grad_weight, None → grad_x, grad_weight"),
    bug(
        "autograd: gradients only if all are asked for",
        "test_gradients",
        "        grad_x, grad_weight = rmsnorm_backward →         if not all(ctx.needs_input_grad[:2]):\n"
        "            return None, None, None\n        grad_x, grad_weight = rmsnorm_backward",
    ),
    bug(
        "autograd: backward runs once only",
        "test_gradients",
        "ctx.save_for_backward(x, weight, rstd) → ctx.saved = [(x, weight, rstd)]",
        "x, weight, rstd = ctx.saved_tensors → x, weight, rstd = ctx.saved.pop()",
    ),
    bug(
        "autograd: rstd kept in the class, not in the graph",
        "test_gradients",
        "ctx.save_for_backward(x, weight, rstd) → ctx.save_for_backward(x, weight)\n        RMSNorm.rstd = rstd",
        "x, weight, rstd = ctx.saved_tensors → x, weight = ctx.saved_tensors\n        rstd = RMSNorm.rstd",
    ),
)

UNSEEN = (
    bug("forward: y stored past the last row", "test_forward_ragged", "mask=y_mask)\n → mask=col_mask[None, :])\n"),
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
        "test_cost.py::test_rmsnorm_forward_traffic",
        "if not IS_ONE_TILE:\n → if True:\n",
    ),
    bug(
        "forward: x copied to float32 first",
        "test_cost.py::test_rmsnorm_forward_traffic",
        "x_rows = x.reshape(-1, d) → x_rows = x.reshape(-1, d).float()",
    ),
    bug(
        "forward: PyTorch's own rms_norm behind a kernel",
        "test_forward_values",
        "return y.reshape(x.shape), rstd → return torch.nn.functional.rms_norm(x, (d,), weight, eps), rstd",
        computed="torch.nn.functional.rms_norm(",
    ),
)

RARE = (
    bug(
        "forward: no x without a batch dimension",
        "test_forward_ragged",
        "    _check_forward(x, weight)\n →     _check_forward(x, weight)\n    n_batches = x.shape[-2]\n",
    ),
    bug(
        "backward: no x without a batch dimension",
        "test_backward_ragged",
        "    _check_backward(grad_y, x, weight, rstd)\n →     _check_backward(grad_y, x, weight, rstd)\n"
        "    n_batches = x.shape[-2]\n",
    ),
    bug(
        "forward: rstd kept from getting small",
        "test_forward_outliers",
        "rstd = 1.0 / tl.sqrt(mean_of_squares + eps) → rstd = 1.0 / tl.sqrt(tl.minimum(mean_of_squares, 1e9) + eps)",
    ),
    bug(
        "backward: rstd kept from getting large",
        "test_backward_outliers",
        "rstd = tl.load(rstd_ptr + row * stride_sr) → rstd = tl.minimum(tl.load(rstd_ptr + row * stride_sr), 50.0)",
    ),
    bug(
        "forward: eps kept from getting large",
        "test_eps",
        "            n_rows, d, eps,\n →             n_rows, d, min(eps, 0.3),\n",
    ),
    bug(
        "forward: an empty batch refused",
        "test_forward_contract",
        "    _check_forward(x, weight)\n →     _check_forward(x, weight)\n"
        "    if x.numel() == 0:\n        raise ValueError('expected rows')\n",
    ),
    bug(
        "autograd: another forward",
        "test_value",
        "        return y\n →         return y.abs()\n",
    ),
)

BUGS = (*EPS, *FORWARD, *BACKWARD, *AUTOGRAD, *UNSEEN, *RARE)
