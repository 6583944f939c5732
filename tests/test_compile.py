"""Every kernel compiles, and fits, for GPUs that need not be there: A100, H100 and B200.

Kernels are compiled as the call's launches need them, and not run. Of an autotuned kernel one configuration that fits
is enough. Registers that spill cost nothing: `python -m assignment.compiling` tells of them. Results must be right as
well, on a problem of the same dtype and d.
"""

import pytest
import torch

from tests import inputs, models, oracle
from tests.compare import Mismatch, worst_margin
from tests.inputs import Attention, attention_inputs, backward_inputs, normal, row_inputs

ROWS = (128, 4096)
TOKENS = 1024
FEW_ROWS = (4, 4096)  # where results are looked at
FEW_TOKENS = 64
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
def always_alike():
    """A generator of the same numbers in every run: what is compiled does not depend on them, and is remembered."""
    return torch.Generator().manual_seed(0)


@pytest.fixture
def right(run, record_property):
    """Raise Mismatch if a function of the submission does not return what is expected: it would compile for nothing."""

    def right(function, *tensors, expected, **options):
        try:
            record_property("margin", worst_margin(run(function, *tensors, **options), expected))
        except Mismatch as wrong:
            wrong.args = (f"kernels are to compile for right results; these are wrong:\n{wrong}",)
            raise

    return right


@pytest.fixture
def compiles(run):
    """Have the kernels of a call compiled; raises Mismatch with what keeps them from running on a GPU."""

    def compiles(function, *tensors, **options):
        if problems := run.compiled(function, *tensors, **options):
            raise Mismatch("\n".join(problems))

    return compiles


def weighted_sum_backward_inputs(rng, shape, dtype):
    x, weight = row_inputs(rng, shape, dtype)
    return normal(rng, *shape[:-1], dtype=dtype), x, weight


def rmsnorm_backward_inputs(rng, shape, dtype):
    x, weight = row_inputs(rng, shape, dtype)
    return normal(rng, *shape, dtype=dtype), x, weight, oracle.rmsnorm_forward(x, weight)[1].float()


@weighted_sum
@pytest.mark.points(0.25)
@dtypes
def test_weighted_sum_compiles(right, compiles, rng, always_alike, dtype):
    """weighted_sum's kernels compile and fit on A100, H100 and B200"""
    few = row_inputs(rng, FEW_ROWS, dtype)
    right("weighted_sum_forward", *few, expected=models.weighted_sum_forward(*few))
    compiles("weighted_sum_forward", *row_inputs(always_alike, ROWS, dtype))
    few = weighted_sum_backward_inputs(rng, FEW_ROWS, dtype)
    right("weighted_sum_backward", *few, expected=models.weighted_sum_backward(*few))
    compiles("weighted_sum_backward", *weighted_sum_backward_inputs(always_alike, ROWS, dtype))


@rmsnorm
@pytest.mark.points(0.5)
@dtypes
def test_rmsnorm_compiles(right, compiles, rng, always_alike, dtype):
    """rmsnorm's kernels compile and fit on A100, H100 and B200"""
    few = row_inputs(rng, FEW_ROWS, dtype)
    right("rmsnorm_forward", *few, expected=models.rmsnorm_forward(*few))
    compiles("rmsnorm_forward", *row_inputs(always_alike, ROWS, dtype))
    few = rmsnorm_backward_inputs(rng, FEW_ROWS, dtype)
    right("rmsnorm_backward", *few, expected=models.rmsnorm_backward(*few))
    compiles("rmsnorm_backward", *rmsnorm_backward_inputs(always_alike, ROWS, dtype))


def attention(rng, tokens, size):
    dtype, d = size
    return attention_inputs(rng, Attention((2,), tokens, tokens, d), dtype)


@forward_triton
@pytest.mark.points(0.5)
@inputs.causal
@sizes
def test_flash_forward_compiles(right, compiles, rng, always_alike, size, is_causal):
    """flash_forward_triton's kernels compile and fit on A100, H100 and B200"""
    few = attention(rng, FEW_TOKENS, size)
    expected = models.attention_forward(*few, is_causal)
    right("flash_forward_triton", *few, is_causal=is_causal, expected=expected)
    compiles("flash_forward_triton", *attention(always_alike, TOKENS, size), is_causal=is_causal)


@backward_triton
@pytest.mark.points(0.5)
@inputs.causal
@sizes
def test_flash_backward_compiles(right, compiles, rng, always_alike, size, is_causal):
    """flash_backward_triton's kernels compile and fit on A100, H100 and B200"""
    few = backward_inputs(rng, attention(rng, FEW_TOKENS, size), is_causal)
    expected = models.attention_backward(*few, is_causal)
    right("flash_backward_triton", *few, is_causal=is_causal, expected=expected)
    q, k, v = attention(always_alike, TOKENS, size)
    compiles("flash_backward_triton", v, q, k, v, k, normal(always_alike, 2, TOKENS), is_causal=is_causal)
