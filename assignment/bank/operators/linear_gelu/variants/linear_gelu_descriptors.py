"""By descriptors that the kernel makes, of copies with aligned rows; weight's tiles are transposed in registers."""

import torch
import triton
import triton.language as tl


def linear_gelu(x, weight, bias, approximate="none"):
    _check(x, weight, bias, approximate)
    (n, k), m = weight.shape, x.shape[:-1].numel()
    y = _rows(x, m, n)
    if m:
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
        x_rows, w_rows = _padded(x.reshape(m, k)), _padded(weight)
        _kernel[(triton.cdiv(m, 64) * triton.cdiv(n, 128),)](
            x_rows, w_rows, bias.contiguous(), y, x_rows.stride(0), w_rows.stride(0), y.stride(0), m, n, k,
            approximate, BM=64, BN=128, BK=32,
        )  # fmt: skip
    return y.reshape(*x.shape[:-1], n)


def _rows(like, n_rows, n_columns):
    """New rows that are a multiple of 16 bytes apart."""
    step = 16 // like.itemsize
    return like.new_empty(n_rows, -(-n_columns // step) * step)[:, :n_columns]


def _padded(x):
    return _rows(x, *x.shape).copy_(x)


def _check(x, weight, bias, approximate):
    if x.ndim < 2 or weight.ndim != 2 or x.shape[-1] != weight.shape[1] or bias.shape != weight.shape[:1]:
        raise ValueError(f"expected (..., m, k), (n, k), (n,), got {x.shape}, {weight.shape}, {bias.shape}")
    if min(*x.shape[-2:], *weight.shape) < 1 or approximate not in ("none", "tanh"):
        raise ValueError(f"expected sizes from 1 and a form, got {x.shape}, {weight.shape}, {approximate!r}")
    if not x.dtype == weight.dtype == bias.dtype or x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"expected one dtype for all, got {x.dtype}, {weight.dtype}, {bias.dtype}")


@triton.jit
def _kernel(
    x_ptr, w_ptr, bias_ptr, y_ptr, ldx, ldw, ldy, m, n, k,
    FORM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    x = tl.make_tensor_descriptor(x_ptr, [m, k], [ldx, 1], [BM, BK])
    w = tl.make_tensor_descriptor(w_ptr, [n, k], [ldw, 1], [BN, BK])
    y = tl.make_tensor_descriptor(y_ptr, [m, n], [ldy, 1], [BM, BN])
    down = tl.cdiv(m, BM)
    row, col = tl.program_id(0) % down * BM, tl.program_id(0) // down * BN
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        total += tl.dot(x.load([row, start]), w.load([col, start]).T)
    cols = col + tl.arange(0, BN)
    z = total + tl.load(bias_ptr + cols, mask=cols < n, other=0.0)[None, :]
    if FORM == "tanh":
        z *= tl.sigmoid(1.5957691216057308 * (z + 0.044715 * z * z * z))
    else:
        z *= 0.5 + 0.5 * tl.erf(z * 0.7071067811865476)
    y.store([row, col], z.to(y.dtype))
