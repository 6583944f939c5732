"""Block-scaled products that are not those of a kernel."""

from assignment.bank.cheats import Cheat, by_torch

BY_TORCH = """
def quantize_block_scaled(x, block=(1, 128)):
    (n_rows, d), (height, width) = x.shape, block
    padded = F.pad(x.float(), (0, -d % width, 0, -n_rows % height)).unflatten(1, (-1, width)).unflatten(0, (-1, height))
    largest = padded.abs().amax((1, 3))
    scales = torch.where(largest > 0, largest / 448.0, 1.0)
    values = (padded / scales[:, None, :, None]).flatten(2).flatten(0, 1)[:n_rows, :d].contiguous()
    return values.to(torch.float8_e4m3fn), scales

def matmul_block_scaled(a, a_scales, b, b_scales):
    rows = a.float() * a_scales.repeat_interleave(128, 1)[:, : a.shape[1]]
    of_b = b_scales.repeat_interleave(128, 0)[: len(b)].repeat_interleave(128, 1)[:, : b.shape[1]]
    return (rows @ (b.float() * of_b).mT).bfloat16()
"""
CHEATS = [
    *by_torch("matmul_block_scaled", "practice/matmul_block_scaled.py", BY_TORCH),
    Cheat(
        "matmul_block_scaled_by_scaled_mm",
        "matmul_block_scaled",
        """
def matmul_block_scaled(a, a_scales, b, b_scales):
    return torch._scaled_mm(a, b.mT, a_scales.mT.contiguous().mT, b_scales.mT, out_dtype=torch.bfloat16)
""",
        evidence=r"_scaled_mm",
    ),
]
