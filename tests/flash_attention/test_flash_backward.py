"""FlashAttention-2 backward, in PyTorch and in Triton: the gradients of q, k and v from grad_o, o and lse."""

import functools

import pytest
import torch

from tests.compare import Mismatch, worst_margin
from tests.families import (
    Case,
    Subject,
    compiles,
    contract,
    gradients,
    mistakes,
    parametrized,
    properties,
    shapes,
    speed,
    values,
    with_options,
)
from tests.flash_attention import costs, inputs, layouts, models, precision
from tests.flash_attention import properties as changes
from tests.flash_attention.inputs import (
    BOTH,
    CAUSAL,
    Attention,
    after_forward,
    backward_inputs,
    forward_inputs,
    long,
    square,
)
from tests.inputs import longer

# tl.dot on float32 may use TF32; PyTorch's matmul does not unless it is told to.
PYTORCH = Subject("flash_backward_pytorch", backward_inputs, functools.partial(models.attention_backward, tf32=False))
TRITON = Subject("flash_backward_triton", backward_inputs, models.attention_backward)
PLAIN, VISIBLE_KEYS = shapes(inputs.PLAIN), shapes(inputs.CAUSAL_PLAIN, **CAUSAL)
ROUNDS, CAUSAL_ROUNDS = shapes(inputs.ROUNDS), shapes(inputs.ROUNDS, **CAUSAL)
RAGGED, HEAD_DIMENSIONS = (with_options(shapes(table), BOTH) for table in (inputs.RAGGED, inputs.HEAD_DIMENSIONS))
OUTLIERS = inputs.BACKWARD_OUTLIERS | {
    "queries that cancel": Case(build=precision.queries_that_cancel),
    "keys that cancel": Case(build=precision.keys_that_cancel),
}
GRADIENTS = {
    ".sum().backward()": {"summed": True},
    "causal": {"options": CAUSAL},
    "q only": {"wrt": (0,), "shape": long(2)},
    "k and v only": {"wrt": (1, 2)},
    "twice with retain_graph": {"times": 2},
    "another forward pass, not causal, in between": {"interleaved": True, "options": CAUSAL},
}

test_pytorch_values = values(2, "flash_backward_pytorch returns the gradients of q, k and v in float32", PYTORCH, PLAIN)
test_triton_values = values(
    4, "flash_backward_triton returns the gradients of q, k and v in float32", TRITON, PLAIN | ROUNDS
)
test_pytorch_causal = values(
    0.5, "flash_backward_pytorch with is_causal: query i sees keys j ≤ i", PYTORCH, VISIBLE_KEYS
)
test_triton_causal = values(
    2, "flash_backward_triton with is_causal: query i sees keys j ≤ i", TRITON, VISIBLE_KEYS | CAUSAL_ROUNDS
)
test_pytorch_ragged = values(
    0.25, "flash_backward_pytorch is right for every length and number of batch dimensions", PYTORCH, RAGGED
)
test_triton_ragged = values(
    1, "flash_backward_triton is right for every length and number of batch dimensions", TRITON, RAGGED
)
test_pytorch_head_dimension = values(
    0.25, "flash_backward_pytorch is right for every head dimension d", PYTORCH, HEAD_DIMENSIONS
)
test_triton_head_dimension = values(
    0.5, "flash_backward_triton is right for every head dimension d", TRITON, HEAD_DIMENSIONS
)
test_pytorch_outliers = values(
    0.25, "flash_backward_pytorch recomputes P from lse wherever the large logits are", PYTORCH, OUTLIERS
)
test_triton_outliers = values(
    1, "flash_backward_triton recomputes P from lse wherever the large logits are", TRITON, OUTLIERS
)
test_pytorch_16_bit = values(
    0.5, "flash_backward_pytorch takes bfloat16 and float16 and accumulates in float32", PYTORCH, precision.BACKWARD
)
test_triton_16_bit = values(
    1, "flash_backward_triton takes bfloat16 and float16 and accumulates in float32", TRITON, precision.BACKWARD
)
test_pytorch_strides = values(
    0.5,
    "flash_backward_pytorch reads its inputs through their strides, also of stride 0",
    PYTORCH,
    layouts.BACKWARD_STRIDES,
)
test_triton_strides = values(
    0.75,
    "flash_backward_triton reads its inputs through their strides, also of stride 0",
    TRITON,
    layouts.BACKWARD_STRIDES,
)
test_triton_offsets = values(
    0.5,
    "flash_backward_triton has 64-bit offsets, for inputs that reach over 2³¹ elements",
    TRITON,
    layouts.BACKWARD_OFFSETS,
)
test_pytorch_properties = properties(
    0.25,
    "flash_backward_pytorch is linear in grad_o and blind to the order of keys, in each batch by itself",
    PYTORCH,
    changes.BACKWARD,
)
test_triton_properties = properties(
    0.25,
    "flash_backward_triton is linear in grad_o and blind to the order of keys, in each batch by itself",
    TRITON,
    changes.BACKWARD,
)
test_pytorch_contract = contract(
    0.25,
    "flash_backward_pytorch leaves its inputs and earlier results alone; an empty batch gives empty results",
    PYTORCH,
    inputs.BATCHES,
)
test_triton_contract = contract(
    0.25,
    "flash_backward_triton leaves its inputs and earlier results alone; an empty batch gives empty results",
    TRITON,
    inputs.BATCHES,
)
test_pytorch_mistakes = mistakes(
    0.25,
    "flash_backward_pytorch raises ValueError for q, k and v that do not fit together",
    PYTORCH,
    inputs.MISTAKE_SHAPE,
    inputs.BACKWARD_MISTAKES,
)
test_triton_mistakes = mistakes(
    0.25,
    "flash_backward_triton raises ValueError for q, k and v that do not fit together, before any launch",
    TRITON,
    inputs.MISTAKE_SHAPE,
    inputs.BACKWARD_MISTAKES,
)
test_attention_gradients = gradients(
    1.5,
    "flash_attention is differentiable, causal or not, for all inputs or only some, as often as asked",
    TRITON,
    square(2),
    GRADIENTS,
    problem="flash_backward_triton",
)


@pytest.mark.points(0.25)
@pytest.mark.problem("flash_backward_triton")
@parametrized("case", precision.LSE)
def test_attention_16_bit(check_gradients, rng, case):
    """flash_attention hands lse to its backward pass in float32"""
    grad_o, *qkv, o, lse = case.tensors(TRITON, rng)
    expected = TRITON.expected(grad_o, *qkv, o, lse, is_causal=True)
    check_gradients("flash_attention", *qkv, grad=grad_o, expected=expected, options={"is_causal": True})


@pytest.fixture
def kept(run, rng, record_property):
    """What flash_attention keeps for its backward pass, in bytes; raises Mismatch if the gradients are wrong."""

    def kept(qkv):
        nbytes, gradients = run.kept_bytes("flash_attention", *qkv)
        right = models.attention_backward(*after_forward(rng, qkv, grad_o=torch.ones_like(qkv[0])))
        record_property("margin", worst_margin(gradients, right, run.has_exact_margins))
        return nbytes

    return kept


@pytest.mark.points(0.25)
@pytest.mark.problem("flash_backward_triton")
def test_attention_memory(kept, rng):
    """flash_attention keeps nothing of n_queries × n_keys for its backward pass"""
    n = min(longer(rng), longer(rng))
    once, twice = (kept(forward_inputs(rng, Attention((1,), tokens, tokens, 16))) for tokens in (n, 2 * n))
    if twice > 3 * once:
        raise Mismatch(
            f"beside q, k, v and o {once:,} bytes are kept for the backward pass of {n} queries and keys, and "
            f"{twice:,} for {2 * n}: expected twice as many; keep lse, of n_queries entries, and recompute P"
        )


test_triton_traffic = costs.half_where_causal(
    0.5,
    "flash_backward_triton with is_causal leaves out the tiles above the diagonal, in every loop",
    TRITON,
    Case(long(d=32)),
)
test_triton_memory = costs.memory(0.5, "flash_backward_triton makes no tensor of n_queries × n_keys", TRITON)
test_triton_compiles = compiles(
    0.5, "flash_backward_triton's kernels compile and fit on A100, H100 and B200", [TRITON], inputs.COMPILED
)
test_triton_speed = speed(
    5,
    "flash_backward_triton has 75 % of FlashAttention-2's speed, in memory that grows with n·d",
    inputs.RACED,
    against="flash2",
    reach=0.75,
    memory=inputs.LONGEST,
)
