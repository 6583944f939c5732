"""Right products with hints, as libraries give them."""

from assignment.bank.operators.edits import style

PROBLEMS = ("matmul",)
FILES = ("practice/matmul.py",)

STYLES = (
    style(  # rows and columns past the end are those from the start again, and loads mask terms alone
        "matmul_library_hints",
        (
            "    total = tl.zeros(",
            """\
    rows_in = tl.max_contiguous(tl.multiple_of(rows % m, M_TILE_SIZE), M_TILE_SIZE)
    cols_in = tl.max_contiguous(tl.multiple_of(cols % n, N_TILE_SIZE), N_TILE_SIZE)
    total = tl.zeros(""",
        ),
        ("        a_mask = (rows[:, None] < m) & (terms[None, :] < k)\n", "        a_mask = terms[None, :] < k\n"),
        ("        b_mask = (terms[:, None] < k) & (cols[None, :] < n)\n", "        b_mask = terms[:, None] < k\n"),
        ("a_ptr + rows[:, None]", "a_ptr + rows_in[:, None]"),
        ("stride_bk + cols[None, :]", "stride_bk + cols_in[None, :]"),
    ),
)
