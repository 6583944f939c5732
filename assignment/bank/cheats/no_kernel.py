"""No kernel: NumPy, Python or compiled code computes, and kernels are decoys or for somewhere else."""

from assignment.bank.cheats import HARMLESS, LOSES, Cheat

LINE = r"cs336_kernels/\w+\.py:\d+"
OUTSIDE = r"(?s)(not computed|not written|written outside).*kernel"
ROWS, SUM = "rmsnorm", "weighted_sum"


SLOW = {"pure_python", "kernel_on_a_gpu_only"}

CHEATS = [
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
        expected=LOSES,  # in a sandbox no compiler runs; the other function of the problem is right
        loses=("test_forward_values",),
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
        "in_place_over_kernels_work",
        ROWS,
        """
def rmsnorm_forward(x, weight, eps=1e-5):
    _rms._check_forward(x, weight)
    y, squares = copied(x.float()), copied(x.float())
    rstd = copied(torch.zeros(x.shape[:-1]))
    torch._foreach_mul_([squares], [squares])
    torch.mean(squares, -1, out=rstd)
    torch.rsqrt(rstd.add_(eps), out=rstd)
    y.mul_(rstd[..., None]).lerp_(y * weight.float(), 1.0)
    return y.to(x.dtype), rstd
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
        HARMLESS,  # host code hears of a GPU: the kernel is what is graded
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
]
