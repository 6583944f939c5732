"""How fast the kernels are on a GPU, next to others in the same minutes: a slower GPU is no handicap.

Full points from a stated fraction of a peer's speed, proportionally fewer below it, none for a wrong result. For the
functions that move memory the peer is a copy, of as many bytes as they have to read and write; for attention it is
FlashAttention-2 as PyTorch has it. The clock is the grader's own; see handout/grading.md#speed.
"""

import pytest
import torch

pytestmark = pytest.mark.problem("speed")

ELEMENTS = 1 << 28  # of x: half a GB in bfloat16, so that a launch by Python takes less than what it launches
ATTENTION = [(n, d, causal) for n, d in ((4096, 64), (4096, 128)) for causal in (False, True)]
LONG = (32768, 64)
IDS = [f"n {n} d {d}{' causal' if causal else ''}" for n, d, causal in ATTENTION]

in_both_dtypes = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bfloat16", "float32"])
in_some_widths = pytest.mark.parametrize("d", [1024, 4096, 8192])
attention = pytest.mark.parametrize("shape", [*ATTENTION, None], ids=[*IDS, "memory at n 32768"])


@pytest.mark.points(2)
@in_both_dtypes
def test_weighted_sum_forward(speed, dtype):
    """weighted_sum_forward reads memory at 80 % of a copy's speed"""
    speed("weighted_sum_forward", (ELEMENTS // 4096, 4096), dtype, against="copying", reach=0.8)


@pytest.mark.points(2)
@in_both_dtypes
def test_weighted_sum_backward(speed, dtype):
    """weighted_sum_backward reads and writes memory at 75 % of a copy's speed"""
    speed("weighted_sum_backward", (ELEMENTS // 4096, 4096), dtype, against="copying", reach=0.75)


@pytest.mark.points(3)
@in_some_widths
def test_rmsnorm_forward(speed, d):
    """rmsnorm_forward reads and writes memory at 75 % of a copy's speed"""
    speed("rmsnorm_forward", (ELEMENTS // d, d), torch.bfloat16, against="copying", reach=0.75)


@pytest.mark.points(3)
@in_some_widths
def test_rmsnorm_backward(speed, d):
    """rmsnorm_backward reads and writes memory at 60 % of a copy's speed"""
    speed("rmsnorm_backward", (ELEMENTS // d, d), torch.bfloat16, against="copying", reach=0.6)


@pytest.mark.points(5)
@attention
def test_flash_forward(speed, shape):
    """flash_forward_triton has 85 % of FlashAttention-2's speed, in memory that grows with n·d"""
    race(speed, "flash_forward_triton", shape, reach=0.85)


@pytest.mark.points(5)
@attention
def test_flash_backward(speed, shape):
    """flash_backward_triton has 75 % of FlashAttention-2's speed, in memory that grows with n·d"""
    race(speed, "flash_backward_triton", shape, reach=0.75)


def race(speed, function, shape, reach):
    if shape is None:
        speed.memory(function, LONG, torch.bfloat16, is_causal=False, batch=(1, 4))
    else:
        n, d, is_causal = shape
        speed(function, (n, d), torch.bfloat16, against="flash2", reach=reach, is_causal=is_causal)
