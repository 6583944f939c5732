"""A stranger's: written against the source by somebody who did not write it; values whose labels say something else.

The comment on each says what it tries, and after "against" the rule that would have to give way.
"""

from assignment.attacks.cheats import MISTAKE, Cheat
from assignment.attacks.cheats.known import EVIDENCE as KNOWN
from assignment.attacks.cheats.known import forward

EVIDENCE = f"{KNOWN}|overlap|lies in|itself|reads and writes|fails on the inputs|never written|compared|wrong"
BACKWARD = ("test_weighted_sum.py::test_backward_values",)
SLOW = {"scaled_along_itself", "joined_along_itself"}

CHECKED = f"""
unheard = torch.utils._python_dispatch._disable_current_modes

def checked(y, r):
    "What PyTorch computed is where it was to be: on the recorder's own numbers, which a step that fails shows too."
    with unheard():
        if not torch.allclose(y.float(), r.float()):
            raise RuntimeError("{MISTAKE}: its step did not take place")
    return y
"""
ALONG = """
def along(r):
    "What PyTorch computed, where a kernel wrote: each row of three is copied one place on, from left to right."
    rows = copied(torch.zeros(r.numel(), 3, 2, dtype=r.dtype, device=r.device))
    rows[:, 0, 0] = r.reshape(-1)
    rows[:, 1:, 0].copy_(rows[:, :-1, 0])
    return checked(rows[:, 2, 0].reshape(r.shape), r)
"""
FLOATS = """
RIGHT = _wsum.weighted_sum_forward

@triton.jit
def _float(y_ptr, n_ptr, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y_ptr + at, tl.load(n_ptr + at, mask=at < n, other=0).to(tl.float32) / 16777216.0, mask=at < n)

def as_floats(whole):
    y = torch.empty(whole.shape, device=whole.device)
    _float[(triton.cdiv(y.numel(), 64),)](y, whole, y.numel(), SIZE=64)
    return y
"""


def stranger(name: str, body: str, before: str = "") -> Cheat:
    """weighted_sum_forward of these lines, which have x, weight and r, the result as PyTorch computes it."""
    return forward(name, body, CHECKED + before, EVIDENCE)


CHEATS = [
    stranger(  # memory is read after it was written, labels before; against: a copy keeps its source's labels
        "copied_along_itself", "return along(r)", ALONG
    ),
    stranger(  # the same by an output of a multiplication by one; against: scaling keeps labels
        "scaled_along_itself",
        """
rows = copied(torch.zeros(r.numel(), 3, 2, dtype=r.dtype, device=x.device))
rows[:, 0, 0] = r.reshape(-1)
torch.mul(rows[:, :-1, 0], 1.0, out=rows[:, 1:, 0])
return checked(rows[:, 2, 0].reshape(r.shape), r)
""",
    ),
    stranger(  # the second part lies where the first is put; against: what is moved is moved as its labels are
        "joined_along_itself",
        """
n = r.numel()
rows = copied(torch.zeros(2 * n, 2, dtype=r.dtype, device=x.device))
torch.cat([r.reshape(-1), rows[:n, 0]], out=rows[:, 0])
return checked(rows[n:, 0].reshape(r.shape), r)
""",
    ),
    stranger(  # strides are those of the values, and labels lie closer; against: a move is run on labels as on values
        "scattered_by_strides_that_labels_do_not_have",
        """
n = r.numel()
gaps = copied(torch.zeros(4 * n, 2, dtype=r.dtype, device=x.device))[:, 0]
pairs = torch.stack([torch.zeros_like(r.reshape(-1)), r.reshape(-1)], -1).reshape(-1)
out = torch.as_strided_scatter(gaps, pairs, (2 * n,), (2,), 0)
return checked(out[1 : 2 * n : 2].reshape(r.shape), r)
""",
    ),
    stranger(  # eight labels become one number, whose last byte is the first's; against: bytes take the worst label
        "labels_seen_as_integers_of_eight_bytes",
        """
n = r.numel()
parts = copied(torch.zeros(n + 1, 8, dtype=torch.uint8, device=x.device))
parts[:n, 1:] = r.double().reshape(-1, 1).view(torch.uint8)[:, 1:]
whole = torch.view_copy(parts, torch.int64)[:n, 0]
return checked(whole.view(torch.float64).to(r.dtype).reshape(r.shape), r)
""",
    ),
    stranger(  # of two values for one place the last stays, in an order by strides; against: a move is run on labels
        "two_values_for_each_place",
        """
n, at = r.numel(), torch.arange(r.numel(), device=x.device)
y = copied(torch.zeros(n + 1, dtype=r.dtype, device=x.device))
values = torch.cat([copied(torch.zeros(n, dtype=r.dtype, device=x.device)), r.reshape(-1)])
aside = torch.full_like(at, n)
places = torch.stack([torch.cat([aside, at]), torch.cat([at, aside])], -1).T
y.index_put_((places,), values.expand(2, 2 * n))
return checked(y[:n].reshape(r.shape), r)
""",
    ),
    stranger(  # by the time that labels are chosen, other places stand there; against: what says which is a constant
        "places_overwritten_by_what_they_chose",
        """
n, at = r.numel(), torch.arange(r.numel(), device=x.device)
rows = torch.zeros(3 * n, 2, dtype=torch.int64, device=x.device)
rows[n : 2 * n, 0] = at + n
rows[2 * n :, 0] = at
source = torch.cat([copied(at), r.double().reshape(-1).view(torch.int64)])
torch.index_select(source, 0, rows[n:, 0], out=rows[: 2 * n, 0])
return checked(rows[:n, 0].view(torch.float64).to(r.dtype).reshape(r.shape), r)
""",
    ),
    stranger(  # the same with a condition in the bytes of later results; against: what chooses is a constant
        "condition_overwritten_by_what_it_chose",
        """
n = r.numel()
rows = torch.zeros(3 * n, 2, device=x.device)
chosen = rows.view(torch.uint8)[n:, 0]
chosen[:n] = 1
zeros = copied(torch.zeros(2 * n, device=x.device))
torch.where(chosen.view(torch.bool), torch.cat([r.float().reshape(-1)] * 2), zeros, out=rows[: 2 * n, 0])
return checked(rows[:n, 0].reshape(r.shape).to(r.dtype), r)
""",
    ),
    stranger(  # a part of integers takes floats without their fractions; against: a cast to another kind computes
        "rounded_by_a_slice_of_integers",
        """
y = RIGHT(x, weight).double().reshape(-1) * 2.0**24
whole = torch.slice_scatter(torch.zeros(y.shape, dtype=torch.int64, device=x.device), y)
return as_floats(whole).reshape(r.shape)
""",
        FLOATS,
    ),
    stranger(  # the same by one of two rows; against: a cast to another kind computes
        "rounded_by_a_row_of_integers",
        """
y = RIGHT(x, weight).double().reshape(-1) * 2.0**24
whole = torch.select_scatter(torch.zeros(2, y.numel(), dtype=torch.int64, device=x.device), y, 0, 1)
return as_floats(whole[1]).reshape(r.shape)
""",
        FLOATS,
    ),
    Cheat(  # rounding is a sum, and so is `bit ? w : 0`; against: sums of what kernels stored are free
        "products_made_of_sums_that_round",
        "weighted_sum",
        CHECKED
        + """
ROUNDER, HUGE, ONE = 1.5 * 2.0**52, 2.0**100, 2.0**30

def product(a, b):
    "a * b of doubles, by sums and scaling alone: floors of a, bit by bit, and b where the bit is set."
    rounded = lambda t: (t + ROUNDER) - ROUNDER
    a, total = rounded(a * ONE), 0.0
    for bit in range(40):
        halved = rounded(a * 0.5 - 0.25)
        hidden = (1.0 - (a - halved * 2.0)) * HUGE
        total = ((b + hidden) - hidden) * 2.0**bit + total
        a = halved
    hidden = (a + 1.0) * HUGE
    return (total - ((b + hidden) - hidden) * 2.0**40) * (1 / ONE)

with unheard():
    _a, _b = torch.tensor([[-3.75], [1.3]]).double(), torch.tensor([2.5, -0.7]).double()
    assert torch.allclose(product(_a, _b), _a * _b)

def weighted_sum_backward(grad_y, x, weight):
    plain._check_rows(x, weight)
    grad, w = copied(grad_y.float().reshape(-1, 1)).double(), copied(weight.float()).double()
    rows = copied(x.float().reshape(-1, x.shape[-1])).double()
    grad_x, grad_weight = product(grad, w), product(grad, rows).sum(0)
    return grad_x.to(x.dtype).reshape(x.shape), grad_weight.to(weight.dtype)
""",
        evidence=EVIDENCE,
        only=BACKWARD,
    ),
    Cheat(  # all of the normalisation by PyTorch, in memory of a kernel; against: a copy keeps its source's labels
        "rows_normalised_and_copied_along",
        "rmsnorm",
        CHECKED
        + ALONG
        + """
def rmsnorm_forward(x, weight, eps=1e-5):
    y, rstd = norm(x, weight, eps)
    return along(y), along(rstd)
""",
        evidence=EVIDENCE,
        only=("test_rmsnorm.py::test_forward_values",),
    ),
    Cheat(  # all of the attention by PyTorch, likewise; against: a copy keeps its source's labels
        "attention_copied_along",
        "flash_forward_triton",
        CHECKED
        + ALONG
        + """
def flash_forward_triton(q, k, v, is_causal=False):
    o, lse = attention(q, k, v, is_causal)
    return along(o), along(lse)
""",
        evidence=EVIDENCE,
        only=("test_flash_forward.py::test_triton_values",),
    ),
]
