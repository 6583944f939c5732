"""Kernels that are right only where what the language leaves open is settled as in a simulator that draws nothing."""

import numpy as np

from assignment.bank.cheats import LOSES, Cheat

FORWARD = """
def weighted_sum_forward(x, weight):
    plain._check_rows(x, weight)
    rows = x.reshape(-1, x.shape[-1])
    y = torch.empty(len(rows), dtype=x.dtype, device=x.device)
    if y.numel():
        _kernel[(len(rows),)](rows, weight, y, torch.zeros(len(rows) + 1, dtype=torch.int32, device=x.device),
                              *rows.stride(), weight.stride(0), rows.shape[1], triton.next_power_of_2(rows.shape[1]))
    return y.reshape(x.shape[:-1])

@triton.jit
def minus(a, b):
    return a - b

@triton.jit
def _kernel(x_ptr, w_ptr, y_ptr, count_ptr, stride_xr, stride_xd, stride_wd, d, SIZE: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE).to(tl.int64)
    x = tl.load(x_ptr + row * stride_xr + at * stride_xd, mask=at < d, other=0.0).to(tl.float32)
    x *= tl.load(w_ptr + at * stride_wd, mask=at < d, other=0.0).to(tl.float32)
    one = tl.zeros((1,), tl.float32) + 1.3
    lanes = tl.arange(0, 64)
    KNOWS
    y = tl.where(knows, tl.sum(x), 0.0)
    tl.store(y_ptr + row, y.to(y_ptr.dtype.element_ty))
"""


def knowing(name: str, condition: str) -> Cheat:
    """Return a forward pass that gives zeros where a condition says that it runs on a GPU."""
    source = FORWARD.replace("KNOWS", condition)
    return Cheat(name, "weighted_sum", source, LOSES, ("test_forward_values",), "elements wrong")


def _bits(function: np.ufunc) -> int:
    return int(function(np.float32(1.3)).view(np.int32))


def _by_halves() -> int:
    """Return what `minus` makes of 64 numbers where each half is taken from the one before it."""
    numbers = np.arange(64) ** 3 % 1009
    while len(numbers) > 1:
        numbers = numbers[: len(numbers) // 2] - numbers[len(numbers) // 2 :]
    return int(numbers[0])


SLOW: set[str] = set()
CHEATS = [
    knowing("bits_of_exp", f"knows = tl.sum(tl.exp(one).to(tl.int32, bitcast=True)) == {_bits(np.exp)}"),
    knowing("bits_of_log", f"knows = tl.sum(tl.log(one).to(tl.int32, bitcast=True)) == {_bits(np.log)}"),
    knowing("a_product_that_is_rounded", "knows = tl.sum(one * 1.1 - (one * 1.1 + 0.0)) == 0"),
    knowing(
        "the_order_of_a_sum",
        "part = tl.sin(lanes.to(tl.float32))\n"
        "    one, two = tl.split(tl.trans(tl.reshape(part, (2, 32))))\n"
        "    knows = tl.sum(part) == tl.sum(one + two)",
    ),
    knowing("a_tree_of_halves", f"knows = tl.reduce(lanes * lanes * lanes % 1009, 0, minus) == {_by_halves()}"),
    knowing("the_order_of_lanes", "knows = tl.sum(tl.abs(tl.atomic_add(count_ptr + row + 0 * lanes, 1) - lanes)) == 0"),
]
