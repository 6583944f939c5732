"""Planted bugs of LayerNorm: the function of autograd."""

from assignment.attacks.bugs import bug

PROBLEM = "layernorm"
FILES = ("practice/layernorm.py",)

BUGS = (
    bug(
        "autograd: eps not passed on",
        "test_value",
        "layernorm_forward(x, weight, bias, eps=eps) → layernorm_forward(x, weight, bias)",
        named="layernorm-eps-fixed",
    ),
    bug(
        "autograd: not a Function",
        "test_gradients",
        "return LayerNorm.apply(x, weight, bias, eps) → return layernorm_forward(x, weight, bias, eps)[0]",
        named="returned a tensor without a gradient",
    ),
    bug(
        "autograd: no gradient for eps",
        "test_gradients",
        "*layernorm_backward(grad_y, *ctx.saved_tensors), None → layernorm_backward(grad_y, *ctx.saved_tensors)",
        named="returned an incorrect number of gradients",
    ),
    bug(
        "autograd: mean and rstd kept in the class, not in the graph",
        "test_gradients",
        "ctx.save_for_backward(x, weight, mean, rstd) → "
        "ctx.save_for_backward(x, weight)\n        LayerNorm.kept = mean, rstd",
        "*ctx.saved_tensors), None → *ctx.saved_tensors, *LayerNorm.kept), None",
        named="another forward pass that came in between",
    ),
)
