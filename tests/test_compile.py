"""Every kernel compiles, and fits, for GPUs that need not be there: A100, H100 and B200.

Kernels are compiled as the call's launches need them. Of an autotuned kernel one configuration that fits
is enough. Registers that spill cost nothing: `python -m assignment.compiling` tells of them. The results of the call
must be right as well.
"""

import pytest
import torch

from tests import inputs, models, oracle
from tests.compare import Mismatch, worst_margin
from tests.inputs import Attention, attention_inputs, backward_inputs, normal, row_inputs

# Constant, unlike all others: what was compiled is remembered by its shapes, and saves half of a run.
ROWS = (128, 4096)
TOKENS = 384
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
def compiles(run, record_property):
    """Have the kernels of a call compiled; raises Mismatch with what keeps them from running on a GPU.

    Wrong results raise it too: their kernels would compile for nothing.
    """

    def compiles(function, *tensors, expected, **options):
        def right(results):
            try:
                record_property("margin", worst_margin(results, expected))
            except Mismatch as wrong:
                wrong.args = (f"kernels are to compile for right results; these are wrong:\n{wrong}",)
                raise

        if problems := run.compiled(function, *tensors, right=right, **options):
            raise Mismatch("\n".join(problems))

    return compiles


def weighted_sum_backward_inputs(rng, shape, dtype):
    x, weight = row_inputs(rng, shape, dtype)
    return normal(rng, *x.shape[:-1], dtype=dtype), x, weight


def rmsnorm_backward_inputs(rng, shape, dtype):
    x, weight = row_inputs(rng, shape, dtype)
    return normal(rng, *x.shape, dtype=dtype), x, weight, oracle.rmsnorm_forward(x, weight)[1].float()


@weighted_sum
@pytest.mark.points(0.25)
@dtypes
def test_weighted_sum_compiles(compiles, rng, dtype):
    """weighted_sum's kernels compile and fit on A100, H100 and B200"""
    tensors = row_inputs(rng, ROWS, dtype)
    compiles("weighted_sum_forward", *tensors, expected=models.weighted_sum_forward(*tensors))
    tensors = weighted_sum_backward_inputs(rng, ROWS, dtype)
    compiles("weighted_sum_backward", *tensors, expected=models.weighted_sum_backward(*tensors))


@rmsnorm
@pytest.mark.points(0.5)
@dtypes
def test_rmsnorm_compiles(compiles, rng, dtype):
    """rmsnorm's kernels compile and fit on A100, H100 and B200"""
    tensors = row_inputs(rng, ROWS, dtype)
    compiles("rmsnorm_forward", *tensors, expected=models.rmsnorm_forward(*tensors))
    tensors = rmsnorm_backward_inputs(rng, ROWS, dtype)
    compiles("rmsnorm_backward", *tensors, expected=models.rmsnorm_backward(*tensors))


def attention(rng, size):
    dtype, d = size
    return attention_inputs(rng, Attention((2,), TOKENS, TOKENS, d), dtype)


@forward_triton
@pytest.mark.points(0.5)
@inputs.causal
@sizes
def test_flash_forward_compiles(compiles, rng, size, is_causal):
    """flash_forward_triton's kernels compile and fit on A100, H100 and B200"""
    qkv = attention(rng, size)
    compiles("flash_forward_triton", *qkv, is_causal=is_causal, expected=models.attention_forward(*qkv, is_causal))


@backward_triton
@pytest.mark.points(0.5)
@inputs.causal
@sizes
def test_flash_backward_compiles(compiles, rng, size, is_causal):
    """flash_backward_triton's kernels compile and fit on A100, H100 and B200"""
    tensors = backward_inputs(rng, attention(rng, size), is_causal)
    expected = models.attention_backward(*tensors, is_causal)
    compiles("flash_backward_triton", *tensors, is_causal=is_causal, expected=expected)
