"""The picture of where a result is wrong."""

import dataclasses

import pytest

from assignment.commands import picture

CELLS = ("..", "..", "#.", "N.", "++")
OVER = ((0.2, 0.1), (0.3, 0.9), (5.0, 0.4), (1e9, 0.4), (300.0, 2e4))
MAP = picture.TileMap("o[1, 0]", "77 queries, d 64, causal", (77, 64), (16, 32), CELLS, OVER)


def test_levels_are_by_the_largest_error():
    assert picture.levels(MAP) == [[0, 0], [0, 0], [1, 0], [4, 0], [2, 3]]


@pytest.mark.parametrize("cells", [(), ("..",), ("...",) * 5, ("?.",) * 5, ("..",) * 4 + (".",)], ids=str)
def test_a_map_of_another_form_is_refused(cells):
    with pytest.raises(ValueError, match="expected 5 × 2 cells"):
        picture.levels(dataclasses.replace(MAP, cells=cells))


def test_a_map_without_all_errors_is_refused():
    with pytest.raises(ValueError, match="expected 5 × 2 errors"):
        picture.levels(dataclasses.replace(MAP, over=((1.0, 2.0),)))
