"""The picture of where a result is wrong."""

import dataclasses

import pytest
from matplotlib import image

from assignment.commands import picture

CELLS = ("..", "..", "#.", "N.", "++")
OVER = ((0.2, 0.1), (0.3, 0.9), (5.0, 0.4), (1e9, 0.4), (300.0, 2e4))
MAP = picture.TileMap("o[1, 0]", "77 queries, d 64, causal", (77, 64), (16, 32), CELLS, OVER)
RIGHT, LITTLE, MUCH, MOST, NOT_A_NUMBER = picture.LEVELS.values()


def wrong_in(cells):
    """The map with these cells, all that is wrong being far off."""
    over = tuple(tuple(0.1 if cell == "." else 1e6 for cell in row) for row in cells)
    return dataclasses.replace(MAP, cells=cells, over=over)


def colours_in(file):
    pixels = image.imread(file)[..., :3].reshape(-1, 3)
    return {"#" + "".join(f"{round(255 * value):02x}" for value in pixel) for pixel in pixels.tolist()}


def test_every_level_that_occurs_has_its_colour(tmp_path):
    picture.draw(MAP, tmp_path / "all.png")
    assert {*picture.LEVELS.values()} <= colours_in(tmp_path / "all.png")
    picture.draw(wrong_in(("..",) * 4 + ("##",)), tmp_path / "wrong.png")
    found = colours_in(tmp_path / "wrong.png")
    assert MOST in found
    assert not {LITTLE, MUCH, NOT_A_NUMBER} & found


def test_levels_are_by_the_largest_error():
    assert picture.levels(MAP) == [[0, 0], [0, 0], [1, 0], [4, 0], [2, 3]]


def test_a_tile_at_the_edge_is_as_small_as_it_is(tmp_path):
    """Rows run downwards; the last 13 of 77 are a tile of their own"""
    cells = ("##",) + ("..",) * 4
    picture.draw(wrong_in(cells), tmp_path / "top.png")
    picture.draw(wrong_in(cells[::-1]), tmp_path / "bottom.png")
    wrong = tuple(int(MOST[i : i + 2], 16) / 255 for i in (1, 3, 5))
    heights = []
    for name in ("top", "bottom"):
        pixels = image.imread(tmp_path / f"{name}.png")[..., :3]
        middle = pixels[:, pixels.shape[1] // 3]
        rows = [i for i, pixel in enumerate(middle) if abs(pixel - wrong).max() < 0.01 and i < 0.7 * len(middle)]
        heights.append((rows[0], len(rows)))
    assert heights[0][0] < heights[1][0]
    assert heights[1][1] < heights[0][1]


@pytest.mark.parametrize("shape", [(1, 1), (20_000, 1), (1, 20_000), (4096, 4096)], ids=str)
def test_any_shape_fits_a_page(tmp_path, shape):
    rows, columns = (-(-size // 128) for size in shape)
    tiles = picture.TileMap("y", "a case", shape, (128, 128), ("#" * columns,) * rows, ((9.0,) * columns,) * rows)
    picture.draw(tiles, tmp_path / "page.png")
    assert max(image.imread(tmp_path / "page.png").shape) < 1600


@pytest.mark.parametrize("cells", [(), ("..",), ("...",) * 5, ("?.",) * 5, ("..",) * 4 + (".",)], ids=str)
def test_a_map_of_another_form_is_refused(tmp_path, cells):
    with pytest.raises(ValueError, match="expected 5 × 2 cells"):
        picture.draw(dataclasses.replace(MAP, cells=cells), tmp_path / "none.png")
    assert not list(tmp_path.iterdir())


def test_a_map_without_all_errors_is_refused():
    with pytest.raises(ValueError, match="expected 5 × 2 errors"):
        picture.levels(dataclasses.replace(MAP, over=((1.0, 2.0),)))
