"""Every kernel compiles, and fits, for GPUs that need not be there: A100, H100 and B200.

Kernels are compiled as the call's launches need them, and not run. Of an autotuned kernel one configuration that fits
is enough. Registers that spill cost nothing: `python -m assignment.compiling` tells of them.
"""

import pytest
import torch

from tests import inputs
from tests.compare import Mismatch
from tests.inputs import Attention, attention_inputs, normal, row_inputs

ROWS = (128, 4096)
TOKENS = 1024
SIZES = {
    "bfloat16, d 64": (torch.bfloat16, 64),
    "bfloat16, d 128": (torch.bfloat16, 128),
    "float32, d 64": (torch.float32, 64),
}

weighted_sum = pytest.mark.problem("weighted_sum")
rmsnorm = pytest.mark.problem("rmsnorm")
forward_triton = pytest.mark.problem("flash_forward_triton")
backward_triton = pytest.mark.problem("flash_backward_triton")
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
sizes = pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)


@pytest.fixture
def rng():
    """The same numbers in every run: what is compiled does not depend on them."""
    return torch.Generator().manual_seed(0)


@pytest.fixture
def compiles(run):
    """Have the kernels of a call compiled; raises Mismatch with what keeps them from running on a GPU."""

    def compiles(function, *tensors, **options):
        if problems := run.compiled(function, *tensors, **options):
            raise Mismatch("\n".join(problems))

    return compiles


def attention(rng, size):
    dtype, d = size
    return attention_inputs(rng, Attention((2,), TOKENS, TOKENS, d), dtype)


@weighted_sum
@pytest.mark.points(0.25)
@dtypes
def test_weighted_sum_compiles(compiles, rng, dtype):
    """weighted_sum's kernels compile and fit on A100, H100 and B200"""
    x, weight = row_inputs(rng, ROWS, dtype)
    compiles("weighted_sum_forward", x, weight)
    compiles("weighted_sum_backward", normal(rng, ROWS[0], dtype=dtype), x, weight)


@rmsnorm
@pytest.mark.points(0.5)
@dtypes
def test_rmsnorm_compiles(compiles, rng, dtype):
    """rmsnorm's kernels compile and fit on A100, H100 and B200"""
    x, weight = row_inputs(rng, ROWS, dtype)
    compiles("rmsnorm_forward", x, weight)
    rstd = x.float().square().mean(dim=-1).rsqrt()
    compiles("rmsnorm_backward", normal(rng, *ROWS, dtype=dtype), x, weight, rstd)


@forward_triton
@pytest.mark.points(0.5)
@inputs.causal
@sizes
def test_flash_forward_compiles(compiles, rng, size, is_causal):
    """flash_forward_triton's kernels compile and fit on A100, H100 and B200"""
    compiles("flash_forward_triton", *attention(rng, size), is_causal=is_causal)


@backward_triton
@pytest.mark.points(0.5)
@inputs.causal
@sizes
def test_flash_backward_compiles(compiles, rng, size, is_causal):
    """flash_backward_triton's kernels compile and fit on A100, H100 and B200"""
    q, k, v = attention(rng, size)
    lse = normal(rng, *q.shape[:-1])
    compiles("flash_backward_triton", v, q, k, v, k, lse, is_causal=is_causal)
