"""What a recorder answers host code of a GPU that is not there, and where it refuses as a GPU does."""

import pytest
import torch

from assignment.judge.replies import Raised
from assignment.tests.pairs import defined, names

X = torch.arange(12.0).view(3, 4)


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
    "torch.zeros(3).to('cuda', None, True).is_cuda and torch.zeros(3).to('cuda', torch.float16, True, True).is_cuda",
    "x.to(device=None, dtype=torch.float16).dtype == torch.float16 and x.to(torch.float16, True).is_cuda",
    "x.to(None, torch.float16, True).dtype == torch.float16",
    "x.to('cuda', None, False) is x and x.to(x, True) is x and not x.to(torch.zeros(3)).is_cuda",
    "torch.nn.Linear(2, 3).to('cuda').weight.is_cuda and torch.nn.Linear(2, 3).cuda().half().weight.is_cuda",
    "torch.empty(3, device='meta').device.type == 'meta' and x.to('meta').shape == (3, 4)",
    "torch.empty_like(x.to('meta'), device='cuda').is_cuda and torch.empty_like(x.to('meta')).is_meta",
    "torch.nn.Linear(2, 3, device='meta').to_empty(device='cuda').weight.is_cuda",
    "x.untyped_storage().device == x.device and x.untyped_storage().is_cuda and x[1:].storage().device.type == 'cuda'",
    "torch.zeros(3).untyped_storage().device.type == 'cpu' and x.untyped_storage().get_device() == 0",
    "torch.empty(3).untyped_storage().cpu().device.type == 'cpu' and (x + 1).untyped_storage().is_cuda",
    "torch.empty(0, device='cuda').resize_(5).is_cuda and torch.empty(0, device='cuda').resize_as_(x).is_cuda",
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
    at.steps(defined(f"assert {claim}", "return x + 0"), X)


@pytest.mark.parametrize("claim", [claim for claim in [*ON_GPU, *ASKED] if "x" not in claim.replace("max_", "")])
def test_also_while_it_is_imported(at, claim):
    at.steps(f"assert {claim}\n" + defined("return x + 0"), X)


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
    at.steps(defined(code, "return x + 0"), X)


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
    at.take(defined(f"_ = {code}", "return x + 0"))
    said, _ = at.record("weighted_sum_forward", X)
    assert isinstance(said.ended, Raised)
    assert words in said.ended.message
    assert said.ended.in_kernel == (words == POINTER)


@pytest.mark.parametrize("code", ["torch.ones(3).view(2, 2)", "_copy[lambda _: expect(x)](x, x, 12, 64)"])
def test_what_a_submission_raises_itself_is_no_error_of_a_launch(at, code):
    at.take("def expect(x):\n    raise ValueError('a size')\n" + defined(f"_ = {code}", "return x + 0"))
    said, _ = at.record("weighted_sum_forward", X)
    assert isinstance(said.ended, Raised)
    assert not said.ended.in_kernel


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
    at.steps(defined(f"_ = {code}", "return x + 0"), X)


def test_pytorch_problems_may_make_tensors_anywhere(at):
    code = "def flash_forward_pytorch(x):\n    return x + torch.ones(3, 4)\n"
    at.steps(code, X, function="flash_forward_pytorch")


@pytest.mark.parametrize(
    "decorator",
    ["@torch.compile", "@torch.compile(fullgraph=True)", "@torch.compile(mode='max-autotune', dynamic=False)"],
)
def test_torch_compile_is_the_identity(at, decorator):
    told = at.steps(f"{decorator}\ndef inner(x):\n    return x * 2\n" + defined("return inner(x)"), X)
    assert names(told) == ["mul"]
