"""Operations that are not played: a finding of their own, with line and remedy; nothing else is told or accused."""

import pytest

from assignment.judge.replies import Failed, Ok
from assignment.player import operations
from assignment.tests.graded import append, grade
from assignment.tests.pairs import F, X, defined

PYTORCH = "flash_forward_pytorch"
QKV = (X.view(1, 4, 50),) * 3
RANDOM, INVERSE = (
    "what is random is not the same for the graded inputs: use tl.rand in a kernel",
    "write it as matmul, mul and sum",
)
PICK = """
@triton.jit
def _pick(x_ptr, i_ptr, y_ptr):
    at = tl.arange(0, 256)
    places = tl.load(i_ptr + at, mask=at < 200, other=0)
    tl.store(y_ptr + at, tl.load(x_ptr + places), mask=at < 200)

"""
TOOK_PART = {  # host code, the operation, and what to write instead
    "copied by a kernel": ("return copied(x + torch.rand_like(x))", "aten::rand_like", RANDOM),
    "loaded by a kernel": ("return copied(torch.linalg.inv(x[:, :4]))", "aten::linalg_inv_ex", INVERSE),
    "returned": ("y = copied(x); y.normal_(); return y", "aten::normal_", RANDOM),
    "in part": ("y = copied(x); y[1, 3:7].uniform_(); return y", "aten::uniform_", RANDOM),
    "under others": ("return copied((torch.rand_like(x) * 2).exp().sum(-1))", "aten::rand_like", RANDOM),
    "as what chooses": ("return copied(torch.where(torch.rand_like(x) > 2, x, -x))", "aten::rand_like", RANDOM),
    "in another memory": ("y = torch.empty_like(x); torch.randn(x.shape, out=y); return copied(y)", "normal_", RANDOM),
    "as a place": (
        "i = torch.randint(0, 4, (200,), device=x.device); y = torch.empty_like(x); _pick[(1,)](x, i, y); return y",
        "aten::randint", RANDOM,
    ),
}  # fmt: skip
HARMLESS = {
    "off the way": "torch.rand_like(x); torch.linalg.inv(x[:, :4]); return copied(x)",
    "overwritten": "y = torch.empty_like(x).normal_(); y.copy_(x); return copied(y)",
    "beside it": "y = torch.empty(8, 50, device=x.device); y[:4] = x; y[4:].normal_(); return copied(y[:4])",
    "what it reads": "y = torch.empty_like(x); torch.polygamma(2, x, out=y); return copied(x)",
}


@pytest.mark.parametrize(("lines", "operation", "remedy"), TOOK_PART.values(), ids=TOOK_PART)
def test_an_operation_that_took_part_is_named(at, lines, operation, remedy):
    """With its line and a remedy, in a problem for kernels and in one for PyTorch; nothing is accused"""
    reply = at.run(defined(*lines.split("; "), before=PICK), X)
    told = [said.text for said in reply.unplayed] if isinstance(reply, Ok) else [reply.message]
    assert isinstance(reply, Ok) or (isinstance(reply, Failed) and reply.kind == "not played"), reply
    assert operation in told[0]
    assert "is not played: " + remedy in told[0]
    assert "at cs336_kernels/weighted_sum.py:" in told[0]
    assert not (isinstance(reply, Ok) and (reply.evidence or reply.doubts))


@pytest.mark.parametrize("lines", HARMLESS.values(), ids=HARMLESS)
def test_it_spoils_only_what_it_writes(at, lines):
    reply = at.run(defined(*lines.split("; ")), X)
    assert isinstance(reply, Ok), reply
    assert (reply.unplayed, reply.evidence, reply.doubts) == ((), (), ())


@pytest.mark.parametrize(
    ("lines", "tells"),
    [  # a call of host code, and whether the operation is told
        ("o = q * 0; o[:, 1:2] = torch.rand_like(q)[:, 1:2]; o[:, 2:3] = q[:, 2:3]; return o, o[..., 0]", 1),
        ("o = torch.zeros_like(q); o.normal_(); o.zero_(); o[:, 2:3] = q[:, 2:3]; return o, q[..., 0].clone()", 0),
        ("i = torch.randperm(4); return q[:, i], q[..., 0].clone()", 1),
        ("i = torch.randint(0, 4, (4,)); return q.index_select(1, i), q[..., 0].clone()", 1),
        ("u = torch.unique(q); return q * u[:50], q[..., 0].clone()", 1),
    ],
)  # fmt: skip
def test_in_a_pytorch_problem_too(at, lines, tells):
    code = f"def {PYTORCH}(q, k, v, is_causal=False):\n" + "".join(f"    {line}\n" for line in lines.split("; "))
    at.take(code)
    reply, _ = at.ask(PYTORCH, *QKV)
    told = [said.text for said in reply.unplayed] if isinstance(reply, Ok) else [reply.message]
    assert len(told) == tells, reply
    assert all("is not played" in text for text in told)


def test_scripted_functions_are_followed(at):
    script = "@torch.jit.script\ndef f(x: torch.Tensor) -> torch.Tensor:\n    y = x * 2\n    y &= y\n    return y\n\n"
    script = script.replace("y &= y", "y *= 2")
    reply = at.run(defined("return copied(f(x) * 0 + x)", before=script), X)
    assert isinstance(reply, Ok)
    assert "weighted_sum.py" in reply.evidence[0].text  # computing on the way to a kernel, told by its line
    assert f"in {F}" in reply.evidence[0].text or "in f" in reply.evidence[0].text


@pytest.mark.slow
def test_nothing_is_diagnosed_where_one_took_part(submission):
    """No points, the operation, its line, and neither a likely cause nor a map of wrong elements"""
    append(
        submission,
        "weighted_sum.py",
        "_right = weighted_sum_forward\ndef weighted_sum_forward(x, weight):\n"
        "    return _right(x + 0 * torch.rand_like(x), weight)",
    )
    name = "test_weighted_sum.py::test_forward_values"
    check = grade(submission, "--only", name).check(name)
    assert (check["score"], check["status"], check["hint"]) == (0, "FAIL", "")
    found = check["findings"][0]
    assert found["kind"] == "not played"
    assert "aten::rand_like is not played: what is random" in found["says"]
    assert found["lines"][0]["path"] == "cs336_kernels/weighted_sum.py"
    assert "elements wrong" not in check["message"]


@pytest.mark.parametrize(("name", "remedy"), [("aten::rrelu_", "ordinary ones"), ("aten::linalg_lu", "matmul, mul")])
def test_a_remedy_is_that_of_the_operation(name, remedy):
    """Whatever a part of its name is like: `relu_` is no decomposition"""
    assert remedy in operations.instead_of(name)
