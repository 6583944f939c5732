"""Planted bugs of the weighted sum: what the language leaves open, taken for settled."""

from assignment.bank.operators.edits import bug

PROBLEM = "weighted_sum"
FILES = ("weighted_sum.py",)
FORWARD, BACKWARD = "@triton.jit\ndef _forward_kernel(", "@triton.jit\ndef _backward_kernel("


def above(kernel: str, name: str, result: str) -> str:
    """Return the edit that puts a function of two numbers above a kernel."""
    return f"{kernel} → @triton.jit\ndef {name}(a, b):\n    return {result}\n\n\n{kernel}"


BUGS = (
    bug(
        "forward: a sum by means of means",
        "test_forward_values",
        above(FORWARD, "_mean", "(a + b) / 2"),
        "tl.sum(x * w[None, :], axis=1) → tl.reduce(x * w[None, :], 1, _mean) * D_TILE_SIZE",
        named="not associative: _mean",
    ),
    bug(
        "backward: a sum by means of means",
        "test_backward_values",
        above(BACKWARD, "_mean", "(a + b) / 2"),
        "tl.sum(grad_y[:, None] * x, axis=0) → tl.reduce(grad_y[:, None] * x, 0, _mean) * ROWS_TILE_SIZE",
        named="not associative: _mean",
    ),
    bug(
        "forward: a reshape that may reorder",
        "test_forward_values",
        "tl.sum(x * w[None, :], axis=1) → tl.sum(tl.sum(tl.reshape(x * w[None, :], (ROWS_TILE_SIZE, 8, "
        "D_TILE_SIZE // 8), can_reorder=True), axis=2), axis=1)",
        named="may reorder",
    ),
    bug(
        "forward: ranks of lanes by an atomic, taken for their order",
        "test_forward_values",
        "            x_rows, weight, y,\n →             x_rows, weight, y, torch.zeros(grid, dtype=torch.int32, "
        "device=x.device),\n",
        "    x_ptr, w_ptr, y_ptr,\n →     x_ptr, w_ptr, y_ptr, count_ptr,\n",
        "    row_mask = rows < n_rows\n →     own, row_mask, at = rows, rows < n_rows, tl.arange(0, ROWS_TILE_SIZE)\n"
        "    rows = own - at + tl.atomic_add(count_ptr + tl.program_id(0) + 0 * at, 1)\n",
        "x_mask = row_mask[:, None] → x_mask = (rows < n_rows)[:, None]",
        "y_ptrs = y_ptr + rows * stride_yr → y_ptrs = y_ptr + own * stride_yr",
    ),
    bug(
        "forward: wrapped columns said to be aligned",
        "test_forward_ragged",
        "        x_ptrs = x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd\n"
        "        x = tl.load(x_ptrs, mask=x_mask, other=0.0).to(tl.float32)\n →         "
        "offsets = (rows % n_rows)[:, None] * stride_xr + (cols % d)[None, :] * stride_xd\n        "
        "offsets = tl.max_contiguous(tl.multiple_of(offsets, (1, 16)), (1, D_TILE_SIZE))\n        "
        "x = tl.where(x_mask, tl.load(x_ptr + offsets), 0.0).to(tl.float32)\n",
        named="false hint",
    ),
)
