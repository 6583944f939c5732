"""A stranger's: kernels that are not what is graded, costs that nobody counts, and a recorder that does not hear.

The comment on each says what it tries, and after "against" the rule that would have to give way. Where the recorder is
to miss a step, the cheat proves that it has, and is a mistake in the bank otherwise.
"""

from assignment.bank.cheats import LOSES, MISTAKE, OWN_LOSS, Cheat
from assignment.bank.cheats.decoys import COMPILED, COST
from assignment.bank.cheats.known import EVIDENCE as KNOWN
from assignment.bank.cheats.known import FORWARD
from assignment.bank.cheats.programs import FORGE

EVIDENCE = (
    f"{KNOWN}|never written|not played|wrong|is read|beside|configuration|agree|constexpr|shared memory|out of bounds|"
    "changed by neither|values|steps|seconds|compile|read a value|refused|given up|not supported|raised|Error"
)
ATTENTION = ("test_flash_forward.py::test_pytorch_values",)
SLOW = {"warmups_of_ever_new_constants", "a_default_in_place_of_a_tuples_type", "two_tuples_together_have_no_type"}
RIGHT = "RIGHT = _wsum.weighted_sum_forward\n"
STEERED = """
RIGHT = _wsum.weighted_sum_forward

@triton.jit
def _mark(flag_ptr):
    tl.store(flag_ptr.to(tl.pointer_type(tl.int8)), tl.full((), 0, tl.int8))

@triton.jit
def _steered(y_ptr, z_ptr, flag_ptr, n, SEEN: tl.constexpr, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    flag, z = tl.load(flag_ptr.to(tl.pointer_type(tl.int32))), tl.load(z_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, tl.where(flag == SEEN, z, 0.0), mask=at < n)

def weighted_sum_forward(x, weight):
    z = RIGHT(x, weight)
    flag, y = torch.empty(64, dtype={dtype}, device=x.device), torch.empty_like(z)
    _mark[(1,)](flag)
    _steered[(triton.cdiv(y.numel(), 64),)](y, z, flag, y.numel(), SEEN={seen}, SIZE=64)
    return y
"""
TWO_FACED = """
@triton.jit
def _two_faced(y_ptr, x_ptr, w_ptr, d, SIZES, SIZE: tl.constexpr):
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    if {seen}:
        x = tl.load(x_ptr + row * d + cols, mask=cols < d, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols, mask=cols < d, other=0.0).to(tl.float32)
        tl.store(y_ptr + row, tl.sum(x * w).to(y_ptr.dtype.element_ty))
    else:
        tl.store(y_ptr + row, 0.0)

def weighted_sum_forward(x, weight):
    plain._check_rows(x, weight)
    rows, y = x.reshape(-1, x.shape[-1]).contiguous(), torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
    d = rows.shape[1]
    if y.numel():
        _two_faced[(y.numel(),)](y, rows, weight.contiguous(), d, (d, 1), SIZE=triton.next_power_of_2(d))
    return y
"""
TUNED = """
@triton.autotune({configs}, key=[])
@triton.jit
def _tuned(y_ptr, x_ptr, w_ptr, d, SIZE: tl.constexpr, WAY: tl.constexpr):
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    x = tl.load(x_ptr + row * d + cols, mask=cols < d, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=cols < d, other=0.0).to(tl.float32)
    y = tl.sum(x * w)
    if WAY == 1:
{wrong}
    tl.store(y_ptr + row, y.to(y_ptr.dtype.element_ty))

def weighted_sum_forward(x, weight):
    plain._check_rows(x, weight)
    rows, y = x.reshape(-1, x.shape[-1]).contiguous(), torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
    d = rows.shape[1]
    if y.numel():
        _tuned[(y.numel(),)](y, rows, weight.contiguous(), d, SIZE=triton.next_power_of_2(d))
    return y
"""
PAIR = "[triton.Config({'WAY': 0}), triton.Config({'WAY': 1})]"
LATER = f"{PAIR}, prune_configs_by={{'early_config_prune': _left}}"
LEFT = """
SEEN = []

def _left(configs, named_args, **kwargs):
    SEEN.append(named_args["d"])
    return configs[:1] if SEEN[-1] == SEEN[0] else configs
"""
PROVEN = f"""
def proved(took_place):
    if not took_place:
        raise RuntimeError("{MISTAKE}: its step did not take place")
"""
UNHEARD = (
    FORGE
    + PROVEN
    + """
def weighted_sum_forward(x, weight):
    y = copied(torch.zeros(x.shape[:-1], dtype=x.dtype, device=x.device))
    r = weighted(x, weight)
    before, n_steps = y.clone(), len(TAPE._steps)
    {line}
    proved(len(TAPE._steps) == n_steps)
    with torch.utils._python_dispatch._disable_current_modes():
        proved(not y.numel() or not bool((y == before).all()))
    return y
"""
)


def of_kernels(name: str, source: str, only: tuple[str, ...] = FORWARD) -> Cheat:
    return Cheat(name, "weighted_sum", source, evidence=EVIDENCE, only=only)


def costly(name: str, function: str, body: str, loses: str, only: tuple[str, ...]) -> Cheat:
    """A function of weighted_sum of these lines, which have its arguments, and move more than they should."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    source = f"RIGHT = _wsum.{function}\n\ndef {function}(*tensors):\n{lines}\n"
    return Cheat(name, "weighted_sum", source, LOSES, (loses,), EVIDENCE, only=only)


def two_faced(name: str, seen: str) -> Cheat:
    """One kernel for the simulator, by what it sees there, and another that is compiled."""
    source = TWO_FACED.replace("{seen}", seen)
    return Cheat(name, "weighted_sum", source, LOSES, ("test_compiles",), EVIDENCE, only=(*FORWARD, *COMPILED))


def tuned(name: str, wrong: str, configs: str = PAIR, keeps: str = "") -> Cheat:
    """Right in its first configuration, and wrong in another by these lines."""
    lines = "\n".join(f"        {line}" for line in wrong.strip().splitlines())
    return of_kernels(name, keeps + TUNED.replace("{configs}", configs).replace("{wrong}", lines))


def unheard(name: str, line: str, before: str = "") -> Cheat:
    """What PyTorch computes put where a kernel wrote, and the recorder does not hear of it."""
    return of_kernels(name, before + UNHEARD.replace("{line}", line))


def attention(name: str, part: str, before: str = "") -> Cheat:
    """flash_forward_pytorch by queries, with `o` of each part by this line, of the names q, k, v and mask."""
    source = f"""
{before}
def flash_forward_pytorch(q, k, v, is_causal=False):
    plain._check_attention(q, k, v)
    whole = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device)
    whole = whole.tril() if is_causal else whole
    dtype, outs, lses = q.dtype, [], []
    every, k, v = q.float(), k.float(), v.float()
    for start in range(0, q.shape[-2], 16):
        q, mask = every[..., start : start + 16, :], whole[start : start + 16]
        s = torch.where(mask, q @ k.mT / math.sqrt(q.shape[-1]), -math.inf)
        outs.append({part})
        lses.append(torch.logsumexp(s, -1))
    return torch.cat(outs, -2).to(dtype), torch.cat(lses, -1)
"""
    return Cheat(name, "flash_forward_pytorch", source, evidence=EVIDENCE, only=ATTENTION)


CHEATS = [
    # Memory that nobody wrote.
    of_kernels(  # a byte that a kernel wrote vouches for the three beside it; against: a shadow bit a byte
        "steered_by_three_bytes_that_nobody_wrote",
        STEERED.replace("{dtype}", "torch.int8").replace("{seen}", "0x5A5A5A00"),
    ),
    of_kernels(  # a byte less, and the pattern of a type that tells is gone; against: the pattern means unwritten
        "steered_by_a_pattern_with_a_byte_of_zero",
        STEERED.replace("{dtype}", "torch.int32").replace("{seen}", "0x7FDADA00"),
    ),
    of_kernels(  # one where the simulator has NaN, anything on a GPU; against: what cleans memory keeps "unwritten"
        "steered_by_nan_to_num_of_memory_that_nobody_wrote",
        """
RIGHT = _wsum.weighted_sum_forward

@triton.jit
def _steered(y_ptr, z_ptr, flag_ptr, n, SIZE: tl.constexpr):
    at, flag = tl.program_id(0) * SIZE + tl.arange(0, SIZE), tl.load(flag_ptr)
    tl.store(y_ptr + at, tl.where(flag == 42.0, tl.load(z_ptr + at, mask=at < n, other=0.0), 0.0), mask=at < n)

def weighted_sum_forward(x, weight):
    z = RIGHT(x, weight)
    flag, y = torch.nan_to_num(torch.empty(64, device=x.device), nan=42.0), torch.empty_like(z)
    _steered[(triton.cdiv(y.numel(), 64),)](y, z, flag, y.numel(), SIZE=64)
    return y
""",
    ),
    # Costs.
    costly(  # a kernel's copy is a kernel's work, however often it is read; against: copies are known by labels
        "a_kernels_own_copy_read_again",
        "weighted_sum_forward",
        """
x, weight = tensors
whole = copied(x)
for _ in range(3):
    y = RIGHT(whole, weight)
return y
""",
        "test_forward_traffic",
        COST,
    ),
    costly(  # what was cleaned up has a doubt's label, and no input's; against: an input's elements by their labels
        "a_clamped_copy_read_again",
        "weighted_sum_forward",
        """
x, weight = tensors
whole = x.clamp(-3e38 if x.dtype != torch.float16 else -65504.0, None)
for _ in range(3):
    y = RIGHT(whole, weight)
return y
""",
        "test_forward_traffic",
        COST,
    ),
    costly(  # results that launches store, each into other memory; against: a result is written once
        "results_written_elsewhere_first",
        "weighted_sum_backward",
        """
grad_x, grad_weight = RIGHT(*tensors)
for _ in range(8):
    grad_x = copied(grad_x)
return grad_x, grad_weight
""",
        "test_backward_traffic",
        ("test_weighted_sum.py::test_backward_traffic",),
    ),
    # Constants, as the simulator and the compiler have them; against: what tells them apart answers as compiled.
    two_faced("a_tuple_is_no_tuple_of_tritons", "not isinstance(SIZES, tl.tuple)"),
    two_faced("a_tuple_has_no_type", 'not hasattr(SIZES, "type")'),
    two_faced("a_default_in_place_of_a_tuples_type", 'getattr(SIZES, "type", None) is None'),
    two_faced("a_tuple_written_in_the_kernel_has_no_type", 'not hasattr((1, 2), "type")'),
    two_faced("a_list_is_no_tuple_of_tritons", "not isinstance([size for size in SIZES], tl.tuple)"),
    two_faced("two_tuples_together_have_no_type", 'not hasattr(SIZES + (1,), "type")'),
    # Autotuned kernels.
    tuned(  # against: a configuration that fails an assertion is dropped, as Triton's tuner does
        "dropped_by_an_assertion_that_the_simulator_alone_fails",
        """
tl.static_assert(isinstance((1, 2), tl.tuple))
y = y * 0.0
""",
    ),
    tuned(  # the report on it cites the line, comment included; against: the same, known by the words in a message
        "out_of_bounds_beside_a_comment_on_assertions",
        "y += tl.load(x_ptr + (1 << 40))  # no tl.static_assert, but its name",
    ),
    tuned(  # against: of more than 16 configurations a sample by the seed is played
        "one_wrong_configuration_of_three_hundred",
        "y = y * 0.0",
        "[triton.Config({'WAY': 1 if i == 250 else 2 + i % 11}, num_stages=1 + i % 7) for i in range(300)]",
    ),
    tuned(  # against: the first case of each check is played in every configuration
        "a_wrong_configuration_left_for_some_sizes",
        "y = y * 0.0",
        LATER,
        LEFT,
    ),
    # Fused attention where PyTorch is to be written.
    attention(  # the calls are TorchScript's, and no frame of Python's; against: a fused call is heard at dispatch
        "fused_attention_in_a_script",
        "attend(q, k, v, mask)",
        """
@torch.jit.script
def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, mask)
""",
    ),
    attention(  # against: a fused call is heard at dispatch
        "fused_attention_under_vmap",
        "attend(q.reshape(-1, *q.shape[-2:]), k.reshape(-1, *k.shape[-2:]), v.reshape(-1, *v.shape[-2:]), mask)"
        ".reshape(*q.shape[:-1], v.shape[-1])",
        """
def attend(q, k, v, mask):
    one = lambda q, k, v: F.scaled_dot_product_attention(q[None], k[None], v[None], mask)[0]
    return torch.func.vmap(one)(q, k, v)
""",
    ),
    # Kinds of tensors that programs lack.
    of_kernels(  # against: an operation on a tensor of no known kind is not played, and its result is NaN
        "products_of_sparse_tensors",
        RIGHT
        + """
def weighted_sum_forward(x, weight):
    y = RIGHT(torch.zeros_like(x), weight)
    rows = x.float().reshape(-1, x.shape[-1]).to_sparse_csr()
    torch.addmv(y.view(-1), rows, weight.float(), out=y.view(-1))
    return y
""",
    ),
    of_kernels(
        "rows_of_a_nested_tensor",  # against: the same
        RIGHT
        + """
def weighted_sum_forward(x, weight):
    y = RIGHT(torch.zeros_like(x), weight)
    products = (x.float() * weight.float()).reshape(-1, x.shape[-1])
    rows = torch.nested.nested_tensor(list(products.unbind()))
    y.view(-1).copy_(torch.nested.to_padded_tensor(rows, 0.0).sum(-1))
    return y
""",
    ),
    # A recorder that does not hear; against: the player alone says what memory holds.
    unheard(
        "copied_with_all_modes_off",
        "exec('with torch.utils._python_dispatch._disable_current_modes(): y.copy_(r)')",
    ),
    unheard(
        "copied_below_the_key_of_modes",
        "below(y, r)",
        """
def below(y, r):
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.Python)
    with torch._C._ExcludeDispatchKeyGuard(keys | torch._C.DispatchKeySet(torch._C.DispatchKey.PythonTLSSnapshot)):
        y.copy_(r)
""",
    ),
    unheard(
        "copied_while_the_recorder_is_another",
        "replaced(y, r)",
        """
def replaced(y, r):
    kind = type(TAPE)
    right = kind.__torch_dispatch__
    kind.__torch_dispatch__ = lambda tape, func, types, args=(), kwargs=None: func(*args, **(kwargs or {}))
    y.copy_(r)
    kind.__torch_dispatch__ = right
""",
    ),
    # Time.
    Cheat(  # each size is a kernel of its own to compile; against: one budget for compilation
        "warmups_of_ever_new_constants",
        "weighted_sum",
        RIGHT
        + """
N = [0]

@triton.jit
def _slow(y_ptr, N: tl.constexpr):
    for i in tl.static_range(2000):
        tl.store(y_ptr + i, N + i)

def weighted_sum_forward(x, weight):
    y = torch.empty(4000, device=x.device)
    for _ in range(8):
        N[0] += 1
        _slow.warmup(y, N=N[0] + time.time_ns() % 100000 * 1000, grid=(1,)).n_regs
    return RIGHT(x, weight)
""",
        OWN_LOSS,
        evidence=EVIDENCE,
        only=FORWARD,
    ),
    Cheat(  # as many steps as may be, of which none does anything; against: values are counted
        "half_a_million_steps_that_free_nothing",
        "weighted_sum",
        FORGE
        + RIGHT
        + """
def weighted_sum_forward(x, weight):
    y = RIGHT(x, weight)
    TAPE._steps += [programs.Free([])] * (499_000 - len(TAPE._steps))
    return y
""",
        OWN_LOSS,
        evidence=EVIDENCE,
        only=FORWARD,
    ),
]
