"""How a matrix is divided: programs and tiles, strides, and sums over several programs."""

from assignment.figures.svg import Drawing

ROWS, COLS, ROWS_TILE_SIZE, COLS_TILE_SIZE = 37, 100, 16, 64  # handout/triton.md
COLOURS = ["blue", "orange", "green", "red"]


def programs_and_tiles() -> Drawing:
    """Draw 37 × 100 elements in tiles of 16 × 64: three programs, two steps each."""
    drawing = Drawing(720, 366, "A matrix of 37 × 100 in tiles of 16 × 64: three programs, each with two steps")
    left, top, unit = 108, 62, 4.3
    n_programs, n_steps = -(-ROWS // ROWS_TILE_SIZE), -(-COLS // COLS_TILE_SIZE)
    height, width = ROWS_TILE_SIZE * unit, COLS_TILE_SIZE * unit
    for program in range(n_programs):
        y = top + program * height
        real_rows = min(ROWS_TILE_SIZE, ROWS - program * ROWS_TILE_SIZE)
        drawing.text(left - 12, y + 28, f"program {program}", anchor="end", bold=True)
        drawing.note(left - 12, y + 46, f"{real_rows} real rows", anchor="end")
        for step in range(n_steps):
            x, real_cols = left + step * width, min(COLS_TILE_SIZE, COLS - step * COLS_TILE_SIZE)
            drawing.rect(x, y, width, height, "hatch", "grey-line", dash=True)
            drawing.rect(x, y, real_cols * unit, real_rows * unit, COLOURS[program], "none")
            drawing.rect(x, y, width, height, "none", f"{COLOURS[program]}-line")
            share = f"{real_rows} × {real_cols} of {ROWS_TILE_SIZE * COLS_TILE_SIZE} lanes"
            drawing.text(x + 8, y + 17, share if real_rows * real_cols < 1024 else "all 1024 lanes", size=11)
    drawing.rect(left, top, COLS * unit, ROWS * unit, "none", "ink", thick=2.5)
    for step in range(n_steps):
        drawing.arrow(left + step * width + 8, top - 12, left + (step + 1) * width - 8, top - 12)
        drawing.text(left + (step + 0.5) * width, top - 22, f"step {step}: start = {step * COLS_TILE_SIZE}",
                     anchor="middle", size=12)  # fmt: skip
    y = top + n_programs * height + 26
    drawing.rect(left, y, 26, 16, "none", "ink", thick=2.5)
    drawing.text(left + 34, y + 13, "the matrix: 37 × 100", size=12)
    drawing.rect(left + 190, y, 26, 16, "hatch", "grey-line", dash=True)
    drawing.text(left + 224, y + 13, "masked off: not read, not stored; these lanes hold `other`", size=12)
    masks = "row_mask ends the tiles of program 2 after row 36; col_mask those of step 1 after column 99."
    drawing.note(left, y + 42, masks)
    return drawing


VIEWS = [  # how it is written, shape, strides, offset
    ("x", (3, 4), (4, 1), 0),
    ("x.T", (4, 3), (1, 4), 0),
    ("x[:, ::2]", (3, 2), (4, 2), 0),
    ("x[1].expand(3, 4)", (3, 4), (0, 1), 4),
]


def strides() -> Drawing:
    """Draw one strip of memory with four tensors on it; cells give places in the strip."""
    drawing = Drawing(720, 318, "One strip of memory and four tensors that are views of it")
    cell, strip = 28, 40
    colours = {address: COLOURS[address // 4] for address in range(12)}
    drawing.note(20, 28, "memory: twelve numbers, one after another")
    for address in range(12):
        drawing.rect(20 + address * strip, 40, strip, 30, colours[address], f"{colours[address]}-line")
        drawing.text(20 + (address + 0.5) * strip, 60, str(address), anchor="middle")
    x = 20.0
    for name, shape, (row_stride, col_stride), offset in VIEWS:
        drawing.text(x, 112, name, bold=True)
        drawing.note(x, 130, f"shape {shape}")
        drawing.note(x, 146, f"strides ({row_stride}, {col_stride})")
        if offset:
            drawing.note(x, 162, f"offset {offset}")
        for i in range(shape[0]):
            for j in range(shape[1]):
                address = offset + i * row_stride + j * col_stride
                drawing.rect(x + j * cell, 174 + i * cell, cell, cell, colours[address], f"{colours[address]}-line")
                drawing.text(x + (j + 0.5) * cell, 193 + i * cell, str(address), anchor="middle", size=12)
        x += max(shape[1] * cell, 112) + 72
    words = "element (i, j) is number: offset + i · stride_row + j · stride_col."
    drawing.note(20, 306, f"{words} A stride of 0 reads the same number again.")
    return drawing


SIZES, N_ROWS, GROUP_TILE = [5, 0, 3, 8], 18, 4  # of groups; rows of all; rows of a tile


def groups() -> Drawing:
    """Draw rows of x in groups, the experts that they meet, and the tiles of rows that follow the groups."""
    drawing = Drawing(720, 376, "18 rows in groups of 5, 0, 3 and 8: five tiles of 4 rows, each within one group")
    top, unit, first, tile = 46, 17, 0, 0
    for x, words in ((64, "x, rows"), (214, "tiles of 4 rows"), (470, "weight, a matrix an expert")):
        drawing.text(x, 26, words, bold=True)
    for expert, size in enumerate(SIZES):
        colour, at = COLOURS[expert], 46 + 72 * expert
        drawing.box(470, at, 100, 52, f"weight[{expert}]", colour)
        drawing.note(580, at + 30, "" if size else "no rows, no tile")
        for row in range(first, first + size):
            drawing.rect(64, top + row * unit, 110, unit, colour, f"{colour}-line")
            drawing.note(56, top + row * unit + 13, str(row), anchor="end")
        for start in range(first, first + size, GROUP_TILE):
            real = min(GROUP_TILE, first + size - start)
            y = top + start * unit
            drawing.rect(214, y + 1, 110, real * unit - 2, colour, f"{colour}-line", thick=2)
            drawing.text(222, y + 13, f"{tile}: row {start}" + f" to {start + real - 1}" * (real > 1), size=11)
            drawing.line(326, y + real * unit / 2, 466, at + 26, f"{colour}-line")
            tile += 1
        first += size
    for row in range(first, N_ROWS):
        drawing.rect(64, top + row * unit, 110, unit, "hatch", "grey-line", dash=True)
        drawing.note(56, top + row * unit + 13, str(row), anchor="end")
    drawing.note(182, top + first * unit + 20, "behind the last group: y is 0")
    drawing.note(20, 368, "A tile ends with its group: tile 1 has one row, since row 5 is another expert's.")
    return drawing


SHARDS = [5, 3]  # rows of each rank


def ranks() -> Drawing:
    """Draw how two ranks push their rows to both buffers, signal, and multiply their own rows first."""
    drawing = Drawing(
        720, 344, "Two ranks: each stores its rows to both buffers, signals, and multiplies its own first"
    )
    unit, columns = 17, (20, 130, 306, 452, 590)
    for x, words in zip(columns, ("", "a_shard", "buffer", "signals", "tiles of c"), strict=True):
        drawing.text(x, 26, words, bold=True)
    for rank, size in enumerate(SHARDS):
        top = 46 + 142 * rank
        drawing.text(columns[0], top + 48, f"rank {rank}", bold=True)
        colour = COLOURS[rank]
        drawing.box(columns[1], top, 100, size * unit, f"{size} rows", colour, size=12)
        for source, rows in enumerate(SHARDS):
            of, y = COLOURS[source], top + source * (max(SHARDS) * unit // 2 + 26)
            drawing.rect(columns[2], y, 100, 56, "hatch", "grey-line", dash=True)
            drawing.box(columns[2], y, 100, 56 * rows / max(SHARDS), f"of rank {source}", of, size=12)
            drawing.box(columns[3], y + 8, 90, 30, f"[{source}] = call", of, size=12)
            drawing.arrow(columns[3] + 94, y + 23, columns[4] - 4, y + 23)
            drawing.box(columns[4], y + 4, 110, 38, "at once" if source == rank else "after a wait", of, size=12)
        for to in range(len(SHARDS)):
            y = 46 + 142 * to + rank * (max(SHARDS) * unit // 2 + 26) + 14
            drawing.arrow(columns[1] + 102, top + size * unit / 2, columns[2] - 4, y, f"{colour}-line")
    words = "Every part of a buffer has room for the most rows."
    drawing.note(20, 336, f"{words} Arrows to the other rank cross the link, and so do its signals.")
    return drawing


def weighted_sum() -> Drawing:
    """Draw a tile of x with its pieces of w and of grad_y, in forward and backward."""
    drawing = Drawing(
        720, 318, "One tile of x in the weighted sum: forward adds along rows, backward serves both gradients"
    )
    for x, title in ((30, "forward"), (448, "backward: one reading of x")):
        drawing.text(x, 26, title, bold=True)
    for x, above in ((30, "w, a piece"), (448, "w, a piece")):
        drawing.box(x, 44, 150, 26, above, "orange", size=12)
        drawing.arrow(x + 75, 72, x + 75, 88)
        drawing.box(x, 90, 150, 96, "tile of x\nROWS_TILE_SIZE ×\nD_TILE_SIZE", "blue", size=12)
    drawing.arrow(182, 138, 210, 138)
    drawing.box(214, 90, 42, 96, "y", "green")
    drawing.text(30, 210, "along each row, axis 1: acc += Σ x · w", size=12)
    drawing.note(30, 228, "stored after the last tile of columns")
    drawing.box(358, 90, 56, 96, "grad_y", "orange", size=12)
    drawing.arrow(416, 138, 444, 138)
    drawing.arrow(600, 138, 624, 138)
    drawing.box(628, 90, 80, 96, "tile of\ngrad_x:\ngrad_y · w", "green", size=12)
    drawing.arrow(523, 188, 523, 212)
    drawing.box(448, 214, 150, 30, "one row of partial", "green", size=12)
    drawing.text(448, 264, "down each column, axis 0: Σ grad_y · x", size=12)
    drawing.note(30, 300, "Bytes: forward reads x. Backward reads x and writes grad_x. All else is small beside them.")
    return drawing


def partial_sums() -> Drawing:
    """Draw three programs that stride over rows of x, and the sum of their partial sums."""
    drawing = Drawing(640, 316, "Three programs stride over row tiles; each writes one row of partial column sums")
    n_programs, n_tiles = 3, 8
    for x, words in ((20, "x, grad_y"), (130, "tiles, one after another"), (372, "registers"), (506, "memory")):
        drawing.text(x, 26, words, bold=True)
    for tile in range(n_tiles):
        drawing.box(20, 42 + 24 * tile, 76, 22, str(tile), COLOURS[tile % n_programs])
    for program in range(n_programs):
        y, colour = 42 + 64 * program, COLOURS[program]
        drawing.note(130, y + 12, f"program {program}")
        for turn, tile in enumerate(range(program, n_tiles, n_programs)):
            drawing.box(130 + 64 * turn, y + 18, 44, 32, str(tile), colour)
            if turn:
                drawing.arrow(130 + 64 * turn - 19, y + 34, 130 + 64 * turn - 1, y + 34)
        drawing.arrow(174 + 64 * turn, y + 34, 370, y + 34)
        drawing.box(372, y + 18, 92, 32, "column sums", colour, size=12)
        drawing.arrow(466, y + 34, 504, y + 34)
        drawing.box(506, y + 18, 116, 32, f"row {program} of partial", colour, size=12)
    drawing.arrow(564, 222, 564, 250)
    drawing.note(556, 240, "after the kernel: sum over the three rows", anchor="end")
    drawing.box(506, 252, 116, 32, "grad_weight", "grey")
    drawing.note(
        20, 304, "No two programs write to one cell. A row for each program, not for each tile: partial is small."
    )
    return drawing


N, TILE_SIZE = 3000, 1024  # handout.md


def vector_add() -> Drawing:
    """Draw the programs of the first kernel over its elements, with the mask of the last."""
    drawing = Drawing(640, 214, "Three programs of 1024 places over 3000 elements; the last masks 72 places")
    left, width, n_programs = 20.0, 200, -(-N // TILE_SIZE)
    unit = width / TILE_SIZE
    end = left + N * unit
    for program in range(n_programs):
        x, first = left + program * width, program * TILE_SIZE
        last = min(first + TILE_SIZE, N)
        drawing.text(x + width / 2, 28, f"program {program}", anchor="middle", bold=True, size=14)
        drawing.note(x + width / 2, 48, f"at = {first} … {first + TILE_SIZE - 1}", anchor="middle")
        drawing.rect(x, 60, width, 44, "hatch", "grey-line", dash=True)
        drawing.rect(x, 60, (last - first) * unit, 44, COLOURS[program], "none")
        drawing.rect(x, 60, width, 44, "none", f"{COLOURS[program]}-line", thick=2)
        places = "" if last - first == TILE_SIZE else f" of {TILE_SIZE}"
        drawing.text(x + (last - first) * unit / 2, 87, f"{last - first}{places}", anchor="middle", size=14)
    drawing.rect(left, 118, end - left, 30, "grey", "ink", thick=2)
    drawing.text((left + end) / 2, 138, f"x in memory: {N} elements", anchor="middle", size=14)
    drawing.line(end, 54, end, 160, "red-line", thick=2)
    drawing.text(end + 12, 178, f"n = {N}", anchor="end", size=14, colour="red-line")
    drawing.note(left, 178, f"mask = at < n: the last {n_programs * TILE_SIZE - N} places of program {n_programs - 1}")
    drawing.note(left, 196, "neither load nor store: no memory is there.")
    return drawing


def shapes() -> Drawing:
    """Draw two tiles of one dimension that make one of two, and what a sum along either axis leaves."""
    drawing = Drawing(640, 304, "rows[:, None] and cols[None, :] make a tile of 2 × 4; a sum along an axis removes it")
    rows, cols, left, top, w, h = (0, 10), (0, 1, 2, 3), 206, 92, 50, 40
    tile = [[row + col for col in cols] for row in rows]
    drawing.text(left + 2 * w, 28, "cols[None, :]", anchor="middle", bold=True)
    for j, col in enumerate(cols):
        drawing.box(left + j * w, 38, w - 4, 28, str(col), "orange", size=14)
    drawing.note(left + 4 * w + 6, 57, "(1, 4): the same in each row")
    drawing.text(144, top + 12, "rows[:, None]", anchor="end", bold=True)
    drawing.note(144, top + 32, "(2, 1): the same", anchor="end")
    drawing.note(144, top + 48, "in each column", anchor="end")
    for i, row in enumerate(rows):
        drawing.box(154, top + i * h, 36, h - 4, str(row), "blue", size=14)
        for j in range(len(cols)):
            drawing.box(left + j * w, top + i * h, w - 4, h - 4, str(tile[i][j]), "grey", size=14)
        drawing.box(left + 4 * w + 36, top + i * h, 40, h - 4, str(sum(tile[i])), "green", size=14)
    drawing.text(176, 57, "+", size=18)
    drawing.arrow(left + 4 * w + 2, top + h - 2, left + 4 * w + 32, top + h - 2)
    drawing.text(left + 4 * w + 84, top + 18, "tl.sum(x, axis=1)", bold=True)
    drawing.note(left + 4 * w + 84, top + 38, "(2,): a number a row")
    drawing.note(left + 4 * w + 84, top + 54, "(axis 1 is gone)")
    drawing.arrow(left + 2 * w, top + 2 * h + 2, left + 2 * w, top + 2 * h + 30)
    for j in range(len(cols)):
        total = sum(tile[i][j] for i in range(len(rows)))
        drawing.box(left + j * w, top + 2 * h + 34, w - 4, 32, str(total), "green", size=14)
    drawing.text(left - 10, top + 2 * h + 48, "tl.sum(x, axis=0)", anchor="end", bold=True)
    drawing.note(left - 10, top + 2 * h + 66, "(4,): a number a column", anchor="end")
    drawing.note(20, 274, "To use sums of rows in the tile again, give them back the axis: sums[:, None] is (2, 1).")
    drawing.note(20, 292, "sums[None, :] would be (1, 2): an error here, and a wrong result where a tile is square.")
    return drawing


def removed_component() -> Drawing:
    """Draw h, its part along x̂, and what is left: the direction of RMSNorm's grad_x."""
    drawing = Drawing(640, 270, "RMSNorm’s backward pass removes the component of h along x̂")
    (x0, y0), along, across = (60.0, 224.0), (0.96, -0.28), (-0.28, -0.96)
    part, rest = 190.0, 130.0

    def at(a: float, b: float) -> tuple[float, float]:
        return x0 + a * along[0] + b * across[0], y0 + a * along[1] + b * across[1]

    drawing.line(*at(-30, 0), *at(300, 0), "grid")
    drawing.arrow(*at(0, 0), *at(270, 0), "grey-line", thick=2)
    drawing.path([at(0, rest), at(part, rest), at(part, 0)], "soft", dash=True)
    drawing.path([at(part - 12, 0), at(part - 12, 12), at(part, 12)], "soft")
    drawing.arrow(*at(0, 0), *at(part, 0), "red-line", thick=3)
    drawing.arrow(*at(0, 0), *at(0, rest), "green-line", thick=3)
    drawing.arrow(*at(0, 0), *at(part, rest), "blue-line", thick=3)
    x, y = at(part, rest)
    drawing.text(x + 10, y + 4, "h = grad_y · w", colour="blue-line", size=14)
    x, y = at(0, rest)
    drawing.text(x - 14, y - 54, "h − x̂ · mean(h x̂)", colour="green-line", size=14)
    x, y = at(270, 0)
    drawing.text(x + 8, y + 4, "x̂", size=14)
    x, y = at(part / 2, 0)
    drawing.text(x + 8, y + 28, "x̂ · mean(h x̂): removed", colour="red-line", size=14)
    drawing.text(
        372,
        58,
        "y does not change when x grows\nalong itself: x̂ is x divided by\nits own length. So no gradient\n"
        "may point along x̂: what h has\nthere is taken out, and what is\nleft is scaled by r.",
    )
    drawing.note(20, 258, "x̂ has length √d, hence a mean in the place of a sum. (Exactly so where eps is 0.)")
    return drawing


def block_scales() -> Drawing:
    """Draw two factors in float8 with their blocks, and a step of their product."""
    drawing = Drawing(720, 330, "Blocks of two factors and their scales: 1 × 128 of a, 128 × 128 of b")
    left, top, width, n_blocks, n_rows, height = 30, 66, 100, 3, 8, 18
    middle = left + n_blocks * width + 60
    for block in range(n_blocks):
        colour, x = COLOURS[block], left + block * width
        drawing.text(x + width / 2, top - 10, f"g = {block}", anchor="middle", size=12)
        for row in range(n_rows):
            y = top + row * height
            drawing.rect(x, y, width, height, colour, f"{colour}-line")
            drawing.text(x + width / 2, y + 14, f"s[{row}, {block}]", anchor="middle", size=11)
        x = middle + block * width
        drawing.text(x + width / 2, top - 10, f"g = {block}", anchor="middle", size=12)
        for half in range(2):
            below = top + half * n_rows * height / 2
            drawing.rect(x, below, width, n_rows * height / 2, colour, f"{colour}-line")
            drawing.text(x + width / 2, below + n_rows * height / 4 + 5, f"t[{half}, {block}]", anchor="middle")
    drawing.text(left, 24, "a (m, k)", bold=True)
    drawing.note(left + 70, 24, "a scale for each row and 128 terms")
    drawing.text(middle, 24, "b (n, k)", bold=True)
    drawing.note(middle + 70, 24, "a scale for 128 rows and 128 terms")
    y = top + n_rows * height + 36
    drawing.text(left, y, "one step of a tile of c, for the terms of g:", bold=True)
    drawing.box(left, y + 14, 190, 36, "part = a[:, g] b[:, g]ᵀ", COLOURS[1])
    drawing.arrow(left + 194, y + 32, left + 226, y + 32)
    drawing.box(left + 230, y + 14, 200, 36, "part · s[i, g] · t[h, g]", COLOURS[1])
    drawing.arrow(left + 434, y + 32, left + 466, y + 32)
    drawing.box(left + 470, y + 14, 190, 36, "total += …, in float32")
    drawing.note(
        left,
        y + 74,
        "s belongs to the row i of c, t to the block h of its column: both change with g.",
    )
    return drawing
