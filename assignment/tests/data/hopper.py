"""Compiles the entries for Hopper, which needs no GPU; on a Hopper GPU, compares what they compute. Prints both."""

import itertools
import subprocess
import tempfile

import torch
from triton.backends.nvidia.compiler import get_ptxas
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from assignment.bank.operators.flash_attention.peers import hopper, hopper_backward
from assignment.simulator.triton_private import GPUTarget, compile

SHARED_MEMORY = 232_448  # bytes of a program on an H100


def compiled(kernel, sizes, d, is_causal, tiles, rows=(), **types):
    """The kernel for some sizes, as machine code; tiles: rows of what its descriptors describe, by name."""

    def tile(n):
        layout = gl.NVMMASharedLayout.get_default_for([1, n, d], gl.bfloat16)
        return f"tensordesc<{DTYPE}[1, {n}, {d}],{layout!r}>"

    constants = {**sizes, "IS_CAUSAL": is_causal, "D_TILE_SIZE": d}
    names = kernel.arg_names
    signature = dict.fromkeys(names, "i32") | dict.fromkeys(constants, "constexpr") | types
    signature |= {name: tile(n) for name, n in tiles.items()}
    row = f"tensordesc<fp32[1, 64],{hopper_backward.ROW_LAYOUT.value!r}>"
    signature |= dict.fromkeys(rows, row)
    at = {(names.index(name),): value for name, value in constants.items()}
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name in types if types[name].startswith("*")}
    source = GluonASTSource(kernel, signature, at, aligned)
    return compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})


def forward(sizes, d, is_causal):
    tiles = {"q_desc": 64, "o_desc": 64, "k_desc": sizes["K_TILE_SIZE"], "v_desc": sizes["K_TILE_SIZE"]}
    types = {"scale": "fp32", "lse_ptr": "*fp32", "n_taken_ptr": "*i32"}
    return compiled(hopper.flash_forward_kernel, sizes, d, is_causal, tiles, **types)


def backward(sizes, d, is_causal):
    tiles = dict.fromkeys(("q_desc", "grad_o_desc", "grad_k_desc", "grad_v_desc"), 64)
    tiles |= dict.fromkeys(("k_desc", "v_desc"), 128)
    types = {"sums_ptr": "*fp32", "scale": "fp32", "scale_of_2": "fp32"}
    kernel = hopper_backward.flash_backward_kernel
    return compiled(kernel, sizes, d, is_causal, tiles, ("minus_lse_desc", "minus_delta_desc"), **types)


def warnings_of(ptx):
    """What NVIDIA's assembler says of the kernel, as of products that must wait for each other."""
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        command = [get_ptxas(90).path, "-v", "--gpu-name=sm_90a", file.name, "-o", "/dev/null"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return [line for line in said.splitlines() if "(C7" in line]


def compare(dtype, d, n_queries, n_keys, is_causal):
    """Expect what PyTorch computes in float64, for 2 × 3 matrices."""
    q, grad_o = (torch.randn(2, 3, n_queries, d, device="cuda", dtype=dtype) for _ in range(2))
    k, v = (torch.randn(2, 3, n_keys, d, device="cuda", dtype=dtype) for _ in range(2))
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    s = (exact[0] @ exact[1].mT) * d**-0.5
    if is_causal:
        s = s.masked_fill(torch.ones(n_queries, n_keys, dtype=torch.bool, device="cuda").triu(1), -torch.inf)
    want, want_lse = s.softmax(-1) @ exact[2], s.logsumexp(-1).detach()
    want.backward(grad_o.double())
    o, lse = hopper.flash_forward_triton(q, k, v, is_causal)
    torch.testing.assert_close(o.double(), want.detach(), rtol=0, atol=0.02)
    torch.testing.assert_close(lse.double(), want_lse, rtol=0, atol=1e-4)
    gradients = hopper_backward.flash_backward_triton(grad_o, q, k, v, o, lse, is_causal)
    for gradient, x in zip(gradients, exact, strict=True):
        assert x.grad is not None
        torch.testing.assert_close(gradient.double(), x.grad, rtol=0, atol=0.02 * max(float(x.grad.abs().max()), 1e-3))


MADE = (
    (forward, hopper.NARROW, 64), (forward, hopper.WIDE, 64), (forward, hopper.WIDE, 128),
    (backward, hopper_backward.NARROW, 64), (backward, hopper_backward.WIDE, 128),
)  # fmt: skip
for DTYPE, (make, sizes, d), is_causal in itertools.product(("bf16", "fp16"), MADE, (False, True)):
    made = make(sizes, d, is_causal)
    assert "wgmma.mma_async" in made.asm["ptx"], "no products of four warps"
    assert "cp.async.bulk.tensor" in made.asm["ptx"], "no copies of whole tiles"
    assert made.metadata.shared <= SHARED_MEMORY, made.metadata.shared
    assert warnings_of(made.asm["ptx"]) == []
    if make is backward:
        assert "add.v4.f32" in made.asm["ptx"], "no additions of four values at once"
    print("compiled", make.__name__, d, is_causal, DTYPE)
if torch.cuda.is_available() and torch.cuda.get_device_capability() == hopper.HOPPER:
    LENGTHS = ((1, 1), (1, 300), (128, 128), (1000, 777), (300, 1500), (777, 300), (2000, 2000), (300, 8200))
    for kind, d, lengths, is_causal in itertools.product(
        (torch.bfloat16, torch.float16), (8, 40, 64, 80, 128), LENGTHS, (False, True)
    ):
        compare(kind, d, *lengths, is_causal)
        print("right", kind, d, *lengths, is_causal)
