"""Bias and GELU gone wrong, each a few edits away from the solution."""

from assignment.attacks.bugs import bug

PROBLEM = "bias_gelu"
FILES = ("practice/bias_gelu.py",)
Z = "    z = tl.load(x_ptrs, mask=tile_mask, other=0.0).to(tl.float32) + bias[None, :]  #"
BACK_Z = "        z = tl.load(x_ptrs, mask=tile_mask, other=0.0).to(tl.float32) + bias[None, :]\n"
Y = "y = z * _share(z, IS_TANH)"
ERF = "share = 0.5 * (1.0 + tl.erf(z * SQRT_1_2))"
TANH = "share = 1.0 / (1.0 + tl.exp(-TWICE_SQRT_2_PI * (z + CUBIC * z * z * z)))"
GRAD_X = "grad_x = grad_y * (share + z * density)"
SUMMED = "grad_bias += grad_x"
STORED = "tl.store(partial_ptrs, tl.sum(grad_bias, axis=0), mask=col_mask)"
PROGRAMS = "return min(triton.cdiv(n_rows, MIN_ROWS_PER_PROGRAM), most)"

FORWARD = [
    bug("forward: no bias", "test_forward_values", f"{Y} → z -= bias[None, :]\n    {Y}", named="no-bias"),
    bug(
        "forward: bias after the GELU",
        "test_forward_values",
        f"{Y} → z -= bias[None, :]\n    {Y} + bias[None, :]",
        named="bias-after",
    ),
    bug(
        "forward: x in front",
        "test_forward_values",
        f"{Y} → y = (z - bias[None, :]) * _share(z, IS_TANH)",
        named="x-in-front",
    ),
    bug(
        "forward: bias subtracted",
        "test_forward_values",
        f"{Y} → z -= 2 * bias[None, :]\n    {Y}",
        named="bias-subtracted",
    ),
    bug(
        "forward: erf without the root",
        "test_forward_values",
        f"{ERF} → share = 0.5 * (1.0 + tl.erf(z))",
        named="erf-of-z",
    ),
    bug("forward: no half", "test_forward_values", f"{Y} → y = 2.0 * z * _share(z, IS_TANH)", named="half-missing"),
    bug(
        "forward: a sigmoid",
        "test_forward_values",
        f"{ERF} → share = 1.0 / (1.0 + tl.exp(-1.702 * z))",
        named="a-sigmoid-of-z",
    ),
    bug("forward: ReLU", "test_forward_values", f"{Y} → y = tl.maximum(z, 0.0)", named="relu"),
    bug(
        "forward: always erf",
        "test_forward_tanh",
        '*y.stride(),\n            n_rows, d,\n            IS_TANH=approximate == "tanh" → '
        "*y.stride(),\n            n_rows, d,\n            IS_TANH=False",
        named="the-other-form",
    ),
    bug(
        "forward: tanh without the cubic term",
        "test_forward_tanh",
        f"{TANH} → share = 1.0 / (1.0 + tl.exp(-TWICE_SQRT_2_PI * z))",
        named="no-cubic-term",
    ),
    bug(
        "forward: a quotient of powers",
        "test_forward_tails",
        f"{TANH} → power = tl.exp(TWICE_SQRT_2_PI * (z + CUBIC * z * z * z))\n        share = power / (1.0 + power)",
        named="inf-over-inf",
    ),
    bug(
        "forward: the last columns of x loaded past the end",
        "test_forward_ragged",
        "z = tl.load(x_ptrs, mask=tile_mask, other=0.0).to(tl.float32) + bias[None, :]  # → "
        "z = tl.load(x_ptrs, mask=(rows < n_rows)[:, None]).to(tl.float32) + bias[None, :]  #",
        line="z = tl.load(x_ptrs",
    ),
    bug(
        "forward: stored past the end",
        "test_forward_ragged",
        "tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=tile_mask) → "
        "tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=(rows < n_rows)[:, None])",
        line="tl.store(y_ptrs",
    ),
    bug(
        "forward: one column tile only",
        "test_forward_wide",
        "[(triton.cdiv(n_rows, rows_tile_size), triton.cdiv(d, d_tile_size))] → "
        "[(triton.cdiv(n_rows, rows_tile_size), 1)]",
        line="never stored",
    ),
    bug(
        "forward: the stride of bias taken to be 1",
        "test_forward_strides",
        "x_rows, bias, y,\n            *x_rows.stride(), *bias.stride(), → "
        "x_rows, bias, y,\n            *x_rows.stride(), 1,",
        named=("bias is read as if", "bias = tl.load(bias_ptr"),
    ),
    bug(
        "forward: row offsets in int32",
        "test_forward_offsets",
        "rows = tl.program_id(0).to(tl.int64) * ROWS_TILE_SIZE → rows = tl.program_id(0) * ROWS_TILE_SIZE",
        named="z = tl.load(x_ptrs",
    ),
    bug(
        "forward: always float32",
        "test_forward_16_bit",
        "y = x_rows.new_empty(n_rows, d) → y = x_rows.new_empty(n_rows, d, dtype=torch.float32)",
        named="y is float32",
    ),
    bug(
        "forward: in place",
        "test_forward_contract",
        "y = x_rows.new_empty(n_rows, d) → y = x_rows",
        line="tl.store(y_ptrs",
    ),
    bug(
        "forward: x + bias by PyTorch",
        "test_forward_values",
        "    n_rows, d = x_rows.shape\n    y = →     x_rows, bias = x_rows + bias, bias * 0\n"
        "    n_rows, d = x_rows.shape\n    y =",
        computed="x_rows, bias = x_rows + bias",
    ),
    bug(
        "forward: a float32 copy of x",
        "test_forward_traffic",
        "    n_rows, d = x_rows.shape\n    y = x_rows.new_empty(n_rows, d) →     n_rows, d = x_rows.shape\n"
        "    x_rows = x_rows.clone()\n    y = x_rows.new_empty(n_rows, d)",
        named="x is read",
    ),
]
BACKWARD = [
    bug(
        "backward: the product rule forgotten",
        "test_backward_values",
        f"{GRAD_X} → grad_x = grad_y * share",
        named="product-rule-forgotten",
    ),
    bug(
        "backward: the density alone",
        "test_backward_values",
        f"{GRAD_X} → grad_x = grad_y * z * density",
        named="density-alone",
    ),
    bug(
        "backward: z forgotten",
        "test_backward_values",
        f"{GRAD_X} → grad_x = grad_y * (share + density)",
        named="density-without-z",
    ),
    bug(
        "backward: the density without its factor",
        "test_backward_values",
        "density = INV_SQRT_2_PI * tl.exp(-0.5 * z * z) → density = tl.exp(-0.5 * z * z)",
        named="density-not-normalised",
    ),
    bug(
        "backward: no bias",
        "test_backward_values",
        f"{BACK_Z} → {BACK_Z.replace(' + bias[None, :]', ' + 0 * bias[None, :]')}",
        named="backward-without-the-bias",
    ),
    bug(
        "backward: always erf",
        "test_backward_tanh",
        '*partial_grad_bias.stride(),\n            n_rows, d,\n            IS_TANH=approximate == "tanh" → '
        "*partial_grad_bias.stride(),\n            n_rows, d,\n            IS_TANH=False",
        named="gradient-of-the-other-form",
    ),
    bug(
        "backward: the inner derivative",
        "test_backward_tanh",
        "* (1.0 + 3.0 * CUBIC * z * z) → * 1.0",
        named="inner-slope-missing",
    ),
    bug(
        "backward: grad_bias of grad_y",
        "test_backward_values",
        f"{SUMMED} → grad_bias += grad_y",
        named="grad-bias-of-grad-y",
    ),
    bug(
        "backward: grad_bias a mean",
        "test_backward_values",
        "partial_grad_bias.sum(dim=0).to → (partial_grad_bias.sum(dim=0) / max(n_rows, 1)).to",
        named="grad-bias-the-mean",
    ),
    bug(
        "backward: the last rows of a program only",
        "test_backward_values",
        f"{SUMMED} → grad_bias = grad_x",
        named="rows-lost-in-grad-bias",
    ),
    bug(
        "backward: all programs add to one row",
        "test_backward_values",
        f"{STORED} → tl.store(partial_ptrs, tl.load(partial_ptrs, mask=col_mask, other=0.0) + "
        "tl.sum(grad_bias, axis=0), mask=col_mask)",
        "partial_ptr + row_program * stride_pr + cols → partial_ptr + cols",
        "partial_grad_bias = x_rows.new_empty(n_row_programs, d → partial_grad_bias = x_rows.new_zeros(1, d",
        line="tl.store(partial_ptrs, tl.load(",
    ),
    bug(
        "backward: rows divided downwards",
        "test_backward_ragged",
        f"{PROGRAMS} → return min(n_rows // MIN_ROWS_PER_PROGRAM, most)",
        line="never stored",
    ),
    bug(
        "backward: rows past the end",
        "test_backward_ragged",
        "grad_y = tl.load(grad_y_ptrs, mask=tile_mask, other=0.0) → "
        "grad_y = tl.load(grad_y_ptrs, mask=col_mask[None, :], other=0.0)",
        line="grad_y = tl.load(",
    ),
    bug(
        "backward: partial sums in the dtype of x",
        "test_backward_16_bit",
        "new_empty(n_row_programs, d, dtype=torch.float32) → new_empty(n_row_programs, d)",
        named="grad-bias-summed-in-16-bits",
    ),
    bug(
        "backward: grad_bias always float32",
        "test_backward_16_bit",
        "sum(dim=0).to(bias.dtype) → sum(dim=0)",
        named="grad_bias is float32",
    ),
    bug(
        "backward: grad_y's last stride taken to be 1",
        "test_backward_strides",
        "+ cols[None, :] * stride_gyd → + cols[None, :]",
        named=("grad_y is read as if", "grad_y = tl.load("),
    ),
    bug(
        "backward: row offsets in int32",
        "test_backward_offsets",
        "row_program = tl.program_id(0).to(tl.int64) → row_program = tl.program_id(0)",
        "rows = start + tl.arange(0, ROWS_TILE_SIZE).to(tl.int64) → rows = start + tl.arange(0, ROWS_TILE_SIZE)",
        named=("z = tl.load(x_ptrs", "grad_y = tl.load("),
    ),
    bug(
        "backward: not a number for an empty batch",
        "test_backward_contract",
        "partial_grad_bias.sum(dim=0).to → (partial_grad_bias.mean(dim=0) * n_row_programs).to",
        named="a mean over no rows is 0/0",
    ),
]
AUTOGRAD = [
    bug(
        "autograd: the form forgotten",
        "test_gradients",
        "x, bias, approximate=ctx.approximate) → x, bias)",
        named="gradient-of-the-other-form",
    ),
    bug(
        "autograd: the form not passed on",
        "test_value",
        "return bias_gelu_forward(x, bias, approximate=approximate) → return bias_gelu_forward(x, bias)",
        named="the-other-form",
    ),
    bug(
        "autograd: not a Function",
        "test_gradients",
        "return BiasGelu.apply(x, bias, approximate) → return bias_gelu_forward(x, bias, approximate)",
        named="returned a tensor without a gradient",
    ),
    bug(
        "autograd: no gradient for the form",
        "test_gradients",
        "approximate=ctx.approximate), None → approximate=ctx.approximate),",
        named="returned an incorrect number of gradients",
    ),
]
BUGS = [*FORWARD, *BACKWARD, *AUTOGRAD]
