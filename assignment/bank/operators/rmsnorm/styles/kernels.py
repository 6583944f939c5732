"""Styles of kernels: how programs share rows and the weight's gradient."""

from assignment.bank.operators.edits import style
from assignment.bank.operators.rmsnorm.styles.parts import (
    FILES,
    KERNELS,
    PROBLEMS,
    above,
    below,
    other_backward,
)

__all__ = ["FILES", "PROBLEMS", "STYLES"]

STYLES = (
    style(  # the inverse root by Newton's iteration, from a guess by bits, until the worst row of a tile is near
        "rmsnorm_newton",
        ("    rstd = 1.0 / tl.sqrt(mean_of_squares + eps)\n", "    rstd = _inverse_root(mean_of_squares + eps)\n"),
        below(
            """\
@triton.jit
def _inverse_root(x):
    root = (0x5F3759DF - (x.to(tl.int32, bitcast=True) >> 1)).to(tl.float32, bitcast=True)
    error = 1.0 - x * root * root
    turns = 0
    while (tl.max(tl.abs(error), axis=0) > 1e-4) & (turns < 20):
        root += 0.5 * root * error
        error = 1.0 - x * root * root
        turns += 1
    return root + 0.5 * root * error
"""
        ),
    ),
    style(  # a grid of tiles in two dimensions, with atomic adds for whatever crosses a tile's border: dw, and the sum
        # of a row wider than a tile; in algebra dx = rstd (g − x · rstd² Σ g x / d), g = w dy
        "rmsnorm_atomics",
        above(
            '''
WIDEST = 1024


def _float32(x, n):
    """Return zeros to add to."""
    return torch.zeros(n, dtype=torch.float32, device=x.device)


def _launch(n_rows, d):
    """Return the grid, the tile and whether a tile holds whole rows."""
    d_tile_size = min(triton.next_power_of_2(d), WIDEST)
    rows_tile_size = min(TILE_ELEMENTS // d_tile_size, 64)
    grid = (triton.cdiv(n_rows, rows_tile_size), triton.cdiv(d, d_tile_size))
    return grid, {"ROWS_TILE_SIZE": rows_tile_size, "D_TILE_SIZE": d_tile_size}, grid[1] == 1
'''
        ),
        *other_backward(
            """\
    (grid, tile, is_whole), sums, grad_weight = _launch(n_rows, d), _float32(x, n_rows), _float32(x, d)
    strides = (*grad_y_rows.stride(), *x_matrix.stride(), *weight.stride())
    if not is_whole:
        _add_row_sums_kernel[grid](grad_y_rows, x_matrix, weight, sums, *strides, n_rows, d, **tile)
    _backward_kernel[grid](
        grad_y_rows, x_matrix, weight, rstd_rows, sums, grad_x, grad_weight,
        *strides, *rstd_rows.stride(), *grad_x.stride(), n_rows, d, IS_WHOLE=is_whole, **tile,
    )
""",
            '''\
@triton.jit
def _indices(n_rows, d, ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr):
    """The program's rows (ROWS_TILE_SIZE, 1), its columns (1, D_TILE_SIZE) and the mask of the tile."""
    rows = (tl.program_id(0).to(tl.int64) * ROWS_TILE_SIZE + tl.arange(0, ROWS_TILE_SIZE))[:, None]
    cols = (tl.program_id(1).to(tl.int64) * D_TILE_SIZE + tl.arange(0, D_TILE_SIZE))[None, :]
    return rows, cols, (rows < n_rows) & (cols < d)


@triton.jit
def _add_row_sums_kernel(
    a_ptr, x_ptr, w_ptr, sums_ptr,
    stride_ar, stride_ad, stride_xr, stride_xd, stride_wd,
    n_rows, d,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):
    """sums_i += Σ_j a_ij x_ij w_j over the columns of a tile."""
    rows, cols, mask = _indices(n_rows, d, ROWS_TILE_SIZE, D_TILE_SIZE)
    a = tl.load(a_ptr + rows * stride_ar + cols * stride_ad, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + rows * stride_xr + cols * stride_xd, mask=mask, other=0.0).to(tl.float32)
    a *= tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0).to(tl.float32)
    tl.atomic_add(sums_ptr + rows, tl.sum(a * x, axis=1, keep_dims=True), mask=rows < n_rows)


@triton.jit
def _backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, rstd_ptr, sums_ptr, grad_x_ptr, grad_w_ptr,
    stride_gyr, stride_gyd, stride_xr, stride_xd, stride_wd, stride_rstdr, stride_gxr, stride_gxd,
    n_rows, d,
    IS_WHOLE: tl.constexpr, ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):
    rows, cols, mask = _indices(n_rows, d, ROWS_TILE_SIZE, D_TILE_SIZE)
    grad_y = tl.load(grad_y_ptr + rows * stride_gyr + cols * stride_gyd, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + rows * stride_xr + cols * stride_xd, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0).to(tl.float32)
    rstd = tl.load(rstd_ptr + rows * stride_rstdr, mask=rows < n_rows, other=0.0)
    g = w * grad_y
    if IS_WHOLE:
        sums = tl.sum(g * x, axis=1, keep_dims=True)
    else:
        sums = tl.load(sums_ptr + rows, mask=rows < n_rows, other=0.0)
    grad_x = rstd * (g - x * (sums * rstd * rstd / d))
    grad_x_ptrs = grad_x_ptr + rows * stride_gxr + cols * stride_gxd
    tl.store(grad_x_ptrs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)
    grad_w = tl.sum(grad_y * (x * rstd), axis=0, keep_dims=True)
    tl.atomic_add(grad_w_ptr + cols, grad_w, mask=cols < d)
''',
        ),
    ),
    style(  # a program a row, and the whole row in one power-of-two tile, however wide; each leaves a partial gradient
        "rmsnorm_row_program",
        ("ROWS_PER_PROGRAM = 64\n", "ROWS_PER_PROGRAM = 1\n"),
        ("min(triton.next_power_of_2(d), MAX_D_TILE_SIZE)", "triton.next_power_of_2(d)"),
        ("max(1, min(64, TILE_ELEMENTS // d_tile_size))", "1"),
        (
            "IS_ONE_TILE=d <= d_tile_size,\n            num_warps=8,",
            "IS_ONE_TILE=True,\n            num_warps=min(max(d_tile_size // 256, 1), 32),",
        ),
    ),
    style(  # a kernel for each gradient: nothing is exchanged between programs, at the price of reading x and dy twice
        "rmsnorm_two_kernels",
        ("ROWS_PER_PROGRAM = 64\n", "ROWS_PER_PROGRAM = 4\n"),
        (
            "    grad_weight = partial_grad_w.sum(dim=0)\n",
            """\
    grad_weight = weight.new_zeros(d)
    if n_rows > 0:
        dw_kernel[(triton.cdiv(d, 64),)](
            grad_y_rows, x_matrix, rstd_rows, grad_weight,
            *grad_y_rows.stride(), *x_matrix.stride(), *rstd_rows.stride(), n_rows, d, BLOCK_ROWS=32, BLOCK_COLS=64,
        )
""",
        ),
        ("torch.empty((n_programs, d), dtype=torch.float32", "torch.empty((1, d), dtype=torch.float32"),
        ("        grad_w += grad_y * x_hat\n", ""),
        ("    grad_w = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)\n", ""),
        (
            KERNELS[KERNELS.index("    partial_ptrs = ") :],
            """\


@triton.jit
def dw_kernel(
    dy_ptr, x_ptr, rstd_ptr, dw_ptr,
    stride_dyr, stride_dyd, stride_xr, stride_xd, stride_rstdr,
    n_rows, d,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr,
):
    cols = tl.program_id(0).to(tl.int64) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    dw = tl.zeros((BLOCK_COLS,), dtype=tl.float32)
    for start in range(0, n_rows, BLOCK_ROWS):
        rows = start + tl.arange(0, BLOCK_ROWS).to(tl.int64)
        mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
        x = tl.load(x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask=mask, other=0.0)
        dy = tl.load(dy_ptr + rows[:, None] * stride_dyr + cols[None, :] * stride_dyd, mask=mask, other=0.0)
        rstd = tl.load(rstd_ptr + rows * stride_rstdr, mask=rows < n_rows, other=0.0)
        dw += tl.sum(dy.to(tl.float32) * (x.to(tl.float32) * rstd[:, None]), axis=0)
    tl.store(dw_ptr + cols, dw.to(dw_ptr.dtype.element_ty), mask=cols < d)
""",
        ),
    ),
)
