"""`allgather_matmul` of the reference beside NCCL's gather and cuBLAS: values, and times in one run. Needs two GPUs.

    torchrun --nproc-per-node 2 assignment/tests/data/two_gpus.py

Prints a row for each size: milliseconds of rank 0, the medians of rounds in turns, with the quartiles of the ratio.
"""

import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm

ROOT = Path(__file__).parents[3]
SIZES = ((8192, 8192, 8192), (8192, 2048, 8192), (4096, 4096, 4096), (16384, 8192, 8192))  # rows of all ranks, n, k
ROUNDS, CALLS = 21, 10
SLOTS, CHECKED = 64, 256  # signals of a rank; rows of c that are compared


class Ours:
    """Calls on one part of symmetric memory, counted."""

    def __init__(self, rows: int, k: int, b: torch.Tensor) -> None:
        from cs336_kernels.practice import allgather_matmul  # once its folder is on the path

        self.function, self.b, self.n_calls, ranks = allgather_matmul.allgather_matmul, b, 0, dist.get_world_size()
        vars(allgather_matmul)["_checked"] = lambda *_: [rows] * ranks  # instead of waiting for the GPU
        self.rows = torch.full((ranks,), rows, dtype=torch.int32, device="cuda")
        self.buffer, self.buffers = shared(ranks, rows, k, dtype=torch.bfloat16)
        self.signals, self.pads = shared(ranks, SLOTS, dtype=torch.int32)
        meet()

    def __call__(self, a: torch.Tensor) -> torch.Tensor:
        self.n_calls += 1
        memory = self.buffer, self.signals, self.buffers, self.pads
        return self.function(a, self.b, self.rows, *memory, rank=dist.get_rank(), call=self.n_calls)


def shared(*shape: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a tensor of zeros in symmetric memory, and the addresses of all ranks'."""
    tensor = symm.empty(*shape, dtype=dtype, device=torch.device("cuda")).zero_()
    addresses = symm.rendezvous(tensor, world()).buffer_ptrs
    return tensor, torch.tensor(addresses, dtype=torch.int64, device="cuda")


def world() -> dist.ProcessGroup:
    assert dist.group.WORLD
    return dist.group.WORLD


def meet() -> None:
    torch.cuda.synchronize()
    dist.barrier()


def milliseconds(call: Callable[[], object]) -> float:
    """Return the time of a call, of CALLS one after the other."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    meet()
    begin.record()
    for _ in range(CALLS):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / CALLS


def raced(m: int, n: int, k: int) -> str:
    """Return the row of a size; raises AssertionError where a result is wrong."""
    torch.manual_seed(dist.get_rank())
    of: dict[str, Any] = {"dtype": torch.bfloat16, "device": "cuda"}
    own = symm.empty(m // dist.get_world_size(), k, **of).normal_()
    symm.rendezvous(own, world())
    b, whole = torch.randn(k, n, **of), torch.empty(m, k, **of)
    ours = Ours(len(own), k, b)

    def nccl() -> torch.Tensor:
        dist.all_gather_into_tensor(whole, own)
        return whole @ b

    def fused() -> torch.Tensor:
        return torch.ops.symm_mem.fused_all_gather_matmul(own, [b], 0, world().group_name)[1][0]

    def product() -> torch.Tensor:
        return whole @ b

    entries = {"NCCL": nccl, "ours": lambda: ours(own), "fused": fused, "product": product}
    rows = torch.randperm(m, device="cuda")[:CHECKED]
    right = {name: call()[rows].double() for name, call in entries.items()}
    exact = whole[rows].double() @ b.double()
    for name, found in right.items():
        error = float((found - exact).abs().max() / exact.square().mean().sqrt())
        assert error < 0.03, f"{name}, {m} × {n} × {k}: the largest error is {error:.3g} of a usual element"
    times: dict[str, list[float]] = {name: [] for name in entries}
    for _ in range(ROUNDS):
        for name, call in entries.items():
            times[name].append(milliseconds(call))
    low, middle, high = statistics.quantiles([a / b for a, b in zip(times["NCCL"], times["ours"], strict=True)], n=4)
    medians = " | ".join(f"{statistics.median(of_one):.3f}" for of_one in times.values())
    return f"| {m:,} × {n:,} × {k:,} | {medians} | {middle:.2f} ({low:.2f}–{high:.2f}) |"


def main() -> None:
    sys.path[:0] = [str(ROOT / "assignment/reference"), str(ROOT)]
    os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"  # as the grader has it
    if torch.cuda.device_count() < int(os.environ.get("WORLD_SIZE", "2")):
        raise SystemExit("expected a GPU for each rank: torchrun --nproc-per-node 2 " + sys.argv[0])
    torch.cuda.set_device(int(os.environ["RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["RANK"])))
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} × {torch.cuda.get_device_name()}, torch {torch.__version__}, bfloat16, ms")
        print("| m × n × k | NCCL, then cuBLAS | ours | PyTorch's fused | cuBLAS alone | ours, × NCCL |")
        print("|---" * 6 + "|")
    for size in SIZES:
        row = raced(*size)
        if dist.get_rank() == 0:
            print(row, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
