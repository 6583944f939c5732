"""What a call moves and holds, counted exactly in the simulator: bytes of each tensor, and the largest tensor made.

Inputs are contiguous; results must be right as well. Bytes count the active lanes of every load, store and atomic, and
what PyTorch's operations read and write between launches, copies of a tensor included: `x.clone()` and a kernel that
reads the clone read x twice. Constant fills cost nothing. The traffic of weights and of their gradients is not graded.
Nor is what flash_backward_pytorch holds: torch.compile, which it may use, fuses that away, and is off in the simulator.
"""

import math

import pytest
import torch

from tests import inputs, models, oracle
from tests.compare import Mismatch, worst_margin
from tests.inputs import Attention, attention_inputs, long, long_matrix, normal, row_inputs, square, wide_batches

SLACK = 0.05  # of a tensor's size
VECTOR = 1 / 16  # of the largest tensor's size: a smaller one is a vector,
VECTOR_SLACK = 0.1  # whose traffic may be so much of the largest tensor's

ROWS = {"a matrix": long_matrix, "three dimensions": wide_batches}
ATTENTION = {"d 64": long(), "d 32": square(d=32)}
TOKENS = (768, 896)  # of one batch: a tile is far smaller than n × n
HALF = 0.85  # of the repeated reads without is_causal: half of the tiles, those of the diagonal, and a few rows
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])

weighted_sum = pytest.mark.problem("weighted_sum")
rmsnorm = pytest.mark.problem("rmsnorm")
forward_pytorch = pytest.mark.problem("flash_forward_pytorch")
forward_triton = pytest.mark.problem("flash_forward_triton")
backward_triton = pytest.mark.problem("flash_backward_triton")


def size(tensor):
    return tensor.numel() * tensor.itemsize


def right(results, expected):
    """The results' margin; raises Mismatch for wrong ones, whose costs mean nothing."""
    try:
        return worst_margin(results, expected)
    except Mismatch as wrong:
        wrong.args = (f"costs are counted of right results; this one is wrong:\n{wrong}",)
        raise


@pytest.fixture
def costs_of(run, record_property):
    """Call a function of the submission, compare its result with what is expected of it, and return its costs."""

    def costs_of(function, *tensors, expected, **options):
        costs = run.costs(function, *tensors, **options)
        record_property("margin", right(costs.results, expected))
        return costs

    return costs_of


def moved(verb, name, nbytes, tensor_size, times, slack, remedy):
    """Raise Mismatch if the bytes are more than `times` the tensor's, and the slack."""
    if nbytes > times * tensor_size + slack:
        expected = "once" if times == 1 else f"at most {times:.2f} times"
        raise Mismatch(
            f"{name} is {verb} {nbytes / tensor_size:.2f} times: {nbytes:,} bytes of a tensor of {tensor_size:,}; "
            f"expected {expected}\n  {remedy}"
        )


def moved_once(costs, tensors, read, written):
    """Each tensor named in `read`, with its position among the inputs, is read once, and each in `written`, with its
    position among the results and its size in bytes, is written once.
    """
    largest = max(map(size, tensors))
    inputs_read = [(name, costs.read[at], size(tensors[at]), "read") for name, at in read.items()]
    results_written = [(name, costs.written[at], nbytes, "written") for name, (at, nbytes) in written.items()]
    for name, nbytes, tensor_size, verb in [*inputs_read, *results_written]:
        slack = SLACK * tensor_size if tensor_size > VECTOR * largest else VECTOR_SLACK * largest
        moved(verb, name, nbytes, tensor_size, 1, slack, REMEDIES[verb])
        if nbytes < tensor_size:
            raise Mismatch(f"{nbytes:,} bytes of {name} are {verb} in a call, of {tensor_size:,}: expected all of them")


REMEDIES = {
    "read": "load each element in one program, once, and keep it; a copy by PyTorch reads it once more",
    "written": "store each element once, in the output itself: a copy by PyTorch writes it once more",
}


@weighted_sum
@pytest.mark.points(0.5)
@DTYPES
@inputs.cases(ROWS)
def test_weighted_sum_forward_traffic(costs_of, rng, shape, dtype):
    """weighted_sum_forward reads x once and writes y once"""
    tensors = row_inputs(rng, shape, dtype)
    costs = costs_of("weighted_sum_forward", *tensors, expected=models.weighted_sum_forward(*tensors))
    moved_once(costs, tensors, read={"x": 0}, written={"y": (0, size(tensors[0][..., 0]))})


@weighted_sum
@pytest.mark.points(0.5)
@DTYPES
@inputs.cases(ROWS)
def test_weighted_sum_backward_traffic(costs_of, rng, shape, dtype):
    """weighted_sum_backward reads x and grad_y once and writes grad_x once"""
    x, weight = row_inputs(rng, shape, dtype)
    tensors = normal(rng, *x.shape[:-1], dtype=dtype), x, weight
    costs = costs_of("weighted_sum_backward", *tensors, expected=models.weighted_sum_backward(*tensors))
    moved_once(costs, tensors, read={"grad_y": 0, "x": 1}, written={"grad_x": (0, size(x))})


@rmsnorm
@pytest.mark.points(1)
@DTYPES
@inputs.cases(ROWS)
def test_rmsnorm_forward_traffic(costs_of, rng, shape, dtype):
    """rmsnorm_forward reads x once and writes y once"""
    x, weight = row_inputs(rng, shape, dtype)
    rows = x[..., 0].numel()
    costs = costs_of("rmsnorm_forward", x, weight, expected=models.rmsnorm_forward(x, weight))
    moved_once(costs, (x, weight), read={"x": 0}, written={"y": (0, size(x)), "rstd": (1, 4 * rows)})


@rmsnorm
@pytest.mark.points(1)
@DTYPES
@inputs.cases(ROWS)
def test_rmsnorm_backward_traffic(costs_of, rng, shape, dtype):
    """rmsnorm_backward reads x and grad_y once and writes grad_x once"""
    x, weight = row_inputs(rng, shape, dtype)
    tensors = normal(rng, *x.shape, dtype=dtype), x, weight, oracle.rmsnorm_forward(x, weight)[1].float()
    costs = costs_of("rmsnorm_backward", *tensors, expected=models.rmsnorm_backward(*tensors))
    moved_once(costs, tensors, read={"grad_y": 0, "x": 1}, written={"grad_x": (0, size(x))})


def visits(shape, is_causal, q_tile, k_tile):
    """How often the keys of a batch are read if each tile of queries reads those that it sees, in whole tiles, once."""
    seen = 0
    for first in range(0, shape.n_queries, q_tile):
        visible = first + q_tile if is_causal else shape.n_keys
        seen += min(shape.n_keys, math.ceil(visible / k_tile) * k_tile)
    return seen / shape.n_keys


@forward_triton
@pytest.mark.points(1.5)
@DTYPES
@inputs.causal
@inputs.cases(ATTENTION)
def test_flash_forward_traffic(costs_of, rng, shape, is_causal, dtype):
    """flash_forward_triton reads q once, k and v once a tile of queries that sees them, and writes o and lse once"""
    shape = inputs.drawn(shape, rng)
    qkv = attention_inputs(rng, shape, dtype)
    expected = models.attention_forward(*qkv, is_causal)
    costs = costs_of("flash_forward_triton", *qkv, is_causal=is_causal, expected=expected)
    q, k, _ = qkv
    moved_once(costs, qkv, read={"q": 0}, written={"o": (0, size(q)), "lse": (1, 4 * q[..., 0].numel())})
    q_tile = costs.tile_rows[0] or 1
    for position, name in ((1, "k"), (2, "v")):
        times = visits(shape, is_causal, q_tile, costs.tile_rows[position] or 1)
        remedy = f"each of the tiles of {q_tile} queries reads the keys once"
        remedy += ", in whole tiles, and none beyond its last query" if is_causal else ""
        moved("read", name, costs.read[position], size(k), times, SLACK * size(k), remedy)


@backward_triton
@pytest.mark.points(0.5)
def test_flash_backward_traffic(costs_of, rng):
    """flash_backward_triton with is_causal leaves out the tiles above the diagonal, in every loop"""
    qkv = attention_inputs(rng, long(d=32))
    read = []
    for is_causal in (False, True):
        tensors = inputs.backward_inputs(rng, qkv, is_causal)
        expected = models.attention_backward(*tensors, is_causal)
        read.append(costs_of("flash_backward_triton", *tensors, is_causal=is_causal, expected=expected).read)
    for name, tensor, full, causal in zip(("grad_o", "q", "k", "v"), tensors, *read, strict=False):
        again = [nbytes - size(tensor) for nbytes in (full, causal)]  # beyond the one time that all of it must be read
        if again[1] > HALF * again[0] + SLACK * size(tensor):
            raise Mismatch(
                f"{name} is read {full / size(tensor):.2f} times, with is_causal {causal / size(tensor):.2f} times: "
                "expected about half as often\n  start and end the loops at the tiles of the diagonal: beyond it p is 0"
            )


def many_tokens(rng):
    n = TOKENS[inputs.between(rng, 0, len(TOKENS) - 1)]
    return Attention((1,), n, n, 16)


@pytest.fixture
def nothing_of_n_squared(run, record_property):
    """Call a function of the submission, compare its result, and raise Mismatch if it made too large a tensor."""

    def check(function, tensors, is_causal, expected):
        results, largest = run.largest(function, *tensors, is_causal=is_causal)
        record_property("margin", right(results, expected))
        n = results[0].shape[-2]
        if largest >= n**2 // 4:
            raise Mismatch(
                f"for {n} queries and keys a tensor of {largest:,} elements is made; expected fewer than "
                f"n²/4 = {n**2 // 4:,}\n  hold a tile of the scores at a time, never all of them"
            )

    return check


@forward_pytorch
@pytest.mark.points(0.5)
@inputs.causal
def test_flash_forward_pytorch_memory(nothing_of_n_squared, rng, is_causal):
    """flash_forward_pytorch makes no tensor of n_queries × n_keys"""
    qkv = attention_inputs(rng, many_tokens(rng))
    expected = models.attention_forward(*qkv, is_causal, tf32=False)
    nothing_of_n_squared("flash_forward_pytorch", qkv, is_causal, expected)


@forward_triton
@pytest.mark.points(0.5)
@inputs.causal
def test_flash_forward_triton_memory(nothing_of_n_squared, rng, is_causal):
    """flash_forward_triton makes no tensor of n_queries × n_keys"""
    qkv = attention_inputs(rng, many_tokens(rng))
    nothing_of_n_squared("flash_forward_triton", qkv, is_causal, models.attention_forward(*qkv, is_causal))


@backward_triton
@pytest.mark.points(0.5)
@inputs.causal
def test_flash_backward_triton_memory(nothing_of_n_squared, rng, is_causal):
    """flash_backward_triton makes no tensor of n_queries × n_keys"""
    tensors = inputs.backward_inputs(rng, attention_inputs(rng, many_tokens(rng)), is_causal)
    nothing_of_n_squared("flash_backward_triton", tensors, is_causal, models.attention_backward(*tensors, is_causal))
