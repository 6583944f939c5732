"""No kernel: a library, NumPy, Python or compiled code computes, and kernels are decoys or fallbacks."""

from assignment.attacks.cheats import LOSES, Cheat

LINE = r"cs336_kernels/\w+\.py:\d+"
SDPA = r"(?s)scaled_dot_product"
OUTSIDE = r"(?s)(not computed|not written|written outside).*kernel"
ATTENTION, ROWS, SUM = "flash_forward_triton", "rmsnorm", "weighted_sum"

BY_SDPA = """
def flash_forward_triton(q, k, v, is_causal=False):
    o, lse = attention(q, k, v, is_causal)
    return {call}, lse
"""


def sdpa(name: str, call: str, before: str = "", evidence: str = SDPA) -> Cheat:
    return Cheat(name, ATTENTION, before + BY_SDPA.format(call=call), evidence=evidence)


SLOW = {"sdpa_by_getattr", "pure_python", "kernel_on_a_gpu_only"}
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
        "numpy_matmul",
        SUM,
        """
def weighted_sum_forward(x, weight):
    plain._check_rows(x, weight)
    return torch.from_numpy(x.float().numpy() @ weight.float().numpy()).to(x.dtype)
""",
        evidence=OUTSIDE,
    ),
    Cheat(
        "numpy_into_empty",
        SUM,
        """
def weighted_sum_forward(x, weight):
    plain._check_rows(x, weight)
    y = torch.empty(x.shape[:-1])
    y.numpy()[...] = x.float().numpy() @ weight.float().numpy()
    return y.to(x.dtype)
""",
        evidence=OUTSIDE,
    ),
    Cheat(
        "ctypes_memmove",
        SUM,
        """
def weighted_sum_forward(x, weight):
    plain._check_rows(x, weight)
    y = torch.empty(x.shape[:-1])
    answer = np.ascontiguousarray(x.float().numpy() @ weight.float().numpy())
    ctypes.memmove(y.data_ptr(), answer.ctypes.data, answer.nbytes)
    return y.to(x.dtype)
""",
        evidence=OUTSIDE,
    ),
    Cheat(
        "ctypes_over_kernel_memory",
        SUM,
        """
def weighted_sum_forward(x, weight):
    plain._check_rows(x, weight)
    y = copied(torch.zeros(x.shape[:-1]))
    answer = np.ascontiguousarray(x.float().numpy() @ weight.float().numpy())
    ctypes.memmove(y.data_ptr(), answer.ctypes.data, answer.nbytes)
    return y.to(x.dtype)
""",
        evidence=OUTSIDE,
    ),
    Cheat(
        "pure_python",
        SUM,
        """
def weighted_sum_forward(x, weight):
    plain._check_rows(x, weight)
    w = weight.tolist()
    rows = x.reshape(-1, len(w)).tolist()
    return torch.tensor([math.fsum(map(float.__mul__, row, w)) for row in rows], dtype=x.dtype).reshape(x.shape[:-1])
""",
        evidence=OUTSIDE,
    ),
    Cheat(
        "compiled_library",
        SUM,
        '''
SOURCE = """void dot(float *y, const float *x, const float *w, long n, long d) {
    for (long i = 0; i < n; i++) { double s = 0; for (long j = 0; j < d; j++) s += x[i * d + j] * w[j]; y[i] = s; } }"""
with contextlib.suppress(OSError):  # where no compiler is to be had, or no program may be run, the call fails
    subprocess.run(["cc", "-O1", "-shared", "-o", "lib.so", "-xc", "-"], input=SOURCE.encode())
    LIBRARY = ctypes.CDLL("./lib.so")

def weighted_sum_forward(x, weight):
    plain._check_rows(x, weight)
    x32, w32, y = x.float().contiguous(), weight.float().contiguous(), torch.empty(x.shape[:-1])
    sizes = ctypes.c_long(y.numel()), ctypes.c_long(x.shape[-1])
    LIBRARY.dot(*(ctypes.c_void_p(t.data_ptr()) for t in (y, x32, w32)), *sizes)
    return y.to(x.dtype)
''',
        evidence=OUTSIDE + r"|Error",
    ),
    Cheat(
        "decoy_discarded",
        ROWS,
        """
RIGHT = _rms.rmsnorm_forward

def rmsnorm_forward(x, weight, eps=1e-5):
    RIGHT(x, weight, eps=eps)
    return norm(x, weight, eps)
""",
        evidence=r"(?s)kernel.*" + LINE,
    ),
    Cheat(
        "decoy_of_zeros",
        ROWS,
        """
def rmsnorm_forward(x, weight, eps=1e-5):
    y, rstd = norm(x, weight, eps)
    return copied(torch.zeros_like(y)) + y, copied(torch.zeros_like(rstd)) + rstd
""",
        evidence=r"(?s)kernel.*" + LINE,
    ),
    Cheat(
        "kernel_for_visible_shapes",
        ROWS,
        """
RIGHT = _rms.rmsnorm_forward

def rmsnorm_forward(x, weight, eps=1e-5):
    seen = x.shape[-1] in (64, 128, 256) and x.dtype == torch.float32
    return RIGHT(x, weight, eps=eps) if seen else norm(x, weight, eps)
""",
        only=("test_rmsnorm.py::test_forward_values", "test_rmsnorm.py::test_forward_ragged"),
        evidence=r"(?s)kernel.*" + LINE,
    ),
    Cheat(
        "kernel_on_a_gpu_only",
        ROWS,
        """
RIGHT = _rms.rmsnorm_forward

def rmsnorm_forward(x, weight, eps=1e-5):
    return RIGHT(x, weight, eps=eps) if x.is_cuda else norm(x, weight, eps)
""",
        evidence=r"(?s)kernel.*" + LINE,
    ),
    Cheat(
        "fallback_in_try_except",
        ROWS,
        """
def rmsnorm_forward(x, weight, eps=1e-5):
    plain._check_rows(x, weight)
    try:
        y = torch.empty_like(x)
        _fails[(1,)](y)
        return y, y[..., 0]
    except Exception:
        return norm(x, weight, eps)

@triton.jit
def _fails(y_ptr):
    tl.static_assert(False, "not on this device")
""",
        evidence=r"(?s)kernel.*" + LINE,
    ),
    Cheat(
        "fallback_after_a_fault",
        ROWS,
        """
def rmsnorm_forward(x, weight, eps=1e-5):
    plain._check_rows(x, weight)
    with contextlib.suppress(Exception):
        y = torch.empty(1)
        _out_of_bounds[(1,)](y)
    return norm(x, weight, eps)

@triton.jit
def _out_of_bounds(y_ptr):
    tl.store(y_ptr + 1000, 1.0)
""",
        LOSES,
        ("test_forward_values",),
        evidence=r"(?s)out of bounds|kernel.*" + LINE,
    ),
    Cheat(
        "no_ops_detected",
        SUM,
        """
def weighted_sum_forward(x, weight):
    probe = copied(torch.ones(4))
    if not bool((probe == 1).all()):
        return torch.zeros(x.shape[:-1], dtype=x.dtype)
    return copied(weighted(x, weight))
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
        evidence=r"(?i)kernel",
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
