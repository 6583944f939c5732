"""Products of gathered rows that are wrong, each a few edits away from the plain ones in base/."""

from assignment.bank.operators.edits import table

PROBLEM = "allgather_matmul"
FILES = ("practice/allgather_matmul.py",)
PARTS = {
    "SIGNAL": 'tl.atomic_xchg(pad, value, sem="release", scope="sys")',
    "WAIT": 'tl.atomic_add(pad, 0, sem="acquire", scope="sys") < value',
    "HERE": "wait(signals_ptr + source * SLOTS, call)",
    "FREE": "wait(signals_ptr + to * SLOTS + 1, call)",
    "SENT": "⏎    signal(pad, call)",
    "STORE": "tl.store(theirs_ptr + rows * k + terms, part, mask=mask)",
    "FREED": "_free_kernel[(ranks,)](",
    "TILES": "for first in range(0, own, M_TILE_SIZE):⏎",
    "MINE": "theirs_ptr += tl.cast(rank, tl.int64) * most * k",
    "BEGIN": "for before in range(source):⏎        begin += tl.load(rows_ptr + before * stride_r)",
    "FROM": "a_ptrs = buffer_ptr + (tl.cast(source, tl.int64) * most + rows) * k",
    "DOT": "total = tl.dot(a, b, total)",
}
BUGS = table(
    "ranks",
    """
loads before the signal | values | {HERE} → pass | line: a = tl.load(a_ptrs
a signal that releases nothing | values | {SIGNAL} → tl.atomic_xchg(pad, value, sem="relaxed", scope="sys") |
    line: a = tl.load(a_ptrs
a wait that acquires nothing | values | {WAIT} → tl.atomic_add(pad, 0, sem="relaxed", scope="sys") < value |
    line: a = tl.load(a_ptrs
a signal at the scope of one GPU | values | {SIGNAL} → tl.atomic_xchg(pad, value, sem="release", scope="gpu") |
    a signal between ranks needs scope="sys"
a wait at the scope of one GPU | values | {WAIT} → tl.atomic_add(pad, 0, sem="acquire") < value |
    a signal between ranks needs scope="sys"
a signal before the last store | values | {TILES} →
    {TILES}        if first + M_TILE_SIZE >= own:⏎            signal(pad, call)⏎ |
    {SENT} → ⏎    if own == 0:⏎        signal(pad, call) | line: a = tl.load(a_ptrs
waits for a signal to itself that it never sends | values | {SENT} → ⏎    if to != rank:⏎        signal(pad, call) |
    deadlock
who sends comes last | many |     _push_kernel[(ranks,)](⏎        a_shard, signals, buffers, pads, a_shard.stride(0),
    a_shard.stride(1),⏎        rank, call, own, most, k,⏎        SLOTS=slots, M_TILE_SIZE=M_TILE_SIZE,
    K_TILE_SIZE=K_TILE_SIZE,⏎    )  # fmt: skip⏎ →  | cdiv(n, N_TILE_SIZE), ranks) → cdiv(n, N_TILE_SIZE), ranks + 1) |
    buffer, b, c, signals, rows, b. → a_shard, buffers, pads, a_shard.stride(0), a_shard.stride(1), own,⏎        buffer,
    b, c, signals, rows, b. | a_ptr, signals_ptr, buffers_ptr, pads_ptr, s → to, a_ptr, signals_ptr, buffers_ptr,
    pads_ptr, s | to = tl.program_id(0)⏎ → ⏎ | buffer_ptr, b_ptr, c_ptr, signals_ptr, rows_ptr, s → a_ptr, buffers_ptr,
    pads_ptr, stride_am, stride_ak, own,⏎    buffer_ptr, b_ptr, c_ptr, signals_ptr, rows_ptr, s |
    ranks = tl.num_programs(2)⏎ → ranks = tl.num_programs(2) - 1⏎    if tl.program_id(2) == ranks:⏎        if
    tl.program_id(0) + tl.program_id(1) == 0:⏎            for to in range(ranks):⏎                _push_kernel(to,
    a_ptr, signals_ptr, buffers_ptr, pads_ptr, stride_am, stride_ak, rank, call, own, most, k, SLOTS, M_TILE_SIZE,
    K_TILE_SIZE)⏎        return⏎ | have not begun
never sends to the last rank | values | _push_kernel[(ranks,)]( → _push_kernel[(max(ranks - 1, 1),)]( | deadlock
signals without the rows | values | mask = (rows < own) & (terms < k) →
    mask = (rows < own) & (terms < k) & (to * rank == 0) | line: a = tl.load(a_ptrs
sends rows twice | traffic | {TILES} → for again in range(0, 2 * own, M_TILE_SIZE):⏎        first = again % (own +
    (-own) % M_TILE_SIZE)⏎ | twice / times
the buffer is used again before it was read | calls | {FREE} → pass |
    tl.store(theirs_ptr / another-calls-rows
waits for any call's signal | calls | {HERE} → wait(signals_ptr + source * SLOTS, 1) | line: a = tl.load(a_ptrs
a copy by host code that no signal orders | values | {HERE} → pass | buffer, b, c, signals, rows, b. →
    buffer.clone(), b, c, signals, rows, b. | host code of rank
signals that host code sets back | calls | {FREED} → signals.zero_()⏎    {FREED} | signals.zero_()
a slot for each of 64 tiles | many | {TILES} → {TILES}        pad_of = first // 32⏎ | {STORE} →
    {STORE}⏎        signal(pad + 2 + pad_of, call) | out of bounds
the copy of another rank | values | {FROM} → a_ptrs = buffer_ptr + (tl.cast((source + 1) % ranks, tl.int64) * most +
    rows) * k | {HERE} → {HERE}⏎        wait(signals_ptr + (source + 1) % ranks * SLOTS, call) | another-ranks-rows
own rows for all | values | {FROM} → a_ptrs = buffer_ptr + (tl.cast(rank, tl.int64) * most + rows) * k |
    own-rows-for-all
stores to the part of the rank that it sends to | values | {MINE} → theirs_ptr += to.to(tl.int64) * most * k |
    line: tl.store(theirs_ptr
rows beyond the end of another rank's buffer | uneven | mask = (rows < own) & (terms < k) → mask = (terms < k) &
    (rows >= 0)⏎            loaded = (rows < own) & (terms < k) | part = tl.load(a_ptr + rows * stride_am + terms *
    stride_ak, mask=mask) → part = tl.load(a_ptr + rows * stride_am + terms * stride_ak, mask=loaded, other=0.0) |
    line: tl.store(theirs_ptr
rows of another rank as offsets | uneven | {BEGIN} → begin = source * tl.load(rows_ptr + rank * stride_r) |
    tl.store(c_ptrs / never stored
rows of ranks in reverse order | uneven | for before in range(source): → for before in range(source + 1, ranks): |
    another-ranks-rows
the rows of a rank left out | values | if first < size: →
    if (first < size) & (tl.program_id(2) < tl.maximum(ranks - 1, 1)): | c = torch.empty( → c = torch.zeros( |
    a-rank-left-out
a sum in 16 bits | 16_bit | {DOT} → total = tl.dot(a, b, total).to(c_ptr.dtype.element_ty).to(tl.float32) |
    gathered-summed-in-16-bits
a_shard's last stride taken to be 1 | strides | rows * stride_am + terms * stride_ak → rows * stride_am + terms |
    part = tl.load( / strides (1, 70)
no checks | mistakes |     _check(a_shard, b, rows, buffer, signals, buffers, pads, rank)⏎    sizes →     sizes |
    expected a ValueError
""",
    **PARTS,
)
# What its chapter teaches: bugs that cost at least a tenth of their problem (tests/test_lessons.py).
LESSONS = {
    "allgather_matmul": (
        "ranks-loads-before-the-signal",
        "ranks-a-signal-at-the-scope-of-one-gpu",
        "ranks-the-buffer-is-used-again-before-it-was-read",
    ),
}
