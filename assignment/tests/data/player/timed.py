"""Plays what the reference says, as who is timed does, with the simulator in place of a GPU: prints what came.

Its recorder is a real one.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch

from assignment import simulator

simulator.install()

from assignment.calling import sticky, timed  # noqa: E402
from assignment.operators.flash_attention.workload import workload as attention  # noqa: E402
from assignment.operators.rmsnorm.workload import workload as rmsnorm  # noqa: E402
from assignment.operators.weighted_sum.workload import workload as weighted_sum  # noqa: E402
from assignment.player import gpu_player  # noqa: E402
from assignment.protocol.replies import written  # noqa: E402
from assignment.protocol.requests import Hold, Load, TakeTurns  # noqa: E402
from assignment.sandbox.stage import Stage  # noqa: E402
from assignment.simulator.properties import H100  # noqa: E402
from assignment.submission import Submission, read  # noqa: E402
from assignment.tests.specification import models, oracle  # noqa: E402
from assignment.timing import contestants  # noqa: E402
from tests import compare  # noqa: E402

TUNED = """
import torch, triton, triton.language as tl

@triton.autotune([triton.Config({"SIZE": size}) for size in (16, 64, 32)], key=["n"])
@triton.jit
def _copy(x_ptr, y_ptr, total_ptr, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)
    tl.store(total_ptr, SIZE)

workspace = []

def rmsnorm_forward(x, weight, eps=1e-5):
    if not workspace:
        workspace.append(torch.zeros(1, device=x.device))
    y, rstd = torch.empty_like(x), torch.ones(len(x), device=x.device)
    _copy[lambda meta: (triton.cdiv(x.numel(), meta["SIZE"]),)](x, y, workspace[0], x.numel())
    return y, rstd * workspace[0]
"""
MEMORY = torch.zeros(1 << 20, dtype=torch.uint8)


class Timer:
    """CUDA's events, where nothing takes time."""

    def __init__(self, **_):
        pass

    def record(self):
        pass

    def synchronize(self):
        pass

    def query(self):
        return False

    def elapsed_time(self, end):
        return 1.0


class Here:
    """A worker on this process."""

    is_connected = False

    def __init__(self, sources):
        self.session = gpu_player.GpuSession()
        self.session.answer(Load(sources=sources), [])
        self.is_connected, self.kinds = True, []

    def ask(self, request, tensors):
        self.kinds.append(type(request).__name__)
        reply, results = self.session.answer(request, tensors)
        return written(reply), results

    def end_child(self):
        pass


def patch():
    gpu_player.DEVICE = "cpu"
    sticky.error = lambda: None
    timed.sleep_on_gpu = lambda _: None
    timed.hold = lambda request: None
    for name, stand_in in {
        "Event": Timer,
        "synchronize": lambda: None,
        "empty_cache": lambda: None,
        "reset_peak_memory_stats": lambda: None,
        "memory_allocated": lambda: 0,
        "max_memory_allocated": lambda: 7,
    }.items():
        setattr(torch.cuda, name, stand_in)


def submitted(submission):
    stage = Stage(submission)
    made: Any = contestants.Submitted.__new__(contestants.Submitted)
    made._gpu, made._kernels = H100, []
    made._player = Here(stage.sources)
    made._recorder = contestants.Worker(stage, "record", None)
    made._recorder._connect()
    return made, stage


def play(made, work, seed):
    inputs = filled(work, seed)
    timed.slots[:] = laid_out([inputs, filled(work, seed + 1)])
    made.ask(partial(Hold, memory=[], slots=[], outputs=[]), work)
    made.ask(partial(TakeTurns, turns=[1, 0]), work)
    return inputs, [timed._kept[1], timed._kept[0]]


def laid_out(slots):
    """The tensors of all slots, one after the other in one memory."""
    places: list[Any] = []
    for tensors in slots:
        places.append([])
        for tensor in tensors:
            offset = sum(map(len, places)) << 14
            dtype = str(tensor.dtype).removeprefix("torch.")
            place = timed.placed(MEMORY.untyped_storage(), offset, dtype, list(tensor.shape))
            places[-1].append(place.copy_(tensor))
    return places


def filled(work, seed):
    rng = torch.Generator().manual_seed(seed)
    tensors = {name: torch.randn(spec.shape, generator=rng).to(spec.dtype) for name, spec in work.inputs.items()}
    if "lse" in tensors:
        o, lse = oracle.attention_forward(tensors["q"], tensors["k"], tensors["v"], True)
        tensors |= {"o": o.to(tensors["q"].dtype), "lse": lse.float()}
    if "rstd" in tensors:
        tensors["rstd"] = oracle.rmsnorm_forward(tensors["x"], tensors["weight"])[1].float()
    return list(tensors.values())


def main():
    patch()
    made, stage = submitted(read(Path(sys.argv[1])))
    for work in (
        weighted_sum(70, 40, torch.bfloat16),
        weighted_sum(70, 40, torch.float32, backward=True),
        rmsnorm(70, 40, torch.bfloat16),
        rmsnorm(70, 40, torch.bfloat16, backward=True),
        attention(48, 16, torch.bfloat16, True, batch=(1, 2)),
        attention(48, 16, torch.bfloat16, True, True, batch=(1, 2)),
    ):
        inputs, (first, _) = play(made, work, 3)
        name = work.function.removesuffix("_triton").replace("flash", "attention")
        model = getattr(models, name)
        margin = compare.worst_margin(first, model(*inputs, **work.options))
        print(work.function, margin < 1, made.found.evidence, made.found.doubts, made.found.peak)
    stage.close()
    made, stage = submitted(Submission({"cs336_kernels/__init__.py": TUNED.encode()}))
    made._player.kinds.clear()
    inputs, results = play(made, rmsnorm(8, 16, torch.float32), 3)
    print("tuned", torch.equal(results[0][0], inputs[0]), results[0][1].unique().tolist(), made._player.kinds)
    print(made.found.evidence, made.found.doubts)
    stage.close()


if __name__ == "__main__":
    main()
