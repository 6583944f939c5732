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


def keys_walk() -> Drawing:
    """Draw a program of the forward pass in its third step: Q stays, tiles of K and V come one after another."""
    drawing = Drawing(640, 330, "Forward: a program keeps its tile of Q while tiles of K and V pass")
    n, now, left, width = 5, 2, 150, 92
    drawing.text(left, 24, "K and V in HBM: one tile of each a step", bold=True)
    drawing.arrow(left + 300, 19, left + n * width - 8, 19)
    for key in range(n):
        x, colour = left + key * width, "orange" if key == now else "none"
        for row, name in enumerate("KV"):
            drawing.rect(x, 36 + 36 * row, width - 8, 30, colour, "orange-line", dash=key != now, radius=3)
            drawing.text(x + width / 2 - 4, 56 + 36 * row, f"{name} {key}", anchor="middle")
        drawing.rect(x, 142, width - 8, 60, "orange" if key == now else "none", "grey-line", dash=key != now, radius=3)
        words = "forgotten" if key < now else "S, then P" if key == now else "to come"
        drawing.text(x + width / 2 - 4, 177, words, anchor="middle", size=12, colour="ink" if key == now else "soft")
    middle = left + (now + 0.5) * width - 4
    drawing.arrow(middle, 104, middle, 140)
    drawing.box(20, 142, 96, 60, "Q: loaded\nonce, stays", "blue")
    drawing.arrow(118, 172, 148, 172)
    drawing.arrow(middle, 204, middle, 238)
    drawing.note(middle + 12, 226, "rescales by α, and adds")
    drawing.box(left, 240, n * width - 8, 36, "m, l, acc: in registers, from the first step to the last", "green")
    drawing.note(
        20, 304, "After the last tile: o = acc / l, lse = m + ln l. Causal: the walk ends at the last key that the tile"
    )
    drawing.note(
        20, 320, "of Q sees. Every other tile of Q has a program of its own, which walks along the same K and V."
    )
    return drawing


def recomputation() -> Drawing:
    """Draw what forward saves for backward: o and one number a query, to recompute P by tiles."""
    drawing = Drawing(640, 300, "Forward leaves o and lse; backward makes each tile of P again")
    sizes = {"q, k, v": QKVO * 3 / 4, "lse": HEADS * TOKENS * 4, "o": QKVO / 4}
    backward = ["S ← scale · Q Kᵀ", "P ← exp(S − lse)", "dP, dS, the gradients"]
    for x, words in ((20, "forward"), (236, "in HBM"), (446, "backward, tile by tile")):
        drawing.text(x, 26, words, bold=True)
    drawing.box(20, 42, 140, 144, "a tile of S, of P\non the chip,\nthen forgotten", "grey")
    for row, ((name, n_bytes), words) in enumerate(zip(sizes.items(), backward, strict=True)):
        y = 42 + 54 * row
        unit, suffix = (1e9, "GB") if n_bytes > 1e9 else (1e6, "MB")
        drawing.box(236, y, 134, 36, f"{name}: {n_bytes / unit:.0f} {suffix}", "blue")
        drawing.arrow(*((234, y + 18, 162, y + 18) if row == 0 else (162, y + 18, 234, y + 18)))
        drawing.arrow(372, y + 18, 444, y + 18)
        drawing.box(446, y, 176, 36, words, "grey" if row == 2 else "orange")
        if row:
            drawing.arrow(534, y - 18, 534, y - 1)
    drawing.rect(236, 204, 134, 44, "none", "red-line", dash=True, radius=3)
    drawing.text(303, 222, "P: not kept", anchor="middle", size=12, colour="red-line")
    drawing.text(303, 240, f"it would be {SQUARE / 1e9:.1f} GB", anchor="middle", size=12, colour="red-line")
    drawing.note(20, 272, "16 heads, 16,384 tokens, d = 128, bf16; lse in float32. One product and one exponential")
    drawing.note(
        20, 289, "a tile bring P back. k and v, too, are read by the last step, and grad_o, which is not kept."
    )
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
