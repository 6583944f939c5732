"""Planted bugs of RMSNorm."""

from assignment.attacks.bugs import bug

PROBLEM = "rmsnorm"
FILES = ("rmsnorm.py",)

EPS = (
    bug(
        "forward: no eps", "test_eps", "tl.sqrt(mean_of_squares + eps) → tl.sqrt(mean_of_squares)", named="eps-missing"
    ),
    bug(
        "forward: eps outside of the root",
        "test_eps",
        "tl.sqrt(mean_of_squares + eps) → (tl.sqrt(mean_of_squares) + eps)",
        named="eps-outside-the-root",
    ),
    bug(
        "forward: eps always 1e-5",
        "test_eps",
        "tl.sqrt(mean_of_squares + eps) → tl.sqrt(mean_of_squares + 1e-5)",
        named="eps-fixed",
    ),
    bug(
        "forward: eps added to the sum",
        "test_eps",
        "sum_of_squares / d\n → (sum_of_squares + eps) / d - eps\n",
        named="eps-added-to-the-sum",
    ),
    bug(
        "forward: eps as the least mean",
        "test_eps",
        "(mean_of_squares + eps) → (tl.maximum(mean_of_squares, eps))",
        named="eps-as-a-limit",
    ),
    bug(
        "forward: another default eps",
        "test_eps",
        "def rmsnorm_forward(x, weight, eps=1e-5) → def rmsnorm_forward(x, weight, eps=1e-6)",
        named="eps-fixed",
    ),
    bug("autograd: eps not passed on", "test_value", "(x, weight, eps=eps) → (x, weight)", named="eps-fixed"),
    bug(
        "autograd: another default eps",
        "test_value",
        "rmsnorm(x, weight, eps=1e-5) → rmsnorm(x, weight, eps=1e-6)",
        named="eps-fixed",
    ),
    bug(
        "backward: rstd recomputed with an eps of 1e-5",
        "test_gradients",
        "tl.load(rstd_ptr + row * stride_sr) → 1.0 / tl.sqrt(tl.sum(x * x) / d + 1e-5)",
        named="rstd-recomputed-with-another-eps",
    ),
)

FORWARD = (
    bug(
        "forward: mean over the padded row",
        "test_forward_ragged",
        "sum_of_squares / d → sum_of_squares / D_TILE_SIZE",
        named="mean-over-the-padded-row",
    ),
    bug(
        "forward: sum in place of the mean",
        "test_forward_values",
        "sum_of_squares / d\n → sum_of_squares\n",
        named="sum-for-mean",
    ),
    bug(
        "forward: mean over the first tile only",
        "test_forward_wide",
        "for start in range(0, d, D_TILE_SIZE) → for start in range(0, D_TILE_SIZE, D_TILE_SIZE)",
        named="one-tile-of-columns",
    ),
    bug(
        "forward: y of the first tile only",
        "test_forward_wide",
        "for first_col in range(0, d, D_TILE_SIZE) → for first_col in range(0, D_TILE_SIZE, D_TILE_SIZE)",
        named="never stored",
    ),
    bug(
        "forward: y of every tile from the last one",
        "test_forward_wide",
        "if not IS_ONE_TILE:\n → if False:\n",
        named="y-from-the-last-tile",
    ),
    bug(
        "forward: the mean subtracted, as in LayerNorm",
        "test_forward_values",
        "sum_of_squares += tl. → x -= tl.sum(x, axis=1)[:, None] / d\n        sum_of_squares += tl.",
        named="mean-subtracted",
    ),
    bug(
        "forward: the weight forgotten",
        "test_forward_values",
        "x * rstd[:, None] * w[None, :] → x * rstd[:, None]",
        named="weight-forgotten",
    ),
    bug(
        "forward: grid rounded down",
        "test_forward_ragged",
        "grid = (triton.cdiv(n_rows, rows_tile_size),) → grid = (n_rows // rows_tile_size,)",
        named="never stored",
    ),
    bug(
        "forward: columns past the end of x unmasked",
        "test_forward_ragged",
        "x_mask = row_mask[:, None] & (cols < d)[None, :] → x_mask = row_mask[:, None]",
        named="x = tl.load(x_row_ptrs + cols[None, :] * strid",
    ),
    bug(
        "forward: y stored past the last column",
        "test_forward_ragged",
        "mask=y_mask)\n → mask=row_mask[:, None])\n",
        named="tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty),",
    ),
    bug(
        "forward: d must be a power of two",
        "test_forward_ragged",
        "d_tile_size = min(triton.next_power_of_2(d), MAX_D_TILE_SIZE) → d_tile_size = min(d, MAX_D_TILE_SIZE)",
        named="rows = tl.program_id(0).to(tl.int64) * ROWS_TI",
    ),
    bug(
        "forward: x flattened with view",
        "test_forward_strides",
        "x_rows = x.reshape(-1, d) → x_rows = x.view(-1, d)",
        named="x_rows = x.view(-1, d)",
    ),
    bug(
        "forward: x's last stride taken to be 1",
        "test_forward_strides",
        "cols[None, :] * stride_xd, mask=x_mask → cols[None, :], mask=x_mask",
        named=(
            "x is read as if its last stride were 1",
            "is every index multiplied by its own stride",
            "strides 1 along axis 1 (those of a contiguous tensor)",
        ),
    ),
    bug(
        "forward: weight's stride taken to be 1",
        "test_forward_strides",
        "+ cols * stride_wd → + cols",
        named="w = tl.load(w_ptrs, mask=col_mask, other=0.0).",
    ),
    bug(
        "forward: y laid out like x but stored as contiguous",
        "test_forward_strides",
        "y = torch.empty((n_rows, d), dtype=x.dtype, device=x.device) → y = torch.empty_like(x_rows)",
        "y.stride(0), y.stride(1), rstd → d, 1, rstd",
        named="right, but stored as if it were contiguous",
    ),
    bug(
        "forward: row offsets in int32",
        "test_forward_offsets",
        "(0).to(tl.int64) * → (0) *",
        named="x = tl.load(x_row_ptrs + cols[None, :] * strid",
    ),
    bug(
        "forward: squares in the input's dtype",
        "test_forward_16_bit",
        "tl.sum(x * x, axis=1) → tl.sum((x * x).to(x_ptr.dtype.element_ty).to(tl.float32), axis=1)",
        named="squares-in-16-bits",
    ),
    bug(
        "forward: rstd used in the input's dtype",
        "test_forward_16_bit",
        "    rstd_ptrs =  →     rstd = rstd.to(x_ptr.dtype.element_ty).to(tl.float32)\n    rstd_ptrs = ",
        named="rstd-in-16-bits",
    ),
    bug(
        "forward: rstd in the input's dtype",
        "test_forward_16_bit",
        "rstd = torch.empty(n_rows, dtype=torch.float32 → rstd = torch.empty(n_rows, dtype=x.dtype",
        named="rstd is ",
    ),
    bug(
        "forward: y always float32",
        "test_forward_16_bit",
        "y = torch.empty((n_rows, d), dtype=x.dtype → y = torch.empty((n_rows, d), dtype=torch.float32",
        named="y is float32",
    ),
    bug(
        "forward: y written over x",
        "test_forward_contract",
        "y = torch.empty((n_rows, d), dtype=x.dtype, device=x.device) → y = x_rows",
        named="tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty),",
    ),
    bug(
        "forward: rstd kept from call to call",
        "test_forward_contract",
        "MAX_D_TILE_SIZE = 16384\n → MAX_D_TILE_SIZE = 16384\nBUFFERS = {}\n",
        "    rstd = torch.empty(n_rows, dtype=torch.float32, device=x.device) → "
        "    rstd = BUFFERS.setdefault(n_rows, torch.empty(n_rows, dtype=torch.float32, device=x.device))",
        named="the second call returned the memory of the fir",
    ),
    bug(
        "forward: no checks",
        "test_forward_mistakes",
        "    _check_forward(x, weight)\n → ",
        named="expected a ValueError before any launch",
    ),
)

BACKWARD = (
    bug(
        "backward: the x̂ term missing",
        "test_backward_values",
        "rstd * (w_grad_y - x_hat * mean) → rstd * w_grad_y",
        named="correction-missing",
    ),
    bug(
        "backward: the x̂ term added",
        "test_backward_values",
        "(w_grad_y - x_hat * mean) → (w_grad_y + x_hat * mean)",
        named="correction-added",
    ),
    bug(
        "backward: mean over the padded row",
        "test_backward_ragged",
        "tl.sum(w_grad_y * x_hat) / d → tl.sum(w_grad_y * x_hat) / D_TILE_SIZE",
        named="backward-mean-over-the-padded-row",
    ),
    bug(
        "backward: mean without the weight",
        "test_backward_values",
        "sum(w_grad_y * x_hat) → sum(grad_y * x_hat)",
        named="mean-without-the-weight",
    ),
    bug(
        "backward: the weight forgotten",
        "test_backward_values",
        "w_grad_y = w * grad_y → w_grad_y = grad_y",
        named="backward-weight-forgotten",
    ),
    bug(
        "backward: grad_weight without rstd",
        "test_backward_values",
        "+= grad_y * x_hat → += grad_y * x",
        named="x-for-x-hat",
    ),
    bug(
        "backward: grad_weight of a program's last row only",
        "test_backward_values",
        "+= grad_y * → = grad_y *",
        named="rows-lost-in-grad-weight",
    ),
    bug(
        "backward: at most eight programs",
        "test_backward_ragged",
        "= triton.cdiv(n_rows, ROWS_PER_PROGRAM) → = min(8, triton.cdiv(n_rows, ROWS_PER_PROGRAM))",
        named="never stored",
    ),
    bug(
        "backward: all programs store to one partial row",
        "test_backward_values",
        "torch.empty((n_programs, d), dtype → torch.zeros((1, d), dtype",
        "partial_ptr + program * stride_pr + columns → partial_ptr + columns",
        named="tl.store(partial_ptrs, grad_w, mask=mask)",
    ),
    bug(
        "backward: grid rounded down",
        "test_backward_ragged",
        "n_programs = triton.cdiv(n_rows, ROWS_PER_PROGRAM) → n_programs = n_rows // ROWS_PER_PROGRAM",
        named="never stored",
    ),
    bug(
        "backward: columns past the end of x unmasked",
        "test_backward_ragged",
        "x_ptrs, mask=mask, other=0.0 → x_ptrs",
        named="x = tl.load(x_ptrs).to(tl.float32)",
    ),
    bug(
        "backward: d must be a power of two",
        "test_backward_ragged",
        "=triton.next_power_of_2(d) → =d",
        named="columns = tl.arange(0, D_TILE_SIZE).to(tl.int6",
    ),
    bug(
        "backward: wide rows cut at 16384",
        "test_backward_wide",
        "D_TILE_SIZE=triton.next_power_of_2(d) → D_TILE_SIZE=min(triton.next_power_of_2(d), MAX_D_TILE_SIZE)",
        named="never stored",
    ),
    bug(
        "backward: x's strides taken for grad_y's",
        "test_backward_strides",
        "grad_y_rows.stride(0), grad_y_rows.stride(1), → x_matrix.stride(0), x_matrix.stride(1),",
        named="grad_y = tl.load(grad_y_ptrs, mask=mask, other",
    ),
    bug(
        "backward: grad_y's last stride taken to be 1",
        "test_backward_strides",
        "+ columns * stride_gyd → + columns",
        named="grad_y = tl.load(grad_y_ptrs, mask=mask, other",
    ),
    bug(
        "backward: rstd's stride taken to be 1",
        "test_backward_strides",
        "+ row * stride_sr → + row",
        named="rstd = tl.load(rstd_ptr + row)",
    ),
    bug(
        "backward: grad_y flattened with view",
        "test_backward_strides",
        "grad_y.reshape(-1, d) → grad_y.view(-1, d)",
        named="grad_y_rows = grad_y.view(-1, d)",
    ),
    bug(
        "backward: row offsets in int32",
        "test_backward_offsets",
        "program = tl.program_id(0).to(tl.int64) → program = tl.program_id(0)",
        named="x = tl.load(x_ptrs, mask=mask, other=0.0).to(t",
    ),
    bug(
        "backward: products in the input's dtype",
        "test_backward_16_bit",
        "grad_w += grad_y * x_hat → grad_w += (grad_y * x_hat).to(x_ptr.dtype.element_ty).to(tl.float32)",
        named="backward-products-in-16-bits",
    ),
    bug(
        "backward: grad_weight summed in the input's dtype",
        "test_backward_16_bit",
        "grad_w += grad_y * x_hat → grad_w = (grad_w + grad_y * x_hat).to(x_ptr.dtype.element_ty).to(tl.float32)",
        named="grad-weight-summed-in-16-bits",
    ),
    bug(
        "backward: partial sums in the input's dtype",
        "test_backward_16_bit",
        "torch.empty((n_programs, d), dtype=torch.float32 → torch.empty((n_programs, d), dtype=x.dtype",
        named="grad-weight-summed-in-16-bits",
    ),
    bug(
        "backward: rstd cast to the input's dtype",
        "test_backward_16_bit",
        ".reshape(-1) → .reshape(-1).to(x.dtype)",
        named="backward-rstd-in-16-bits",
    ),
    bug(
        "backward: grad_weight always float32",
        "test_backward_16_bit",
        "grad_weight.to(weight.dtype) → grad_weight",
        named="grad_weight is float32",
    ),
    bug(
        "backward: grad_weight not a number for an empty batch",
        "test_backward_contract",
        "partial_grad_w.sum(dim=0) → partial_grad_w.mean(dim=0) * n_programs",
        named="a mean over no rows is 0/0",
    ),
    bug(
        "backward: grad_x written over grad_y",
        "test_backward_contract",
        "grad_x = torch.empty((n_rows, d), dtype=x.dtype, device=x.device) → grad_x = grad_y_rows",
        named="tl.store(grad_x_ptrs, grad_x.to(grad_x_ptr.dty",
    ),
    bug(
        "backward: no checks",
        "test_backward_mistakes",
        "    _check_backward(grad_y, x, weight, rstd)\n → ",
        named="expected a ValueError before any launch",
    ),
)

AUTOGRAD = (
    bug("autograd: y saved for x", "test_gradients", "(x, weight, rstd) → (y, weight, rstd)", named="y-for-x"),
    bug(
        "autograd: not a Function",
        "test_gradients",
        "return RMSNorm.apply(x, weight, eps) → return rmsnorm_forward(x, weight, eps)[0]",
        named="returned a tensor without a gradient",
    ),
    bug(
        "autograd: no gradient for eps",
        "test_gradients",
        "grad_x, grad_weight, None → grad_x, grad_weight",
        named="returned an incorrect number of gradients",
    ),
    bug(
        "autograd: gradients only if all are asked for",
        "test_gradients",
        "        grad_x, grad_weight = rmsnorm_backward →         if not all(ctx.needs_input_grad[:2]):\n"
        "            return None, None, None\n        grad_x, grad_weight = rmsnorm_backward",
        named="no gradient came for",
    ),
    bug(
        "autograd: backward runs once only",
        "test_gradients",
        "ctx.save_for_backward(x, weight, rstd) → ctx.saved = [(x, weight, rstd)]",
        "x, weight, rstd = ctx.saved_tensors → x, weight, rstd = ctx.saved.pop()",
        named="x, weight, rstd = ctx.saved.pop()",
    ),
    bug(
        "autograd: rstd kept in the class, not in the graph",
        "test_gradients",
        "ctx.save_for_backward(x, weight, rstd) → ctx.save_for_backward(x, weight)\n        RMSNorm.rstd = rstd",
        "x, weight, rstd = ctx.saved_tensors → x, weight = ctx.saved_tensors\n        rstd = RMSNorm.rstd",
        named="another forward pass that came in between",
    ),
)

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

BUGS = (*EPS, *FORWARD, *BACKWARD, *AUTOGRAD, *UNSEEN, *RARE)
