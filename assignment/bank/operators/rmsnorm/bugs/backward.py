"""Planted bugs of RMSNorm: the backward pass."""

from assignment.bank.operators.edits import bug

PROBLEM = "rmsnorm"
FILES = ("rmsnorm.py",)

BUGS = (
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
