"""Fig leaves: a kernel does a part of the work, and torch the part that the problem is about."""

from assignment.bank.cheats import LOSES, Cheat

LINE = r"cs336_kernels/\w+\.py:\d+"
EVIDENCE = r"(?s)kernel.*" + LINE

SOFTMAX = """
@triton.jit
def _softmax(s_ptr, p_ptr, lse_ptr, n, SIZE: tl.constexpr):
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    s = tl.load(s_ptr + row * n + cols, mask=cols < n, other=float("-inf"))
    top = tl.max(s, 0)
    p = tl.exp(s - top)
    total = tl.sum(p, 0)
    tl.store(p_ptr + row * n + cols, p / total, mask=cols < n)
    tl.store(lse_ptr + row, top + tl.log(total))

def softmax(s):
    p, lse = torch.empty_like(s), torch.empty(s.shape[:-1])
    _softmax[(lse.numel(),)](s.contiguous(), p, lse, s.shape[-1], SIZE=triton.next_power_of_2(s.shape[-1]))
    return p, lse

RIGHT = _flash.flash_forward_triton
"""
BACKWARD = "RIGHT = _flash.flash_backward_triton\n"


def leaf(name: str, problem: str, source: str) -> Cheat:
    return Cheat(name, problem, source, evidence=EVIDENCE)


def backward(name: str, source: str) -> Cheat:
    """Of a backward function alone: a check of its own must fail, with all that there is to say."""
    return Cheat(name, "rmsnorm", source, LOSES, ("test_backward_values",), evidence=EVIDENCE)


SLOW = {"matmul_as_multiply_and_sum", "dv_by_torch"}
CHEATS = [
    leaf(
        "softmax_alone_in_a_kernel",
        "flash_forward_triton",
        SOFTMAX
        + """
def flash_forward_triton(q, k, v, is_causal=False):
    plain._check_attention(q, k, v)
    p, lse = softmax(plain.scores(q, k, is_causal))
    return copied((p @ v.float()).to(q.dtype)), lse
""",
    ),
    leaf(
        "torch_multiplies_p_and_v",
        "flash_forward_triton",
        SOFTMAX
        + """
def flash_forward_triton(q, k, v, is_causal=False):
    plain._check_attention(q, k, v)
    p, lse = softmax(plain.scores(q, k, is_causal))
    return (p @ v.float()).to(q.dtype), lse
""",
    ),
    leaf(
        "matmul_as_multiply_and_sum",
        "flash_forward_triton",
        SOFTMAX
        + """
def flash_forward_triton(q, k, v, is_causal=False):
    plain._check_attention(q, k, v)
    s = (q.float()[..., :, None, :] * k.float()[..., None, :, :]).sum(-1) / math.sqrt(q.shape[-1])
    s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -math.inf) if is_causal else s
    p, lse = softmax(s)
    return (p[..., None] * v.float()[..., None, :, :]).sum(-2).to(q.dtype), lse
""",
    ),
    leaf(
        "torch_computes_lse",
        "flash_forward_triton",
        SOFTMAX
        + """
def flash_forward_triton(q, k, v, is_causal=False):
    o, _ = RIGHT(q, k, v, is_causal=is_causal)
    return o, torch.logsumexp(plain.scores(q, k, is_causal), -1)
""",
    ),
    leaf(
        "o_by_torch_beside_a_right_lse",
        "flash_forward_triton",
        SOFTMAX
        + """
def flash_forward_triton(q, k, v, is_causal=False):
    _, lse = RIGHT(q, k, v, is_causal=is_causal)
    return (torch.exp(plain.scores(q, k, is_causal) - lse[..., None]) @ v.float()).to(q.dtype), lse
""",
    ),
    leaf(
        "inputs_scaled_by_a_matrix",
        "flash_forward_triton",
        SOFTMAX
        + """
def flash_forward_triton(q, k, v, is_causal=False):
    turn = torch.linalg.qr(torch.randn(q.shape[-1], q.shape[-1]))[0].to(q.dtype)  # q k = (q R)(k R): work by torch
    return RIGHT(q @ turn, k @ turn, v, is_causal=is_causal)
""",
    ),
    leaf(
        "dq_by_torch",
        "flash_backward_triton",
        BACKWARD
        + """
def flash_backward_triton(grad_o, q, k, v, o, lse, is_causal=False):
    _, grad_k, grad_v = RIGHT(grad_o, q, k, v, o, lse, is_causal=is_causal)
    return attention_backward(grad_o, q, k, v, o, lse, is_causal)[0], grad_k, grad_v
""",
    ),
    leaf(
        "dv_by_torch",
        "flash_backward_triton",
        BACKWARD
        + """
def flash_backward_triton(grad_o, q, k, v, o, lse, is_causal=False):
    grad_q, grad_k, _ = RIGHT(grad_o, q, k, v, o, lse, is_causal=is_causal)
    return grad_q, grad_k, copied(attention_backward(grad_o, q, k, v, o, lse, is_causal)[2])
""",
    ),
    leaf(
        "torch_normalises",
        "rmsnorm",
        """
RIGHT = _rms.rmsnorm_forward

def rmsnorm_forward(x, weight, eps=1e-5):
    _, rstd = RIGHT(x, weight, eps=eps)
    return (x.float() * rstd[..., None] * weight.float()).to(x.dtype), rstd
""",
    ),
    leaf(
        "torch_computes_rstd",
        "rmsnorm",
        """
RIGHT = _rms.rmsnorm_forward

def rmsnorm_forward(x, weight, eps=1e-5):
    y, _ = RIGHT(x, weight, eps=eps)
    return y, torch.rsqrt(x.float().square().mean(-1) + eps)
""",
    ),
    leaf(
        "kernel_multiplies_by_torchs_rstd",
        "rmsnorm",
        """
def rmsnorm_forward(x, weight, eps=1e-5):
    _, rstd = norm(x, weight, eps)
    y, rows = torch.empty(x.shape, dtype=x.dtype), x.reshape(-1, x.shape[-1]).contiguous()
    if y.numel():
        _scale[(len(rows),)](rows, rstd, weight.contiguous(), y, x.shape[-1], triton.next_power_of_2(x.shape[-1]))
    return y, rstd

@triton.jit
def _scale(x_ptr, rstd_ptr, w_ptr, y_ptr, d, SIZE: tl.constexpr):
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    x = tl.load(x_ptr + row * d + cols, mask=cols < d).to(tl.float32)
    y = x * tl.load(rstd_ptr + row) * tl.load(w_ptr + cols, mask=cols < d).to(tl.float32)
    tl.store(y_ptr + row * d + cols, y.to(y_ptr.dtype.element_ty), mask=cols < d)
""",
    ),
    backward(
        "grad_weight_by_torch",
        """
RIGHT = _rms.rmsnorm_backward

def rmsnorm_backward(grad_y, x, weight, rstd):
    grad_x, _ = RIGHT(grad_y, x, weight, rstd)
    return grad_x, norm_backward(grad_y, x, weight, rstd)[1]
""",
    ),
    backward(
        "inputs_premultiplied_by_torch",
        """
RIGHT = _rms.rmsnorm_backward

def rmsnorm_backward(grad_y, x, weight, rstd):
    ones = torch.ones_like(weight)
    grad_x, _ = RIGHT((grad_y.float() * weight.float()).to(x.dtype), x, ones, rstd)
    return grad_x, RIGHT(grad_y, x, weight, rstd)[1]
""",
    ),
    leaf(
        "torch_sums_the_products",
        "weighted_sum",
        """
def weighted_sum_forward(x, weight):
    plain._check_rows(x, weight)
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    products = torch.empty(rows.shape)
    if rows.numel():
        _multiply[(len(rows),)](rows, weight.contiguous(), products, x.shape[-1], triton.next_power_of_2(x.shape[-1]))
    return products.sum(-1).reshape(x.shape[:-1]).to(x.dtype)

@triton.jit
def _multiply(x_ptr, w_ptr, p_ptr, d, SIZE: tl.constexpr):
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    x = tl.load(x_ptr + row * d + cols, mask=cols < d).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=cols < d).to(tl.float32)
    tl.store(p_ptr + row * d + cols, x * w, mask=cols < d)
""",
    ),
    leaf(
        "kernel_sums_torchs_products",
        "weighted_sum",
        """
RIGHT = _wsum.weighted_sum_forward

def weighted_sum_forward(x, weight):
    plain._check_rows(x, weight)
    return RIGHT(x.float() * weight.float(), torch.ones(weight.shape)).to(x.dtype)
""",
    ),
]
