"""What becomes of a timing, on a machine without a GPU: points, evidence and words."""

import contextlib
import re
import types
from collections import Counter

import pytest
import torch

from assignment.judge import door
from assignment.operators.flash_attention.workload import workload as attention
from assignment.operators.rmsnorm.workload import workload as rmsnorm
from assignment.operators.weighted_sum.workload import workload as weighted_sum
from assignment.protocol.program import HostLine, Inputs, Launch, Operation, Program, Step, View
from assignment.protocol.said import Said
from assignment.timing import clock, contestants, roof, speed, steps
from assignment.verdict import checks, score

WORK = rmsnorm(65536, 4096, torch.bfloat16)
ATTENTION = attention(4096, 64, torch.bfloat16)
ROOF = roof.Roof(4e12, 8e14)


@pytest.fixture
def judge(monkeypatch):
    monkeypatch.setattr(roof, "measure", lambda _: ROOF)
    session = types.SimpleNamespace(submitted=types.SimpleNamespace(found=steps.Found()))
    return speed.Speed(session)  # type: ignore[arg-type]


def raced(seconds, against, ratio):
    timing = clock.Timing(seconds, seconds, seconds, 0.1)
    return clock.RaceTimes({"submission": timing}, {against: (ratio, ratio, ratio)})


def test_a_copy_stands_for_the_bytes_that_must_move(judge):
    """weighted_sum_forward reads what a copy reads, and writes next to nothing: half the bytes"""
    work = weighted_sum(65536, 4096, torch.bfloat16)
    judge._judge(raced(140e-6, "copying", 1.9), work, torch.bfloat16, "copying", 0.8)
    assert judge.ratio == pytest.approx(0.95, rel=1e-3)
    assert judge.measured.startswith("0.95 × a copy (0.95–0.95; full points from 0.80): 140 µs a call, 3.8")
    assert judge.measured.endswith("96% of what this GPU reaches")
    assert judge.timing == {
        "against": "a copy", "ratio": pytest.approx(0.95, rel=1e-3), "low": judge.timing["ratio"],
        "high": judge.timing["ratio"], "full_points_from": 0.8, "us": 140.0, "share_of_gpu": 0.9589,
        "bytes": work.nbytes, "operations": work.operations,
        "gpu_bytes_per_s": ROOF.bytes_per_s, "gpu_operations_per_s": ROOF.operations_per_s,
    }  # fmt: skip


def test_who_is_slow_gets_the_share_that_was_reached(judge):
    with pytest.raises(speed.TooSlow, match=r"0\.50 × FlashAttention-2") as error:
        judge._judge(raced(2e-3, "flash2", 0.5), ATTENTION, torch.bfloat16, "flash2", 0.8)
    assert error.value.share == pytest.approx(0.625)


@pytest.mark.parametrize(
    ("dtype", "has_it"),
    [(torch.float32, True), (torch.bfloat16, True), (torch.float8_e4m3fn, False)],
    ids=str,
)
def test_what_a_gpu_has_no_numbers_for_is_not_graded(judge, monkeypatch, dtype, has_it):
    judge._session.deaths = Counter()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A100")
    monkeypatch.setattr(speed, "built", lambda *_: ATTENTION)
    with contextlib.nullcontext() if has_it else pytest.raises(door.SubmissionError, match="A100 has no float8_e4m3fn"):
        judge._workload("f", (), dtype, {})


def test_each_peer_of_a_check_has_a_title():
    raced = {name for file in checks.TESTS.rglob("*.py") for name in re.findall(r'against="(\w+)"', file.read_text())}
    assert raced >= {"copying", "flash2", "cublas", "cublas_gelu"}
    assert raced <= set(contestants.TITLES)


def test_what_no_gpu_can_do_is_refused(judge):
    least = ROOF.least_seconds(WORK.nbytes, WORK.operations)
    judge._refuse_impossible(raced(least / 1.2, "copying", 1.0).timings["submission"], WORK, torch.bfloat16)
    with pytest.raises(door.SubmissionError, match="cannot be") as error:
        judge._refuse_impossible(raced(least / 1.3, "copying", 1.0).timings["submission"], WORK, torch.bfloat16)
    assert error.value.status == score.FAIL


def test_whose_work_is_timed_is_heard(judge):
    judge._session.submitted.found = steps.Found(doubts=[Said("look")])
    judge._hear("rmsnorm_forward")
    assert judge.doubts == [Said("look")]
    judge._session.submitted.found = steps.Found(evidence=[Said("aten::mm")])
    with pytest.raises(door.SubmissionError, match=r"not your kernels' work:\naten::mm"):
        judge._hear("rmsnorm_forward")


X, W, Y, P = range(4)  # storages: inputs, a result, partial sums
VIEWS = [View(storage, "float32", 0, (4,), (1,)) for storage in range(4)]
LAUNCH = Launch(0, [1, 1, 1], {"x": {"t": X}, "y": {"t": Y}, "p": {"t": P}}, {}, None, False, 0)


def program(*steps_):
    """Of steps; an operation is written as (name, operands, result)."""
    names = [step[0] for step in steps_ if not isinstance(step, Launch)]
    found: list[Step] = [Inputs([X, W])]
    for step in steps_:
        if isinstance(step, Launch):
            found.append(step)
            continue
        name, operands, result = step
        found.append(Operation(names.index(name), [{"t": operand} for operand in operands], {}, [result], 0))
    operations = [f"aten::{name}.x" for name in names]
    return Program(views=VIEWS, operations=operations, lines=[HostLine("a.py", 3, "f")], steps=found)


OWN = {
    "a launch": [("empty_like", [X], Y), LAUNCH],
    "a sum of what a kernel stored": [("empty", [], P), LAUNCH, ("sum", [P], Y), ("_to_copy", [Y], Y)],
    "partial sums in memory of zeros": [("zeros_like", [W], P), LAUNCH, ("sum", [P], Y)],
    "copies and a scale": [("clone", [X], Y), ("mul", [X], P), LAUNCH],
}
NOT_OWN = {
    "a product": [("empty", [], P), LAUNCH, ("mm", [X, W], Y)],
    "a sum of a copy": [LAUNCH, ("clone", [X], P), ("sum", [P], Y)],
    "nothing launched": [("clone", [X], Y)],
    "a fused attention": [("_scaled_dot_product_flash_attention_for_cpu", [X, X], Y), LAUNCH],
}


@pytest.mark.parametrize("taken", OWN.values(), ids=OWN)
def test_what_a_right_submission_does_beside_its_kernels_is_free(taken):
    assert steps.examined(program(*taken), "rmsnorm_backward") == steps.Found()


@pytest.mark.parametrize("taken", NOT_OWN.values(), ids=NOT_OWN)
def test_what_pytorch_computes_of_the_inputs_is_evidence(taken):
    found = steps.examined(program(*taken), "rmsnorm_backward")
    assert (len(found.evidence), found.doubts) == (1, [])


def test_a_copy_that_a_kernel_was_given_is_for_the_staff():
    """It may have stored all of it, or nothing"""
    found = steps.examined(program(("clone", [X], P), LAUNCH, ("sum", [P], Y)), "rmsnorm_backward")
    assert (found.evidence, len(found.doubts)) == ([], 1)
    assert [(place.path, place.line) for place in found.doubts[0].places] == [("a.py", 3)]


def test_row_sums_of_the_flash_backward_are_free():
    taken = [("mul", [X, W], P), ("sum", [P], P), LAUNCH]
    assert steps.examined(program(*taken), "flash_backward_triton") == steps.Found()
    assert steps.examined(program(*taken), "flash_forward_triton").evidence
