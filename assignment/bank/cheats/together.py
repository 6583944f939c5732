"""Kernels that tell whether programs run one by one or together, and those that hide where they meet."""

from assignment.bank.cheats import LOSES, REVIEWED, Cheat

# A count that all programs raise 500 times: one that runs alone finds its own numbers, one after another.
ALONE = """\
    first = tl.atomic_add(count_ptr, 1)
    last = first
    for _ in range(500):
        last = tl.atomic_add(count_ptr, 1)
    is_alone = last - first == 500
"""
FORWARD = """
def weighted_sum_forward(x, weight):
    plain._check_rows(x, weight)
    rows = x.reshape(-1, x.shape[-1])
    y = torch.empty(len(rows), dtype=x.dtype, device=x.device)
    if y.numel():
        by_torch = (rows.double() * weight.double()).sum(-1).float() if IS_BY_TORCH else torch.empty_like(y).float()
        _kernel[(PROGRAMS,)](rows, weight, y, by_torch, torch.zeros(64, dtype=torch.int32, device=x.device),
                      *rows.stride(), weight.stride(0), *rows.shape, triton.next_power_of_2(rows.shape[1]),
                      (_count,))
    return y.reshape(x.shape[:-1])

@triton.jit
def _row(x_ptr, w_ptr, row, stride_xr, stride_xd, stride_wd, d, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE).to(tl.int64)
    x = tl.load(x_ptr + row.to(tl.int64) * stride_xr + at * stride_xd, mask=at < d, other=0.0).to(tl.float32)
    return tl.sum(x * tl.load(w_ptr + at * stride_wd, mask=at < d, other=0.0).to(tl.float32))

@triton.jit
def _count(count_ptr):
    tl.atomic_add(count_ptr, 1)

@triton.jit
def _kernel(x_ptr, w_ptr, y_ptr, by_torch_ptr, count_ptr, stride_xr, stride_xd, stride_wd, n_rows, d,
            SIZE: tl.constexpr, CALLED: tl.constexpr):
    program, n_programs = tl.program_id(0), tl.num_programs(0)
BEFORE
    for row in range(program, n_rows, n_programs):
        y = 0.0
BODY
        tl.store(y_ptr + row, y.to(y_ptr.dtype.element_ty))
"""
ROW = "_row(x_ptr, w_ptr, row, stride_xr, stride_xd, stride_wd, d, SIZE)"


def forward(
    name: str,
    before: str,
    body: str,
    check: str = "test_forward_values",
    is_by_torch: bool = False,
    n_programs: int = 4,
    evidence: str = "elements wrong",
    only: tuple[str, ...] = (),
    expected: str = LOSES,
) -> Cheat:
    """Return a forward pass by four programs: lines before their rows, and those that compute y of a row."""
    source = FORWARD.replace("IS_BY_TORCH", f"{is_by_torch}").replace("PROGRAMS", f"{n_programs}")
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    return Cheat(
        name,
        "weighted_sum",
        source.replace("BEFORE", before.rstrip()).replace("BODY", lines),
        expected,
        (check,) if check else (),
        evidence,
        only=only,
    )


def knowing(name: str, condition: str, before: str) -> Cheat:
    """Return a forward pass that gives zeros where a condition says that programs run together."""
    return forward(name, before, f"if {condition}:\n    y = {ROW}")


def hidden(name: str, count: str) -> Cheat:
    """Return a forward pass whose programs take numbers by a load and an atomic that no name tells."""
    return forward(name, f"    program = tl.load(count_ptr)\n    {count}\n", f"y = {ROW}")


SLOW: set[str] = set()
CHEATS = [
    knowing("right_where_it_runs_alone", "is_alone", ALONE),
    knowing(
        "right_where_tickets_come_in_order",
        "tl.atomic_add(count_ptr + 1, 0) == 0",
        "    if tl.atomic_add(count_ptr, 1) != program:\n        tl.atomic_xchg(count_ptr + 1, 1)\n",
    ),
    knowing(
        "right_where_the_first_one_ends_first",
        "is_first",
        "    is_first = tl.atomic_add(count_ptr, 1) == program\n"
        "    for turn in range(300):\n"
        "        is_first = is_first & (tl.atomic_add(count_ptr + 1, 1) == program * 300 + turn)\n",
    ),
    forward(
        "torch_s_rows_where_it_does_not_run_alone",
        ALONE,
        "if not is_alone:\n    y = tl.load(by_torch_ptr + row).to(tl.float32)",
        is_by_torch=True,
        evidence="computed by|summed by",
    ),
    forward(
        "read_five_times_where_it_does_not_run_alone",
        ALONE,
        f"y = {ROW}\nif not is_alone:\n    for _ in range(4):\n        y = {ROW}",
        check="",
        evidence="where they are watched",
        only=("test_weighted_sum.py::test_forward_values",),
        expected=REVIEWED,
    ),
    forward(
        "a_look_that_is_long_only_where_programs_run_together",
        ALONE + "    turns = tl.where(is_alone, 1, 2000)\n    n_others = 0\n"
        "    for _ in range(turns):\n        n_others = tl.atomic_add(count_ptr + 1, 0)\n"
        "    tl.atomic_add(count_ptr + 1, 1)\n",
        f"if is_alone | (n_others > 0):\n    y = {ROW}",
    ),
    forward(
        "sums_handed_over_after_three_looks",
        f"""\
    if program == 1:
        for row in range(n_rows):
            tl.store(by_torch_ptr + row, {ROW})
        tl.debug_barrier()
        tl.atomic_xchg(count_ptr, 1)
    else:
        has_come = 0
        for _ in range(3):
            has_come = tl.atomic_add(count_ptr, 0)
""",
        "y = tl.load(by_torch_ptr + row)",
        n_programs=2,
    ),
    forward(
        "counted_by_a_thread_block_s_lanes",
        "",
        f"""\
row = tl.max(tl.atomic_add(count_ptr + tl.zeros((2,), tl.int32), 1, scope="cta")) // 2
y = {ROW}""",
    ),
    hidden("an_atomic_by_getattr", 'getattr(tl, "atomic_add")(count_ptr, 1)'),
    hidden("an_atomic_in_a_function_in_a_tuple", "CALLED[0](count_ptr)"),
]
