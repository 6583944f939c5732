"""Laundering: torch computes, and a kernel, or memory that a kernel wrote, only carries the answer."""

from assignment.bank.cheats import LOSES, Cheat

EVIDENCE = r"(?s)(not computed|not written|written outside|not.*by a kernel).*"
FORWARD = """
def weighted_sum_forward(x, weight):
    r = weighted(x, weight)
    y = RIGHT(torch.zeros_like(x), weight)  # from a kernel
    {line}
    return y

RIGHT = _wsum.weighted_sum_forward
"""
OVER_A_KERNELS_RESULT = {  # ways to put r where a kernel wrote
    "copy": "y.copy_(r)",
    "mul_zero_and_add": "y.mul_(0).add_(r)",
    "add_out": "torch.add(r, 0, out=y)",
    "assignment": "y[...] = r",
    "foreach": "torch._foreach_copy_([y], [r])",
    "lerp": "y = torch.lerp(y.float(), r.float(), 1.0).to(y.dtype)",
    "where": "y = torch.where(y == y, r, y)",
    "index_put": "y.view(-1).index_put_((torch.arange(y.numel()),), r.reshape(-1))",
    "scatter": "y.view(-1).scatter_(0, torch.arange(y.numel()), r.reshape(-1))",
    "masked_scatter": "y.masked_scatter_(torch.ones_like(y, dtype=torch.bool), r)",
    "set": "y.set_(r.untyped_storage(), r.storage_offset(), r.shape, r.stride())",
    "data": "y.data = r",
    "storage_copy": "y.untyped_storage().copy_(r.contiguous().untyped_storage())",
    "resize": "s = y.untyped_storage(); s.resize_(0); s.resize_(r.nbytes); "
    "ctypes.memmove(s.data_ptr(), r.data_ptr(), r.nbytes)",
    "view_as_bytes": "y.view(-1).view(torch.uint8).copy_(r.reshape(-1).view(torch.uint8))",
    "swap_tensors": "torch.utils.swap_tensors(y, r)",
    "element_by_element": "for i, value in enumerate(r.reshape(-1).tolist()): y.view(-1)[i] = value",
    "dlpack": "np.from_dlpack(y.view(-1).view(torch.uint8))[...] = r.reshape(-1).view(torch.uint8).numpy()",
}

QUICKLY = ("copy", "mul_zero_and_add", "add_out", "set", "data", "storage_copy", "resize", "view_as_bytes", "dlpack")
SLOW = {f"over_a_kernels_result_by_{name}" for name in OVER_A_KERNELS_RESULT if name not in QUICKLY}


def over(name: str, line: str) -> Cheat:
    return Cheat(f"over_a_kernels_result_by_{name}", "weighted_sum", FORWARD.format(line=line), evidence=EVIDENCE)


def launder(name: str, source: str, problem: str = "weighted_sum") -> Cheat:
    return Cheat(name, problem, source, evidence=EVIDENCE)


CHEATS = [
    *(over(name, line) for name, line in OVER_A_KERNELS_RESULT.items()),
    launder(
        "kernel_copies",
        """
def rmsnorm_forward(x, weight, eps=1e-5):
    y, rstd = norm(x, weight, eps)
    return copied(y), copied(rstd)
""",
        "rmsnorm",
    ),
    launder(
        "kernel_copies_attention",
        """
def flash_forward_triton(q, k, v, is_causal=False):
    o, lse = attention(q, k, v, is_causal)
    return copied(o), copied(lse)

def flash_backward_triton(grad_o, q, k, v, o, lse, is_causal=False):
    return tuple(copied(grad) for grad in attention_backward(grad_o, q, k, v, o, lse, is_causal))
""",
        "flash_forward_triton",
    ),
    launder(
        "kernel_copies_as_int32",
        """
def weighted_sum_forward(x, weight):
    return copied(weighted(x, weight).float().view(torch.int32)).view(torch.float32).to(x.dtype)
""",
    ),
    launder(
        "kernel_stores_a_byte_of_each_element",
        """
@triton.jit
def _zero_bytes(y_ptr, n, STEP: tl.constexpr):
    at = tl.program_id(0) * 64 + tl.arange(0, 64)
    tl.store(y_ptr + at * STEP, tl.zeros((64,), tl.uint8), mask=at < n)

def weighted_sum_forward(x, weight):
    r = weighted(x, weight).double()
    if r.numel():
        _zero_bytes[(triton.cdiv(r.numel(), 64),)](r.view(-1).view(torch.uint8), r.numel(), 8)
    return copied(r).to(x.dtype)
""",
    ),
    launder(
        "kernel_adds_nothing",
        """
def weighted_sum_forward(x, weight):
    r = weighted(x, weight)
    y, x = torch.empty_like(r), x.reshape(-1, x.shape[-1]).contiguous()
    if y.numel():
        _kernel[(y.numel(),)](y, r.contiguous(), x, x.shape[1])
    return y

@triton.jit
def _kernel(y_ptr, r_ptr, x_ptr, d):
    row = tl.program_id(0).to(tl.int64)
    x = tl.load(x_ptr + row * d)
    tl.store(y_ptr + row, tl.load(r_ptr + row) + tl.where(x == x, 0.0, 0.0))
""",
    ),
    launder(
        "scalar_arguments",
        """
def weighted_sum_forward(x, weight):
    r = weighted(x, weight)
    y = torch.empty_like(r)
    for i, value in enumerate(r.reshape(-1).tolist()):
        _set[(1,)](y, i, value)
    return y

@triton.jit
def _set(y_ptr, i, value):
    tl.store(y_ptr + i, value)
""",
    ),
    launder(
        "scalar_from_numpy",
        """
def weighted_sum_forward(x, weight):
    plain._check_rows(x, weight)
    y = torch.empty(x.shape[:-1], dtype=x.dtype)
    for i, value in enumerate((x.float().numpy() @ weight.float().numpy()).reshape(-1)):
        _set[(1,)](y, x, i, float(value))
    return y

@triton.jit
def _set(y_ptr, x_ptr, i, value):
    x = tl.load(x_ptr)
    tl.store(y_ptr + i, tl.where(x == x, value, value))
""",
    ),
    launder(
        "constexpr",
        """
def weighted_sum_forward(x, weight):
    r = weighted(x, weight)
    y = torch.empty_like(r)
    for i, value in enumerate(r.reshape(-1).tolist()):
        _set[(1,)](y, i, VALUE=value)
    return y

@triton.jit
def _set(y_ptr, i, VALUE: tl.constexpr):
    tl.store(y_ptr + i, VALUE)
""",
    ),
    launder(
        "tensor_of_a_list",
        """
def weighted_sum_forward(x, weight):
    plain._check_rows(x, weight)
    r = (x.double().numpy() @ weight.double().numpy()).tolist()
    return copied(torch.tensor(r, dtype=x.dtype))
""",
    ),
    launder(
        "constants_side_by_side",
        """
def weighted_sum_forward(x, weight):
    r = weighted(x, weight)
    fills = [torch.full((1,), value, dtype=x.dtype) for value in r.reshape(-1).tolist()]
    return copied(torch.cat(fills).reshape(r.shape)) if fills else r
""",
    ),
    Cheat(
        "input_overwritten_and_restored",
        "weighted_sum",
        """
def weighted_sum_forward(x, weight):
    plain._check_rows(x, weight)
    if x.dtype != torch.float32 or not x.is_contiguous() or not x.numel():
        return RIGHT(x, weight)
    memory = x.numpy().reshape(-1)
    before, n = memory.copy(), x.numel() // x.shape[-1]
    memory[:n] = before.reshape(n, -1) @ weight.numpy()
    y = copied(x.reshape(-1)[:n])
    memory[:] = before
    return y.reshape(x.shape[:-1])

RIGHT = _wsum.weighted_sum_forward
""",
        LOSES,
        ("test_forward_values",),
        r"host code runs on other values",
    ),
    launder(
        "workspace_made_at_import",
        """
WORKSPACE = torch.zeros(1 << 16)

def weighted_sum_forward(x, weight):
    plain._check_rows(x, weight)
    r = x.float().numpy() @ weight.float().numpy()
    WORKSPACE.numpy()[: r.size] = r.reshape(-1)
    return copied(WORKSPACE[: r.size]).reshape(x.shape[:-1]).to(x.dtype)
""",
    ),
    launder(
        "saved_for_backward",
        """
class Cheating(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight, weighted(x, weight))
        return copied(ctx.to_save[2])

    @staticmethod
    def backward(ctx, grad_y):
        x, weight, _ = ctx.saved_tensors
        return tuple(copied(grad) for grad in weighted_backward(grad_y, x, weight))

def weighted_sum(x, weight):
    return Cheating.apply(x, weight)

def weighted_sum_forward(x, weight):
    return weighted_sum(x.detach(), weight.detach())

def weighted_sum_backward(grad_y, x, weight):
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    with torch.enable_grad():
        return torch.autograd.grad(weighted_sum(x, weight), (x, weight), grad_y)
""",
    ),
    launder(
        "answer_by_table_lookup",
        """
def weighted_sum_forward(x, weight):
    r = weighted(x, weight).float()
    bytes_of_it = r.reshape(-1).contiguous().view(torch.uint8).long().tolist()
    table = copied(torch.arange(256).to(torch.uint8))
    return table[torch.tensor(bytes_of_it, dtype=torch.long)].view(torch.float32).reshape(r.shape).to(x.dtype)
""",
    ),
]
