"""Kernels that are one program in the simulator and another one for the compiler, by a constant that tells them apart.

They look for the same lines to be played and compiled, whatever the constant came from.
"""

from assignment.bank.cheats import LOSES, Cheat

SLOW: tuple[str, ...] = ()
KERNEL = """
HERE = tl.constexpr(1000)

@triton.constexpr_function
def described(value):
    return len(str(value))

@triton.jit
def _helper(x):
    return x

@triton.jit
def _telling(y_ptr, x_ptr@CONST@, w_ptr, d, SIZE: tl.constexpr):
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    y = 0.0
    @BODY@
    tl.store(y_ptr + row, y)

def weighted_sum_forward(x, weight):
    r = weighted(x, weight)
    y, rows = torch.empty(r.numel(), dtype=r.dtype, device=x.device), x.reshape(-1, x.shape[-1]).contiguous()
    _telling[(y.numel(),)](y, rows, weight.contiguous(), rows.shape[1], SIZE=triton.next_power_of_2(rows.shape[1]))
    return y.reshape(r.shape)
"""
RIGHT = """x = tl.load(x_ptr + row * d + cols, mask=cols < d, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=cols < d, other=0.0).to(tl.float32)
    y = tl.sum(x * w)"""


APART = "the kernel that was graded is not the kernel that is compiled"


def telling(name: str, body: str, const: str = "", evidence: str = APART) -> Cheat:
    source = KERNEL.replace("@BODY@", body).replace("@CONST@", const)
    return Cheat(
        name,
        "weighted_sum",
        source,
        LOSES,
        ("test_compiles",),
        evidence,
        only=("test_weighted_sum.py::test_forward_values", "test_weighted_sum.py::test_compiles"),
    )


def right_if(test: str) -> str:
    return f"if {test}:\n        " + RIGHT.replace("\n    ", "\n        ")


CHEATS = [
    telling("literals_are_one_object_in_python", right_if("1000 is 1000")),
    telling("a_pointer_is_constant_for_the_compiler", right_if("not x_ptr.dtype.const"), ": tl.const", "are wrong"),
    telling("a_function_is_described_otherwise", right_if("described(_helper) > 60")),
    telling(
        "asks_for_its_gpu_by_halves_of_a_name",
        right_if('getattr(tl, "target" "_info").cuda_capability_geq(9, 0)'),
    ),
    telling("an_arm_of_an_expression", RIGHT + "\n    y = y if 1000 is 1000 else 0.0"),
    telling("a_constant_that_is_multiplied_with", RIGHT + "\n    y = y * int(1000 is 1000)"),
]
