"""Operators that launch nothing of their own, or are there for the compiler alone."""

from assignment.bank.cheats import LOSES, Cheat, by_torch

BY_PYTORCH = """
def rmsnorm_op(x, weight, eps=1e-5):
    return F.rms_norm(x, weight.shape, weight, eps)

def attention_op(q, k, v, is_causal=False):
    return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
"""
IN_THE_BODY = """
@torch.library.custom_op("cs336::rmsnorm", mutates_args=())
def _by_pytorch(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-5) -> tuple[torch.Tensor, torch.Tensor]:
    rstd = (x.float().square().mean(-1) + eps).rsqrt()
    return (x.float() * rstd[..., None] * weight.float()).to(x.dtype), rstd

_by_pytorch.register_fake(_rmsnorm_fake)
_by_pytorch.register_autograd(_rmsnorm_gradients, setup_context=_save_rmsnorm)
"""
FOR_THE_COMPILER = """
from cs336_kernels import rmsnorm

def rmsnorm_op(x, weight, eps=1e-5):
    if type(x) is torch.Tensor:
        return rmsnorm(x, weight, eps)
    return torch.ops.cs336.rmsnorm(x, weight, eps)[0]
"""
CHEATS = [
    *by_torch("custom_op", "practice/custom_op.py", BY_PYTORCH),
    Cheat(
        "rmsnorm_by_torch_in_the_body",
        "custom_op",
        IN_THE_BODY,
        LOSES,
        loses=("rmsnorm_op_values",),
        evidence=r"cs336_kernels/practice/custom_op\.py:\d+",
    ),
    Cheat(
        "an_operator_for_the_compiler_alone",
        "custom_op",
        FOR_THE_COMPILER,
        LOSES,
        loses=("rmsnorm_op_schema", "rmsnorm_op_fake"),
        evidence="another call than the one that is made",
        only=("test_rmsnorm_op_schema", "test_rmsnorm_op_fake"),
    ),
]
