"""Where a result is wrong and by how much, as a picture: one cell for each tile of its rows and columns."""

from collections.abc import Sequence
from dataclasses import dataclass

SIGNS = ".+#N"  # of a map's cells: right, partly wrong, wrong, NaN
NOT_A_NUMBER = "N"
# What a cell says, and its colour: told apart without seeing red from green, on white and on black.
LEVELS = {
    "right": "#c8d6e5",
    "off by up to 10 bounds": "#f3c18b",
    "off by up to 1,000 bounds": "#e07b2e",
    "off by more": "#a63a00",
    "NaN, or never written": "#5b2c6f",
}
REACH = (1.0, 10.0, 1000.0)  # the largest errors of the first levels, in bounds


@dataclass(frozen=True)
class TileMap:
    """One matrix of a result, such as o[1, 0], in tiles."""

    name: str  # "o[1, 0]"
    case: str  # "77 queries, 77 keys, d 64, causal, bfloat16"
    shape: Sequence[int]  # of the matrix; a vector is a row
    tile: Sequence[int]
    cells: Sequence[str]  # a string for each row of tiles, a character of SIGNS for each tile
    over: Sequence[Sequence[float]]  # likewise, the largest error in each tile, in its bounds


def grid(tiles: TileMap) -> tuple[int, int]:
    """Return how many tiles there are down and across."""
    rows, columns = (-(-size // tile) for size, tile in zip(tiles.shape, tiles.tile, strict=True))
    expected = [columns] * rows
    if [len(row) for row in tiles.cells] != expected or set("".join(tiles.cells)) - set(SIGNS):
        raise ValueError(f"expected {rows} × {columns} cells of {' '.join(SIGNS)}, got {tiles.cells}")
    if [len(row) for row in tiles.over] != expected:
        raise ValueError(f"expected {rows} × {columns} errors, got {tiles.over}")
    return rows, columns


def levels(tiles: TileMap) -> list[list[int]]:
    """Return the level of each cell, a place in LEVELS; raises ValueError if the map is none."""
    grid(tiles)
    rows = zip(tiles.cells, tiles.over, strict=True)
    return [[level(cell, error) for cell, error in zip(*row, strict=True)] for row in rows]


def level(cell: str, error: float) -> int:
    return len(LEVELS) - 1 if cell == NOT_A_NUMBER else sum(error > most for most in REACH)
