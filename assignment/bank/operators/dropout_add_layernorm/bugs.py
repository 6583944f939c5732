"""Planted bugs of dropout, residual and LayerNorm, in tables: see assignment/bank/operators/edits.py."""

from assignment.bank.operators.edits import table

PROBLEM = "dropout_add_layernorm"
FILES = ("practice/dropout_add_layernorm.py",)
PARTS = {
    "FORWARD_KEEP": "keep = tl.rand(seed, indices) >= p\n        summed",
    "BACKWARD_KEEP": "keep = tl.rand(seed, indices) >= p\n        grad_x",
    "SUMMED": "summed = residual + tl.where(keep, x * scale, 0.0)",
    "GRAD_X": "grad_x = tl.where(keep, grad_residual * scale, 0.0)",
}
FORWARD = table(
    "forward",
    """
nothing dropped | values | {SUMMED} → summed = residual + x | dropout_add_layernorm-nothing-dropped
not scaled | values | {SUMMED} → summed = residual + tl.where(keep, x, 0.0) |
    dropout_add_layernorm-not-scaled
multiplied by 1 − p | values | n_rows, d, float(p), 1 / (1 - p), seed, eps,
    → n_rows, d, float(p), 1 - p, seed, eps, | dropout_add_layernorm-scaled-wrongly
what was to be dropped is kept | values | {FORWARD_KEEP}
    → keep = tl.rand(seed, indices) < p⏎        summed | dropout_add_layernorm-the-others-kept
p for 1 − p | values | {FORWARD_KEEP} → keep = tl.rand(seed, indices) >= 1 - p⏎        summed |
    dropout_add_layernorm-the-others-kept
the index of padded rows | ragged | {FORWARD_KEEP} → keep = tl.rand(seed, rows[:, None] *
    D_TILE_SIZE + cols[None, :]) >= p⏎        summed | dropout_add_layernorm-index-of-padded-rows
every row has the same mask | values | {FORWARD_KEEP} → keep = tl.rand(seed, 0 * rows[:, None] +
    cols[None, :]) >= p⏎        summed | dropout_add_layernorm-index-within-a-tile
every tile of a wide row has the same mask | wide | {FORWARD_KEEP}
    → keep = tl.rand(seed, indices - start) >= p⏎        summed |
    dropout_add_layernorm-index-within-a-tile
the index counts columns first | values | {FORWARD_KEEP}
    → keep = tl.rand(seed, rows[:, None] + cols[None, :] * n_rows) >= p⏎        summed |
    dropout_add_layernorm-index-by-columns
the index is the place in memory | strides | {FORWARD_KEEP}
    → keep = tl.rand(seed, rows[:, None] * stride_xr + cols[None, :] * stride_xd) >=
    p⏎        summed | dropout_add_layernorm-index-in-memory
the seed in 32 bits | mask | 1 / (1 - p), seed, eps, → 1 / (1 - p), seed & 0xFFFFFFFF, eps, |
    dropout_add_layernorm-seed-fixed
the seed always 1234 | mask | {FORWARD_KEEP} → keep = tl.rand(1234, indices) >= p⏎        summed |
    dropout_add_layernorm-seed-fixed
p limited to 0.9 | mask | {FORWARD_KEEP} → keep = tl.rand(seed, indices) >= tl.minimum(p,
    0.9)⏎        summed | -
the mask of randn | values | {FORWARD_KEEP} → keep = tl.randn(seed, indices) >= p⏎        summed | -
the residual dropped too | values | {SUMMED} → summed = tl.where(keep, (residual + x) * scale, 0.0)
    | dropout_add_layernorm-sum-dropped
the residual forgotten | values | {SUMMED} → summed = 0.0 * residual + tl.where(keep, x * scale,
    0.0) | dropout_add_layernorm-residual-forgotten
no eps | rstd | sqrt_rn(variance + eps) → sqrt_rn(variance) | dropout_add_layernorm-eps-missing
the variance from squares | far | tl.sum(differences * differences, axis=1) / d
    → tl.sum(summed * summed, axis=1) / d - mean * mean |
    dropout_add_layernorm-variance-from-squares
padding in the variance | ragged | tl.where((tl.arange(0, D_TILE_SIZE) < d)[None, :], summed -
    mean[:, None], 0.0) → summed - mean[:, None] | dropout_add_layernorm-padding-in-the-variance
LayerNorm of the last tile of wide rows | wide |         if not IS_ONE_TILE:⏎            summed =
    tl.load →         if False:⏎            summed = tl.load |
    dropout_add_layernorm-y-from-the-last-tile
x read once more | traffic | x_rows, residual_rows = x.reshape
    → x_rows, residual_rows = x.clone().reshape | x is read
summed kept in float32 | 16_bit | y, summed = (x_rows.new_empty(n_rows, d) for _ in range(2))
    → y, summed = x_rows.new_empty(n_rows, d), x_rows.new_empty(n_rows, d, dtype=torch.float32) |
    summed is float32
the residual's strides taken for those of x | strides | *x_rows.stride(), *residual_rows.stride(),
    → *x_rows.stride(), residual_rows.shape[1], 1, | residual is read as if / residual = tl.load(
summed written over the residual | contract |     mean, rstd = (x_rows.new_empty(n_rows,
    dtype=torch.float32) for _ in range(2))⏎ →     mean, rstd = (x_rows.new_empty(n_rows,
    dtype=torch.float32) for _ in range(2))⏎    summed = residual_rows⏎ | tl.store(summed_ptr
y stored past the last row | ragged | tl.store(y_ptr + indices, y.to(y_ptr.dtype.element_ty),
    mask=tile_mask) → tl.store(y_ptr + indices, y.to(y_ptr.dtype.element_ty), mask=col_mask[None,
    :]) | line: tl.store(y_ptr + indices
shapes not compared | mistakes |     _check_like(x, residual)⏎ →  |
    expected a ValueError before any launch
PyTorch's layer_norm behind a kernel | values | return y.reshape(x.shape), summed
    → return torch.nn.functional.layer_norm(summed, (d,), weight, bias, eps).view(x.shape), summed |
    computed: torch.nn.functional.layer_norm(
""",
    **PARTS,
)
BACKWARD = table(
    "backward",
    """
another mask than the forward's | values | {BACKWARD_KEEP}
    → keep = tl.rand(seed + 1, indices) >= p⏎        grad_x |
    dropout_add_layernorm-backward-seed-fixed
nothing dropped | values | {GRAD_X} → grad_x = grad_residual |
    dropout_add_layernorm-backward-nothing-dropped
not scaled | values | {GRAD_X} → grad_x = tl.where(keep, grad_residual, 0.0) |
    dropout_add_layernorm-backward-not-scaled
the index of padded rows | ragged | {BACKWARD_KEEP} → keep = tl.rand(seed, rows[:, None] *
    D_TILE_SIZE + cols[None, :]) >= p⏎        grad_x |
    dropout_add_layernorm-backward-index-of-padded-rows
what has become 0 is taken to be dropped | mask | {BACKWARD_KEEP}
    → keep = summed != mean[:, None]⏎        grad_x | -
the residual's gradient dropped too | values | grad_residual.to(dtype), mask
    → grad_x.to(dtype), mask | dropout_add_layernorm-residual-dropped
gradients swapped | values | return grad_x.reshape(summed.shape),
    grad_residual.reshape(summed.shape), → return grad_residual.reshape(summed.shape),
    grad_x.reshape(summed.shape), | dropout_add_layernorm-gradients-swapped
mean(h) missing | values | (h - h_mean[:, None] - x_hat → (h - x_hat |
    dropout_add_layernorm-mean-of-h-missing
the x̂ term missing | values |  - x_hat * along[:, None]) → ) |
    dropout_add_layernorm-projection-missing
grad_bias with the weight | values | grad_b += grad_y → grad_b += h |
    dropout_add_layernorm-grad-bias-with-a-factor
all programs store to one partial row | values | partials_ptr + row_program * d + cols
    → partials_ptr + cols | line: tl.store(partial_ptrs
row offsets in int32 | offsets | row_program = tl.program_id(0).to(tl.int64)
    → row_program = tl.program_id(0) | rows = start + tl.arange(0, ROWS_TILE_SIZE).to(tl.int64)
    → rows = start + tl.arange(0, ROWS_TILE_SIZE) | line: tl.load(
partial sums in the input's dtype | 16_bit | summed_rows.new_empty(2, n_row_programs, d,
    dtype=torch.float32) → summed_rows.new_empty(2, n_row_programs, d) | -
""",
    **PARTS,
)
AUTOGRAD = table(
    "autograd",
    """
eps not passed on | value | p=p, seed=seed, eps=eps) → p=p, seed=seed) |
    dropout_add_layernorm-eps-fixed
the seed not passed on to the backward | gradients | p=ctx.p, seed=ctx.seed) → p=ctx.p) |
    dropout_add_layernorm-backward-seed-fixed
the mask kept | nothing_of_the_mask_is_kept |         ctx.save_for_backward(summed, weight, mean,
    rstd)⏎ →         ctx.save_for_backward(summed, weight, mean, rstd)⏎        ctx.mask =
    torch.empty(x.shape, dtype=torch.bool, device=x.device)⏎ | bytes are kept for the backward pass
gradients in another order | gradients |         return *grads, None, None, None
    →         return grads[1], grads[0], grads[2], grads[3], None, None, None |
    dropout_add_layernorm-gradients-swapped
""",
    **PARTS,
)
BUGS = [*FORWARD, *BACKWARD, *AUTOGRAD]
# What its chapter teaches: bugs that cost at least a tenth of their problem (tests/test_lessons.py).
LESSONS = {
    "dropout_add_layernorm": (
        "forward-the-index-of-padded-rows",
        "forward-not-scaled",
        "backward-another-mask-than-the-forward-s",
    ),
}
