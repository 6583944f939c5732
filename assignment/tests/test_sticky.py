"""Errors of a GPU that stick cost their own call and no other; the GPU is a fake here."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from assignment.calling import sticky
from assignment.host import direct
from assignment.protocol.replies import Ok, Raised
from assignment.protocol.requests import Call, Load
from assignment.sandbox import rungs
from assignment.tests.sandbox.boxes import open_box
from tests.operators import called

ILLEGAL = "CUDA error: an illegal memory access was encountered"
OK = Ok((1,), bare=True)
RAISED = Raised(("ValueError",), "ValueError: a size", "a size", by_submission=True, in_kernel=False)

FAKE_GPU = f"""
from assignment.calling import sticky

class AcceleratorError(RuntimeError):
    pass

def touched():
    raise AcceleratorError("{ILLEGAL}")

def break_gpu():
    sticky.is_initialized, sticky.synchronize = (lambda: True), touched
"""


def probe(monkeypatch, *errors):
    """Have CUDA say these, one after the other, and then that all is well."""
    said = list(errors)

    def synchronize():
        if said and (error := said.pop(0)):
            raise error

    monkeypatch.setattr(sticky, "is_initialized", lambda: True)
    monkeypatch.setattr(sticky, "synchronize", synchronize)


@pytest.mark.parametrize("kind", [torch.AcceleratorError, RuntimeError], ids=["PyTorch's", "Triton's"])
def test_an_error_sticks_that_cuda_repeats(monkeypatch, kind):
    errors = kind(ILLEGAL), kind(ILLEGAL)
    probe(monkeypatch, *errors)
    assert sticky.error() is errors[0]


def test_an_error_that_is_said_once_does_not_stick(monkeypatch):
    probe(monkeypatch, RuntimeError("CUDA error: invalid configuration argument"))
    assert sticky.error() is None


def test_a_gpu_that_was_never_used_is_not_asked(monkeypatch):
    """To ask would take its memory, and half a second"""
    probe(monkeypatch, RuntimeError(ILLEGAL), RuntimeError(ILLEGAL))
    monkeypatch.setattr(sticky, "is_initialized", lambda: False)
    assert sticky.error() is None


def settled(monkeypatch, reply):
    session = direct.DirectSession(Path("/nowhere"), "cuda")
    monkeypatch.setattr(session, "let_raise", lambda *_: (reply, [torch.ones(1)]))
    return session.answer(Load(), [])


def test_a_call_keeps_its_own_error(monkeypatch):
    probe(monkeypatch, RuntimeError(ILLEGAL), RuntimeError(ILLEGAL))
    assert settled(monkeypatch, RAISED) == (replace(RAISED, sticks=True), [])


def test_an_error_that_comes_late_is_that_of_its_call(monkeypatch):
    """The kernel at fault may still run when the results are there"""
    probe(monkeypatch, RuntimeError(ILLEGAL), RuntimeError(ILLEGAL))
    reply, results = settled(monkeypatch, OK)
    assert (type(reply), reply.message, results) == (Raised, f"RuntimeError: {ILLEGAL}", [])


def test_without_one_the_reply_is_as_it_was(monkeypatch):
    probe(monkeypatch)
    assert settled(monkeypatch, OK) == (OK, [torch.ones(1)])


@pytest.fixture
def box():
    """A GPU's worker, with the CPU in the GPU's place."""
    with open_box(rungs.choose(rungs.AUTO, "cuda"), "cuda") as opened:
        with (opened.stage.runtime("cuda") / "assignment/calling/requests.py").open("a") as file:
            file.write("\n\ndef moved(tensors, device):\n    return tensors\n")
        yield opened


def load(box, body, init=""):
    package = Path(box.stage.submission) / "cs336_kernels"
    package.mkdir(exist_ok=True)
    (package / "weighted_sum.py").write_text(f"{FAKE_GPU}\n\ndef weighted_sum_forward(x):\n    {body}\n")
    (package / "__init__.py").write_text(init)


def ask(box):
    reply, _ = box.worker.ask(
        Call(**called("weighted_sum_forward"), options={}),
        [torch.ones(3)],
    )
    return reply["status"], reply.get("message", "").splitlines()[:1]


def test_the_next_call_finds_a_new_process(box):
    """Every call but the one that broke the GPU is right"""
    load(box, "if x.sum() == 0:\n        break_gpu()\n    return 2 * x")
    wrong = Call(**called("weighted_sum_forward"), options={})
    for _ in range(2):
        assert ask(box) == ("ok", [])
        reply, results = box.worker.ask(wrong, [torch.zeros(3)])
        assert (reply["status"], results) == ("raised", [])
        assert reply["message"].startswith(f"AcceleratorError: {ILLEGAL}")
        assert "sticks" not in reply
    assert ask(box) == ("ok", [])


def test_who_breaks_it_at_import_loses_no_other_file(box):
    """As when __init__.py ends the process"""
    load(box, "return 2 * x", init="from cs336_kernels.weighted_sum import break_gpu\nbreak_gpu()\n")
    assert ask(box) == ("ok", [])
