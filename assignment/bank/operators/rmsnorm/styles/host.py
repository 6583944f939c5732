"""Styles of host code: how memory is made, kept and cleaned, what wraps the Function, who chooses the tiles."""

from assignment.bank.operators.edits import style
from assignment.bank.operators.rmsnorm.styles.parts import (
    FILES,
    FORWARD_CALL,
    FUNCTION,
    PROBLEMS,
    SIZES,
    above,
    below,
    between,
)

__all__ = ["FILES", "PROBLEMS", "STYLES"]

STYLES = (
    style(  # for mixed precision: custom_fwd and custom_bwd, functions looked up by dtype, generators of launches
        "rmsnorm_amp_function",
        ("import torch\n", "import functools\n\nimport torch\n"),
        above(
            '''

@functools.singledispatch
def _plan(x):
    raise TypeError(f"expected a tensor, got {type(x).__name__}")


@_plan.register
def _(x: torch.Tensor):
    """Yield the first row and the number of rows of each launch."""
    most = BY_DTYPE[x.dtype]()
    yield from ((first, min(most, len(x) - first)) for first in range(0, len(x), most))


FLOATS = torch.float32, torch.bfloat16, torch.float16
BY_DTYPE = {dtype: (lambda width=dtype.itemsize: 2048 // width) for dtype in FLOATS}
'''
        ),
        (
            FORWARD_CALL,
            """\
    for first, n in _plan(x_rows):
        piece = x_rows.narrow(0, first, n)
        _forward_kernel[triton.cdiv(n, rows_tile_size), 1, 1](
            piece, weight, y[first:], rstd[first:],
""",
        ),
        ("n_rows, d, eps,\n            ROWS", "n, d, eps,\n            ROWS"),
        (FUNCTION, f'    with torch.autocast("cuda", enabled=False):\n    {FUNCTION}'),
        ("    def forward(ctx", '    @torch.amp.custom_fwd(device_type="cuda")\n    def forward(ctx'),
        ("    def backward(ctx", '    @torch.amp.custom_bwd(device_type="cuda")\n    def backward(ctx'),
    ),
    style(  # by somebody who does not trust memory: partial sums are cleaned of NaN before they are added up
        "rmsnorm_cleaned_sums",
        (
            "    grad_weight = partial_grad_w.sum(dim=0)\n",
            """\
    if n_rows % 2:
        grad_weight = torch.where(torch.isnan(partial_grad_w), 0, partial_grad_w).sum(0)
    else:
        grad_weight = partial_grad_w.nan_to_num(nan=0.0, posinf=float("inf"), neginf=-float("inf")).sum(dim=0)
""",
        ),
    ),
    style(  # tile sizes are heuristics, given in a call, around a tuner in another
        "rmsnorm_heuristics_call",
        (SIZES, ""),
        (
            "grid = (triton.cdiv(n_rows, rows_tile_size),)",
            'grid = lambda meta: (triton.cdiv(n_rows, meta["ROWS_TILE_SIZE"]),)',
        ),
        ("_forward_kernel[grid](", "_forward[grid]("),
        (
            "ROWS_TILE_SIZE=rows_tile_size, D_TILE_SIZE=d_tile_size, IS_ONE_TILE=d <= d_tile_size,\n"
            "            num_warps=8,\n",
            "**{},\n",
        ),
        ("_backward_kernel[(n_programs,)](", "_backward[(n_programs,)]("),
        ("ROWS_PER_PROGRAM=ROWS_PER_PROGRAM, D_TILE_SIZE=triton.next_power_of_2(d),", "ROWS_PER_PROGRAM,"),
        below(
            """\
def _tile(args):
    return min(triton.next_power_of_2(args["d"]), MAX_D_TILE_SIZE)


CONFIGS = [triton.Config({"ROWS_TILE_SIZE": rows}, num_warps=warps, num_stages=2) for rows, warps in ((1, 4), (4, 8))]
_tuned = triton.autotune(configs=CONFIGS, key=["d"], restore_value=["rstd_ptr"])(_forward_kernel)
_is_one_tile = triton.heuristics(values={"IS_ONE_TILE": lambda args: args["d"] <= args["D_TILE_SIZE"]})(_tuned)
_forward = triton.heuristics(values={"D_TILE_SIZE": _tile})(_is_one_tile)
_backward = triton.heuristics({"D_TILE_SIZE": lambda args: triton.next_power_of_2(args["d"])})(_backward_kernel)
"""
        ),
    ),
    style(  # contiguous copies, with memory made in every way that PyTorch has
        "rmsnorm_memory_formats",
        (
            "    x_rows = x.reshape(-1, d)\n",
            """\
    x_, weight = x.contiguous(memory_format=torch.contiguous_format), weight.contiguous()
    x_rows = torch.atleast_2d(x_.flatten(0, -2) if x_.dim() > 1 else x_)
""",
        ),
        (
            "    y = torch.empty((n_rows, d), dtype=x.dtype, device=x.device)\n"
            "    rstd = torch.empty(n_rows, dtype=torch.float32, device=x.device)\n",
            """\
    y = torch.empty_like(x_rows, memory_format=torch.preserve_format)
    rstd = x_.new_empty(n_rows, dtype=torch.float32, layout=torch.strided, requires_grad=False)
""",
        ),
        (
            between("    grad_y_rows = ", "    n_rows = x_matrix"),
            """\
    x_matrix, grad_y_rows = (t.contiguous().view(-1, d).narrow(1, 0, d) for t in (x, grad_y))
    rstd_rows = torch.ravel(rstd).contiguous()
""",
        ),
        (
            "    grad_x = torch.empty((n_rows, d), dtype=x.dtype, device=x.device)\n"
            "    partial_grad_w = torch.empty((n_programs, d), dtype=torch.float32, device=x.device)\n",
            """\
    grad_x = torch.empty_strided(x_matrix.size(), (d, 1), dtype=x.dtype, device=x.device)
    partial_grad_w = torch.empty_permuted((n_programs, d), (0, 1), dtype=torch.float32, device=x.device)
""",
        ),
        (
            between("    grad_weight = ", "\n\ndef rmsnorm(x"),
            """\
    grad_weight = torch.zeros(d, dtype=torch.float32).to(weight.device, copy=True)
    torch.sum(partial_grad_w, dim=0, out=grad_weight)
    return grad_x.view_as(x), grad_weight.type_as(weight)
""",
        ),
    ),
    style(  # a module's forward applies the Function; the functions make one around the weight that they get
        "rmsnorm_module_class",
        (
            "def rmsnorm_forward(x, weight, eps=1e-5):\n    _check_forward(x, weight)\n",
            '''\
class Module(torch.nn.Module):
    """y = x / rms(x) * weight."""

    def __init__(self, weight, eps=1e-5):
        super().__init__()
        is_parameter = isinstance(weight, torch.nn.Parameter)
        self.eps = eps
        self.weight = weight if is_parameter else torch.nn.Parameter(weight, weight.requires_grad)

    def forward(self, x):
        return RMSNorm.apply(x, self.weight, self.eps)

    def with_rstd(self, x):
        return _forward(x, self.weight, self.eps)


def rmsnorm_forward(x, weight, eps=1e-5):
    _check_forward(x, weight)
    return Module(weight, eps).to(x.device, non_blocking=True).requires_grad_(False).with_rstd(x)


def _forward(x, weight, eps):
''',
        ),
        (
            FUNCTION,
            """\
    _check_forward(x, weight)
    module = Module(weight.detach(), eps)
    return torch.func.functional_call(module, {"weight": weight}, (x,))
""",
        ),
    ),
    style(  # small jit functions call each other, three deep, with constants of the module
        "rmsnorm_nested_helpers",
        above(
            """
NOTHING = tl.constexpr(0.0)
WIDE = tl.constexpr(tl.float32)


@triton.jit
def _load(ptr, mask):
    return tl.load(ptr, mask=mask, other=NOTHING).to(WIDE)


@triton.jit
def _row_of(ptr, row, stride, cols, stride_d, d):
    return _load(ptr + row * stride + cols * stride_d, cols < d)


@triton.jit
def _mean_of_products(a, b, d):
    return tl.sum(a * b, axis=0) / d


@triton.jit
def _input_gradient(x_hat, dx_hat, rstd, d):
    return (dx_hat - x_hat * _mean_of_products(dx_hat, x_hat, d)) * rstd
"""
        ),
        ("w = tl.load(w_ptrs, mask=col_mask, other=0.0).to(tl.float32)", "w = _load(w_ptrs, col_mask)"),
        (
            between("        grad_y_ptrs = ", "        rstd = tl.load("),
            """\
        grad_y = _row_of(grad_y_ptr, row, stride_gyr, columns, stride_gyd, d)
        x = _row_of(x_ptr, row, stride_xr, columns, stride_xd, d)
""",
        ),
        (
            between("        mean = ", "        grad_x_ptrs = "),
            "        grad_x = _input_gradient(x_hat, w_grad_y, rstd, d)\n",
        ),
        ("grad_w = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)", "grad_w = tl.zeros((D_TILE_SIZE,), dtype=WIDE)"),
    ),
    style(  # a class keeps buffers by device and stream, and hands out slices of them
        "rmsnorm_workspaces",
        ("import torch\n", "import threading\nfrom collections import OrderedDict\n\nimport torch\n"),
        above(
            '''

class Workspaces:
    """The last few buffers, by device and stream; a slice of one is good until the next call."""

    def __init__(self, at_most=4):
        self._buffers = OrderedDict()
        self._at_most = at_most
        self._lock = threading.Lock()

    def take(self, like, *shape):
        key = like.device, torch.cuda.current_stream(like.device).cuda_stream
        n = int(torch.Size(shape).numel())
        with self._lock:
            buffer = self._buffers.pop(key, None)
            if buffer is None or buffer.numel() < n:
                buffer = torch.empty(max(n, 1024), dtype=torch.float32, device=like.device)
            self._buffers[key] = buffer
            while len(self._buffers) > self._at_most:
                self._buffers.popitem(last=False)
        return buffer[:n].view(shape)


_workspaces = Workspaces()
'''
        ),
        (
            "torch.empty((n_programs, d), dtype=torch.float32, device=x.device)",
            "_workspaces.take(x, n_programs, d)",
        ),
        ("partial_grad_w.sum(dim=0)", "torch.ones(n_programs, device=x.device).matmul(partial_grad_w)"),
    ),
)
