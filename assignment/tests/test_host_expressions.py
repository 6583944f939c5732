"""Expressions of PyTorch in host code: each is recorded on stand-ins and played, to what PyTorch itself gives."""

import textwrap
from typing import Any

import pytest
import torch

from assignment.judge.replies import Ok
from assignment.pytorch_private import tensors_of
from assignment.tests.data.host_expressions import EXPRESSIONS, NOT_PLAYED, PREPARED

FUNCTION, EACH = "flash_forward_pytorch", 25  # expressions in a call
NAMES = ("a", "b", "u", "s", "p", "m", "l", "at", "seen", "y")
QKV = tuple(torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(7)) for _ in range(3))
CODE = f"""
import functools, math
F = torch.nn.functional
PREPARED = {PREPARED!r}
KNOWN = {{"torch": torch, "F": F, "math": math, "functools": functools}}

def tensors(tree):
    return [tree] if isinstance(tree, torch.Tensor) else [t for part in tree for t in tensors(part)]

def after(lines, q, k, v):
    found = []
    for line in lines:
        names = KNOWN | {{"q": q, "k": k, "v": v}}
        exec(PREPARED + line, names)
        found += [t.contiguous().clone() for name in {NAMES} if name in names for t in tensors(names[name])]
    return tuple(found)
"""


def defined(lines: list[str]) -> str:
    return textwrap.dedent(f"{CODE}\ndef {FUNCTION}(q, k, v, is_causal=False):\n    return after({lines!r}, q, k, v)\n")


def expected(lines: list[str]) -> list[torch.Tensor]:
    names: dict[str, Any] = {"torch": torch}
    exec(CODE, names)
    return tensors_of(names["after"](lines, *QKV))


CHUNKS = [EXPRESSIONS[first : first + EACH] for first in range(0, len(EXPRESSIONS), EACH)]


@pytest.mark.filterwarnings("ignore:index_reduce:UserWarning")
@pytest.mark.parametrize("lines", CHUNKS, ids=range(len(CHUNKS)))
def test_what_host_code_may_compute_is_played(at, lines):
    at.take(defined(lines))
    reply, results = at.ask(FUNCTION, *QKV)
    assert isinstance(reply, Ok), reply
    assert not reply.reads + reply.unplayed
    assert not reply.evidence
    for result, right in zip(results, expected(lines), strict=True):
        torch.testing.assert_close(result, right, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("line", NOT_PLAYED)
def test_what_is_not_played_is_listed_with_its_reason(at, line):
    at.take(defined([line]))
    reply, _ = at.ask(FUNCTION, *QKV)
    assert isinstance(reply, Ok), reply
    told = [said.text for said in (*reply.evidence, *reply.unplayed)]
    assert "not played" in told[0] or "is a fused attention" in told[0]
