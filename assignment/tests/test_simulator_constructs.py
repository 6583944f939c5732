"""The simulator against an H200: each construct of the table, on the inputs that the H200 had, or its definition.

The GPU's answers are in data/h200_constructs.safetensors; see assignment/tests/constructs for how to renew them.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from assignment.tests.constructs import record
from assignment.tests.forked import python

GPU = Path(__file__).parent / "data" / "h200_constructs.safetensors"
ROOT = Path(__file__).parents[2]


def _notes(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    with safe_open(path, "pt") as file:
        notes = {name: json.loads(note) for name, note in file.metadata().items()}
    notes.pop("machine")
    return notes


NOTES = _notes(GPU)
DEFINED = {name: construct for name, construct in record.TABLE.items() if construct.definition}


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the same constructs, run in the simulator in a process of its own."""
    path = tmp_path_factory.mktemp("simulator") / "constructs.safetensors"
    command = "-W", "error", "-m", "assignment.tests.constructs", "--device", "cpu"
    done = python(*command, "--inputs", GPU, "--out", path, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr[-4000:]
    return path


@pytest.mark.parametrize("name", sorted(NOTES.keys() - DEFINED.keys()))
def test_like_the_gpu(name: str, simulated: Path) -> None:
    """The simulator gives what the H200 gave, or refuses what it refused."""
    with safe_open(simulated, "pt") as file:
        note = json.loads(file.metadata()[name])
    if NOTES[name]["error"]:
        assert note["error"], f"the GPU refuses it ({NOTES[name]['error']}), the simulator does not"
        return
    assert note["error"] is None, note["error"]
    for output in NOTES[name]["outputs"]:
        with safe_open(GPU, "pt") as gpu, safe_open(simulated, "pt") as cpu:
            key = f"{name}/{output}"
            _assert_close(cpu.get_tensor(key), gpu.get_tensor(key), note["closeness"])


@pytest.mark.parametrize("name", sorted(DEFINED))
def test_as_defined(name: str, simulated: Path) -> None:
    """The simulator gives what a definition in PyTorch says, where a GPU is no measure."""
    with safe_open(simulated, "pt") as file:
        note = json.loads(file.metadata()[name])
        assert note["error"] is None, note["error"]
        inputs = {key: file.get_tensor(stored) for key, stored in note["inputs"].items()}
        got = file.get_tensor(f"{name}/y")
    definition = DEFINED[name].definition
    assert definition
    _assert_close(got, definition(**inputs), note["closeness"])


def _assert_close(got: Tensor, expected: Tensor, closeness: dict[str, Any]) -> None:
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    wrong = _bits(got) != _bits(expected) if closeness["bits"] else ~_close(got.double(), expected.double(), closeness)
    where = wrong.flatten().nonzero().flatten().tolist()
    first = [(i, got.flatten()[i].item(), expected.flatten()[i].item()) for i in where[:5]]
    assert not where, f"{len(where)} of {wrong.numel()} differ; (index, simulator, expected): {first}; {closeness}"


def _bits(tensor: Tensor) -> Tensor:
    sizes = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(sizes[tensor.itemsize])


def _close(got: Tensor, expected: Tensor, closeness: dict[str, Any]) -> Tensor:
    finite = expected[expected.isfinite()].abs()
    largest = finite.max() if finite.numel() else torch.tensor(0.0, dtype=torch.double)
    allowed = closeness["relative"] * expected.abs() + closeness["absolute"] * largest
    return (got == expected) | (got.isnan() & expected.isnan()) | ((got - expected).abs() <= allowed)
