"""What a recorder writes down of host code: programs, recorded from small submissions in a real process."""

import base64

import pytest
import torch

from assignment.judge.replies import Raised
from assignment.tests.pairs import desk, names

X = torch.arange(12.0).view(3, 4)


@pytest.fixture(scope="module")
def at():
    with desk() as opened:
        yield opened


def body(*lines: str) -> str:
    """A submission whose function has these lines."""
    return "def weighted_sum_forward(x):\n" + "".join(f"    {line}\n" for line in lines)


def of(recorded, name):
    """The steps of one kind."""
    return [step[1:] for step in recorded["steps"] if step[0] == name]


def line(recorded, number):
    return recorded["lines"][number].partition(" in ")[0].rpartition(":")[2]


# storages


def test_views_need_no_steps(at):
    """They are other sizes, strides and offsets of a storage"""
    told = at.steps(body("y = x.t()[1:].unsqueeze(0).detach().expand(2, -1, -1)", "return y + 0"), X)
    assert names(told) == ["add"]
    ((_, (given, _), _, _, _),) = of(told, "op")
    ((storage,),) = of(told, "inputs")[0]
    number, dtype, offset, *_ = told["views"][storage]
    assert told["views"][given["t"]] == [number, dtype, offset + 1, [2, 3, 3], [0, 1, 4]]


def test_storages_are_numbered_and_freed(at):
    told = at.steps(body("for _ in range(200):", "    y = x + 1", "return y"), X)
    made = {told["views"][views[0]][0] for _, _, _, views, _ in of(told, "op")}
    gone = {number for (numbers,) in of(told, "free") for number in numbers}
    assert len(made) == 200
    assert gone == made - {told["views"][told["results"][0][0]][0]}
    assert [step[0] for step in told["steps"]].index("free") < 130  # not only at the end


def test_a_storage_keeps_its_number_while_it_lives(at):
    """Across calls: what is kept from one is known in the next"""
    at.take("kept = []\n" + body("kept.append(x + 1)", "return kept[0] * 2"))
    _, first = at.record("weighted_sum_forward", X)
    _, second = at.record("weighted_sum_forward", X)
    kept = first["views"][of(first, "op")[0][3][0]]
    scaled = of(second, "op")[1]
    assert second["views"][scaled[1][0]["t"]] == kept
    assert kept[0] not in {number for (numbers,) in of(first, "free") for number in numbers}


def test_in_place_operations_make_no_storage(at):
    told = at.steps(body("y = x.clone()", "y.mul_(2)", "y[0] = 7.0", "y[1:].add_(1)", "return y"), X)
    assert names(told)[0] == "clone"
    assert "mul_" in names(told)
    assert "add_" in names(told)
    assert len({told["views"][v][0] for _, _, _, views, _ in of(told, "op") for v in views}) == 1


@pytest.mark.parametrize(("kind", "marks"), [("call", []), ("again", ["again"]), ("costs", []), ("kept", [])])
def test_points_that_the_judge_has_reached_are_marked(at, kind, marks):
    at.take(BACKWARD + "weighted_sum_forward = weighted_sum\n")
    _, told = at.record("weighted_sum", *([X, X] if kind == "again" else [X]), kind=kind)
    assert [step[1] for step in told["steps"] if step[0] == "mark"] == marks


# memory that nobody was seen to make


def test_constants_come_with_their_bytes(at):
    told = at.steps(body("return torch.tensor([1.0, 2.0, 3.0, 4.0], device='cuda') + x"), X)
    ((_, content, where),) = of(told, "constant")
    assert base64.b64decode(content) == torch.tensor([1.0, 2.0, 3.0, 4.0]).numpy().tobytes()
    assert "weighted_sum.py" in told["lines"][where]


HELD = "import numpy\nheld = numpy.zeros({}, numpy.float32)\nshared = torch.from_numpy(held)\n"


@pytest.mark.parametrize(("numbers", "kind"), [((1 << 18), "constant"), ((1 << 18) + 1, "foreign")])
def test_a_mebibyte_of_constants_is_taken(at, numbers, kind):
    told = at.steps(HELD.format(numbers) + body("return shared[:4].cuda() + x"), X)
    assert [step[0] for step in told["steps"] if step[0] in ("constant", "foreign")] == [kind]


def test_a_constant_that_changes_behind_the_tape_is_none(at):
    told = at.steps(HELD.format(4) + body("y = shared.cuda() + x", "held[:] = 1", "return y + shared.cuda()"), X)
    assert [step[0] for step in told["steps"] if step[0] in ("constant", "foreign")] == ["constant", "foreign"]


def test_a_constant_that_an_operation_changes_stays_known(at):
    told = at.steps(HELD.format(4) + body("shared.add_(1)", "return x + shared.cuda()"), X)
    assert [step[0] for step in told["steps"] if step[0] in ("constant", "foreign")] == ["constant"]


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
    assert len(told["results"]) == 2


def test_threads_are_recorded(at):
    told = at.steps(
        "import threading\n"
        + body(
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
    told = at.steps(body("y = copied(x)", f"_ = {code}", "return y"), X)
    assert any(name in said and line(told, where).isdecimal() for said, where in of(told, "read"))


def test_lines_are_the_submissions(at):
    told = at.steps(body("y = x + 1", "", "return y * 2"), X)
    first, second = (int(line(told, step[-1])) for step in of(told, "op"))
    assert second - first == 2
    assert all(text.startswith("cs336_kernels/weighted_sum.py:") for text in told["lines"] if text)


# a machine with a GPU

ON_GPU = [
    "x.is_cuda and not x.is_cpu",
    "x.device.type == 'cuda' and x.device.index == 0 and x.get_device() == 0",
    "x.device == torch.device('cuda:0')",
    "torch.empty(3, device='cuda').is_cuda",
    "torch.empty(3, device=x.device).is_cuda",
    "torch.empty(3, device=0).is_cuda",
    "not torch.empty(3).is_cuda and torch.empty(3).device.type == 'cpu'",
    "torch.empty_like(x).is_cuda and x.new_zeros(3).is_cuda and (x + 1).is_cuda and x[0].t().is_cuda",
    "torch.zeros(3).cuda().is_cuda and torch.zeros(3).to('cuda').is_cuda and torch.zeros(3).to(x).is_cuda",
    "torch.zeros(3).to(x.device).is_cuda and torch.zeros(3).to(device='cuda', dtype=torch.float16).is_cuda",
    "not x.cpu().is_cuda and not x.to('cpu').is_cuda and x.to('cuda') is x",
    "torch.zeros(3).to('cuda', torch.float16).dtype == torch.float16",
    "x.to(torch.float16).is_cuda and x.half().is_cuda and x.contiguous().is_cuda",
    "torch.tensor([1.0], device='cuda').is_cuda and torch.arange(3, device='cuda').is_cuda",
    "torch.nn.Parameter(torch.ones(3, device='cuda')).is_cuda",
    "torch.cat([x, x]).is_cuda and torch.where(x > 0, x, 0.0).is_cuda",
    "torch.randn(3, device='cuda', generator=None).is_cuda",
]
ASKED = [
    "torch.cuda.is_available() and torch.cuda.device_count() == 1 and torch.cuda.current_device() == 0",
    "torch.cuda.get_device_capability() >= (8, 0) and torch.cuda.get_device_capability('cuda') >= (8, 0)",
    "torch.cuda.get_device_properties(0).multi_processor_count > 1",
    "'NVIDIA' in torch.cuda.get_device_name()",
    "torch.cuda.synchronize() is None and torch.cuda.empty_cache() is None",
    "torch.cuda.Stream().synchronize() is None and torch.cuda.current_stream().cuda_stream == 0",
    "torch.cuda.Event(enable_timing=True).record() is None",
    "torch.cuda.is_bf16_supported()",
    "triton.runtime.driver.active.get_current_target().backend == 'cuda'",
    "triton.runtime.driver.active.get_current_device() == 0",
    "triton.runtime.driver.active.get_active_torch_device().type == 'cuda'",
    "triton.runtime.driver.active.utils.get_device_properties(0)['max_shared_mem'] > 100_000",
    "triton.testing.do_bench(lambda: None) > 0",
]


@pytest.mark.parametrize("claim", [*ON_GPU, *ASKED])
def test_it_answers_as_a_machine_with_a_gpu(at, claim):
    at.steps(body(f"assert {claim}", "return x + 0"), X)


@pytest.mark.parametrize("claim", [claim for claim in [*ON_GPU, *ASKED] if "x" not in claim.replace("max_", "")])
def test_also_while_it_is_imported(at, claim):
    at.steps(f"assert {claim}\n" + body("return x + 0"), X)


@pytest.mark.parametrize(
    "code",
    [
        "with torch.cuda.stream(torch.cuda.Stream()):\n        y = x + 1",
        "with torch.cuda.device(x.device):\n        y = x + 1",
        "with torch.device('cuda'):\n        y = torch.empty(3)\n    assert y.is_cuda",
        "s = torch.cuda.Stream()\n    s.wait_stream(torch.cuda.current_stream())\n    with s:\n        y = x + 1",
        "x.record_stream(torch.cuda.current_stream())",
    ],
)
def test_streams_and_devices_can_be_entered(at, code):
    at.steps(body(code, "return x + 0"), X)


POINTER = "Pointer argument y_ptr cannot be accessed from Triton"
MIXED = "Expected all tensors to be on the same device"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("_copy[(1,)](x, torch.empty(3, 4), 12, 64)", POINTER),
        ("_copy[(1,)](x, x.cpu(), 12, 64)", POINTER),
        ("x + torch.ones(3, 4)", MIXED),
        ("x @ torch.ones(4, 4)", MIXED),
        ("torch.cat([x, torch.ones(3, 4)])", MIXED),
        ("x.add_(torch.ones(3, 4))", MIXED),
    ],
)
def test_the_wrong_device_is_refused_where_a_gpu_refuses_it(at, code, words):
    at.take(body(f"_ = {code}", "return x + 0"))
    said, _ = at.record("weighted_sum_forward", X)
    assert isinstance(said.ended, Raised)
    assert words in said.ended.message


@pytest.mark.parametrize(
    "code",
    [
        "x + torch.tensor(2.0)",
        "x * torch.ones(())",
        "torch.empty(3, 4) + torch.ones(3, 4)",
        "x[torch.tensor([0, 2])]",
        "torch.ones(3, 4).copy_(x) + 1",
        "torch.empty(3, 4, device='cuda').copy_(torch.ones(3, 4))",
        "torch.arange(3).tolist()",
    ],
)
def test_numbers_and_tensors_of_the_host_pass(at, code):
    at.steps(body(f"_ = {code}", "return x + 0"), X)


def test_pytorch_problems_may_make_tensors_anywhere(at):
    code = "def flash_forward_pytorch(x):\n    return x + torch.ones(3, 4)\n"
    at.steps(code, X, function="flash_forward_pytorch")


@pytest.mark.parametrize(
    "decorator",
    ["@torch.compile", "@torch.compile(fullgraph=True)", "@torch.compile(mode='max-autotune', dynamic=False)"],
)
def test_torch_compile_is_the_identity(at, decorator):
    told = at.steps(f"{decorator}\ndef inner(x):\n    return x * 2\n" + body("return inner(x)"), X)
    assert names(told) == ["mul"]


# launches

TUNED = """
@triton.autotune([triton.Config({{"SIZE": 64}}{hook}), triton.Config({{"SIZE": 128}}, num_warps=8)], key=["n"]{more})
@triton.jit
def tuned(x_ptr, y_ptr, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)

def weighted_sum_forward(x):
    y = torch.empty_like(x)
    for _ in range(2):
        tuned[lambda meta: (triton.cdiv(12, meta["SIZE"]),)](x, y, 12)
    return y
"""


def launches(told):
    return [(given, options, others) for _, _, given, options, others, _, _ in of(told, "launch")]


def test_autotuned_kernels_bring_all_configurations(at):
    """And run once more for a new key, as the tuner's trial"""
    told = at.steps(TUNED.format(hook="", more=""), X)
    assert len(launches(told)) == 3
    for given, _, others in launches(told):
        assert given["SIZE"] == 64
        assert [other["SIZE"] for other in others] == [64, 128]
        assert others[1]["num_warps"] == 8


def test_pruned_configurations_are_none(at):
    prune = ", prune_configs_by={'early_config_prune': lambda configs, named, **_: configs[1:]}"
    told = at.steps(TUNED.format(hook="", more=prune), X)
    assert [len(others) for _, _, others in launches(told)] == [1] * 3
    assert all(given["SIZE"] == 128 for given, _, _ in launches(told))


def test_hooks_of_tuning_are_steps(at):
    """reset_to_zero before and after a trial alone; a configuration's pre_hook before each launch"""
    told = at.steps(TUNED.format(hook="", more=", reset_to_zero=['y_ptr']"), X)
    assert names(told) == ["empty_like", "zero_", "launch", "zero_", "launch", "launch"]
    hook = ", pre_hook=lambda given: given['y_ptr'].fill_(3.0)"
    told = at.steps(TUNED.format(hook=hook, more=""), X)
    assert names(told)[1:] == ["fill_", "launch", "fill_", "launch", "fill_", "launch"]


def test_heuristics_give_constants(at):
    code = """
@triton.heuristics({"SIZE": lambda given: triton.next_power_of_2(given["n"])})
@triton.jit
def heuristic(x_ptr, y_ptr, n, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)

def weighted_sum_forward(x):
    y = torch.empty_like(x)
    heuristic[(1,)](x, y, 12)
    return y
"""
    ((given, _, _),) = launches(at.steps(code, X))
    assert given["SIZE"] == 16


def test_a_warmups_stand_in_has_figures_and_can_be_launched(at):
    code = """
def weighted_sum_forward(x):
    y = torch.empty_like(x)
    compiled = _copy.warmup(x, y, 12, SIZE=64, grid=(1,))
    compiled._init_handles()
    assert compiled.n_regs > 0 and compiled.n_spills == 0 and compiled.metadata.shared > 0
    compiled[(1, 1, 1)](x, y, 12)
    return y
"""
    told = at.steps(code, X)
    assert names(told) == ["empty_like", "launch"]
    ((given, _, _),) = launches(told)
    assert (given["n"], given["SIZE"]) == (12, 64)


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        ("_copy[(1,)](x, y, 12, 64, num_wraps=4)", "num_wraps was specified but unrecognised"),
        ("_copy[(1, 70000)](x, y, 12, 64)", "grid y is 70000"),
        ("_copy[(1.5,)](x, y, 12, 64)", "expected a grid of one to three integers"),
        ("_copy[(1,)](x, y, [12], 64)", "numbers, strings, None, dtypes"),
        ("_copy[(1,)](x, y)", "missing a required argument"),
    ],
)
def test_launches_that_cannot_be_are_refused(at, launch, words):
    at.take(body("y = torch.empty_like(x)", launch, "return y"))
    said, told = at.record("weighted_sum_forward", X)
    assert (type(said.ended), names(told)) == (Raised, ["empty_like"])
    assert words in said.ended.message


def test_fresh_memory_is_finite_where_it_is_recorded(at):
    """What a launch leaves there too: host code that divides by it, or checks it, goes on"""
    code = body("y = copied(x)", "assert torch.isfinite(y).all() and (y != 0).all()", "return y")
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
    at.record("weighted_sum", *inputs, kind=kind, **MORE)
    assert sent
    mine = set(graded.flatten().tolist()) | set((graded * 2).flatten().tolist())
    for stand_in in sent[0]:
        assert stand_in.untyped_storage()._cdata not in {t.untyped_storage()._cdata for t in inputs}
        assert len(mine & set(stand_in.flatten().tolist())) < 5  # two in float32 may meet
