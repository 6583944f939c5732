"""Planted bugs of the weighted sum: memory and work that its results do not show, and inputs that are rare."""

from assignment.bank.operators.edits import bug

PROBLEM = "weighted_sum"
FILES = ("weighted_sum.py",)

UNSEEN = (
    bug(
        "forward: y stored past the last row",
        "test_forward_ragged",
        ", mask=row_mask → ",
        named="tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty))",
    ),
    bug(
        "forward: x copied to float32 first",
        "test_weighted_sum.py::test_forward_traffic",
        "x_rows = x.reshape(-1, d) → x_rows = x.reshape(-1, d).float()",
        named="x is read",
    ),
    bug(
        "forward: a kernel whose result is thrown away",
        "test_forward_values",
        "return y.reshape(x.shape[:-1]) → return (x.float() * weight.float()).sum(-1).to(x.dtype)",
        computed="(x.float() * weight.float()).sum(-1)",
    ),
    bug(
        "backward: no kernel",
        "test_backward_values",
        "    _check_backward(grad_y, x, weight)\n →     _check_backward(grad_y, x, weight)\n"
        "    outer = grad_y.float()[..., None]\n    grad_w = (outer * x.float()).reshape(-1, x.shape[-1]).sum(0)\n"
        "    return (outer * weight.float()).to(x.dtype), grad_w.to(x.dtype)\n",
        computed="(outer * weight.float())",
    ),
)

SEVERAL_TILES = (
    bug(
        "forward: a capped grid, and no loop over tiles",
        "test_forward_values",
        "grid = (triton.cdiv(n_rows, ROWS_TILE_SIZE),) → grid = (min(triton.cdiv(n_rows, ROWS_TILE_SIZE), 132),)",
        named="never stored",
    ),
    bug(
        "backward: a capped grid, and no loop over tiles",
        "test_backward_values",
        "n_tiles = triton.cdiv(n_rows, ROWS_TILE_SIZE) → n_tiles = min(triton.cdiv(n_rows, ROWS_TILE_SIZE), 2 * 132)",
        named="never stored",
    ),
)

RARE = (
    bug(
        "forward: what is next to zero taken for zero",
        "test_outliers",
        "        y += tl.sum( →         x = tl.where(tl.abs(x) < 1e-6, 0.0, x)\n        y += tl.sum(",
        named="small-taken-for-zero",
    ),
    bug(
        "backward: no x without a batch dimension",
        "test_backward_ragged",
        "    _check_backward(grad_y, x, weight)\n → "
        "    _check_backward(grad_y, x, weight)\n    n_batches = x.shape[-2]\n",
        named="n_batches = x.shape[-2]",
    ),
    bug(
        "autograd: another forward",
        "test_value",
        "        return weighted_sum_forward(x, weight) →         return weighted_sum_forward(x, weight.abs())",
        named="return weighted_sum_forward(x, weight.abs())",
    ),
)

BUGS = (*UNSEEN, *SEVERAL_TILES, *RARE)
