"""Run the table on a device and record its inputs and outputs."""

import dataclasses
import hashlib
import json
import platform
from pathlib import Path

import torch
import triton
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from . import arithmetic, blocks, conversions, dots, edges, functions, memory, programs, reductions, scaled_dots
from .table import TABLE, Construct

FAMILIES = (arithmetic, blocks, conversions, dots, edges, functions, memory, programs, reductions, scaled_dots)
_STORED_AS = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def record(device: str, out: Path, inputs_from: Path | None, only: str) -> dict[str, str]:
    """Write the file `out`; returns the constructs that failed, each with an error line."""
    tensors: dict[str, Tensor] = {}
    notes: dict[str, str] = {}
    failures: dict[str, str] = {}
    for construct in TABLE.values():
        if only not in construct.name:
            continue
        inputs = (inputs_from and _read(inputs_from, construct.name)) or construct.inputs
        try:
            outputs = _run(construct, inputs, device)
        except Exception as error:
            failures[construct.name] = f"{type(error).__name__}: {_first_line(error)}"
            outputs = {}
        stored = {key: _storable(value) for key, value in inputs.items()}
        # most are used many times
        by_content = {key: f"input/{_digest(value)}" for key, value in stored.items()}
        tensors |= {by_content[key]: value for key, value in stored.items()}
        tensors |= {f"{construct.name}/{key}": _storable(value) for key, value in outputs.items()}
        note = {
            "inputs": by_content,
            "outputs": list(outputs),
            "error": failures.get(construct.name),
        }
        notes[construct.name] = json.dumps(note | {"closeness": dataclasses.asdict(construct.closeness)})
    save_file(tensors, out, notes | {"machine": json.dumps(_machine(device))})
    return failures


def _run(construct: Construct, inputs: dict[str, Tensor], device: str) -> dict[str, Tensor]:
    outputs = construct.run(**{key: value.clone().to(device) for key, value in inputs.items()})
    if device == "cuda":
        torch.cuda.synchronize()
    return {key: value.cpu() for key, value in outputs.items()}


def _read(path: Path, name: str) -> dict[str, Tensor]:
    """Return the inputs that a construct had in an earlier run; none if it was not in it."""
    with safe_open(path, "pt") as file:
        note = json.loads(file.metadata().get(name, '{"inputs": {}}'))
        return {key: file.get_tensor(stored) for key, stored in note["inputs"].items()}


def _digest(tensor: Tensor) -> str:
    content = repr((tensor.dtype, tuple(tensor.shape))).encode() + tensor.flatten().view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(content).hexdigest()[:16]


def _storable(tensor: Tensor) -> Tensor:
    return tensor.view(_STORED_AS.get(tensor.dtype, tensor.dtype)).contiguous().clone()


def _first_line(error: Exception) -> str:
    """Return the first line of the innermost cause: Triton wraps compile errors several times."""
    while error.__cause__ is not None:
        error = error.__cause__  # type: ignore[assignment]
    return (str(error).strip().splitlines() or [""])[0][:200]


def _machine(device: str) -> dict[str, str]:
    name = torch.cuda.get_device_name() if device == "cuda" else "simulator"
    return {
        "device": name,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
    }
