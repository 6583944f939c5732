"""Styles of kernels: atomics, results left out, sums in pairs."""

from assignment.bank.operators.edits import style
from assignment.bank.operators.weighted_sum.styles.parts import (
    BACKWARD_TILES,
    FILES,
    FORWARD_TILES,
    PROBLEMS,
    SUM,
    above,
    below,
    other_backward,
    tiles,
)

__all__ = ["FILES", "PROBLEMS", "STYLES"]

STYLES = (
    style(  # small tiles; the weight's gradient is added up atomically, in float32, and cast at the end
        "weighted_sum_atomics",
        above("", 16, 32),
        tiles(FORWARD_TILES, "ROWS_TILE_SIZE, D_TILE_SIZE, num_warps=2,"),
        ("torch.empty((n_tiles, d), dtype=torch.float32,", "torch.zeros(d, dtype=torch.float32,"),
        ("partial_grad_w.stride(0), partial_grad_w.stride(1)", "0, partial_grad_w.stride(0)"),
        tiles(BACKWARD_TILES, "ROWS_TILE_SIZE, D_TILE_SIZE, num_warps=2,"),
        ("partial_grad_w.sum(dim=0)", "partial_grad_w"),
        (
            "    y = tl.zeros((ROWS_TILE_SIZE,), dtype=tl.float32)\n    for start in range(0, d, D_TILE_SIZE):\n"
            "        cols = start + ",
            """\
    products = tl.zeros((ROWS_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    for i in range(tl.cdiv(d, D_TILE_SIZE)):
        cols = i * D_TILE_SIZE + """,
        ),
        (
            "        y += tl.sum(x * w[None, :], axis=1)\n",
            "        products += x * w[None, :]\n    y = tl.sum(products, axis=1)\n",
        ),
        (
            "tl.store(partial_ptrs, partial, mask=in_cols)",
            'tl.atomic_add(partial_ptrs, partial, mask=in_cols, sem="relaxed")',
        ),
    ),
    style(  # results that the language leaves undefined are met, and left out: a neighbour of the first lane, division
        # by 0, shifts past the width; the last program, by a ticket of one lane, reads also rows that nobody wrote
        "weighted_sum_left_out",
        above("", 32, 64),
        (
            "    partial_grad_w = torch.empty((n_tiles, d)",
            """\
    grad_weight = torch.zeros(d, dtype=weight.dtype, device=x.device)
    count = torch.zeros(1, dtype=torch.int32, device=x.device)
    partial_grad_w = torch.empty((triton.next_power_of_2(n_tiles), d)""",
        ),
        ("grad_x, partial_grad_w,\n", "grad_x, partial_grad_w, grad_weight, count,\n"),
        tiles(BACKWARD_TILES, "TILES=partial_grad_w.shape[0], ROWS_TILE_SIZE=ROWS_TILE_SIZE, D_TILE_SIZE=D_TILE_SIZE,"),
        (SUM, ""),
        (
            "        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)\n        col_mask = cols < d\n",
            """\
        lanes = tl.arange(0, D_TILE_SIZE)
        before = lanes - 1  # of the first lane there is none
        cols = start + lanes.to(tl.int64)
        n_left = tl.maximum(d - cols, 0)  # 0 past the end
        bits = tl.where(lanes < 32, 1 << lanes, 0) | tl.where(lanes >= 32, 1, 0)
        col_mask = (tl.where(n_left > 0, d // n_left, 0) > 0) & (bits != 0)
""",
        ),
        (
            "        y += tl.sum(x * w[None, :], axis=1)\n",
            """\
        x_before = tl.gather(x, tl.broadcast_to(before[None, :], (ROWS_TILE_SIZE, D_TILE_SIZE)), 1)
        shifted = tl.where(lanes[None, :] > 0, x_before * tl.gather(w, before, 0)[None, :], 0.0)
        last = tl.where(lanes[None, :] == D_TILE_SIZE - 1, x * w[None, :], 0.0)
        y += tl.sum(shifted + last, axis=1)
""",
        ),
        ("partial_ptr,\n    stride_gyr", "partial_ptr, grad_w_ptr, count_ptr,\n    stride_gyr"),
        ("stride_pd,\n    n_rows, d,\n", "stride_pd,\n    n_rows, d, TILES: tl.constexpr,\n"),
        below(
            """\
    tl.debug_barrier()
    drawing = tl.arange(0, 2)
    tickets = tl.atomic_add(count_ptr + drawing, 1, mask=drawing < 1)
    if tl.sum(tl.where(drawing < 1, tickets, 0)) == tl.num_programs(0) - 1:
        tiles = tl.arange(0, TILES).to(tl.int64)
        for start in range(0, d, D_TILE_SIZE):
            cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)
            partial = tl.load(partial_ptr + tiles[:, None] * d + cols[None, :], mask=(cols < d)[None, :], other=0.0)
            partial = tl.where((tiles < tl.num_programs(0))[:, None], partial, 0.0)
            tl.store(grad_w_ptr + cols, tl.sum(partial, axis=0).to(grad_w_ptr.dtype.element_ty), mask=cols < d)
"""
        ),
    ),
    style(  # one tile a program in the backward, whose partial rows a second kernel adds in pairs, then pairs of pairs
        "weighted_sum_pairwise",
        above("PARTIALS_LOG2 = 6  # partial rows that the second kernel holds at once\n", 64, 16),
        (
            "    grad_x = torch.empty((n_rows, d), dtype=x.dtype, device=x.device)\n",
            "    grad_x = torch.empty_like(x, memory_format=torch.contiguous_format)\n",
        ),
        *other_backward(
            """\
    partials, grad_weight = torch.empty(n_tiles, d, dtype=torch.float32, device=x.device), weight.new_zeros(d)
    n_col_tiles = triton.cdiv(d, D_TILE_SIZE)
    _backward_kernel[(n_tiles * n_col_tiles,)](
        grad_y_rows, grad_y_rows.stride(0), x_matrix, *x_matrix.stride(), weight, weight.stride(0),
        grad_x, partials, n_rows, d, n_col_tiles, ROWS_TILE_SIZE, D_TILE_SIZE,
    )
    _reduce_kernel[(n_col_tiles,)](partials, grad_weight, n_tiles, d, PARTIALS_LOG2, D_TILE_SIZE)
""",
            '''\
@triton.jit
def _backward_kernel(
    grad_y_ptr, stride_gyr, x_ptr, stride_xr, stride_xd, w_ptr, stride_wd,
    grad_x_ptr, partials_ptr,
    n_rows, d, n_col_tiles,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):
    """A tile of grad_x (n_rows, d), and its column sums in partials (n_row_tiles, d)."""
    row_tile = tl.program_id(0).to(tl.int64) // n_col_tiles
    col_tile = tl.program_id(0).to(tl.int64) % n_col_tiles
    rows = row_tile * ROWS + tl.arange(0, ROWS)
    cols = col_tile * COLS + tl.arange(0, COLS)
    mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
    x = tl.load(x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask, 0.0).to(tl.float32)
    w = tl.load(w_ptr + cols * stride_wd, cols < d, 0.0).to(tl.float32)
    grad_y = tl.load(grad_y_ptr + rows * stride_gyr, rows < n_rows, 0.0).to(tl.float32)
    tl.store(grad_x_ptr + rows[:, None] * d + cols[None, :], grad_y[:, None] * w, mask)
    tl.store(partials_ptr + row_tile * d + cols, tl.sum(grad_y[:, None] * x, 0), cols < d)


@triton.jit
def _reduce_kernel(partials_ptr, grad_w_ptr, n_partials, d, LOG2: tl.constexpr, COLS: tl.constexpr):
    """grad_w (d,) from partials (n_partials, d), for one tile of columns."""
    cols = tl.program_id(0).to(tl.int64) * COLS + tl.arange(0, COLS)
    grad_w = tl.zeros((COLS,), tl.float32)
    for first in tl.range(0, n_partials, 2**LOG2):
        at = first + tl.arange(0, 2**LOG2).to(tl.int64)
        mask = (at < n_partials)[:, None] & (cols < d)[None, :]
        partials = tl.load(partials_ptr + at[:, None] * d + cols[None, :], mask, 0.0)
        grad_w += _pairwise_sum(partials, LOG2, COLS)
    tl.store(grad_w_ptr + cols, grad_w, cols < d)


@triton.jit
def _pairwise_sum(x, LOG2: tl.constexpr, COLS: tl.constexpr):
    """The sum of the 2^LOG2 rows of x (2^LOG2, COLS): neighbours first."""
    for level in tl.static_range(LOG2):
        pairs = tl.reshape(x, (2 ** (LOG2 - 1 - level), 2, COLS))
        left, right = tl.split(tl.permute(pairs, (0, 2, 1)))
        x = left + right
    return tl.reshape(x, (COLS,))
''',
        ),
    ),
)
