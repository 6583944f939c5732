"""Dropouts with residual and LayerNorm without a kernel's work."""

from assignment.bank.cheats import Cheat

FILE = r"cs336_kernels/practice/dropout_add_layernorm\.py:\d+"
EVIDENCE = rf"(?s)kernel.*{FILE}|(not computed|not written|written outside).*kernel"

CHEATS = [
    Cheat(
        "dropout_add_layernorm_by_pytorch",
        "dropout_add_layernorm",
        """
def dropout_add_layernorm_forward(x, residual, weight, bias, p=0.1, seed=0, eps=1e-5):
    summed = residual + torch.nn.functional.dropout(x, p)
    y, mean, rstd = torch.ops.aten.native_layer_norm(summed, x.shape[-1:], weight, bias, eps)
    return y, summed, mean.view(x.shape[:-1]), rstd.view(x.shape[:-1])

def dropout_add_layernorm_backward(grad_y, summed, weight, mean, rstd, p=0.1, seed=0):
    kept = mean.unsqueeze(-1), rstd.unsqueeze(-1)
    grads = torch.ops.aten.native_layer_norm_backward(
        grad_y, summed, summed.shape[-1:], *kept, weight, weight, [True] * 3)
    return grads[0], *grads
""",
        evidence=EVIDENCE,
    ),
    Cheat(
        "dropout_add_layernorm_with_a_product_by_pytorch",
        "dropout_add_layernorm",
        """
RIGHT = dropout_add_layernorm_forward

def dropout_add_layernorm_forward(x, residual, weight, bias, p=0.1, seed=0, eps=1e-5):
    return RIGHT(x * _factors(x, p, seed), residual, weight, bias, 0.0, seed, eps)

def _factors(x, p, seed):
    factors = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        _factors_kernel[(triton.cdiv(x.numel(), 1024),)](factors, x.numel(), float(p), 1 / (1 - p), seed)
    return factors

@triton.jit
def _factors_kernel(factors_ptr, n, p, scale, seed):
    at = tl.program_id(0).to(tl.int64) * 1024 + tl.arange(0, 1024)
    tl.store(factors_ptr + at, tl.where(tl.rand(seed, at) >= p, scale, 0.0), mask=at < n)
""",
        evidence=EVIDENCE,
    ),
    Cheat(
        "dropout_add_layernorm_added_by_pytorch",
        "dropout_add_layernorm",
        """
RIGHT = dropout_add_layernorm_forward

def dropout_add_layernorm_forward(x, residual, weight, bias, p=0.1, seed=0, eps=1e-5):
    _, dropped, _, _ = RIGHT(x, torch.zeros_like(residual), weight, bias, p, seed, eps)
    summed = residual + dropped
    y, _, mean, rstd = RIGHT(torch.zeros_like(x), summed, weight, bias, 0.0, seed, eps)
    return y, summed, mean, rstd
""",
        evidence=EVIDENCE,
    ),
]
