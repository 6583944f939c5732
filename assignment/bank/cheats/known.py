"""Whose work it is: values that a rule once took for a kernel's, a constant or a copy by how they look."""

from assignment.bank.cheats import LOSES, Cheat
from assignment.bank.cheats.programs import FORGE

EVIDENCE = (
    r"computed by|multiplied by PyTorch|copied from the inputs|summed by PyTorch|not played|given none to write to|"
    r"repeats must be|is a fused attention"
)
FORWARD = ("test_weighted_sum.py::test_forward_values",)
SLOW: set[str] = set()


def forward(name: str, body: str, before: str = "", evidence: str = EVIDENCE) -> Cheat:
    """weighted_sum_forward of these lines, which have x, weight and r, the result as PyTorch computes it."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    head = "def weighted_sum_forward(x, weight):\n    r = weighted(x, weight)\n"
    return Cheat(name, "weighted_sum", f"{before}\n{head}{lines}\n", evidence=evidence, only=FORWARD)


PRODUCT = """
def product(x, weight):
    "x * weight by a kernel, a row for each of x."
    d = x.shape[-1]
    out, SIZE = torch.empty(x.reshape(-1, d).shape, device=x.device), triton.next_power_of_2(d)
    _product_kernel[(out.shape[0],)](out, x.contiguous(), weight.contiguous(), d, SIZE=SIZE)
    return out

@triton.jit
def _product_kernel(out_ptr, x_ptr, w_ptr, d, SIZE: tl.constexpr):
    cols = tl.arange(0, SIZE)
    row = tl.program_id(0).to(tl.int64) * d
    x = tl.load(x_ptr + row + cols, mask=cols < d, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=cols < d, other=0.0).to(tl.float32)
    tl.store(out_ptr + row + cols, x * w, mask=cols < d)
"""
FROM_BYTES = """
@triton.jit
def _from_bytes(y_ptr, planes_ptr):
    row, byte = tl.program_id(0), tl.arange(0, 4)
    planes = tl.load(planes_ptr + row * 1024 + byte[:, None] * 256 + tl.arange(0, 256)[None, :])
    tl.store(y_ptr + row, tl.sum(tl.sum(planes, 1).to(tl.int32) << (byte * 8)))
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
def _from_bits(y_ptr, bits_ptr, BITS: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, 64)
    bits = tl.load(bits_ptr + row * BITS + at, mask=at < BITS, other=0.0).to(tl.int64)
    top = tl.sum(tl.where(at == BITS - 1, bits, 0))
    whole = tl.sum(bits << at) - (top << BITS)
    tl.store(y_ptr + row, (whole.to(tl.float64) / 16777216.0).to(tl.float32))
"""
TUNED = """
@triton.autotune([triton.Config({"WAY": way}) for way in (0, 11, *range(1, 11))], key=["d"])
@triton.jit
def _tuned(y_ptr, x_ptr, w_ptr, d, SIZE: tl.constexpr, WAY: tl.constexpr):
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    x = tl.load(x_ptr + row * d + cols, mask=cols < d, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=cols < d, other=0.0).to(tl.float32)
    y = tl.sum(x * w)
    if WAY == 11:
        y = y * 0.0 + @OTHER@
    tl.store(y_ptr + row, y)
"""
TELLING = """
HERE = tl.constexpr(7)

@triton.jit
def _telling(y_ptr, x_ptr, w_ptr, d, SIZE: tl.constexpr):
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    y = 0.0
    if @TELLS@:
        x = tl.load(x_ptr + row * d + cols, mask=cols < d, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols, mask=cols < d, other=0.0).to(tl.float32)
        y = tl.sum(x * w)
    tl.store(y_ptr + row, y)
"""
CHEATS = [
    forward(  # one element that is written as often as the storage has elements
        "filled_through_a_stride_of_zero",
        """
held = torch.empty(r.numel() + 1, dtype=r.dtype, device=x.device)
held[:-1] = r.reshape(-1)
held[-1:].expand(held.numel()).fill_(0.0)
return copied(held[:-1]).reshape(r.shape)
""",
    ),
    forward(  # more elements than there is memory, all on even places; r lies between them
        "filled_beside_what_pytorch_computed",
        """
n = r.numel()
held = torch.empty(2 * n + 142, dtype=r.dtype, device=x.device)
held[1 : 2 * n : 2] = r.reshape(-1)
held.as_strided((64, n + 8), (2, 2)).fill_(0)
return copied(held[1 : 2 * n : 2]).reshape(r.shape)
""",
    ),
    forward(  # PyTorch writes all of held[: 2 * n]: a softmax takes its output for contiguous
        "a_softmax_beside_its_output",
        """
n = r.numel()
held, grad = copied(torch.zeros(4 * n, device=x.device)), torch.zeros(2 * n, 1, device=x.device)
grad[1::2, 0] = r.reshape(-1)
flat = held.as_strided((2 * n, 1), (2, 1))
torch.ops.aten._log_softmax_backward_data.out(grad, torch.full_like(grad, -math.inf), 1, torch.float32, out=flat)
return held[1 : 2 * n : 2].reshape(r.shape)
""",
        evidence=f"{EVIDENCE}|as if it were contiguous",
    ),
    *(  # [i, 0, 1] and [i, 1, 0] of `dst` share an address; what is written last there is r, or seems to be zeros
        forward(
            f"{name}_elements_that_overlap",
            f"""
n, flat = r.numel(), r.reshape(-1)
held, zeros = copied(torch.zeros(n, 5, device=x.device)), copied(torch.zeros(n, device=x.device))
dst, i = held.as_strided((n, 2, 2), (5, 2, 2)), torch.arange(n, device=x.device)
a = torch.stack([torch.stack([zeros, flat], -1), torch.stack([zeros, zeros], -1)], 1)
yes = torch.ones(n, 2, 2, dtype=torch.bool, device=x.device).transpose(1, 2)
{write}
return held[:, 2].reshape(r.shape)
""",
            evidence=f"{EVIDENCE}|changed by neither",
        )
        for name, write in {
            "selected_into": "torch.index_select(a, 2, torch.arange(2, device=x.device), out=dst)",
            "chosen_into": "torch.where(yes, a, a, out=dst)",
            "joined_in": "torch.cat([a[..., :1], a[..., 1:]], 2, out=dst)",
            "scaled_into": "torch.mul(yes.float(), a, out=dst)",
            "put_into": "dst.index_put_((i, torch.zeros_like(i), torch.ones_like(i)), flat)",
            "scattered_to": "dst.scatter_(2, torch.ones_like(i).view(n, 1, 1), flat.view(n, 1, 1))",
        }.items()
    ),
    forward(
        "outputs_of_unbind_copy_in_a_list",
        """
y = copied(torch.zeros_like(r))
torch.unbind_copy(r[None], out=[y])
return y
""",
    ),
    forward(
        "outputs_of_split_copy_in_a_list",
        """
flat = copied(torch.zeros_like(r)).reshape(-1)
torch.split_copy(r.reshape(-1), r.numel(), out=[flat])
return flat.reshape(r.shape)
""",
    ),
    forward(  # an overload of TorchScript's, which lists its results among its arguments
        "operations_of_torchscript",
        """
y = copied(torch.zeros_like(r))
op("aten::add_.t", ([y], [r]), y)
return y
""",
        FORGE,
    ),
    forward(  # writes in front of its result, in the process that holds the labels
        "negative_repeats",
        """
many = torch.full((4,), -(1 << 20), dtype=torch.int64, device=x.device)
op("aten::repeat_interleave.Tensor", (many,), blank((0,), torch.int64))
return copied(r)
""",
        FORGE,
    ),
    forward(  # an integer plus 0.0 is a float: a cast that is called a sum
        "made_floats_by_adding_zero",
        """
y = torch.empty(r.numel(), dtype=torch.int64, device=x.device)
rows = x.reshape(-1, x.shape[-1]).contiguous()
_whole[(y.numel(),)](y, rows, weight.contiguous(), rows.shape[1], SIZE=triton.next_power_of_2(rows.shape[1]))
return ((y + 0.0) * 2.0**-24).reshape(r.shape)
""",
        """
@triton.jit
def _whole(y_ptr, x_ptr, w_ptr, d, SIZE: tl.constexpr):
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    x = tl.load(x_ptr + row * d + cols, mask=cols < d, other=0.0)
    w = tl.load(w_ptr + cols, mask=cols < d, other=0.0)
    tl.store(y_ptr + row, (tl.sum(x * w) * 16777216.0).to(tl.int64))
""",
    ),
    forward(  # a complex number's parts are floats, and as an integer it has no fraction
        "rounded_as_a_complex_number",
        """
y = RIGHT(x, weight).double().reshape(-1) * 2.0**24
parts = torch.stack([y, torch.zeros_like(y)], -1)
whole = torch.view_as_complex(parts).to(torch.int64)
return as_floats(whole).reshape(r.shape)
""",
        """
RIGHT = _wsum.weighted_sum_forward

@triton.jit
def _float(y_ptr, n_ptr, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y_ptr + at, tl.load(n_ptr + at, mask=at < n, other=0).to(tl.float32) / 16777216.0, mask=at < n)

def as_floats(whole):
    y = torch.empty(whole.shape, device=whole.device)
    _float[(triton.cdiv(y.numel(), 64),)](y, whole, y.numel(), SIZE=64)
    return y
""",
    ),
    forward(  # what a kernel may load hides what it may not
        "sum_beside_an_input_under_a_where",
        """
products = product(x, weight)
low = x.reshape(-1, x.shape[-1])[:, 0].float() * 1e-30
return copied(torch.where(low > 1e30, low, products.sum(-1)).to(x.dtype)).reshape(r.shape)
""",
        PRODUCT,
    ),
    forward(  # numbers that are chosen by what was compared say what it was, byte by byte
        "constants_chosen_by_what_was_compared",
        """
parts = product(x, weight).sum(-1).to(x.dtype).float().view(torch.uint8).view(-1, 4, 1)
planes = torch.where(parts > torch.arange(256, device=x.device), 1, 0)
y = torch.empty(r.numel(), dtype=torch.int32, device=x.device)
_from_bytes[(r.numel(),)](y, planes)
return y.view(torch.float32).view(r.shape).to(r.dtype)
""",
        PRODUCT + FROM_BYTES,
    ),
    forward(  # of inputs, which a kernel may load: which constant it was says what was compared
        "signs_of_inputs_chosen_by_comparing",
        """
rows = x.reshape(-1, x.shape[-1]).contiguous()
signs, signed = torch.where(rows > 0, 1.0, -1.0), torch.empty_like(rows)
_signed[(rows.shape[0],)](signed, rows, signs, rows.shape[1], SIZE=triton.next_power_of_2(rows.shape[1]))
return RIGHT(signed, weight).reshape(r.shape)
""",
        """
RIGHT = _wsum.weighted_sum_forward

@triton.jit
def _signed(out_ptr, x_ptr, sign_ptr, d, SIZE: tl.constexpr):
    at, cols = tl.program_id(0).to(tl.int64) * d, tl.arange(0, SIZE)
    x = tl.load(x_ptr + at + cols, mask=cols < d, other=0.0)
    sign = tl.load(sign_ptr + at + cols, mask=cols < d, other=0.0)
    tl.store(out_ptr + at + cols, tl.abs(x) * sign, mask=cols < d)
""",
    ),
    forward(  # each of the thousand steps is a guard, and together they add
        "adder_made_of_guards",
        """
rows, d = x.reshape(-1, x.shape[-1]).contiguous(), triton.next_power_of_2(x.shape[-1])
planes = torch.empty(BITS, d, rows.shape[0], device=x.device)
_planes[(rows.shape[0],)](planes, rows, weight.contiguous(), rows.shape[0], rows.shape[1], SIZE=d, BITS=BITS)
none, one = (copied(torch.full((1,), value, device=x.device)) for value in (0.0, 1.0))
either = lambda a, b: torch.where(a > 0.5, torch.where(b > 0.5, none, one), b)
terms = list(planes.unbind(0))
while terms[0].shape[0] > 1:
    carry, sums = none, []
    for bit in terms:
        a, b = bit.chunk(2)
        differ = either(a, b)
        sums.append(either(differ, carry))
        carry = torch.where(differ > 0.5, carry, a)
    terms = sums
y = torch.empty(rows.shape[0], device=x.device)
_from_bits[(y.numel(),)](y, torch.stack([bit[0] for bit in terms], -1), BITS=BITS)
return y.reshape(r.shape).to(r.dtype)
""",
        ADDER,
    ),
    forward(  # of a type that has no value to spare for "never written"
        "steered_by_memory_that_nobody_wrote",
        """
flag, y = torch.empty(64, dtype=torch.int8, device=x.device), torch.empty_like(r)
z = RIGHT(x, weight)
_steered[(triton.cdiv(y.numel(), 64),)](y, z, flag, y.numel(), SIZE=64)
return y
""",
        """
RIGHT = _wsum.weighted_sum_forward

@triton.jit
def _steered(y_ptr, z_ptr, flag_ptr, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    z = tl.load(z_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, tl.where(tl.load(flag_ptr) == 90, z, 0.0), mask=at < n)
""",
        r"never written",
    ),
    *(  # what is tried in place of such values must be zero, too, and another in each element
        forward(
            f"probed_by_{name}_of_what_nobody_wrote",
            f"""
flags, y = torch.empty(4 * r.numel(), dtype={dtype}, device=x.device), torch.empty_like(r)
z = RIGHT(x, weight)
_probing[(triton.cdiv(y.numel(), 64),)](y, z, flags, y.numel(), SIZE=64)
return y
""",
            f"""
RIGHT = _wsum.weighted_sum_forward

@triton.jit
def _probing(y_ptr, z_ptr, flags_ptr, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    z = tl.load(z_ptr + at, mask=at < n, other=0.0)
    flag_ptrs = flags_ptr + tl.program_id(0) * 4 + tl.arange(0, 4)
    flags = tl.load(flag_ptrs)
    {after}
    tl.store(y_ptr + at, tl.where({seen}, z, 0.0), mask=at < n)
""",
            r"never written",
        )
        for name, dtype, seen, after in [
            ("zeros", "torch.int8", "tl.min((flags != 0).to(tl.int32), 0) == 1", ""),
            ("zeros_in_floats", "torch.float32", "tl.min((flags != 0).to(tl.int32), 0) == 1", ""),
            ("the_spread", "torch.float32", "~(tl.max(flags, 0) - tl.min(flags, 0) > 0)", ""),
            ("flags_set_afterwards", "torch.int8", "tl.max(flags, 0) == 90", "tl.store(flag_ptrs, flags * 0 + 1)"),
        ]
    ),
    forward(  # where PyTorch's result lay
        "fresh_bytes_where_a_result_was",
        """
shape, nbytes = r.shape, r.numel() * 4
many = r.float().reshape(-1).repeat(64)
del many
for _ in range(70):
    torch.zeros(1, device=x.device)
bytes_of_many = torch.empty(nbytes * 64, dtype=torch.int8, device=x.device)
return bytes_of_many.view(torch.float32)[-r.numel():].reshape(shape).to(x.dtype)
""",
        "",
        r"never written|wrong|not computed",
    ),
    forward(  # on a GPU the tuner may choose it
        "second_configuration_is_wrong",
        """
y, rows = torch.empty(r.numel(), dtype=r.dtype, device=x.device), x.reshape(-1, x.shape[-1]).contiguous()
_tuned[(y.numel(),)](y, rows, weight.contiguous(), rows.shape[1], SIZE=triton.next_power_of_2(rows.shape[1]))
return y.reshape(r.shape)
""",
        TUNED.replace("@OTHER@", "0.0"),
        r"configuration 2 of those left",
    ),
    forward(
        "second_configuration_is_out_of_bounds",
        """
y, rows = torch.empty(r.numel(), dtype=r.dtype, device=x.device), x.reshape(-1, x.shape[-1]).contiguous()
_tuned[(y.numel(),)](y, rows, weight.contiguous(), rows.shape[1], SIZE=triton.next_power_of_2(rows.shape[1]))
return y.reshape(r.shape)
""",
        TUNED.replace("@OTHER@", "tl.load(x_ptr - 999999)"),
        r"configuration 2 of those left",
    ),
    forward(  # right where it is played, and another kernel where it is compiled
        "constants_that_tell_the_simulator",
        """
y, rows = torch.empty(r.numel(), dtype=r.dtype, device=x.device), x.reshape(-1, x.shape[-1]).contiguous()
_telling[(y.numel(),)](y, rows, weight.contiguous(), rows.shape[1], SIZE=triton.next_power_of_2(rows.shape[1]))
return y.reshape(r.shape)
""",
        TELLING.replace("@TELLS@", 'isinstance(HERE, tl.constexpr) or hasattr(HERE, "value")'),
        r"wrong|differs",
    ),
    forward(
        "formatted_constants_that_tell_the_simulator",
        """
y, rows = torch.empty(r.numel(), dtype=r.dtype, device=x.device), x.reshape(-1, x.shape[-1]).contiguous()
_telling[(y.numel(),)](y, rows, weight.contiguous(), rows.shape[1], SIZE=triton.next_power_of_2(rows.shape[1]))
return y.reshape(r.shape)
""",
        TELLING.replace("@TELLS@", 'len(f"{HERE}") > 1'),
        r"wrong|differs",
    ),
    Cheat(
        "read_again_from_a_part_of_a_larger_copy",
        "weighted_sum",
        """
RIGHT = _wsum.weighted_sum_forward

def weighted_sum_forward(x, weight):
    return RIGHT(F.pad(x, (0, 0, 0, 1))[..., :-1, :], weight)
""",
        LOSES,
        ("test_forward_traffic",),
        r"x is read 2",
        only=("test_weighted_sum.py::test_forward_traffic",),
    ),
    Cheat(
        "fused_attention_with_torch_function_off_in_chunks",
        "flash_forward_pytorch",
        """
def flash_forward_pytorch(q, k, v, is_causal=False):
    plain._check_attention(q, k, v)
    kept = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device)
    kept = kept.tril() if is_causal else kept
    outs, lses = [], []
    with torch._C.DisableTorchFunction():
        for start in range(0, q.shape[-2], 64):
            part, mask = q[..., start : start + 64, :].float(), kept[start : start + 64]
            wide = torch.cat([v.float(), torch.ones_like(v[..., :1]).float()], -1)
            s = part @ k.float().mT / math.sqrt(q.shape[-1])
            s = torch.where(mask, s, -math.inf)
            outs.append(F.scaled_dot_product_attention(part, k.float(), wide, mask)[..., :-1])
            lses.append(torch.logsumexp(s, -1))
    return torch.cat(outs, -2).to(q.dtype), torch.cat(lses, -1)
""",
        evidence=EVIDENCE,
        only=("test_flash_forward.py::test_pytorch_values",),
    ),
]
