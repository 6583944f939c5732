"""An L2 cache of a given size: what the order of programs makes it fetch."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from assignment.simulator import l2
from assignment.simulator.trace import Access, LaunchCost, Traffic

ROOT = Path(__file__).parents[2]
ITEMS = l2.LINE // 4  # float32 elements of a line


ORDERS = """
import torch
import triton
import triton.language as tl

@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, n, TILE_SIZE: tl.constexpr, GROUP_SIZE: tl.constexpr):
    n_tiles = n // TILE_SIZE
    tile = tl.program_id(0)
    row_tile = tile // (GROUP_SIZE * n_tiles) * GROUP_SIZE + tile % GROUP_SIZE
    col_tile = tile % (GROUP_SIZE * n_tiles) // GROUP_SIZE
    rows = row_tile * TILE_SIZE + tl.arange(0, TILE_SIZE)[:, None]
    cols = col_tile * TILE_SIZE + tl.arange(0, TILE_SIZE)[None, :]
    total = tl.zeros((TILE_SIZE, TILE_SIZE), dtype=tl.float32)
    for start in range(0, n, TILE_SIZE):
        terms = start + tl.arange(0, TILE_SIZE)
        a = tl.load(a_ptr + rows * n + terms[None, :])
        b = tl.load(b_ptr + terms[:, None] * n + cols)
        total = tl.dot(a, b, total)
    tl.store(c_ptr + rows * n + cols, total)


a, b = torch.randn(2, 256, 256)
for group_size in (1, 4):  # rows of tiles that are computed together
    product_kernel[(8 * 8,)](a, b, torch.empty(256, 256), 256, 32, group_size)
"""


def launch_of(*accesses: tuple[int, str, list[int]]) -> LaunchCost:
    """Return a launch of accesses (program, action, lines) to one tensor."""
    traffic = Traffic("x", "float32", (ITEMS * 8,), l2.LINE * 8, storage=0, itemsize=4)
    made = [Access(program, traffic, action, np.array(lines) * ITEMS) for program, action, lines in accesses]
    return LaunchCost("kernel", (2, 1, 1), [traffic], accesses=made)


@pytest.mark.parametrize(
    ("lines", "accesses", "expected"),
    [
        pytest.param(2, [(1, "loaded", [0]), (1, "loaded", [0])], 1, id="a line that is held"),
        pytest.param(2, [(1, "loaded", [0, 1, 2]), (1, "loaded", [0])], 4, id="the oldest line is dropped"),
        pytest.param(2, [(1, "loaded", [0, 1]), (1, "loaded", [0]), (1, "loaded", [2]), (1, "loaded", [0])], 3,
                     id="a line that is used stays"),
        pytest.param(1, [(1, "loaded", [0]), (1, "stored", [1]), (1, "loaded", [0])], 2, id="a store takes room"),
        pytest.param(1, [(1, "stored", [0]), (1, "loaded", [0])], 0, id="a store is no fetch"),
        pytest.param(1, [(2, "loaded", [0]), (1, "loaded", [0])], 1, id="two programs share"),
    ],
)  # fmt: skip
def test_cache_by_hand(lines: int, accesses: list, expected: int) -> None:
    launch = launch_of(*accesses)
    l2.fetch(launch, lines * l2.LINE, at_once=2)
    assert launch.tensors[0].fetched == expected * l2.LINE


def test_programs_take_turns() -> None:
    assert "".join(l2.in_turn(["abc", "d", "ef", "", "g"], 2)) == "adbcefg"


@pytest.mark.slow
def test_order_of_tiles_decides_what_is_fetched(tmp_path: Path) -> None:
    """Row after row takes all of b for each of 8 rows of tiles; 4 rows and 2 columns at once share both."""
    script = tmp_path / "orders.py"
    script.write_text(ORDERS)
    command = [sys.executable, "-m", "assignment.simulator", "--l2", "64", "--at-once", "8", str(script)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    times = [line.split()[-1] for line in done.stdout.splitlines() if " a_ptr " in line or " b_ptr " in line]
    assert times == ["1", "8", "4", "2"]
    assert "an L2 cache of 64 KB that serves 8 programs at once" in done.stdout
