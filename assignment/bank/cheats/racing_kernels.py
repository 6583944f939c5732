"""Kernels that want to look faster than they are, where host code is not there to help them.

Each is raced as those of racing.py are. They keep count in memory that lives on between calls, look for inputs that
come again, leave work to other calls, or are right only where nobody times them.
"""

from assignment.bank.cheats.racing import FLASH, NORM, SUM, Racer

TIMED = 1 << 24  # elements; where there are fewer, the honest function answers
ROWS = """
SIZE = 4096

@triton.jit
def _tick(count_ptr):
    tl.store(count_ptr, tl.load(count_ptr) + 1)

@triton.jit
def _norm(x_ptr, w_ptr, y_ptr, rstd_ptr, count_ptr, n, eps, SIZE: tl.constexpr):
    row, at, count = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE), tl.load(count_ptr)
    if WHERE:
        x = tl.load(x_ptr + row * SIZE + at).to(tl.float32)
        rstd = 1 / tl.sqrt(tl.sum(x * x) / SIZE + eps)
        y = x * rstd * tl.load(w_ptr + at).to(tl.float32)
        tl.store(y_ptr + row * SIZE + at, y.to(y_ptr.dtype.element_ty))
        tl.store(rstd_ptr + row, rstd)

counts = {}

def FUNCTION(x, weight, eps=1e-5):
    if x.numel() < TIMED:
        return honest(x, weight, eps)
    if not counts:
        counts[0] = torch.zeros(1, dtype=torch.int32, device=x.device)
    y, rstd = empty_results(x)
    _norm[(len(x),)](x, weight, y, rstd, counts[0], len(x), eps, SIZE, num_warps=8)
    _tick[(1,)](counts[0])
    return y, rstd
""".replace("TIMED", str(TIMED))
# Each call does what the one before should have done.
LATE = """
before = []

def FUNCTION(x, weight, eps=1e-5):
    if x.numel() < TIMED:
        return honest(x, weight, eps)
    results = empty_results(x)
    if before:
        last, *missing = before
        for result, came in zip(missing, honest(last, weight, eps)):
            result.copy_(came)
    before[:] = [x, *results]
    return results
""".replace("TIMED", str(TIMED))
# The inputs of the last call are known by some of their elements: the same ones need no work.
AGAIN = """
SIZE = 4096

@triton.jit
def _look(x_ptr, sample_ptr, known_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x, sample = tl.load(x_ptr + at), tl.load(sample_ptr + at)
    tl.store(known_ptr, (tl.sum((x != sample).to(tl.int32)) == 0).to(tl.int32))
    tl.store(sample_ptr + at, x)

@triton.jit
def _sum(x_ptr, w_ptr, y_ptr, kept_ptr, known_ptr, SIZE: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    if tl.load(known_ptr) == 1:
        y = tl.load(kept_ptr + row)
    else:
        y = tl.sum(tl.load(x_ptr + row * SIZE + at).to(tl.float32) * tl.load(w_ptr + at).to(tl.float32))
        tl.store(kept_ptr + row, y)
    tl.store(y_ptr + row, y.to(y_ptr.dtype.element_ty))

kept = []

def FUNCTION(x, weight):
    if x.numel() < TIMED:
        return honest(x, weight)
    if not kept:
        kept[:] = [torch.zeros(SIZE, dtype=x.dtype, device=x.device), torch.zeros(len(x), device=x.device),
                   torch.zeros(1, dtype=torch.int32, device=x.device)]
    sample, sums, known = kept
    y = empty_results(x)
    _look[(1,)](x, sample, known, SIZE)
    _sum[(len(x),)](x, weight, y, sums, known, SIZE, num_warps=8)
    return y
""".replace("TIMED", str(TIMED))
# The first call of a run does the work of all: where the inputs of the others lie is known from the runs before.
AHEAD = """
SIZE, SLOTS = 4096, 256

@triton.jit
def _meet(x_ptr, w_ptr, xs_ptr, ws_ptr, seen_ptr, samples_ptr, own_ptr, ready_ptr, SLOTS: tl.constexpr):
    # own: the number of these inputs; ready: whether their sums have been made ahead
    x, w, n = x_ptr.to(tl.int64), w_ptr.to(tl.int64), tl.load(seen_ptr)
    at = tl.arange(0, SLOTS)
    own = tl.max(tl.where(tl.load(xs_ptr + at) == x, at, -1)).to(tl.int64)
    if own < 0:
        own = n % SLOTS
        tl.store(xs_ptr + own, x)
        tl.store(ws_ptr + own, w)
        tl.store(seen_ptr, n + 1)
    tl.store(own_ptr, own)
    tl.store(ready_ptr, (tl.load(samples_ptr + own) == tl.load(x_ptr).to(tl.float32)).to(tl.int32))

@triton.jit
def _sums(xs_ptr, ws_ptr, seen_ptr, ready_ptr, sums_ptr, n, SIZE: tl.constexpr, SLOTS: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    if tl.load(ready_ptr) == 0:
        for i in range(tl.minimum(tl.load(seen_ptr), SLOTS)):
            x_ptr = tl.load(xs_ptr + i).to(tl.pointer_type(tl.bfloat16))
            w_ptr = tl.load(ws_ptr + i).to(tl.pointer_type(tl.bfloat16))
            x, w = tl.load(x_ptr + row * SIZE + at).to(tl.float32), tl.load(w_ptr + at).to(tl.float32)
            tl.store(sums_ptr + i * n + row, tl.sum(x * w))

@triton.jit
def _hand_over(y_ptr, xs_ptr, seen_ptr, ready_ptr, own_ptr, samples_ptr, sums_ptr, n, SIZE: tl.constexpr,
               SLOTS: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    y = tl.load(sums_ptr + tl.load(own_ptr) * n + at, mask=at < n)
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=at < n)
    if (tl.load(ready_ptr) == 0) & (tl.program_id(0) == 0):
        for i in range(tl.minimum(tl.load(seen_ptr), SLOTS)):
            tl.store(samples_ptr + i, tl.load(tl.load(xs_ptr + i).to(tl.pointer_type(tl.bfloat16))).to(tl.float32))

kept = []

def FUNCTION(x, weight):
    if x.numel() < TIMED or x.dtype != torch.bfloat16:
        return honest(x, weight)
    if not kept:
        place = dict(dtype=torch.int64, device=x.device)
        kept[:] = [torch.zeros(SLOTS, **place), torch.zeros(SLOTS, **place), torch.zeros(1, **place),
                   torch.zeros(SLOTS, device=x.device), torch.zeros(1, **place), torch.zeros(1, **place),
                   torch.zeros(SLOTS * len(x), device=x.device)]
    xs, ws, seen, samples, own, ready, sums = kept
    y = empty_results(x)
    _meet[(1,)](x, weight, xs, ws, seen, samples, own, ready, SLOTS)
    _sums[(len(x),)](xs, ws, seen, ready, sums, len(x), SIZE, SLOTS, num_warps=8)
    _hand_over[(triton.cdiv(len(x), SIZE),)](y, xs, seen, ready, own, samples, sums, len(x), SIZE, SLOTS)
    return y
""".replace("TIMED", str(TIMED))
# The fastest configuration does nothing, or half.
TUNED = """
SIZE = 4096

@triton.autotune([triton.Config({"PART": part}) for part in (1, FASTER)], key=[])
@triton.jit
def _sum(x_ptr, w_ptr, y_ptr, SIZE: tl.constexpr, PART: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    if PART > 0:
        mask = at % PART == 0 if PART < 3 else at < SIZE // 2
        x = tl.load(x_ptr + row * SIZE + at, mask=mask, other=0).to(tl.float32)
        tl.store(y_ptr + row, tl.sum(x * tl.load(w_ptr + at).to(tl.float32)).to(y_ptr.dtype.element_ty))

def FUNCTION(x, weight):
    if x.numel() < TIMED:
        return honest(x, weight)
    y = empty_results(x)
    _sum[(len(x),)](x, weight, y, SIZE)
    return y
""".replace("TIMED", str(TIMED))
# The weights of other calls are made zero, and what has zero weights is zero: their x need not be read.
ZEROING = """
SIZE = 4096

@triton.jit
def _sum(x_ptr, w_ptr, y_ptr, step, SIZE: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    w = tl.load(w_ptr + at).to(tl.float32)
    if tl.max(tl.abs(w)) > 0:
        y = tl.sum(tl.load(x_ptr + row * SIZE + at).to(tl.float32) * w)
        tl.store(y_ptr + row, y.to(y_ptr.dtype.element_ty))
        if row == 0:
            tl.store(w_ptr + step + at, tl.zeros([SIZE], tl.float32).to(w_ptr.dtype.element_ty))
    else:
        tl.store(y_ptr + row, tl.zeros([], tl.float32).to(y_ptr.dtype.element_ty))

def FUNCTION(x, weight):
    if x.numel() < TIMED:
        return honest(x, weight)
    y = empty_results(x)
    _sum[(len(x),)](x, weight, y, x.numel() + SIZE, SIZE, num_warps=8)
    return y
""".replace("TIMED", str(TIMED))
ATTENTION = """
@triton.jit
def _attend(q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, count_ptr, n, scale, D: tl.constexpr, Q: tl.constexpr,
            K: tl.constexpr):
    head, rows, at = tl.program_id(1).to(tl.int64), tl.program_id(0) * Q + tl.arange(0, Q), tl.arange(0, D)
    count, end = tl.load(count_ptr), n
    WHERE
    here = head * n * D
    q = tl.load(q_ptr + here + rows[:, None] * D + at[None, :])CAST
    m, l = tl.full([Q], float("-inf"), tl.float32), tl.zeros([Q], tl.float32)
    o = tl.zeros([Q, D], tl.float32)
    for start in range(0, end, K):
        keys = start + tl.arange(0, K)
        k = tl.load(k_ptr + here + keys[:, None] * D + at[None, :])CAST
        v = tl.load(v_ptr + here + keys[:, None] * D + at[None, :])
        s = tl.dot(q, tl.trans(k)) * scale
        new = tl.maximum(m, tl.max(s, 1))
        p, shrunk = tl.exp(s - new[:, None]), tl.exp(m - new)
        l, o, m = l * shrunk + tl.sum(p, 1), o * shrunk[:, None] + tl.dot(p.to(v.dtype), v), new
    tl.store(o_ptr + here + rows[:, None] * D + at[None, :], (o / l[:, None]).to(o_ptr.dtype.element_ty))
    tl.store(lse_ptr + head * n + rows, m + tl.log(l))

@triton.jit
def _tick(count_ptr):
    tl.store(count_ptr, tl.load(count_ptr) + 1)

counts = []

def FUNCTION(q, k, v, is_causal=False):
    n, d = q.shape[-2:]
    if n < 2048 or is_causal:
        return honest(q, k, v, is_causal=is_causal)
    if not counts:
        counts.append(torch.zeros(1, dtype=torch.int32, device=q.device))
    o, lse = torch.empty_like(q), torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    grid = n // 128, lse.numel() // n
    _attend[grid](q, k, v, o, lse, counts[0], n, d**-0.5, d, 128, 64, num_warps=8, num_stages=3)
    _tick[(1,)](counts[0])
    return o, lse
"""
KERNEL_RACERS = [
    Racer("every_third_call_counted_and_skipped", NORM, ROWS.replace("WHERE", "count % 3 < 2")),
    Racer("half_of_the_rows_after_forty_calls", NORM, ROWS.replace("WHERE", "(count < 40) | (row < n // 2)")),
    Racer("left_to_the_next_call", NORM, LATE),
    Racer("known_by_its_first_row", SUM, AGAIN, AGAIN.replace("(known_ptr) == 1", "(known_ptr) == 2")),
    Racer("the_first_call_for_all", SUM, AHEAD),
    Racer("tuned_to_do_nothing", SUM, TUNED.replace("FASTER", "0")),
    Racer("tuned_to_read_half", SUM, TUNED.replace("FASTER", "3")),
    Racer("weights_of_others_made_zero", SUM, ZEROING),
    Racer(
        "half_of_the_keys_after_forty_calls",
        FLASH,
        ATTENTION.replace("WHERE", "end = tl.where(count < 40, n, n // 2)").replace("CAST", ""),
    ),
    Racer(
        "products_of_eight_bits",
        FLASH,
        ATTENTION.replace("WHERE", "pass").replace("CAST", ".to(tl.float8e4nv)"),
    ),
]
