"""What a recorder writes down of host code: programs, recorded from small submissions in a real process."""

import base64

import pytest
import torch

from assignment.protocol.program import Constant, Foreign, Free, Inputs, Launch, Operation, Read, Repeat
from assignment.tests.pairs import defined, names, of

X = torch.arange(12.0).view(3, 4)


def line(recorded, number):
    return str(recorded.lines[number].number)


# storages


def test_views_need_no_steps(at):
    """They are other sizes, strides and offsets of a storage"""
    told = at.steps(defined("y = x.t()[1:].unsqueeze(0).detach().expand(2, -1, -1)", "return y + 0"), X)
    assert names(told) == ["add"]
    ((_, (given, _), *_),) = of(told, Operation)
    (number,) = of(told, Inputs)[0].views
    of_input = told.views[number]
    assert told.views[given["t"]] == (*of_input[:2], of_input.offset + 1, (2, 3, 3), (0, 1, 4))


def test_storages_are_numbered_and_freed(at):
    told = at.steps(defined("for _ in range(200):", "    y = x + 1", "return y"), X)
    made = {told.views[step.made[0]].storage for step in of(told, Operation)}
    gone = {number for step in of(told, Free) for number in step.storages}
    assert len(made) == 200
    assert gone == made - told.result_storages()
    assert [type(step) for step in told.steps].index(Free) < 130  # not only at the end


def test_a_storage_keeps_its_number_while_it_lives(at):
    """Across calls: what is kept from one is known in the next"""
    at.take("kept = []\n" + defined("kept.append(x + 1)", "return kept[0] * 2"))
    _, first = at.record("weighted_sum_forward", X)
    _, second = at.record("weighted_sum_forward", X)
    kept = first.views[of(first, Operation)[0].made[0]]
    scaled = of(second, Operation)[1]
    assert second.views[scaled.args[0]["t"]] == kept
    assert kept.storage not in {number for step in of(first, Free) for number in step.storages}


def test_in_place_operations_make_no_storage(at):
    told = at.steps(defined("y = x.clone()", "y.mul_(2)", "y[0] = 7.0", "y[1:].add_(1)", "return y"), X)
    assert names(told)[0] == "clone"
    assert "mul_" in names(told)
    assert "add_" in names(told)
    assert len({told.views[v].storage for step in of(told, Operation) for v in step.made}) == 1


@pytest.mark.parametrize(("kind", "marks"), [("call", 0), ("again", 1), ("costs", 0), ("kept", 0)])
def test_points_that_the_judge_has_reached_are_marked(at, kind, marks):
    at.take(BACKWARD + "weighted_sum_forward = weighted_sum\n")
    _, told = at.record("weighted_sum", *([X, X] if kind == "again" else [X]), kind=kind)
    assert len(of(told, Repeat)) == marks


# memory that nobody was seen to make


def test_constants_come_with_their_bytes(at):
    told = at.steps(defined("return torch.tensor([1.0, 2.0, 3.0, 4.0], device='cuda') + x"), X)
    ((_, content, where),) = of(told, Constant)
    assert base64.b64decode(content) == torch.tensor([1.0, 2.0, 3.0, 4.0]).numpy().tobytes()
    assert "weighted_sum.py" in told.lines[where].path


HELD = "import numpy\nheld = numpy.zeros({}, numpy.float32)\nshared = torch.from_numpy(held)\n"


@pytest.mark.parametrize(("numbers", "kind"), [((1 << 18), Constant), ((1 << 18) + 1, Foreign)])
def test_a_mebibyte_of_constants_is_taken(at, numbers, kind):
    told = at.steps(HELD.format(numbers) + defined("return shared[:4].cuda() + x"), X)
    assert [type(step) for step in of(told, Constant, Foreign)] == [kind]


def test_a_constant_that_changes_behind_the_tape_is_none(at):
    told = at.steps(HELD.format(4) + defined("y = shared.cuda() + x", "held[:] = 1", "return y + shared.cuda()"), X)
    assert [type(step) for step in of(told, Constant, Foreign)] == [Constant, Foreign]


def test_a_constant_that_an_operation_changes_stays_known(at):
    told = at.steps(HELD.format(4) + defined("shared.add_(1)", "return x + shared.cuda()"), X)
    assert [type(step) for step in of(told, Constant, Foreign)] == [Constant]


# memory that changes its size, tensors without memory


def test_memory_that_grows_is_new_memory(at):
    """What was in it is copied"""
    told = at.steps(defined("y = copied(x).view(-1)", "z = y[:2]", "y.resize_(20)", "return y, z"), X)
    assert names(told) == ["empty_like", "launch", "empty", "copy_"]
    (_, (start,), _, (whole,), _) = of(told, Operation)[1]
    assert start == [20]
    assert len({told.views[number].storage for number in (whole, *told.results[0])}) == 1


def test_memory_that_shrinks_stays(at):
    told = at.steps(defined("y = copied(x)", "return y.resize_(3)"), X)
    assert names(told) == ["empty_like", "launch"]


def test_meta_tensors_are_no_steps(at):
    """They have a shape and nothing else"""
    code = defined("m = (x.to('meta') @ torch.empty(4, 2, device='meta')).add_(1)", "return x.new_empty(m.shape)")
    assert names(at.steps(code, X)) == ["new_empty"]


def test_parameters_are_views_of_what_they_hold(at):
    code = defined("p = torch.nn.Parameter(x, requires_grad=False)", "b = torch.nn.Buffer(p)", "return copied(b)")
    told = at.steps(code, X)
    assert names(told) == ["empty_like", "launch"]
    (launch,) = of(told, Launch)
    assert told.views[launch.arguments["x_ptr"]["t"]] == told.views[of(told, Inputs)[0].views[0]]


def test_threads_share_one_program(at):
    """Many at once: each tensor is on its thread's device, each launch has its own arguments"""
    lines = [
        "from concurrent.futures import ThreadPoolExecutor",
        "def one(i):",
        "    on = torch.empty(3, device='cuda' if i % 2 else 'cpu')",
        "    assert on.is_cuda == (i % 2 == 1)",
        "    y = torch.empty(12, device='cuda')",
        "    _copy[(1,)](x, y, 12, 64)",
        "    return y + i",
        "import sys",
        "sys.setswitchinterval(1e-6)",
        "with ThreadPoolExecutor(8) as pool:",
        "    return tuple(pool.map(one, range(200)))",
    ]
    told = at.steps(defined(*lines), X)
    written = [launch.arguments["y_ptr"]["t"] for launch in of(told, Launch)]
    assert len({told.views[number].storage for number in written}) == 200


# what goes past the modes


def test_bodies_of_custom_operators_are_recorded(at):
    code = """
@torch.library.custom_op("ours::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    _copy[(1,)](x, y, x.numel(), 64)
    return y * 2

@doubled.register_fake
def _(x):
    return torch.empty_like(x)

def weighted_sum_forward(x):
    return torch.ops.ours.doubled(x)
"""
    assert names(at.steps(code, X)) == ["empty_like", "launch", "mul"]


BACKWARD = """
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return copied(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        assert grad.is_cuda and torch.empty(3, device="cuda").is_cuda and x.device.type == "cuda"
        return copied(grad) + x

def weighted_sum(x):
    return Double.apply(x)
"""
MORE = {"wrt": [0], "times": 2, "has_grad": False, "interleaved": False}


def test_backward_passes_are_recorded(at):
    """Each of them, on the thread where PyTorch makes them, and as on a GPU"""
    told = at.steps(BACKWARD, X, function="weighted_sum", kind="gradients", **MORE)
    assert names(told).count("launch") == 3
    assert len(told.results) == 2


def test_threads_are_recorded(at):
    told = at.steps(
        "import threading\n"
        + defined(
            "out = []",
            "thread = threading.Thread(target=lambda: out.append(copied(x) + torch.ones(4, device='cuda')))",
            "thread.start()",
            "thread.join()",
            "return out[0]",
        ),
        X,
    )
    assert names(told) == ["empty_like", "launch", "ones", "add"]


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("x.sum().item()", "_local_scalar_dense"),
        ("float(x[0, 0])", "_local_scalar_dense"),
        ("bool((x > 0).all())", "_local_scalar_dense"),
        ("x.tolist()", "tolist"),
        ("x.numpy()", "numpy"),
        ("__import__('numpy').asarray(x)", "__array__"),
        ("torch.equal(x, x + 1)", "equal"),
    ],
)
def test_reading_a_value_is_noted(at, code, name):
    told = at.steps(defined("y = copied(x)", f"_ = {code}", "return y"), X)
    assert any(name in said and line(told, where).isdecimal() for said, _, where in of(told, Read))


def test_lines_are_the_submissions(at):
    told = at.steps(defined("y = x + 1", "", "return y * 2"), X)
    first, second = (int(line(told, step.line)) for step in of(told, Operation))
    assert second - first == 2
    assert {line.path for line in told.lines if line.path} == {"cs336_kernels/weighted_sum.py"}


def test_fresh_memory_is_finite_where_it_is_recorded(at):
    """What a launch leaves there too: host code that divides by it, or checks it, goes on"""
    code = defined("y = copied(x)", "assert torch.isfinite(y).all() and (y != 0).all()", "return y")
    at.steps(code, X)


# nothing of graded values


@pytest.mark.parametrize("kind", ["call", "again", "gradients", "forward"])
def test_nothing_of_graded_values_reaches_the_recorder(at, kind, monkeypatch):
    """Not one of their bytes is in what it is sent"""
    sent: list = []
    exchange = at.pair.recorder.ask

    def ask(request, tensors):
        sent.append(tensors)
        return exchange(request, tensors)

    monkeypatch.setattr(at.pair.recorder, "ask", ask)
    graded = torch.randn(64, 64, generator=torch.Generator().manual_seed(1))
    inputs = [graded, graded * 2] if kind == "again" else [graded]
    at.take(BACKWARD + "weighted_sum_forward = weighted_sum\n")
    at.record("weighted_sum", *inputs, kind=kind, **(MORE if kind == "gradients" else {}))
    assert sent
    mine = set(graded.flatten().tolist()) | set((graded * 2).flatten().tolist())
    for stand_in in sent[0]:
        assert stand_in.untyped_storage()._cdata not in {t.untyped_storage()._cdata for t in inputs}
        assert len(mine & set(stand_in.flatten().tolist())) < 5  # two in float32 may meet
