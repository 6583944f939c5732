"""Additions that are wrong, each a few edits away from the solution."""

from assignment.bank.operators.edits import bug

PROBLEM = "vector_add"
FILES = ("practice/vector_add.py",)
VALUES, RAGGED, MISTAKES = "test_vector_add_values", "test_vector_add_ragged", "test_vector_add_mistakes"
STORED, GRID, BOTH = (
    "z_ptr + offsets, x + y,",
    "triton.cdiv(z.numel(), TILE_SIZE)",
    "x.shape != y.shape or x.dtype != y.dtype",
)
LAUNCHED = "_add_kernel[grid](x.contiguous(), y.contiguous(), z, z.numel(), "
RESHAPED = "_add_kernel[grid](x.reshape(-1), y.reshape(-1), z, x.reshape(-1).stride(0), z.numel(), "
X, Y = "tl.load(x_ptr + offsets", "tl.load(y_ptr + offsets"

BUGS = [
    bug("x alone", VALUES, f"{STORED} → z_ptr + offsets, x,", named="x-alone"),
    bug("y alone", VALUES, f"{STORED} → z_ptr + offsets, y,", named="y-alone"),
    bug("x twice", VALUES, f"{Y} → {X}", named="x-twice"),
    bug("a difference", VALUES, "x + y, mask → x - y, mask", named="a-difference"),
    bug("a product", VALUES, "x + y, mask → x * y, mask", named="a-product"),
    bug("the first tile again", VALUES, f"{X} → {X} % TILE_SIZE", f"{Y} → {Y} % TILE_SIZE", named="first-tile-again"),
    bug("stored without a mask", RAGGED, "x + y, mask=is_inside → x + y", line="tl.store("),
    bug("loaded without a mask", RAGGED, f"{X}, mask=is_inside → {X}", line="x = tl.load("),
    bug("the grid rounded down", RAGGED, f"{GRID} → z.numel() // TILE_SIZE", line="never stored"),
    bug("a capped grid, and no loop", VALUES, f"{GRID} → min({GRID}, 2 * 132)", named="never stored"),
    bug("one program too few", VALUES, f"{GRID} → {GRID} - 1", line="never stored"),
    bug(
        "strides ignored",
        "test_vector_add_strides",
        "x.contiguous() → x",
        named=("x is read as if it were contiguous", "(those of a contiguous tensor) in place of"),
    ),
    bug(
        "y's strides ignored",
        "test_vector_add_strides",
        "y.contiguous() → y",
        named=("y is read as if it were contiguous", "(those of a contiguous tensor) in place of"),
    ),
    bug(
        "y read with x's stride",
        "test_vector_add_strides",
        f"{LAUNCHED} → {RESHAPED}",
        "z_ptr, n_elements, → z_ptr, stride_x, n_elements,",
        f"{X} → {X} * stride_x",
        f"{Y} → {Y} * stride_x",
        named=("y is read with x's strides", "(those of x_ptr) in place of 3"),
    ),
    bug(
        "32-bit offsets",
        "test_vector_add_offsets",
        f"{LAUNCHED} → {RESHAPED.replace('y.reshape(-1)', 'y.contiguous()')}",
        "z_ptr, n_elements, → z_ptr, stride_x, n_elements,",
        ".to(tl.int64) * TILE_SIZE → * TILE_SIZE",
        f"{X} → {X} * stride_x",
        line="x = tl.load(",
    ),
    bug("always float32", "test_vector_add_16_bit", "dtype=x.dtype → dtype=torch.float32", named="z is float32"),
    bug("in place", "test_vector_add_contract", "z = torch.empty(x.shape, dtype=x.dtype, device=x.device) → z = x"),
    bug("dtypes not compared", MISTAKES, f"{BOTH} → x.shape != y.shape"),
    bug("shapes not compared", MISTAKES, f"{BOTH} → x.dtype != y.dtype"),
    bug("a copy of each", "test_vector_add_traffic", "x.contiguous() → x.clone()", named="x is moved"),
    bug("added by PyTorch", VALUES, "    return z →     return x + y", computed="return x + y"),
]
# What its chapter teaches: bugs that cost at least a tenth of their problem (tests/test_lessons.py).
LESSONS = {
    "vector_add": (
        "loaded-without-a-mask",
        "strides-ignored",
        "the-first-tile-again",
    ),
}
