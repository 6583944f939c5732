"""A right backward pass in plain PyTorch, in another style than the base's."""

from assignment.bank.operators.edits import style
from assignment.bank.operators.flash_attention.styles.parts import put

PROBLEMS = ("flash_backward_pytorch",)
FILES = ("pytorch_backward.py",)

STYLES = (
    style(  # for torch.compile: all of P at once; the scale goes onto q before any product, so that dK needs none
        "pytorch_compiled",
        *put(
            PYTORCH_BACKWARD="""\
@torch.no_grad()
def flash_backward_pytorch(grad_o, q, k, v, o, lse, is_causal=False):
    _check(grad_o, q, k, v, o, lse)
    return _gradients(grad_o, q, k, v, o, lse, is_causal)

@torch.compile(dynamic=True)
def _gradients(grad_o, q, k, v, o, lse, is_causal):
    scale = 1.0 / math.sqrt(q.shape[-1])
    q32, k32, v32, do = q.float() * scale, k.float(), v.float(), grad_o.float()
    p = torch.exp(q32 @ k32.mT - lse.unsqueeze(-1))
    if is_causal:
        p = p.tril()
    delta = torch.sum(o.float() * do, dim=-1, keepdim=True)
    ds = p * (do @ v32.mT - delta)
    grad_q, grad_k, grad_v = ds @ k32 * scale, ds.mT @ q32, p.mT @ do
    return grad_q.to(q.dtype), grad_k.to(k.dtype), grad_v.to(v.dtype)
""",
        ),
    ),
)
