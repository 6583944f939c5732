"""Right products of matrices: hints as libraries have them, and programs that meet: split-K, stream-K, queues."""

from pathlib import Path

from assignment.bank.operators.edits import Style, style

PROBLEMS = ("matmul",)
FILES = ("practice/matmul.py",)
BASE = (Path(__file__).parent / "base/matmul.py").read_text(encoding="utf-8")
KERNEL = BASE[BASE.index("@triton.jit") :]
STORE = "    tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=c_mask)\n"
GRID = "(triton.cdiv(m, M_TILE_SIZE) * triton.cdiv(n, N_TILE_SIZE),)"
PROGRAMS = "torch.cuda.get_device_properties(a.device).multi_processor_count"
LOOP = "for start in range(0, k, K_TILE_SIZE):"
PARTS = (
    "part_ptrs = parts_ptr + {}.to(tl.int64) * (M_TILE_SIZE * N_TILE_SIZE) + "
    "tl.arange(0, M_TILE_SIZE)[:, None] * N_TILE_SIZE + tl.arange(0, N_TILE_SIZE)[None, :]"
)
TILE = (
    KERNEL.replace("def _matmul_kernel(", "def _tile(")
    .replace("    m, n, k,\n", "    m, n, k, tile,\n")
    .replace("tl.program_id(0)", "tile")
)

PART = TILE.replace(" k, tile,", " k, tile, first, end,").replace(LOOP, "for start in range(first, end, K_TILE_SIZE):")


def with_state(parts: str, flags: str) -> tuple[tuple[str, str], ...]:
    """Return the edits that give the kernel memory for so many tiles, and so many zeros."""
    made = f"""\
        parts = torch.empty(({parts}, M_TILE_SIZE, N_TILE_SIZE), dtype=torch.float32, device=a.device)
        flags = torch.zeros({flags}, dtype=torch.int32, device=a.device)
        _matmul_kernel[grid](
            rows, b, c, parts, flags,
"""
    return (
        ("        _matmul_kernel[grid](\n            rows, b, c,\n", made),
        ("    a_ptr, b_ptr, c_ptr,\n", "    a_ptr, b_ptr, c_ptr, parts_ptr, flags_ptr,\n"),
    )


def split(name: str, n_parts: str, end: str) -> Style:
    """Return a style in which three programs share the terms of a tile."""
    return style(
        name,
        (GRID, f"(*{GRID}, 3)"),
        (LOOP, "for start in range(tl.program_id(1) * K_TILE_SIZE, k, tl.num_programs(1) * K_TILE_SIZE):"),
        *with_state(n_parts, "grid[0]"),
        (STORE, end.replace("STORED", STORE.strip())),
    )


STREAM = f'''\
{PART[: PART.index("    c_mask")]}\
    return total, rows, cols


@triton.jit
def _matmul_kernel(
    a_ptr, b_ptr, c_ptr, parts_ptr, flags_ptr,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    m, n, k,
    M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, GROUP_SIZE: tl.constexpr,
):
    """The steps of all tiles in a row, of which each program takes as many; one program adds up the parts of a tile."""
    steps = tl.cdiv(k, K_TILE_SIZE)
    n_steps = tl.cdiv(m, M_TILE_SIZE) * tl.cdiv(n, N_TILE_SIZE) * steps
    each = tl.cdiv(n_steps, tl.num_programs(0))
    at = tl.program_id(0) * each
    last = tl.minimum(at + each, n_steps)
    while at < last:
        tile = at // steps
        first = at % steps
        end = tl.minimum(steps, first + last - at)
        total, rows, cols = _tile(
            a_ptr, b_ptr, c_ptr, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
            m, n, k, tile, first * K_TILE_SIZE, tl.minimum(end * K_TILE_SIZE, k),
            M_TILE_SIZE, N_TILE_SIZE, K_TILE_SIZE, GROUP_SIZE,
        )
        if HANDS_OVER:
            {PARTS.format("tl.program_id(0)")}
            tl.store(part_ptrs, total)
            tl.debug_barrier()
            tl.atomic_xchg(flags_ptr + tl.program_id(0), 1, sem="release")
        else:
            OTHERS
                while tl.atomic_cas(flags_ptr + other, 1, 1, sem="acquire") == 0:
                    pass
                {PARTS.format("other")}
                total += tl.load(part_ptrs)
                NEXT
            c_mask = (rows[:, None] < m) & (cols[None, :] < n)
            c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
        {STORE}\
        at += end - first
'''


def stream(name: str, hands_over: str, others: str, after: str) -> Style:
    """Return a style in which at most seven programs share all steps of all tiles."""
    replaced = {"HANDS_OVER": hands_over, "OTHERS": others, "NEXT": after}
    kernel = STREAM
    for part, text in replaced.items():
        kernel = kernel.replace(part, text)
    return style(
        name,
        ("def _matmul_kernel", kernel),
        (GRID, f"(min({PROGRAMS}, 7),)"),
        with_state("grid[0]", "grid[0]")[0],
    )


def queue(name: str, made: str, first: str) -> Style:
    """Return a style in which programs take one tile after another."""
    arguments = "stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn"
    kernel = f"""{TILE}

@triton.jit
def _matmul_kernel(
    a_ptr, b_ptr, c_ptr, queue_ptr, {arguments}, m, n, k,
    M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, GROUP_SIZE: tl.constexpr,
):
    n_tiles = tl.cdiv(m, M_TILE_SIZE) * tl.cdiv(n, N_TILE_SIZE)
    tile = {first}
    while tile < n_tiles:
        _tile(
            a_ptr, b_ptr, c_ptr, {arguments}, m, n, k, tile, M_TILE_SIZE, N_TILE_SIZE, K_TILE_SIZE, GROUP_SIZE
        )
        tile = tl.atomic_add(queue_ptr, 1)
"""
    return style(
        name,
        ("def _matmul_kernel", kernel),
        (GRID, f"(min({GRID}[0], {PROGRAMS}),)"),
        ("            rows, b, c,\n", "            rows, b, c, queue,\n"),
        (
            "        _matmul_kernel[grid](",
            f"        queue = torch.{made}, dtype=torch.int32, device=a.device)\n        _matmul_kernel[grid](",
        ),
    )


STYLES = (
    style(  # rows and columns past the end are those from the start again, and loads mask terms alone
        "matmul_library_hints",
        (
            "    total = tl.zeros(",
            """\
    rows_in = tl.max_contiguous(tl.multiple_of(rows % m, M_TILE_SIZE), M_TILE_SIZE)
    cols_in = tl.max_contiguous(tl.multiple_of(cols % n, N_TILE_SIZE), N_TILE_SIZE)
    total = tl.zeros(""",
        ),
        ("        a_mask = (rows[:, None] < m) & (terms[None, :] < k)\n", "        a_mask = terms[None, :] < k\n"),
        ("        b_mask = (terms[:, None] < k) & (cols[None, :] < n)\n", "        b_mask = terms[:, None] < k\n"),
        ("a_ptr + rows[:, None]", "a_ptr + rows_in[:, None]"),
        ("stride_bk + cols[None, :]", "stride_bk + cols_in[None, :]"),
    ),
    split(  # who is last at a tile adds up the parts
        "matmul_split_last",
        "grid[0] * grid[1]",
        f"""\
    part = tl.program_id(0) * tl.num_programs(1)
    {PARTS.format("part")}
    tl.store(part_ptrs + tl.program_id(1) * (M_TILE_SIZE * N_TILE_SIZE), total)
    tl.debug_barrier()
    if tl.atomic_add(flags_ptr + tl.program_id(0), 1) == tl.num_programs(1) - 1:
        total = tl.load(part_ptrs)
        for other in range(1, tl.num_programs(1)):
            total += tl.load(part_ptrs + other * (M_TILE_SIZE * N_TILE_SIZE))
        STORED
""",
    ),
    split(  # in turns: each waits for the one before it, and adds its part
        "matmul_split_in_turns",
        "grid[0]",
        f"""\
    turn_ptr = flags_ptr + tl.program_id(0)
    {PARTS.format("tl.program_id(0)")}
    while tl.atomic_add(turn_ptr, 0, sem="acquire") != tl.program_id(1):
        pass
    if tl.program_id(1) > 0:
        total += tl.load(part_ptrs)
    if tl.program_id(1) == tl.num_programs(1) - 1:
        STORED
    else:
        tl.store(part_ptrs, total)
        tl.debug_barrier()
        tl.atomic_xchg(turn_ptr, tl.program_id(1) + 1, sem="release")
""",
    ),
    stream(  # who has the last step of a tile waits for those that began earlier
        "matmul_stream_to_later",
        "end < steps",
        "other = tl.program_id(0)\n            while other * each > tile * steps:\n                other -= 1",
        "",
    ),
    stream(  # who has the first step of a tile waits for those that begin later
        "matmul_stream_to_earlier",
        "first > 0",
        "other = tl.program_id(0) + 1\n            while other * each < tile * steps + steps:",
        "other += 1",
    ),
    queue("matmul_queue", "zeros(1", "tl.atomic_add(queue_ptr, 1)"),
    queue("matmul_queue_behind_the_first", "full((1,), grid[0]", "tl.program_id(0)"),
)
