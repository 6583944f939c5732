"""No kernel: one call of a library, under several disguises, and PyTorch's own operators in its place."""

from assignment.bank.cheats import LOSES, Cheat

LINE = r"cs336_kernels/\w+\.py:\d+"
SDPA = r"(?s)scaled_dot_product"
OUTSIDE = r"(?s)(not computed|not written|written outside).*kernel"
ATTENTION, ROWS = "flash_forward_triton", "rmsnorm"

BY_SDPA = """
def flash_forward_triton(q, k, v, is_causal=False):
    o, lse = attention(q, k, v, is_causal)
    return {call}, lse
"""


def sdpa(name: str, call: str, before: str = "", evidence: str = SDPA) -> Cheat:
    return Cheat(name, ATTENTION, before + BY_SDPA.format(call=call), evidence=evidence)


SLOW = {"sdpa_by_getattr"}

CHEATS = [
    sdpa("sdpa", "F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)", evidence=SDPA + ".*" + LINE),
    sdpa(
        "sdpa_by_getattr",
        'getattr(F, "_".join(["scaled", "dot", "product", "attention"]))(q, k, v, is_causal=is_causal)',
    ),
    sdpa(
        "sdpa_by_exec",
        "HIDDEN(q, k, v, is_causal=is_causal)",
        'exec(base64.b64decode("SElEREVOID0gRi5zY2FsZWRfZG90X3Byb2R1Y3RfYXR0ZW50aW9u"))\n',
        evidence=r"(?s)computed by aten::.*" + LINE + r".*HIDDEN\(",
    ),
    sdpa(
        "sdpa_with_decoy",
        "(RIGHT(q, k, v, is_causal=is_causal), F.scaled_dot_product_attention(q, k, v, is_causal=is_causal))[1]",
        "RIGHT = _flash.flash_forward_triton\n",
    ),
    sdpa(
        "sdpa_in_a_thread",
        "in_thread(q, k, v, is_causal)",
        evidence=OUTSIDE,
        before="""
def in_thread(q, k, v, is_causal):
    made = []
    thread = threading.Thread(target=lambda: made.append(F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)))
    thread.start()
    thread.join()
    return made[0]
""",
    ),
    Cheat(
        "aten_operator",
        ATTENTION,
        """
def flash_forward_triton(q, k, v, is_causal=False):
    plain._check_attention(q, k, v)
    q3, k3, v3 = (t.reshape(-1, 1, *t.shape[-2:]) for t in (q, k, v))
    o, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q3, k3, v3, 0.0, is_causal)
    return o.reshape(q.shape), lse.reshape(q.shape[:-1])
""",
        evidence=SDPA,
    ),
    Cheat(
        "library_rms_norm",
        ROWS,
        """
def rmsnorm_forward(x, weight, eps=1e-5):
    return F.rms_norm(x, (x.shape[-1],), weight, eps), norm(x, weight, eps)[1]

def rmsnorm_backward(grad_y, x, weight, rstd):
    return norm_backward(grad_y, x, weight, rstd)
""",
        evidence=r"(?s)rms_norm.*" + LINE,
    ),
    Cheat(
        "torch_compile",
        ROWS,
        """
rmsnorm_forward = torch.compile(norm)
rmsnorm_backward = torch.compile(norm_backward)

def rmsnorm_forward(x, weight, eps=1e-5, compiled=rmsnorm_forward):
    return compiled(x, weight, eps)

def rmsnorm_backward(grad_y, x, weight, rstd, compiled=rmsnorm_backward):
    return compiled(grad_y, x, weight, rstd)
""",
        evidence=r"(?s)kernel.*" + LINE,
    ),
    Cheat(
        "backward_by_autograd",
        ROWS,
        """
def rmsnorm_backward(grad_y, x, weight, rstd):
    with torch.enable_grad():
        x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
        eps = (rstd.double() ** -2 - x.detach().double().square().mean(-1)).clamp(min=0)
        y = x.double() * torch.rsqrt(x.double().square().mean(-1) + eps)[..., None] * weight.double()
        return torch.autograd.grad(y, (x, weight), grad_y.double())
""",
        evidence=r"(?s)kernel.*" + LINE,
    ),
    Cheat(
        "attention_around_the_pair",
        ATTENTION,
        """
def flash_attention(q, k, v, is_causal=False):
    return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
""",
        expected=LOSES,  # no more: flash_forward_triton itself is right, and earns the problem's other points
        loses=("test_attention_value",),
        only=("test_flash_forward.py::test_attention_value", "test_flash_forward.py::test_triton_values"),
        evidence=SDPA,
    ),
    Cheat(
        "pytorch_problem_by_sdpa",
        "flash_forward_pytorch",
        """
def flash_forward_pytorch(q, k, v, is_causal=False):
    o, lse = _flash.flash_forward_pytorch(q, k, v, is_causal=is_causal)
    return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal), lse

_flash = type("Kept", (), {"flash_forward_pytorch": staticmethod(_flash.flash_forward_pytorch)})
""",
        evidence=SDPA + ".*" + LINE,
    ),
    Cheat(
        "pytorch_problem_in_one_matrix",
        "flash_forward_pytorch",
        "def flash_forward_pytorch(q, k, v, is_causal=False):\n    return attention(q, k, v, is_causal)\n",
        evidence=r"n_queries|one matrix|elements",
    ),
    Cheat(
        "pytorch_problem_by_triton",
        "flash_forward_pytorch",
        """
RIGHT = _flash.flash_forward_triton

def flash_forward_pytorch(q, k, v, is_causal=False):
    return RIGHT(q, k, v, is_causal=is_causal)
""",
        evidence=r"(?i)kernel|wrong",  # in TF32 its values are wrong as well
    ),
    Cheat(
        "pytorch_backward_by_sdpa",
        "flash_backward_pytorch",
        """
def flash_backward_pytorch(grad_o, q, k, v, o, lse, is_causal=False):
    with torch.enable_grad():
        inputs = [t.detach().requires_grad_() for t in (q, k, v)]
        return torch.autograd.grad(F.scaled_dot_product_attention(*inputs, is_causal=is_causal), inputs, grad_o)
""",
        evidence=SDPA,
    ),
]
