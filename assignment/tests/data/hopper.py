"""Compiles the entry for Hopper, which needs no GPU; on a Hopper GPU, compares what it computes. Prints what came."""

import itertools

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from assignment.operators.flash_attention.staff.peers import hopper
from assignment.simulator.triton_private import GPUTarget, compile

SHARED_MEMORY = 232_448  # bytes of a program on an H100


def compiled(sizes, d, is_causal, dtype):
    """The kernel for one of the entry's sizes, as machine code."""

    def desc(rows):
        layout = gl.NVMMASharedLayout.get_default_for([1, rows, d], gl.bfloat16)
        return f"tensordesc<{dtype}[1, {rows}, {d}],{layout!r}>"

    constants = {**sizes, "IS_CAUSAL": is_causal, "D_TILE_SIZE": d}
    names = hopper.flash_forward_kernel.arg_names
    signature = dict.fromkeys(names, "i32") | dict.fromkeys(constants, "constexpr")
    signature |= {"q_desc": desc(64), "o_desc": desc(64), "scale": "fp32", "lse_ptr": "*fp32", "n_taken_ptr": "*i32"}
    signature |= dict.fromkeys(("k_desc", "v_desc"), desc(sizes["K_TILE_SIZE"]))
    at = {(names.index(name),): value for name, value in constants.items()}
    source = GluonASTSource(hopper.flash_forward_kernel, signature, at, {})
    return compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})


def compare(dtype, d, n_queries, n_keys, is_causal):
    """Expect what PyTorch computes in float64, for 2 × 3 matrices."""
    q = torch.randn(2, 3, n_queries, d, device="cuda", dtype=dtype)
    k, v = (torch.randn(2, 3, n_keys, d, device="cuda", dtype=dtype) for _ in range(2))
    o, lse = hopper.flash_forward_triton(q, k, v, is_causal)
    s = (q.double() @ k.double().mT) * d**-0.5
    if is_causal:
        s = s.masked_fill(torch.ones(n_queries, n_keys, dtype=torch.bool, device="cuda").triu(1), -torch.inf)
    torch.testing.assert_close(o.double(), s.softmax(-1) @ v.double(), rtol=0, atol=0.02)
    torch.testing.assert_close(lse.double(), s.logsumexp(-1), rtol=0, atol=1e-4)


SIZES = ((hopper.NARROW, 64), (hopper.WIDE, 64), (hopper.WIDE, 128))
for (sizes, d), is_causal, dtype in itertools.product(SIZES, (False, True), ("bf16", "fp16")):
    made = compiled(sizes, d, is_causal, dtype)
    assert "wgmma.mma_async" in made.asm["ptx"], "no products of four warps"
    assert "cp.async.bulk.tensor" in made.asm["ptx"], "no copies of whole tiles"
    assert made.metadata.shared <= SHARED_MEMORY, made.metadata.shared
    print("compiled", d, is_causal, dtype)
if torch.cuda.is_available() and torch.cuda.get_device_capability() == hopper.HOPPER:
    LENGTHS = ((1, 1), (1, 300), (128, 128), (1000, 777), (300, 1500), (777, 300), (2000, 2000), (300, 8200))
    for kind, d, lengths, is_causal in itertools.product(
        (torch.bfloat16, torch.float16), (8, 40, 64, 80, 128), LENGTHS, (False, True)
    ):
        compare(kind, d, *lengths, is_causal)
        print("right", kind, d, *lengths, is_causal)
