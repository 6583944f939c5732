"""Number formats: layouts, spacing, and the error of a long sum, measured while drawing."""

from math import log2, log10
from random import Random

import ml_dtypes
import numpy as np

from assignment.figures.svg import Drawing

FORMATS = {  # name: bits of exponent, of mantissa, largest number in words
    "float32": (8, 23, "3.4 · 10³⁸"),
    "TF32": (8, 10, "3.4 · 10³⁸"),
    "bfloat16": (8, 7, "3.4 · 10³⁸"),
    "float16": (5, 10, "65,504"),
}


def formats() -> Drawing:
    """Draw one cell for each bit: sign, exponent, mantissa; and the range and precision."""
    drawing = Drawing(720, 274, "The bits of float32, TF32, bfloat16 and float16")
    cell, left = 13, 88
    drawing.note(left + 32 * cell + 24, 34, "epsilon")
    drawing.note(left + 32 * cell + 110, 34, "largest")
    for row, (name, (exponent, mantissa, largest)) in enumerate(FORMATS.items()):
        y = 48 + 44 * row
        drawing.text(left - 10, y + 18, name, anchor="end")
        kinds = ["red"] + ["orange"] * exponent + ["blue"] * mantissa
        for bit, colour in enumerate(kinds):
            drawing.rect(left + bit * cell, y, cell, 26, colour, f"{colour}-line")
        drawing.text(left + 32 * cell + 24, y + 18, f"2⁻{superscript(mantissa)}")
        drawing.text(left + 32 * cell + 110, y + 18, largest)
    for x, colour, words in ((left, "red", "sign"), (left + 80, "orange", "exponent: the range"),
                             (left + 250, "blue", "mantissa: the precision")):  # fmt: skip
        drawing.rect(x, 232, 14, 16, colour, f"{colour}-line")
        drawing.text(x + 22, 245, words, size=12)
    drawing.note(left + 440, 245, "TF32 lives in a 32-bit word")
    return drawing


def superscript(n: int) -> str:
    return str(n).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def spacing(value: float, mantissa: int) -> float:
    """Return the distance from a number of a format to the next larger one."""
    return 2.0 ** (int(np.floor(log2(value))) - mantissa)


def number_line() -> Drawing:
    """Draw every number from 252 to 264 in bfloat16, and in TF32 and float16."""
    drawing = Drawing(720, 236, "The numbers between 252 and 264 that bfloat16, TF32 and float16 have")
    low, high, left, unit = 252, 264, 130, 47

    def x_of(value: float) -> float:
        return left + (value - low) * unit

    for row, (name, mantissa, colour) in enumerate(
        [("bfloat16", 7, "orange-line"), ("TF32, float16", 10, "blue-line")]
    ):
        y = 74 + 84 * row
        drawing.text(left - 18, y + 4, name, anchor="end")
        drawing.line(left, y, x_of(high), y, "grey-line", thick=1)
        value = float(low)
        while value <= high:
            drawing.line(x_of(value), y - 9, x_of(value), y + 9, colour, thick=2)
            if value % 2 == 0 or (mantissa == 7 and value < 256):
                drawing.text(x_of(value), y + 28, f"{value:g}", anchor="middle", size=11, colour="soft")
            value += spacing(value, mantissa)
    drawing.dot(x_of(257), 74, "red-line")
    drawing.text(x_of(257), 36, "256 + 1 = 257 is no bfloat16", size=12, colour="red-line", anchor="middle")
    drawing.arrow(x_of(257) - 2, 48, x_of(256) + 3, 62, "red-line")
    drawing.note(x_of(257) + 100, 36, "a tie goes to the even neighbour:\n256 again")
    drawing.note(left, 222, "From each power of two on, the gaps are twice as wide.")
    return drawing


SEEDS, LONGEST = 16, 2**14


def sum_errors() -> dict[str, list[tuple[int, float]]]:
    """Return root mean squares of the relative error of a sum of n numbers from [0, 1).

    There is one for each kind of accumulator.
    """
    x = np.array([[Random(seed * LONGEST + i).random() for i in range(LONGEST)] for seed in range(SEEDS)])
    x = x.astype(np.float32).astype(np.float64).T  # (LONGEST, SEEDS)
    kinds = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}
    found: dict[str, list[tuple[int, float]]] = {name: [] for name in [*kinds, "float32, tiles of 64"]}
    sums = {name: np.zeros(SEEDS, dtype) for name, dtype in kinds.items()}
    exact = np.cumsum(x, axis=0)
    for n in range(1, LONGEST + 1):
        for name, dtype in kinds.items():
            sums[name] = (sums[name] + x[n - 1].astype(dtype)).astype(dtype)
        if n >= 16 and n & (n - 1) == 0:
            tiled = pairwise(x[:n].astype(np.float32), 64)
            for name, total in [*sums.items(), ("float32, tiles of 64", tiled)]:
                relative = total.astype(np.float64) / exact[n - 1] - 1
                found[name].append((n, float(np.sqrt(np.mean(relative**2)))))
    return found


def pairwise(x: np.ndarray, tile: int) -> np.ndarray:
    """Return the sum of tiles, each summed as a tree, as tl.sum does, and then in order."""
    total = np.zeros(x.shape[1], np.float32)
    for start in range(0, len(x), tile):
        part = x[start : start + tile]
        while len(part) > 1:
            part = part[::2] + part[1::2]
        total = total + part[0]
    return total


def sum_error() -> Drawing:
    """Draw the relative error of a sum against its length."""
    drawing = Drawing(720, 380, "Relative error of a sum, by its length and the format of the accumulator")
    left, bottom = 76, 320

    def x_of(n: int) -> float:
        return left + (log2(n) - 4) * 46

    def y_of(error: float) -> float:
        return bottom - (log10(error) + 8.5) * 33

    for power in range(4, 15, 2):
        drawing.line(x_of(2**power), 24, x_of(2**power), bottom, "grid", thick=1)
        drawing.note(x_of(2**power), bottom + 18, f"{2**power:,}", anchor="middle")
    for power in range(-8, 1, 2):
        drawing.line(left, y_of(10.0**power), x_of(LONGEST), y_of(10.0**power), "grid", thick=1)
        words = f"10⁻{superscript(-power)}" if power else "1"
        drawing.note(left - 8, y_of(10.0**power) + 4, words, anchor="end")
    colours = ["red-line", "orange-line", "blue-line", "green-line"]
    for (name, points), colour in zip(sum_errors().items(), colours, strict=True):
        drawing.path([(x_of(n), y_of(error)) for n, error in points], colour, thick=2)
        for n, error in points:
            drawing.dot(x_of(n), y_of(error), colour, 2.5)
        drawing.text(
            x_of(LONGEST) + 8, y_of(points[-1][1]) + (12 if name == "float16" else 2), name, size=12, colour=colour
        )
    drawing.text((left + x_of(LONGEST)) / 2, bottom + 40, "numbers added, each from [0, 1)", anchor="middle", size=12)
    drawing.text(14, 18, "relative error", size=12)
    return drawing


def two_orders() -> Drawing:
    """Draw two programs that take a ticket by a load and an atomic: one after the other, and at once."""
    drawing = Drawing(720, 232, "Two programs take tickets: one after the other they get 0 and 1, at once both get 0")
    for left, title, starts, tickets in (
        (20, "one after the other", (0, 140), (0, 1)),
        (390, "at once", (0, 36), (0, 0)),
    ):
        drawing.text(left, 28, title, bold=True)
        colour = "green" if tickets == (0, 1) else "red"
        for row, (start, ticket) in enumerate(zip(starts, tickets, strict=True)):
            y = 52 + 62 * row
            drawing.text(left, y + 20, "AB"[row], size=12)
            step = 70 if colour == "green" else 78
            drawing.box(left + 22 + start, y, 64, 30, f"load: {ticket}", colour, size=12)
            drawing.box(left + 22 + start + step, y, 64, 30, "add 1", "grey", size=12)
        drawing.line(left + 22, 172, left + 310, 172, "grey-line", thick=1)
        drawing.text(left + 22, 190, f"tickets {tickets[0]} and {tickets[1]}", size=12, colour=f"{colour}-line")
    drawing.note(
        20, 216, "Time runs to the right. ticket = tl.atomic_add(count_ptr, 1) is a single step: 0 and 1, always."
    )
    return drawing


def two_trees() -> Drawing:
    """Draw a mean of means of four numbers in two trees: by halves, and one by one."""
    drawing = Drawing(720, 284, "A mean of means of 2, 2, 2 and 10, by halves and one by one")
    for left, title, pairs in (
        (20, "by halves: the mean", ((0, 1), (2, 3), (4, 5))),
        (390, "one by one: another number", ((0, 1), (4, 2), (5, 3))),
    ):
        drawing.text(left, 28, title, bold=True)
        values = [2.0, 2.0, 2.0, 10.0]
        places = [(left + 80.0 * i, 52.0) for i in range(4)]
        for i, (x, y) in enumerate(places):
            drawing.box(x, y, 60, 30, f"{values[i]:g}", "grey")
        for depth, (a, b) in enumerate(pairs):
            value = (values[a] + values[b]) / 2
            x, y = (places[a][0] + places[b][0]) / 2, max(places[a][1], places[b][1]) + 54
            for at in (a, b):
                drawing.line(places[at][0] + 30, places[at][1] + 30, x + 30, y, "grey-line", thick=1)
            is_last = depth == len(pairs) - 1
            colour = "grey" if not is_last else "green" if value == sum(values[:4]) / 4 else "red"
            drawing.box(x, y, 60, 30, f"{value:g}", colour)
            values.append(value)
            places.append((x, y))
    drawing.note(20, 270, "Each pair gives (a + b) / 2. Sums and counts give 16 / 4 in every tree.")
    return drawing
