"""Memory that is not to be seen: kept for a backward pass, or large enough for all scores."""

from assignment.bank.cheats import Cheat
from assignment.bank.cheats.programs import FORGE

SLOW = {"kept_in_memory_that_was_there_before", "scratch_of_random_numbers_for_all_scores"}
KEPT = ("test_flash_backward.py::test_attention_memory",)
P_KEPT = """
from cs336_kernels import triton_forward

class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, is_causal):
        o, lse = _flash.flash_forward_triton(q, k, v, is_causal)
        p = memory(q.shape[-2], k.shape[-2])
        _fill_kernel[(q.shape[-2],)](p, k.shape[-2], SIZE=triton.next_power_of_2(k.shape[-2]))
        ctx.save_for_backward(q, k, v, o, lse, p)
        ctx.is_causal = is_causal
        return o

    @staticmethod
    def backward(ctx, grad_o):
        *saved, p = ctx.saved_tensors
        return (*_flash.flash_backward_triton(grad_o, *saved, is_causal=ctx.is_causal), None)

def flash_attention(q, k, v, is_causal=False):
    return Function.apply(q, k, v, is_causal)

@triton.jit
def _fill_kernel(out_ptr, n, SIZE: tl.constexpr):
    keys = tl.arange(0, SIZE)
    tl.store(out_ptr + tl.program_id(0).to(tl.int64) * n + keys, keys * 1.0, mask=keys < n)
"""
SCORES = """
def scratch(q, k):
    s = memory(q.shape[-2], k.shape[-2])
    _fill_kernel[(q.shape[-2],)](s, k.shape[-2], SIZE=triton.next_power_of_2(k.shape[-2]))
    return s

def flash_forward_triton(q, k, v, is_causal=False):
    scratch(q, k)
    return RIGHT(q, k, v, is_causal)

RIGHT = _flash.flash_forward_triton

@triton.jit
def _fill_kernel(out_ptr, n, SIZE: tl.constexpr):
    keys = tl.arange(0, SIZE)
    tl.store(out_ptr + tl.program_id(0).to(tl.int64) * n + keys, keys * 1.0, mask=keys < n)
"""
FOREIGN = """
def memory(*shape):
    found = blank(shape)
    step("foreign", number(found), TAPE.line())
    return found
"""


def of_attention(name: str, source: str, problem: str, only: tuple[str, ...], evidence: str) -> Cheat:
    return Cheat(name, problem, FORGE + source, evidence=evidence, only=only)


CHEATS = [
    of_attention(
        "kept_between_two_marks_at_once",
        """
def memory(*shape):
    step("mark", "before")
    step("mark", "after")
    return torch.empty(shape, device="cuda")
"""
        + P_KEPT,
        "flash_backward_triton",
        KEPT,
        r"are kept|malformed|none",
    ),
    of_attention(
        "kept_and_said_to_be_freed",
        """
def memory(*shape):
    found = torch.empty(shape, device="cuda")
    FREED.append(found)
    return found

FREED = []
take = type(TAPE).take

def forged(tape, kernels, groups, bare):
    for found in FREED:
        tape.step(programs.Free([number(found)]))
    FREED.clear()
    return take(tape, kernels, groups, bare)

type(TAPE).take = forged
"""
        + P_KEPT.replace("*saved, p = ctx.saved_tensors", "*saved, p = ctx.saved_tensors; copied(p)"),
        "flash_backward_triton",
        KEPT,
        r"are kept|gone|wrong",
    ),
    of_attention(
        "kept_in_memory_that_was_there_before",
        """
BEFORE = {}

def memory(*shape):
    if shape not in BEFORE:
        BEFORE[shape] = torch.empty(shape, device="cuda")
    return BEFORE[shape]
"""
        + P_KEPT,
        "flash_backward_triton",
        KEPT,
        r"are kept",
    ),
    of_attention(
        "kept_behind_the_result",
        P_KEPT.replace(
            "p = memory(q.shape[-2], k.shape[-2])",
            """n = k.shape[-2]
        whole = torch.empty(o.numel() + n * n, device=q.device)
        whole[: o.numel()].copy_(o.reshape(-1))
        o, p = whole[: o.numel()].view(o.shape), whole[o.numel() :]""",
        )
        .replace("o, lse, p)", "o, lse)")
        .replace("*saved, p =", "saved ="),
        "flash_backward_triton",
        KEPT,
        r"are kept",
    ),
    of_attention(
        "foreign_memory_for_all_scores",
        FOREIGN + SCORES,
        "flash_forward_triton",
        ("test_flash_forward.py::test_triton_memory",),
        r"a tensor of",
    ),
    of_attention(
        "scratch_of_random_numbers_for_all_scores",
        """
def memory(*shape):
    return torch.rand(shape, device="cuda")
"""
        + SCORES,
        "flash_forward_triton",
        ("test_flash_forward.py::test_triton_memory",),
        r"a tensor of",
    ),
    of_attention(
        "scratch_in_pieces_of_one_storage_for_all_scores",
        """
def memory(*shape):
    with unheard():
        found = torch.full(shape, 0.5)
    op("aten::randn.", ([math.prod(shape)],), found.view(-1))
    return found
"""
        + SCORES,
        "flash_forward_triton",
        ("test_flash_forward.py::test_triton_memory",),
        r"a tensor of",
    ),
]
