"""Planted bugs of RMSNorm: eps."""

from assignment.bank.operators.edits import bug

PROBLEM = "rmsnorm"
FILES = ("rmsnorm.py",)

BUGS = (
    bug(
        "forward: no eps", "test_eps", "tl.sqrt(mean_of_squares + eps) → tl.sqrt(mean_of_squares)", named="eps-missing"
    ),
    bug(
        "forward: eps outside of the root",
        "test_eps",
        "tl.sqrt(mean_of_squares + eps) → (tl.sqrt(mean_of_squares) + eps)",
        named="eps-outside-the-root",
    ),
    bug(
        "forward: eps always 1e-5",
        "test_eps",
        "tl.sqrt(mean_of_squares + eps) → tl.sqrt(mean_of_squares + 1e-5)",
        named="eps-fixed",
    ),
    bug(
        "forward: eps added to the sum",
        "test_eps",
        "sum_of_squares / d\n → (sum_of_squares + eps) / d - eps\n",
        named="eps-added-to-the-sum",
    ),
    bug(
        "forward: eps as the least mean",
        "test_eps",
        "(mean_of_squares + eps) → (tl.maximum(mean_of_squares, eps))",
        named="eps-as-a-limit",
    ),
    bug(
        "forward: another default eps",
        "test_eps",
        "def rmsnorm_forward(x, weight, eps=1e-5) → def rmsnorm_forward(x, weight, eps=1e-6)",
        named="eps-fixed",
    ),
    bug("autograd: eps not passed on", "test_value", "(x, weight, eps=eps) → (x, weight)", named="eps-fixed"),
    bug(
        "autograd: another default eps",
        "test_value",
        "rmsnorm(x, weight, eps=1e-5) → rmsnorm(x, weight, eps=1e-6)",
        named="eps-fixed",
    ),
    bug(
        "backward: rstd recomputed with an eps of 1e-5",
        "test_gradients",
        "tl.load(rstd_ptr + row * stride_sr) → 1.0 / tl.sqrt(tl.sum(x * x) / d + 1e-5)",
        named="rstd-recomputed-with-another-eps",
    ),
)
