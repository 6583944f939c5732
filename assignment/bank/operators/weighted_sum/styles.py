"""Right weighted sums, the base's kernels called in other styles."""

from assignment.bank.edits import style

PROBLEMS = ("weighted_sum",)
FILES = ("weighted_sum.py",)

STYLES = (
    style(  # PyTorch works out shapes on meta tensors; buffers are resized to them
        "weighted_sum_meta_shapes",
        (
            "    y = torch.empty(n_rows, dtype=x.dtype, device=x.device)\n",
            "    y = _like(x_rows.to('meta') @ weight.to('meta'), x)\n",
        ),
        (
            "    grad_x = torch.empty((n_rows, d), dtype=x.dtype, device=x.device)\n"
            "    partial_grad_w = torch.empty((n_tiles, d), dtype=torch.float32, device=x.device)\n",
            """\
    with torch.device("meta"):
        shapes = torch.empty((n_rows, d), dtype=x.dtype), torch.empty((n_tiles, d), dtype=torch.float32)
    grad_x, partial_grad_w = (_like(meta, x) for meta in shapes)
""",
        ),
        (
            "class WeightedSum(",
            """\
def _like(meta, x):
    return torch.empty(0, dtype=meta.dtype, device=x.device).resize_(meta.shape)


class WeightedSum(""",
        ),
    ),
)
