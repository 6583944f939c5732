"""Planted bugs of operators of torch.library, in tables: see assignment/bank/operators/edits.py."""

from assignment.bank.operators.edits import table

PROBLEM = "custom_op"
FILES = ("practice/custom_op.py",)
PARTS = {
    "NORM_FAKE": "return x.new_empty(x.shape), x.new_empty(x.shape[:-1], dtype=torch.float32)",
    "ATTENTION_FAKE": "return q.new_empty(q.shape), q.new_empty(q.shape[:-1], dtype=torch.float32)",
    "NORM_BACKWARD": "return *torch.ops.cs336.rmsnorm_backward(grad_y, *ctx.saved_tensors), None",
    "NORM_REGISTERED": "_rmsnorm.register_autograd(_rmsnorm_gradients, setup_context=_save_rmsnorm)",
    "ATTENTION_REGISTERED": "_attention.register_autograd(_attention_gradients, setup_context=_save_attention)",
    "VIEWED": "y, rstd = rmsnorm_forward(x.view(-1, x.shape[-1]), weight, eps)⏎"
    "    return y.view(x.shape), rstd.view(x.shape[:-1])",
    "CUT": "d = min(len(weight), x.shape[-1])⏎"
    "    return rmsnorm_forward(x[..., :d].contiguous(), weight[:d].contiguous(), eps)",
}
BUGS = table(
    "registration",
    """
a fake with the strides of x | rmsnorm_op_fake | {NORM_FAKE} →
    return torch.empty_like(x), x.new_empty(x.shape[:-1], dtype=torch.float32) | its fake implementation says
a fake in float32 | attention_op_fake | {ATTENTION_FAKE} →
    return torch.empty(q.shape, device=q.device), q.new_empty(q.shape[:-1], dtype=torch.float32) |
    its fake implementation says torch.float32 / its fake implementation says float32
a fake of rstd in the dtype of x | rmsnorm_op_fake | {NORM_FAKE} →
    return x.new_empty(x.shape), x.new_empty(x.shape[:-1]) | its fake implementation says
a fake of lse with a dimension more | attention_op_fake | {ATTENTION_FAKE} →
    return q.new_empty(q.shape), q.new_empty((*q.shape[:-1], 1), dtype=torch.float32) | its fake implementation says
a fake that launches | rmsnorm_op_fake | {NORM_FAKE} → return rmsnorm_forward(x, weight, eps) |
    got one without data
no fake of the backward operator | attention_op_fake | @_attention_backward.register_fake⏎ →  | no fake impl
a launch in backward | rmsnorm_op_fake | {NORM_BACKWARD} →
    return *rmsnorm_backward(grad_y, *ctx.saved_tensors), None | got one without data
an argument that is written to | rmsnorm_op_schema |
    @torch.library.custom_op("cs336::rmsnorm_backward", mutates_args=()) →
    @torch.library.custom_op("cs336::rmsnorm_backward", mutates_args={"grad_y"}) | that it writes to grad_y
no default of eps | rmsnorm_op_schema | weight: Tensor, eps: float = 1e-5) -> → weight: Tensor, eps: float) -> |
    expected the arguments
a name of its own | attention_op_schema | def _attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) →
    def _attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) |
    flash_forward_triton(q, k, v, is_causal) → flash_forward_triton(q, k, v, causal) | expected the arguments
autograd of another operator | rmsnorm_op_gradients | {NORM_REGISTERED} →
    torch.library.register_autograd("cs336::rmsnorm_backward", _rmsnorm_gradients, setup_context=_save_rmsnorm) |
    register_autograd / without a gradient / no autograd formula
no autograd | attention_op_gradients | {ATTENTION_REGISTERED} → pass | register_autograd / no autograd formula
no gradient for eps | rmsnorm_op_gradients | {NORM_BACKWARD} →
    return torch.ops.cs336.rmsnorm_backward(grad_y, *ctx.saved_tensors) | incorrect number of gradients
a gradient for eps | rmsnorm_op_gradients | {NORM_BACKWARD} →
    return *torch.ops.cs336.rmsnorm_backward(grad_y, *ctx.saved_tensors), grad_y.sum() | a non-None gradient
rstd not saved | rmsnorm_op_gradients | ctx.save_for_backward(x, weight, output[1]) →
    ctx.save_for_backward(x, weight) | missing
y saved for x | rmsnorm_op_gradients | ctx.save_for_backward(x, weight, output[1]) →
    ctx.save_for_backward(output[0], weight, output[1]) | y-for-x
what is saved kept outside of ctx | rmsnorm_op_gradients | ctx.save_for_backward(x, weight, output[1]) →
    SAVED[:] = x, weight, output[1] | {NORM_BACKWARD} →
    return *torch.ops.cs336.rmsnorm_backward(grad_y, *SAVED), None |
    def rmsnorm_op(x → SAVED = []⏎⏎⏎def rmsnorm_op(x | another-graph
is_causal not saved | attention_op_gradients | *ctx.saved_tensors, ctx.is_causal), None →
    *ctx.saved_tensors, False), None | flash_backward_triton-no-causal-mask / causal
eps not passed on | rmsnorm_op_values | torch.ops.cs336.rmsnorm(x, weight, eps)[0] →
    torch.ops.cs336.rmsnorm(x, weight)[0] | eps
rows taken to lie one after the other | rmsnorm_op_strides | return rmsnorm_forward(x, weight, eps)⏎ → {VIEWED}⏎ |
    view size is not compatible
a graph under no_grad | rmsnorm_op_no_grad | torch.ops.cs336.rmsnorm(x, weight, eps)[0] →
    torch.enable_grad()(torch.ops.cs336.rmsnorm)(x, weight, eps)[0] | a graph under torch.no_grad()
a weight cut to the rows | rmsnorm_op_mistakes | return rmsnorm_forward(x, weight, eps)⏎ → {CUT}⏎ |
    expected a ValueError
""",
    **PARTS,
)
# What its chapter teaches: bugs that cost at least a tenth of their problem (tests/test_lessons.py).
LESSONS = {
    "custom_op": (
        "registration-autograd-of-another-operator",
        "registration-rstd-not-saved",
        "registration-what-is-saved-kept-outside-of-ctx",
    )
}
