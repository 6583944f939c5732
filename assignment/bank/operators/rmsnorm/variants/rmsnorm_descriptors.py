"""RMSNorm through tensor descriptors made by the wrapper: no pointers, strides or masks in the kernels.

What a descriptor cannot address (rows that do not start at a multiple of 16 bytes, elements apart) is copied into
padded rows first. dw is reduced into memory through its descriptor.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton.tools.tensor_descriptor import TensorDescriptor

ROWS_TILE_SIZE = 16
MAX_D_TILE_SIZE = 256  # the longest side of a box that the hardware copies
ALIGNMENT = 16  # bytes


def rmsnorm_forward(
    x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"], eps: float = 1e-5
) -> tuple[Float[Tensor, "*batch d"], Float32[Tensor, "*batch"]]:
    _check(x, weight)
    d, n_rows = x.shape[-1], x.shape[:-1].numel()
    y = _padded((n_rows, d), x.dtype, x.device)
    rstd = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    if n_rows > 0:
        block = [ROWS_TILE_SIZE, _d_tile_size(d)]
        _forward_kernel[(triton.cdiv(n_rows, ROWS_TILE_SIZE),)](
            _descriptor(x.reshape(n_rows, d), block),
            _descriptor(weight, block[1:]),
            _descriptor(y, block),
            _descriptor(rstd, block[:1]),
            d, eps,
            D_TILE_SIZE=block[1], IS_WHOLE=d <= block[1],
        )  # fmt: skip
    return y.view(x.shape), rstd.view(x.shape[:-1])


def rmsnorm_backward(
    grad_y: Float[Tensor, "*batch d"],
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    rstd: Float32[Tensor, "*batch"],
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    _check(x, weight)
    if grad_y.shape != x.shape or grad_y.dtype != x.dtype or rstd.shape != x.shape[:-1]:
        raise ValueError(
            f"expected grad_y {tuple(x.shape)} {x.dtype} and rstd {tuple(x.shape[:-1])}, "
            f"got {tuple(grad_y.shape)} {grad_y.dtype} and {tuple(rstd.shape)}"
        )
    d, n_rows = x.shape[-1], x.shape[:-1].numel()
    grad_x = _padded((n_rows, d), x.dtype, x.device)
    grad_w = torch.zeros(d, dtype=torch.float32, device=x.device)
    if n_rows > 0:
        block = [ROWS_TILE_SIZE, _d_tile_size(d)]
        _backward_kernel[(triton.cdiv(n_rows, ROWS_TILE_SIZE),)](
            _descriptor(grad_y.reshape(n_rows, d), block),
            _descriptor(x.reshape(n_rows, d), block),
            _descriptor(weight, block[1:]),
            _descriptor(rstd.reshape(n_rows), block[:1]),
            _descriptor(grad_x, block),
            _descriptor(grad_w, block[1:]),
            d,
            D_TILE_SIZE=block[1], IS_WHOLE=d <= block[1],
        )  # fmt: skip
    return grad_x.view(x.shape), grad_w.to(weight.dtype)


def rmsnorm(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"], eps: float = 1e-5) -> Float[Tensor, "*batch d"]:
    return RMSNorm.apply(x, weight, eps)


class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        y, rstd = rmsnorm_forward(x, weight, eps)
        ctx.save_for_backward(x, weight, rstd)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_y):
        grad_x, grad_w = rmsnorm_backward(grad_y, *ctx.saved_tensors)
        return grad_x, grad_w, None


def _check(x: Tensor, weight: Tensor) -> None:
    if x.ndim == 0 or weight.ndim != 1 or len(weight) != x.shape[-1]:
        raise ValueError(f"expected x (..., d) and weight (d,), got {tuple(x.shape)} and {tuple(weight.shape)}")
    if x.dtype != weight.dtype:
        raise ValueError(f"expected x and weight in one dtype, got {x.dtype} and {weight.dtype}")


def _d_tile_size(d: int) -> int:
    return min(max(triton.next_power_of_2(d), 16), MAX_D_TILE_SIZE)


def _padded(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Fresh memory in which every row starts at a multiple of 16 bytes."""
    *outer, d = shape
    per_unit = ALIGNMENT // dtype.itemsize
    return torch.empty((*outer, triton.cdiv(d, per_unit) * per_unit), dtype=dtype, device=device)[..., :d]


def _descriptor(x: Tensor, block: list[int]) -> TensorDescriptor:
    """A descriptor of x, a vector or a matrix, or of a copy of it."""
    is_aligned = x.data_ptr() % ALIGNMENT == 0 and x.stride(-1) == 1
    if x.ndim == 2:
        is_aligned = is_aligned and x.stride(0) >= x.shape[1] and x.stride(0) * x.element_size() % ALIGNMENT == 0
    if not is_aligned:
        x = _padded(tuple(x.shape), x.dtype, x.device).copy_(x)
    return TensorDescriptor(x, list(x.shape), list(x.stride()), block)


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


@triton.jit
def _backward_kernel(
    grad_y_desc, x_desc, w_desc, rstd_desc, grad_x_desc, grad_w_desc,
    d,
    D_TILE_SIZE: tl.constexpr, IS_WHOLE: tl.constexpr,
):  # fmt: skip
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


@triton.jit
def _load(grad_y_desc, x_desc, w_desc, row, col, rstd):
    """grad_y, x̂ and w ∘ grad_y of one tile, in float32."""
    grad_y = grad_y_desc.load([row, col]).to(tl.float32)
    x_hat = x_desc.load([row, col]).to(tl.float32) * rstd
    return grad_y, x_hat, w_desc.load([col]).to(tl.float32)[None, :] * grad_y
