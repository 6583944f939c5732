"""The limits of this GPU, measured: how fast it copies, and how fast it multiplies matrices."""

import functools
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch

from assignment.pytorch_private import scaled_mm

COPIED = 1 << 28  # bytes; several times the cache
SIDE = 4096  # of the matrices
ROUNDS = 20
CALLS = 8  # in a row


@dataclass(frozen=True)
class Roof:
    bytes_per_s: float  # read and written, by a copy
    operations_per_s: float  # of a product of matrices

    def least_seconds(self, nbytes: float, operations: float) -> float:
        """Return a lower bound on the time of a function that does its work."""
        return max(nbytes / self.bytes_per_s, operations / self.operations_per_s)


@functools.cache
def measure(dtype: torch.dtype) -> Roof:
    source, target = (torch.empty(COPIED, dtype=torch.uint8, device="cuda") for _ in range(2))
    multiply = product(dtype)
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")  # TF32, which tl.dot takes too
    try:
        return Roof(
            2 * COPIED / median_s(lambda: target.copy_(source)),
            2 * SIDE**3 / median_s(multiply),
        )
    finally:
        torch.set_float32_matmul_precision(precision)


def product(dtype: torch.dtype) -> Callable[[], torch.Tensor]:
    """Return what multiplies two matrices; of 8 bits with a sum that is rounded often, as is fastest."""
    a, b = (torch.randn(SIDE, SIDE, device="cuda").to(dtype) for _ in range(2))
    if dtype.itemsize > 1:
        out = torch.empty_like(a)
        return lambda: torch.mm(a, b, out=out)
    one = torch.ones((), device="cuda")
    return lambda: scaled_mm(a, b.mT, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)


def median_s(work: Callable[[], object]) -> float:
    """Return the median of one call, by CUDA's events in this process, without a submission."""
    times = []
    for _ in range(ROUNDS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(CALLS):
            work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3 / CALLS)
    return statistics.median(times[ROUNDS // 4 :])  # the first ones warm up
