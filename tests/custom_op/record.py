"""RMSNorm and attention as operators of torch.library: what PyTorch, and its compiler, knows of them."""

from typing import Any

from tests.flash_attention import record as attention
from tests.operators import Function, Operator, Problem, counted

FILE = "cs336_kernels/practice/custom_op.py"


def in_words(tensors: dict[str, Any]) -> str:
    """ "96 rows of 40", or "77 queries, 80 keys, d 64" """
    if "q" in tensors:
        return attention.in_words(tensors)
    x = tensors["x"]
    return f"{counted(x[..., 0].numel(), 'row', 'rows')} of {x.shape[-1]}"


OPERATOR = Operator(
    name="custom_op",
    file=FILE,
    position=9,
    follows="flash_backward_triton",
    problems=(Problem("custom_op", "Operators of torch.library", "handout/custom_op.md"),),
    functions=(
        Function(
            name="rmsnorm_op",
            problem="custom_op",
            inputs=("x", "weight"),
            outputs=("y",),
            oracle="rmsnorm_forward",
            forward="rmsnorm_forward",
            gradients="rmsnorm_backward",
        ),
        Function(
            name="attention_op",
            problem="custom_op",
            inputs=("q", "k", "v"),
            outputs=("o",),
            oracle="attention_forward",
            sums_rows=True,
            forward="flash_forward_triton",
            gradients="flash_backward_triton",
        ),
    ),
    vectors=("weight",),
    rows_at={"o": -2, "grad_q": -2, "grad_k": -2, "grad_v": -2},
    say=in_words,
)
