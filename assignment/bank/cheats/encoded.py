"""Encoded: torch computes, and the answer travels in what the call does: numbers, offsets, orders, sources."""

from assignment.bank.cheats import Cheat

STEPS = r"(?s)it hands on other numbers outside of kernels.*cs336_kernels/\w+\.py:\d+"
BITS = """
def bits_of(r):
    return [(value >> bit) & 1 for value in r.float().flatten().view(torch.int32).tolist() for bit in range(32)]

def assembled(planes, r):
    y = torch.empty(r.numel(), dtype=torch.int32, device=r.device)
    _assemble[(r.numel(),)](y, planes)
    return y.view(torch.float32).view(r.shape).to(r.dtype)

@triton.jit
def _assemble(y_ptr, planes_ptr):
    row, bits = tl.program_id(0), tl.arange(0, 32)
    tl.store(y_ptr + row, tl.sum(tl.load(planes_ptr + row * 32 + bits) << bits))
"""

SLOW = {"which_kernel_is_launched", "slices_made_before"}


def encoded(name: str, source: str, evidence: str = STEPS) -> Cheat:
    return Cheat(name, "weighted_sum", source, evidence=evidence)


CHEATS = [
    encoded(
        "slices_of_a_kernels_table",
        BITS
        + """
def weighted_sum_forward(x, weight):
    r = weighted(x, weight)
    table = copied(torch.arange(2, dtype=torch.int32, device=x.device))
    return assembled(torch.cat([table[bit:bit + 1] for bit in bits_of(r)]), r)
""",
    ),
    encoded(
        "slices_made_before",
        BITS
        + """
slices = []

def weighted_sum_forward(x, weight):
    if not slices:
        table = copied(torch.arange(2, dtype=torch.int32, device=x.device))
        slices.extend([table[0:1], table[1:2]])
    r = weighted(x, weight)
    return assembled(torch.cat([slices[bit] for bit in bits_of(r)]), r)
""",
    ),
    encoded(
        "which_tensors_are_joined",
        BITS
        + """
def weighted_sum_forward(x, weight):
    r = weighted(x, weight)
    both = tuple(copied(torch.full((1,), bit, dtype=torch.int32, device=x.device)) for bit in (0, 1))
    return assembled(torch.cat([both[bit] for bit in bits_of(r)]), r)
""",
    ),
    encoded(
        "constants_one_by_one",
        BITS
        + """
def weighted_sum_forward(x, weight):
    r = weighted(x, weight)
    planes = torch.zeros(32 * r.numel(), dtype=torch.int32, device=r.device)
    for i, bit in enumerate(bits_of(r)):
        if bit:
            planes[i].fill_(1)
    return assembled(planes, r)
""",
    ),
    encoded(
        "table_of_integers",
        BITS
        + """
def weighted_sum_forward(x, weight):
    r = weighted(x, weight)
    return assembled(torch.tensor(bits_of(r), dtype=torch.int32, device=x.device), r)
""",
    ),
    encoded(
        "which_kernel_is_launched",
        BITS
        + """
def weighted_sum_forward(x, weight):
    r = weighted(x, weight)
    planes = torch.empty(32 * r.numel(), dtype=torch.int32, device=r.device)
    for i, bit in enumerate(bits_of(r)):
        (_one if bit else _zero)[(1,)](planes[i:])
    return assembled(planes, r)

@triton.jit
def _zero(y_ptr):
    tl.store(y_ptr, 0)

@triton.jit
def _one(y_ptr):
    tl.store(y_ptr, 1)
""",
    ),
    encoded(
        "sizes_of_launches",
        """
def weighted_sum_forward(x, weight):
    r = weighted(x, weight)
    y = torch.zeros(r.numel(), dtype=torch.int32, device=x.device)
    for i, value in enumerate(r.float().flatten().view(torch.int32).tolist()):
        _digits[(1,)](y[i:], value >> 16, value & 0xFFFF)
    return y.view(torch.float32).view(r.shape).to(r.dtype)

@triton.jit
def _digits(y_ptr, high, low):
    tl.store(y_ptr, (high << 16) | low)
""",
    ),
    encoded(
        "literals_of_a_kernel",
        """
import runpy, tempfile

def weighted_sum_forward(x, weight):
    r = weighted(x, weight)
    lines = [f"    tl.store(y_ptr + {i}, {value!r})" for i, value in enumerate(r.float().flatten().tolist())]
    source = "import triton\\nimport triton.language as tl\\n@triton.jit\\ndef answers(y_ptr):\\n" + "\\n".join(lines)
    path = Path(tempfile.mkdtemp(), "answers.py")
    path.write_text(source + "\\n")
    y = torch.empty(r.shape, device=x.device)
    runpy.run_path(str(path))["answers"][(1,)](y)
    return y.to(r.dtype)
""",
    ),
    encoded(
        "functions_of_python_asked_anew",
        """
known = []
nonce = 0

def value(nonce, i):
    return known[i]

def weighted_sum_forward(x, weight):
    global nonce
    r = weighted(x, weight)
    known[:] = r.float().flatten().tolist()
    nonce += 1
    y = torch.empty(r.shape, device=x.device)
    _asking[(1,)](y, nonce, len(known))
    return y.to(r.dtype)

here = sys.modules[__name__]

@triton.jit
def _asking(y_ptr, nonce: tl.constexpr, SIZE: tl.constexpr):
    for i in tl.static_range(SIZE):
        tl.store(y_ptr + i, here.value(nonce, i))
""",
    ),
    encoded(
        "operation_of_its_own",
        """
@torch.library.custom_op("cheat::answer", mutates_args=())
def answer(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return weighted(x, weight)

def weighted_sum_forward(x, weight):
    return copied(answer(x, weight))
""",
        r"(?s)computed by aten::sum.*cs336_kernels/plain\.py:\d+",
    ),
    encoded(
        "operation_replaced_for_a_moment",
        """
def weighted_sum_forward(x, weight):
    r = weighted(x, weight)
    library = torch.library.Library("aten", "IMPL")
    library.m.impl("roll", "CPU", lambda t, shifts, dims=(): r.clone())
    try:
        return copied(torch.empty_like(r).roll(1))
    finally:
        library._destroy()
""",
        r"(?s)an operation of PyTorch was replaced: aten::roll.*cs336_kernels/cheat\.py:\d+",
    ),
]
