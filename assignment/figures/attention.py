"""Attention: bytes, the recurrence, causal tiles, recomputation in backward, lost updates."""

from math import exp, log

from assignment.figures.svg import Drawing

# the problem of handout/costs.md#three-operators
HEADS, TOKENS, HEAD_DIM, BF16 = 16, 16_384, 128, 2
QKVO = HEADS * 4 * TOKENS * HEAD_DIM * BF16
SQUARE = HEADS * TOKENS * TOKENS * BF16


def traffic() -> Drawing:
    """Draw what crosses between HBM and the chip: three operators, and one kernel."""
    drawing = Drawing(720, 430, "Traffic of attention written as three operators, and as one kernel")
    three = [
        ("S = Q Kᵀ", "reads Q, K", "writes S", SQUARE),
        ("P = softmax(S)", "reads S", "writes P", 2 * SQUARE),
        ("O = P V", "reads P, V", "writes O", SQUARE),
    ]
    drawing.text(20, 28, "three operators", bold=True)
    for row, (name, reads, writes, n_bytes) in enumerate(three):
        y = 44 + 52 * row
        drawing.box(20, y, 96, 36, "HBM", "blue")
        drawing.arrow(118, y + 18, 238, y + 18)
        drawing.text(178, y + 12, reads, anchor="middle", size=12)
        drawing.box(240, y, 140, 36, name, "orange")
        drawing.arrow(382, y + 18, 502, y + 18)
        drawing.text(442, y + 12, writes, anchor="middle", size=12)
        drawing.box(504, y, 60, 36, "HBM", "blue")
        words = f"{n_bytes / 1e9:.1f} GB of n × n"
        drawing.text(578, y + 23, words, size=12, colour="red-line")
    drawing.text(20, 226, "one kernel", bold=True)
    drawing.box(20, 240, 96, 36, "HBM", "blue")
    drawing.arrow(118, 258, 196, 258)
    drawing.text(157, 252, "Q, K, V", anchor="middle", size=12)
    drawing.rect(198, 238, 276, 40, "none", "green-line", dash=True, radius=4)
    drawing.text(336, 263, "a tile of S, of P; acc: on the chip only", anchor="middle", size=12)
    drawing.arrow(476, 258, 502, 258)
    drawing.text(488, 250, "O", anchor="middle", size=12)
    drawing.box(504, 240, 60, 36, "HBM", "blue")
    drawing.text(578, 263, "none", size=12, colour="green-line")

    drawing.note(20, 320, "bytes in all, to scale (16 heads, 16,384 tokens, d = 128, bf16)")
    for row, (name, n_bytes, colour) in enumerate(
        [("three operators", QKVO + 4 * SQUARE, "orange"), ("one kernel", QKVO, "green")]
    ):
        y, width = 336 + 40 * row, 460 * n_bytes / (QKVO + 4 * SQUARE)
        drawing.text(136, y + 19, name, anchor="end", size=12)
        drawing.rect(146, y, width, 28, colour, f"{colour}-line")
        drawing.text(154 + width, y + 19, f"{n_bytes / 1e9:.3g} GB", size=12)
    return drawing


LOGITS = [[1.0, 3.0, 2.0], [5.0, 0.0, 4.0], [2.0, 1.0, 3.0]]
VALUES = [[1.0, 2.0, 0.0], [4.0, 1.0, 2.0], [0.0, 3.0, 1.0]]


def steps() -> list[tuple[float, float, list[float], float, float]]:
    """Return (m, α, tile of P, l, acc) after each tile of keys.

    There is one query, and values are single numbers.
    """
    m, total, acc, found = float("-inf"), 0.0, 0.0, []
    for logits, values in zip(LOGITS, VALUES, strict=True):
        m_new = max(m, *logits)
        alpha, p = exp(m - m_new), [exp(s - m_new) for s in logits]
        total = alpha * total + sum(p)
        acc = alpha * acc + sum(a * v for a, v in zip(p, values, strict=True))
        m = m_new
        found.append((m, alpha, p, total, acc))
    return found


def online_softmax() -> Drawing:
    """Draw a query with three tiles of three keys: every number of the recurrence."""
    drawing = Drawing(720, 432, "The online softmax on three tiles of three keys, with every number")
    columns = {"S, v": 82, "m": 186, "α": 246, "P = exp(S − m)": 362, "l": 512, "acc": 640}
    for name, x in columns.items():
        drawing.text(x, 30, name, anchor="middle", bold=True)
    drawing.note(14, 66, "before")
    for name, words in (("m", "−∞"), ("l", "0"), ("acc", "0")):
        drawing.text(columns[name], 66, words, anchor="middle")
    previous = ("0", "0")
    for row, (logits, values, (m, alpha, p, total, acc)) in enumerate(zip(LOGITS, VALUES, steps(), strict=True)):
        y = 84 + 104 * row
        grew = alpha < 1
        drawing.rect(8, y, 704, 92, "grey" if row % 2 else "none", "grid", radius=4)
        drawing.note(16, y + 20, f"tile {row}")
        for key, logit in enumerate(logits):
            drawing.box(18 + 44 * key, y + 28, 40, 26, f"{logit:g}", "orange" if logit == m else "blue")
            drawing.box(18 + 44 * key, y + 58, 40, 26, f"{values[key]:g}", "grey")
        drawing.text(columns["m"], y + 48, f"{m:g}", anchor="middle", bold=grew)
        drawing.text(columns["α"], y + 48, f"{alpha:.3f}", anchor="middle", bold=grew,
                     colour="red-line" if grew else "ink")  # fmt: skip
        for key, a in enumerate(p):
            drawing.text(columns["P = exp(S − m)"] + 56 * (key - 1), y + 48, f"{a:.3f}", anchor="middle")
        drawing.text(columns["l"], y + 36, f"{total:.3f}", anchor="middle", bold=True)
        drawing.text(columns["acc"], y + 36, f"{acc:.3f}", anchor="middle", bold=True)
        drawing.text(columns["l"], y + 56, f"α · {previous[0]} + ΣP", anchor="middle", size=11, colour="soft")
        drawing.text(columns["acc"], y + 56, f"α · {previous[1]} + ΣPv", anchor="middle", size=11, colour="soft")
        previous = (f"{total:.3f}", f"{acc:.3f}")
    m, _, _, total, acc = steps()[-1]
    drawing.text(16, 418, f"o = acc / l = {acc / total:.4f}", bold=True)
    drawing.text(176, 418, f"lse = m + ln l = {m + log(total):.4f}", bold=True)
    drawing.note(704, 418, "orange: a new maximum; red: α < 1, old sums shrink", anchor="end")
    return drawing


TILE = 32


def kind_of_tile(query_tile: int, key_tile: int) -> str:
    """Return whether a causal kernel skips a tile, masks its diagonal, or does nothing."""
    last_query, first_key = (query_tile + 1) * TILE - 1, key_tile * TILE
    if first_key > last_query:
        return "skipped"
    return "full" if first_key + TILE - 1 <= query_tile * TILE else "diagonal"


def causal_tiles() -> Drawing:
    """Draw the tiles that a causal kernel visits, for as many, fewer and more queries than keys."""
    drawing = Drawing(720, 320, "Causal tiles: full, on the diagonal, skipped; for three pairs of lengths")
    unit, x, colours = 1.28, 34.0, {"full": "green", "diagonal": "orange", "skipped": "none"}
    for n_queries, n_keys in ((112, 112), (80, 144), (144, 80)):
        n_rows, n_cols, side = -(-n_queries // TILE), -(-n_keys // TILE), TILE * unit
        kinds = {(i, j): kind_of_tile(i, j) for i in range(n_rows) for j in range(n_cols)}
        drawing.text(x, 24, f"{n_queries} queries, {n_keys} keys", bold=True)
        visited = sum(kind != "skipped" for kind in kinds.values())
        drawing.note(x, 42, f"{visited} of {len(kinds)} tiles visited")
        for (i, j), kind in kinds.items():
            drawing.rect(x + j * side, 52 + i * side, side, side, colours[kind], "grey-line", dash=kind == "skipped")
            bottom, right = (max(0, (i + 1) * TILE - n_queries) * unit, max(0, (j + 1) * TILE - n_keys) * unit)
            if right:
                drawing.rect(x + (j + 1) * side - right, 52 + i * side, right, side, "hatch", "none")
            if bottom:
                drawing.rect(x + j * side, 52 + (i + 1) * side - bottom, side - right, bottom, "hatch", "none")
        drawing.rect(x, 52, n_keys * unit, n_queries * unit, "none", "ink", thick=2)
        n = min(n_queries, n_keys) * unit
        drawing.line(x, 52, x + n, 52 + n, "ink")
        x += n_cols * side + 42
    for x, colour, words in ((34, "green", "full: no comparison"), (216, "orange", "crossed by the diagonal: compare"),
                             (460, "none", "skipped"), (560, "hatch", "past an end: mask")):  # fmt: skip
        drawing.rect(x, 288, 18, 16, colour, "grey-line", dash=colour == "none")
        drawing.text(x + 24, 301, words, size=12)
    return drawing


def recomputation() -> Drawing:
    """Draw what forward saves for backward: o and one number a query, to recompute P by tiles."""
    drawing = Drawing(720, 300, "Forward leaves o and lse; backward makes each tile of P again")
    drawing.text(20, 28, "forward", bold=True)
    drawing.text(276, 28, "kept in HBM", bold=True)
    drawing.text(486, 28, "backward, tile by tile", bold=True)
    drawing.box(20, 66, 150, 44, "S, P: tiles on the\nchip, forgotten", "grey", size=12)
    sizes = {"q, k, v": QKVO * 3 / 4, "o": QKVO / 4, "lse": HEADS * TOKENS * 4}
    for row, (name, n_bytes) in enumerate(sizes.items()):
        y = 44 + 42 * row
        drawing.box(276, y, 74, 32, name, "blue")
        unit, words = (1e9, "GB") if n_bytes > 1e9 else (1e6, "MB")
        drawing.note(358, y + 21, f"{n_bytes / unit:.0f} {words}")
    drawing.arrow(172, 88, 272, 102)
    drawing.arrow(172, 92, 272, 144)
    drawing.rect(276, 176, 140, 40, "none", "red-line", dash=True, radius=3)
    drawing.text(346, 193, "P: not kept", anchor="middle", size=12, colour="red-line")
    drawing.text(346, 209, f"it would be {SQUARE / 1e9:.1f} GB", anchor="middle", size=12, colour="red-line")
    drawing.box(486, 44, 214, 32, "S ← scale · Q Kᵀ", "orange")
    drawing.box(486, 98, 214, 32, "P ← exp(S − lse)", "orange")
    drawing.box(486, 152, 214, 32, "dP, dS, the gradients", "grey", size=12)
    drawing.arrow(593, 78, 593, 96)
    drawing.arrow(593, 132, 593, 150)
    drawing.arrow(420, 60, 482, 60)
    drawing.arrow(420, 144, 482, 118)
    words = "16 heads, 16,384 tokens, d = 128, bf16; lse in float32. One matrix product and one exponential a tile"
    drawing.note(20, 250, f"{words}\nbring P back: no maximum and no sum, since lse holds both.")
    return drawing


def walk(drawing: Drawing, x: float, y: float, owned: int, by_column: bool) -> None:
    """Draw 5 × 5 tiles of S, with the column or row that one program visits, in order."""
    side, n = 42, 5
    for i in range(n):
        for j in range(n):
            mine = (j if by_column else i) == owned
            colour = ("orange" if by_column else "blue") if mine else "none"
            drawing.rect(x + j * side, y + i * side, side, side, colour, "grey-line")
    for step in range(n):
        i, j = (step, owned) if by_column else (owned, step)
        drawing.text(x + j * side + side / 2, y + i * side + 26, str(step), anchor="middle")


def backward_walks() -> Drawing:
    """Draw two kernels: a program per column of tiles, and a program per row."""
    drawing = Drawing(720, 372, "The two kernels of backward: which tile each program owns, and which it visits")
    drawing.text(60, 26, "kernel 1: dK and dV", bold=True)
    drawing.text(400, 26, "kernel 2: dQ", bold=True)
    for x in (60, 400):
        drawing.text(x, 48, "keys →", size=11, colour="soft")
        drawing.text(x - 10, 70, "queries", size=11, colour="soft", anchor="end")
        drawing.arrow(x - 26, 78, x - 26, 108, thick=1)
    walk(drawing, 60, 56, owned=3, by_column=True)
    walk(drawing, 400, 56, owned=2, by_column=False)
    drawing.note(276, 150, "loads Q, dO,\nlse, D\nin each step")
    drawing.note(616, 150, "loads K, V\nin each step")
    drawing.text(60, 292, "owns: K, V of tile 3; in registers dK, dV\nfour products a tile: S, dV, dP, dK", size=12)
    drawing.text(400, 292, "owns: Q, dO, lse, D of tile 2; in registers dQ\nthree products a tile: S, dP, dQ", size=12)
    drawing.note(60, 344, "Together seven products instead of five, and no cell that two programs write to.")
    return drawing


def lost_update() -> Drawing:
    """Draw load, add, store by two programs at once: one addition is lost."""
    drawing = Drawing(720, 300, "Two programs add to one cell of dQ without an atomic: one addition is lost")
    drawing.text(20, 28, "dQ[0, 0] is 10. Program A adds 1, program B adds 2. Right: 13.", bold=True)
    rows = {"program A": 66, "the cell": 136, "program B": 206}
    for name, y in rows.items():
        drawing.text(112, y + 20, name, anchor="end", size=12)
        drawing.line(122, y + 16, 690, y + 16, "grid", thick=1)
    for name, colour, events in (
        ("program A", "blue", {140: "load: 10", 262: "add: 11", 384: "store 11"}),
        ("program B", "orange", {200: "load: 10", 322: "add: 12", 506: "store 12"}),
    ):
        for x, words in events.items():
            drawing.box(x, rows[name], 92, 32, words, colour, size=12)
    for x, words, colour in ((140, "10", "grey"), (430, "11", "blue"), (560, "12", "red")):
        drawing.box(x, rows["the cell"], 60, 32, words, colour)
    drawing.arrow(170, 136, 176, 100)
    drawing.arrow(190, 168, 226, 204)
    drawing.arrow(440, 100, 456, 134)
    drawing.arrow(566, 204, 584, 170)
    drawing.text(632, 144, "A’s 1 is gone", size=12, colour="red-line")
    drawing.note(20, 266, "Time runs to the right. tl.atomic_add makes load, add and store a single step.")
    drawing.note(20, 282, "A cell for each program avoids the question.")
    return drawing
