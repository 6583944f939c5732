"""Styles whose programs meet: locks, last programs, barriers, look-back, lists in an order that is luck."""

from assignment.bank.operators.edits import Style, style
from assignment.bank.operators.weighted_sum.styles.parts import BACKWARD_KERNEL, FILES, PROBLEMS, above

__all__ = ["FILES", "PROBLEMS", "STYLES"]

STORE = "        tl.store(partial_ptrs, partial, mask=in_cols)\n"
SUM = "partial_grad_w.sum(dim=0)"
LOCKED = """\
        partial += tl.load(partial_ptrs, mask=in_cols, other=0.0)
        tl.store(partial_ptrs, partial, mask=in_cols)
        tl.debug_barrier()
"""
OTHERS = "partial_ptr + other.to(tl.int64) * stride_pr + cols * stride_pd, mask=in_cols, other=0.0"
TOTAL = "partial_ptr + tl.num_programs(0).to(tl.int64) * stride_pr + cols * stride_pd"
TILE = (
    BACKWARD_KERNEL.replace("def _backward_kernel(", "def _tile(")
    .replace("    n_rows, d,\n", "    n_rows, d, tile,\n")
    .replace("    tile = tl.program_id(0).to(tl.int64)\n", "")
)
STRIDED = f'''\
{TILE}

@triton.jit
def _backward_kernel(
    grad_y_ptr, x_ptr, weight_ptr, grad_x_ptr, partial_ptr, state_ptr,
    stride_gyr, stride_xr, stride_xd, stride_wd, stride_gxr, stride_gxd, stride_pr, stride_pd,
    n_rows, d,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):
    """Every tile a partial row; all wait for all, and share the columns of these rows."""
    n_tiles = tl.cdiv(n_rows, ROWS_TILE_SIZE)
    for tile in range(tl.program_id(0), n_tiles, tl.num_programs(0)):
        _tile(
            grad_y_ptr, x_ptr, weight_ptr, grad_x_ptr, partial_ptr,
            stride_gyr, stride_xr, stride_xd, stride_wd, stride_gxr, stride_gxd, stride_pr, stride_pd,
            n_rows, d, tile.to(tl.int64), ROWS_TILE_SIZE, D_TILE_SIZE,
        )
    tl.debug_barrier()
    BARRIER
    for col_tile in range(tl.program_id(0), tl.cdiv(d, D_TILE_SIZE), tl.num_programs(0)):
        cols = col_tile * D_TILE_SIZE + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        in_cols = cols < d
        total = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
        for other in range(n_tiles):
            total += tl.load({OTHERS})
        tl.store(partial_ptr + n_tiles.to(tl.int64) * stride_pr + cols * stride_pd, total, mask=in_cols)
'''


def backward(
    name: str, *edits: tuple[str, str], rows: str, row: str = "tile", state: str, end: str, result: str = SUM
) -> Style:
    """Return a style of the backward pass, whose kernel gets int32 zeros, and ends a tile of columns otherwise.

    rows: of partial sums, zeros. row: of a program. state: how many int32. result: the gradient of the weight.
    """
    made = f"torch.zeros({state}, dtype=torch.int32, device=x.device)"
    return style(
        name,
        ("torch.empty((n_tiles, d)", f"torch.zeros(({rows}, d)"),
        ("    if n_rows > 0:\n        _backward", f"    state = {made}\n    if n_rows > 0:\n        _backward"),
        ("weight, grad_x, partial_grad_w,", "weight, grad_x, partial_grad_w, state,"),
        ("grad_x_ptr, partial_ptr,", "grad_x_ptr, partial_ptr, state_ptr,"),
        ("partial_ptr + tile *", f"partial_ptr + {row} *"),
        (SUM, result),
        (STORE, end),
        *edits,
    )


def barrier(name: str, *lines: str) -> Style:
    """Return a style of the backward pass in which all programs wait for all: at most one a multiprocessor."""
    count = "torch.cuda.get_device_properties(x.device).multi_processor_count"
    state = "    state = torch.zeros(2, dtype=torch.int32, device=x.device)\n"
    return style(
        name,
        ("torch.empty((n_tiles, d)", "torch.zeros((n_tiles + 1, d)"),
        ("    if n_rows > 0:\n        _backward", f"{state}    if n_rows > 0:\n        _backward"),
        ("_backward_kernel[(n_tiles,)]", f"_backward_kernel[(min(n_tiles, {count}),)]"),
        ("weight, grad_x, partial_grad_w,", "weight, grad_x, partial_grad_w, state,"),
        (SUM, "partial_grad_w[n_tiles]"),
        (BACKWARD_KERNEL, STRIDED.replace("BARRIER", "\n    ".join(lines))),
    )


LIST = """
@triton.jit
def _list_kernel(list_ptr, count_ptr, n_rows, ROWS_TILE_SIZE: tl.constexpr):
    FIND
    tl.store(list_ptr + at, tl.program_id(0))

"""


def listed(name: str, find: str, *edits: tuple[str, str]) -> Style:
    """Return a style of the forward pass: one kernel lists the tiles, in any order, and programs of another do them."""
    lists = """\
        order, count = (torch.zeros(n, dtype=torch.int32, device=x.device) for n in (grid[0], 3))
        _list_kernel[grid](order, count, n_rows, ROWS_TILE_SIZE)
        _forward_kernel[grid](
            x_rows, weight, y, order, count,
"""
    return style(
        name,
        above(LIST.replace("FIND", find)),
        ("        _forward_kernel[grid](\n            x_rows, weight, y,\n", lists),
        ("    x_ptr, w_ptr, y_ptr,\n", "    x_ptr, w_ptr, y_ptr, list_ptr, count_ptr,\n"),
        *(edits or (("    rows = tl.program_id(0).to", "    rows = tl.load(list_ptr + tl.program_id(0)).to"),)),
    )


STYLES = (
    backward(  # one row of sums, and a lock for each tile of columns
        "weighted_sum_lock",
        rows="1",
        row="0",
        state="triton.cdiv(d, D_TILE_SIZE)",
        end=f"""\
        lock_ptr = state_ptr + first_col // D_TILE_SIZE
        while tl.atomic_cas(lock_ptr, 0, 1) == 1:
            pass
{LOCKED}\
        tl.atomic_xchg(lock_ptr, 0)
""",
    ),
    backward(  # one row of sums, and for each tile of columns the next number and the one whose turn it is
        "weighted_sum_ticket_lock",
        rows="1",
        row="0",
        state="(2, triton.cdiv(d, D_TILE_SIZE))",
        end=f"""\
        next_ptr = state_ptr + first_col // D_TILE_SIZE
        turn_ptr = next_ptr + tl.cdiv(d, D_TILE_SIZE)
        ticket = tl.atomic_add(next_ptr, 1, sem="relaxed")
        while tl.atomic_add(turn_ptr, 0, sem="acquire") != ticket:
            pass
{LOCKED}\
        tl.atomic_add(turn_ptr, 1, sem="release")
""",
    ),
    backward(  # who is last at a tile of columns adds up what all have stored
        "weighted_sum_last_adds_up",
        rows="n_tiles + 1",
        state="triton.cdiv(d, D_TILE_SIZE)",
        result="partial_grad_w[n_tiles]",
        end=f"""\
{STORE}\
        tl.debug_barrier()
        if tl.atomic_add(state_ptr + first_col // D_TILE_SIZE, 1) == tl.num_programs(0) - 1:
            total = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
            for other in range(tl.num_programs(0)):
                total += tl.load({OTHERS})
            tl.store({TOTAL}, total, mask=in_cols)
""",
    ),
    backward(  # all add atomically, and who is last of all copies the sums
        "weighted_sum_last_copies",
        rows="2",
        row="0",
        state="1",
        result="partial_grad_w[1]",
        end="""\
        tl.atomic_add(partial_ptrs, partial, mask=in_cols, sem="relaxed")
    tl.debug_barrier()
    is_last = tl.atomic_add(state_ptr, 1, sem="acq_rel") == tl.num_programs(0) - 1
    for first_col in range(0, tl.where(is_last, d, 0), D_TILE_SIZE):
        cols = first_col + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        total = tl.load(partial_ptr + cols * stride_pd, mask=cols < d, other=0.0)
        tl.store(partial_ptr + stride_pr + cols * stride_pd, total, mask=cols < d)
""",
    ),
    barrier(  # each counts itself, and waits for the count
        "weighted_sum_barrier",
        'tl.atomic_add(state_ptr, 1, sem="release")',
        'while tl.atomic_add(state_ptr, 0, sem="acquire") < tl.num_programs(0):',
        "    pass",
    ),
    barrier(  # the last one lets all others go
        "weighted_sum_barrier_opened",
        "if tl.atomic_add(state_ptr, 1) == tl.num_programs(0) - 1:",
        "    tl.atomic_xchg(state_ptr + 1, 1)",
        "while tl.atomic_cas(state_ptr + 1, 1, 1) == 0:",
        "    pass",
    ),
    backward(  # decoupled look-back: a scan along the tiles, which are given out in order; a flag is 1 where the tile's
        # own sums are stored, and 2 where those of all tiles up to it are
        "weighted_sum_look_back",
        ("tile = tl.program_id(0).to", "tile = tl.atomic_add(state_ptr, 1).to"),
        rows="2 * n_tiles + 1",
        state="1 + n_tiles * triton.cdiv(d, D_TILE_SIZE)",
        result="partial_grad_w[2 * n_tiles - 1]",
        end=f"""\
{STORE}\
        tl.debug_barrier()
        n_flags = tl.cdiv(d, D_TILE_SIZE)
        flag_ptr = state_ptr + 1 + first_col // D_TILE_SIZE
        tl.atomic_xchg(flag_ptr + tile * n_flags, 1, sem="release")
        other = tile - 1
        while other >= 0:
            flag = tl.atomic_add(flag_ptr + other * n_flags, 0, sem="acquire")
            if flag == 2:
                sums_ptrs = partial_ptrs + (tl.num_programs(0) + other - tile) * stride_pr
                partial += tl.load(sums_ptrs, mask=in_cols, other=0.0)
                other = other * 0 - 1
            elif flag == 1:
                partial += tl.load({OTHERS})
                other -= 1
        tl.store(partial_ptrs + tl.num_programs(0) * stride_pr, partial, mask=in_cols)
        tl.debug_barrier()
        tl.atomic_xchg(flag_ptr + tile * n_flags, 2, sem="release")
""",
    ),
    backward(  # a chained scan whose flags and sums are one word, so that nothing else needs to be ordered
        "weighted_sum_chained_words",
        ("tile = tl.program_id(0).to", "tile = tl.atomic_add(state_ptr, 1).to"),
        ("weight, grad_x, partial_grad_w, state,", "weight, grad_x, partial_grad_w, state, words,"),
        ("grad_x_ptr, partial_ptr, state_ptr,", "grad_x_ptr, partial_ptr, state_ptr, words_ptr,"),
        (
            "    state = torch",
            "    words = torch.zeros((n_tiles, d), dtype=torch.int64, device=x.device)\n    state = torch",
        ),
        rows="1",
        row="0",
        state="1",
        end="""\
        word_ptrs = words_ptr + tile * d + cols
        if tile > 0:
            word = tl.load(word_ptrs - d, mask=in_cols, other=-1, volatile=True)
            while tl.min(tl.abs(word >> 32)) == 0:
                word = tl.load(word_ptrs - d, mask=in_cols, other=-1, volatile=True)
            partial += word.to(tl.int32).to(tl.float32, bitcast=True)
        word = (partial.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF) | (1 << 32)
        tl.atomic_xchg(word_ptrs, word, mask=in_cols, sem="relaxed")
        if tile == tl.num_programs(0) - 1:
            tl.store(partial_ptrs, partial, mask=in_cols)
""",
    ),
    listed("weighted_sum_listed", "at = tl.atomic_add(count_ptr, 1)"),
    listed(  # whole tiles from the front, one that is not whole from the back; taken one by one
        "weighted_sum_listed_from_both_ends",
        "is_whole = (tl.program_id(0) + 1) * ROWS_TILE_SIZE <= n_rows\n"
        "    taken = tl.atomic_add(tl.where(is_whole, count_ptr, count_ptr + 1), 1)\n"
        "    at = tl.where(is_whole, taken, tl.num_programs(0) - 1 - taken)",
        (
            "    rows = tl.program_id(0).to",
            '    rows = tl.load(list_ptr + tl.atomic_add(count_ptr + 2, 1, sem="relaxed")).to',
        ),
    ),
)
