"""Styles of kernels for wide rows, which go chunk by chunk."""

from assignment.bank.operators.edits import style
from assignment.bank.operators.rmsnorm.styles.parts import (
    FILES,
    PROBLEMS,
    above,
    other_backward,
    other_forward,
)

__all__ = ["FILES", "PROBLEMS", "STYLES"]

STYLES = (
    style(  # at most 256 programs stride over the rows and keep their share of dw; rows wider than a tile go chunk by
        # chunk: dw of one chunk at a time, after a first pass for the rows' means; a last kernel adds up the shares
        "rmsnorm_persistent",
        above(
            """
MAX_PROGRAMS, WIDEST = 256, 2048


def _sizes(d):
    d_tile_size = min(triton.next_power_of_2(d), WIDEST)
    return {"ROWS_TILE_SIZE": min(32, WIDEST // d_tile_size), "D_TILE_SIZE": d_tile_size}


def _grid(n_rows, sizes):
    return (min(MAX_PROGRAMS, triton.cdiv(n_rows, sizes["ROWS_TILE_SIZE"])),)
"""
        ),
        *other_backward(
            """\
    sizes, grad_weight = _sizes(d), torch.zeros_like(weight)
    grid = _grid(n_rows, sizes)
    shares = x.new_empty(grid[0], d, dtype=torch.float32)
    strides = (*grad_y_rows.stride(), *x_matrix.stride(), *weight.stride(), *rstd_rows.stride())
    tensors = grad_y_rows, x_matrix, weight, rstd_rows, grad_x, shares
    if d <= WIDEST:
        _backward_kernel[grid](*tensors, *strides, n_rows, d, **sizes)
    else:
        means = x.new_empty(n_rows, dtype=torch.float32)
        _wide_backward_kernel[grid](*tensors, means, *strides, n_rows, d, D_TILE_SIZE=WIDEST)
    _add_shares_kernel[(triton.cdiv(d, 128),)](shares, grad_weight, grad_weight.stride(0), grid[0], d, 32, 128)
""",
            '''\
@triton.jit
def _backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, rstd_ptr, grad_x_ptr, shares_ptr,
    stride_gyr, stride_gyd, stride_xr, stride_xd, stride_wd, stride_rstdr,
    n_rows, d,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):
    program = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)
    w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0).to(tl.float32)
    grad_w = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
    for start in tl.range(program * ROWS_TILE_SIZE, n_rows, tl.num_programs(0) * ROWS_TILE_SIZE):
        rows = start + tl.arange(0, ROWS_TILE_SIZE)
        mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
        grad_y_ptrs = grad_y_ptr + rows[:, None] * stride_gyr + cols[None, :] * stride_gyd
        x_ptrs = x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd
        grad_y = tl.load(grad_y_ptrs, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows * stride_rstdr, mask=rows < n_rows, other=0.0)[:, None]
        x_hat = tl.load(x_ptrs, mask=mask, other=0.0).to(tl.float32) * rstd
        grad_w += tl.sum(grad_y * x_hat, axis=0)
        mean = tl.sum(grad_y * w * x_hat, axis=1, keep_dims=True) / d
        grad_x = rstd * (grad_y * w - x_hat * mean)
        tl.store(grad_x_ptr + rows[:, None] * d + cols[None, :], grad_x, mask=mask)
    tl.store(shares_ptr + program * d + cols, grad_w, mask=cols < d)


@triton.jit
def _wide_backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, rstd_ptr, grad_x_ptr, shares_ptr, means_ptr,
    stride_gyr, stride_gyd, stride_xr, stride_xd, stride_wd, stride_rstdr,
    n_rows, d,
    D_TILE_SIZE: tl.constexpr,
):
    """A row at a time; means (n_rows,) is scratch, each program using only its own rows of it."""
    program = tl.program_id(0).to(tl.int64)
    for row in tl.range(program, n_rows, tl.num_programs(0)):
        sums = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
        for first in tl.range(0, d, D_TILE_SIZE):
            cols = first + tl.arange(0, D_TILE_SIZE).to(tl.int64)
            grad_y = tl.load(grad_y_ptr + row * stride_gyr + cols * stride_gyd, mask=cols < d, other=0.0)
            x = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=cols < d, other=0.0)
            w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0)
            sums += grad_y.to(tl.float32) * w.to(tl.float32) * x.to(tl.float32)
        tl.store(means_ptr + row, tl.sum(sums, axis=0) * tl.load(rstd_ptr + row * stride_rstdr) / d)
    tl.debug_barrier()  # all threads of the program see the means
    for first in tl.range(0, d, D_TILE_SIZE):
        cols = first + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0).to(tl.float32)
        grad_w = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
        for row in tl.range(program, n_rows, tl.num_programs(0)):
            grad_y = tl.load(grad_y_ptr + row * stride_gyr + cols * stride_gyd, mask=cols < d, other=0.0)
            rstd = tl.load(rstd_ptr + row * stride_rstdr)
            x_hat = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=cols < d, other=0.0).to(tl.float32) * rstd
            grad_w += grad_y.to(tl.float32) * x_hat
            grad_x = rstd * (grad_y.to(tl.float32) * w - x_hat * tl.load(means_ptr + row))
            tl.store(grad_x_ptr + row * d + cols, grad_x, mask=cols < d)
        tl.store(shares_ptr + program * d + cols, grad_w, mask=cols < d)


@triton.jit
def _add_shares_kernel(
    shares_ptr, grad_w_ptr, stride_gw, n_shares, d, SHARES_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr
):
    cols = tl.program_id(0).to(tl.int64) * D_TILE_SIZE + tl.arange(0, D_TILE_SIZE)
    total = tl.zeros((SHARES_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    for start in tl.range(0, n_shares, SHARES_TILE_SIZE):
        shares = start + tl.arange(0, SHARES_TILE_SIZE).to(tl.int64)
        mask = (shares < n_shares)[:, None] & (cols < d)[None, :]
        total += tl.load(shares_ptr + shares[:, None] * d + cols[None, :], mask=mask, other=0.0)
    tl.store(grad_w_ptr + cols * stride_gw, tl.sum(total, axis=0), mask=cols < d)
''',
        ),
    ),
    style(  # descriptors made by the wrapper: no pointers, strides or masks in the kernels; what they cannot address is
        # copied into padded rows first, and dw is reduced into memory through its descriptor
        "rmsnorm_descriptors",
        (
            "import triton.language as tl\n",
            "import triton.language as tl\nfrom triton.tools.tensor_descriptor import TensorDescriptor\n",
        ),
        ("MAX_D_TILE_SIZE = 16384", "MAX_D_TILE_SIZE = 256  # the longest side of a box that the hardware copies"),
        above(
            '''
ROWS_TILE_SIZE = 16
ALIGNMENT = 16  # bytes


def _block(d):
    return [ROWS_TILE_SIZE, min(max(triton.next_power_of_2(d), 16), MAX_D_TILE_SIZE)]


def _padded(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Fresh memory in which every row starts at a multiple of 16 bytes."""
    *outer, d = shape
    per_unit = ALIGNMENT // dtype.itemsize
    return torch.empty((*outer, triton.cdiv(d, per_unit) * per_unit), dtype=dtype, device=device)[..., :d]


def _descriptor(x: torch.Tensor, block: list[int]) -> TensorDescriptor:
    """A descriptor of x, a vector or a matrix, or of a copy of it."""
    is_aligned = x.data_ptr() % ALIGNMENT == 0 and x.stride(-1) == 1
    if x.ndim == 2:
        is_aligned = is_aligned and x.stride(0) >= x.shape[1] and x.stride(0) * x.element_size() % ALIGNMENT == 0
    if not is_aligned:
        x = _padded(tuple(x.shape), x.dtype, x.device).copy_(x)
    return TensorDescriptor(x, list(x.shape), list(x.stride()), block)
'''
        ),
        (
            "    y = torch.empty((n_rows, d), dtype=x.dtype, device=x.device)\n",
            "    y = _padded((n_rows, d), x.dtype, x.device)\n",
        ),
        (
            "    grad_x = torch.empty((n_rows, d), dtype=x.dtype, device=x.device)\n",
            "    grad_x = _padded((n_rows, d), x.dtype, x.device)\n",
        ),
        *other_forward(
            """\
        block = _block(d)
        _forward_kernel[(triton.cdiv(n_rows, ROWS_TILE_SIZE),)](
            _descriptor(x_rows, block), _descriptor(weight, block[1:]), _descriptor(y, block),
            _descriptor(rstd, block[:1]), d, eps, D_TILE_SIZE=block[1], IS_WHOLE=d <= block[1],
        )
""",
            '''\
@triton.jit
def _forward_kernel(x_desc, w_desc, y_desc, rstd_desc, d, eps, D_TILE_SIZE: tl.constexpr, IS_WHOLE: tl.constexpr):
    """One program a tile of rows. What lies outside of a tensor is read as 0 and not written."""
    row = tl.program_id(0) * y_desc.block_shape[0]
    x = x_desc.load([row, 0]).to(tl.float32)
    squares = tl.sum(x * x, axis=1)
    for col in range(D_TILE_SIZE, d, D_TILE_SIZE):
        x_ = x_desc.load([row, col]).to(tl.float32)
        squares += tl.sum(x_ * x_, axis=1)
    rstd = 1.0 / tl.sqrt(squares / d + eps)
    rstd_desc.store([row], rstd)
    if IS_WHOLE:
        w = w_desc.load([0]).to(tl.float32)
        y_desc.store([row, 0], (x * rstd[:, None] * w[None, :]).to(y_desc.dtype))
    else:
        for col in range(0, d, D_TILE_SIZE):
            x_ = x_desc.load([row, col]).to(tl.float32)
            w = w_desc.load([col]).to(tl.float32)
            y_desc.store([row, col], (x_ * rstd[:, None] * w[None, :]).to(y_desc.dtype))
''',
        ),
        *other_backward(
            """\
    block, grad_weight = _block(d), torch.zeros(d, dtype=torch.float32, device=x.device)
    _backward_kernel[(triton.cdiv(n_rows, ROWS_TILE_SIZE),)](
        _descriptor(grad_y_rows, block), _descriptor(x_matrix, block), _descriptor(weight, block[1:]),
        _descriptor(rstd_rows, block[:1]), _descriptor(grad_x, block), _descriptor(grad_weight, block[1:]),
        d, D_TILE_SIZE=block[1], IS_WHOLE=d <= block[1],
    )
""",
            '''\
@triton.jit
def _load(grad_y_desc, x_desc, w_desc, row, col, rstd):
    """grad_y, x̂ and w ∘ grad_y of one tile, in float32."""
    grad_y = grad_y_desc.load([row, col]).to(tl.float32)
    x_hat = x_desc.load([row, col]).to(tl.float32) * rstd
    return grad_y, x_hat, w_desc.load([col]).to(tl.float32)[None, :] * grad_y


@triton.jit
def _backward_kernel(
    grad_y_desc, x_desc, w_desc, rstd_desc, grad_x_desc, grad_w_desc,
    d,
    D_TILE_SIZE: tl.constexpr, IS_WHOLE: tl.constexpr,
):
    """One program a tile of rows, which adds its part to grad_w."""
    row = tl.program_id(0) * grad_x_desc.block_shape[0]
    rstd = rstd_desc.load([row])[:, None]  # 0 past the last row, so that x̂ is 0 there
    grad_y, x_hat, w_grad_y = _load(grad_y_desc, x_desc, w_desc, row, 0, rstd)
    sums = tl.sum(w_grad_y * x_hat, axis=1)
    for col in range(D_TILE_SIZE, d, D_TILE_SIZE):
        _, next_x_hat, next_w_grad_y = _load(grad_y_desc, x_desc, w_desc, row, col, rstd)
        sums += tl.sum(next_w_grad_y * next_x_hat, axis=1)
    mean = (sums / d)[:, None]
    if IS_WHOLE:
        grad_x_desc.store([row, 0], (rstd * (w_grad_y - x_hat * mean)).to(grad_x_desc.dtype))
        grad_w_desc.atomic_add([0], tl.sum(grad_y * x_hat, axis=0))
    else:
        for col in range(0, d, D_TILE_SIZE):
            grad_y, x_hat, w_grad_y = _load(grad_y_desc, x_desc, w_desc, row, col, rstd)
            grad_x_desc.store([row, col], (rstd * (w_grad_y - x_hat * mean)).to(grad_x_desc.dtype))
            grad_w_desc.atomic_add([col], tl.sum(grad_y * x_hat, axis=0))
''',
        ),
    ),
)
