"""Operators that host code defines by torch.library: their bodies, their schemas, and what they say without data."""

from dataclasses import replace

import pytest
import torch

from assignment.judge import replies, traces
from assignment.judge.errors import SubmissionError
from assignment.judge.replies import Failed, Ok, Raised
from assignment.protocol.program import HostLine, Launch, OperatorCall, Program, Repeat
from assignment.protocol.requests import Script
from assignment.sandbox.stage import Stage
from assignment.sandbox.worker_client import Worker
from assignment.submission import Submission
from assignment.tests.graded import RUNG
from assignment.tests.pairs import FILE, IMPORTS, KERNELS, F, X, defined, names, of, request
from tests.operators import called

OPERATOR = """
@torch.library.custom_op("ours::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    BODY
    return copied(x) * 2

@doubled.register_fake
def _(x):
    FAKE

@torch.library.custom_op("ours::doubled_backward", mutates_args=())
def doubled_backward(grad: torch.Tensor) -> torch.Tensor:
    return copied(grad) * 2

doubled_backward.register_fake(lambda grad: grad.new_empty(grad.shape))
doubled.register_autograd(lambda ctx, grad: doubled_backward(grad))

"""
FAKE, WRAPPED = "return x.new_empty(x.shape)", "return torch.ops.ours.doubled(x)"
LIBRARY = """
library = torch.library.Library("ours", "FRAGMENT")
library.define("doubled(Tensor x) -> Tensor")
"""


def code(*lines, body="pass", fake=FAKE):
    return OPERATOR.replace("BODY", body).replace("FAKE", fake) + defined(*(lines or [WRAPPED]))


@pytest.mark.parametrize(
    "registered",
    [
        'library.impl("doubled", BODY, "CUDA")',
        'library.impl(op_name="doubled", fn=BODY, dispatch_key="CPU")',
        'library.impl(torch.ops.ours.doubled.default, BODY, "CompositeExplicitAutograd")',
        'more = torch.library.Library("ours", "IMPL", "CUDA"); more.impl("doubled", BODY)',
        'torch.library.impl("ours::doubled", "cuda", BODY, lib=library)',
    ],
)
def test_bodies_are_recorded_for_any_device(at, registered):
    registered = registered.replace("BODY", "lambda x: copied(x) * 2")
    assert names(at.steps(f"{LIBRARY}{registered}\n{defined(WRAPPED)}", X)) == ["empty_like", "launch", "mul"]


@pytest.mark.parametrize("keys", [("CPU", "CUDA"), ("CUDA", "CPU")])
def test_a_gpus_body_is_the_one_that_is_called(at, keys):
    bodies = {"CPU": "lambda x: x * 2", "CUDA": "lambda x: copied(x) * 2"}
    lines = "".join(f'torch.library.impl("ours::doubled", "{key}")({bodies[key]})\n' for key in keys)
    assert names(at.steps(f"{LIBRARY}{lines}{defined(WRAPPED)}", X)) == ["empty_like", "launch", "mul"]


def test_a_body_for_a_gpu_alone_hears_of_one(at):
    lines = 'assert x.is_cuda and x.device.type == "cuda"', 'return copied(x) + torch.ones(x.shape, device="cuda")'
    body = "@torch.library.custom_op('ours::more', mutates_args=(), device_types='cuda')\ndef more(x: torch.Tensor)"
    text = f"{body} -> torch.Tensor:\n" + "".join(f"    {line}\n" for line in lines)
    assert "launch" in names(at.steps(text + defined("return more(x)"), X))


def test_operators_are_defined_again_where_files_are_imported_again(at):
    """A GPU that host code has asked about is another one in the next call"""
    ask = "torch.cuda.get_device_properties(0).multi_processor_count"
    at.take(f'{LIBRARY}library.impl("doubled", lambda x: copied(x) * {ask}, "CUDA")\n{defined(WRAPPED)}')
    for n in (4, 8, 4):
        reply, (result,) = at.ask(F, X, multiprocessors=n)
        assert isinstance(reply, Ok), reply
        assert torch.equal(result, X * n)


def traced(at, text, *tensors):
    at.take(text)
    ended, program = at.pair.unplayed(request(F, "traced", {}), list(tensors or [X]))
    at.pair.settle()
    return ended, program


def test_operators_of_a_call_are_told_with_data_and_without(at):
    """And those of its backward pass"""
    ended, program = traced(at, code())
    assert ended is None
    both = traces.paired(*traces.parts(program))
    assert [own.schema for own, _ in both] == [
        "ours::doubled(Tensor x) -> Tensor",
        "ours::doubled_backward(Tensor grad) -> Tensor",
    ]
    assert [own.forms for own, _ in both] == [fake.forms for _, fake in both] == [[["float32", [4, 50], [50, 1]]]] * 2


@pytest.mark.parametrize(
    ("fake", "form"),
    [
        ("return torch.empty_like(x)", ["float32", [50, 4], [1, 50]]),
        ("return torch.empty(x.shape, dtype=torch.float16, device='cuda')", ["float16", [50, 4], [4, 1]]),
        ("return torch.empty(x.shape, dtype=x.dtype, device=x.device)", ["float32", [50, 4], [4, 1]]),
    ],
)
def test_a_fake_says_what_it_says(at, fake, form):
    ended, program = traced(at, code(fake=fake), X.t())
    assert ended is None
    (own, said), _ = traces.paired(*traces.parts(program))
    assert own.forms == [["float32", [50, 4], [4, 1]]]
    assert said.forms == [form]


def test_host_code_without_data_hears_of_a_gpu(at):
    ended, _ = traced(at, code('assert x.is_cuda and x.device.type == "cuda", x.device', WRAPPED))
    assert ended is None


@pytest.mark.parametrize("fake", ["return copied(x)", "return x.new_empty(x.shape) * float(x.sum())"])
def test_a_fake_has_neither_memory_nor_values(at, fake):
    ended, program = traced(at, code(fake=fake))
    assert isinstance(ended, Raised)
    assert "DataDependent" in ended.message or "got one without data" in ended.message, ended.message
    assert any(isinstance(step, Repeat) for step in program.steps)


def test_a_launch_without_data_is_told_by_its_line():
    launch = Launch(0, [1, 1, 1], {}, {}, None, False, 0)
    program = Program(lines=[HostLine("cs336_kernels/a.py", 7, "f")], steps=[launch, Repeat()])
    assert traces.parts(program) == ([], [])
    with pytest.raises(SubmissionError, match=r"without data, by cs336_kernels/a\.py:7"):
        traces.parts(replace(program, steps=[Repeat(), launch]))


def test_another_call_without_data_is_told():
    own, other = (traces.Returned(f"ours::{name}() -> Tensor", [], "") for name in ("own", "other"))
    with pytest.raises(SubmissionError, match="ours::own called with data, ours::other called without"):
        traces.paired([own], [other])
    with pytest.raises(SubmissionError, match="no operator"):
        traces.paired([], [])


def test_operators_are_noted_where_they_are_traced_alone(at):
    assert of(at.steps(code(), X), OperatorCall) == []


def test_results_under_no_grad_have_no_graph(at):
    at.take(code())
    reply, (result,) = at.ask(F, X, kind="inferred")
    assert isinstance(reply, Ok), reply
    assert torch.equal(result, 2 * X)
    at.take(code("with torch.enable_grad():", f"    {WRAPPED}"))
    reply, _ = at.ask(F, X, kind="inferred")
    assert isinstance(reply, Failed)
    assert "a graph under torch.no_grad()" in reply.message


@pytest.mark.parametrize(("kept_by", "rows"), [("ctx", [1, 2, 3, 4]), ("Own", [3, 4, 3, 4])])
def test_two_calls_in_one_graph_get_a_half_each(at, kept_by, rows):
    """What the first of them keeps in its class the second overwrites"""
    at.take(f"""
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        {kept_by}.x = copied(x)
        return copied(x) * 2

    @staticmethod
    def backward(ctx, grad):
        return copied(grad) * {kept_by}.x

{defined("return Own.apply(x)")}""")
    x = torch.arange(1.0, 5.0)[:, None].expand(4, 8).contiguous()
    asked = {"wrt": [0], "times": 1, "has_grad": False, "interleaved": False, "split": [0]}
    reply, (gradient,) = at.ask(F, x, kind="gradients", **asked)
    assert isinstance(reply, Ok), reply
    assert gradient[:, 0].tolist() == rows


ADVICE = """
import torch
def advice(function):
    double = function("weighted_sum_forward")
    compiled = torch.compile(double, fullgraph=True, backend="aot_eager")
    x = torch.arange(6.0)
    return [str(compiled(x).tolist()), str(torch._dynamo.utils.counters["stats"]["unique_graphs"])]
"""


@pytest.fixture
def scripts():
    stage = Stage(Submission({FILE: b""}))
    worker = Worker(stage, "script", RUNG)

    def said(text, source=ADVICE):
        worker.restart()
        stage.replace(Submission({FILE: (IMPORTS + KERNELS + text).encode()}))
        came, results = worker.ask(Script(**called(F), options={}, source=source), [])
        return replies.read(came, len(results))

    try:
        yield said
    finally:
        worker.close()
        stage.close()


def test_a_script_compiles_host_code_in_the_simulator(scripts):
    told = scripts(code(body='assert x.is_cuda and torch.empty(1, device="cuda").is_cuda'))
    assert told.notes == ("[0.0, 2.0, 4.0, 6.0, 8.0, 10.0]", "1")


def test_a_script_is_told_what_goes_wrong(scripts):
    raised = scripts("raise ValueError('at import')")
    assert isinstance(raised, Failed)
    assert "at import" in raised.message
    ended = scripts("", "def advice(function):\n    raise RuntimeError('in the script')")
    assert isinstance(ended, Raised)
    assert "in the script" in ended.message
