"""Right kernels whose programs meet are right in every order."""

import functools
import importlib.util
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from assignment.bank import bugs
from assignment.bank.operators import edits
from assignment.bank.operators.matmul import styles
from assignment.bank.operators.weighted_sum.styles import together
from assignment.simulator import calls, meeting
from assignment.simulator.programs import SCHEDULES
from tests import operators


@contextmanager
def module(style: edits.Style, operator: str, file: str) -> Iterator[Callable[[str], Callable]]:
    """Write a style's file; yields what returns one of its functions by name."""
    files = bugs.base(next(one for one in operators.operators() if one.name == operator))
    path = f"{bugs.PACKAGE}/{file}"
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder, f"{style.name}.py")
        own.write_bytes(edits.edited({path: files[path]}, style.edits, style.name)[path])
        spec = importlib.util.spec_from_file_location(style.name, own)
        assert spec is not None
        assert spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        yield lambda name: getattr(loaded, name)


def under_every_schedule(call: Callable[[], Any], expected: torch.Tensor, name: str) -> None:
    """Compare the last result of a call under each schedule."""
    for seed, schedule in enumerate(SCHEDULES):
        with calls.Call(seed=seed) as seen, mock.patch.object(meeting, "SCHEDULES", (schedule,)):
            result = call()
        last = result[-1] if isinstance(result, tuple) else result
        assert torch.allclose(last, expected, rtol=1e-2, atol=0.1), (name, schedule)
        assert seen.orders == [], (name, schedule)


def check_weighted_sums():
    """Locks, last programs, barriers, look-back and lists of the bank."""
    x, weight, grad_y = torch.randn(200, 70), torch.randn(70), torch.randn(200)
    for style in together.STYLES:
        with module(style, "weighted_sum", "weighted_sum.py") as function:
            if "listed" in style.name:
                call = functools.partial(function("weighted_sum_forward"), x, weight)
                under_every_schedule(call, x @ weight, style.name)
            else:
                backward = functools.partial(function("weighted_sum_backward"), grad_y, x, weight)
                under_every_schedule(backward, grad_y @ x, style.name)


def check_products():
    """Split-K, stream-K and queues of the bank."""
    a, b = torch.randn(100, 150), torch.randn(150, 70)
    for style in styles.STYLES:
        with module(style, "matmul", "practice/matmul.py") as function:
            under_every_schedule(functools.partial(function("matmul"), a, b), a @ b, style.name)
