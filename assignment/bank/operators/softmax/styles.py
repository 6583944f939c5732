"""Right forward passes that lean on what the language leaves open, in ways that are right under each draw of it."""

from assignment.bank.operators.edits import Style, style

PROBLEMS = ("softmax",)
FILES = ("practice/softmax.py",)

TILE = "        powers = tl.exp(x - shift)\n"
MAX = "        new_max = tl.maximum(row_max, tl.max(x, axis=0))\n"
SHIFT = '        shift = tl.where(new_max == float("-inf"), 0.0, new_max)\n'
TOTAL = "        total = total * tl.exp(row_max - shift) + tl.sum(powers, axis=0)\n"
QUOTIENT = "        y = tl.exp(x - shift) / total\n"
SIZE = "        d_tile_size = min(triton.next_power_of_2(d), MAX_D_TILE_SIZE)\n        _forward_kernel"
KERNEL = "@triton.jit\ndef _forward_kernel("

PAIRS = """\
@triton.jit
def _join(max_a, total_a, max_b, total_b):
    new_max = tl.maximum(max_a, max_b)
    shift = tl.where(new_max == float("-inf"), 0.0, new_max)
    return new_max, total_a * tl.exp(max_a - shift) + total_b * tl.exp(max_b - shift)


"""

# 2^n by bits, and e^r by its series: |r| ≤ ln 2 / 2
EXP_BY_FLOOR = """\
@triton.jit
def _exp(x):
    small = x < -87.0
    x = tl.where(small, 0.0, x)
    n = tl.floor(x * 1.4426950408889634 + 0.5)
    r = (x - n * 0.693359375) + n * 2.12194440e-4
    p = 1.9875691500e-4
    p = p * r + 1.3981999507e-3
    p = p * r + 8.3334519073e-3
    p = p * r + 4.1665795894e-2
    p = p * r + 1.6666665459e-1
    p = p * r + 5.0000001201e-1
    p = p * r * r + r + 1.0
    return tl.where(small, 0.0, p * ((n.to(tl.int32) + 127) << 23).to(tl.float32, bitcast=True))


"""

# as FlashAttention-4 has it: a large number takes the fraction's bits away, and its last bits are the exponent
EXP2_BY_ROUNDING = """\
@triton.jit
def _exp(x):
    small = x < -87.0
    x = tl.where(small, 0.0, x) * 1.4426950408889634
    shifted = x + 12582912.0
    r = x - (shifted - 12582912.0)
    p = 1.535336188319500e-4
    p = p * r + 1.339887440266574e-3
    p = p * r + 9.618437357674640e-3
    p = p * r + 5.550332471162809e-2
    p = p * r + 2.402264791363012e-1
    p = p * r + 6.931472028550421e-1
    p = p * r + 1.0
    bits = p.to(tl.int32, bitcast=True) + (shifted.to(tl.int32, bitcast=True) << 23)
    return tl.where(small, 0.0, bits.to(tl.float32, bitcast=True))


"""

LARGER = """\
@triton.jit
def _larger(x_a, at_a, x_b, at_b):
    is_a = (x_a > x_b) | ((x_a == x_b) & (at_a < at_b))
    return tl.where(is_a, x_a, x_b), tl.where(is_a, at_a, at_b)


"""

RECIPROCAL = """\
@triton.jit
def _reciprocal(x):
    guess = (0x7EF311C7 - x.to(tl.int32, bitcast=True)).to(tl.float32, bitcast=True)
    error = 1.0 - x * guess
    while tl.abs(error) > 1e-4:
        guess += guess * error
        error = 1.0 - x * guess
    return guess + guess * error


"""


def above(functions: str) -> tuple[str, str]:
    """Return the edit that puts functions above the kernel."""
    return KERNEL, functions + KERNEL


def exp_by(function: str, name: str) -> Style:
    """Return the style whose powers are those of a function."""
    edits = [(old, old.replace("tl.exp(", "_exp(")) for old in (TILE, TOTAL, QUOTIENT)]
    return style(name, *edits, above(function))


STYLES = (
    style(  # pairs of maximum and sum, joined in whatever tree
        "softmax_pairs_reduced",
        (MAX, "        new_max, powers = tl.reduce((x, tl.where(col_mask, 1.0, 0.0)), 0, _join)\n"),
        (SHIFT + TILE + TOTAL, "        new_max, total = _join(row_max, total, new_max, powers)\n"),
        above(PAIRS),
    ),
    style(  # the same as a recurrence along the row, of which the last element counts
        "softmax_pairs_scanned",
        (MAX, "        _, totals = tl.associative_scan((x, tl.where(col_mask, 1.0, 0.0)), 0, _join)\n"),
        (SHIFT, "        is_last = tl.arange(0, D_TILE_SIZE) == D_TILE_SIZE - 1\n"),
        (TILE, "        tile_total = tl.sum(tl.where(is_last, totals, 0.0), axis=0)\n"),
        (TOTAL, "        new_max, total = _join(row_max, total, tl.max(x, axis=0), tile_total)\n"),
        above(PAIRS),
    ),
    style(  # whichever of the largest elements wins
        "softmax_any_winner",
        (
            MAX,
            """\
        _, winner = tl.max(x, axis=0, return_indices=True, return_indices_tie_break_left=False)
        new_max = tl.maximum(row_max, tl.sum(tl.where(tl.arange(0, D_TILE_SIZE) == winner, x, 0.0), axis=0))
""",
        ),
    ),
    style(  # the first of the largest elements, which is loaded once more
        "softmax_first_winner",
        (
            MAX,
            """\
        _, winner = tl.reduce((x, tl.arange(0, D_TILE_SIZE)), 0, _larger)
        new_max = tl.maximum(row_max, tl.load(x_ptr + row * stride_xr + (start + winner) * stride_xd).to(tl.float32))
""",
        ),
        above(LARGER),
    ),
    style(  # sixteen parts of a row: the largest of their sorted maxima, and their sums from the smallest on
        "softmax_sorted_parts",
        (SIZE, SIZE.replace("triton.next_power_of_2(d)", "max(16, triton.next_power_of_2(d))")),
        (
            MAX,
            """\
        parts = tl.reshape(x, (16, D_TILE_SIZE // 16))
        new_max = tl.maximum(row_max, tl.max(tl.topk(tl.max(parts, axis=1), 2), axis=0))
""",
        ),
        (TILE, TILE + "        sums = tl.sort(tl.sum(tl.reshape(powers, (16, D_TILE_SIZE // 16)), axis=1))\n"),
        (TOTAL, TOTAL.replace("powers", "sums")),
    ),
    style(  # the three largest powers are taken out one by one, and added up apart
        "softmax_largest_apart",
        (
            TOTAL,
            """\
        largest = 0.0
        for _ in tl.static_range(3):
            is_winner = tl.arange(0, D_TILE_SIZE) == tl.argmax(powers, axis=0, tie_break_left=False)
            largest += tl.max(powers, axis=0)
            powers = tl.where(is_winner, 0.0, powers)
        total = total * tl.exp(row_max - shift) + (largest + tl.sum(powers, axis=0))
""",
        ),
    ),
    style(  # a reciprocal by Newton's iteration, from a guess by bits
        "softmax_newton",
        (QUOTIENT, "        y = tl.exp(x - shift) * inverse\n"),
        (
            "    total = tl.where(total > 0, total, 1.0)\n",
            "    inverse = _reciprocal(tl.where(total > 0, total, 1.0))\n",
        ),
        above(RECIPROCAL),
    ),
    exp_by(EXP_BY_FLOOR, "softmax_exp_by_floor"),
    exp_by(EXP2_BY_ROUNDING, "softmax_exp_by_rounding"),
)
