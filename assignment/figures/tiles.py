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
    drawing = Drawing(720, 356, "Three programs stride over row tiles; each writes one row of partial column sums")
    n_programs, n_tiles, height = 3, 8, 30
    drawing.text(20, 28, "grad_y and x: eight tiles of rows", bold=True)
    for tile in range(n_tiles):
        drawing.box(20, 42 + tile * height, 190, height - 4, f"tile {tile}: program {tile % n_programs}",
                    COLOURS[tile % n_programs], size=12)  # fmt: skip
    drawing.text(292, 28, "registers, float32", bold=True)
    drawing.text(510, 28, "partial (3, d)", bold=True)
    for program in range(n_programs):
        y = 76 + 72 * program
        for tile in range(program, n_tiles, n_programs):
            drawing.arrow(212, 55 + tile * height, 288, y + 14, f"{COLOURS[program]}-line", thick=1)
        drawing.box(292, y - 2, 158, 34, f"column sums of {program}", COLOURS[program], size=12)
        drawing.arrow(452, y + 15, 506, 62 + 34 * program, f"{COLOURS[program]}-line")
        drawing.box(510, 46 + 34 * program, 186, 30, f"row {program}", COLOURS[program], size=12)
    drawing.arrow(603, 150, 603, 190)
    drawing.note(614, 176, "sum over rows")
    drawing.box(510, 194, 186, 32, "grad_weight (d,)", "grey", size=12)
    drawing.note(
        20, 308, "No two programs write to the same cell, so nothing is lost, and every run adds in the same order."
    )
    drawing.note(20, 324, "The buffer has a row for each program, not for each row of x: it stays small.")
    return drawing
