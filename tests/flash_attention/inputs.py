"""Shapes and inputs of attention; a name or a docstring says which mistake each one is there to catch."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from tests.families import Case, Cases, Rounds
from tests.flash_attention import oracle
from tests.inputs import MOST, TILE, between, drawn, longer, normal

Change = Callable[[Tensor, Tensor, Tensor], None]  # of q, k and v of an ordinary problem, in place


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


def oblong(rng: Generator) -> Attention:
    """Twice as many keys as queries, two batch dimensions."""
    return Attention((2, between(rng, 2, 3)), TILE, 2 * TILE, 64)


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


def past_1024(rng: Generator) -> Attention:
    """Whole tiles, more than any one tile or power of two in use holds: what is right up to 1,024 keys alone shows."""
    n = 1024 + TILE * between(rng, 1, 2)
    return Attention((1,), n, n, 16)


def few_queries(rng: Generator) -> Attention:
    return Attention((1,), between(rng, 2, 12), 1024 + between(rng, 1, 200), 32)


LONGER = {
    "d 32": long(2, d=32),
    "d 128": square(d=128),
    "past 1,024 tokens": past_1024,
}
# The first is small: likely causes are looked for in it. No two sizes of PLAIN's are alike, so that swapped axes show.
PLAIN = {"128 queries, 256 keys, d 64": Attention((2,), 128, 256, 64), **LONGER}
CAUSAL_PLAIN = {"128 tokens, d 64": Attention((2,), 128, 128, 64), **LONGER}
ROUNDS = {"several tiles in each program": Rounds(lambda n: Attention((n,), TILE, TILE, 64), first=2, tile=1, most=600)}
RAGGED = {
    "fewer tokens than a tile": Attention((3,), 7, 7, 64),
    "one token past a tile": Attention((3,), 129, 129, 32),
    "primes": Attention((3,), 97, 101, 64),
    "more keys than queries": Attention((3,), 50, 150, 32),
    "more queries than keys": Attention((3,), 150, 50, 32),
    "one query": Attention((3,), 1, 77, 64),
    "one key": Attention((3,), 77, 1, 64),
    "any lengths": any_lengths,
    "few queries, past 1,024 keys": few_queries,
    "no batch dimension": Attention((), 66, 66, 64),
    "three batch dimensions": Attention((2, 1, 3), 20, 20, 64),
    "logits near -1e4, which only -inf hides": Attention((3,), 70, 70, 32, shift=-1e4),
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
# What is called with is_causal and without: both have a plain and an empty batch.
EMPTY = Attention((0, 2), TILE, TILE, 64)
FULL, CAUSAL = {"is_causal": False}, {"is_causal": True}
BOTH = {"full": FULL, "causal": CAUSAL}
BATCHES = {
    "full-ordinary": Case(square(), options=FULL),
    "causal-ordinary": Case(long(), options=CAUSAL),
    "full-empty batch": Case(EMPTY, options=FULL),
    "causal-empty batch": Case(EMPTY, options=CAUSAL),
}
TOKENS = (768, 896)  # of one batch: a tile is far smaller than n × n


def many_tokens(rng: Generator) -> Attention:
    n = TOKENS[between(rng, 0, len(TOKENS) - 1)]
    return Attention((1,), n, n, 16)


def forward_inputs(
    rng: Generator, shape: Shape, dtype: torch.dtype = torch.float32, is_causal: bool = False
) -> list[Tensor]:
    """Return q, k, v with logits of standard deviation 2: far from uniform, so that a wrong weight shows."""
    shape = drawn(shape, rng)
    queries, keys = (*shape.batch, shape.n_queries, shape.d), (*shape.batch, shape.n_keys, shape.d)
    q = normal(rng, *queries) * math.sqrt(2)
    k = normal(rng, *keys) * math.sqrt(2)
    if shape.shift:
        shifted(shape.shift)(q, k, k)
    return [q.to(dtype), k.to(dtype), normal(rng, *keys, dtype=dtype)]


def backward_inputs(
    rng: Generator, shape: Shape, dtype: torch.dtype = torch.float32, is_causal: bool = False
) -> tuple[Tensor, ...]:
    """Return grad_o, q, k, v, o, lse: what a right forward pass hands to the backward one."""
    return after_forward(rng, forward_inputs(rng, shape, dtype), is_causal)


def after_forward(
    rng: Generator, qkv: list[Tensor], is_causal: bool = False, grad_o: Tensor | None = None
) -> tuple[Tensor, ...]:
    """Return grad_o, q, k, v, o, lse; o and lse are the oracle's, so that a broken forward pass costs no points."""
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


def outliers(changes: dict[str, Change], is_backward: bool) -> Cases:
    """Return a case for each change of an ordinary problem."""

    def case(name: str) -> Case:
        def build(rng: Generator, dtype: torch.dtype) -> list[Tensor] | tuple[Tensor, ...]:
            q, k, v = forward_inputs(rng, long() if name == LONG_CHANGE else square(), dtype)
            changes[name](q, k, v)
            return after_forward(rng, [q, k, v]) if is_backward else [q, k, v]

        return Case(build=build)

    return {name: case(name) for name in changes}


FORWARD_OUTLIERS = outliers(FORWARD_CHANGES, is_backward=False)
BACKWARD_OUTLIERS = outliers(BACKWARD_CHANGES, is_backward=True)

MISTAKE_SHAPE = Attention((2, 2), 24, 32, 32)
FORWARD_MISTAKES: dict[str, Callable] = {
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


def of_backward(change: Callable) -> Callable:
    return lambda grad_o, q, k, v, o, lse: (grad_o, *change(q, k, v), o, lse)


BACKWARD_MISTAKES = {name: of_backward(change) for name, change in FORWARD_MISTAKES.items()}

# Constant, unlike all others: what was compiled is remembered by its shapes, and saves half of a run.
COMPILED_TOKENS = 384
COMPILED = {
    f"{name}-{way}": Case(Attention((2,), COMPILED_TOKENS, COMPILED_TOKENS, d), dtype, options)
    for name, dtype, d in (
        ("bfloat16, d 64", torch.bfloat16, 64),
        ("bfloat16, d 128", torch.bfloat16, 128),
        ("float32, d 64", torch.float32, 64),
    )
    for way, options in BOTH.items()
}

# What is timed on a GPU: (n, d).
RACED = {
    f"n 4096 d {d}{' causal' if causal else ''}": Case((4096, d), torch.bfloat16, {"is_causal": causal})
    for d in (64, 128)
    for causal in (False, True)
}
LONGEST = {"memory at n 32768": Case((32768, 64), torch.bfloat16, {"is_causal": False, "batch": (1, 4)})}
