"""Where a result is wrong, as a picture: one cell for each tile of its rows and columns."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

RIGHT, PARTLY, WRONG, NOT_A_NUMBER = ".", "+", "#", "N"
STATES = {  # what a cell says, and its colour: told apart without seeing red from green, on white and on black
    RIGHT: ("right", "#c8d6e5"),
    PARTLY: ("partly wrong", "#f0a868"),
    WRONG: ("wrong", "#d35400"),
    NOT_A_NUMBER: ("NaN, or never written", "#5b2c6f"),
}
MAX_INCHES = 9.0
INCHES = 0.28  # of a cell, where there is room


@dataclass(frozen=True)
class TileMap:
    """One matrix of a result, such as o[1, 0], in tiles."""

    name: str  # "o[1, 0]"
    case: str  # "77 queries, 77 keys, d 64, causal, bfloat16"
    shape: tuple[int, int]  # of the matrix; a vector is a row
    tile: tuple[int, int]
    cells: tuple[str, ...]  # a string for each row of tiles, a character of STATES for each tile: the worst inside


def draw(tiles: TileMap, file: Path) -> None:
    """Draw a map to a file; raises ValueError if the map is none, OSError if the file cannot be written."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    rows, columns = grid(tiles)
    inches = min(INCHES, MAX_INCHES / max(rows, columns))
    figure = Figure(figsize=(max(columns * inches, 3.5) + 1.0, max(rows * inches, 0.5) + 1.8), layout="constrained")
    axes = figure.subplots()
    order = list(STATES)
    colours = [STATES[state][1] for state in order]
    axes.pcolormesh(
        [tiles.tile[1] * i for i in range(columns)] + [tiles.shape[1]],
        [tiles.tile[0] * i for i in range(rows)] + [tiles.shape[0]],
        [[order.index(cell) for cell in row] for row in tiles.cells],
        cmap=colour_map(colours), vmin=0, vmax=len(order) - 1, edgecolors="white", linewidth=0.5,
    )  # fmt: skip
    axes.invert_yaxis()  # row 0 is on top
    axes.set(xlabel="column", ylabel="row", title=f"{tiles.name}\n{tiles.case}")
    seen = {cell for row in tiles.cells for cell in row}
    legend = [Patch(color=colour, label=label) for state, (label, colour) in STATES.items() if state in seen]
    figure.legend(handles=legend, loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(file, dpi=130)


def grid(tiles: TileMap) -> tuple[int, int]:
    """Return how many tiles there are down and across."""
    rows, columns = (-(-size // tile) for size, tile in zip(tiles.shape, tiles.tile, strict=True))
    if [len(row) for row in tiles.cells] != [columns] * rows or set("".join(tiles.cells)) - STATES.keys():
        raise ValueError(f"expected {rows} × {columns} cells of {' '.join(STATES)}, got {tiles.cells}")
    return rows, columns


def colour_map(colours: list[str]) -> Any:
    from matplotlib.colors import ListedColormap

    return ListedColormap(colours)
