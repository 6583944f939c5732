"""RMSNorm and attention registered as operators of torch.library, for practice."""

from pathlib import Path

import torch

from tests import layouts, rows
from tests.compare import worst_margin
from tests.custom_op import models
from tests.custom_op.registered import fakes, schemas
from tests.families import (
    LOW_PRECISION,
    Subject,
    check_of,
    contract,
    gradients,
    in_dtypes,
    laid_out,
    mistakes,
    parametrized,
    shapes,
    values,
    with_options,
)
from tests.flash_attention import inputs
from tests.flash_attention.inputs import BOTH, CAUSAL, Attention, backward_inputs, forward_inputs
from tests.flash_attention.models import attention_backward
from tests.inputs import between, normal
from tests.rmsnorm import oracle
from tests.rmsnorm.models import rmsnorm_backward
from tests.rows import batches_of_rows, row_inputs

EPS = {"eps": 0.25}


def rmsnorm_inputs(rng, shape, dtype=torch.float32, **options):
    return row_inputs(rng, shape, dtype)


def rmsnorm_backward_inputs(rng, shape, dtype=torch.float32, eps=1e-5):
    x, weight = row_inputs(rng, shape, dtype)
    return normal(rng, *x.shape, dtype=dtype), x, weight, oracle.rmsnorm_forward(x, weight, eps)[1].float()


def rmsnorm_backward_model(*tensors, eps=1e-5):
    """eps is in rstd."""
    return rmsnorm_backward(*tensors)


def heads(rng):
    """Two batches of a few heads, more keys than queries."""
    return Attention((2, between(rng, 2, 3)), 64, 128, 32)


def tokens(rng):
    """As many queries as keys, whole tiles of them: 128 or 256."""
    n = 128 * between(rng, 1, 2)
    return Attention((2,), n, n, 32)


RMSNORM = Subject("rmsnorm_op", rmsnorm_inputs, models.rmsnorm_forward)
ATTENTION = Subject("attention_op", forward_inputs, models.attention_forward)
RMSNORM_BACKWARD = Subject("rmsnorm_backward", rmsnorm_backward_inputs, rmsnorm_backward_model)
ATTENTION_BACKWARD = Subject("flash_backward_triton", backward_inputs, attention_backward)
WAYS = {"default": {}, "another eps": EPS}
ROWS = shapes(
    {"three dimensions": batches_of_rows, "one row": (96,), "any size": lambda rng: (3, between(rng, 2, 200), 67)}
)
HEADS = shapes({"two batch dimensions": heads, "one batch dimension": tokens})
RAGGED_ROWS = ROWS | shapes({"one element": (1, 1), "a wide row": (2, 3000), "empty batch": (0, 32)})
RAGGED_HEADS = HEADS | shapes(
    {
        "primes": Attention((3,), 97, 101, 40),
        "no batch dimension": Attention((), 66, 66, 64),
        "empty batch": inputs.EMPTY,
    }
)
EACH = layouts.each({"each its own": layouts.each_its_own})
GRADIENTS = {
    ".sum().backward()": {"summed": True},
    "twice with retain_graph": {"times": 2},
    "another forward pass in between": {"interleaved": True},
}


def without_grad(points, claim, subject, cases):
    """Return a check of calls under torch.no_grad()."""

    @parametrized("case", cases)
    def test(run, rng, record_property, case):
        tensors = case.tensors(subject, rng)
        got = run.inferred(subject.function, *tensors, **case.options)
        record_property(
            "margin", worst_margin(got, subject.expected(*tensors, **case.options)(), run.has_exact_margins)
        )

    return check_of(points, claim, "", test)


test_rmsnorm_op_values = values(
    4, "rmsnorm_op returns y of RMSNorm, and passes eps on", RMSNORM, with_options(ROWS, WAYS)
)
test_attention_op_values = values(
    4, "attention_op returns o of attention, and passes is_causal on", ATTENTION, with_options(HEADS, BOTH)
)
test_rmsnorm_op_gradients = gradients(
    2.5,
    "rmsnorm_op is differentiable by its backward kernel, as often as asked, and in two calls of one graph",
    RMSNORM_BACKWARD,
    batches_of_rows,
    GRADIENTS
    | {
        "x only": {"wrt": (0,)},
        "weight only": {"wrt": (1,)},
        "another eps": {"options": EPS},
        "two calls in one graph": {"split": (0,)},
    },
)
test_attention_op_gradients = gradients(
    2.5,
    "attention_op is differentiable by its backward kernels, as often as asked, and in two calls of one graph",
    ATTENTION_BACKWARD,
    heads,
    GRADIENTS
    | {
        "causal": {"options": CAUSAL, "shape": tokens},
        "q only": {"wrt": (0,)},
        "another forward pass, not causal, in between": {"interleaved": True, "options": CAUSAL},
        "two calls in one graph": {"split": (0, 1, 2)},
    },
)
test_rmsnorm_op_schema = schemas(
    1,
    "rmsnorm_op calls the operator cs336::rmsnorm(Tensor x, Tensor weight, float eps=1e-05), which writes to no input",
    RMSNORM,
    shapes({"three dimensions": batches_of_rows}),
    "cs336::rmsnorm",
    [("Tensor", "x", ""), ("Tensor", "weight", ""), ("float", "eps", 1e-5)],
    script=(Path(__file__).parent / "block.py").read_text(encoding="utf-8"),
)
test_attention_op_schema = schemas(
    1,
    "attention_op calls the operator cs336::flash_attention(Tensor q, Tensor k, Tensor v, bool is_causal=False), "
    "which writes to no input",
    ATTENTION,
    shapes({"two batch dimensions": heads}),
    "cs336::flash_attention",
    [("Tensor", "q", ""), ("Tensor", "k", ""), ("Tensor", "v", ""), ("bool", "is_causal", False)],
)
test_rmsnorm_op_fake = fakes(
    1.25,
    "rmsnorm_op's operators say without data and launch what shape, dtype and strides they return, gradients too",
    RMSNORM,
    RAGGED_ROWS | laid_out(ROWS, EACH) | in_dtypes(ROWS, LOW_PRECISION),
)
test_attention_op_fake = fakes(
    1.25,
    "attention_op's operators say without data and launch what shape, dtype and strides they return, gradients too",
    ATTENTION,
    with_options(RAGGED_HEADS, BOTH) | laid_out(HEADS, EACH) | in_dtypes(HEADS, LOW_PRECISION),
)
test_rmsnorm_op_strides = values(0.5, "rmsnorm_op takes x and weight of any strides", RMSNORM, laid_out(ROWS, EACH))
test_attention_op_strides = values(
    0.5,
    "attention_op takes q, k and v of any strides",
    ATTENTION,
    laid_out(shapes({"two batch dimensions": heads}), EACH),
)
test_rmsnorm_op_no_grad = without_grad(
    0.25, "rmsnorm_op returns y without a graph under torch.no_grad()", RMSNORM, with_options(ROWS, WAYS)
)
test_attention_op_no_grad = without_grad(
    0.25, "attention_op returns o without a graph under torch.no_grad()", ATTENTION, with_options(HEADS, BOTH)
)
test_rmsnorm_op_contract = contract(
    0.25,
    "rmsnorm_op leaves inputs and earlier results alone; an empty batch gives an empty result",
    RMSNORM,
    shapes({"ordinary": batches_of_rows, "empty batch": (0, 32)}),
)
test_attention_op_contract = contract(
    0.25,
    "attention_op leaves inputs and earlier results alone; an empty batch gives an empty result",
    ATTENTION,
    shapes({"ordinary": heads, "empty batch": inputs.EMPTY}),
)
test_rmsnorm_op_mistakes = mistakes(
    0.25,
    "rmsnorm_op raises ValueError for a weight of another length than the rows of x, before any launch",
    RMSNORM,
    rows.MISTAKE_SHAPE,
    rows.FORWARD_MISTAKES,
)
test_attention_op_mistakes = mistakes(
    0.25,
    "attention_op raises ValueError for q, k and v that do not fit together, before any launch",
    ATTENTION,
    inputs.MISTAKE_SHAPE,
    inputs.FORWARD_MISTAKES,
)
