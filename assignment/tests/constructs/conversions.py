"""Every conversion between two types, on values of every kind."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .table import BITS, EXACT, SIZE, construct, every_kind, out

TYPES = {
    "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "fp64": torch.float64, "int1": torch.bool,
    "int8": torch.int8, "uint8": torch.uint8, "int16": torch.int16, "int32": torch.int32, "int64": torch.int64,
}  # fmt: skip


@triton.jit
def to_kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(y_ptr + at, tl.load(x_ptr + at).to(y_ptr.dtype.element_ty))


@triton.jit
def store_kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(y_ptr + at, tl.load(x_ptr + at))


@triton.jit
def truncate_kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, x.to(y_ptr.dtype.element_ty, fp_downcast_rounding="rtz"))


@triton.jit
def unsigned_kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, x.to(tl.uint32).to(tl.int32, bitcast=True))
    tl.store(y_ptr + SIZE + at, x.to(tl.uint16).to(tl.int32))
    tl.store(y_ptr + 2 * SIZE + at, (x.to(tl.uint64) >> 32).to(tl.int32))


@triton.jit
def from_unsigned_kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(y_ptr + at, tl.load(x_ptr + at).to(tl.uint32, bitcast=True).to(y_ptr.dtype.element_ty))


@triton.jit
def bitcast_kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(y_ptr + at, tl.load(x_ptr + at).to(y_ptr.dtype.element_ty, bitcast=True))


@triton.jit
def fp8_kernel(x_ptr, y_ptr, TYPE: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at).to(TYPE)
    tl.store(y_ptr + at, x.to(tl.int8, bitcast=True).to(tl.float32))
    tl.store(y_ptr + SIZE + at, x.to(tl.float32))


def _defined(x: Tensor, target: torch.dtype) -> Tensor:
    """Return x without undefined conversions: a float beyond uint8 depends on how it is stored."""
    return x.nan_to_num(0).clamp(0, 255) if target == torch.uint8 and x.is_floating_point() else x


def _register(name: str, kernel, source: torch.dtype, target: torch.dtype, outputs: int = 1) -> None:
    # Triton converts fp16 by way of fp32, ptxas then leaves that out, and with it what happens to a NaN's bits.
    closeness = EXACT if (source, target) == (torch.float16, torch.float64) else BITS
    x = _defined(every_kind(source), target)
    construct(name, kernel, lambda x: (x, out(outputs * SIZE, dtype=target), SIZE), closeness, x=x)


for _from, _source in TYPES.items():
    for _to, _target in TYPES.items():
        if _source != _target:
            _register(f"convert {_from} to {_to}", to_kernel, _source, _target)
for _to in ("fp16", "bf16", "int32"):
    _register(f"store fp32 as {_to}", store_kernel, torch.float32, TYPES[_to])
for _to in ("fp16", "bf16"):
    _register(f"convert fp32 to {_to} towards zero", truncate_kernel, torch.float32, TYPES[_to])
for _from in ("fp32", "fp16", "bf16", "fp64", "int32"):
    _register(f"convert {_from} to unsigned", unsigned_kernel, TYPES[_from], torch.int32, outputs=3)
for _to in ("fp32", "fp16", "bf16", "fp64", "int64"):
    _register(f"convert uint32 to {_to}", from_unsigned_kernel, torch.int32, TYPES[_to])
for _from, _to in ("fp32", "int32"), ("int32", "fp32"), ("bf16", "int16"), ("fp16", "int16"), ("fp16", "bf16"):
    _register(f"bitcast {_from} to {_to}", bitcast_kernel, TYPES[_from], TYPES[_to])
for _from in ("fp32", "fp16", "bf16"):
    for _fp8 in (tl.float8e4nv, tl.float8e5):
        # NaN keeps no bits in float32 that anybody reads
        construct(
            f"convert {_from} to {_fp8} and back", fp8_kernel, lambda x, fp8=_fp8: (x, out(2 * SIZE), fp8, SIZE),
            x=every_kind(TYPES[_from]),
        )  # fmt: skip
