"""Planted bugs of softmax, in tables: see assignment/bank/operators/edits.py."""

from assignment.bank.operators.edits import table

PROBLEM = "softmax"
FILES = ("practice/softmax.py",)
PARTS = {
    "WALK": "for start in range(0, d, D_TILE_SIZE):⏎        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)⏎",
    "CAST": "y.to(y_ptr.dtype.element_ty), mask=y_mask",
    "DIVIDED": "y = tl.exp(x - shift) / total",
    "RESCALED": "total = total * tl.exp(row_max - shift) + tl.sum(powers, axis=0)",
    "SHIFT": '        shift = tl.where(new_max == float("-inf"), 0.0, new_max)',
    "LAST_SHIFT": '    shift = tl.where(row_max == float("-inf"), 0.0, row_max)',
    "MADE": "y = torch.empty((n_rows, d), dtype=x.dtype, device=x.device)",
    "LOADED": "x = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=col_mask",
    "GRADIENT": "grad_x = y * (grad_y - dot)",
    "STORED": "grad_x.to(grad_x_ptr.dtype.element_ty), mask=grad_x_mask",
}
FORWARD = table(
    "forward",
    """
a capped grid, and no loop over rows | values | _forward_kernel[(n_rows,)] → _forward_kernel[(min(n_rows, 1056),)] |
    never stored
no maximum subtracted | outliers | {SHIFT} →         shift = 0.0 | {LAST_SHIFT} →     shift = 0.0 | {RESCALED} → total =
    total + tl.sum(powers, axis=0) | no-max
the maximum starts at 0 | outliers | row_max = float("-inf")⏎ → row_max = 0.0⏎ | max-from-zero
not divided | values | {DIVIDED} → y = tl.exp(x - shift) | softmax-not-divided
base 2 | values | powers = tl.exp( → powers = tl.exp2( | tl.exp(row_max - shift) → tl.exp2(row_max - shift) | y =
    tl.exp(x → y = tl.exp2(x | softmax-base-2
the sign | values | other=float("-inf")).to(tl.float32) → other=float("inf")).to(tl.float32) * -1 | negated
the logarithm | values | {DIVIDED} → y = x - shift - tl.log(total) | the-logarithm
divided by the mean | values | {DIVIDED} → y = tl.exp(x - shift) / (total / d) | mean-for-sum
rows padded with zeros | ragged | {LOADED}, other=float("-inf") → {LOADED}, other=0.0 | padding-in-the-sum
rows padded with their maximum | ragged | powers = tl.exp(x - shift) → powers = tl.exp(tl.where(col_mask, x - shift,
    0.0)) | padding-as-large-as-the-max
the sum not rescaled | wide | {RESCALED} → total = total + tl.sum(powers, axis=0) | softmax-sum-not-rescaled
the sum of the last tile | wide | {RESCALED} → total = tl.sum(powers, axis=0) | a-part-of-the-row
the maximum of the last tile | outliers | new_max = tl.maximum(row_max, tl.max(x, axis=0)) → new_max = tl.max(x, axis=0)
    | max-of-a-tile
wide rows end after 8192 columns | wide |     {WALK}        y_mask →     for start in range(0, D_TILE_SIZE,
    D_TILE_SIZE):⏎        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)⏎        y_mask | line: never stored
−∞ minus −∞ at the beginning of a row | infinity | {SHIFT} →         shift = new_max | begun-with-nan
a row of −∞ divided by 0 | infinity |     total = tl.where(total > 0, total, 1.0)⏎ →  | 0/0 / y = tl.exp(x - shift)
−∞ cut off | infinity | new_max = tl.maximum(row_max, → x = tl.maximum(x, -10.0)⏎        new_max = tl.maximum(row_max, |
    limited
columns past the end stored | ragged | {CAST} → y.to(y_ptr.dtype.element_ty) | line: tl.store(y_ptrs, y.to(
columns past the end loaded | ragged | {LOADED}, other=float("-inf")).to(tl.float32) → x = tl.where(col_mask,
    tl.load(x_ptr + row * stride_xr + cols * stride_xd).to(tl.float32), float("-inf")) | line: x = tl.where(col_mask,
    tl.load(x_ptr
d must be a power of two | ragged |     if n_rows > 0:⏎        d_tile_size = min(triton.next_power_of_2(d),
    MAX_D_TILE_SIZE)⏎        _forward →     if n_rows > 0:⏎        d_tile_size = min(d,
    MAX_D_TILE_SIZE)⏎        _forward | must be a power of 2
the total in the dtype of x | 16_bit | {RESCALED} → {RESCALED}⏎        total =
    total.to(x_ptr.dtype.element_ty).to(tl.float32) | softmax-sum-in-16-bits
always float32 | 16_bit | y = torch.empty((n_rows, d), dtype=x.dtype → y = torch.empty((n_rows, d), dtype=torch.float32
    | y is float32
x's last stride taken to be 1 | strides | {LOADED} → x = tl.load(x_ptr + row * stride_xr + cols, mask=col_mask | x is
    read as if its last stride were 1 / x = tl.load(x_ptr + row * stride_xr + cols,
x flattened with view | strides | x_rows = x.reshape(-1, d) → x_rows = x.view(-1, d) | x_rows = x.view(-1, d)
row offsets in int32 | offsets |     row = tl.program_id(0).to(tl.int64)⏎    row_max →     row =
    tl.program_id(0)⏎    row_max | x = tl.load(x_ptr + row * stride_xr
in place | contract | {MADE} → y = x_rows | line: tl.store(y_ptrs, y.to(
an empty batch is launched | contract |     n_rows = x_rows.shape[0]⏎ →     n_rows = x_rows.shape[0]⏎    if n_rows ==
    0:⏎        raise RuntimeError('no rows')⏎ | raise RuntimeError('no rows')
no checks | mistakes |     _check_forward(x)⏎ →  | expected a ValueError
x read twice although it fits | traffic |         if not IS_ONE_TILE:⏎            x = →         if True:⏎            x =
    | x is read
x copied to float32 first | traffic | x_rows = x.reshape(-1, d) → x_rows = x.reshape(-1, d).float() | x is read
the maximum by a walk of its own | wide_traffic |     total = 0.0⏎    x = →     {WALK}        ahead = tl.load(x_ptr +
    row * stride_xr + cols * stride_xd, mask=cols < d, other=float('-inf'))⏎        row_max = tl.maximum(row_max,
    tl.max(ahead.to(tl.float32), axis=0))⏎    total = 0.0⏎    x = | x is read 3
divided by PyTorch | values |     return y.reshape(x.shape)⏎ →     return (y / y.sum(-1,
    keepdim=True)).reshape(x.shape)⏎ | computed: return (y / y.sum(
""",
    **PARTS,
)
BACKWARD = table(
    "backward",
    """
the sum missing | values | {GRADIENT} → grad_x = y * grad_y | dot-missing
the sum added | values | {GRADIENT} → grad_x = y * (grad_y + dot) | dot-added
y not in front | values | {GRADIENT} → grad_x = grad_y - dot | y-not-in-front
the diagonal alone | values | {GRADIENT} → grad_x = y * (1 - y) * grad_y | the-diagonal-alone
of the logarithm | values | {GRADIENT} → grad_x = grad_y - y * dot | tl.sum(grad_y * y, axis=0) → tl.sum(grad_y, axis=0)
    | of-the-logarithm
Σ grad_y | values | tl.sum(grad_y * y, axis=0) → tl.sum(grad_y, axis=0) | dot-without-y
the mean | values | {GRADIENT} → grad_x = y * (grad_y - dot / d) | mean-for-dot
the sum of the last tile | wide | dot += tl.sum( → dot = tl.sum( | dot-of-a-part
small gradients set to 0 | outliers | {GRADIENT} → grad_x = tl.where(tl.abs(grad_y) < 1e-4, 0.0, y * (grad_y - dot)) | -
the sum in the dtype of y | 16_bit | dot += tl.sum(grad_y * y, axis=0) → dot = (dot + tl.sum(grad_y * y,
    axis=0)).to(y_ptr.dtype.element_ty).to(tl.float32) | dot-in-16-bits
grad_y's last stride taken to be 1 | strides | grad_y_ptrs = grad_y_ptr + row * stride_gyr + cols * stride_gyd →
    grad_y_ptrs = grad_y_ptr + row * stride_gyr + cols | grad_y is read as if / grad_y = tl.load(grad_y_ptrs
y's strides taken for grad_y's | strides | grad_y_rows.stride(0), grad_y_rows.stride(1), y_rows → y_rows.stride(0),
    y_rows.stride(1), y_rows | grad_y is read with / grad_y = tl.load(grad_y_ptrs
row offsets in int32 | offsets |     row = tl.program_id(0).to(tl.int64)⏎    dot →     row = tl.program_id(0)⏎    dot |
    grad_y = tl.load(grad_y_ptrs / y = tl.load(y_ptrs
grad_x stored past the last column | ragged | {STORED} → grad_x.to(grad_x_ptr.dtype.element_ty) | line:
    tl.store(grad_x_ptrs, grad_x.to(
grad_x over grad_y | contract | grad_x = torch.empty((n_rows, d), dtype=y.dtype, device=y.device) → grad_x = grad_y_rows
    | line: tl.store(grad_x_ptrs, grad_x.to(
no checks | mistakes |     _check_backward(grad_y, y)⏎ →  | expected a ValueError
both inputs read twice although they fit | traffic |         if not IS_ONE_TILE:⏎            grad_y_again →         if
    True:⏎            grad_y_again | is read 2
a walk more | wide_traffic |     dot = 0.0⏎ →     dot = 0.0⏎    {WALK}        ahead = tl.load(y_ptr + row * stride_yr +
    cols * stride_yd, mask=cols < d, other=0.0)⏎        dot += 0 * tl.sum(ahead.to(tl.float32), axis=0)⏎ | y is read 3
""",
    **PARTS,
)
AUTOGRAD = table(
    "autograd",
    """
x saved for y | gradients | ctx.save_for_backward(y) → ctx.save_for_backward(x) | -
not a Function | gradients | return Softmax.apply(x) → return softmax_forward(x) | returned a tensor without a gradient
backward runs once only | gradients | ctx.save_for_backward(y) → ctx.saved = [(y,)] | (y,) = ctx.saved_tensors → (y,) =
    ctx.saved.pop() | (y,) = ctx.saved.pop()
y kept in the class, not in the graph | gradients | ctx.save_for_backward(y) → Softmax.y = y | (y,) = ctx.saved_tensors
    → y = Softmax.y | another forward pass that came in between
another forward | value |         return y⏎ →         return y.abs()⏎ | computed: return y.abs()
""",
    **PARTS,
)
BUGS = [*FORWARD, *BACKWARD, *AUTOGRAD]
# What its chapter teaches: bugs that cost at least a tenth of their problem (tests/test_lessons.py).
LESSONS = {
    "softmax": (
        "forward-no-maximum-subtracted",
        "forward-the-sum-not-rescaled",
        "backward-the-sum-missing",
    ),
}
