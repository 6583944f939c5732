"""Planted bugs of dropout, residual and LayerNorm: the function of autograd."""

from assignment.attacks.bugs import bug

PROBLEM = "dropout_add_layernorm"
FILES = ("practice/dropout_add_layernorm.py",)

BUGS = (
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
