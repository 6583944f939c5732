"""FlashAttention-2 backward, in PyTorch and in Triton: the gradients of q, k and v from grad_o, o and lse.

The o and lse handed over are the oracle's, so that a broken forward pass costs no points here.
"""

import functools

import pytest
import torch

from tests import inputs, layouts, models, precision, properties
from tests.compare import Mismatch, worst_margin
from tests.inputs import Attention, attention_inputs, backward_inputs, long, longer, square

BACKWARD_OUTLIERS = {
    name: lambda rng, build=build: backward_inputs(rng, build(rng), is_causal=False)
    for name, build in inputs.BACKWARD_OUTLIERS.items()
} | {
    "queries that cancel": lambda rng: precision.queries_that_cancel(rng, torch.float32),
    "keys that cancel": lambda rng: precision.keys_that_cancel(rng, torch.float32),
}

pytorch = pytest.mark.problem("flash_backward_pytorch")
triton = pytest.mark.problem("flash_backward_triton")


def backward(check, rng, function, qkv, is_causal=False):
    backward_of(check, function, backward_inputs(rng, qkv, is_causal), is_causal)


def backward_of(check, function, tensors, is_causal=False):
    check(function, *tensors, is_causal=is_causal, expected=lambda: expected(function, tensors, is_causal))


def expected(function, tensors, is_causal=False):
    """tl.dot on float32 may use TF32; PyTorch's matmul does not unless it is told to."""
    return models.attention_backward(*tensors, is_causal, tf32=function != "flash_backward_pytorch")


@pytorch
@pytest.mark.points(2)
@inputs.cases(inputs.PLAIN_ATTENTION)
def test_pytorch_values(check, rng, shape):
    """flash_backward_pytorch returns the gradients of q, k and v in float32"""
    backward(check, rng, "flash_backward_pytorch", attention_inputs(rng, shape))


@triton
@pytest.mark.points(4)
@inputs.cases(inputs.PLAIN_ATTENTION)
def test_triton_values(check, rng, shape):
    """flash_backward_triton returns the gradients of q, k and v in float32"""
    backward(check, rng, "flash_backward_triton", attention_inputs(rng, shape))


@pytorch
@pytest.mark.points(0.5)
@inputs.cases(inputs.PLAIN_ATTENTION)
def test_pytorch_causal(check, rng, shape):
    """flash_backward_pytorch with is_causal: query i sees keys j ≤ i"""
    backward(check, rng, "flash_backward_pytorch", attention_inputs(rng, shape), is_causal=True)


@triton
@pytest.mark.points(2)
@inputs.cases(inputs.PLAIN_ATTENTION)
def test_triton_causal(check, rng, shape):
    """flash_backward_triton with is_causal: query i sees keys j ≤ i"""
    backward(check, rng, "flash_backward_triton", attention_inputs(rng, shape), is_causal=True)


@pytorch
@pytest.mark.points(0.25)
@inputs.causal
@inputs.cases(inputs.RAGGED_ATTENTION | inputs.FAR_BELOW_ZERO)
def test_pytorch_ragged(check, rng, shape, is_causal):
    """flash_backward_pytorch is right for every length and number of batch dimensions"""
    backward(check, rng, "flash_backward_pytorch", attention_inputs(rng, shape), is_causal)


@pytorch
@pytest.mark.points(0.25)
@inputs.causal
@inputs.cases(inputs.HEAD_DIMENSIONS)
def test_pytorch_head_dimension(check, rng, shape, is_causal):
    """flash_backward_pytorch is right for every head dimension d"""
    backward(check, rng, "flash_backward_pytorch", attention_inputs(rng, shape), is_causal)


@triton
@pytest.mark.points(1)
@inputs.causal
@inputs.cases(inputs.RAGGED_ATTENTION | inputs.FAR_BELOW_ZERO)
def test_triton_ragged(check, rng, shape, is_causal):
    """flash_backward_triton is right for every length and number of batch dimensions"""
    backward(check, rng, "flash_backward_triton", attention_inputs(rng, shape), is_causal)


@triton
@pytest.mark.points(0.5)
@inputs.causal
@inputs.cases(inputs.HEAD_DIMENSIONS)
def test_triton_head_dimension(check, rng, shape, is_causal):
    """flash_backward_triton is right for every head dimension d"""
    backward(check, rng, "flash_backward_triton", attention_inputs(rng, shape), is_causal)


@pytorch
@pytest.mark.points(0.25)
@inputs.outliers(BACKWARD_OUTLIERS)
def test_pytorch_outliers(check, rng, build):
    """flash_backward_pytorch recomputes P from lse wherever the large logits are"""
    backward_of(check, "flash_backward_pytorch", build(rng))


@triton
@pytest.mark.points(1)
@inputs.outliers(BACKWARD_OUTLIERS)
def test_triton_outliers(check, rng, build):
    """flash_backward_triton recomputes P from lse wherever the large logits are"""
    backward_of(check, "flash_backward_triton", build(rng))


@pytorch
@pytest.mark.points(0.5)
@precision.attention_backward
@precision.LOW_PRECISION
def test_pytorch_16_bit(check, rng, dtype, build):
    """flash_backward_pytorch takes bfloat16 and float16 and accumulates in float32"""
    backward_of(check, "flash_backward_pytorch", build(rng, dtype), is_causal=build in precision.CAUSAL)


@triton
@pytest.mark.points(1)
@precision.attention_backward
@precision.LOW_PRECISION
def test_triton_16_bit(check, rng, dtype, build):
    """flash_backward_triton takes bfloat16 and float16 and accumulates in float32"""
    backward_of(check, "flash_backward_triton", build(rng, dtype), is_causal=build in precision.CAUSAL)


def strides(check, rng, function, shape, layout):
    tensors = layout(backward_inputs(rng, attention_inputs(rng, shape), is_causal=False))
    check(function, *tensors, expected=lambda: expected(function, tensors))


@pytorch
@pytest.mark.points(0.5)
@layouts.attention_backward
def test_pytorch_strides(check, rng, shape, layout):
    """flash_backward_pytorch reads its inputs through their strides, also of stride 0"""
    strides(check, rng, "flash_backward_pytorch", shape, layout)


@triton
@pytest.mark.points(0.75)
@layouts.attention_backward
def test_triton_strides(check, rng, shape, layout):
    """flash_backward_triton reads its inputs through their strides, also of stride 0"""
    strides(check, rng, "flash_backward_triton", shape, layout)


@triton
@pytest.mark.points(0.5)
@layouts.attention_backward_offsets
def test_triton_offsets(check, rng, memory_bytes, shape, layout):
    """flash_backward_triton has 64-bit offsets, for inputs that reach over 2³¹ elements"""
    layout = functools.partial(layout, memory_bytes=memory_bytes)
    strides(check, rng, "flash_backward_triton", shape, layout)


def holds(run, rng, record_property, function, shape, change):
    tensors = backward_inputs(rng, attention_inputs(rng, shape), is_causal=False)
    change = change(rng, *tensors)
    before, after = run(function, *tensors), run(function, *change[0])
    record_property("margin", properties.compared(before, after, change, expected(function, tensors)))


@pytorch
@pytest.mark.points(0.25)
@properties.backward
def test_pytorch_properties(run, rng, record_property, shape, change):
    """flash_backward_pytorch is linear in grad_o and blind to the order of keys, in each batch by itself"""
    holds(run, rng, record_property, "flash_backward_pytorch", shape, change)


@triton
@pytest.mark.points(0.25)
@properties.backward
def test_triton_properties(run, rng, record_property, shape, change):
    """flash_backward_triton is linear in grad_o and blind to the order of keys, in each batch by itself"""
    holds(run, rng, record_property, "flash_backward_triton", shape, change)


def contract(check_contract, rng, function, shape, is_causal):
    shape = inputs.drawn(shape, rng)
    first, second = (backward_inputs(rng, attention_inputs(rng, shape), is_causal) for _ in range(2))
    wanted = (expected(function, tensors, is_causal) for tensors in (first, second))
    check_contract(function, first, second, *wanted, is_causal=is_causal)


@pytorch
@pytest.mark.points(0.25)
@inputs.batches()
def test_pytorch_contract(check_contract, rng, shape, is_causal):
    """flash_backward_pytorch leaves its inputs and earlier results alone; an empty batch gives empty results"""
    contract(check_contract, rng, "flash_backward_pytorch", shape, is_causal)


@triton
@pytest.mark.points(0.25)
@inputs.batches()
def test_triton_contract(check_contract, rng, shape, is_causal):
    """flash_backward_triton leaves its inputs and earlier results alone; an empty batch gives empty results"""
    contract(check_contract, rng, "flash_backward_triton", shape, is_causal)


def mistaken(run, rng, function, mistake):
    grad_o, q, k, v, o, lse = backward_inputs(rng, attention_inputs(rng, inputs.MISTAKE_SHAPE), is_causal=False)
    run.raises(ValueError, function, grad_o, *mistake(q, k, v), o, lse)


@pytorch
@pytest.mark.points(0.25)
@inputs.mistakes()
def test_pytorch_mistakes(run, rng, mistake):
    """flash_backward_pytorch raises ValueError for q, k and v that do not fit together"""
    mistaken(run, rng, "flash_backward_pytorch", mistake)


@triton
@pytest.mark.points(0.25)
@inputs.mistakes()
def test_triton_mistakes(run, rng, mistake):
    """flash_backward_triton raises ValueError for q, k and v that do not fit together, before any launch"""
    mistaken(run, rng, "flash_backward_triton", mistake)


@triton
@pytest.mark.points(1.5)
@pytest.mark.parametrize(
    "ask",
    [
        pytest.param({"summed": True}, id=".sum().backward()"),
        pytest.param({"options": {"is_causal": True}}, id="causal"),
        pytest.param({"wrt": (0,), "shape": long(2)}, id="q only"),
        pytest.param({"wrt": (1, 2)}, id="k and v only"),
        pytest.param({"times": 2}, id="twice with retain_graph"),
        pytest.param(
            {"interleaved": True, "options": {"is_causal": True}}, id="another forward pass, not causal, in between"
        ),
    ],
)
def test_attention_gradients(check_gradients, rng, ask):
    """flash_attention is differentiable, causal or not, for all inputs or only some, as often as asked"""
    shape, ask = inputs.shape_of(ask, square(2))
    is_causal = ask.get("options", {}).get("is_causal", False)
    qkv = attention_inputs(rng, shape)
    grad_o = inputs.incoming(inputs.normal(rng, *qkv[0].shape), ask)
    tensors = backward_inputs(rng, qkv, is_causal, grad_o=grad_o)
    gradients = expected("flash_attention", tensors, is_causal)
    check_gradients("flash_attention", *qkv, grad=grad_o, expected=gradients, **ask)


@triton
@pytest.mark.points(0.25)
@precision.LOW_PRECISION
def test_attention_16_bit(check_gradients, rng, dtype):
    """flash_attention hands lse to its backward pass in float32"""
    grad_o, *qkv, o, lse = precision.lse_of_powers_of_two(rng, dtype)
    gradients = expected("flash_attention", (grad_o, *qkv, o, lse), is_causal=True)
    check_gradients("flash_attention", *qkv, grad=grad_o, expected=gradients, options={"is_causal": True})


@pytest.fixture
def kept(run, rng, record_property):
    """What flash_attention keeps for its backward pass, in bytes; raises Mismatch if the gradients are wrong."""

    def kept(qkv):
        nbytes, gradients = run.kept_bytes("flash_attention", *qkv)
        _, *others = backward_inputs(rng, qkv, is_causal=False)
        right = expected("flash_attention", (torch.ones_like(qkv[0]), *others))
        record_property("margin", worst_margin(gradients, right))
        return nbytes

    return kept


@triton
@pytest.mark.points(0.25)
def test_attention_memory(kept, rng):
    """flash_attention keeps nothing of n_queries × n_keys for its backward pass"""
    n = min(longer(rng), longer(rng))
    once, twice = (kept(attention_inputs(rng, Attention((1,), tokens, tokens, 16))) for tokens in (n, 2 * n))
    if twice > 3 * once:
        raise Mismatch(
            f"beside q, k, v and o {once:,} bytes are kept for the backward pass of {n} queries and keys, and "
            f"{twice:,} for {2 * n}: expected twice as many; keep lse, of n_queries entries, and recompute P"
        )
