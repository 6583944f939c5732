"""Each public member of torch.cuda, torch.accelerator and Triton's driver is answered, or refused by name."""

import importlib
import re
from pathlib import Path

import pytest
import torch

from assignment.judge.replies import Raised
from assignment.simulator import one_gpu
from assignment.simulator.properties import H100
from assignment.tests.pairs import defined, names

X = torch.arange(12.0).view(3, 4)
WALK = (Path(__file__).parent / "data" / "members.py").read_text()
REFUSED = {
    *(name for members in one_gpu.refused().values() for name in members),
    *(f"{name}{kind}" for name in one_gpu.TYPES for kind in ("Tensor", "Storage")),
    "launcher_cls", "map_python_to_cpp_type",
    "load_binary", "cuOccupancyMaxActiveClusters", "set_printf_fifo_size", "fill_tma_descriptor_tiled",
    "fill_tma_descriptor_im2col", "launch", "build_signature_metadata",
    # of Triton 3.9
    "get_default_stream", "is_stream_capturing", "unload_module",
}  # fmt: skip

# members that answer without a GPU, or that only name something
AS_THEY_ARE = {
    "torch.cuda": {
        "CudaError", "DeferredCudaCallError", "AcceleratorError", "OutOfMemoryError", "classproperty",
        "cudaStatus", "has_half", "has_magma",
        "amp", "graphs", "memory", "nvtx", "profiler", "random", "streams",
        "gds", "graph_annotations", "green_contexts", "jiterator", "nccl", "sparse", "tunable",
    },
    "torch.accelerator": {"graphs", "memory"},
}  # fmt: skip


def test_every_member_is_answered_or_refused_by_name(at):
    """As the table says, and with no other exception"""
    at.take(f"{WALK}\nMAY_BE_REFUSED = {sorted(REFUSED)}\n")
    said, _ = at.record("weighted_sum_forward", X)
    assert isinstance(said.ended, Raised)
    n_members = "270" if torch.__version__.startswith("2.13.") else r"2\d\d"
    assert re.fullmatch(f"{n_members} members", said.ended.text), said.ended.text


@pytest.mark.parametrize("dotted", ["torch.cuda", "torch.accelerator"])
def test_every_member_has_been_decided_on(dotted):
    """Answered, refused or left as it is: a member that a new PyTorch adds is in no table"""
    module = importlib.import_module(dotted)
    answered = one_gpu.cuda(H100) if dotted == "torch.cuda" else one_gpu.accelerator(H100)
    known = {*answered, *one_gpu.refused()[dotted], *AS_THEY_ARE[dotted]}
    public = {name for name in {*module.__all__, *_types(module)} if not name.startswith("_")}
    assert public <= known, f"not decided on: {sorted(public - known)}"


def _types(module):
    return {name for name, value in vars(module).items() if isinstance(value, type) and "torch" in value.__module__}


ANSWERS = [
    "torch.cuda.mem_get_info()[0] < torch.cuda.mem_get_info()[1]",
    "torch.cuda.memory_stats()['allocated_bytes.all.peak'] == 0",
    "torch.cuda.memory_summary(abbreviated=True)",
    "torch.cuda.reset_peak_memory_stats(x.device) is None and torch.cuda.max_memory_allocated() == 0",
    "torch.equal(torch.cuda.get_rng_state(), torch.cuda.get_rng_state_all()[0])",
    "torch.cuda.manual_seed(3) is None and torch.cuda.initial_seed() == 3",
    "torch.Generator('cuda').manual_seed(7).device == x.device and torch.Generator().device.type == 'cpu'",
    "torch.rand(3, device='cuda', generator=torch.Generator(device='cuda').manual_seed(1)).is_cuda",
    "isinstance(torch.Generator('cuda'), torch.Generator)",
    "torch.cuda.current_stream() == torch.cuda.default_stream()",
    "not torch.cuda.is_current_stream_capturing()",
    "isinstance(torch.cuda.Event(enable_timing=True), torch.cuda.Event) and isinstance(torch.Stream(), torch.Stream)",
    "torch.accelerator.current_accelerator() == torch.device('cuda') and torch.accelerator.device_count() == 1",
    "torch.get_device_module() is torch.cuda and torch.get_device_module('cpu') is torch.cpu",
    "isinstance(x, torch.cuda.FloatTensor) and not isinstance(x, torch.cuda.HalfTensor)",
    "not isinstance(torch.ones(3), torch.cuda.FloatTensor)",
    "x.type() == 'torch.cuda.FloatTensor' and torch.ones(3).type() == 'torch.FloatTensor'",
    "x.type(torch.float16).is_cuda and not torch.empty(3, pin_memory=True).is_cuda",
    "torch.cuda.get_device_properties(x.device).uuid and torch._C._cuda_getCurrentRawStream(0) == 0",
    "torch.cuda._exchange_device(0) == torch.cuda.current_device()",
    "int(torch.version.cuda.split('.')[0]) >= 12",
    "torch.cuda.cudart().cudaProfilerStart() == 0",
    "triton.runtime.driver.active.get_benchmarker()(lambda: None, quantiles=[0.5, 0.2, 0.8])[0] > 0",
    "triton.testing.do_bench(lambda: None, return_mode='all') == [1.0]",
    "__import__('torch._dynamo.trace_rules')._dynamo.trace_rules.get_torch_obj_rule_map()",
    "triton.testing.get_dram_gbps() > 1000",
]


@pytest.mark.parametrize("claim", ANSWERS)
def test_answers_are_those_of_one_gpu(at, claim):
    at.steps(defined(f"assert {claim}", "return x + 0"), X)


BLOCKS = {
    "fork_rng of cuda": "with torch.random.fork_rng(devices=[0]):\n        torch.manual_seed(1)",
    "fork_rng": "with torch.random.fork_rng():\n        torch.cuda.manual_seed(1)",
    "current stream": (
        "s = torch.cuda.Stream(priority=-1)\n    with torch.cuda.stream(s):\n"
        "        assert torch.cuda.current_stream() is s\n    assert torch.cuda.current_stream() is not s"
    ),
    "nvtx": "with torch.cuda.nvtx.range('forward'):\n        pass",
    "profiler": "with torch.cuda.profiler.profile():\n        pass",
    "device index": "with torch.accelerator.device_index(0):\n        pass",
    "default device": (
        "torch.set_default_device('cuda')\n    assert torch.get_default_device().type == 'cuda'\n"
        "    torch.set_default_device('cpu')"
    ),
}


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_blocks_can_be_entered(at, block):
    assert names(at.steps(defined(block, "return copied(x)"), X))[-1] == "launch"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("torch.cuda.CUDAGraph()", "torch.cuda.CUDAGraph is not available"),
        ("torch.cuda.FloatTensor(3)", 'write torch.empty(..., dtype=torch.float32, device="cuda")'),
        ("torch.cuda.MemPool()", "leave it out"),
        ("torch.cuda.memory_stats_as_nested_dict()", "write torch.cuda.memory_stats()"),
        ("torch.cuda.Event().ipc_handle()", "there is one process"),
        ("torch.cuda.tunable.enable()", "PyTorch's products are not tuned here"),
    ],
)
def test_refusals_say_what_to_write(at, code, words):
    at.take(defined(code, "return x + 0"))
    said, _ = at.record("weighted_sum_forward", X)
    assert isinstance(said.ended, Raised)
    assert words in said.ended.message
    assert "cs336_kernels/weighted_sum.py" in said.ended.message


@pytest.mark.parametrize(
    "code",
    [
        "torch.cuda.manual_seed('a')",
        "torch.cuda.set_rng_state(3)",
        "torch.Generator('nowhere')",
        "torch.get_device_module('nowhere')",
        "torch.cuda.stream(3).__enter__()",
        "torch.cuda.get_device_name(0, 1)",
        "triton.testing.do_bench(lambda: None, quantiles=0.5)",
        "torch.empty(3, device='cuda').to('nowhere')",
        "torch.empty(0).resize_(-1)",
        "x.to_sparse().resize_as_(x)",
    ],
)
def test_wrong_arguments_are_the_students_fault(at, code):
    at.take(defined(code, "return x + 0"))
    said, _ = at.record("weighted_sum_forward", X)
    assert isinstance(said.ended, Raised), said
    assert "cs336_kernels/weighted_sum.py" in said.ended.message
