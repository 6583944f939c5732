"""What one shows to who looks, and not to who counts: programs for costs, and for a compiler."""

from assignment.bank.cheats import Cheat
from assignment.bank.cheats.programs import FORGE

SLOW: set[str] = set()
COST = ("test_weighted_sum.py::test_forward_traffic",)
COMPILED = ("test_weighted_sum.py::test_compiles",)
THRICE = """
RIGHT = _wsum.weighted_sum_forward

def thrice(x, weight):
    RIGHT(x, weight)
    RIGHT(x, weight)
    return RIGHT(x, weight)
"""
LARGE = """
@triton.jit
def _large_kernel(y_ptr, x_ptr, w_ptr, n, d, N: tl.constexpr, D: tl.constexpr):
    rows, cols = tl.arange(0, N)[:, None], tl.arange(0, D)[None]
    mask = (rows < n) & (cols < d)
    x = tl.load(x_ptr + rows * d + cols, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=cols < d, other=0.0).to(tl.float32)
    products = tl.dot(x * w, tl.trans(x * 0.0 + 1.0))
    tl.store(y_ptr + tl.arange(0, N), tl.max(products, 1), mask=tl.arange(0, N) < n)

def large(x, weight):
    "Right, and beyond the memory of any processor."
    n, d = x[..., 0].numel(), x.shape[-1]
    y = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
    N, D = max(16, triton.next_power_of_2(n)), max(16, triton.next_power_of_2(d))
    _large_kernel[(1,)](y, x.contiguous(), weight.contiguous(), n, d, N=N, D=D)
    return y

def kind():
    frame = sys._getframe()
    while frame:
        header = frame.f_locals.get("header")
        if isinstance(header, dict) and "kind" in header:
            return header["kind"], bool(header["target"])
        frame = frame.f_back
"""


def cost(name: str, source: str) -> Cheat:
    return Cheat(name, "weighted_sum", FORGE + THRICE + source, evidence=r"read \d|malformed|wrong|none", only=COST)


CHEATS = [
    cost(  # forgets what was counted, and reads x once more
        "count_that_begins_late",
        """
def weighted_sum_forward(x, weight):
    thrice(x, weight)
    step("mark", "count")
    return RIGHT(x, weight)
""",
    ),
    cost(
        "again_marked_late",
        """
def weighted_sum_forward(x, weight):
    thrice(x, weight)
    step("again")
    return RIGHT(x, weight)
""",
    ),
    cost(  # the work was done in the call before, on the same values if that is what they are
        "cached_for_the_call_that_counts",
        """
CACHE = {}

def weighted_sum_forward(x, weight):
    key = x.shape, x.dtype
    if key not in CACHE:
        CACHE[key] = thrice(x, weight)
        return CACHE[key].clone()
    _touch_kernel[(x.numel() // 64,)](CACHE[key], x, SIZE=64)
    return copied(CACHE.pop(key))

@triton.jit
def _touch_kernel(y_ptr, x_ptr, SIZE: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * SIZE + tl.arange(0, SIZE)).to(tl.float32)
    if tl.sum(x) == 12345.0:
        tl.store(y_ptr, 0.0)
""",
    ),
    cost(
        "steps_of_the_first_two_calls_left_out",
        """
def weighted_sum_forward(x, weight):
    y = thrice(x, weight)
    launches = [i for i, step in enumerate(TAPE._steps) if isinstance(step, programs.Launch)]
    TAPE._steps = [step for i, step in enumerate(TAPE._steps) if i not in launches]
    return y
""",
    ),
    cost(  # the copies are other memory, and are read more often
        "read_through_a_copy_under_another_number",
        """
def weighted_sum_forward(x, weight):
    other = x.clone()
    RIGHT(other, weight)
    RIGHT(other, weight)
    return RIGHT(other, weight)
""",
    ),
    Cheat(
        "another_kernel_for_the_compiler",
        "weighted_sum",
        LARGE
        + """
RIGHT = _wsum.weighted_sum_forward

def weighted_sum_forward(x, weight):
    if kind()[0] == "compile" or kind()[1]:
        RIGHT(x[:1], weight)
        return torch.zeros_like(x[..., 0])
    return large(x, weight)
""",
        evidence=r"wrong|shared memory|not computed|fit|memory",
        only=COMPILED,
    ),
    Cheat(
        "launches_taken_out_for_the_compiler",
        "weighted_sum",
        FORGE
        + LARGE
        + """
def weighted_sum_forward(x, weight):
    y = large(x, weight)
    if kind()[1]:
        TAPE._steps = [step for step in TAPE._steps if not isinstance(step, programs.Launch)]
    return y
""",
        evidence=r"wrong|shared memory|not computed|never stored|memory",
        only=COMPILED,
    ),
]
