"""Dropouts with residual and LayerNorm that are wrong, each a few edits away from the solution."""

from assignment.attacks.bugs import bug

PROBLEM = "dropout_add_layernorm"
FILES = ("practice/dropout_add_layernorm.py",)

FORWARD_KEEP = "keep = tl.rand(seed, indices) >= p\n        summed"
BACKWARD_KEEP = "keep = tl.rand(seed, indices) >= p\n        grad_x"
SUMMED = "summed = residual + tl.where(keep, x * scale, 0.0)"
GRAD_X = "grad_x = tl.where(keep, grad_residual * scale, 0.0)"
FORWARD_MASK, BACKWARD_MASK = "test_forward_mask", "test_backward_mask"

MASK = (
    bug(
        "forward: nothing dropped",
        "test_forward_values",
        f"{SUMMED} → summed = residual + x",
        named="dropout_add_layernorm-nothing-dropped",
    ),
    bug(
        "forward: not scaled",
        "test_forward_values",
        f"{SUMMED} → summed = residual + tl.where(keep, x, 0.0)",
        named="dropout_add_layernorm-not-scaled",
    ),
    bug(
        "forward: multiplied by 1 − p",
        "test_forward_values",
        "n_rows, d, float(p), 1 / (1 - p), seed, eps, → n_rows, d, float(p), 1 - p, seed, eps,",
        named="dropout_add_layernorm-scaled-wrongly",
    ),
    bug(
        "forward: what was to be dropped is kept",
        "test_forward_values",
        f"{FORWARD_KEEP} → {FORWARD_KEEP.replace('>=', '<')}",
        named="dropout_add_layernorm-the-others-kept",
    ),
    bug(
        "forward: p for 1 − p",
        "test_forward_values",
        f"{FORWARD_KEEP} → {FORWARD_KEEP.replace('>= p', '>= 1 - p')}",
        named="dropout_add_layernorm-the-others-kept",
    ),
    bug(
        "forward: the index of padded rows",
        "test_forward_ragged",
        f"{FORWARD_KEEP} → keep = tl.rand(seed, rows[:, None] * D_TILE_SIZE + cols[None, :]) >= p\n        summed",
        named="dropout_add_layernorm-index-of-padded-rows",
    ),
    bug(
        "forward: every row has the same mask",
        "test_forward_values",
        f"{FORWARD_KEEP} → keep = tl.rand(seed, 0 * rows[:, None] + cols[None, :]) >= p\n        summed",
        named="dropout_add_layernorm-index-within-a-tile",
    ),
    bug(
        "forward: every tile of a wide row has the same mask",
        "test_forward_wide",
        f"{FORWARD_KEEP} → keep = tl.rand(seed, indices - start) >= p\n        summed",
        named="dropout_add_layernorm-index-within-a-tile",
    ),
    bug(
        "forward: the index counts columns first",
        "test_forward_values",
        f"{FORWARD_KEEP} → keep = tl.rand(seed, rows[:, None] + cols[None, :] * n_rows) >= p\n        summed",
        named="dropout_add_layernorm-index-by-columns",
    ),
    bug(
        "forward: the index is the place in memory",
        "test_forward_strides",
        f"{FORWARD_KEEP} → keep = tl.rand(seed, rows[:, None] * stride_xr + cols[None, :] * stride_xd) >= p\n"
        "        summed",
    ),
    bug(
        "forward: the seed in 32 bits",
        FORWARD_MASK,
        "1 / (1 - p), seed, eps, → 1 / (1 - p), seed & 0xFFFFFFFF, eps,",
        named="dropout_add_layernorm-seed-fixed",
    ),
    bug(
        "forward: the seed always 1234",
        FORWARD_MASK,
        f"{FORWARD_KEEP} → keep = tl.rand(1234, indices) >= p\n        summed",
        named="dropout_add_layernorm-seed-fixed",
    ),
    bug(
        "forward: p limited to 0.9",
        FORWARD_MASK,
        f"{FORWARD_KEEP} → keep = tl.rand(seed, indices) >= tl.minimum(p, 0.9)\n        summed",
    ),
    bug(
        "forward: the mask of randn",
        "test_forward_values",
        f"{FORWARD_KEEP} → keep = tl.randn(seed, indices) >= p\n        summed",
    ),
    bug(
        "forward: the residual dropped too",
        "test_forward_values",
        f"{SUMMED} → summed = tl.where(keep, (residual + x) * scale, 0.0)",
    ),
    bug(
        "forward: the residual forgotten",
        "test_forward_values",
        f"{SUMMED} → summed = 0.0 * residual + tl.where(keep, x * scale, 0.0)",
        named="dropout_add_layernorm-residual-forgotten",
    ),
    bug(
        "backward: another mask than the forward's",
        "test_backward_values",
        f"{BACKWARD_KEEP} → keep = tl.rand(seed + 1, indices) >= p\n        grad_x",
        named="dropout_add_layernorm-backward-seed-fixed",
    ),
    bug(
        "backward: nothing dropped",
        "test_backward_values",
        f"{GRAD_X} → grad_x = grad_residual",
        named="dropout_add_layernorm-backward-nothing-dropped",
    ),
    bug(
        "backward: not scaled",
        "test_backward_values",
        f"{GRAD_X} → grad_x = tl.where(keep, grad_residual, 0.0)",
        named="dropout_add_layernorm-backward-not-scaled",
    ),
    bug(
        "backward: the index of padded rows",
        "test_backward_ragged",
        f"{BACKWARD_KEEP} → keep = tl.rand(seed, rows[:, None] * D_TILE_SIZE + cols[None, :]) >= p\n        grad_x",
        named="dropout_add_layernorm-backward-index-of-padded-rows",
    ),
    bug(
        "backward: what has become 0 is taken to be dropped",
        BACKWARD_MASK,
        f"{BACKWARD_KEEP} → keep = summed != mean[:, None]\n        grad_x",
    ),
    bug(
        "backward: the residual's gradient dropped too",
        "test_backward_values",
        "grad_residual.to(dtype), mask → grad_x.to(dtype), mask",
        named="dropout_add_layernorm-residual-dropped",
    ),
    bug(
        "backward: gradients swapped",
        "test_backward_values",
        "return grad_x.reshape(summed.shape), grad_residual.reshape(summed.shape), → "
        "return grad_residual.reshape(summed.shape), grad_x.reshape(summed.shape),",
        named="dropout_add_layernorm-gradients-swapped",
    ),
)

NORM = (
    bug(
        "forward: no eps",
        "test_forward_rstd",
        "sqrt_rn(variance + eps) → sqrt_rn(variance)",
        named="dropout_add_layernorm-eps-missing",
    ),
    bug(
        "forward: the variance from squares",
        "test_forward_far",
        "tl.sum(differences * differences, axis=1) / d → tl.sum(summed * summed, axis=1) / d - mean * mean",
        named="dropout_add_layernorm-variance-from-squares",
    ),
    bug(
        "forward: padding in the variance",
        "test_forward_ragged",
        "tl.where((tl.arange(0, D_TILE_SIZE) < d)[None, :], summed - mean[:, None], 0.0) → summed - mean[:, None]",
        named="dropout_add_layernorm-padding-in-the-variance",
    ),
    bug(
        "forward: LayerNorm of the last tile of wide rows",
        "test_forward_wide",
        "        if not IS_ONE_TILE:\n            summed = tl.load →         if False:\n            summed = tl.load",
        named="dropout_add_layernorm-y-from-the-last-tile",
    ),
    bug(
        "forward: x read once more",
        "test_dropout_add_layernorm.py::test_forward_traffic",
        "x_rows, residual_rows = x.reshape → x_rows, residual_rows = x.clone().reshape",
        named="x is read",
    ),
    bug(
        "forward: summed kept in float32",
        "test_forward_16_bit",
        "y, summed = (x_rows.new_empty(n_rows, d) for _ in range(2)) → "
        "y, summed = x_rows.new_empty(n_rows, d), x_rows.new_empty(n_rows, d, dtype=torch.float32)",
        named="summed is float32",
    ),
    bug(
        "forward: the residual's strides taken for those of x",
        "test_forward_strides",
        "*x_rows.stride(), *residual_rows.stride(), → *x_rows.stride(), residual_rows.shape[1], 1,",
        named=("residual is read as if", "residual = tl.load("),
    ),
    bug(
        "forward: summed written over the residual",
        "test_forward_contract",
        "    mean, rstd = (x_rows.new_empty(n_rows, dtype=torch.float32) for _ in range(2))\n → "
        "    mean, rstd = (x_rows.new_empty(n_rows, dtype=torch.float32) for _ in range(2))\n"
        "    summed = residual_rows\n",
        named="tl.store(summed_ptr",
    ),
    bug(
        "forward: y stored past the last row",
        "test_forward_ragged",
        "tl.store(y_ptr + indices, y.to(y_ptr.dtype.element_ty), mask=tile_mask) → "
        "tl.store(y_ptr + indices, y.to(y_ptr.dtype.element_ty), mask=col_mask[None, :])",
        line="tl.store(y_ptr + indices",
    ),
    bug(
        "forward: shapes not compared",
        "test_forward_mistakes",
        "    _check_like(x, residual)\n → ",
        named="expected a ValueError before any launch",
    ),
    bug(
        "forward: PyTorch's layer_norm behind a kernel",
        "test_forward_values",
        "return y.reshape(x.shape), summed → "
        "return torch.nn.functional.layer_norm(summed, (d,), weight, bias, eps).view(x.shape), summed",
        computed="torch.nn.functional.layer_norm(",
    ),
    bug(
        "backward: mean(h) missing",
        "test_backward_values",
        "(h - h_mean[:, None] - x_hat → (h - x_hat",
        named="dropout_add_layernorm-mean-of-h-missing",
    ),
    bug(
        "backward: the x̂ term missing",
        "test_backward_values",
        " - x_hat * along[:, None]) → )",
        named="dropout_add_layernorm-projection-missing",
    ),
    bug(
        "backward: grad_bias with the weight",
        "test_backward_values",
        "grad_b += grad_y → grad_b += h",
        named="dropout_add_layernorm-grad-bias-with-a-factor",
    ),
    bug(
        "backward: all programs store to one partial row",
        "test_backward_values",
        "partials_ptr + row_program * d + cols → partials_ptr + cols",
        line="tl.store(partial_ptrs",
    ),
    bug(
        "backward: row offsets in int32",
        "test_backward_offsets",
        "row_program = tl.program_id(0).to(tl.int64) → row_program = tl.program_id(0)",
        "rows = start + tl.arange(0, ROWS_TILE_SIZE).to(tl.int64) → rows = start + tl.arange(0, ROWS_TILE_SIZE)",
        line="tl.load(",
    ),
    bug(
        "backward: partial sums in the input's dtype",
        "test_backward_16_bit",
        "summed_rows.new_empty(2, n_row_programs, d, dtype=torch.float32) → "
        "summed_rows.new_empty(2, n_row_programs, d)",
        named="dropout_add_layernorm-summed-over-rows-in-16-bits",
    ),
)

AUTOGRAD = (
    bug(
        "autograd: eps not passed on",
        "test_value",
        "p=p, seed=seed, eps=eps) → p=p, seed=seed)",
        named="dropout_add_layernorm-eps-fixed",
    ),
    bug(
        "autograd: the seed not passed on to the backward",
        "test_gradients",
        "p=ctx.p, seed=ctx.seed) → p=ctx.p)",
        named="dropout_add_layernorm-backward-seed-fixed",
    ),
    bug(
        "autograd: the mask kept",
        "test_nothing_of_the_mask_is_kept",
        "        ctx.save_for_backward(summed, weight, mean, rstd)\n → "
        "        ctx.save_for_backward(summed, weight, mean, rstd)\n"
        "        ctx.mask = torch.empty(x.shape, dtype=torch.bool, device=x.device)\n",
        named="bytes are kept for the backward pass",
    ),
    bug(
        "autograd: gradients in another order",
        "test_gradients",
        "        return *grads, None, None, None → "
        "        return grads[1], grads[0], grads[2], grads[3], None, None, None",
        named="dropout_add_layernorm-gradients-swapped",
    ),
)

BUGS = (*MASK, *NORM, *AUTOGRAD)
