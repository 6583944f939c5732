"""Styles of sums: by a scan, and in two stages of pairs."""

from assignment.bank.operators.edits import style
from assignment.bank.operators.weighted_sum.styles.parts import (
    FILES,
    PROBLEMS,
    above,
    other_backward,
    other_forward,
)

__all__ = ["FILES", "PROBLEMS", "STYLES"]

STYLES = (
    style(  # a scan along each row, whose last element is the sum, with a carry from block to block; backward, down the
        # rows; 16-bit inputs are loaded as bits through a pointer of another type, and bfloat16 is widened by a shift
        "weighted_sum_scan",
        above("BLOCK_L, BLOCK_R = 64, 32  # along the scan, and across it\n"),
        *other_forward(
            """\
        _forward_scan_kernel[(triton.cdiv(n_rows, BLOCK_R),)](
            x_rows, weight, y, *x_rows.stride(), *weight.stride(), n_rows, d, BLOCK_R=BLOCK_R, BLOCK_L=BLOCK_L
        )
""",
            '''\
@triton.jit
def _load_bits(ptr, offsets, mask):
    """Elements in float32; zeros where masked."""
    dtype: tl.constexpr = ptr.dtype.element_ty
    if dtype == tl.float32:
        x = tl.load(ptr + offsets, mask=mask, other=0.0)
    else:
        bits = tl.load(ptr.to(tl.pointer_type(tl.uint16), bitcast=True) + offsets, mask=mask, other=0)
        if dtype == tl.bfloat16:
            x = (bits.to(tl.uint32) << 16).to(tl.float32, bitcast=True)
        else:
            x = bits.to(tl.float16, bitcast=True).to(tl.float32)
    return x


@triton.jit
def _step(decay_a, state_a, decay_b, state_b):
    """Two steps of state ← decay · state + input as one."""
    return decay_a * decay_b, state_a * decay_b + state_b


@triton.jit
def _forward_scan_kernel(
    x_ptr, w_ptr, y_ptr, stride_xr, stride_xd, stride_wd, n_rows, d, BLOCK_R: tl.constexpr, BLOCK_L: tl.constexpr
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R))[:, None]
    carry = tl.zeros((BLOCK_R,), dtype=tl.float32)
    for start in range(0, d, BLOCK_L):
        cols = (start + tl.arange(0, BLOCK_L).to(tl.int64))[None, :]
        x = _load_bits(x_ptr, rows * stride_xr + cols * stride_xd, (rows < n_rows) & (cols < d))
        terms = x * _load_bits(w_ptr, cols * stride_wd, cols < d)
        decays = tl.full((BLOCK_R, BLOCK_L), 1.0, dtype=tl.float32)
        _, states = tl.associative_scan((decays, terms), 1, _step)
        states += carry[:, None]
        y = states.to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + rows + tl.zeros_like(cols), y, mask=(rows < n_rows) & (cols == d - 1))
        carry = tl.sum(tl.where(cols == start + BLOCK_L - 1, states, 0.0), axis=1)
''',
        ),
        *other_backward(
            """\
    grad_weight = torch.zeros(d, dtype=weight.dtype, device=x.device)
    _backward_scan_kernel[(triton.cdiv(d, BLOCK_R),)](
        grad_y_rows, x_matrix, weight, grad_x, grad_weight,
        *grad_y_rows.stride(), *x_matrix.stride(), *weight.stride(), n_rows, d, BLOCK_R=BLOCK_R, BLOCK_L=BLOCK_L,
    )
""",
            """\
@triton.jit
def _backward_scan_kernel(
    grad_y_ptr, x_ptr, w_ptr, grad_x_ptr, grad_w_ptr,
    stride_gyr, stride_xr, stride_xd, stride_wd, n_rows, d, BLOCK_R: tl.constexpr, BLOCK_L: tl.constexpr,
):
    # A block of columns, down all rows
    cols = (tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R))[None, :]
    w = _load_bits(w_ptr, cols * stride_wd, cols < d)
    carry = tl.zeros((BLOCK_R,), dtype=tl.float32)
    for start in range(0, n_rows, BLOCK_L):
        rows = (start + tl.arange(0, BLOCK_L).to(tl.int64))[:, None]
        mask = (rows < n_rows) & (cols < d)
        grad_y = _load_bits(grad_y_ptr, rows * stride_gyr, rows < n_rows)
        tl.store(grad_x_ptr + rows * d + cols, (grad_y * w).to(grad_x_ptr.dtype.element_ty), mask=mask)
        terms = grad_y * _load_bits(x_ptr, rows * stride_xr + cols * stride_xd, mask)
        states = tl.cumsum(terms, axis=0) + carry[None, :]
        last = (rows == n_rows - 1) & (cols < d)
        tl.store(grad_w_ptr + cols + tl.zeros_like(rows), states.to(grad_w_ptr.dtype.element_ty), mask=last)
        carry = tl.sum(tl.where(rows == start + BLOCK_L - 1, states, 0.0), axis=0)
""",
        ),
    ),
    style(  # every partial sum is a pair, what rounding took from the first kept in the second (Knuth's TwoSum); they
        # are merged by tl.reduce with a combine function, in two stages, as a split reduction does it
        "weighted_sum_two_stage",
        above(
            '''\
BLOCK, ROWS, MAX_SPLITS = 128, 8, 16


def _split(n: int) -> tuple[int, int]:
    """How long the chunks are, in elements, and how many: whole blocks, at most MAX_SPLITS chunks."""
    chunk = triton.cdiv(triton.cdiv(n, MAX_SPLITS), BLOCK) * BLOCK
    return chunk, triton.cdiv(n, chunk)
'''
        ),
        *other_backward(
            """\
    chunk, n_splits = _split(n_rows)
    middle = torch.empty((2, n_splits, d), dtype=torch.float32, device=x.device)
    _column_stage_1[triton.cdiv(d, BLOCK), n_splits](
        grad_y_rows, x_matrix, weight, grad_x, middle,
        *grad_y_rows.stride(), *x_matrix.stride(), *weight.stride(), n_rows, d, chunk, ROWS=ROWS, BLOCK=BLOCK,
    )
    grad_weight = torch.empty(d, dtype=weight.dtype, device=x.device)
    _stage_2[(triton.cdiv(d, BLOCK),)](
        middle, grad_weight, d, n_splits, BLOCK=BLOCK, SPLITS=triton.next_power_of_2(n_splits)
    )
""",
            '''\
@triton.jit
def _merge(a_high, a_low, b_high, b_low):
    """The sum of two pairs, exact but for the low parts."""
    high = a_high + b_high
    b = high - a_high
    error = (a_high - (high - b)) + (b_high - b)
    return high, error + (a_low + b_low)


@triton.jit
def _total(terms, axis: tl.constexpr):
    return tl.reduce((terms, tl.zeros_like(terms)), axis, _merge)


@triton.jit
def _column_stage_1(
    grad_y_ptr, x_ptr, w_ptr, grad_x_ptr, middle_ptr,
    stride_gyr, stride_xr, stride_xd, stride_wd, n_rows, d, chunk,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """Grid (column tiles, splits): the pair of each column over one chunk of rows; middle (2, splits, d)."""
    cols = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    split = tl.program_id(1).to(tl.int64)
    w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0).to(tl.float32)
    high, low = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(split * chunk, tl.minimum((split + 1) * chunk, n_rows), ROWS):
        rows = start + tl.arange(0, ROWS)
        mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
        x = tl.load(x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask=mask, other=0.0)
        grad_y = tl.load(grad_y_ptr + rows * stride_gyr, mask=rows < n_rows, other=0.0).to(tl.float32)
        tl.store(grad_x_ptr + rows[:, None] * d + cols[None, :], grad_y[:, None] * w[None, :], mask=mask)
        block_high, block_low = _total(grad_y[:, None] * x.to(tl.float32), 0)
        high, low = _merge(high, low, block_high, block_low)
    middle_ptr += split * d
    tl.store(middle_ptr + cols, high, mask=cols < d)
    tl.store(middle_ptr + tl.num_programs(1).to(tl.int64) * d + cols, low, mask=cols < d)


@triton.jit
def _stage_2(middle_ptr, out_ptr, n, n_splits, BLOCK: tl.constexpr, SPLITS: tl.constexpr):
    """The splits' pairs added up: middle (2, splits, n), out (n,)."""
    cols = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    splits = tl.arange(0, SPLITS).to(tl.int64)
    mask = (splits < n_splits)[:, None] & (cols < n)[None, :]
    ptrs = middle_ptr + splits[:, None] * n + cols[None, :]
    highs = tl.load(ptrs, mask=mask, other=0.0)
    lows = tl.load(ptrs + tl.cast(n_splits, tl.int64) * n, mask=mask, other=0.0)
    high, low = tl.reduce((highs, lows), 0, _merge)
    tl.store(out_ptr + cols, (high + low).to(out_ptr.dtype.element_ty), mask=cols < n)
''',
        ),
    ),
)
