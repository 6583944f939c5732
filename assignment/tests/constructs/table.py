"""The type of a construct, the registry of all of them, and what they are given."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Closeness:
    """The simulator's tolerance: |difference| ≤ relative · |value| + absolute · largest |value|.

    `bits` asks for every bit, the NaNs' too. Otherwise all NaNs are equal, and so are both zeros.
    """

    relative: float = 0.0
    absolute: float = 0.0
    bits: bool = False
    reason: str = ""


BITS = Closeness(bits=True, reason="defined to the last bit")
EXACT = Closeness(reason="one correctly rounded operation, or integers")
APPROXIMATE = Closeness(relative=1e-5, absolute=1e-6, reason="the GPU's approximate instruction: a few ulp")
ORDER = Closeness(relative=0.0, absolute=2e-6, reason="the order of a float32 sum is the compiler's")
ORDER_16 = Closeness(0.02, 0.02, reason="the order of a sum that rounds to 16 bits is the compiler's")


@dataclass(frozen=True)
class Construct:
    """A kernel and its use: `run(**inputs)` launches it and returns its outputs by name.

    It is compared with a GPU's answer, or with `definition(**inputs)` where there is one.
    """

    name: str
    inputs: dict[str, Tensor]
    run: Callable[..., dict[str, Tensor]]
    closeness: Closeness
    definition: Callable[..., Tensor] | None = None


@dataclass(frozen=True)
class Out:
    """An argument of a kernel that is an output: what it is before, and its name."""

    start: Tensor
    name: str = "y"


TABLE: dict[str, Construct] = {}


def construct(
    name: str,
    kernel: Any,
    given: Callable[..., tuple],
    closeness: Closeness = EXACT,
    grid: tuple[int, ...] = (1,),
    **inputs: Tensor,
) -> None:
    """Register a kernel under `name`; `given(**inputs)` are its arguments, outputs among them."""

    def run(**inputs: Tensor) -> dict[str, Tensor]:
        device = next(iter(inputs.values())).device
        arguments = given(**inputs)
        outputs = {out.name: out.start.clone().to(device) for out in arguments if isinstance(out, Out)}
        kernel[grid](*(outputs[x.name] if isinstance(x, Out) else x for x in arguments))
        return outputs

    register(Construct(name, inputs, run, closeness))


def register(construct: Construct) -> None:
    """Add a construct to the table."""
    if construct.name in TABLE:
        raise ValueError(f"two constructs are called {construct.name!r}")
    TABLE[construct.name] = construct


def out(*shape: int, dtype: torch.dtype = torch.float32, name: str = "y") -> Out:
    """Return an output of zeros."""
    return Out(torch.zeros(shape, dtype=dtype), name)


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Return standard normal values."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def integers(low: int, high: int, *shape: int, dtype: torch.dtype = torch.int32, seed: int = 0) -> Tensor:
    """Return uniform integers in [low, high)."""
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


SIZE = 256
_FLOAT_BITS = {
    torch.float64: torch.int64, torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16,
}  # fmt: skip


@functools.cache
def every_kind(dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Return 256 values of a type: NaN, infinities, zeros, subnormals, limits, random bits."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, (SIZE,), generator=generator).bool()
    if not dtype.is_floating_point:
        return _integers_of_every_kind(dtype, generator)
    info, inf = torch.finfo(dtype), float("inf")
    special = [0.0, -0.0, float("nan"), inf, -inf, info.max, info.min, info.tiny, -info.tiny]
    special += [info.tiny / 2, info.tiny / 4, -info.tiny / 8, 1.0, -1.0, 1 + info.eps, 1 - info.eps / 2]
    # halfway in bf16, in fp16
    special += [1 + k / 512 for k in (1, 2, 3, 5)] + [1 + k / 4096 for k in (1, 2, 3, 5)]
    special += [65504.0, 65519.0, 65520.0, 65536.0, 6e-8, 3e-8, 2.98e-8, 1e-41, 3.3895e38, 3.4e38]
    special += [s * (n + f) for n in (0, 1, 127, 128, 255, 256, 32767, 65535) for f in (0, 0.5, 0.9) for s in (1, -1)]
    special += [s * 2.0**e for e in (31, 32, 40, 63, 64) for s in (1, -1)] + [2147483520.0, 2147483647.0, 4294967040.0]
    rest = SIZE - len(special)
    limits = torch.iinfo(_FLOAT_BITS[dtype])
    wild = torch.randint(limits.min, limits.max, (rest // 2,), generator=generator, dtype=_FLOAT_BITS[dtype])
    tame = torch.randn(rest - rest // 2, generator=generator, dtype=torch.float64) * 300
    return torch.cat([torch.tensor(special, dtype=torch.float64).to(dtype), wild.view(dtype), tame.to(dtype)])


def _integers_of_every_kind(dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    info = torch.iinfo(dtype)
    special = [0, 1, 2, 3, 7, 127, 128, 255, 256, 32767, 32768, 65519, 65520, 65535, 65536, 2**24 + 1, 2**24 + 3]
    special += [2**31 - 1, 2**31, 2**31 - 65, 2**53 + 1, 2**62 + 2**37, info.max, info.max - 1]
    special += [-x for x in special] + [info.min, info.min + 1]
    fitting = [x for x in special if info.min <= x <= info.max]
    wild = torch.randint(info.min, info.max, (SIZE - len(fitting),), generator=generator, dtype=dtype)
    return torch.cat([torch.tensor(fitting, dtype=dtype), wild])
