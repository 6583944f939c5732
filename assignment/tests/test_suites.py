"""`python -m assignment.bank suites` on checkouts made here: what it counts of both engines, and that it goes on."""

import json
from pathlib import Path

import pytest

from assignment.bank.run import suites
from assignment.bank.run.suite_cases import FAULT, FOUND, INTERPRETER, OTHER, REFUSED, RIGHT, SIMULATOR, SLOW, WRONG

pytestmark = [pytest.mark.slow, pytest.mark.long_file]

NONE = {"puzzles": None, "liger": None, "tritonbench": None}
UNIT = """
import os
import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

@triton.jit
def copy_kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(y_ptr + at, tl.load(x_ptr + at))

@triton.jit
def refused_kernel(x_ptr):
    tl.store(x_ptr, libdevice.rcp64h(tl.load(x_ptr).to(tl.float64)))

def copied(n, size):
    x, y = torch.arange(n, device="cuda"), torch.zeros(8, dtype=torch.int64, device="cuda")
    copy_kernel[(1,)](x, y, size)
    return y

@pytest.mark.interpreter
@pytest.mark.parametrize("i", range(9))
def test_right(i):
    assert copied(8, 8)[i % 8] == i % 8

@pytest.mark.interpreter
def test_wrong():
    assert copied(8, 8)[1] == 0

@pytest.mark.interpreter
def test_found():
    copied(7, 8)

@pytest.mark.interpreter
def test_caught():
    with pytest.raises(Exception):
        copied(7, 8)
        raise ValueError

@pytest.mark.interpreter
def test_refused():
    refused_kernel[(1,)](torch.ones(1, device="cuda"))

@pytest.mark.interpreter
def test_of_the_host():
    None.unknown

@pytest.mark.interpreter
def test_slow():
    while True:
        pass

@pytest.mark.interpreter
def test_crash():
    os._exit(1)

@pytest.mark.interpreter
def test_made_of_a_string():
    names = {}
    exec("import triton\\nimport triton.language as tl\\n@triton.jit\\ndef made(x):\\n    tl.store(x, 1.0)\\n", names)
    x = torch.zeros(1)
    names["made"][(1,)](x)
    assert x == 1

@pytest.mark.interpreter
@pytest.mark.skip
def test_skipped():
    pass

def test_not_marked():
    assert False
"""
SCRIPT = """
import torch
import triton
import triton.testing

result_gold = {{"one": [torch.ones(2) * {factor}]}}
triton.testing.do_bench(lambda: None)
"""
UNWRITTEN = "import torch\nresult_gold = torch.empty(3)\nresult_gold[0] = 1\n"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkouts")
    files = {
        "python/test/unit/language/test_some.py": UNIT,
        "python/test/unit/test_other.py": "def test_nothing(): pass\n",
        "python/tutorials/01-alike.py": SCRIPT.format(factor=1),
        "python/tutorials/02-different.py": SCRIPT.format(factor="(1 + torch.empty(2).isnan())"),
        "python/tutorials/03-alike-but-unwritten.py": UNWRITTEN,
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def kept(checkout: Path) -> Path:
    kept = checkout / "suites.jsonl"
    for _ in range(2):  # the second time there is nothing left to do
        done = suites.main(kept, "", (1, 1), per_function=3, limit=3.0, write=False, triton=checkout, **NONE)
        assert done == 0
    return kept


def kinds(kept: Path, engine: str) -> dict[str, str]:
    """What became of each test of an engine, the last line of each counting."""
    lines = [line for line in map(json.loads, kept.read_text().splitlines()) if line["engine"] == engine]
    return {line["case"].rpartition("::")[2]: line["kind"] for line in lines}


def test_cases_of_the_simulator_are_told_apart(kept: Path) -> None:
    assert kinds(kept, SIMULATOR) == {
        "test_right[0]": RIGHT,
        "test_right[4]": RIGHT,
        "test_right[8]": RIGHT,
        "test_wrong": WRONG,
        "test_found": FOUND,
        "test_caught": FOUND,
        "test_refused": REFUSED,
        "test_of_the_host": OTHER,
        "test_slow": SLOW,
        "test_crash": OTHER,
        "test_made_of_a_string": RIGHT,
        "test_skipped": "skipped",
        "01-alike.py": RIGHT,
        "02-different.py": WRONG,
        "03-alike-but-unwritten.py": RIGHT,
    }


def test_interpreter_runs_beside(kept: Path) -> None:
    """It sees no finding"""
    found = kinds(kept, INTERPRETER)
    assert found.keys() == kinds(kept, SIMULATOR).keys()
    assert [found[name] for name in ("test_right[4]", "test_wrong", "test_found", "test_slow", "01-alike.py")] == [
        RIGHT,
        WRONG,
        RIGHT,
        SLOW,
        RIGHT,
    ]


def test_lines_say_what_was_raised_and_where(kept: Path) -> None:
    lines = [json.loads(line) for line in kept.read_text().splitlines()]
    (refused,) = [one for one in lines if one["case"].endswith("test_refused") and one["engine"] == SIMULATOR]
    assert refused["error"].startswith("NotImplementedError: libdevice.rcp64h is not supported by the simulator")
    assert any("test_some.py" in place or "libdevice" in place for place in refused["places"])
    (crashed,) = [one for one in lines if one["case"].endswith("test_crash") and one["engine"] == SIMULATOR]
    assert crashed["error"] == suites.ENDED


def test_table_counts_each_case_once(kept: Path) -> None:
    rows = [line.strip("| ").split(" | ") for line in suites.table(kept)]
    (simulator,) = [row for row in rows if row[:2] == [suites.SUITES[0].name, SIMULATOR]]
    counts = dict(zip(suites.HEADER.split(" | ")[2:-1], map(int, simulator[2:-1]), strict=True))
    assert counts == {"cases": 11, RIGHT: 4, REFUSED: 1, FAULT: 0, OTHER: 2, WRONG: 1, FOUND: 2, SLOW: 1}
