"""Products of microscaling formats, against their definition (OCP Microscaling, MX v1.0).

A GPU is no measure of them: Hopper has no such instruction. Triton 3.7 emulates it there by
products of bf16, or of fp16 next to an fp16 operand, and compiles no byte packed along M or N.
"""

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from .table import Closeness, Construct, integers, normal, register

ROUNDED_ONCE = Closeness(relative=2**-23, reason="a sum in float64, rounded to float32 once")
M, N, K = 32, 16, 64
GROUP = 32  # elements that share a scale
E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])  # by its bits without the sign's
FLOATS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "bf16": torch.bfloat16, "fp16": torch.float16}


@triton.jit
def load_tile(ptr, ROWS: tl.constexpr, COLS: tl.constexpr):
    return tl.load(ptr + tl.arange(0, ROWS)[:, None] * COLS + tl.arange(0, COLS)[None, :])


@triton.jit
def scaled_dot_kernel(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, c_ptr, y_ptr, n_steps,
    A: tl.constexpr, B: tl.constexpr, A_K_PACK: tl.constexpr, B_K_PACK: tl.constexpr,
    GROUP: tl.constexpr,
    A_ROWS: tl.constexpr, A_COLS: tl.constexpr, B_ROWS: tl.constexpr, B_COLS: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    m, n = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    y = tl.load(c_ptr + m * N + n)
    for step in range(n_steps):
        a = load_tile(a_ptr + step * A_ROWS * A_COLS, A_ROWS, A_COLS)
        b = load_tile(b_ptr + step * B_ROWS * B_COLS, B_ROWS, B_COLS)
        a_scale, b_scale = None, None
        if a_scale_ptr is not None:
            a_scale = load_tile(a_scale_ptr + step * M * (K // GROUP), M, K // GROUP)
        if b_scale_ptr is not None:
            b_scale = load_tile(b_scale_ptr + step * N * (K // GROUP), N, K // GROUP)
        y = tl.dot_scaled(a, a_scale, A, b, b_scale, B, y, lhs_k_pack=A_K_PACK, rhs_k_pack=B_K_PACK)
    tl.store(y_ptr + m * N + n, y)


def defined(
    a: Tensor, b: Tensor, c: Tensor, formats: tuple[str, str], a_scale: Tensor | None = None,
    b_scale: Tensor | None = None, k_packs: tuple[bool, bool] = (True, True),
) -> Tensor:  # fmt: skip
    """Return c + Σ A B over the steps.

    a (steps, m, k), b (steps, k, n), a_scale (steps, m, groups), b_scale (steps, n, groups); all in
    float64, with one rounding to float32 a step. A byte of e2m1 holds two neighbours along k, or
    along m or n without k_packs.
    """
    left = _numbers(a, formats[0], 2 if k_packs[0] else 1)
    right = _numbers(b, formats[1], 1 if k_packs[1] else 2)
    if a_scale is not None:
        left = left * _scales(a_scale, left.shape[2])
    if b_scale is not None:
        right = right * _scales(b_scale, right.shape[1]).mT
    y = c
    for product in left @ right:
        y = (y.double() + product).float()
    return y


def _numbers(stored: Tensor, name: str, packed_dim: int) -> Tensor:
    if name != "e2m1":
        return stored.view(FLOATS[name]).double()
    shape = list(stored.shape)
    shape[packed_dim] *= 2
    found = torch.empty(shape, dtype=torch.float64)
    for half in range(2):
        bits = (stored.int() >> (4 * half)) & 15
        places = torch.arange(half, shape[packed_dim], 2)
        found.index_copy_(packed_dim, places, (E2M1[bits % 8] * (1 - 2 * (bits // 8))).double())
    return found


def _scales(stored: Tensor, k: int) -> Tensor:
    """Return the scale of each of k elements; for e8m0, 2 to the byte - 127, and 255 is NaN."""
    if stored.dtype == torch.float8_e4m3fn:
        scales = stored.double()
    else:
        scales = torch.where(stored == 255, torch.nan, 2.0 ** (stored.double() - 127))
    return scales.repeat_interleave(k // stored.shape[-1], dim=-1)


def stored(name: str, *shape: int, seed: int) -> Tensor:
    """Return numbers in a format; for e2m1, all bytes."""
    if name == "e2m1":
        return integers(0, 256, *shape, dtype=torch.uint8, seed=seed)
    return normal(*shape, dtype=FLOATS[name], seed=seed)


def e8m0(*shape: int, seed: int, low: int = 120, high: int = 135) -> Tensor:
    """Return scales from 2 to the power of low - 127 up to, not including, high - 127."""
    return integers(low, high, *shape, dtype=torch.uint8, seed=seed)


def _register(
    name: str, formats: tuple[str, str], *, scales: tuple[Tensor | None, Tensor | None] | None = None,
    k_packs: tuple[bool, bool] = (True, True), sizes: tuple[int, int, int] = (M, N, K), steps: int = 1,
    seen_as: Callable[[Tensor], Tensor] = lambda x: x,
) -> None:  # fmt: skip
    """Register a construct; `seen_as` converts the operands to what the kernel is given."""
    m, n, k = sizes
    if scales is None:
        scales = e8m0(steps, m, k // GROUP, seed=3), e8m0(steps, n, k // GROUP, seed=4)
    a_shape, b_shape = [steps, m, k], [steps, k, n]
    if formats[0] == "e2m1":
        a_shape[2 if k_packs[0] else 1] //= 2
    if formats[1] == "e2m1":
        b_shape[1 if k_packs[1] else 2] //= 2
    inputs = {
        "a": seen_as(stored(formats[0], *a_shape, seed=1)),
        "b": seen_as(stored(formats[1], *b_shape, seed=2)),
        "c": normal(m, n, seed=5),
    }
    given = {"a_scale": scales[0], "b_scale": scales[1]}
    inputs |= {key: scale for key, scale in given.items() if scale is not None}
    group = next((k // scale.shape[-1] for scale in scales if scale is not None), GROUP)

    def definition(**inputs: Tensor) -> Tensor:
        return defined(**inputs, formats=formats, k_packs=k_packs)

    def run(a: Tensor, b: Tensor, c: Tensor, **scales: Tensor) -> dict[str, Tensor]:
        y = torch.zeros_like(c)
        tensors = a, scales.get("a_scale"), b, scales.get("b_scale"), c, y
        shapes = *a.shape[1:], *b.shape[1:], m, n, k
        scaled_dot_kernel[(1,)](*tensors, steps, *formats, *k_packs, group, *shapes)
        return {"y": y}

    register(Construct(f"dot_scaled {name}", inputs, run, ROUNDED_ONCE, definition))


for _a in (*FLOATS, "e2m1"):
    for _b in (*FLOATS, "e2m1"):
        _register(f"{_a} by {_b}", (_a, _b))
_register("without a scale on the left", ("bf16", "e2m1"), scales=(None, e8m0(1, N, 2, seed=4)))
_register("without a scale on the right", ("e4m3", "fp16"), scales=(e8m0(1, M, 2, seed=3), None))
_register("without scales", ("e5m2", "e4m3"), scales=(None, None))
_register("packed along M", ("e2m1", "e4m3"), k_packs=(False, True))
_register("packed along N", ("e5m2", "e2m1"), k_packs=(True, False))
_register("packed along M and N", ("e2m1", "e2m1"), k_packs=(False, False))
_register("packed along M and K", ("e2m1", "e2m1"), k_packs=(False, True))
_register("of bytes", ("e4m3", "e5m2"), seen_as=lambda x: x.view(torch.uint8))
_register("of 16-bit integers", ("bf16", "fp16"), seen_as=lambda x: x.view(torch.uint16))
_register("in a loop", ("e4m3", "e2m1"), steps=3)
_register("of few rows and columns", ("e4m3", "e4m3"), sizes=(2, 4, 32))
_register("of one group", ("e2m1", "e2m1"), sizes=(16, 16, 32))
_all_sizes = e8m0(1, M, 2, seed=3, low=0, high=255)
_some_nan = e8m0(1, M, 2, seed=3, low=253, high=256)
_register("with scales of all sizes", ("e4m3", "e5m2"), scales=(_all_sizes, None))
_register("with scales that are NaN", ("e4m3", "e2m1"), scales=(_some_nan, None))
_huge, _tiny = e8m0(1, M, 2, seed=3, low=254, high=255), e8m0(1, N, 2, seed=4, low=1, high=2)
_register("with scales beyond float32 that cancel", ("bf16", "bf16"), scales=(_huge, _tiny))
_e4m3 = stored("e4m3", 1, M, 4, seed=3), stored("e4m3", 1, N, 4, seed=4)
_register("with scales in e4m3", ("e2m1", "e2m1"), scales=_e4m3)


@triton.jit
def batched_scaled_dot_kernel(
    a_ptr, b_ptr, a_scale_ptr, b_scale_ptr, y_ptr, B: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    rows = tl.arange(0, B)[:, None, None] * N + tl.arange(0, N)[None, :, None]
    at = rows * N + tl.arange(0, N)[None, None, :]
    groups = rows * (N // 32) + tl.arange(0, N // 32)[None, None, :]
    a, a_scale = tl.load(a_ptr + at), tl.load(a_scale_ptr + groups)
    b, b_scale = tl.load(b_ptr + at), tl.load(b_scale_ptr + groups)
    tl.store(y_ptr + at, tl.dot_scaled(a, a_scale, "e4m3", b, b_scale, "e5m2"))


def _batches(a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor) -> Tensor:
    zeros, formats = torch.zeros(64, 64), ("e4m3", "e5m2")
    products = zip(*(tensor.split(1) for tensor in (a, b, a_scale, b_scale)), strict=True)
    return torch.stack([defined(a, b, zeros, formats, *scales) for a, b, *scales in products])


def _batched(a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor) -> dict[str, Tensor]:
    y = torch.zeros(4, 64, 64, device=a.device)
    batched_scaled_dot_kernel[(1,)](a, b, a_scale, b_scale, y, 4, 64)
    return {"y": y}


if triton.__version__ >= "3.7":  # before it, scales had no batches
    _inputs = {
        "a": stored("e4m3", 4, 64, 64, seed=1), "b": stored("e5m2", 4, 64, 64, seed=2),
        "a_scale": e8m0(4, 64, 2, seed=3), "b_scale": e8m0(4, 64, 2, seed=4),
    }  # fmt: skip
    register(Construct("dot_scaled of batches", _inputs, _batched, ROUNDED_ONCE, _batches))
