"""Planted bugs of softmax: the backward pass."""

from assignment.attacks.bugs import bug

PROBLEM = "softmax"
FILES = ("practice/softmax.py",)
GRADIENT = "grad_x = y * (grad_y - dot)"
STORED = "grad_x.to(grad_x_ptr.dtype.element_ty), mask=grad_x_mask"

BUGS = (
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
)
