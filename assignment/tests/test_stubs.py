"""A function that is not written is called once by each judge; its checks are to do without another call."""

import pytest

from assignment.judge.replies import Ok, Raised
from assignment.tests.graded import append, grade
from assignment.tests.pairs import F, X, defined

STUB = defined('"""The sum of each row."""', "raise NotImplementedError('handout/x.md')")
STUBS = {
    "as released": STUB,
    "in PyTorch": f"@torch.no_grad()\n{STUB}",
    "by another name": STUB.replace(F, "other") + f"{F} = other\n",
}
CALLED = {
    "by how often it is called": defined(
        "calls.append(1)", "if len(calls) < 9:", "    raise NotImplementedError('not yet')", "return copied(x)",
        before="calls = []\n",
    ),
    "by its input": defined("if x.shape[0] == 4:", "    raise NotImplementedError('four')", "return copied(x)"),
    "by another function": STUB.replace(F, "other") + defined("return other(x)"),
    "by a decorator": (
        "import functools\ndef decorated(f):\n    return functools.wraps(f)(lambda x: f(copied(x)))\n"
        f"@decorated\n{STUB}"
    ),
    "with what it computes": defined("raise NotImplementedError(str(copied(x).shape))"),
}  # fmt: skip
SAYS_SO = "from assignment.recorder import stubs\nstubs.is_stub = lambda function: True\n"


@pytest.fixture
def calls(at, monkeypatch):
    """The requests that the recorder was asked."""
    ask, asked = at.pair.recorder.ask, []

    def remembered(*request):
        asked.append(request)
        return ask(*request)

    monkeypatch.setattr(at.pair.recorder, "ask", remembered)
    return asked


def replies_of(at):
    """What is said of three calls, each of another kind."""
    return [at.ask(F, *([X, X] if kind == "again" else [X]), kind=kind)[0] for kind in ("call", "again", "costs")]


@pytest.mark.parametrize("code", STUBS.values(), ids=STUBS)
def test_a_stub_is_called_once(at, calls, code):
    """All that is asked of it has the answer of the first call"""
    at.take(code)
    first, *others = replies_of(at)
    assert (type(first), first.is_todo) == (Raised, True)
    assert others == [first] * 2
    assert len(calls) == 1


@pytest.mark.parametrize("code", CALLED.values(), ids=CALLED)
def test_what_may_do_something_else_is_called_every_time(at, calls, code):
    at.take(code)
    assert all(isinstance(reply, Raised) for reply in replies_of(at))
    assert len(calls) == 3


def test_a_stub_costs_no_other_function(at):
    at.take(STUB + defined("return copied(x)").replace(F, "weighted_sum"))
    for function, kind in ((F, Raised), ("weighted_sum", Ok)) * 2:
        assert isinstance(at.ask(function, X)[0], kind)


def test_a_stub_is_forgotten_with_its_submission(at):
    for code, kind in ((STUB, Raised), (defined("return copied(x)"), Ok)):
        at.take(code)
        assert isinstance(at.ask(F, X)[0], kind)


def test_a_stub_for_another_gpu_is_none(at):
    """A function may be written for some GPUs alone"""
    stub, written = STUB.replace("\n", "\n    "), defined("return copied(x)").replace("\n", "\n    ")
    at.take(f"if torch.cuda.get_device_capability()[0] == 8:\n    {stub}\nelse:\n    {written}\n")
    said, _ = at.record(F, X, target="a100")
    assert said.is_stub
    assert isinstance(at.ask(F, X)[0], Ok)


@pytest.mark.parametrize(
    ("code", "kinds"),
    [
        (CALLED["by how often it is called"].replace("9", "2"), [Raised] * 3),
        (defined("return copied(x)"), [Ok] * 3),
    ],
    ids=["raises once", "never raises"],
)
def test_who_says_that_a_function_is_a_stub_only_loses(at, code, kinds):
    """A submission that patches the recorder: what it returns is judged, and after a NotImplementedError nothing is"""
    at.take(SAYS_SO + code)
    assert [type(reply) for reply in replies_of(at)] == kinds


def test_stubs_cost_their_own_checks(submission):
    """And what calls itself a stub after one call gains nothing, though it is right from then on"""
    append(submission, "weighted_sum.py", "def weighted_sum_backward(*args):\n    raise NotImplementedError('later')")
    once = "def rmsnorm_forward(*args, **kwargs):\n    if not calls:\n        calls.append(1)\n"
    once += "        raise NotImplementedError('once')\n    return right(*args, **kwargs)"
    append(submission, "rmsnorm.py", f"{SAYS_SO}calls, right = [], rmsnorm_forward\n{once}")
    families = ("forward_values", "backward_values", "forward_mistakes")
    named = [f"test_{file}.py::test_{family}" for file in ("weighted_sum", "rmsnorm") for family in families]
    got = grade(submission, "--only", *named)
    expected = {"test_forward_values": ("ok", "todo"), "test_backward_values": ("todo", "ok")}
    for test, statuses in expected.items():
        for file, status in zip(("weighted_sum", "rmsnorm"), statuses, strict=True):
            check = got.check(f"test_{file}.py::{test}")
            assert check["status"] == status, check
            assert bool(check["score"]) == (status == "ok")
    assert got.check("test_weighted_sum.py::test_backward_values")["message"] == "later"
    assert got.check("test_rmsnorm.py::test_forward_mistakes")["score"] == 0
