"""Products of matrices that are wrong, each a few edits away from the plain one in base/."""

from assignment.bank.operators.edits import bug

PROBLEM = "matmul"
FILES = ("practice/matmul.py",)
DOT = "total = tl.dot(a, b, total)"
LOOP = "for start in range(0, k, K_TILE_SIZE):"
STORED = "tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=c_mask)"
A_AT = "a_ptr + rows[:, None] * stride_am + terms[None, :] * stride_ak, mask=a_mask"
B_AT = "b_ptr + terms[:, None] * stride_bk + cols[None, :] * stride_bn, mask=b_mask"
B_MASK = "b_mask = (terms[:, None] < k) & (cols[None, :] < n)"
CHECK = "    _check(a, b)\n    k, n = b.shape"

BUGS = [
    bug("the last product alone", "test_values", f"{DOT} → total = tl.dot(a, b)", named="a-part-of-the-terms"),
    bug(
        "a capped grid, and no loop over tiles",
        "test_values",
        "grid = (triton.cdiv(m, M_TILE_SIZE) * triton.cdiv(n, N_TILE_SIZE),) → "
        "grid = (min(triton.cdiv(m, M_TILE_SIZE) * triton.cdiv(n, N_TILE_SIZE), 132),)",
        named="never stored",
    ),
    bug(
        "one tile of terms",
        "test_values",
        f"{LOOP} → for start in range(0, K_TILE_SIZE, K_TILE_SIZE):",
        named="a-part-of-the-terms",
    ),
    bug(
        "the terms after the last whole tile left out",
        "test_ragged",
        f"{LOOP} → for start in range(0, k // K_TILE_SIZE * K_TILE_SIZE, K_TILE_SIZE):",
        named="a-part-of-the-terms",
    ),
    bug(
        "b does not move along k",
        "test_values",
        f"{B_AT} → b_ptr + (terms - start)[:, None] * stride_bk + cols[None, :] * stride_bn, mask=b_mask",
        named="the-same-tile-again",
    ),
    bug(
        "begun with one product too many",
        "test_values",
        f"        {DOT}\n →         {DOT} + tl.dot(a, b)\n",
        named="the-sign",
    ),
    bug(
        "a mean",
        "test_values",
        f"{STORED} → tl.store(c_ptrs, (total / k).to(c_ptr.dtype.element_ty), mask=c_mask)",
        named="the-mean",
    ),
    bug(
        "stored past the end",
        "test_ragged",
        f"{STORED} → tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty))",
        line="tl.store(c_ptrs",
    ),
    bug(
        "b loaded past the last term",
        "test_ragged",
        f"{B_MASK} → b_mask = (terms[:, None] >= 0) & (cols[None, :] < n)",
        line="b = tl.load(b_ptr",
    ),
    bug(
        "b loaded past the last column",
        "test_ragged",
        f"{B_MASK} → b_mask = (terms[:, None] < k) & (cols[None, :] >= 0)",
        line="b = tl.load(b_ptr",
    ),
    bug(
        "a grid rounded down",
        "test_ragged",
        "triton.cdiv(m, M_TILE_SIZE) * triton → max(1, m // M_TILE_SIZE) * triton",
        line="never stored",
    ),
    bug(
        "a sum in 16 bits",
        "test_16_bit",
        f"{DOT} → total = tl.dot(a, b, total).to(a_ptr.dtype.element_ty).to(tl.float32)",
        named="summed-in-16-bits",
    ),
    bug(
        "factors in bfloat16",
        "test_precision",
        f"{DOT} → total = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), total)",
        named="factors-in-16-bits",
    ),
    bug(
        "always float32",
        "test_16_bit",
        "c = torch.empty((m, n), dtype=a.dtype → c = torch.empty((m, n), dtype=torch.float32",
        named="c is float32",
    ),
    bug(
        "b's last stride taken to be 1",
        "test_strides",
        f"{B_AT} → b_ptr + terms[:, None] * stride_bk + cols[None, :], mask=b_mask",
        named=("b is read as if its last stride were 1", "b = tl.load(b_ptr"),
    ),
    bug(
        "a's last stride taken to be 1",
        "test_strides",
        f"{A_AT} → a_ptr + rows[:, None] * stride_am + terms[None, :], mask=a_mask",
        named=("a is read as if", "a = tl.load(a_ptr"),
    ),
    bug(
        "rows in int32", "test_offsets", "rows = row_tile.to(tl.int64) * → rows = row_tile *", named="a = tl.load(a_ptr"
    ),
    bug("no checks", "test_mistakes", f"{CHECK} →     k, n = b.shape[-2:]", named="expected a ValueError"),
    bug(
        "an empty batch is launched",
        "test_contract",
        "    if m > 0:\n →     if m == 0:\n        raise RuntimeError('no rows')\n    if True:\n",
        named="raise RuntimeError('no rows')",
    ),
    bug(
        "tiles of 16",
        "test_traffic",
        "M_TILE_SIZE, N_TILE_SIZE, K_TILE_SIZE = 64, 64, 32 → M_TILE_SIZE, N_TILE_SIZE, K_TILE_SIZE = 16, 16, 64",
        named="is read",
    ),
    bug(
        "finished by PyTorch",
        "test_values",
        "    return c.reshape(*a.shape[:-1], n)\n → "
        "    return (c + 0 * (a.reshape(-1, k) @ b)).reshape(*a.shape[:-1], n)\n",
        computed="return (c + 0 * (a.reshape(-1, k) @ b))",
    ),
]
# What its chapter teaches: bugs that cost at least a tenth of their problem (tests/test_lessons.py).
LESSONS = {
    "matmul": (
        "the-terms-after-the-last-whole-tile-left-out",
        "a-sum-in-16-bits",
        "tiles-of-16",
    ),
}
