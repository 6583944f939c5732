"""A stranger's: written against the source by somebody who did not write it; values whose labels say something else.

The comment on each says what it tries, and after "against" the rule that would have to give way.
"""

from dataclasses import replace

from assignment.bank.cheats import MISTAKE, REVIEWED, Cheat
from assignment.bank.cheats.known import EVIDENCE as KNOWN
from assignment.bank.cheats.known import FROM_BYTES, PRODUCT, forward

EVIDENCE = f"{KNOWN}|overlap|lies in|itself|reads and writes|fails on the inputs|never written|compared|wrong"
BACKWARD = ("test_weighted_sum.py::test_backward_values",)
SLOW = {"adder_of_guards_with_a_kernel_between_them", "scaled_along_itself", "joined_along_itself"}

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
SIDE_BY_SIDE = """
LIMBS = 4

def added(a, b):
    "The sums of numbers of 23 bits, three bytes each."
    exponent = torch.tensor([0x30, 0x43], dtype=torch.uint8, device=a.device)
    both = torch.cat([b, a, exponent.expand(*a.shape[:-1], 2)], -1).view(torch.float64)
    return (both * 16777217.0).view(torch.uint8)[..., :3]

with unheard():
    _a, _b = (torch.tensor([[byte, 255, top]], dtype=torch.uint8) for byte, top in ((200, 100), (100, 20)))
    assert added(_a, _b).tolist() == [[44, 255, 121]]

@triton.jit
def _limbs(limbs_ptr, x_ptr, w_ptr, n, d, SIZE: tl.constexpr, LIMBS: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, SIZE)
    x = tl.load(x_ptr + row * d + cols, mask=cols < d, other=0.0).to(tl.float64)
    w = tl.load(w_ptr + cols, mask=cols < d, other=0.0).to(tl.float64)
    whole = (x * w * 16777216.0 + 4398046511104.0).to(tl.int64)
    for limb in tl.static_range(LIMBS):
        tl.store(limbs_ptr + (cols * LIMBS + limb) * n + row, ((whole >> (14 * limb)) & 16383).to(tl.int32))

@triton.jit
def _joined(y_ptr, sums_ptr, n, count, SIZE: tl.constexpr, LIMBS: tl.constexpr):
    row, limb, byte = tl.program_id(0), tl.arange(0, LIMBS)[:, None], tl.arange(0, 4)[None]
    bytes_of_it = tl.load(sums_ptr + (limb * n + row) * 3 + byte, mask=byte < 3, other=0).to(tl.int64)
    whole = tl.sum(tl.sum(bytes_of_it << (byte * 8), 1) << (14 * tl.arange(0, LIMBS)))
    tl.store(y_ptr + row, ((whole.to(tl.float64) - 4398046511104.0 * count) / 16777216.0).to(tl.float32))
"""
ADDER = """
BITS = 44

@triton.jit
def _planes(planes_ptr, x_ptr, w_ptr, n, d, SIZE: tl.constexpr, BITS: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, SIZE)
    x = tl.load(x_ptr + row * d + cols, mask=cols < d, other=0.0).to(tl.float64)
    w = tl.load(w_ptr + cols, mask=cols < d, other=0.0).to(tl.float64)
    whole = (x * w * 16777216.0).to(tl.int64)
    for bit in tl.static_range(BITS):
        tl.store(planes_ptr + (bit * SIZE + cols) * n + row, ((whole >> bit) & 1).to(tl.float32))

@triton.jit
def _from_bits(y_ptr, bits_ptr, n, BITS: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, 64)
    bits = tl.load(bits_ptr + at * n + row, mask=at < BITS, other=0.0).to(tl.int64)
    top = tl.sum(tl.where(at == BITS - 1, bits, 0))
    whole = tl.sum(bits << at) - (top << BITS)
    tl.store(y_ptr + row, (whole.to(tl.float64) / 16777216.0).to(tl.float32))

@triton.jit
def _again(out_ptr, in_ptr, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(out_ptr + at, tl.load(in_ptr + at, mask=at < n, other=0.0), mask=at < n)

def again(t):
    out = torch.empty(t.shape, device=t.device)
    _again[(triton.cdiv(t.numel(), 16384),)](out, t.contiguous(), t.numel(), SIZE=16384)
    return out
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


def for_review(name: str, body: str, before: str) -> Cheat:
    """The same of steps each of which a right kernel's author may take: all that is said is where they are."""
    return replace(stranger(name, body, before), expected=REVIEWED)


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
    stranger(  # (a 2^24 + b) (1 + 2^24) has a + b in the middle; against: scaling and moving of bytes compute nothing
        "summed_by_scaling_bytes_side_by_side",
        """
rows, d = x.reshape(-1, x.shape[-1]).contiguous(), triton.next_power_of_2(x.shape[-1])
n = rows.shape[0]
limbs = torch.empty(d, LIMBS * n, dtype=torch.int32, device=x.device)
_limbs[(n,)](limbs, rows, weight.contiguous(), n, rows.shape[1], SIZE=d, LIMBS=LIMBS)
terms = limbs[..., None].view(torch.uint8)[..., :3]
while terms.shape[0] > 1:
    terms = added(*terms.chunk(2))
y = torch.empty(n, device=x.device)
_joined[(n,)](y, terms[0].contiguous(), n, d, SIZE=d, LIMBS=LIMBS)
return y.reshape(r.shape).to(r.dtype)
""",
        SIDE_BY_SIDE,
    ),
    stranger(  # as for constants, with numbers that a kernel has copied; against: clamps above a kernel's own results
        "kernels_numbers_chosen_by_what_was_compared",
        """
parts = product(x, weight).sum(-1).to(x.dtype).float().view(torch.uint8).view(-1, 4, 1)
none, one = (copied(torch.full((1,), value, dtype=torch.int32, device=x.device)) for value in (0, 1))
planes = torch.where(parts > torch.arange(256, device=x.device), one, none)
y = torch.empty(r.numel(), dtype=torch.int32, device=x.device)
_from_bytes[(r.numel(),)](y, planes)
return y.view(torch.float32).view(r.shape).to(r.dtype)
""",
        PRODUCT + FROM_BYTES,
    ),
    stranger(  # a sum that no kernel may load, found by halves; against: a doubt stands for what it chooses from
        "kernels_numbers_chosen_by_halves",
        """
total = product(x, weight).sum(-1).reshape(-1)
none, one = (copied(torch.full((1,), value, dtype=torch.int32, device=x.device)) for value in (-1, 1))
y, is_above = torch.empty(total.shape, device=x.device), torch.empty(total.shape, dtype=torch.int32, device=x.device)
if y.numel():
    _begin[(y.numel(),)](y, is_above)
for power in range(11, -29, -1):
    if y.numel():
        _step[(y.numel(),)](y, is_above, 2.0**power)
    is_above = torch.where(total > y, one, none)
return y.reshape(r.shape).to(r.dtype)
""",
        PRODUCT
        + """
@triton.jit
def _begin(y_ptr, is_above_ptr):
    tl.store(y_ptr + tl.program_id(0), -2048.0)
    tl.store(is_above_ptr + tl.program_id(0), 1)

@triton.jit
def _step(y_ptr, is_above_ptr, size):
    at = tl.program_id(0)
    tl.store(y_ptr + at, tl.load(y_ptr + at) + tl.load(is_above_ptr + at) * size)
""",
    ),
    for_review(  # a kernel's copy of what was cleaned up is clean, eight steps at a time; against: no more than eight
        "adder_of_guards_with_a_kernel_between_them",
        """
rows, d = x.reshape(-1, x.shape[-1]).contiguous(), triton.next_power_of_2(x.shape[-1])
n = rows.shape[0]
terms = torch.empty(BITS, d, n, device=x.device)
_planes[(n,)](terms, rows, weight.contiguous(), n, rows.shape[1], SIZE=d, BITS=BITS)
none, one = (copied(torch.full((1,), value, device=x.device)) for value in (0.0, 1.0))
either = lambda a, b: torch.where(a > 0.5, torch.where(b > 0.5, none, one), b)
while terms.shape[1] > 1:
    a, b = terms.chunk(2, 1)
    differ = again(either(a, b))
    carry, goes_on, step = again(a.contiguous()), differ, 1
    while step < BITS:
        zeros = torch.zeros(step, *a.shape[1:], device=x.device)
        carry, goes_on = (
            again(torch.where(goes_on > 0.5, torch.cat([zeros, other[:-step]]), kept))
            for other, kept in ((carry, carry), (goes_on, none))
        )
        step *= 2
    carry = torch.where(goes_on > 0.5, none, carry)
    terms = again(either(differ, torch.cat([torch.zeros_like(carry[:1]), carry[:-1]])))
y = torch.empty(n, device=x.device)
_from_bits[(n,)](y, terms, n, BITS=BITS)
return y.reshape(r.shape).to(r.dtype)
""",
        ADDER,
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
    Cheat(  # the label says "summed", and nobody remembers that it was never written; against: a shadow bit a byte
        "steered_by_a_sum_of_memory_that_nobody_wrote",
        "weighted_sum",
        """
RIGHT = _wsum.weighted_sum_backward

@triton.jit
def _steered(y_ptr, z_ptr, flag_ptr, n, SIZE: tl.constexpr):
    at, flag = tl.program_id(0) * SIZE + tl.arange(0, SIZE), tl.load(flag_ptr)
    z = tl.load(z_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, tl.where(flag != flag, z, 0.0), mask=at < n)

def weighted_sum_backward(grad_y, x, weight):
    grad_x, grad_weight = RIGHT(grad_y, x, weight)
    flag, y = torch.empty(64, device=x.device).sum() + 1.0, torch.empty_like(grad_x.contiguous())
    if y.numel():
        _steered[(triton.cdiv(y.numel(), 256),)](y, grad_x.contiguous(), flag, y.numel(), SIZE=256)
    return y, grad_weight
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
