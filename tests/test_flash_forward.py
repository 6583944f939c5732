"""FlashAttention-2 forward, in tiled PyTorch and in Triton: o = softmax(q kᵀ/√d) v and the logsumexp of each row."""

import pytest
import torch

from tests import inputs, layouts, models, precision, properties
from tests.inputs import attention_inputs, long, square

FORWARD_OUTLIERS = inputs.FORWARD_OUTLIERS | {
    "values that cancel": lambda rng: precision.values_that_cancel(rng, torch.float32),
    "logits that cancel": lambda rng: precision.logits_that_cancel(rng, torch.float32),
}

pytorch = pytest.mark.problem("flash_forward_pytorch")
triton = pytest.mark.problem("flash_forward_triton")


def forward(check, function, qkv, is_causal=False):
    tf32 = uses_tensor_cores(function)
    check(function, *qkv, is_causal=is_causal, expected=lambda: models.attention_forward(*qkv, is_causal, tf32=tf32))


def uses_tensor_cores(function):
    """tl.dot on float32 may use TF32; PyTorch's matmul does not unless it is told to."""
    return function != "flash_forward_pytorch"


@pytorch
@pytest.mark.points(2.5)
@inputs.cases(inputs.PLAIN_ATTENTION)
def test_pytorch_values(check, rng, shape):
    """flash_forward_pytorch returns o and lse in float32"""
    forward(check, "flash_forward_pytorch", attention_inputs(rng, shape))


@triton
@pytest.mark.points(5)
@inputs.cases(inputs.PLAIN_ATTENTION)
def test_triton_values(check, rng, shape):
    """flash_forward_triton returns o and lse in float32"""
    forward(check, "flash_forward_triton", attention_inputs(rng, shape))


@pytorch
@pytest.mark.points(1.5)
@inputs.cases(inputs.PLAIN_ATTENTION)
def test_pytorch_causal(check, rng, shape):
    """flash_forward_pytorch with is_causal: query i sees keys j ≤ i"""
    forward(check, "flash_forward_pytorch", attention_inputs(rng, shape), is_causal=True)


@triton
@pytest.mark.points(3)
@inputs.cases(inputs.PLAIN_ATTENTION)
def test_triton_causal(check, rng, shape):
    """flash_forward_triton with is_causal: query i sees keys j ≤ i"""
    forward(check, "flash_forward_triton", attention_inputs(rng, shape), is_causal=True)


@pytorch
@pytest.mark.points(0.5)
@inputs.causal
@inputs.cases(inputs.RAGGED_ATTENTION | inputs.FAR_BELOW_ZERO)
def test_pytorch_ragged(check, rng, shape, is_causal):
    """flash_forward_pytorch is right for every length and number of batch dimensions"""
    forward(check, "flash_forward_pytorch", attention_inputs(rng, shape), is_causal)


@pytorch
@pytest.mark.points(0.5)
@inputs.causal
@inputs.cases(inputs.HEAD_DIMENSIONS)
def test_pytorch_head_dimension(check, rng, shape, is_causal):
    """flash_forward_pytorch is right for every head dimension d"""
    forward(check, "flash_forward_pytorch", attention_inputs(rng, shape), is_causal)


@triton
@pytest.mark.points(1.25)
@inputs.causal
@inputs.cases(inputs.RAGGED_ATTENTION | inputs.FAR_BELOW_ZERO)
def test_triton_ragged(check, rng, shape, is_causal):
    """flash_forward_triton is right for every length and number of batch dimensions"""
    forward(check, "flash_forward_triton", attention_inputs(rng, shape), is_causal)


@triton
@pytest.mark.points(0.75)
@inputs.causal
@inputs.cases(inputs.HEAD_DIMENSIONS)
def test_triton_head_dimension(check, rng, shape, is_causal):
    """flash_forward_triton is right for every head dimension d"""
    forward(check, "flash_forward_triton", attention_inputs(rng, shape), is_causal)


@pytorch
@pytest.mark.points(1)
@inputs.outliers(FORWARD_OUTLIERS)
def test_pytorch_outliers(check, rng, build):
    """flash_forward_pytorch follows the running maximum wherever the large logits are, and never overflows"""
    forward(check, "flash_forward_pytorch", build(rng))


@triton
@pytest.mark.points(1.5)
@inputs.outliers(FORWARD_OUTLIERS)
def test_triton_outliers(check, rng, build):
    """flash_forward_triton follows the running maximum wherever the large logits are, and never overflows"""
    forward(check, "flash_forward_triton", build(rng))


@pytorch
@pytest.mark.points(1)
@precision.attention_forward
@precision.LOW_PRECISION
def test_pytorch_16_bit(check, rng, dtype, build):
    """flash_forward_pytorch takes bfloat16 and float16, accumulates in float32 and returns lse in float32"""
    forward(check, "flash_forward_pytorch", build(rng, dtype), is_causal=build in precision.CAUSAL)


@triton
@pytest.mark.points(1.5)
@precision.attention_forward
@precision.LOW_PRECISION
def test_triton_16_bit(check, rng, dtype, build):
    """flash_forward_triton takes bfloat16 and float16, accumulates in float32 and returns lse in float32"""
    forward(check, "flash_forward_triton", build(rng, dtype), is_causal=build in precision.CAUSAL)


@pytorch
@pytest.mark.points(1)
@layouts.attention_forward
def test_pytorch_strides(check, rng, shape, layout):
    """flash_forward_pytorch reads q, k and v through their strides"""
    forward(check, "flash_forward_pytorch", layout(attention_inputs(rng, shape)))


@triton
@pytest.mark.points(1)
@layouts.attention_forward
def test_triton_strides(check, rng, shape, layout):
    """flash_forward_triton reads q, k and v through their strides"""
    forward(check, "flash_forward_triton", layout(attention_inputs(rng, shape)))


@triton
@pytest.mark.points(0.5)
@layouts.attention_forward_offsets
def test_triton_offsets(check, rng, memory_bytes, shape, layout):
    """flash_forward_triton has 64-bit offsets, for inputs that reach over 2³¹ elements"""
    qkv = attention_inputs(rng, shape)
    forward(check, "flash_forward_triton", layout(qkv, memory_bytes))


def holds(run, rng, record_property, function, shape, change):
    qkv = attention_inputs(rng, shape)
    change = change(rng, *qkv)
    before, after = run(function, *qkv), run(function, *change[0])
    bounds = models.attention_forward(*qkv, tf32=uses_tensor_cores(function))
    record_property("margin", properties.compared(before, after, change, bounds))


@pytorch
@pytest.mark.points(0.5)
@properties.forward
def test_pytorch_properties(run, rng, record_property, shape, change):
    """flash_forward_pytorch is a weighted mean of values over a set of keys, in each batch by itself"""
    holds(run, rng, record_property, "flash_forward_pytorch", shape, change)


@triton
@pytest.mark.points(0.5)
@properties.forward
def test_triton_properties(run, rng, record_property, shape, change):
    """flash_forward_triton is a weighted mean of values over a set of keys, in each batch by itself"""
    holds(run, rng, record_property, "flash_forward_triton", shape, change)


def contract(check_contract, rng, function, shape, is_causal):
    shape = inputs.drawn(shape, rng)
    first, second = (attention_inputs(rng, shape) for _ in range(2))
    tf32 = uses_tensor_cores(function)
    expected = (models.attention_forward(*qkv, is_causal, tf32=tf32) for qkv in (first, second))
    check_contract(function, first, second, *expected, is_causal=is_causal)


@pytorch
@pytest.mark.points(0.5)
@inputs.batches()
def test_pytorch_contract(check_contract, rng, shape, is_causal):
    """flash_forward_pytorch leaves its inputs and earlier results alone; an empty batch gives empty results"""
    contract(check_contract, rng, "flash_forward_pytorch", shape, is_causal)


@triton
@pytest.mark.points(0.5)
@inputs.batches()
def test_triton_contract(check_contract, rng, shape, is_causal):
    """flash_forward_triton leaves its inputs and earlier results alone; an empty batch gives empty results"""
    contract(check_contract, rng, "flash_forward_triton", shape, is_causal)


@pytorch
@pytest.mark.points(0.5)
@inputs.mistakes()
def test_pytorch_mistakes(run, rng, mistake):
    """flash_forward_pytorch raises ValueError for q, k and v that do not fit together"""
    run.raises(ValueError, "flash_forward_pytorch", *mistake(*attention_inputs(rng, inputs.MISTAKE_SHAPE)))


@triton
@pytest.mark.points(0.5)
@inputs.mistakes()
def test_triton_mistakes(run, rng, mistake):
    """flash_forward_triton raises ValueError for q, k and v that do not fit together, before any launch"""
    run.raises(ValueError, "flash_forward_triton", *mistake(*attention_inputs(rng, inputs.MISTAKE_SHAPE)))


@triton
@pytest.mark.points(1.5)
@inputs.causal
def test_attention_value(check, rng, is_causal):
    """flash_attention returns o, and passes is_causal on"""
    qkv = attention_inputs(rng, long(2) if is_causal else square(2))

    def expected():
        return {"o": models.attention_forward(*qkv, is_causal=is_causal)["o"]}

    check("flash_attention", *qkv, is_causal=is_causal, expected=expected)
