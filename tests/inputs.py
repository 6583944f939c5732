"""Named shapes and input builders; a name or a docstring says which mistake each one is there to catch."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from tests import oracle

# Families keep to what every ordinary kernel can do, but for the one thing that is theirs, so that one bug costs one
# family: whole tiles of 128; attention of as many queries as keys, d = 64. In each of them one case or more has a size
# that only the seed tells, so that no list of sizes is enough.
TILE = 128
LONGER = (3, 5, 6, 7)  # tiles: no powers of two, which are what a list would hold
MOST = 200  # of a size that the seed decides alone

Change = Callable[[Tensor, Tensor, Tensor], None]  # of q, k and v of an ordinary problem, in place
Rows = tuple[int, ...] | Callable[[Generator], tuple[int, ...]]


def between(rng: Generator, least: int, most: int) -> int:
    return int(torch.randint(least, most + 1, (), generator=rng))


def longer(rng: Generator) -> int:
    """384, 640, 768 or 896: the smallest of three draws, since attention costs the square of it."""
    return TILE * LONGER[min(between(rng, 0, len(LONGER) - 1) for _ in range(3))]


def drawn(shape: Any, rng: Generator) -> Any:
    """A shape, or what a function makes of the seed."""
    return shape(rng) if callable(shape) else shape


def long_matrix(rng: Generator) -> tuple[int, ...]:
    return longer(rng), TILE


def wide_matrix(rng: Generator) -> tuple[int, ...]:
    return TILE, longer(rng)


def wide_batches(rng: Generator) -> tuple[int, ...]:
    return between(rng, 1, 2), TILE, longer(rng)


def batches_of_rows(rng: Generator) -> tuple[int, ...]:
    return between(rng, 2, 3), TILE, TILE


# Weighted sum and RMSNorm: the shape of x.
PLAIN_ROWS = {
    "a matrix": long_matrix,
    "three dimensions": wide_batches,
    "four dimensions": lambda rng: (1, *batches_of_rows(rng)),
}
RAGGED_ROWS = {
    "one element": (1, 1),
    "one row, no batch dimension": (96,),
    "d = 1": (70, 1),
    "d = 8": (33, 8),
    "d = 40": (3, 17, 40),
    "d = 80": (2, 3, 5, 80),
    "fewer rows than a tile": (5, 64),
    "one row past a tile, one column past a tile": (129, 129),
    "primes": (101, 67),
    "any size": lambda rng: (3, between(rng, 1, MOST), between(rng, 1, MOST)),
    "one wide row": (1, 1000),
    "over a thousand rows": (1031, 5),
}
WIDE_ROWS = {
    "wider than a block": lambda rng: (3, between(rng, 17_000, 20_000)),
    "one past a power of two": lambda rng: (2, 2 ** between(rng, 11, 13) + 1),
}

ROW_GRADIENTS = [
    pytest.param({"summed": True}, id=".sum().backward()"),
    pytest.param({"wrt": (0,), "shape": wide_batches}, id="x only"),
    pytest.param({"wrt": (1,)}, id="weight only"),
    pytest.param({"times": 2}, id="twice with retain_graph"),
    pytest.param({"interleaved": True}, id="another forward pass in between"),
]


@dataclass(frozen=True)
class Attention:
    """The shape of one attention problem."""

    batch: tuple[int, ...]
    n_queries: int
    n_keys: int
    d: int
    shift: float = 0.0  # of the logits of every third row: see shifted()


Shape = Attention | Callable[[Generator], Attention]


def square(n_batch_dimensions: int = 1, d: int = 64) -> Shape:
    """As many queries as keys, a tile of them; two in each batch dimension, of the last two or three."""

    def shape(rng: Generator) -> Attention:
        return Attention((*(2,) * (n_batch_dimensions - 1), between(rng, 2, 3)), TILE, TILE, d)

    return shape


def long(n_batch_dimensions: int = 1, d: int = 64) -> Shape:
    """As many queries as keys, whole tiles of them, how many the seed decides; batches of one."""

    def shape(rng: Generator) -> Attention:
        n = longer(rng)
        return Attention((1,) * n_batch_dimensions, n, n, d)

    return shape


def any_lengths(rng: Generator) -> Attention:
    return Attention((3,), between(rng, 1, MOST), between(rng, 1, MOST), 64)


def any_odd_d(rng: Generator) -> Attention:
    return Attention((1,), TILE, TILE, 1 + 2 * between(rng, 1, 63))


def any_large_d(rng: Generator) -> Attention:
    return Attention((1,), TILE, TILE, between(rng, 129, 255))


PLAIN_ATTENTION = {
    "128 tokens, d 64": Attention((2,), 128, 128, 64),  # the first is small: likely causes are looked for in it
    "d 32": long(2, d=32),
    "d 128": square(d=128),
}
RAGGED_ATTENTION = {
    "fewer tokens than a tile": Attention((3,), 7, 7, 64),
    "one token past a tile": Attention((3,), 129, 129, 32),
    "primes": Attention((3,), 97, 101, 64),
    "more keys than queries": Attention((3,), 50, 150, 32),
    "more queries than keys": Attention((3,), 150, 50, 32),
    "one query": Attention((3,), 1, 77, 64),
    "one key": Attention((3,), 77, 1, 64),
    "any lengths": any_lengths,
    "no batch dimension": Attention((), 66, 66, 64),
    "three batch dimensions": Attention((2, 1, 3), 20, 20, 64),
}
HEAD_DIMENSIONS = {
    "d = 1": Attention((1,), TILE, TILE, 1),
    "d = 8": Attention((1,), TILE, TILE, 8),
    "d = 40": Attention((2,), TILE, TILE, 40),
    "d = 80": Attention((1,), TILE, TILE, 80),
    "d = 256": Attention((1,), TILE, TILE, 256),
    "an odd d": any_odd_d,
    "d above 128": any_large_d,
}


EMPTY = Attention((0, 2), TILE, TILE, 64)
FAR_BELOW_ZERO = {"logits near -1e4, which only -inf hides": Attention((3,), 70, 70, 32, shift=-1e4)}


causal = pytest.mark.parametrize("is_causal", [pytest.param(False, id="full"), pytest.param(True, id="causal")])


def cases(shapes: dict[str, object]) -> pytest.MarkDecorator:
    """A parametrisation of the argument `shape` by a table of named shapes."""
    return pytest.mark.parametrize("shape", [pytest.param(shape, id=name) for name, shape in shapes.items()])


def normal(rng: Generator, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=rng).to(dtype)


def row_inputs(rng: Generator, shape: Rows, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """x and a weight whose entries are negative, zero and far from 1, so that a forgotten weight shows."""
    shape = drawn(shape, rng)
    weight = normal(rng, shape[-1]) * 2 + 0.5
    if shape[-1] > 4:
        weight[shape[-1] // 2] = 0
    return normal(rng, *shape, dtype=dtype), weight.to(dtype)


def attention_inputs(rng: Generator, shape: Shape, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """q, k, v with logits of standard deviation 2: far from uniform, so that a wrong weight shows."""
    shape = drawn(shape, rng)
    queries, keys = (*shape.batch, shape.n_queries, shape.d), (*shape.batch, shape.n_keys, shape.d)
    q = normal(rng, *queries) * math.sqrt(2)
    k = normal(rng, *keys) * math.sqrt(2)
    if shape.shift:
        shifted(shape.shift)(q, k, k)
    return [q.to(dtype), k.to(dtype), normal(rng, *keys, dtype=dtype)]


def backward_inputs(
    rng: Generator, qkv: list[Tensor], is_causal: bool, grad_o: Tensor | None = None
) -> tuple[Tensor, ...]:
    """grad_o, q, k, v, o, lse: what a correct forward pass hands to the backward one."""
    o, lse = oracle.attention_forward(*qkv, is_causal=is_causal)
    dtype = qkv[0].dtype
    if grad_o is None:
        grad_o = normal(rng, *o.shape, dtype=dtype)
    return (grad_o, *qkv, o.to(dtype), lse.float())


AMPLITUDE = 16.0  # a power of two, which every precision holds exactly


def plant(q: Tensor, k: Tensor, logits: Tensor) -> None:
    """Add logits, one a key, to two rows of three through channel 0 of q and k; every third row stays ordinary."""
    q[..., 0] = AMPLITUDE
    q[..., ::3, 0] = 0
    k[..., 0] = logits * math.sqrt(q.shape[-1]) / AMPLITUDE


def huge_logit(position: float, logit: float = 60.0) -> Change:
    """One key, at this fraction of the way, outweighs all others by e^logit: a maximum taken per tile, or l or acc not
    rescaled, loses it or everything else.
    """

    def change(q: Tensor, k: Tensor, v: Tensor) -> None:
        n_keys = k.shape[-2]
        logits = torch.zeros(n_keys)
        logits[round(position * (n_keys - 1))] = logit
        plant(q, k, logits)

    return change


def huge_logit_of_its_own(logit: float = 60.0) -> Change:
    """Each row has another dominant key, in the first, a middle or the last tile: what one row of a tile sees may not
    touch its neighbours, nor one key's column the next.
    """

    def change(q: Tensor, k: Tensor, v: Tensor) -> None:
        n_queries, n_keys = q.shape[-2], k.shape[-2]
        channels = min(8, q.shape[-1])
        q[..., :channels], k[..., :channels] = 0, 0
        for channel in range(channels):
            q[..., torch.arange(channel, n_queries, channels), channel] = AMPLITUDE
            key = round(channel / (channels - 1) * (n_keys - 1))
            k[..., key, channel] = logit * math.sqrt(q.shape[-1]) / AMPLITUDE

    return change


def ramp(first: float, last: float) -> Change:
    """Rising, every key tile holds a new maximum and rescales what came before; falling, the first tile holds it, and a
    maximum that follows the current tile instead of the running one shows.
    """
    return lambda q, k, v: plant(q, k, torch.linspace(first, last, k.shape[-2]))


def shifted(shift: float) -> Change:
    """All logits of every third row move by about this much, which changes o not at all and lse by as much.

    +10⁴ overflows without a maximum; only −10⁴ catches a running maximum that starts at 0 instead of −∞.
    """

    def change(q: Tensor, k: Tensor, v: Tensor) -> None:
        q[..., 0] = 0
        q[..., ::3, 0] = math.copysign(256.0, shift)
        k[..., 0] = 2.0 ** round(math.log2(abs(shift) * math.sqrt(q.shape[-1]) / 256))

    return change


def all_equal(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Every key is the same: P is uniform and each maximum is met by every tile."""
    k[...] = k[..., :1, :].clone()


def beyond_float16(q: Tensor, k: Tensor, v: Tensor) -> None:
    """q far above what float16 holds, k and v far below: who computes in float16 loses them."""
    q *= 2.0**20
    k *= 2.0**-20
    v *= 2.0**-24


def barely_different(q: Tensor, k: Tensor, v: Tensor) -> None:
    """One logit is larger than all others by less than bfloat16 resolves near 1: P in 16 bits shows in lse."""
    q[:], k[:] = 0, 0
    q[..., 0] = 1
    k[..., 1:, 0] = -(2.0**-6)


FORWARD_CHANGES = {
    "huge logit in the first key tile": huge_logit(0.02, 120.0),  # e^120 overflows where a maximum is a tile's own
    "huge logit in a middle key tile": huge_logit(0.5),
    "huge logit in the last key": huge_logit(1.0),
    "each row its own huge logit": huge_logit_of_its_own(),
    "rising maxima": ramp(0, 24),
    "falling maxima": ramp(24, 0),
    "a third of the rows shifted by +1e4": shifted(1e4),
    "a third of the rows shifted by -1e4": shifted(-1e4),
    "all keys equal": all_equal,
    "keys barely different": barely_different,
    "values beyond float16": beyond_float16,
}
# Milder than forward: P = exp(S - lse) turns the rounding of a logit, which grows with the logit, into an error of P.
BACKWARD_CHANGES = {
    "large logit in the first key tile": huge_logit(0.02, 16.0),
    "large logit in a middle key tile": huge_logit(0.5, 16.0),
    "large logit in the last key": huge_logit(1.0, 16.0),
    "each row its own large logit": huge_logit_of_its_own(16.0),
    "rising maxima": ramp(0, 12),
    "falling maxima": ramp(12, 0),
    "a third of the rows shifted by +20": shifted(20),
    "a third of the rows shifted by -20": shifted(-20),
    "all keys equal": all_equal,
    "values beyond float16": beyond_float16,
}


LONG_CHANGE = "rising maxima"  # the more key tiles, the more often the maximum grows


def outlier_inputs(rng: Generator, change: Change, shape: Shape) -> list[Tensor]:
    q, k, v = attention_inputs(rng, shape)
    change(q, k, v)
    return [q, k, v]


def builders(changes: dict[str, Change]) -> dict[str, Callable]:
    shapes = {LONG_CHANGE: long()}
    return {
        name: partial(outlier_inputs, change=change, shape=shapes.get(name, square()))
        for name, change in changes.items()
    }


FORWARD_OUTLIERS, BACKWARD_OUTLIERS = builders(FORWARD_CHANGES), builders(BACKWARD_CHANGES)


def outliers(builds: dict[str, Callable]) -> pytest.MarkDecorator:
    """The argument `build`, which makes the tensors of a call."""
    return pytest.mark.parametrize("build", [pytest.param(build, id=name) for name, build in builds.items()])


def shape_of(ask: dict, usual: Any) -> tuple[Any, dict]:
    """The shape that a request for gradients names, or the usual one; and the request without it."""
    return ask.get("shape", usual), {key: value for key, value in ask.items() if key != "shape"}


def incoming(grad: Tensor, ask: dict) -> Tensor:
    """The gradient that arrives from the loss: ones where it is the sum of the result, else any."""
    return torch.ones_like(grad) if ask.get("summed") else grad


def row_batches() -> pytest.MarkDecorator:
    shapes = [pytest.param(wide_matrix, id="ordinary"), pytest.param((0, 32), id="empty batch")]
    return pytest.mark.parametrize("shape", shapes)


def batches() -> pytest.MarkDecorator:
    """The arguments `is_causal` and `shape`."""
    shapes = {"full-ordinary": (False, square()), "causal-ordinary": (True, long())}
    shapes |= {f"{name}-empty batch": (name == "causal", EMPTY) for name in ("full", "causal")}
    return pytest.mark.parametrize(("is_causal", "shape"), shapes.values(), ids=shapes)


MISTAKE_SHAPE = Attention((2, 2), 24, 32, 32)
MISTAKES = {
    "q and k differ in their last dimension": lambda q, k, v: (q[..., :16], k, v),
    "v differs in its last dimension": lambda q, k, v: (q, k, v[..., :16]),
    "q differs in the first batch dimension": lambda q, k, v: (q[:1], k, v),
    "q differs in the second batch dimension": lambda q, k, v: (q[:, :1], k, v),
    "v differs in a batch dimension": lambda q, k, v: (q, k, v[:1]),
    "k differs in its last dimension": lambda q, k, v: (q, k[..., :16], v),
    "k and v differ in length": lambda q, k, v: (q, k, v[..., :24, :]),
    "k differs in dtype": lambda q, k, v: (q, k.bfloat16(), v),
    "v differs in dtype": lambda q, k, v: (q, k, v.bfloat16()),
}


def mistakes() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("mistake", [pytest.param(change, id=name) for name, change in MISTAKES.items()])
