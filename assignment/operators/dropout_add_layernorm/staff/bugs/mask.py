"""Planted bugs of dropout, residual and LayerNorm: the mask."""

from assignment.attacks.bugs import bug

PROBLEM = "dropout_add_layernorm"
FILES = ("practice/dropout_add_layernorm.py",)

FORWARD_KEEP = "keep = tl.rand(seed, indices) >= p\n        summed"
BACKWARD_KEEP = "keep = tl.rand(seed, indices) >= p\n        grad_x"
SUMMED = "summed = residual + tl.where(keep, x * scale, 0.0)"
GRAD_X = "grad_x = tl.where(keep, grad_residual * scale, 0.0)"
FORWARD_MASK, BACKWARD_MASK = "test_forward_mask", "test_backward_mask"

BUGS = (
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
        named="dropout_add_layernorm-sum-dropped",
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
