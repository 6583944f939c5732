"""LayerNorms without a kernel's work."""

from assignment.bank.cheats import COPY, Cheat

EVIDENCE = r"(?s)kernel.*cs336_kernels/practice/layernorm\.py:\d+|(not computed|not written|written outside).*kernel"

CHEATS = [
    Cheat(
        "layernorm_by_pytorch",
        "layernorm",
        """
def layernorm_forward(x, weight, bias, eps=1e-5):
    return torch.ops.aten.native_layer_norm(x, x.shape[-1:], weight, bias, eps)

def layernorm_backward(grad_y, x, weight, mean, rstd):
    kept = mean.unsqueeze(-1), rstd.unsqueeze(-1)
    return torch.ops.aten.native_layer_norm_backward(grad_y, x, x.shape[-1:], *kept, weight, weight, [True] * 3)
""",
        evidence=EVIDENCE,
    ),
    Cheat(
        "layernorm_behind_a_copy",
        "layernorm",
        COPY
        + """
RIGHT = layernorm_forward

def layernorm_forward(x, weight, bias, eps=1e-5):
    RIGHT(x, weight, bias, eps)
    mean = x.float().mean(-1)
    rstd = (x.float().var(-1, correction=0) + eps).rsqrt()
    y = torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)
    return copied(y), mean, rstd
""",
        evidence=EVIDENCE,
    ),
    Cheat(
        "layernorm_with_statistics_by_pytorch",
        "layernorm",
        """
def layernorm_forward(x, weight, bias, eps=1e-5):
    rows = x.reshape(-1, x.shape[-1])
    y = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
    mean = rows.float().mean(-1)
    rstd = (rows.float().var(-1, correction=0) + eps).rsqrt()
    d = x.shape[-1]
    _normalize[(len(rows), triton.cdiv(d, 1024))](rows.contiguous(), weight, bias, mean, rstd, y, d)
    return y.view(x.shape), mean.view(x.shape[:-1]), rstd.view(x.shape[:-1])

@triton.jit
def _normalize(x_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, y_ptr, d):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * 1024 + tl.arange(0, 1024)
    x = tl.load(x_ptr + row * d + cols, mask=cols < d).to(tl.float32)
    w, b = tl.load(w_ptr + cols, mask=cols < d), tl.load(b_ptr + cols, mask=cols < d)
    y = (x - tl.load(mean_ptr + row)) * tl.load(rstd_ptr + row) * w + b
    tl.store(y_ptr + row * d + cols, y, mask=cols < d)
""",
        evidence=EVIDENCE,
    ),
]
