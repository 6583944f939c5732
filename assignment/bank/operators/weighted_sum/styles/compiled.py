"""Styles of kernels: what the compiler is told, is given as tuples, tunes and keeps."""

from assignment.bank.operators.edits import style
from assignment.bank.operators.weighted_sum.styles.parts import (
    FILES,
    FORWARD_TILES,
    PROBLEMS,
    TUNED_GRID,
    above,
    other_backward,
    tiles,
)

__all__ = ["FILES", "PROBLEMS", "STYLES"]

TUNED = '@LibraryEntry\n@triton.autotune(CONFIGS, key=["n_rows", "d"])\n'

STYLES = (
    style(  # rows of any width are unrolled by tl.static_range, full blocks without a mask; matrices are named tuples
        # of pointer and strides; tl.assume, tl.multiple_of and tl.max_contiguous tell what cannot be seen
        "weighted_sum_static_range",
        ("import torch\n", "from typing import NamedTuple\n\nimport torch\n"),
        above(
            '''\
MAX_BLOCK, ELEMENTS = 1024, 2048


class Matrix(NamedTuple):
    """A matrix in memory; the stride of its rows, and that of its columns."""

    ptr: torch.Tensor
    row: int
    col: int


def _tile(d):
    block = min(triton.next_power_of_2(d), MAX_BLOCK)
    return {"N_BLOCKS": triton.cdiv(d, block), "ROWS": min(16, ELEMENTS // block), "BLOCK": block}
'''
        ),
        *other_backward(
            """\
    tile = _tile(d)
    n_tiles = triton.cdiv(n_rows, tile["ROWS"])
    shares = torch.empty((n_tiles, d), dtype=torch.float32, device=x.device)
    _backward_kernel[(n_tiles,)](
        grad_y_rows, grad_y_rows.stride(0), Matrix(x_matrix, *x_matrix.stride()), weight, weight.stride(0),
        Matrix(grad_x, *grad_x.stride()), shares, n_rows, d, **tile,
    )
    grad_weight = shares.sum(dim=0)
""",
            '''\
@triton.jit
def _columns(index: tl.constexpr, BLOCK: tl.constexpr):
    cols = index * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    return tl.max_contiguous(tl.multiple_of(cols, BLOCK), BLOCK)


@triton.jit
def _tile_of(x, rows, cols, row_mask, d, IS_FULL: tl.constexpr):
    """Pointers to the tile and its mask, which is the rows' alone where all columns are real."""
    mask = row_mask[:, None] if IS_FULL else row_mask[:, None] & (cols < d)[None, :]
    return x.ptr + rows[:, None] * x.row + cols[None, :] * x.col, mask


@triton.jit
def _backward_kernel(
    grad_y_ptr, stride_gy, x: Matrix, w_ptr, stride_w, grad_x: Matrix, shares_ptr, n_rows, d,
    N_BLOCKS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    tl.assume(d > 0)
    tl.assume(n_rows > 0)
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_mask = rows < n_rows
    grad_y = tl.load(grad_y_ptr + rows * stride_gy, mask=row_mask, other=0.0).to(tl.float32)[:, None]
    shares_ptr += tl.program_id(0).to(tl.int64) * d
    for i in tl.static_range(N_BLOCKS):
        cols = _columns(i, BLOCK)
        ptrs, mask = _tile_of(x, rows, cols, row_mask, d, i + 1 < N_BLOCKS)
        x_tile = tl.load(ptrs, mask=mask, other=0.0, cache_modifier=".cg").to(tl.float32)
        w = tl.load(w_ptr + cols * stride_w, mask=cols < d, other=0.0).to(tl.float32)
        ptrs, mask = _tile_of(grad_x, rows, cols, row_mask, d, i + 1 < N_BLOCKS)
        tl.store(ptrs, grad_y * w[None, :], mask=mask)
        tl.store(shares_ptr + cols, tl.sum(grad_y * x_tile, axis=0), mask=cols < d)
''',
        ),
    ),
    style(  # as FlagGems does it: an entry around the tuner keeps the compiled kernels and launches these; columns are
        # split over the grid's second axis, and the tuner's hook clears what relaxed atomics add to
        "weighted_sum_library_entry",
        above(
            '''\
CONFIGS = [
    triton.Config({"ROWS_TILE_SIZE": 8, "D_TILE_SIZE": 128}, num_warps=4),
    triton.Config({"ROWS_TILE_SIZE": 32, "D_TILE_SIZE": 64}, num_warps=4),
    triton.Config({"ROWS_TILE_SIZE": 16, "D_TILE_SIZE": 256}, num_warps=8),
]


class LibraryEntry(triton.KernelInterface):
    """What Triton compiled, by what it depends on: later launches of the kind go straight to it."""

    def __init__(self, tuner):
        self.fn = tuner
        self.compiled = {}

    def run(self, *args, grid, warmup=False, **kwargs):
        key = *map(_specialization, args), *kwargs.items()
        if key in self.compiled:
            kernel, constants = self.compiled[key]
            kernel[(*grid(constants), 1, 1)[:3]](*args, *constants.values())
        else:
            kernel = self.fn[grid](*args, **kwargs)
            self.compiled[key] = kernel, {**kwargs, **self.fn.best_config.kwargs}


def _specialization(arg):
    if isinstance(arg, torch.Tensor):
        return arg.dtype, arg.data_ptr() % 16 == 0
    return type(arg), arg % 16 == 0, arg == 1, arg < 2**31
'''
        ),
        TUNED_GRID,
        tiles(FORWARD_TILES, ""),
        ("@triton.jit\ndef _forward_kernel(", f"{TUNED}@triton.jit\ndef _forward_kernel("),
        *other_backward(
            """\

    def grid(meta):
        return triton.cdiv(n_rows, meta["ROWS_TILE_SIZE"]), triton.cdiv(d, meta["D_TILE_SIZE"])

    grad_weight = torch.zeros(d, dtype=torch.float32, device=x.device)
    strides = *grad_y_rows.stride(), *x_matrix.stride(), *weight.stride()
    _outer_kernel[grid](grad_y_rows, x_matrix, weight, grad_x, grad_weight, n_rows, d, *strides)
""",
            """\
@LibraryEntry
@triton.autotune(CONFIGS, key=["n_rows", "d"], reset_to_zero=["grad_w_ptr"])
@triton.jit
def _outer_kernel(
    grad_y_ptr, x_ptr, w_ptr, grad_x_ptr, grad_w_ptr,
    n_rows, d, stride_gym, stride_xm, stride_xn, stride_wn,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * ROWS_TILE_SIZE + tl.arange(0, ROWS_TILE_SIZE)
    cols = tl.program_id(1).to(tl.int64) * D_TILE_SIZE + tl.arange(0, D_TILE_SIZE)
    mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
    grad_y = tl.load(grad_y_ptr + rows * stride_gym, mask=rows < n_rows, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols * stride_wn, mask=cols < d, other=0.0, eviction_policy="evict_last").to(tl.float32)
    x_ptrs = x_ptr + rows[:, None] * stride_xm + cols[None, :] * stride_xn
    x = tl.load(x_ptrs, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
    grad_x = (grad_y[:, None] * w[None, :]).to(grad_x_ptr.dtype.element_ty)
    tl.store(grad_x_ptr + rows[:, None] * d + cols[None, :], grad_x, mask=mask, cache_modifier=".cs")
    share = tl.sum(grad_y[:, None] * x, axis=0)
    tl.atomic_add(grad_w_ptr + cols, share, mask=cols < d, sem="relaxed")
""",
        ),
    ),
    style(  # as many programs as the GPU holds stride over the tiles of rows, autotuned, with helpers for loads
        "weighted_sum_persistent",
        ("import triton.language as tl\n", "import triton.language as tl\nfrom einops import rearrange\n"),
        ("    x_rows = x.reshape(-1, d)\n", '    x_rows = rearrange(x, "... d -> (...) d")\n'),
        ("    grad_y_rows = grad_y.reshape(-1)\n", '    grad_y_rows = rearrange(grad_y, "... -> (...)")\n'),
        above(
            """\
PROGRAMS_PER_MULTIPROCESSOR = 2
CONFIGS = [
    triton.Config({"ROWS_TILE_SIZE": rows, "D_TILE_SIZE": cols}, num_warps=num_warps)
    for rows, cols, num_warps in [(32, 64, 4), (16, 256, 4), (8, 512, 8), (4, 1024, 8)]
]


def _n_programs(x_rows: torch.Tensor) -> int:
    n_multiprocessors = torch.cuda.get_device_properties(x_rows.device).multi_processor_count
    return min(PROGRAMS_PER_MULTIPROCESSOR * n_multiprocessors, triton.cdiv(len(x_rows), 16))
"""
        ),
        *other_backward(
            """\
    n_programs = _n_programs(x_matrix)
    partials = torch.empty(n_programs, d, dtype=torch.float32, device=x.device)
    _backward_kernel[lambda meta: (n_programs, triton.cdiv(d, meta["D_TILE_SIZE"]))](
        grad_y_rows, x_matrix, weight, grad_x, partials,
        grad_y_rows.stride(0), *x_matrix.stride(), weight.stride(0), *grad_x.stride(), *partials.stride(), n_rows, d,
    )
    grad_weight = partials.sum(0)
""",
            '''\
@triton.jit
def _indices(tile, n, TILE_SIZE: tl.constexpr):
    """The tile's rows or columns, and which of them exist."""
    at = tile.to(tl.int64) * TILE_SIZE + tl.arange(0, TILE_SIZE)
    return at, at < n


@triton.jit
def _load_vector(ptr, stride, at, mask):
    return tl.load(ptr + at * stride, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _load_tile(ptr, stride_r, stride_d, rows, row_mask, cols, col_mask):
    mask = row_mask[:, None] & col_mask[None, :]
    return tl.load(ptr + rows[:, None] * stride_r + cols[None, :] * stride_d, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _store_tile(ptr, stride_r, stride_d, rows, row_mask, cols, col_mask, value):
    mask = row_mask[:, None] & col_mask[None, :]
    tl.store(ptr + rows[:, None] * stride_r + cols[None, :] * stride_d, value.to(ptr.dtype.element_ty), mask=mask)


@triton.autotune(CONFIGS, key=["d"])
@triton.jit
def _backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, grad_x_ptr, partials_ptr,
    stride_gyr, stride_xr, stride_xd, stride_wd, stride_gxr, stride_gxd, stride_pr, stride_pd,
    n_rows, d,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):
    program = tl.program_id(0)
    cols, col_mask = _indices(tl.program_id(1), d, D_TILE_SIZE)
    w = _load_vector(w_ptr, stride_wd, cols, col_mask)
    grad_w = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
    for tile in range(program, tl.cdiv(n_rows, ROWS_TILE_SIZE), tl.num_programs(0)):
        rows, row_mask = _indices(tile, n_rows, ROWS_TILE_SIZE)
        grad_y = _load_vector(grad_y_ptr, stride_gyr, rows, row_mask)
        x = _load_tile(x_ptr, stride_xr, stride_xd, rows, row_mask, cols, col_mask)
        grad_w += tl.sum(grad_y[:, None] * x, axis=0)
        grad_x = grad_y[:, None] * w[None, :]
        _store_tile(grad_x_ptr, stride_gxr, stride_gxd, rows, row_mask, cols, col_mask, grad_x)
    tl.store(partials_ptr + program.to(tl.int64) * stride_pr + cols * stride_pd, grad_w, mask=col_mask)
''',
        ),
    ),
)
