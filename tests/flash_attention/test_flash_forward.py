"""FlashAttention-2 forward, in tiled PyTorch and in Triton: o = softmax(q kᵀ/√d) v and the logsumexp of each row."""

import functools

from tests.families import (
    DTYPES,
    Case,
    Subject,
    compiles,
    contract,
    in_dtypes,
    mistakes,
    properties,
    shapes,
    speed,
    traffic,
    values,
    with_options,
)
from tests.flash_attention import costs, inputs, layouts, models, precision
from tests.flash_attention import properties as changes
from tests.flash_attention.inputs import BOTH, CAUSAL, FULL, forward_inputs, long, oblong, square

# tl.dot on float32 may use TF32; PyTorch's matmul does not unless it is told to.
PYTORCH = Subject("flash_forward_pytorch", forward_inputs, functools.partial(models.attention_forward, tf32=False))
TRITON = Subject("flash_forward_triton", forward_inputs, models.attention_forward)


def o_alone(*qkv, **options):
    return {"o": models.attention_forward(*qkv, **options)["o"]}


AUTOGRAD = Subject("flash_attention", forward_inputs, o_alone)
PLAIN, VISIBLE_KEYS = shapes(inputs.PLAIN), shapes(inputs.CAUSAL_PLAIN, **CAUSAL)
ROUNDS, CAUSAL_ROUNDS = shapes(inputs.ROUNDS), shapes(inputs.ROUNDS, **CAUSAL)
RAGGED, HEAD_DIMENSIONS = (with_options(shapes(table), BOTH) for table in (inputs.RAGGED, inputs.HEAD_DIMENSIONS))
OUTLIERS = inputs.FORWARD_OUTLIERS | {
    "values that cancel": Case(build=precision.values_that_cancel),
    "logits that cancel": Case(build=precision.logits_that_cancel),
}
COSTLY = in_dtypes(with_options(shapes({"d 64": long(), "d 32": square(d=32)}), BOTH), DTYPES)

test_pytorch_values = values(2.5, "flash_forward_pytorch returns o and lse in float32", PYTORCH, PLAIN)
test_triton_values = values(5, "flash_forward_triton returns o and lse in float32", TRITON, PLAIN | ROUNDS)
test_pytorch_causal = values(
    1.5, "flash_forward_pytorch with is_causal: query i sees keys j ≤ i", PYTORCH, VISIBLE_KEYS
)
test_triton_causal = values(
    3, "flash_forward_triton with is_causal: query i sees keys j ≤ i", TRITON, VISIBLE_KEYS | CAUSAL_ROUNDS
)
test_pytorch_ragged = values(
    0.5, "flash_forward_pytorch is right for every length and number of batch dimensions", PYTORCH, RAGGED
)
test_triton_ragged = values(
    1.25, "flash_forward_triton is right for every length and number of batch dimensions", TRITON, RAGGED
)
test_pytorch_head_dimension = values(
    0.5, "flash_forward_pytorch is right for every head dimension d", PYTORCH, HEAD_DIMENSIONS
)
test_triton_head_dimension = values(
    0.75, "flash_forward_triton is right for every head dimension d", TRITON, HEAD_DIMENSIONS
)
test_pytorch_outliers = values(
    1,
    "flash_forward_pytorch follows the running maximum wherever the large logits are, and never overflows",
    PYTORCH,
    OUTLIERS,
)
test_triton_outliers = values(
    2,
    "flash_forward_triton follows the running maximum wherever the large logits are, and never overflows",
    TRITON,
    OUTLIERS,
)
test_pytorch_16_bit = values(
    1,
    "flash_forward_pytorch takes bfloat16 and float16, accumulates in float32 and returns lse in float32",
    PYTORCH,
    precision.FORWARD,
)
test_triton_16_bit = values(
    1.25,
    "flash_forward_triton takes bfloat16 and float16, accumulates in float32 and returns lse in float32",
    TRITON,
    precision.FORWARD,
)
test_pytorch_strides = values(
    1, "flash_forward_pytorch reads q, k and v through their strides", PYTORCH, layouts.FORWARD_STRIDES
)
test_triton_strides = values(
    1, "flash_forward_triton reads q, k and v through their strides", TRITON, layouts.FORWARD_STRIDES
)
test_triton_offsets = values(
    0.5,
    "flash_forward_triton has 64-bit offsets, for inputs that reach over 2³¹ elements",
    TRITON,
    layouts.FORWARD_OFFSETS,
)
test_pytorch_properties = properties(
    0.5,
    "flash_forward_pytorch is a weighted mean of values over a set of keys, in each batch by itself",
    PYTORCH,
    changes.FORWARD,
)
test_triton_properties = properties(
    0.5,
    "flash_forward_triton is a weighted mean of values over a set of keys, in each batch by itself",
    TRITON,
    changes.FORWARD,
)
test_pytorch_contract = contract(
    0.5,
    "flash_forward_pytorch leaves its inputs and earlier results alone; an empty batch gives empty results",
    PYTORCH,
    inputs.BATCHES,
)
test_triton_contract = contract(
    0.5,
    "flash_forward_triton leaves its inputs and earlier results alone; an empty batch gives empty results",
    TRITON,
    inputs.BATCHES,
)
test_pytorch_mistakes = mistakes(
    0.5,
    "flash_forward_pytorch raises ValueError for q, k and v that do not fit together",
    PYTORCH,
    inputs.MISTAKE_SHAPE,
    inputs.FORWARD_MISTAKES,
)
test_triton_mistakes = mistakes(
    0.5,
    "flash_forward_triton raises ValueError for q, k and v that do not fit together, before any launch",
    TRITON,
    inputs.MISTAKE_SHAPE,
    inputs.FORWARD_MISTAKES,
)
test_attention_value = values(
    1.5,
    "flash_attention returns o, and passes is_causal on",
    AUTOGRAD,
    {"full": Case(oblong, options=FULL), "causal": Case(long(2), options=CAUSAL)},
    problem="flash_forward_triton",
)
test_triton_traffic = traffic(
    1.25,
    "flash_forward_triton reads q once, k and v once a tile of queries that sees them, and writes o and lse once",
    TRITON,
    COSTLY,
    read=["q"],
    written=["o", "lse"],
    beyond=costs.keys_once_a_tile,
)
test_pytorch_memory = costs.memory(0.5, "flash_forward_pytorch makes no tensor of n_queries × n_keys", PYTORCH)
test_triton_memory = costs.memory(0.5, "flash_forward_triton makes no tensor of n_queries × n_keys", TRITON)
test_triton_compiles = compiles(
    0.5, "flash_forward_triton's kernels compile and fit on A100, H100 and B200", [TRITON], inputs.COMPILED
)
test_triton_speed = speed(
    5,
    "flash_forward_triton has 85 % of FlashAttention-2's speed, in memory that grows with n·d",
    inputs.RACED,
    against="flash2",
    reach=0.85,
    memory=inputs.LONGEST,
)
