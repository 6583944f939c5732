"""Styles of libraries: FlagGems and Liger."""

from assignment.bank.operators.edits import style
from assignment.bank.operators.rmsnorm.styles.parts import (
    FILES,
    FORWARD_PASS,
    PROBLEMS,
    above,
    other_backward,
    other_forward,
)

__all__ = ["FILES", "PROBLEMS", "STYLES"]

STYLES = (
    style(  # as FlagGems' softmax: heuristics choose the tile and whether one holds a row; a wider one is walked twice,
        # whole tiles without a mask, the second time backwards, to find in the cache what was read last
        "rmsnorm_flag_heuristics",
        (
            FORWARD_PASS,
            """\
    if n_rows > 0:
        with torch.cuda.device(x.device):
            _rms_norm_kernel[lambda meta: (triton.cdiv(n_rows, meta["TILE_M"]), 1, 1)](
                y, rstd, x_rows, weight, *x_rows.stride(), *weight.stride(), M=n_rows, N=d, eps=eps
            )
""",
        ),
        (
            "def _forward_kernel",
            '''\
MAX_TILE_N = 8192


def heur_tile_n(args):
    return min(MAX_TILE_N, triton.next_power_of_2(args["N"]))


def heur_tile_m(args):
    return max(1, min(16, 2048 // args["TILE_N"]))


def heur_one_tile_per_cta(args):
    return args["TILE_N"] >= args["N"]


def heur_num_warps(args):
    return 4 if args["TILE_N"] * args["TILE_M"] <= 2048 else 8 if args["TILE_N"] <= 4096 else 16


@triton.jit
def prev_multiple_of(a, b):
    """The largest multiple of b that is less than a."""
    return tl.cdiv(a, b) * b - b


@triton.jit
def _pointers(ptr, rows, cols, stride_m, stride_n):
    return ptr + rows[:, None] * stride_m + cols.to(tl.int64)[None, :] * stride_n


@triton.heuristics({"TILE_N": heur_tile_n})
@triton.heuristics({"TILE_M": heur_tile_m})
@triton.heuristics({"ONE_TILE_PER_CTA": heur_one_tile_per_cta, "num_warps": heur_num_warps})
@triton.jit(do_not_specialize=["eps"])
def _rms_norm_kernel(
    out_ptr, inv_rms_ptr, in_ptr, w_ptr, stride_im, stride_in, stride_w, M, N, eps,
    TILE_N: tl.constexpr, TILE_M: tl.constexpr, ONE_TILE_PER_CTA: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * TILE_M + tl.arange(0, TILE_M)
    row_mask = rows < M
    if ONE_TILE_PER_CTA:
        cols = tl.arange(0, TILE_N)
        mask = row_mask[:, None] & (cols < N)[None, :]
        x = tl.load(_pointers(in_ptr, rows, cols, stride_im, stride_in), mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols.to(tl.int64) * stride_w, mask=cols < N).to(tl.float32)
        rstd = tl.rsqrt(tl.sum(x * x, axis=1) / N + eps)
        out = (x * rstd[:, None] * w[None, :]).to(out_ptr.dtype.element_ty)
        tl.store(_pointers(out_ptr, rows, cols, N, 1), out, mask=mask)
    else:
        squares = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
        previous_multiple = prev_multiple_of(N, TILE_N)
        for start in range(0, previous_multiple, TILE_N):
            ptrs = _pointers(in_ptr, rows, start + tl.arange(0, TILE_N), stride_im, stride_in)
            x = tl.load(ptrs, mask=row_mask[:, None], other=0.0).to(tl.float32)
            squares += x * x
        for start in range(previous_multiple, N, TILE_N):
            cols = start + tl.arange(0, TILE_N)
            ptrs = _pointers(in_ptr, rows, cols, stride_im, stride_in)
            x = tl.load(ptrs, mask=row_mask[:, None] & (cols < N)[None, :], other=0.0).to(tl.float32)
            squares += x * x
        rstd = tl.rsqrt(tl.sum(squares, axis=1) / N + eps)
        for start in range(0, N, TILE_N):
            cols = previous_multiple - start + tl.arange(0, TILE_N)
            mask = row_mask[:, None] & (cols < N)[None, :]
            ptrs = _pointers(in_ptr, rows, cols, stride_im, stride_in)
            x = tl.load(ptrs, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
            w = tl.load(w_ptr + cols.to(tl.int64) * stride_w, mask=cols < N, other=0.0).to(tl.float32)
            out = (x * rstd[:, None] * w[None, :]).to(out_ptr.dtype.element_ty)
            tl.store(_pointers(out_ptr, rows, cols, N, 1), out, mask=mask)
    tl.store(inv_rms_ptr + rows, rstd, mask=row_mask)
''',
        ),
    ),
    style(  # as Liger: contiguous inputs by a decorator, casting modes as constants, a row mode for wide rows and a
        # block of rows a program for narrow ones; backward one program a multiprocessor, each with a partial gradient
        "rmsnorm_liger",
        ("import torch\n", "import functools\n\nimport torch\n"),
        above(
            '''
MAX_FUSED_SIZE = 65536
BLOCK_ROW = 16
_CASTING_MODE_NONE = tl.constexpr(-1)
_CASTING_MODE_LLAMA = tl.constexpr(0)
_CASTING_MODE_GEMMA = tl.constexpr(1)
CASTING_MODES = {
    "none": _CASTING_MODE_NONE.value,
    "llama": _CASTING_MODE_LLAMA.value,
    "gemma": _CASTING_MODE_GEMMA.value,
}
TRITON_DTYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


def ensure_contiguous(function):
    """Call it with contiguous tensors."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*(x.contiguous() if isinstance(x, torch.Tensor) else x for x in args), **kwargs)

    return wrapper


def calculate_settings(n: int) -> tuple[int, int]:
    """The block for n columns, and its warps."""
    block_size = triton.next_power_of_2(n)
    if block_size > MAX_FUSED_SIZE:
        raise RuntimeError(f"expected at most {MAX_FUSED_SIZE} columns, got {n}")
    return block_size, next((w for size, w in ((32768, 32), (8192, 16), (2048, 8)) if block_size >= size), 4)
'''
        ),
        ("def rmsnorm_forward(", "@ensure_contiguous\ndef rmsnorm_forward("),
        ("def rmsnorm_backward(", "@ensure_contiguous\ndef rmsnorm_backward("),
        *other_forward(
            """\
        block_size, num_warps = calculate_settings(d)
        row_mode = block_size > 256 or n_rows < 8 * BLOCK_ROW
        kernel = _row_forward_kernel if row_mode else _block_forward_kernel
        sizes = (d, eps) if row_mode else (n_rows, d, eps)
        block = {} if row_mode else {"BLOCK_ROW": BLOCK_ROW}
        kernel[(n_rows if row_mode else triton.cdiv(n_rows, BLOCK_ROW),)](
            y, y.stride(0), x_rows, x_rows.stride(0), weight, rstd, *sizes,
            casting_mode=CASTING_MODES["gemma"], BLOCK_SIZE=block_size, num_warps=num_warps, **block,
        )
""",
            """\
@triton.jit
def _row_forward_kernel(
    Y_ptr, Y_row_stride, X_ptr, X_row_stride, W_ptr, RSTD_ptr, n_cols, eps,
    casting_mode: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    X_row = tl.load(X_ptr + row_idx * X_row_stride + col_offsets, mask=mask, other=0)
    X_row_dtype = X_row.dtype
    W_row = tl.load(W_ptr + col_offsets, mask=mask, other=0)
    if casting_mode == _CASTING_MODE_LLAMA:
        X_row = X_row.to(tl.float32)
    if casting_mode == _CASTING_MODE_GEMMA:
        W_row = W_row.to(tl.float32)
        X_row = X_row.to(tl.float32)
    if casting_mode == _CASTING_MODE_NONE:
        eps = eps.to(X_row_dtype)
    rstd = tl.rsqrt(tl.sum(X_row * X_row, axis=0) / n_cols + eps)
    tl.store(RSTD_ptr + row_idx, rstd)
    X_row = X_row * rstd
    if casting_mode == _CASTING_MODE_LLAMA:
        X_row = X_row.to(X_row_dtype)
    Y_row = X_row * W_row
    if casting_mode == _CASTING_MODE_GEMMA:
        Y_row = Y_row.to(X_row_dtype)
    tl.store(Y_ptr + row_idx * Y_row_stride + col_offsets, Y_row, mask=mask)


@triton.jit
def _block_forward_kernel(
    Y_ptr, Y_row_stride, X_ptr, X_row_stride, W_ptr, RSTD_ptr, n_rows, n_cols, eps,
    casting_mode: tl.constexpr, BLOCK_SIZE: tl.constexpr, BLOCK_ROW: tl.constexpr,
):
    tl.static_assert(casting_mode == _CASTING_MODE_GEMMA, "blocks of rows are computed in float32")
    row_idx = tl.program_id(0).to(tl.int64) * BLOCK_ROW + tl.arange(0, BLOCK_ROW)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    row_mask, col_mask = row_idx < n_rows, col_offsets < n_cols
    mask = row_mask[:, None] & col_mask[None, :]
    X_block = tl.load(X_ptr + row_idx[:, None] * X_row_stride + col_offsets[None, :], mask=mask, other=0)
    W_row = tl.load(W_ptr + col_offsets, mask=col_mask, other=0).to(tl.float32)
    X_wide = X_block.to(tl.float32)
    rstd = tl.rsqrt(tl.sum(X_wide * X_wide, axis=1) / n_cols + eps)
    tl.store(RSTD_ptr + row_idx, rstd, row_mask)
    Y_block = (X_wide * rstd[:, None] * W_row[None, :]).to(X_block.dtype)
    tl.store(Y_ptr + row_idx[:, None] * Y_row_stride + col_offsets[None, :], Y_block, mask=mask)
""",
        ),
        *other_backward(
            """\
    block_size, num_warps = calculate_settings(d)
    sm_count = torch.cuda.get_device_properties(x.device).multi_processor_count
    partial = torch.empty((sm_count, d), dtype=torch.float32, device=x.device)
    _backward_kernel[(sm_count,)](
        grad_y, x, weight, rstd, grad_x, partial, partial.stride(0), n_rows, d, triton.cdiv(n_rows, sm_count),
        X_DTYPE=TRITON_DTYPES[x.dtype], casting_mode=CASTING_MODES["gemma"],
        BLOCK_SIZE=block_size, num_warps=num_warps,
    )
    grad_weight = partial.sum(dim=0)
""",
            '''\
@triton.jit
def _backward_kernel(
    dY_ptr, X_ptr, W_ptr, RSTD_ptr, dX_ptr, dW_ptr, dW_row_stride,
    n_rows, n_cols, rows_per_program,
    X_DTYPE: tl.constexpr, casting_mode: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):
    """Rows in a row for each program, perhaps none; dW (programs, n_cols) in float32."""
    row_block_id = tl.program_id(0).to(tl.int64)
    row_start = row_block_id * rows_per_program
    row_end = min((row_block_id + 1) * rows_per_program, n_rows)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    dW_row = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    dY_ptr += row_start * n_cols
    X_ptr += row_start * n_cols
    dX_ptr += row_start * n_cols
    RSTD_ptr += row_start
    W_row = tl.load(W_ptr + col_offsets, mask=mask, other=0.0).to(tl.float32)
    for _ in range(row_start, row_end):
        dY_row = tl.load(dY_ptr + col_offsets, mask=mask, other=0.0)
        X_row = tl.load(X_ptr + col_offsets, mask=mask, other=0.0).to(tl.float32)
        rstd_row = tl.load(RSTD_ptr)
        if casting_mode == _CASTING_MODE_LLAMA:
            m = (dY_row * W_row.to(X_DTYPE)).to(tl.float32)
            dW_row += dY_row * (X_row * rstd_row).to(X_DTYPE)
        else:
            m = dY_row.to(tl.float32) * W_row
            dW_row += dY_row.to(tl.float32) * (X_row * rstd_row)
        dX_row = rstd_row * m
        dX_row += rstd_row * (-(1 / n_cols) * rstd_row * rstd_row * tl.sum(m * X_row, axis=0) * X_row)
        tl.store(dX_ptr + col_offsets, dX_row.to(X_DTYPE), mask=mask)
        dY_ptr += n_cols
        X_ptr += n_cols
        dX_ptr += n_cols
        RSTD_ptr += 1
    tl.store(dW_ptr + row_block_id * dW_row_stride + col_offsets, dW_row, mask=mask)
''',
        ),
    ),
)
