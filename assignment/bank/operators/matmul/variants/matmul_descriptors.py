"""By descriptors that the kernel makes, of copies with aligned rows."""

import torch
import triton
import triton.language as tl


def matmul(a, b):
    _check(a, b)
    (k, n), m = b.shape, a.shape[:-1].numel()
    c = _rows(a, m, n)
    if m:
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
        a_rows, b_rows = _padded(a.reshape(m, k)), _padded(b)
        _kernel[(triton.cdiv(m, 64) * triton.cdiv(n, 128),)](
            a_rows, b_rows, c, a_rows.stride(0), b_rows.stride(0), c.stride(0), m, n, k, BM=64, BN=128, BK=32
        )
    return c.reshape(*a.shape[:-1], n)


def _rows(like, n_rows, n_columns):
    """New rows that are a multiple of 16 bytes apart."""
    step = 16 // like.itemsize
    return like.new_empty(n_rows, -(-n_columns // step) * step)[:, :n_columns]


def _padded(x):
    return _rows(x, *x.shape).copy_(x)


def _check(a, b):
    if a.ndim < 2 or b.ndim != 2 or a.shape[-1] != b.shape[0] or min(*a.shape[-2:], *b.shape) < 1:
        raise ValueError(f"expected (..., m, k) and (k, n), got {tuple(a.shape)} and {tuple(b.shape)}")
    if a.dtype != b.dtype or a.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"expected one dtype for both, got {a.dtype} and {b.dtype}")


@triton.jit
def _kernel(a_ptr, b_ptr, c_ptr, lda, ldb, ldc, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, [m, k], [lda, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, [k, n], [ldb, 1], [BK, BN])
    c = tl.make_tensor_descriptor(c_ptr, [m, n], [ldc, 1], [BM, BN])
    down = tl.cdiv(m, BM)
    row, col = tl.program_id(0) % down * BM, tl.program_id(0) // down * BN
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        total += tl.dot(a.load([row, start]), b.load([start, col]))
    c.store([row, col], total.to(c.dtype))
