"""Planted bugs of the weighted sum: the function of autograd."""

from assignment.bank.operators.edits import bug

PROBLEM = "weighted_sum"
FILES = ("weighted_sum.py",)

BUGS = (
    bug(
        "autograd: not a Function",
        "test_gradients",
        "WeightedSum.apply(x, weight) → weighted_sum_forward(x, weight)",
        named="returned a tensor without a gradient",
    ),
    bug(
        "autograd: a tuple of one",
        "test_value",
        "WeightedSum.apply(x, weight) → (WeightedSum.apply(x, weight),)",
        named="expected one tensor, y; got a tuple of 1 tenso",
    ),
    bug(
        "autograd: gradients only if all are asked for",
        "test_gradients",
        "grad_x, grad_weight = weighted_sum_backward(grad_y, x, weight) → if not all(ctx.needs_input_grad):\n"
        "            return None, None\n        grad_x, grad_weight = weighted_sum_backward(grad_y, x, weight)",
        named="no gradient came for",
    ),
    bug(
        "autograd: backward runs once only",
        "test_gradients",
        "ctx.save_for_backward(x, weight) → ctx.saved = [(x, weight)]",
        "x, weight = ctx.saved_tensors → x, weight = ctx.saved.pop()",
        named="x, weight = ctx.saved.pop()",
    ),
    bug(
        "autograd: tensors kept in the class, not in the graph",
        "test_gradients",
        "ctx.save_for_backward(x, weight) → WeightedSum.saved = x, weight",
        "x, weight = ctx.saved_tensors → x, weight = WeightedSum.saved",
        named="another forward pass that came in between",
    ),
)
