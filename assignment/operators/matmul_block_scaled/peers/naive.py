"""PyTorch's own words for it: the product of what the scales make of both factors."""

BLOCK = 128


def matmul_block_scaled(a, a_scales, b, b_scales):
    k = a.shape[1]
    of_a = a_scales.repeat_interleave(BLOCK, 1)[:, :k]
    of_b = b_scales.repeat_interleave(BLOCK, 0)[: len(b)].repeat_interleave(BLOCK, 1)[:, :k]
    return ((a.float() * of_a) @ (b.float() * of_b).mT).bfloat16()
