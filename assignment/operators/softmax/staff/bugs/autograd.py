"""Planted bugs of softmax: the function of autograd."""

from assignment.attacks.bugs import bug

PROBLEM = "softmax"
FILES = ("practice/softmax.py",)

BUGS = (
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
)
