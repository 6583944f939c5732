"""The machine: its memories, its roofline, and a prefetching loop.

Numbers: handout/costs.md, one H200.
"""

from math import log10

from assignment.figures.svg import Drawing

BANDWIDTH = 4.28e12  # bytes per second, a large copy
BF16_PEAK = 700e12  # operations per second, tensor cores


def memory() -> Drawing:
    """Draw the memories of a GPU as they lie: two in each multiprocessor, L2 and HBM below them."""
    drawing = Drawing(640, 356, "The memories of an H200, from registers to HBM")
    for column, name in enumerate(("multiprocessor 0", "multiprocessor 1", "multiprocessor 131")):
        x = 20 + 144 * column + 22 * (column == 2)
        drawing.rect(x, 14, 132, 142, "none", "green-line", dash=True, radius=6)
        drawing.text(x + 66, 34, name, anchor="middle", size=12)
        drawing.box(x + 10, 46, 112, 40, "registers\n256 KB", "green", size=12)
        drawing.box(x + 10, 104, 112, 42, "shared memory,\nL1: 256 KB", "green", size=12)
        drawing.arrow(x + 66, 102, x + 66, 88, thick=1)
        drawing.arrow(x + 66, 184, x + 66, 158)
    drawing.text(306, 90, "…", anchor="middle", size=18)
    drawing.box(20, 186, 442, 44, "L2 cache: 50 MB, for all", "orange", size=14)
    drawing.arrow(241, 264, 241, 232)
    drawing.box(20, 266, 442, 58, "HBM, “global memory”: 141 GB", "blue", size=14)
    for y, name, speed in (
        (62, "registers", "in one cycle"),
        (120, "shared memory", "tens of cycles; a\nprogram has up to 227 KB"),
        (204, "L2", "a few times the\nbandwidth of HBM"),
        (286, "HBM", "4.28 TB/s, after\nhundreds of cycles"),
    ):
        drawing.text(478, y, name, size=12, bold=True)
        drawing.note(478, y + 16, speed)
    drawing.note(20, 346, "A kernel is fast when it fetches a tile once, and then works above: green.")
    return drawing


def roofline() -> Drawing:
    """Draw attainable rate against intensity, with the operators of the assignment on it."""
    drawing = Drawing(720, 400, "Roofline of an H200 with the operators of this assignment")
    left, bottom, right = 66, 346, 700

    def x_of(intensity: float) -> float:
        return left + (log10(intensity) + 1.3) * 111

    def y_of(rate: float) -> float:
        return bottom - (log10(rate / 1e12) + 1) * 78

    for power in range(-1, 5):
        x = x_of(10**power)
        drawing.line(x, 30, x, bottom, "grid", thick=1)
        drawing.note(x, bottom + 18, f"{10**power:g}", anchor="middle")
    for power in range(-1, 4):
        y = y_of(10**power * 1e12)
        drawing.line(left, y, right, y, "grid", thick=1)
        drawing.note(left - 8, y + 4, f"{10**power:g}", anchor="end")
    drawing.text((left + right) / 2, bottom + 40, "operations per byte moved to or from HBM", anchor="middle", size=12)
    drawing.text(14, 22, "TFLOP/s, bf16", size=12)

    corner = BF16_PEAK / BANDWIDTH
    drawing.path([(left, y_of(BANDWIDTH * 10**-1.3)), (x_of(corner), y_of(BF16_PEAK)), (right, y_of(BF16_PEAK))],
                 "ink", thick=2.5)  # fmt: skip
    drawing.note(x_of(4), y_of(60e12) - 4, "4.28 TB/s", anchor="end")
    drawing.note(x_of(200), y_of(BF16_PEAK) - 10, "700 TFLOP/s")
    drawing.line(x_of(corner), y_of(BF16_PEAK), x_of(corner), bottom, "soft", dash=True, thick=1)
    drawing.note(x_of(corner) + 6, bottom - 8, f"corner: {corner:.0f}")

    points = [  # words, intensity, rate, colour, where the words go
        ("RMSNorm, eager", 0.1, BANDWIDTH * 0.1, "orange-line", (12, 5)),
        ("weighted sum, two operators", 1 / 3, BANDWIDTH / 3, "orange-line", (12, 5)),
        ("weighted sum and RMSNorm,\none kernel", 1, BANDWIDTH, "green-line", (12, 5)),
        ("attention, three operators", 64, 64 * BANDWIDTH, "orange-line", (-12, -8)),
        ("attention, fused:\nthe roof", 8192, BF16_PEAK, "green-line", (-4, -28)),
        ("a plain kernel, 545", 8192, 545e12, "blue-line", (-10, 22)),
    ]
    for words, intensity, rate, colour, (dx, dy) in points:
        x, y = x_of(intensity), y_of(rate)
        drawing.dot(x, y, colour, 5)
        anchor = "start" if dx > 0 else "end"
        if words.startswith("attention, fused"):
            anchor = "middle"
        drawing.text(x + dx, y + dy, words, size=12, anchor=anchor)
    return drawing


LOAD, PRODUCT, STEPS = 3, 1, 6  # a model: a load takes three times as long as the product of a tile


def schedule(n_stages: int) -> list[tuple[int, int, int]]:
    """Return (start of load, start of product, end) of each step.

    A buffer is loaded again once its product is done.
    """
    steps: list[tuple[int, int, int]] = []
    for step in range(STEPS):
        load = steps[step - n_stages][2] if step >= n_stages else 0
        product = max(load + LOAD, steps[-1][2] if steps else 0)
        steps.append((load, product, product + PRODUCT))
    return steps


def stages() -> Drawing:
    """Draw the same six steps with one, two and four tiles in flight."""
    drawing = Drawing(720, 372, "A loop of six steps with one, two and four stages")
    left, unit, y = 130, 23, 40
    drawing.box(left, 8, 3 * unit, 20, "load", "blue", size=12)
    drawing.box(left + 3 * unit + 8, 8, 50, 20, "product", "orange", size=12)
    drawing.note(left + 3 * unit + 70, 23, "number: the step; row: a buffer in shared memory")
    for n_stages in (1, 2, 4):
        steps = schedule(n_stages)
        drawing.text(14, y + 18, f"{n_stages} stage{'s' if n_stages > 1 else ''}", bold=True)
        drawing.note(14, y + 36, f"{steps[-1][2]} units of time")
        for step, (load, product, end) in enumerate(steps):
            top = y + 32 * (step % n_stages)
            drawing.box(left + load * unit, top, LOAD * unit, 26, str(step), "blue", size=12)
            if product > load + LOAD:
                drawing.rect(left + (load + LOAD) * unit, top + 8, (product - load - LOAD) * unit, 10, "hatch", "none")
            drawing.box(left + product * unit, top, (end - product) * unit, 26, str(step), "orange", size=12)
        y += 32 * n_stages + 24
    drawing.note(left, y + 8, "hatched: loaded, and waiting for the products before it")
    return drawing


def fusion_stops() -> Drawing:
    """Draw a graph as a compiler has it: what it merges, and an operator that it does not look into."""
    drawing = Drawing(720, 224, "What a compiler sees of an operator, and where its fusion stops")
    kernels = [  # operations, colour
        (("add", "cast"), "blue"),
        (("cs336::rmsnorm",), "orange"),
        (("product",), "grey"),
        (("SiLU", "times"), "blue"),
    ]
    x, top, height = 20.0, 44, 40
    for number, (names, colour) in enumerate(kernels):
        widths = [8 * len(name) + 28 for name in names]
        whole = sum(widths) + 10 * (len(widths) - 1) + 20
        drawing.rect(x, top - 14, whole, height + 28, "none", f"{colour}-line", dash=True, radius=6)
        if colour == "blue":
            drawing.note(x + whole / 2, top - 20, "merged: one kernel", anchor="middle")
        left = x + 10
        for name, width in zip(names, widths, strict=True):
            drawing.box(left, top, width, height, name, colour, size=12)
            left += width + 10
        if number:
            drawing.arrow(x + 12, 158, x + 12, top + height + 16, "green-line")
        drawing.arrow(x + whole - 12, top + height + 16, x + whole - 12, 158, "green-line")
        x += whole + 28
    drawing.box(20, 160, x - 48, 28, "memory: what one kernel leaves, and the next one reads", "green", size=12)
    drawing.note(20, 212, "An operator is one box: its kernels are not looked into, and nothing is merged across it.")
    return drawing
