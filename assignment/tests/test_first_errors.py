"""The errors that beginners make first, in vector_add and in attention: what is told names the cause and the line."""

import pytest

from assignment.bank.bugs import PlantedBug
from assignment.bank.operators.edits import bug
from assignment.bank.run import waiting
from assignment.judge import plainly
from assignment.simulator import shapes

ADD = ("vector_add", ("practice/vector_add.py",), "test_vector_add_values")
ATTENTION = ("flash_forward_triton", ("triton_forward.py", "flash_attention.py"), "test_triton_values")
MASK = "    is_inside = offsets < n_elements\n"
OBLONG = (
    "tile_size = min(64, 4096 // d_tile_size) → tile_size = 16",
    "K_TILE_SIZE=tile_size → K_TILE_SIZE=128",
)
# Where, edits, what is told, a part of the line
ERRORS = {
    "no grid": (ADD, ["_add_kernel[grid](x → _add_kernel(x"], "_add_kernel[grid](…) launches", "_add_kernel(x.contig"),
    "no @triton.jit": (ADD, ["@triton.jit\n → "], "put @triton.jit above its def", "_add_kernel[grid]"),
    "neither": (
        ADD,
        ["@triton.jit\n → ", "_add_kernel[grid](x → _add_kernel(x"],
        "put @triton.jit above the def of _add_kernel",
        "tl.program_id(0)",
    ),
    "a pointer indexed": (
        ADD,
        ["tl.load(x_ptr + offsets, mask=is_inside) → x_ptr[offsets]"],
        "tl.load(x_ptr + offsets, mask=…)",
        "x_ptr[offsets]",
    ),
    "offsets without a pointer": (
        ADD,
        ["tl.load(x_ptr + offsets, mask=is_inside) → tl.load(offsets, mask=is_inside)"],
        "numbers are no pointers",
        "tl.load(offsets",
    ),
    "a pointer assigned to": (
        ADD,
        ["tl.store(z_ptr + offsets, x + y, mask=is_inside) → z_ptr[offsets] = x + y"],
        "use tl.store for memory",
        "z_ptr[offsets]",
    ),
    "nothing stored": (
        ADD,
        ["    tl.store(z_ptr + offsets, x + y, mask=is_inside)\n →     z = x + y\n"],
        "_add_kernel stores nothing",
        "",
    ),
    "torch": (ADD, ["x + y, mask → torch.exp(x) + y, mask"], "write tl.exp", "torch.exp(x)"),
    "torch by another name": (ADD, ["x + y, mask → x + torch.amax(y), mask"], "write tl.max(x, axis=1)", "torch.amax"),
    "an f-string": (ADD, [f'{MASK} → {MASK}    print(f"at {{offsets}}")\n'], 'print("offsets =", offsets)', "print(f"),
    "breakpoint": (ADD, [f"{MASK} → {MASK}    breakpoint()\n"], "uv run pytest --inline --pdb", "breakpoint()"),
    "a tile of n": (
        ADD,
        ["tl.arange(0, TILE_SIZE) → tl.arange(0, n_elements)"],
        "TILE_SIZE: tl.constexpr",
        "arange(0, n",
    ),
    "range over a tile": (
        ADD,
        [f"{MASK} → {MASK}    for i in range(offsets):\n        pass\n"],
        "range takes numbers",
        "range(offsets)",
    ),
    "a sum over axis 0": (
        ATTENTION,
        ["row_sum += tl.sum(p, axis=1) → row_sum += tl.sum(p, axis=0)", *OBLONG],
        "one number a row (16), over axis=0 one a column (128): axis=1?",
        "axis=0",
    ),
    "a row for a column": (
        ATTENTION,
        ["acc = acc * rescale[:, None] → acc = acc * rescale[None, :]", *OBLONG],
        "(16, 64) meets (1, 16): one number a row (16) stands in a row, where the tile has 64 columns: [:, None]?",
        "rescale[None, :]",
    ),
    "no axis": (
        ATTENTION,
        ["s - new_max[:, None] → s - new_max", *OBLONG],
        "made a column by [:, None]",
        "s - new_max",
    ),
    "no tl.trans": (
        ATTENTION,
        ["tl.dot(q, tl.trans(k)) → tl.dot(q, k)", *OBLONG],
        "is a tl.trans missing",
        "tl.dot(q, k)",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ERRORS)
def test_what_is_told_of_a_first_error_names_cause_and_line(name):
    (problem, files, check), edits, told, line = ERRORS[name]
    planted = PlantedBug(problem, files, bug(name, check, *edits))
    (result,) = waiting.gathered(planted, [waiting.check_of(planted)], seed=1)
    message = next(case.message for case in result.cases if case.message)
    assert told in message, message
    assert line in message, message


def test_an_exception_that_is_not_known_is_told_as_it_is():
    assert plainly.advice("KeyError: 'function'\n  at a.py:1 in f: x[0]") == ""
    assert plainly.advice("TypeError: 'int' object is not iterable\n  at a.py:1 in f: list(x)") == ""


@pytest.mark.parametrize(
    ("lhs", "rhs", "told"),
    [
        ([128], [16], "(128,) meets (16,): of a tile of 128 rows"),
        ([1, 16], [16, 64], "one number a row (16)"),
        ([64, 1], [16, 64], "[None, :]?"),
        ([16], [16, 64], "made a column by [:, None]"),
        ([16, 64], [64, 16], "tl.trans"),
        ([16, 64], [32, 64], ""),
        ([2, 16, 64], [16], ""),
    ],
)
def test_shapes_that_do_not_fit_say_which_axis_may_be_wrong(lhs, rhs, told):
    assert told in shapes.meant(lhs, rhs)
    assert bool(told) == bool(shapes.meant(lhs, rhs))
