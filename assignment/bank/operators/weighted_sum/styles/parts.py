"""Parts of the base that several styles edit."""

from pathlib import Path

PROBLEMS = ("weighted_sum",)
FILES = ("weighted_sum.py",)
BASE = (Path(__file__).parents[1] / "base/weighted_sum.py").read_text(encoding="utf-8")
KERNELS = BASE[BASE.index("@triton.jit") :]
GRID = "grid = (triton.cdiv(n_rows, ROWS_TILE_SIZE),)"
TUNED_GRID = (GRID, 'grid = lambda meta: (triton.cdiv(n_rows, meta["ROWS_TILE_SIZE"]),)')
TILES = "ROWS_TILE_SIZE=ROWS_TILE_SIZE, D_TILE_SIZE=D_TILE_SIZE,\n        )  # fmt: skip\n    "
FORWARD_TILES, BACKWARD_TILES = TILES + "return y", TILES + "grad_weight"
SUM = "    grad_weight = partial_grad_w.sum(dim=0)\n"
FUNCTION = "    return WeightedSum.apply(x, weight)\n"

FORWARD = """\
        _forward_kernel[grid](
            x_rows, weight, y,
            x_rows.stride(0), x_rows.stride(1), weight.stride(0), y.stride(0),
            n_rows, d,
            ROWS_TILE_SIZE=ROWS_TILE_SIZE, D_TILE_SIZE=D_TILE_SIZE,
        )  # fmt: skip
"""
BACKWARD = """\
        _backward_kernel[(n_tiles,)](
            grad_y_rows, x_matrix, weight, grad_x, partial_grad_w,
            grad_y_rows.stride(0), x_matrix.stride(0), x_matrix.stride(1), weight.stride(0),
            grad_x.stride(0), grad_x.stride(1), partial_grad_w.stride(0), partial_grad_w.stride(1),
            n_rows, d,
            ROWS_TILE_SIZE=ROWS_TILE_SIZE, D_TILE_SIZE=D_TILE_SIZE,
        )  # fmt: skip
"""
NO_PARTIAL = (
    "    partial_grad_w = torch.empty((n_tiles, d), dtype=torch.float32, device=x.device)\n    if n_rows > 0:\n"
)
FORWARD_PASS = f"    {GRID}\n    if n_rows > 0:\n{FORWARD}"
BACKWARD_PASS = NO_PARTIAL + BACKWARD + SUM


def tiles(of: str, new: str) -> tuple[str, str]:
    """Return the edit that passes other arguments than the sizes of tiles, at the end of a launch."""
    return of, of.replace("ROWS_TILE_SIZE=ROWS_TILE_SIZE, D_TILE_SIZE=D_TILE_SIZE,", new)


def above(text: str, rows: int = 64, cols: int = 64) -> tuple[str, str]:
    """Return the edit that puts text below the sizes of tiles, above the functions."""
    sizes = "ROWS_TILE_SIZE = {}\nD_TILE_SIZE = {}\n"
    return sizes.format(64, 64), f"{sizes.format(rows, cols)}\n{text}"


def below(text: str) -> tuple[str, str]:
    """Return the edit that puts text below the kernels."""
    last = KERNELS.splitlines(keepends=True)[-1]
    return last, f"{last}\n{text}"


BACKWARD_KERNEL = KERNELS[KERNELS.index("@triton.jit\ndef _backward_kernel") :]


def other_backward(backward: str, kernels: str) -> tuple[tuple[str, str], ...]:
    """Return the edits that launch other kernels in the backward pass: from a gradient of x that is not written."""
    no_rows = "    if n_rows == 0:\n        return grad_x.reshape(x.shape), torch.zeros_like(weight)\n"
    return (BACKWARD_PASS, no_rows + backward), (BACKWARD_KERNEL, kernels)


def other_forward(forward: str, kernels: str) -> tuple[tuple[str, str], ...]:
    """Return the edits that launch other kernels in the forward pass: from an output that is not written."""
    return (FORWARD_PASS, f"    if n_rows > 0:\n{forward}"), ("def _forward_kernel", kernels)
