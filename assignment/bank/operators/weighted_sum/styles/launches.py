"""Styles of launching: closures, plans, threads, kernels in classes."""

import textwrap

from assignment.bank.operators.edits import style
from assignment.bank.operators.weighted_sum.styles.parts import (
    BACKWARD,
    BACKWARD_PASS,
    BACKWARD_TILES,
    FILES,
    FORWARD,
    FORWARD_PASS,
    FORWARD_TILES,
    GRID,
    KERNELS,
    PROBLEMS,
    SUM,
    above,
    tiles,
)

__all__ = ["FILES", "PROBLEMS", "STYLES"]

STYLES = (
    style(  # a decorator checks, launches are partial functions, the grid is a lambda of the tiles
        "weighted_sum_closures",
        ("import torch\n", "import functools\n\nimport torch\n"),
        above(
            '''
TILES = {"ROWS_TILE_SIZE": 32, "D_TILE_SIZE": 64}


def checked(function):
    """Check x and weight, the last two of the arguments, before the call."""

    @functools.wraps(function)
    def call(*tensors):
        *_, x, weight = tensors
        _check_forward(x, weight)
        return function(*tensors)

    return call


def launcher(kernel, n_rows, d):
    """Return a function that launches the kernel on the tensors that it is given, with their strides."""
    grid = lambda meta: (triton.cdiv(n_rows, meta["ROWS_TILE_SIZE"]),)  # noqa: E731

    def launch(*tensors, strided):
        strides = [stride for tensor in tensors[:strided] for stride in tensor.stride()]
        kernel[grid](*tensors, *strides, n_rows, d, **TILES)

    return functools.partial(launch, strided=3 if kernel is _forward_kernel else 5)
'''
        ),
        (
            "def weighted_sum_forward(x, weight):\n    _check_forward(x, weight)\n",
            "@checked\ndef weighted_sum_forward(x, weight):\n",
        ),
        ("def weighted_sum_backward(", "@checked\ndef weighted_sum_backward("),
        (FORWARD, "        launcher(_forward_kernel, *x_rows.shape)(x_rows, weight, y)\n"),
        ("triton.cdiv(n_rows, ROWS_TILE_SIZE)\n", 'triton.cdiv(n_rows, TILES["ROWS_TILE_SIZE"])\n'),
        (
            BACKWARD,
            """\
        launch = launcher(_backward_kernel, *x_matrix.shape)
        launch(grad_y_rows, x_matrix, weight, grad_x, partial_grad_w)
""",
        ),
        (SUM, "    grad_weight = functools.reduce(torch.add, partial_grad_w.unbind(), weight.new_zeros(d))\n"),
    ),
    style(  # launches are data: a frozen dataclass, cached by shape, chosen by a match statement
        "weighted_sum_dataclass_plan",
        ("import torch\n", "import functools\nfrom dataclasses import dataclass, field\n\nimport torch\n"),
        above(
            '''
@dataclass(frozen=True, slots=True)
class Plan:
    """How one shape is launched."""

    n_rows: int
    d: int
    rows: int
    cols: int
    options: dict[str, int] = field(default_factory=dict, compare=False)

    @property
    def grid(self) -> tuple[int]:
        return (triton.cdiv(self.n_rows, self.rows),)

    @property
    def tiles(self) -> dict[str, int]:
        return {"ROWS_TILE_SIZE": self.rows, "D_TILE_SIZE": self.cols, **self.options}

    @classmethod
    @functools.cache
    def of(cls, n_rows: int, d: int) -> "Plan":
        match n_rows, d:
            case rows, _ if rows <= 16:
                return cls(n_rows, d, 16, 64)
            case _, cols if cols >= 1024:
                return cls(n_rows, d, 32, 128, {"num_warps": 8})
            case _:
                return cls(n_rows, d, 64, 64, {"num_warps": 4, "num_stages": 2})
'''
        ),
        (GRID, "plan = Plan.of(*x_rows.shape)"),
        ("[grid]", "[plan.grid]"),
        tiles(FORWARD_TILES, "**plan.tiles,"),
        ("    n_tiles = triton.cdiv(n_rows, ROWS_TILE_SIZE)\n", "    plan = Plan.of(*x_matrix.shape)\n"),
        ("torch.empty((n_tiles, d)", "torch.empty((*plan.grid, plan.d)"),
        ("[(n_tiles,)]", "[plan.grid]"),
        tiles(BACKWARD_TILES, "**plan.tiles,"),
    ),
    style(  # a pool of threads launches each piece, in whatever order they come
        "weighted_sum_thread_pool",
        ("import torch\n", "from concurrent.futures import ThreadPoolExecutor, as_completed, wait\n\nimport torch\n"),
        above("PIECE = 4 * ROWS_TILE_SIZE  # rows of one launch\n"),
        (
            FORWARD_PASS,
            """
    def launch(first):
        x_piece, y_piece = x_rows[first : first + PIECE], y[first : first + PIECE]
        n = len(x_piece)
        _forward_kernel[(triton.cdiv(n, ROWS_TILE_SIZE),)](
            x_piece, weight, y_piece, *x_piece.stride(), *weight.stride(), 1, n, d, ROWS_TILE_SIZE, D_TILE_SIZE
        )

    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(launch, range(0, n_rows, PIECE)))
""",
        ),
        (
            BACKWARD_PASS,
            """\
    if n_rows == 0:
        return grad_x.reshape(x.shape), torch.zeros_like(weight)

    def launch(piece):
        rows = slice(piece * PIECE, (piece + 1) * PIECE)
        x_piece, grad_y_piece, grad_x_piece = x_matrix[rows], grad_y_rows[rows], grad_x[rows]
        tiles = triton.cdiv(len(x_piece), ROWS_TILE_SIZE)
        parts = torch.empty((tiles, d), dtype=torch.float32, device=x.device)
        _backward_kernel[(tiles,)](
            grad_y_piece, x_piece, weight, grad_x_piece, parts,
            *grad_y_piece.stride(), *x_piece.stride(), *weight.stride(), *grad_x_piece.stride(), *parts.stride(),
            len(x_piece), d, ROWS_TILE_SIZE, D_TILE_SIZE,
        )
        return parts

    with ThreadPoolExecutor(max_workers=2, thread_name_prefix="launch") as pool:
        futures = [pool.submit(launch, piece) for piece in range(triton.cdiv(n_rows, PIECE))]
        wait(futures)
        grad_weight = torch.sum(torch.cat([future.result() for future in as_completed(futures)]), 0)
""",
        ),
    ),
    style(  # kernels are members of a class and use helpers of another, launches are methods
        "weighted_sum_kernels_in_classes",
        above(
            '''

class Tiles:
    """What the kernels share; none of it knows of rows and columns."""

    @triton.jit
    def load(ptr, mask):
        return tl.load(ptr, mask=mask, other=0.0).to(tl.float32)


_load = Tiles.load
'''
        ),
        (FORWARD, "        Launches(n_rows, d).forward(x_rows, weight, y)\n"),
        (BACKWARD, "        Launches(n_rows, d)(grad_y_rows, x_matrix, weight, grad_x, partial_grad_w)\n"),
        (
            KERNELS,
            '''\
class Launches:
    """x @ weight, and its gradients."""

    ROWS, COLS = 64, 64

    def __init__(self, *sizes):
        self.sizes = sizes

    def forward(self, *tensors):
        self._forward_kernel[self._grid](*tensors, *self._strides(tensors), *self.sizes, **self._tiles)

    def __call__(self, *tensors):
        self._backward_kernel[self._grid](*tensors, *self._strides(tensors), *self.sizes, **self._tiles)

    @staticmethod
    def _strides(tensors):
        return [stride for tensor in tensors for stride in tensor.stride()]

    @property
    def _grid(self):
        return (triton.cdiv(self.sizes[0], self.ROWS),)

    @property
    def _tiles(self):
        return {"ROWS_TILE_SIZE": self.ROWS, "D_TILE_SIZE": self.COLS}

'''
            + textwrap.indent(KERNELS, "    ")
            .replace("tl.load(", "_load(")
            .replace(", other=0.0).to(tl.float32)", ")"),
        ),
    ),
)
