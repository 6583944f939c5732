"""Planted bugs of RMSNorm: the function of autograd."""

from assignment.bank.operators.edits import bug

PROBLEM = "rmsnorm"
FILES = ("rmsnorm.py",)

BUGS = (
    bug("autograd: y saved for x", "test_gradients", "(x, weight, rstd) → (y, weight, rstd)", named="y-for-x"),
    bug(
        "autograd: not a Function",
        "test_gradients",
        "return RMSNorm.apply(x, weight, eps) → return rmsnorm_forward(x, weight, eps)[0]",
        named="returned a tensor without a gradient",
    ),
    bug(
        "autograd: no gradient for eps",
        "test_gradients",
        "grad_x, grad_weight, None → grad_x, grad_weight",
        named="returned an incorrect number of gradients",
    ),
    bug(
        "autograd: gradients only if all are asked for",
        "test_gradients",
        "        grad_x, grad_weight = rmsnorm_backward →         if not all(ctx.needs_input_grad[:2]):\n"
        "            return None, None, None\n        grad_x, grad_weight = rmsnorm_backward",
        named="no gradient came for",
    ),
    bug(
        "autograd: backward runs once only",
        "test_gradients",
        "ctx.save_for_backward(x, weight, rstd) → ctx.saved = [(x, weight, rstd)]",
        "x, weight, rstd = ctx.saved_tensors → x, weight, rstd = ctx.saved.pop()",
        named="x, weight, rstd = ctx.saved.pop()",
    ),
    bug(
        "autograd: rstd kept in the class, not in the graph",
        "test_gradients",
        "ctx.save_for_backward(x, weight, rstd) → ctx.save_for_backward(x, weight)\n        RMSNorm.rstd = rstd",
        "x, weight, rstd = ctx.saved_tensors → x, weight = ctx.saved_tensors\n        rstd = RMSNorm.rstd",
        named="another forward pass that came in between",
    ),
)
