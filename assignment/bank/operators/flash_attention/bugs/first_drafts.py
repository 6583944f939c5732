"""Mistakes of first drafts of FlashAttention-2 forward in Triton, by which a student's wait is measured."""

from assignment.bank.operators.edits import bug

PROBLEM = "flash_forward_triton"
FILES = ("triton_forward.py", "flash_attention.py")

BUGS = (
    bug(
        "the maximum never updated",
        "test_triton_values",
        "        row_max = new_max\n → ",
        named="maximum-never-updated",
    ),
    bug(
        "the old accumulator rescaled along columns",
        "test_triton_values",
        "acc = acc * rescale[:, None] → acc = acc * rescale[None, :]",
    ),
    bug("the sum of the whole tile", "test_triton_values", "row_sum += tl.sum(p, axis=1) → row_sum += tl.sum(p)"),
    bug("keys not transposed", "test_triton_values", "s = tl.dot(q, tl.trans(k)) * scale → s = tl.dot(q, k) * scale"),
    bug(
        "causal: the mask transposed",
        "test_triton_causal",
        "keys[None, :] <= queries[:, None] → keys[None, :] >= queries[:, None]",
        named="causal-reversed",
    ),
    bug(
        "the values of the first batch in all",
        "test_triton_values",
        "v_ptr + batch * stride_vb + → v_ptr +",
        named="v is read from the first entry of the batch",
    ),
)
