"""How large a GPU host code hears of, and inputs so long that programs loop over several tiles."""

import functools
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from assignment.judge import rounds
from assignment.judge.door import Run
from assignment.judge.replies import Raised, read
from assignment.protocol.program import Launch, Program
from assignment.submission import Submission
from assignment.tests.pairs import FILE, IMPORTS, F, X, defined, request

SM = "torch.cuda.get_device_properties(0).multi_processor_count"
CACHED = f"import functools\n@functools.cache\ndef count():\n    return {SM}\n"


def told(at, **how):
    """The number that a call adds to X."""
    return round(float((at.ask(F, X, **how)[1][0] - X).mean()))


@pytest.mark.parametrize(
    ("before", "said"),
    [(f"n = {SM}\n", "n"), (CACHED, "count()"), ("", SM)],
    ids=["asked at import", "asked once and kept", "asked in each call"],
)
def test_host_code_hears_of_the_gpu_of_each_call(at, before, said):
    at.take(defined(f"return x + {said}", before=before))
    assert [told(at, multiprocessors=n) for n in (4, 132, 6, 6)] == [4, 132, 6, 6]
    assert told(at) == 132


def test_what_asks_nothing_is_imported_once(at):
    at.take(defined("calls.append(1)", "return x + len(calls)", before="calls = []\n"))
    assert [told(at, multiprocessors=n) for n in (4, 132)] == [1, 2]


def test_only_what_has_changed_is_asked_anew(at):
    asks = "torch.cuda.get_device_capability()"
    at.take(defined(f"calls.append({asks})", "return x + len(calls)", before="calls = []\n"))
    assert [told(at, multiprocessors=n) for n in (4, 6)] == [1, 2]
    assert told(at, target="a100") == 1


def test_a_file_that_a_call_imports_is_imported_anew(at):
    """Practice, which the package's __init__ does not import"""
    files = {"cs336_kernels/__init__.py": "", FILE: f"{IMPORTS}n = {SM}\ndef {F}(x):\n    return x + n\n"}
    at.pair.restart()
    at.stage.replace(Submission({path: text.encode() for path, text in files.items()}))
    assert [told(at, target=name) for name in ("h100", "a100", "b200")] == [132, 108, 148]


def test_a_kernel_that_is_imported_again_is_described_once(at):
    at.take(defined("return copied(x + n)", before=f"n = {SM}\n"))
    assert [told(at, multiprocessors=n) for n in (4, 6, 8)] == [4, 6, 8]
    assert len(at.pair.kernels) == 1


def launches(grid, n, **arguments):
    return [Launch(0, [grid, 1, 1], {"n": n, **arguments}, {}, None, False, 0)]


@pytest.mark.parametrize(
    ("grid", "arguments", "length"),
    [
        (lambda n: n, {}, 0),
        (lambda n: math.ceil(n / 48), {"SIZE": 16}, 0),
        (lambda n: 1 << n.bit_length(), {}, 0),
        (lambda n: min(n, 264), {}, 3 * 264),
        (lambda n: min(math.ceil(n / 32), 264), {}, 3 * 32 * 264),
        (lambda n: min(math.ceil(n / 32), 264), {"SIZE": 32, "D": 128}, 3 * 32 * 264),
        (lambda n: 132, {"SIZE": 16, "D": 128, "odd": 48}, 3 * 16 * 132),
        (lambda n: 132, {}, 3 * 132),
        (lambda n: math.ceil(n / math.ceil(n / 132)), {"SIZE": 8}, 3 * 8 * 132),
    ],
    ids=[
        "one row each", "a tile each", "a power of two", "capped", "tiles, capped", "tiles of a constant, capped",
        "fixed", "fixed, rows one by one", "a stretch of rows each",
    ],
)  # fmt: skip
def test_inputs_are_long_enough_for_three_rounds(grid, arguments, length):
    found = rounds.length(lambda n: launches(grid(n), n, **arguments), first=64, tile=64)
    assert found == pytest.approx(length, rel=0.02)


def test_programs_of_other_axes_share_no_rows():
    def both(n):
        return [launch._replace(grid=[min(n // 16, 8), 9, 1]) for launch in launches(1, n)]

    assert rounds.length(both, first=64, tile=1) == 24
    assert rounds.length(both, first=64, tile=32) == 24 * 16


def test_of_several_launches_the_longest_counts():
    both = lambda n: [*launches(n, n), *launches(min(n, 10), n), *launches(20, n)]  # noqa: E731
    assert rounds.length(both, first=64, tile=1) == 60


def test_a_launch_for_each_row_is_no_loop():
    counted = []

    def each(n):
        counted.append(n)
        return launches(1, n) * n

    assert rounds.length(each, first=1, tile=1) == 0
    assert counted == [1, 128]
    assert rounds.length(lambda n: [], first=1, tile=1) == 0


@pytest.mark.parametrize("kept", [False, True], ids=["nothing kept", "memory kept"])
def test_calls_that_are_not_played_leave_nothing(at, kept):
    """And the next one is right"""
    lines = ["y = copied(x + 1)", "kept.append(y)" if kept else "pass", "return copied(y) + len(kept)"]
    at.take(defined(*lines, before="kept = []\n"))
    for size in (7, 14):
        ended, found = at.pair.unplayed(request(F, "call", {"made": [("float32", [size, 64], None)]}), [])
        assert ended is None
        assert [launch.grid[0] for launch in found.launches()] == [size, size]
    at.pair.settle()
    assert torch.equal(at.ask(F, X)[1][0], X + 1 + kept)


def test_what_a_call_raises_is_told(at):
    at.take(defined("raise ValueError('too long')"))
    ended, found = at.pair.unplayed(request(F, "call", {"made": [("float32", [7], None)]}), [])
    at.pair.settle()
    assert isinstance(ended, Raised)
    assert found.launches() == []


class Worker:
    """One that notes what it is asked."""

    last, has_asked = Program(), True

    def __init__(self):
        self.asked = []

    def ask(self, request, tensors):
        self.asked.append(request.multiprocessors)
        return read({"status": "ok", "groups": [1], "bare": True}, 1), [torch.ones(3)]


@pytest.mark.parametrize("draws", [False, True])
def test_multiprocessors_are_drawn_by_check_and_function(draws):
    worker = Worker()
    pool: Any = SimpleNamespace(
        workers=[worker], worker_index=0, draws_multiprocessors=draws, seed=5, keeps_launches=False
    )
    pool.shared = SimpleNamespace(given_up=lambda check: None)
    seen = {}
    for check in "abcdefgh":
        for function in ("rmsnorm_forward", "rmsnorm_backward"):
            run = functools.partial(Run(pool, check=check), function, torch.ones(3))
            run(), run()
            first, second = worker.asked[-2:]
            assert first == second
            seen[check, function] = first
    if draws:
        assert len(set(seen.values())) > 3
        assert set(seen.values()) <= {*rounds.MULTIPROCESSORS}
    else:
        assert set(seen.values()) == {0}
