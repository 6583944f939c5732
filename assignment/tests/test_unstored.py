"""What a call has not stored, and what that is put down to."""

import pytest
import torch

from assignment.player.missing_results import never_stored
from assignment.simulator.undefined import fill
from tests.operators import about

Q, K = torch.zeros(2, 50, 8), torch.zeros(2, 77, 8)
EMPTY_GRID = "_forward_kernel was launched with the grid (0, 2, 1), which is 0 programs"
ROWS_AT = {**about("flash_backward_triton")["rows_at"], **about("rmsnorm_backward")["rows_at"]}


def fresh(*shape):
    tensor = torch.empty(shape)
    fill(tensor)
    return tensor


def stored(n, *shape, axis=-2):
    """A result of which n rows are stored."""
    tensor = fresh(*shape)
    tensor.movedim(axis, 0)[:n] = 1
    return tensor


@pytest.mark.parametrize(
    ("names", "result", "grids", "inputs", "said"),
    [
        (["o"], stored(64, 2, 77, 8), [], [K, K, K], "of 77 rows 64 are stored: is the grid rounded down"),
        (["lse"], stored(64, 2, 77, axis=-1), [], [K, K, K], "of 77 rows 64 are stored: is the grid rounded down"),
        (
            ["grad_k"],
            stored(50, 2, 77, 8),
            [],
            [Q, K],
            "of 77 rows 50 are stored: does the grid count another tensor's rows?",
        ),
        (["grad_k"], stored(64, 2, 77, 8), [], [Q, K], "another tensor's rows, or is the grid rounded down"),
        (["grad_v"], stored(64, 2, 77, 8), [], [Q[:, :1], K], "another tensor's rows, or is the grid rounded down"),
        (["y"], stored(32, 33, axis=-1), [], [torch.zeros(3, 11, 4)], "of 33 rows 32 are stored: is the grid"),
        (["o"], fresh(2, 7, 8), [EMPTY_GRID], [Q], EMPTY_GRID),
        (["o"], fresh(2, 7, 8), [], [Q], "was something stored to a copy of it"),
        (["o"], stored(60, 2, 77, 8), [EMPTY_GRID], [K], ""),
        (["o"], stored(4, 2, 77, 8, axis=-1), [], [K], ""),
        (["grad_weight"], stored(64, 77, axis=-1), [], [K], ""),
    ],
)
def test_what_is_not_stored_is_put_down_to(names, result, grids, inputs, said):
    (line,) = never_stored(names, [[result]], grids, inputs, ROWS_AT)
    assert line.startswith(f"never stored: {int(result.ne(1).sum())} of the {result.numel()} elements of {names[0]}")
    assert (said in line) if said else line.endswith(")")


def test_what_is_stored_is_not_told():
    assert never_stored(["o"], [[torch.ones(2, 3)]]) == []
