"""Styles of tuning: tuners, heuristics and hooks."""

from assignment.bank.operators.edits import style
from assignment.bank.operators.weighted_sum.styles.parts import (
    BACKWARD_TILES,
    FILES,
    FORWARD_TILES,
    PROBLEMS,
    TUNED_GRID,
    above,
    below,
    tiles,
)

__all__ = ["FILES", "PROBLEMS", "STYLES"]

STYLES = (
    style(  # tuners and heuristics are calls: one body, wrapped twice, in a dictionary of launchers
        "weighted_sum_autotune_call",
        TUNED_GRID,
        ("_forward_kernel[grid](", 'LAUNCHERS["small" if n_rows < 64 else "tuned"][grid]('),
        tiles(FORWARD_TILES, ""),
        ("_backward_kernel[(n_tiles,)](", "BACKWARD[(n_tiles,)]("),
        tiles(BACKWARD_TILES, "ROWS_TILE_SIZE=ROWS_TILE_SIZE,"),
        below(
            """
CONFIGS = [
    triton.Config({"ROWS_TILE_SIZE": rows, "D_TILE_SIZE": cols}, num_warps=4) for rows, cols in [(16, 64), (32, 128)]
]
SIZES = {"ROWS_TILE_SIZE": lambda args: 16, "D_TILE_SIZE": lambda args: 32 if args["d"] < 64 else 128}
LAUNCHERS = {
    "tuned": triton.autotune(configs=CONFIGS, key=["d"])(_forward_kernel),
    "small": triton.heuristics(SIZES)(_forward_kernel),
}
WIDTHS = [triton.Config({"D_TILE_SIZE": 64}), triton.Config({"D_TILE_SIZE": 32})]
BACKWARD = triton.autotune(configs=WIDTHS, key=["n_rows", "d"])(triton.heuristics({})(_backward_kernel))
"""
        ),
    ),
    style(  # Triton's tuner drops configurations: a failed tl.static_assert, and more warps than fit
        "weighted_sum_autotune_limits",
        TUNED_GRID,
        ("_forward_kernel[grid](", "FORWARD[grid]("),
        tiles(FORWARD_TILES, ""),
        (
            "    rows = tl.program_id(0).to",
            """\
    tl.static_assert(ROWS_TILE_SIZE <= D_TILE_SIZE // 2 + 16, "more rows than registers hold")
    rows = tl.program_id(0).to""",
        ),
        below(
            """
CONFIGS = [
    triton.Config({"ROWS_TILE_SIZE": rows, "D_TILE_SIZE": cols}, num_warps=warps)
    for rows, cols, warps in [(16, 64, 4), (32, 128, 4), (64, 64, 4), (32, 64, 64)]
]
FORWARD = triton.autotune(configs=CONFIGS, key=["d"])(_forward_kernel)
"""
        ),
    ),
    style(  # buffers are cleared by hooks: of a configuration and of a kernel
        "weighted_sum_pre_hooks",
        above(
            """
_launches: list[int] = []


def _clear(arguments):
    arguments["partial_ptr"].zero_()


CONFIGS = [
    triton.Config({"ROWS_TILE_SIZE": rows, "D_TILE_SIZE": 64}, num_warps=4, pre_hook=_clear) for rows in (16, 64)
]
"""
        ),
        TUNED_GRID,
        tiles(FORWARD_TILES, "ROWS_TILE_SIZE=32, D_TILE_SIZE=64,"),
        (
            "torch.empty((n_tiles, d), dtype=torch.float32, device=x.device)\n    if n_rows > 0:\n",
            """\
torch.full((d,), float("nan"), dtype=torch.float32, device=x.device)
    if n_rows == 0:
        return grad_x.reshape(x.shape), torch.zeros_like(weight)
    else:
""",
        ),
        (
            "_backward_kernel[(n_tiles,)](",
            '_backward_kernel[lambda meta: (triton.cdiv(n_rows, meta["ROWS_TILE_SIZE"]),)](',
        ),
        ("partial_grad_w.stride(0), partial_grad_w.stride(1)", "0, partial_grad_w.stride(0)"),
        tiles(BACKWARD_TILES, ""),
        ("partial_grad_w.sum(dim=0)", "partial_grad_w"),
        (
            "@triton.jit\ndef _backward_kernel(",
            '@triton.autotune(configs=CONFIGS, key=["n_rows", "d"])\n@triton.jit\ndef _backward_kernel(',
        ),
        below("\n_forward_kernel.add_pre_run_hook(lambda *args, **kwargs: _launches.append(len(args)))\n"),
        ("tl.store(partial_ptrs, partial, mask=in_cols)", "tl.atomic_add(partial_ptrs, partial, mask=in_cols)"),
    ),
)
