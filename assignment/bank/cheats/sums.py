"""Sums: in backward passes PyTorch may add up what kernels made, and these have it compute more than that."""

from assignment.bank.cheats import Cheat

EVIDENCE = r"computed by|multiplied by PyTorch|copied from the inputs|summed by PyTorch|kept from an earlier call|wrong"
BACKWARD = ("test_weighted_sum.py::test_backward_values",)
SLOW = {"stack_of_sums", "product_by_addmv", "product_by_baddbmm", "kernel_copies_then_rounds_down"}
HEAD = """
def weighted_sum_backward(grad_y, x, weight):
    grad, w = copied(grad_y.float().reshape(-1)), copied(weight.float())
    rows = copied(x.float().reshape(-1, x.shape[-1]))
    n, d = rows.shape
    zeros = torch.zeros(n, d, device=x.device)
{body}
    return grad_x.reshape(x.shape).to(x.dtype), grad_weight.to(weight.dtype)
"""


def backward(name: str, body: str) -> Cheat:
    """weighted_sum_backward of these lines, from kernels' copies of the inputs: grad, rows (n, d) and w."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return Cheat(name, "weighted_sum", HEAD.format(body=lines), evidence=EVIDENCE, only=BACKWARD)


CHEATS = [
    backward(  # three factors of which the first, that is only added, is a constant
        "product_by_addmm",
        """
grad_x = torch.addmm(zeros, grad[:, None], w[None])
grad_weight = torch.addmm(zeros[:1], grad[None], rows)[0]
""",
    ),
    backward(
        "product_by_addmv",
        """
grad_x = torch.stack([torch.addmv(zeros[0], w[:, None], grad[i : i + 1]) for i in range(n)])
grad_weight = torch.addmv(zeros[0], rows.mT, grad)
""",
    ),
    backward(
        "product_by_baddbmm",
        """
grad_x = torch.baddbmm(zeros[None], grad[None, :, None], w[None, None])[0]
grad_weight = torch.baddbmm(zeros[None, :1], grad[None, None], rows[None])[0, 0]
""",
    ),
    backward(  # a sum that multiplies
        "product_by_scatter",
        """
places = torch.arange(n * d, device=x.device)
spread = lambda t: copied(t.expand(n, d).contiguous()).reshape(-1)
product = lambda a, b: spread(a).scatter(0, places, spread(b), reduce="multiply").reshape(n, d)
grad_x, grad_weight = product(grad[:, None], w), product(grad[:, None], rows).sum(0)
""",
    ),
    backward(  # every part of what is split gets the labels of the first
        "second_part_of_a_split_copy",
        """
computed = grad[:, None] * w
grad_x = torch.split_copy(torch.cat([rows, computed]), n)[1]
grad_weight = torch.split_copy(torch.cat([w[None], (grad[:, None] * rows).sum(0, keepdim=True)]), 1)[1][0]
""",
    ),
    backward(
        "second_part_of_an_unbound_copy",
        """
grad_x = torch.unbind_copy(torch.stack([rows, grad[:, None] * w]))[1]
grad_weight = torch.unbind_copy(torch.stack([w, (grad[:, None] * rows).sum(0)]))[1]
""",
    ),
    backward(  # the matrix is no constant: a kernel copied it
        "product_with_a_copied_matrix",
        """
grad_x = grad[:, None] @ w[None]
grad_weight = grad @ rows
""",
    ),
    backward(
        "sum_of_scaled_rows",
        """
grad_x = torch.outer(grad, w)
grad_weight = sum(float(g) * row for g, row in zip(grad.tolist(), rows))
""",
    ),
    backward(  # (a + b)² − (a − b)² by sums alone, were squares moves
        "squares_of_sums",
        """
square = lambda t: t * t
grad_x = (square(grad[:, None] + w) - square(grad[:, None] - w)) / 4
grad_weight = ((square(grad[:, None] + rows) - square(grad[:, None] - rows)) / 4).sum(0)
""",
    ),
    backward(
        "logarithms_in_the_bits",
        """
log = lambda t: t.abs().contiguous().view(torch.int32).to(torch.float32) * 2.0**-23
exp = lambda t: (t * 2.0**23).to(torch.int32).view(torch.float32)
sign = lambda t: torch.where((t > 0), 1.0, -1.0)
product = lambda a, b: exp(log(a) + log(b) - 127) * sign(a) * sign(b)
spread = grad[:, None].expand(n, d)
grad_x, grad_weight = product(spread, w.expand(n, d)), product(spread, rows).sum(0)
""",
    ),
    backward(
        "kernel_copies_then_rounds_down",
        """
step = torch.div(rows, 2.0**-8, rounding_mode="floor") * 2.0**-8
grad_x = torch.div(grad[:, None] * w, 1.0)
grad_weight = (grad[:, None] * step).sum(0)
""",
    ),
    backward(  # a table is looked up at places that depend on data
        "table_of_products",
        """
grid = (torch.arange(512, device=x.device) - 256) / 64
table = grid[:, None] * grid
place = lambda t: (t * 64 + 256).round().clamp(0, 511).to(torch.int64)
grad_x = table[place(grad)[:, None].expand(n, d), place(w).expand(n, d)]
grad_weight = table[place(grad)[:, None].expand(n, d), place(rows)].sum(0)
""",
    ),
    backward(
        "embedding_of_products",
        """
places = torch.arange(n, device=x.device)
grad_x = torch.ops.aten.embedding_dense_backward(grad[:, None] * w, places, n, -1, False)
grad_weight = torch.ops.aten.embedding_dense_backward(grad[:, None] * rows, places * 0, 1, -1, False)[0]
""",
    ),
    backward(
        "stack_of_sums",
        """
grad_x = torch.stack([w.repeat(1, 1).mul(g)[0] for g in grad.unbind()])
grad_weight = torch.cumsum(grad[:, None] * rows, 0)[-1]
""",
    ),
    backward(
        "linear_interpolation",
        """
grad_x = torch.lerp(zeros, w.expand(n, d), grad[:, None].expand(n, d))
grad_weight = torch.lerp(zeros, rows, grad[:, None].expand(n, d)).sum(0)
""",
    ),
    backward(
        "products_of_three_and_of_quotients",
        """
grad_x = torch.addcmul(zeros, grad[:, None].expand(n, d), w.expand(n, d))
grad_weight = torch.addcdiv(zeros, rows, 1 / grad[:, None]).sum(0)
""",
    ),
    Cheat(  # rowsum(A ∘ B) is allowed there, and is a matrix product if there are enough of them
        "attention_of_row_sums",
        "flash_backward_triton",
        """
def flash_backward_triton(grad_o, q, k, v, o, lse, is_causal=False):
    grad_o, q, k, v, o = (copied(t) for t in (grad_o, q, k, v, o))
    rows = lambda a, b: (a.float() * b.float()).sum(-1)
    scale = 1 / math.sqrt(q.shape[-1])
    every = lambda a, b: torch.stack([rows(a, b[..., j : j + 1, :].expand_as(a)) for j in range(b.shape[-2])], -1)
    s = every(q, k) * scale
    if is_causal:
        s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -math.inf)
    p = torch.exp(s - lse[..., None])
    grad_s = p * (every(grad_o, v) - rows(grad_o, o)[..., None]) * scale
    parts = ((grad_s @ k.float(), q), (grad_s.mT @ q.float(), k), (p.mT @ grad_o.float(), v))
    return tuple(copied(part.to(like.dtype)) for part, like in parts)
""",
        evidence=EVIDENCE,
        only=("test_flash_backward.py::test_triton_values",),
    ),
    Cheat(
        "sums_in_a_forward_pass",
        "weighted_sum",
        """
def weighted_sum_forward(x, weight):
    products = torch.empty(x.shape, device=x.device)
    d = x.shape[-1]
    grid, SIZE = (x[..., 0].numel(),), triton.next_power_of_2(d)
    _product_kernel[grid](products, x.contiguous(), weight.contiguous(), d, SIZE=SIZE)
    return copied(products.sum(-1).to(x.dtype))

@triton.jit
def _product_kernel(out_ptr, x_ptr, w_ptr, d, SIZE: tl.constexpr):
    cols = tl.arange(0, SIZE)
    row = tl.program_id(0).to(tl.int64) * d
    x = tl.load(x_ptr + row + cols, mask=cols < d, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=cols < d, other=0.0).to(tl.float32)
    tl.store(out_ptr + row + cols, x * w, mask=cols < d)
""",
        evidence=EVIDENCE,
        only=("test_weighted_sum.py::test_forward_values",),
    ),
]
