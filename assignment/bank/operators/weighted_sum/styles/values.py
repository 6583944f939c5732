"""Styles of what kernels are given: enumerations, numbers of NumPy's, Triton's names without a prefix."""

from assignment.bank.operators.edits import style
from assignment.bank.operators.weighted_sum.styles.parts import (
    BACKWARD,
    BACKWARD_TILES,
    FILES,
    FORWARD_PASS,
    FORWARD_TILES,
    GRID,
    KERNELS,
    PROBLEMS,
    above,
)

__all__ = ["FILES", "PROBLEMS", "STYLES"]

STYLES = (
    style(  # a NamedTuple and enumerations configure, the module's constants are tl.constexpr, and there is `:=`
        "weighted_sum_namedtuple_enum",
        ("import torch\n", "import enum\nfrom typing import NamedTuple\n\nimport torch\n"),
        above(
            '''
ZERO: tl.constexpr = tl.constexpr(0.0)
COLS = tl.constexpr(64)


class Side(enum.IntEnum):
    """What a kernel makes: also told to it."""

    FORWARD = 0
    BACKWARD = 1


class Order(enum.StrEnum):
    """In which order programs take the tiles."""

    UP = "up"
    DOWN = "down"


class Config(NamedTuple):
    """How a kernel is launched."""

    ROWS: int = 32
    SIDE: int = Side.FORWARD.value
    ORDER: str = Order.UP.value
    num_warps: int = 4
'''
        ),
        (
            FORWARD_PASS,
            """\
    config = Config(ORDER=(Order.DOWN if n_rows > 64 else Order.UP).value)
    if (n_tiles := triton.cdiv(n_rows, config.ROWS)) > 0:
        _kernel[(n_tiles,)](
            y, x_rows, weight, None, None, *(0, *x_rows.stride(), *weight.stride()), n_rows, d, **config._asdict()
        )
""",
        ),
        (
            "    n_tiles = triton.cdiv(n_rows, ROWS_TILE_SIZE)\n",
            """\
    config = Config(SIDE=Side.BACKWARD.value)._replace(ROWS=64)
    n_tiles = triton.cdiv(n_rows, config.ROWS)
    strides = (stride for tensor in (grad_y_rows, x_matrix, weight) for stride in tensor.stride())
""",
        ),
        (
            BACKWARD,
            """\
        _kernel[(n_tiles,)](
            grad_y_rows, x_matrix, weight, grad_x, partial_grad_w, *strides, n_rows, d, **config._asdict()
        )
""",
        ),
        (
            KERNELS,
            '''\
@triton.jit
def _kernel(
    y_ptr, x_ptr, w_ptr, grad_x_ptr, parts_ptr,
    stride_yr, stride_xr, stride_xd, stride_wd,
    n_rows, d,
    ROWS: tl.constexpr, SIDE: tl.constexpr, ORDER: tl.constexpr,
):  # fmt: skip
    """y_ptr is y in the forward pass, and its gradient in the backward pass."""
    tile = tl.program_id(0).to(tl.int64)
    if ORDER == "down":
        tile = tl.num_programs(0) - 1 - tile
    rows = tile * ROWS + tl.arange(0, ROWS)
    total = tl.full((ROWS,), ZERO, dtype=tl.float32)
    for start in range(0, d, COLS):
        cols = start + tl.arange(0, COLS).to(tl.int64)
        mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
        x = tl.load(x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask=mask, other=ZERO).to(tl.float32)
        w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=ZERO).to(tl.float32)
        if SIDE == 0:
            total += tl.sum(x * w[None, :], axis=1)
        else:
            grad_y = tl.load(y_ptr + rows * stride_yr, mask=rows < n_rows, other=ZERO).to(tl.float32)
            grad_x = (grad_y[:, None] * w[None, :]).to(grad_x_ptr.dtype.element_ty)
            tl.store(grad_x_ptr + rows[:, None] * d + cols[None, :], grad_x, mask=mask)
            tl.store(parts_ptr + tile * d + cols, tl.sum(grad_y[:, None] * x, axis=0), mask=cols < d)
    if SIDE == 0:
        tl.store(y_ptr + rows, total.to(y_ptr.dtype.element_ty), mask=rows < n_rows)
''',
        ),
    ),
    style(  # NumPy plans: sizes and tiles are its integers, a factor is its float64
        "weighted_sum_numpy_scalars",
        ("import torch\n", "import numpy as np\nimport torch\n"),
        above(
            '''
SCALE = np.sqrt(np.float64(4.0)) / 2


def _plan(x):
    """Return the numbers of rows and of columns, and the rows of a tile."""
    sizes = np.array([np.prod(x.shape[:-1], dtype=np.int64), x.shape[-1]])
    return sizes, int(np.clip(2 ** np.ceil(np.log2(max(sizes[0], 1))), 16, 64))
'''
        ),
        (
            "    x_rows = x.reshape(-1, d)\n    n_rows = x_rows.shape[0]\n",
            "    (n_rows, d), rows = _plan(x)\n    x_rows = x.reshape(n_rows, d)\n",
        ),
        (GRID, "grid = (np.ceil(n_rows / rows).astype(int),)"),
        (
            f"n_rows, d,\n            {FORWARD_TILES}",
            f"int(n_rows), int(d), SCALE,\n            {FORWARD_TILES}".replace("=ROWS_TILE_SIZE", "=rows"),
        ),
        (
            "    n_rows = x_matrix.shape[0]\n    n_tiles = triton.cdiv(n_rows, ROWS_TILE_SIZE)\n",
            "    (n_rows, d), rows = _plan(x)\n    n_tiles = -(-n_rows // rows)\n",
        ),
        (
            f"n_rows, d,\n            {BACKWARD_TILES}",
            f"n_rows.item(), d.item(),\n            {BACKWARD_TILES}".replace("=ROWS_TILE_SIZE", "=rows"),
        ),
        ("stride_yr,\n    n_rows, d,\n", "stride_yr,\n    n_rows, d, scale,\n"),
        ("y.to(y_ptr.dtype.element_ty)", "(y * scale).to(y_ptr.dtype.element_ty)"),
    ),
    style(  # all of Triton's names are in the module, by `import *`
        "weighted_sum_star_import",
        (
            "import torch\nimport triton\nimport triton.language as tl\n",
            "from __future__ import annotations\n\nimport torch\nimport triton\nfrom triton.language import *\n",
        ),
        ("tuple(weight.shape) != (x.shape[-1],)", "weight.shape != x.shape[-1:]"),  # Triton's tuple hides Python's
        (KERNELS, KERNELS.replace("tl.", "")),
    ),
)
