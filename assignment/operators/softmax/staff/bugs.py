"""Softmaxes that are wrong, each a few edits away from the plain one in base/."""

from assignment.attacks.bugs import bug

PROBLEM = "softmax"
FILES = ("practice/softmax.py",)
CAST = "y.to(y_ptr.dtype.element_ty), mask=y_mask"
DIVIDED = "y = tl.exp(x - shift) / total"
RESCALED = "total = total * tl.exp(row_max - shift) + tl.sum(powers, axis=0)"
SHIFT = '        shift = tl.where(new_max == float("-inf"), 0.0, new_max)'
LAST_SHIFT = '    shift = tl.where(row_max == float("-inf"), 0.0, row_max)'
MADE = "y = torch.empty((n_rows, d), dtype=x.dtype, device=x.device)"
LOADED = "x = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=col_mask"
GRADIENT = "grad_x = y * (grad_y - dot)"
STORED = "grad_x.to(grad_x_ptr.dtype.element_ty), mask=grad_x_mask"

FORWARD = [
    bug(
        "forward: no maximum subtracted",
        "test_forward_outliers",
        f"{SHIFT} →         shift = 0.0",
        f"{LAST_SHIFT} →     shift = 0.0",
        RESCALED + " → total = total + tl.sum(powers, axis=0)",
        named="no-max",
    ),
    bug(
        "forward: the maximum starts at 0",
        "test_forward_outliers",
        'row_max = float("-inf")\n → row_max = 0.0\n',
        named="max-from-zero",
    ),
    bug("forward: not divided", "test_forward_values", f"{DIVIDED} → y = tl.exp(x - shift)", named="not-divided"),
    bug(
        "forward: base 2",
        "test_forward_values",
        "powers = tl.exp( → powers = tl.exp2(",
        "tl.exp(row_max - shift) → tl.exp2(row_max - shift)",
        "y = tl.exp(x → y = tl.exp2(x",
        named="base-2",
    ),
    bug(
        "forward: the sign",
        "test_forward_values",
        'other=float("-inf")).to(tl.float32) → other=float("inf")).to(tl.float32) * -1',
        named="negated",
    ),
    bug(
        "forward: the logarithm",
        "test_forward_values",
        f"{DIVIDED} → y = x - shift - tl.log(total)",
        named="the-logarithm",
    ),
    bug(
        "forward: divided by the mean",
        "test_forward_values",
        f"{DIVIDED} → y = tl.exp(x - shift) / (total / d)",
        named="mean-for-sum",
    ),
    bug(
        "forward: rows padded with zeros",
        "test_forward_ragged",
        f'{LOADED}, other=float("-inf") → {LOADED}, other=0.0',
        named="padding-in-the-sum",
    ),
    bug(
        "forward: rows padded with their maximum",
        "test_forward_ragged",
        "powers = tl.exp(x - shift) → powers = tl.exp(tl.where(col_mask, x - shift, 0.0))",
        named="padding-as-large-as-the-max",
    ),
    bug(
        "forward: the sum not rescaled",
        "test_forward_wide",
        f"{RESCALED} → total = total + tl.sum(powers, axis=0)",
        named="sum-not-rescaled",
    ),
    bug(
        "forward: the sum of the last tile",
        "test_forward_wide",
        f"{RESCALED} → total = tl.sum(powers, axis=0)",
        named="a-part-of-the-row",
    ),
    bug(
        "forward: the maximum of the last tile",
        "test_forward_outliers",
        "new_max = tl.maximum(row_max, tl.max(x, axis=0)) → new_max = tl.max(x, axis=0)",
        named="max-of-a-tile",
    ),
    bug(
        "forward: wide rows end after 8192 columns",
        "test_forward_wide",
        "    for start in range(0, d, D_TILE_SIZE):\n"
        "        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)\n        y_mask → "
        "    for start in range(0, D_TILE_SIZE, D_TILE_SIZE):\n"
        "        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)\n        y_mask",
        line="never stored",
    ),
    bug(
        "forward: −∞ minus −∞ at the beginning of a row",
        "test_forward_infinity",
        f"{SHIFT} →         shift = new_max",
        named="begun-with-nan",
    ),
    bug(
        "forward: a row of −∞ divided by 0",
        "test_forward_infinity",
        "    total = tl.where(total > 0, total, 1.0)\n → ",
        named=("0/0", DIVIDED),
    ),
    bug(
        "forward: −∞ cut off",
        "test_forward_infinity",
        "new_max = tl.maximum(row_max, → x = tl.maximum(x, -10.0)\n        new_max = tl.maximum(row_max,",
        named="limited",
    ),
    bug(
        "forward: columns past the end stored",
        "test_forward_ragged",
        f"{CAST} → y.to(y_ptr.dtype.element_ty)",
        line="tl.store(y_ptrs, y.to(",
    ),
    bug(
        "forward: columns past the end loaded",
        "test_forward_ragged",
        f'{LOADED}, other=float("-inf")).to(tl.float32) → '
        'x = tl.where(col_mask, tl.load(x_ptr + row * stride_xr + cols * stride_xd).to(tl.float32), float("-inf"))',
        line="x = tl.where(col_mask, tl.load(x_ptr",
    ),
    bug(
        "forward: d must be a power of two",
        "test_forward_ragged",
        "    if n_rows > 0:\n        d_tile_size = min(triton.next_power_of_2(d), MAX_D_TILE_SIZE)\n        _forward → "
        "    if n_rows > 0:\n        d_tile_size = min(d, MAX_D_TILE_SIZE)\n        _forward",
        named="must be a power of 2",
    ),
    bug(
        "forward: the total in the dtype of x",
        "test_forward_16_bit",
        f"{RESCALED} → {RESCALED}\n        total = total.to(x_ptr.dtype.element_ty).to(tl.float32)",
        named="sum-in-16-bits",
    ),
    bug(
        "forward: always float32",
        "test_forward_16_bit",
        "y = torch.empty((n_rows, d), dtype=x.dtype → y = torch.empty((n_rows, d), dtype=torch.float32",
        named="y is float32",
    ),
    bug(
        "forward: x's last stride taken to be 1",
        "test_forward_strides",
        f"{LOADED} → x = tl.load(x_ptr + row * stride_xr + cols, mask=col_mask",
        named=("x is read as if its last stride were 1", "x = tl.load(x_ptr + row * stride_xr + cols,"),
    ),
    bug(
        "forward: x flattened with view",
        "test_forward_strides",
        "x_rows = x.reshape(-1, d) → x_rows = x.view(-1, d)",
        named="x_rows = x.view(-1, d)",
    ),
    bug(
        "forward: row offsets in int32",
        "test_forward_offsets",
        "    row = tl.program_id(0).to(tl.int64)\n    row_max →     row = tl.program_id(0)\n    row_max",
        named="x = tl.load(x_ptr + row * stride_xr",
    ),
    bug("forward: in place", "test_forward_contract", f"{MADE} → y = x_rows", line="tl.store(y_ptrs, y.to("),
    bug(
        "forward: an empty batch is launched",
        "test_forward_contract",
        "    n_rows = x_rows.shape[0]\n → "
        "    n_rows = x_rows.shape[0]\n    if n_rows == 0:\n        raise RuntimeError('no rows')\n",
        named="raise RuntimeError('no rows')",
    ),
    bug("forward: no checks", "test_forward_mistakes", "    _check_forward(x)\n → ", named="expected a ValueError"),
    bug(
        "forward: x read twice although it fits",
        "test_forward_traffic",
        "        if not IS_ONE_TILE:\n            x = →         if True:\n            x =",
        named="x is read",
    ),
    bug(
        "forward: x copied to float32 first",
        "test_forward_traffic",
        "x_rows = x.reshape(-1, d) → x_rows = x.reshape(-1, d).float()",
        named="x is read",
    ),
    bug(
        "forward: the maximum by a walk of its own",
        "test_forward_wide_traffic",
        "    total = 0.0\n    x = → "
        "    for start in range(0, d, D_TILE_SIZE):\n"
        "        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)\n"
        "        ahead = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=cols < d, other=float('-inf'))\n"
        "        row_max = tl.maximum(row_max, tl.max(ahead.to(tl.float32), axis=0))\n"
        "    total = 0.0\n    x =",
        named="x is read 3",
    ),
    bug(
        "forward: divided by PyTorch",
        "test_forward_values",
        "    return y.reshape(x.shape)\n →     return (y / y.sum(-1, keepdim=True)).reshape(x.shape)\n",
        computed="return (y / y.sum(",
    ),
]
BACKWARD = [
    bug("backward: the sum missing", "test_backward_values", f"{GRADIENT} → grad_x = y * grad_y", named="dot-missing"),
    bug(
        "backward: the sum added",
        "test_backward_values",
        f"{GRADIENT} → grad_x = y * (grad_y + dot)",
        named="dot-added",
    ),
    bug(
        "backward: y not in front",
        "test_backward_values",
        f"{GRADIENT} → grad_x = grad_y - dot",
        named="y-not-in-front",
    ),
    bug(
        "backward: the diagonal alone",
        "test_backward_values",
        f"{GRADIENT} → grad_x = y * (1 - y) * grad_y",
        named="the-diagonal-alone",
    ),
    bug(
        "backward: of the logarithm",
        "test_backward_values",
        f"{GRADIENT} → grad_x = grad_y - y * dot",
        "tl.sum(grad_y * y, axis=0) → tl.sum(grad_y, axis=0)",
        named="of-the-logarithm",
    ),
    bug(
        "backward: Σ grad_y",
        "test_backward_values",
        "tl.sum(grad_y * y, axis=0) → tl.sum(grad_y, axis=0)",
        named="dot-without-y",
    ),
    bug(
        "backward: the mean",
        "test_backward_values",
        f"{GRADIENT} → grad_x = y * (grad_y - dot / d)",
        named="mean-for-dot",
    ),
    bug(
        "backward: the sum of the last tile",
        "test_backward_wide",
        "dot += tl.sum( → dot = tl.sum(",
        named="dot-of-a-part",
    ),
    bug(
        "backward: small gradients set to 0",
        "test_backward_outliers",
        f"{GRADIENT} → grad_x = tl.where(tl.abs(grad_y) < 1e-4, 0.0, y * (grad_y - dot))",
    ),
    bug(
        "backward: the sum in the dtype of y",
        "test_backward_16_bit",
        "dot += tl.sum(grad_y * y, axis=0) → "
        "dot = (dot + tl.sum(grad_y * y, axis=0)).to(y_ptr.dtype.element_ty).to(tl.float32)",
        named="dot-in-16-bits",
    ),
    bug(
        "backward: grad_y's last stride taken to be 1",
        "test_backward_strides",
        "grad_y_ptrs = grad_y_ptr + row * stride_gyr + cols * stride_gyd → "
        "grad_y_ptrs = grad_y_ptr + row * stride_gyr + cols",
        named=("grad_y is read as if", "grad_y = tl.load(grad_y_ptrs"),
    ),
    bug(
        "backward: y's strides taken for grad_y's",
        "test_backward_strides",
        "grad_y_rows.stride(0), grad_y_rows.stride(1), y_rows → y_rows.stride(0), y_rows.stride(1), y_rows",
        named=("grad_y is read with", "grad_y = tl.load(grad_y_ptrs"),
    ),
    bug(
        "backward: row offsets in int32",
        "test_backward_offsets",
        "    row = tl.program_id(0).to(tl.int64)\n    dot →     row = tl.program_id(0)\n    dot",
        named=("grad_y = tl.load(grad_y_ptrs", "y = tl.load(y_ptrs"),
    ),
    bug(
        "backward: grad_x stored past the last column",
        "test_backward_ragged",
        f"{STORED} → grad_x.to(grad_x_ptr.dtype.element_ty)",
        line="tl.store(grad_x_ptrs, grad_x.to(",
    ),
    bug(
        "backward: grad_x over grad_y",
        "test_backward_contract",
        "grad_x = torch.empty((n_rows, d), dtype=y.dtype, device=y.device) → grad_x = grad_y_rows",
        line="tl.store(grad_x_ptrs, grad_x.to(",
    ),
    bug(
        "backward: no checks",
        "test_backward_mistakes",
        "    _check_backward(grad_y, y)\n → ",
        named="expected a ValueError",
    ),
    bug(
        "backward: both inputs read twice although they fit",
        "test_backward_traffic",
        "        if not IS_ONE_TILE:\n            grad_y_again →         if True:\n            grad_y_again",
        named="is read 2",
    ),
    bug(
        "backward: a walk more",
        "test_backward_wide_traffic",
        "    dot = 0.0\n → "
        "    dot = 0.0\n    for start in range(0, d, D_TILE_SIZE):\n"
        "        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)\n"
        "        ahead = tl.load(y_ptr + row * stride_yr + cols * stride_yd, mask=cols < d, other=0.0)\n"
        "        dot += 0 * tl.sum(ahead.to(tl.float32), axis=0)\n",
        named="y is read 3",
    ),
]
AUTOGRAD = [
    bug("autograd: x saved for y", "test_gradients", "ctx.save_for_backward(y) → ctx.save_for_backward(x)"),
    bug(
        "autograd: not a Function",
        "test_gradients",
        "return Softmax.apply(x) → return softmax_forward(x)",
        named="returned a tensor without a gradient",
    ),
    bug(
        "autograd: backward runs once only",
        "test_gradients",
        "ctx.save_for_backward(y) → ctx.saved = [(y,)]",
        "(y,) = ctx.saved_tensors → (y,) = ctx.saved.pop()",
        named="(y,) = ctx.saved.pop()",
    ),
    bug(
        "autograd: y kept in the class, not in the graph",
        "test_gradients",
        "ctx.save_for_backward(y) → Softmax.y = y",
        "(y,) = ctx.saved_tensors → y = Softmax.y",
        named="another forward pass that came in between",
    ),
    bug(
        "autograd: another forward",
        "test_value",
        "        return y\n →         return y.abs()\n",
        computed="return y.abs()",
    ),
]
BUGS = [*FORWARD, *BACKWARD, *AUTOGRAD]
