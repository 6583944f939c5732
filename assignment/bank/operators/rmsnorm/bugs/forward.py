"""Planted bugs of RMSNorm: the forward pass."""

from assignment.bank.operators.edits import bug

PROBLEM = "rmsnorm"
FILES = ("rmsnorm.py",)

BUGS = (
    bug(
        "forward: mean over the padded row",
        "test_forward_ragged",
        "sum_of_squares / d → sum_of_squares / D_TILE_SIZE",
        named="mean-over-the-padded-row",
    ),
    bug(
        "forward: sum in place of the mean",
        "test_forward_values",
        "sum_of_squares / d\n → sum_of_squares\n",
        named="sum-for-mean",
    ),
    bug(
        "forward: mean over the first tile only",
        "test_forward_wide",
        "for start in range(0, d, D_TILE_SIZE) → for start in range(0, D_TILE_SIZE, D_TILE_SIZE)",
        named="one-tile-of-columns",
    ),
    bug(
        "forward: y of the first tile only",
        "test_forward_wide",
        "for first_col in range(0, d, D_TILE_SIZE) → for first_col in range(0, D_TILE_SIZE, D_TILE_SIZE)",
        named="never stored",
    ),
    bug(
        "forward: y of every tile from the last one",
        "test_forward_wide",
        "if not IS_ONE_TILE:\n → if False:\n",
        named="y-from-the-last-tile",
    ),
    bug(
        "forward: the mean subtracted, as in LayerNorm",
        "test_forward_values",
        "sum_of_squares += tl. → x -= tl.sum(x, axis=1)[:, None] / d\n        sum_of_squares += tl.",
        named="mean-subtracted",
    ),
    bug(
        "forward: the weight forgotten",
        "test_forward_values",
        "x * rstd[:, None] * w[None, :] → x * rstd[:, None]",
        named="weight-forgotten",
    ),
    bug(
        "forward: grid rounded down",
        "test_forward_ragged",
        "grid = (triton.cdiv(n_rows, rows_tile_size),) → grid = (n_rows // rows_tile_size,)",
        named="never stored",
    ),
    bug(
        "forward: columns past the end of x unmasked",
        "test_forward_ragged",
        "x_mask = row_mask[:, None] & (cols < d)[None, :] → x_mask = row_mask[:, None]",
        named="x = tl.load(x_row_ptrs + cols[None, :] * strid",
    ),
    bug(
        "forward: y stored past the last column",
        "test_forward_ragged",
        "mask=y_mask)\n → mask=row_mask[:, None])\n",
        named="tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty),",
    ),
    bug(
        "forward: d must be a power of two",
        "test_forward_ragged",
        "d_tile_size = min(triton.next_power_of_2(d), MAX_D_TILE_SIZE) → d_tile_size = min(d, MAX_D_TILE_SIZE)",
        named="rows = tl.program_id(0).to(tl.int64) * ROWS_TI",
    ),
    bug(
        "forward: x added up as it is loaded",
        "test_forward_16_bit",
        "    x = tl.zeros((ROWS_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)\n → ",
        "mask=x_mask, other=0.0).to(tl.float32) → mask=x_mask, other=0.0)",
        "        if not IS_ONE_TILE:\n            x = tl.load( →         x = tl.load(",
        named="squares-in-16-bits",
    ),
    bug(
        "forward: x flattened with view",
        "test_forward_strides",
        "x_rows = x.reshape(-1, d) → x_rows = x.view(-1, d)",
        named="x_rows = x.view(-1, d)",
    ),
    bug(
        "forward: x's last stride taken to be 1",
        "test_forward_strides",
        "cols[None, :] * stride_xd, mask=x_mask → cols[None, :], mask=x_mask",
        named=(
            "x is read as if its last stride were 1",
            "is every index multiplied by its own stride",
            "strides 1 along axis 1 (those of a contiguous tensor)",
        ),
    ),
    bug(
        "forward: weight's stride taken to be 1",
        "test_forward_strides",
        "+ cols * stride_wd → + cols",
        named="w = tl.load(w_ptrs, mask=col_mask, other=0.0).",
    ),
    bug(
        "forward: y laid out like x but stored as contiguous",
        "test_forward_strides",
        "y = torch.empty((n_rows, d), dtype=x.dtype, device=x.device) → y = torch.empty_like(x_rows)",
        "y.stride(0), y.stride(1), rstd → d, 1, rstd",
        named="right, but stored as if it were contiguous",
    ),
    bug(
        "forward: row offsets in int32",
        "test_forward_offsets",
        "(0).to(tl.int64) * → (0) *",
        named="x = tl.load(x_row_ptrs + cols[None, :] * strid",
    ),
    bug(
        "forward: squares in the input's dtype",
        "test_forward_16_bit",
        "tl.sum(x * x, axis=1) → tl.sum((x * x).to(x_ptr.dtype.element_ty).to(tl.float32), axis=1)",
        named="squares-in-16-bits",
    ),
    bug(
        "forward: rstd used in the input's dtype",
        "test_forward_16_bit",
        "    rstd_ptrs =  →     rstd = rstd.to(x_ptr.dtype.element_ty).to(tl.float32)\n    rstd_ptrs = ",
        named="rstd-in-16-bits",
    ),
    bug(
        "forward: rstd in the input's dtype",
        "test_forward_16_bit",
        "rstd = torch.empty(n_rows, dtype=torch.float32 → rstd = torch.empty(n_rows, dtype=x.dtype",
        named="rstd is ",
    ),
    bug(
        "forward: y always float32",
        "test_forward_16_bit",
        "y = torch.empty((n_rows, d), dtype=x.dtype → y = torch.empty((n_rows, d), dtype=torch.float32",
        named="y is float32",
    ),
    bug(
        "forward: y written over x",
        "test_forward_contract",
        "y = torch.empty((n_rows, d), dtype=x.dtype, device=x.device) → y = x_rows",
        named="tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty),",
    ),
    bug(
        "forward: rstd kept from call to call",
        "test_forward_contract",
        "MAX_D_TILE_SIZE = 16384\n → MAX_D_TILE_SIZE = 16384\nBUFFERS = {}\n",
        "    rstd = torch.empty(n_rows, dtype=torch.float32, device=x.device) → "
        "    rstd = BUFFERS.setdefault(n_rows, torch.empty(n_rows, dtype=torch.float32, device=x.device))",
        named="the second call returned the memory of the fir",
    ),
    bug(
        "forward: no checks",
        "test_forward_mistakes",
        "    _check_forward(x, weight)\n → ",
        named="expected a ValueError before any launch",
    ),
)
