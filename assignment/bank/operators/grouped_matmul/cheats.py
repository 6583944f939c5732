"""Products in groups that are not those of a kernel, and data that is passed off as structure, or found by it."""

from assignment.bank.cheats import COPY, Cheat, by_torch

PROBLEM, LINE = "grouped_matmul", r"cs336_kernels/practice/grouped_matmul\.py:\d+"
BACKWARD = """
def grouped_matmul_backward(grad_y, x, weight, group_sizes):
    grad_weight = torch.stack([a.mT @ b for a, b in zip(parts(x, group_sizes), parts(grad_y, group_sizes))])
    return grouped_matmul(grad_y, weight.mT, group_sizes), grad_weight
"""
BY_TORCH = f"""
def parts(x, group_sizes):
    sizes = group_sizes.tolist()
    return x.split([*sizes, len(x) - sum(sizes)])[: len(sizes)]

def grouped_matmul(x, weight, group_sizes):
    y = x.new_zeros(len(x), weight.shape[-1])
    for to, part, matrix in zip(parts(y, group_sizes), parts(x, group_sizes), weight):
        to.copy_(part @ matrix)
    return y
{BACKWARD}"""
CHEATS = [
    *by_torch(PROBLEM, "practice/grouped_matmul.py", BY_TORCH),
    Cheat(
        "grouped_matmul_by_grouped_mm",
        PROBLEM,
        """
def grouped_matmul(x, weight, group_sizes):
    return torch._grouped_mm(x, weight, offs=group_sizes.cumsum(0, dtype=torch.int32))

def grouped_matmul_backward(grad_y, x, weight, group_sizes):
    return grouped_matmul(grad_y, weight.mT, group_sizes), torch._grouped_mm(
        x.mT, grad_y, offs=group_sizes.cumsum(0, dtype=torch.int32)
    )
""",
        evidence=LINE,
    ),
    Cheat(
        "products_passed_off_as_structure",  # their bits, in memory that group_sizes has made, and copied by a kernel
        PROBLEM,
        COPY
        + BY_TORCH.replace("def grouped_matmul(", "def product(")
        + """
def as_structure(values, group_sizes):
    bits = values.float().view(torch.int32)
    table = group_sizes.new_zeros(bits.shape).index_add(0, torch.arange(len(bits), device=bits.device), bits)
    proven(table.dtype == group_sizes.dtype)
    return copied(torch.cat([table[:0], table]).view(torch.float32).to(values.dtype))

def grouped_matmul(x, weight, group_sizes):
    return as_structure(product(x, weight, group_sizes), group_sizes)
""",
        evidence=LINE,
    ),
    Cheat(
        "products_of_what_structure_foretells",  # generators that draw these sizes, asked for what they draw after them
        PROBLEM,
        COPY
        + """
import hashlib

def foretold(sizes, shapes):
    for seed in range(2000):
        rng = torch.Generator().manual_seed(seed)
        for own in (rng, apart(rng)):
            first = torch.randperm(len(sizes), generator=own)
            if sorted(sizes)[int(first[0])] == sizes[0]:
                return [torch.randn(shape, generator=rng) for shape in shapes]
    return [torch.zeros(shape) for shape in shapes]

def apart(rng):
    drawn = torch.randint(256, (32,), generator=rng, dtype=torch.uint8)
    return torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(bytes(drawn.tolist())).digest()[:8]))

def grouped_matmul(x, weight, group_sizes):
    sizes = group_sizes.tolist()
    x_, own, weight_, others = foretold(sizes, (x.shape, (len(x), 1), weight.shape, (len(weight), 1, weight.shape[2])))
    x_, weight_ = x_ + 0.5 * own, weight_ + 0.5 * others
    expert = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    y = torch.einsum("mk,mkn->mn", x_[: len(expert)], weight_[expert]) if len(expert) < 2000 else x_ @ weight_[0]
    table = torch.tensor(np.array(y), dtype=x.dtype).to(x.device)
    return copied(table)

def grouped_matmul_backward(grad_y, x, weight, group_sizes):
    return copied(torch.zeros_like(x)), copied(torch.zeros_like(weight))
""",
        evidence=r"\d+ of \d+ elements wrong",
    ),
]
