"""Kernels for test_compiling.py, which runs this in a process of its own: prints one JSON object.

    python assignment/tests/data/compiled.py        # kernels, texts of problems, and what a GPU's tools say of them

A line that ends in a comment HERE is the one that must be told of the function that it stands in.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from assignment.compiling import advice, build, install, launches, machine_code
from assignment.compiling.targets import TARGETS

SIZE = 64


@triton.jit
def _places(n):
    return tl.arange(0, n)  # HERE for range_not_constexpr


@triton.jit
def range_not_constexpr(x_ptr, n):
    tl.store(x_ptr + _places(n), 1.0)


@triton.jit
def shape_not_constexpr(x_ptr, n):
    zeros = tl.zeros((n,), dtype=tl.float32)  # HERE
    tl.store(x_ptr + tl.arange(0, 16), zeros)


@triton.jit
def no_power_of_two(x_ptr, N: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, N), 1.0)  # HERE


@triton.jit
def global_variable(x_ptr):
    tl.store(x_ptr + tl.arange(0, SIZE), 1.0)  # HERE


@triton.jit
def type_changes_in_the_loop(x_ptr, n):
    total = 0
    for i in range(n):  # HERE
        total += tl.load(x_ptr + i)
    tl.store(x_ptr, total)


@triton.jit
def refused_by_an_assertion(x_ptr, N: tl.constexpr):
    tl.static_assert(N > 32, "N is too small")  # HERE
    tl.store(x_ptr, 1.0)


@triton.jit
def products(x_ptr, n, M: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    rows, cols = tl.arange(0, M), tl.arange(0, K)
    places = rows[:, None] * K + cols[None, :]
    q, total = tl.load(x_ptr + places), tl.zeros((M, K), tl.float32)
    for i in range(n):
        k = tl.load(x_ptr + i * M * K + places)
        s = tl.dot(q, tl.trans(k), input_precision=PRECISION)  # HERE
        total += tl.dot(s.to(k.dtype), k, input_precision=PRECISION)
    tl.store(x_ptr + places, total.to(x_ptr.dtype.element_ty))


@triton.autotune([triton.Config({"M": m, "K": 256}) for m in (128, 16, 32)], key=[])
@triton.jit
def tuned(x_ptr, n, M: tl.constexpr, K: tl.constexpr):
    places = tl.arange(0, M)[:, None] * K + tl.arange(0, K)[None, :]
    q, total = tl.load(x_ptr + places), tl.zeros((M, K), tl.float32)
    for i in range(n):
        k = tl.load(x_ptr + i * M * K + places)
        total += tl.dot(tl.dot(q, tl.trans(k)).to(k.dtype), k)
    tl.store(x_ptr + places, total.to(x_ptr.dtype.element_ty))


@triton.jit
def with_descriptors(x_desc, y_ptr):
    tl.store(y_ptr + tl.arange(0, 16)[:, None] * 64 + tl.arange(0, 64)[None, :], x_desc.load([0, 0]))


@triton.jit
def with_block_pointers(x_ptr, y_ptr):
    block = tl.make_block_ptr(x_ptr, (64, 64), (64, 1), (0, 0), (16, 64), (1, 0))
    tl.store(y_ptr + tl.arange(0, 16)[:, None] * 64 + tl.arange(0, 64)[None, :], tl.load(block, boundary_check=(0, 1)))


def launch_everything() -> None:
    x = torch.zeros(1 << 16)
    half = x.bfloat16()
    range_not_constexpr[(1,)](x, 16)
    shape_not_constexpr[(1,)](x, 16)
    no_power_of_two[(1,)](x, N=100)
    global_variable[(1,)](x)
    type_changes_in_the_loop[(1,)](x, 100)
    refused_by_an_assertion[(1,)](x, N=16)
    products[(1,)](half, 100, M=64, K=64, PRECISION="tf32")
    products[(1,)](half[1:], 100, M=64, K=64, PRECISION="tf32")
    products[(1,)](half, 100, M=16, K=64, PRECISION="tf32")
    products[(1,)](half, 100, M=64, K=8, PRECISION="tf32")
    products[(1,)](half, 100, M=64, K=64, PRECISION="tf32", num_warps=2)
    products[(1,)](x, 100, M=64, K=64, PRECISION="tf32")
    products[(1,)](x, 100, M=16, K=16, PRECISION="ieee")
    products[(1,)](x, 100, M=64, K=256, PRECISION="tf32")
    tuned[(1,)](half, 100)
    with_descriptors[(1,)](TensorDescriptor(x, [64, 64], [64, 1], [16, 64]), x)
    with_block_pointers[(1,)](x, x)


def resources(noted: list) -> list[list[int]]:
    """Registers and stack of a kernel, by our reading of its binary and by cuobjdump's."""
    found = []
    for launch in noted:
        cubin = build.assembled(launch).asm["cubin"]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "kernel.cubin")
            path.write_bytes(cubin)
            command = [str(machine_code.TOOLS / "cuobjdump"), "-res-usage", str(path)]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        own = said.partition("Function products:")[2]
        registers, stack = (int(own.partition(f"{name}:")[2].split()[0]) for name in ("REG", "STACK"))
        found.append([*machine_code.registers_and_spills(cubin), registers, stack // 4])
    return found


if __name__ == "__main__":
    install()
    everything, figures = [], []
    for target in TARGETS.values():
        with launches.recorded(target) as noted:
            launch_everything()
        everything += noted
        large = [launch for launch in noted if launch.kernel is products and launch.constants.get((3,)) == 256]
        figures += resources(large)
    kernels = build.kernels(everything)
    enough = build.kernels([launch for launch in everything if launch.kernel is tuned.fn], is_brief=True)
    told = {
        "kernels": [kernel.as_json() for kernel in kernels],
        "enough": [kernel.config for kernel in enough],
        "problems": {name: advice.problems(k for k in kernels if k.name == name) for name in {k.name for k in kernels}},
        "resources": figures,
        "spills": advice.spills([kernel for kernel in kernels if kernel.name == "products"]),
    }
    json.dump(told, sys.stdout, default=str)  # texts with their lines
